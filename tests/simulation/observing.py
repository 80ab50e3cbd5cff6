"""An observer that counts, for every offset, how often something was reported of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from goqueue.model.access import Action, Resource
from goqueue.model.names import TopicPartition
from goqueue.model.observer import ObservedOperation, Observer, Outcome, Range
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
        self.delivered_at: Counter[OfGroup] = Counter()
        self.settled_as: dict[Outcome, Counter[OfGroup]] = {one: Counter() for one in Outcome}
        self.dead_lettered_at: Counter[OfGroup] = Counter()
        self.redriven_at: Counter[Place] = Counter()
        self.scheduled_at: Counter[Place] = Counter()
        self.released_at: Counter[Place] = Counter()
        self.cancelled_at: Counter[Place] = Counter()
        self.calls: list[tuple[str, str, str]] = []  # principal, operation, error
        self.denials: list[tuple[Action, Resource]] = []
        self.writers: set[str] = set()  # listeners of sessions that have stored something

    def stored(
        self, partition: TopicPartition, offsets: Range, *, size: int, session: Session | None
    ) -> None:
        assert size > 0
        self.stored_at.update(places(partition, [offsets]))
        if session is not None:
            self.writers.add(session.listener)

    def replicated(self, partition: TopicPartition, offsets: Range) -> None:
        self.replicated_at.update(places(partition, [offsets]))

    def delivered(
        self, group: str, partition: TopicPartition, ranges: Sequence[Range], *, consumer: str
    ) -> None:
        assert consumer
        self.delivered_at.update((group, *one) for one in places(partition, ranges))

    def settled(
        self, group: str, partition: TopicPartition, ranges: Sequence[Range], *, outcome: Outcome
    ) -> None:
        self.settled_as[outcome].update((group, *one) for one in places(partition, ranges))

    def dead_lettered(self, group: str, partition: TopicPartition, ranges: Sequence[Range]) -> None:
        self.dead_lettered_at.update((group, *one) for one in places(partition, ranges))

    def redriven(self, source: TopicPartition, ranges: Sequence[Range]) -> None:
        self.redriven_at.update(places(source, ranges))

    def scheduled(self, log: TopicPartition, offsets: Range) -> None:
        self.scheduled_at.update(places(log, [offsets]))

    def released(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        self.released_at.update(places(log, ranges))

    def cancelled(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        self.cancelled_at.update(places(log, ranges))

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
