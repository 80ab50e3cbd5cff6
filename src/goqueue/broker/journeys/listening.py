"""Turns what an observer is told about queue groups and schedules into events of journeys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.model.names import TopicPartition
from goqueue.model.observer import Observer, Outcome, Range, Target
from goqueue.tracing.events import Details, Event, Kind, Link

DETAILS_MAX = 10_000  # remembered; then all are forgotten

_KINDS = {
    Outcome.ACKED: Kind.ACKED,
    Outcome.NACKED: Kind.NACKED,
    Outcome.LEASE_EXPIRED: Kind.LEASE_EXPIRED,
    Outcome.REJECTED: Kind.REJECTED,
    Outcome.ABORTED: Kind.NACKED,
    Outcome.RELEASED: Kind.RETURNED,
    Outcome.EXPIRED: Kind.EXPIRED,
    Outcome.SKIPPED: Kind.SKIPPED,
}
_ABORTED = "transaction aborted"


class Listener(Observer):
    """Makes events of what it is told, and collects them with the partitions they are about."""

    def __init__(
        self, node_id: int, time_ms: Callable[[], int], *, is_recovered: bool = False
    ) -> None:
        self.node_id = node_id
        self._time_ms = time_ms
        self._is_recovered = is_recovered
        self._events: list[tuple[TopicPartition, Event]] = []
        self._details: dict[tuple[object, ...], Details] = {}

    def take(self) -> list[tuple[TopicPartition, Event]]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def delivered(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        consumer: str,
        attempt: int,
    ) -> None:
        self._add(self._detail(Kind.DELIVERED, group, consumer, "", attempt), partition, ranges)

    def settled(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        outcome: Outcome,
        due_ms: int = 0,
    ) -> None:
        reason = _ABORTED if outcome is Outcome.ABORTED else ""
        self._add(self._detail(_KINDS[outcome], group, "", reason), partition, ranges, due_ms)

    def dead_lettered(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        reason: str,
        target: Target,
    ) -> None:
        details = self._detail(Kind.DEAD_LETTERED, group, "", reason)
        self._add_moved(details, partition, ranges, target, "dead-lettered")

    def scheduled(
        self, log: TopicPartition, offsets: Range, *, due_ms: int, target: Target
    ) -> None:
        name = target.partition
        link = Link(name.topic, name.partition, -1)
        self._add(self._detail(Kind.SCHEDULED), log, [offsets], due_ms, link)

    def released(self, log: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        self._add_moved(self._detail(Kind.RELEASED), log, ranges, target, "released")

    def cancelled(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        self._add(self._detail(Kind.CANCELLED), log, ranges)

    def redriven(self, source: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        self._add_moved(self._detail(Kind.REDRIVEN), source, ranges, target, "redriven")

    def deduplicated(self, partition: TopicPartition, offsets: Range) -> None:
        self._add(self._detail(Kind.DEDUPLICATED), partition, [offsets])

    def retired(self, partition: TopicPartition, offsets: Range, *, reason: str) -> None:
        self._add(self._detail(Kind.RETIRED, "", "", reason), partition, [offsets])

    def consumed(
        self, group: str, partition: TopicPartition, offsets: Range, *, consumer: str
    ) -> None:
        self._add(self._detail(Kind.CONSUMED, group, consumer), partition, [offsets])

    def _add(
        self,
        details: Details,
        partition: TopicPartition,
        ranges: Sequence[Range],
        due_ms: int = 0,
        link: Link | None = None,
    ) -> None:
        now_ms = self._time_ms()
        for first, end in ranges:
            event = Event(details, first, end, now_ms, now_ms, 0, due_ms, link)
            self._events.append((partition, event))

    def _add_moved(
        self,
        details: Details,
        partition: TopicPartition,
        ranges: Sequence[Range],
        target: Target,
        how: str,
    ) -> None:
        """Add events of messages that were moved to another log, and of their arrival there."""
        name, offset = target
        arrival = self._detail(Kind.ARRIVED, details.group, "", how)
        for first, end in ranges:
            link = Link(name.topic, name.partition, offset) if name.topic else None
            self._add(details, partition, [(first, end)], 0, link)
            if offset >= 0:
                back = Link(partition.topic, partition.partition, first)
                self._add(arrival, name, [(offset, offset + end - first)], 0, back)
                offset += end - first

    def _detail(
        self,
        kind: Kind,
        group: str = "",
        consumer: str = "",
        reason: str = "",
        attempt: int = 0,
    ) -> Details:
        key = (kind, group, consumer, reason, attempt)
        details = self._details.get(key)
        if details is None:
            if len(self._details) >= DETAILS_MAX:
                self._details = {}
            details = self._details[key] = Details(
                kind,
                self.node_id,
                group,
                consumer,
                reason=reason,
                attempt=attempt,
                is_recovered=self._is_recovered,
            )
        return details
