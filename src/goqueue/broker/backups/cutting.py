"""The cut: up to which offset a backup contains each partition.

All cuts are taken at leaders, in this order:

1. The metadata. The producers and jobs in it are those from before the data.
2. Commits of transactions are held at every coordinator, until all commits that were decided are in
   all of their participants. So no transaction is committed in some logs of the backup only.
3. Committed offsets, the delivery state of queues, schedules, journeys: what refers to messages.
4. Messages. They include everything that step 3 refers to.
5. The states of transactions, which know every participant of step 4; schemas, which include
   every schema of step 4; and the audit log.
6. It is checked that all of this was undisturbed: the same topics, the same producers of the
   broker, the same coordinators, and holds that have lasted. Otherwise the cut is taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from goqueue.cluster.facts import Fact, TopicFact, encode_decision
from goqueue.cluster.metadata import Metadata
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import CoordinatorLoading, GoQueueError, RequestTimedOut
from goqueue.model.names import (
    AUDIT_TOPIC,
    DELIVERY_TOPIC,
    INTERNAL_TOPICS,
    JOURNEYS_TOPIC,
    OFFSETS_TOPIC,
    SCHEDULED_TOPIC,
    SCHEMAS_TOPIC,
    TRANSACTION_TOPIC,
)
from goqueue.model.tenants import ClusterId, TopicName

HOLD_MS = 10_000  # a cut takes milliseconds; then commits go on in any case
SETTLE_MS_MAX = 5_000  # until commits that were decided are in all of their participants
SETTLE_CHECK_MS = 5
ATTEMPTS_MAX = 20
RETRY_MS = 100

BEFORE_MESSAGES = (OFFSETS_TOPIC, DELIVERY_TOPIC, SCHEDULED_TOPIC, JOURNEYS_TOPIC)
AFTER_MESSAGES = (TRANSACTION_TOPIC, SCHEMAS_TOPIC, AUDIT_TOPIC)

Place = tuple[bytes, int]  # topic id and partition number


class Span(NamedTuple):
    """The offsets of a log at the moment of its cut."""

    start: int
    end: int


class Held(NamedTuple):
    """A hold of one coordinator: its leader epoch, and whether all decided commits are complete."""

    epoch: int
    is_settled: bool


class TopicCut(NamedTuple):
    """The cut of a topic: the spans of its partitions by number."""

    name: TopicName
    id: bytes
    spans: Sequence[Span]


class Cut(NamedTuple):
    """The cut of a cluster: its metadata as an encoded decision, and the cuts of its topics."""

    cluster_id: ClusterId
    began_ms: int  # what was acknowledged before this time is in the backup
    ended_ms: int
    metadata: bytes
    topics: Sequence[TopicCut]
    feature_level: int  # that the logs may use


class Cluster(Protocol):
    """What a cut needs of the cluster."""

    def catch_up(self) -> Promise[None]:
        """Resolves when this node has the metadata of now."""

    def facts(self) -> Metadata: ...

    def epoch_of(self, place: Place) -> int:
        """Return the leader epoch of a partition, by the metadata of this node."""

    def hold(self, number: int, name: str) -> Promise[Held]:
        """Hold commits at the coordinator of a partition of the transaction log."""

    def release(self, number: int, name: str) -> Promise[bool]:
        """End a hold; resolves with whether it has lasted."""

    def spans(self, places: Sequence[Place]) -> Promise[list[Span]]:
        """Return the committed spans of partitions at their leaders."""


class Disturbed(Exception):
    """Something has changed during the cut, which is therefore not consistent."""


class Cutter:
    """Takes one cut."""

    def __init__(
        self,
        clock: Clock,
        cluster: Cluster,
        *,
        cluster_id: str,
        name: str,
        topics: Sequence[str] | None,
    ) -> None:
        """`topics` are those whose messages are included; None for all. Internal ones always."""
        self._clock = clock
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._name = name
        self._wanted = None if topics is None else frozenset(topics)
        self._held: dict[int, int] = {}  # leader epochs of held coordinators

    async def take(self) -> Cut:
        """Take a cut; again, as long as something disturbs it."""
        reason: Exception | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._attempt()
            except Disturbed as disturbed:
                reason = disturbed
            except GoQueueError as error:
                if not error.retryable:
                    raise
                reason = error
            await _sleep(self._clock, RETRY_MS)
        raise RequestTimedOut(f"No consistent cut could be taken: {reason} Retry later.")

    async def _attempt(self) -> Cut:
        began_ms = self._clock.wall_ms()
        await self._cluster.catch_up()
        metadata = self._cluster.facts()
        facts = self._included(metadata)
        named = {one.name: one for one in facts if isinstance(one, TopicFact)}
        transactions = named.get(TRANSACTION_TOPIC)
        try:
            if transactions is not None:
                await self._hold_all(transactions.partition_count)
            spans = await self._all_spans(named)
            await self._cluster.catch_up()
            self._check_unchanged(metadata, transactions)
        except BaseException:
            await self._release_all(is_checked=False)
            raise
        await self._release_all(is_checked=True)
        return Cut(
            self._cluster_id,
            began_ms,
            self._clock.wall_ms(),
            encode_decision(facts),
            [TopicCut(name, one.id, spans[name]) for name, one in sorted(named.items())],
            metadata.level,
        )

    def _included(self, metadata: Metadata) -> list[Fact]:
        """Return the entries of the metadata, without topics that are not wanted."""
        if self._wanted is None:
            return list(metadata.facts())
        chosen = metadata.copy()
        for topic in metadata.topics():
            if topic.name not in self._wanted and topic.name not in INTERNAL_TOPICS:
                chosen.forget_topic(topic.name)
        queues = chosen.named_queues
        chosen.named_queues = {
            name: one for name, one in queues.items() if chosen.topic(one.topic) is not None
        }
        return list(chosen.facts())

    # Holding commits

    async def _hold_all(self, count: int) -> None:
        """Hold commits at all coordinators until those that were decided are complete."""
        self._held = {}
        deadline_ms = self._clock.now_ms() + SETTLE_MS_MAX
        waiting = list(range(count))
        while waiting:
            asked = [(number, self._cluster.hold(number, self._name)) for number in waiting]
            waiting = []
            for number, promise in asked:
                held = await promise
                if self._held.setdefault(number, held.epoch) != held.epoch:
                    raise Disturbed("A coordinator of transactions has moved.")
                if not held.is_settled:
                    waiting.append(number)
            if waiting:
                if self._clock.now_ms() >= deadline_ms:
                    raise CoordinatorLoading("Commits of transactions are not completed; retry.")
                await _sleep(self._clock, SETTLE_CHECK_MS)

    async def _release_all(self, *, is_checked: bool) -> None:
        held, self._held = self._held, {}
        promises = [self._cluster.release(number, self._name) for number in held]
        have_lasted = True
        for promise in promises:
            try:
                have_lasted = await promise and have_lasted
            except GoQueueError:
                have_lasted = False  # It ends by itself.
        if is_checked and not have_lasted:
            raise Disturbed("Commits of transactions were not held for the whole cut.")

    # Spans

    async def _all_spans(self, named: dict[str, TopicFact]) -> dict[str, list[Span]]:
        """Return the spans of all topics, stage by stage."""
        fixed = {*BEFORE_MESSAGES, *AFTER_MESSAGES}
        messages = [name for name in named if name not in fixed]
        found: dict[str, list[Span]] = {}
        for stage in (BEFORE_MESSAGES, messages, AFTER_MESSAGES):
            topics = [named[name] for name in stage if name in named]
            places = [(one.id, number) for one in topics for number in range(one.partition_count)]
            spans = iter(await self._cluster.spans(places) if places else ())
            for one in topics:
                found[one.name] = [next(spans) for _ in range(one.partition_count)]
        return found

    def _check_unchanged(self, before: Metadata, transactions: TopicFact | None) -> None:
        """Raise if what the cut rests on is not as it was at the beginning."""
        after = self._cluster.facts()
        if _topics(after) != _topics(before):
            raise Disturbed("Topics were created, deleted or extended meanwhile.")
        if after.producers != before.producers:
            raise Disturbed("A part of the broker has moved to another node meanwhile.")
        for number, epoch in self._held.items():
            assert transactions is not None
            if self._cluster.epoch_of((transactions.id, number)) != epoch:
                raise Disturbed("A coordinator of transactions has moved.")


def _topics(metadata: Metadata) -> dict[bytes, tuple[str, int]]:
    return {one.id: (one.name, one.partition_count) for one in metadata.topics()}


def _sleep(clock: Clock, ms: int) -> Promise[None]:
    slept: Promise[None] = Promise()
    clock.call_later(ms, lambda: slept.resolve(None))
    return slept


def grouped(
    places: Sequence[Place], node_of: Callable[[Place], int]
) -> dict[int, list[tuple[int, Place]]]:
    """Return places by the node that leads them, each with its position in the sequence."""
    by_node: dict[int, list[tuple[int, Place]]] = {}
    for position, place in enumerate(places):
        by_node.setdefault(node_of(place), []).append((position, place))
    return by_node
