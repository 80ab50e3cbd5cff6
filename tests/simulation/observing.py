"""An observer that counts, for every offset, how often something was reported of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from goqueue.model.access import Action, Resource
from goqueue.model.names import TopicPartition
from goqueue.model.observer import ObservedOperation, Observer, Outcome, Range, Target
from goqueue.model.session import Session

Place = tuple[str, int, int]  # topic, partition, offset
OfGroup = tuple[str, str, int, int]  # group before them


def places(partition: TopicPartition, ranges: Iterable[Range]) -> list[Place]:
    return [
        (partition.topic, partition.partition, offset)
        for first, end in ranges
        for offset in range(first, end)
    ]


class CountingObserver(Observer):
    """What one process has reported."""

    def __init__(self) -> None:
        self.stored_at: Counter[Place] = Counter()
        self.replicated_at: Counter[Place] = Counter()
        self.deduplicated_at: Counter[Place] = Counter()
        self.retired_at: Counter[Place] = Counter()
        self.consumed_at: Counter[OfGroup] = Counter()
        self.delivered_at: Counter[OfGroup] = Counter()
        self.settled_as: dict[Outcome, Counter[OfGroup]] = {one: Counter() for one in Outcome}
        self.dead_lettered_at: Counter[OfGroup] = Counter()
        self.redriven_at: Counter[Place] = Counter()
        self.scheduled_at: Counter[Place] = Counter()
        self.released_at: Counter[Place] = Counter()
        self.cancelled_at: Counter[Place] = Counter()
        self.attempts: dict[OfGroup, list[int]] = {}
        self.targets: dict[Place, Place] = {}  # of what was moved to another log
        self.reported_to: dict[TopicPartition, int] = {}
        self.calls: list[tuple[str, str, str]] = []  # principal, operation, error
        self.denials: list[tuple[Action, Resource]] = []
        self.writers: set[str] = set()  # listeners of sessions that have stored something

    def stored(
        self,
        partition: TopicPartition,
        offsets: Range,
        *,
        size: int,
        session: Session | None,
        batches: int = 1,
    ) -> None:
        assert size > 0
        assert 0 <= batches <= offsets[1] - offsets[0]
        self.stored_at.update(places(partition, [offsets]))
        if session is not None:
            self.writers.add(session.listener)

    def replicated(self, partition: TopicPartition, offsets: Range) -> None:
        self.replicated_at.update(places(partition, [offsets]))

    def deduplicated(self, partition: TopicPartition, offsets: Range) -> None:
        self.deduplicated_at.update(places(partition, [offsets]))

    def retired(self, partition: TopicPartition, offsets: Range, *, reason: str) -> None:
        assert reason
        self.retired_at.update(places(partition, [offsets]))

    def consumed(
        self, group: str, partition: TopicPartition, offsets: Range, *, consumer: str
    ) -> None:
        self.consumed_at.update((group, *one) for one in places(partition, [offsets]))

    def delivered(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        consumer: str,
        attempt: int,
    ) -> None:
        assert consumer
        of_group: list[OfGroup] = [(group, *one) for one in places(partition, ranges)]
        self.delivered_at.update(of_group)
        for one in of_group:
            self.attempts.setdefault(one, []).append(attempt)

    def settled(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        outcome: Outcome,
        due_ms: int = 0,
    ) -> None:
        assert not due_ms or outcome in (Outcome.NACKED, Outcome.LEASE_EXPIRED)
        self.settled_as[outcome].update((group, *one) for one in places(partition, ranges))

    def dead_lettered(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        reason: str,
        target: Target,
    ) -> None:
        assert reason
        self.dead_lettered_at.update((group, *one) for one in places(partition, ranges))
        self._note_target(places(partition, ranges), target)

    def redriven(self, source: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        self.redriven_at.update(places(source, ranges))
        self._note_target(places(source, ranges), target)

    def scheduled(
        self, log: TopicPartition, offsets: Range, *, due_ms: int, target: Target
    ) -> None:
        assert due_ms
        assert target.partition.topic
        self.scheduled_at.update(places(log, [offsets]))

    def released(self, log: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        self.released_at.update(places(log, ranges))
        self._note_target(places(log, ranges), target)

    def cancelled(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        self.cancelled_at.update(places(log, ranges))

    def reported(self, log: TopicPartition, offset: int) -> None:
        self.reported_to[log] = max(offset, self.reported_to.get(log, 0))

    def _note_target(self, moved: list[Place], target: Target) -> None:
        if target.offset >= 0:
            topic, number = target.partition.topic, target.partition.partition
            for at, place in enumerate(moved):
                self.targets[place] = (topic, number, target.offset + at)

    def called(
        self,
        session: Session,
        operation: ObservedOperation,
        arguments: Mapping[str, Any],
        error: Exception | None,
        duration_ms: int,
    ) -> None:
        assert duration_ms >= 0
        self.calls.append((session.principal, operation.name, "" if error is None else str(error)))

    def denied(
        self, session: Session, action: Action, resource: Resource, *, operation: str
    ) -> None:
        self.denials.append((action, resource))
