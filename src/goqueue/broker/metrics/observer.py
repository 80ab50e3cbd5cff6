"""Counts the events of messages; a dictionary look-up and some additions per range.

The counters of a topic begin at 0 when the node first stores, reads or delivers a message of it.
They stay when another node leads the partition, because they say what this node did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goqueue.delivery.settling import EXHAUSTED
from goqueue.metrics import Counter, Registry
from goqueue.metrics import catalogue as c
from goqueue.model.names import INTERNAL_TOPICS, TopicPartition
from goqueue.model.observer import Observer, Outcome, Range, Target
from goqueue.model.session import Session
from goqueue.model.tenants import tenant_of

CACHED_MAX = 50_000  # topics, groups or tenants
IN, OUT = "in", "out"
REASONS = frozenset({EXHAUSTED})
OTHER_REASON = "rejected"  # by a consumer, which may give any reason


class _TenantCounters:
    """What was stored and read for a tenant."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self, registry: Registry, tenant: str) -> None:
        self.messages_in = registry.counter(c.TENANT_MESSAGES, tenant, IN)
        self.messages_out = registry.counter(c.TENANT_MESSAGES, tenant, OUT)
        self.bytes_in = registry.counter(c.TENANT_BYTES, tenant, IN)
        self.bytes_out = registry.counter(c.TENANT_BYTES, tenant, OUT)


class _TopicCounters:
    """What producers stored in a topic."""

    __slots__ = ("batches", "bytes", "duplicates", "messages", "tenant")

    def __init__(self, registry: Registry, topic: str, tenant: _TenantCounters | None) -> None:
        self.messages = registry.counter(c.PRODUCER_MESSAGES, topic)
        self.bytes = registry.counter(c.PRODUCER_BYTES, topic)
        self.batches = registry.counter(c.PRODUCER_BATCHES, topic)
        self.duplicates = registry.counter(c.PRODUCER_DUPLICATES, topic)
        self.tenant = tenant


class _ReaderCounters:
    """What clients read of a topic by offsets."""

    __slots__ = ("bytes", "fetches", "messages", "tenant")

    def __init__(self, registry: Registry, topic: str, tenant: _TenantCounters | None) -> None:
        self.messages = registry.counter(c.CONSUMER_MESSAGES, topic)
        self.bytes = registry.counter(c.CONSUMER_BYTES, topic)
        self.fetches = registry.counter(c.CONSUMER_FETCHES, topic)
        self.tenant = tenant


class _QueueCounters:
    """What a queue group did with the messages of a topic."""

    __slots__ = ("_labels", "_registry", "_settled", "delivered", "redelivered", "tenant")

    def __init__(
        self, registry: Registry, group: str, topic: str, tenant: _TenantCounters | None
    ) -> None:
        self.delivered = registry.counter(c.QUEUE_DELIVERED, group, topic)
        self.redelivered = registry.counter(c.QUEUE_REDELIVERED, group, topic)
        self.tenant = tenant
        self._registry = registry
        self._labels = group, topic
        self._settled: dict[Outcome, Counter] = {}
        self.settled(Outcome.ACKED)

    def settled(self, outcome: Outcome) -> Counter:
        known = self._settled.get(outcome)
        if known is None:
            made = self._registry.counter(c.QUEUE_SETTLED, *self._labels, outcome.value)
            known = self._settled[outcome] = made
        return known


class MessageCounter(Observer):
    """Counts what this node does with messages."""

    observes_traffic = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._topics: dict[str, _TopicCounters] = {}
        self._readers: dict[str, _ReaderCounters] = {}
        self._queues: dict[tuple[str, str], _QueueCounters] = {}
        self._tenants: dict[str, _TenantCounters] = {}
        self._scheduled = registry.counter(c.SCHEDULE_SCHEDULED)
        self._released = registry.counter(c.SCHEDULE_RELEASED)
        self._cancelled = registry.counter(c.SCHEDULE_CANCELLED)
        registry.on_remove(self._forget)

    # Partitions

    def stored(
        self,
        partition: TopicPartition,
        offsets: Range,
        *,
        size: int,
        session: Session | None,
        batches: int = 1,
    ) -> None:
        counters = self._topics.get(partition.topic)
        if counters is None:
            counters = self._new_topic(partition.topic)
        count = offsets[1] - offsets[0]
        counters.messages.value += count
        counters.bytes.value += size
        counters.batches.value += batches
        if counters.tenant is not None:
            counters.tenant.messages_in.value += count
            counters.tenant.bytes_in.value += size

    def fetched(self, topic: str, count: int, *, size: int, session: Session) -> None:
        if topic in INTERNAL_TOPICS:
            return
        counters = self._readers.get(topic)
        if counters is None:
            counters = self._new_reader(topic)
        counters.messages.value += count
        counters.bytes.value += size
        counters.fetches.value += 1
        if counters.tenant is not None:
            counters.tenant.messages_out.value += count
            counters.tenant.bytes_out.value += size

    def deduplicated(self, partition: TopicPartition, offsets: Range) -> None:
        counters = self._topics.get(partition.topic)
        if counters is None:
            counters = self._new_topic(partition.topic)
        counters.duplicates.value += offsets[1] - offsets[0]

    def retired(self, partition: TopicPartition, offsets: Range, *, reason: str) -> None:
        counter = self._registry.counter(c.STORAGE_RETIRED, partition.topic)
        counter.value += offsets[1] - offsets[0]

    # Stream groups

    def consumed(
        self, group: str, partition: TopicPartition, offsets: Range, *, consumer: str
    ) -> None:
        counter = self._registry.counter(c.GROUP_COMMITTED, group, partition.topic)
        counter.value += max(0, offsets[1] - offsets[0])

    # Queue groups

    def delivered(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        consumer: str,
        attempt: int,
    ) -> None:
        counters = self._queue(group, partition.topic)
        count = _count(ranges)
        counters.delivered.value += count
        if attempt > 1:
            counters.redelivered.value += count
        if counters.tenant is not None:
            counters.tenant.messages_out.value += count

    def settled(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        outcome: Outcome,
        due_ms: int = 0,
    ) -> None:
        self._queue(group, partition.topic).settled(outcome).value += _count(ranges)

    def dead_lettered(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        reason: str,
        target: Target,
    ) -> None:
        known = reason if reason in REASONS else OTHER_REASON
        counter = self._registry.counter(c.QUEUE_DEAD_LETTERED, group, partition.topic, known)
        counter.value += _count(ranges)

    def redriven(self, source: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        self._registry.counter(c.QUEUE_REDRIVEN, source.topic).value += _count(ranges)

    # Schedules

    def scheduled(
        self, log: TopicPartition, offsets: Range, *, due_ms: int, target: Target
    ) -> None:
        self._scheduled.value += offsets[1] - offsets[0]

    def released(self, log: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        self._released.value += _count(ranges)

    def cancelled(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        self._cancelled.value += _count(ranges)

    # Counters of what is seen for the first time

    def _forget(self) -> None:
        for cache in (self._topics, self._readers, self._queues):
            cache.clear()

    def _new_topic(self, topic: str) -> _TopicCounters:
        _make_room(self._topics)
        made = self._topics[topic] = _TopicCounters(self._registry, topic, self._tenant(topic))
        return made

    def _new_reader(self, topic: str) -> _ReaderCounters:
        _make_room(self._readers)
        made = self._readers[topic] = _ReaderCounters(self._registry, topic, self._tenant(topic))
        return made

    def _queue(self, group: str, topic: str) -> _QueueCounters:
        counters = self._queues.get((group, topic))
        if counters is None:
            _make_room(self._queues)
            counters = _QueueCounters(self._registry, group, topic, self._tenant(topic))
            self._queues[group, topic] = counters
        return counters

    def _tenant(self, topic: str) -> _TenantCounters | None:
        tenant = tenant_of(topic)
        if not tenant:
            return None
        known = self._tenants.get(tenant)
        if known is None:
            _make_room(self._tenants)
            known = self._tenants[tenant] = _TenantCounters(self._registry, tenant)
        return known


def _make_room(cache: dict[Any, Any]) -> None:
    """Forget all that is cached if it is much; the registry has the counters."""
    if len(cache) >= CACHED_MAX:
        cache.clear()


def _count(ranges: Sequence[Range]) -> int:
    if len(ranges) == 1:
        [(first, end)] = ranges
        return end - first
    return sum(end - first for first, end in ranges)
