"""The number of messages in a named queue, by state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from goqueue.broker.named_queues.named_queues import NamedQueue
from goqueue.broker.queues.positions import Look
from goqueue.broker.queues.queues import Queues
from goqueue.broker.reading.remote import Bounds
from goqueue.broker.topics.topics import Topics
from goqueue.delivery import QueueStats
from goqueue.delivery.schedules import NEVER_MS
from goqueue.loop.promise import Promise, promised


class Counts(NamedTuple):
    """Messages that can be received, are in flight, and are delayed."""

    ready: int
    out: int
    delayed: int


class Scheduled(Protocol):
    """Counts scheduled messages, on all nodes."""

    def count(self, *, topic: str | None, from_ms: int, until_ms: int) -> Promise[int]: ...


class QueueCounting:
    """Counts the messages of queues; only on their owners."""

    def __init__(self, topics: Topics, queues: Queues, scheduled: Scheduled, look: Look) -> None:
        """`look` requests the ends of partitions from their leaders."""
        self._topics = topics
        self._queues = queues
        self._scheduled = scheduled
        self._look = look

    def count(self, queue: NamedQueue) -> Promise[Counts]:
        return promised(self._count(queue))

    async def _count(self, queue: NamedQueue) -> Counts:
        await self._queues.positions.begin(queue.group, queue.topic)
        topic = self._topics.get(queue.topic)
        bounds = await self._look(topic, range(len(topic.partitions)))
        scheduled = await self._scheduled.count(topic=queue.topic, from_ms=0, until_ms=NEVER_MS)
        stats = self._queues.inspection.stats(queue.group, queue.topic)
        coming = _coming(stats, bounds)
        is_delaying = self._queues.groups.describe(queue.group).settings.delay_ms > 0
        return Counts(
            stats.ready + stats.retrying + stats.parked + (0 if is_delaying else coming),
            stats.in_flight,
            stats.delayed + scheduled + (coming if is_delaying else 0),
        )


def _coming(stats: QueueStats, bounds: Sequence[Bounds]) -> int:
    """Count stored messages that the owner has not indexed yet.

    It receives those on other nodes a moment later, but a client that has just sent messages
    expects them to be counted.
    """
    count = 0
    for one, its in zip(stats.partitions, bounds, strict=False):
        count += max(0, its.last_stable_offset - one.high_watermark - one.delayed)
    return count
