"""Read-only inspection of queues and of the lanes of topics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.queues.positions import Look
from goqueue.broker.queues.records import RecordReader, read_soon
from goqueue.broker.topics.settings import lane_settings
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery import (
    LANE_COUNT,
    LANE_NAMES,
    PEEK_MESSAGES_MAX,
    LaneStats,
    MessageState,
    QueueStats,
    peek,
    stats,
)
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised
from goqueue.model.batch import Record
from goqueue.model.errors import InvalidRequest
from goqueue.model.tenants import GroupName, Text

# A peek searches ranges of offsets for unfinished messages, one range per loop iteration.
PEEK_STRETCH = PEEK_MESSAGES_MAX  # offsets of one range
PEEK_STRETCHES_MAX = 20  # of one partition
PEEK_STRETCHES_TOTAL_MAX = 200
PEEK_BYTES_MAX = 4 << 20  # total size of the batches that a peek reads, or one larger batch


class PeekedMessage(NamedTuple):
    state: MessageState
    record: Record | None


class TopicLanes(NamedTuple):
    """The lanes of a topic: their settings, stored records, and the statistics of each group."""

    weights: Mapping[Text, int]
    is_strict: bool
    starvation_ms: int
    stored: list[list[int]]  # records per partition and lane; zero without a replica here
    groups: Mapping[GroupName, Sequence[LaneStats]]


class QueueInspection:
    """Inspects queues; on their owner, except for `lanes`."""

    def __init__(self, topics: Topics, hosts: QueueHosts, groups: QueueGroups, look: Look) -> None:
        self._topics = topics
        self._hosts = hosts
        self._groups = groups
        self._look = look

    def stats(self, name: str, topic_name: str) -> QueueStats:
        """Return how many messages are ready, in flight and waiting."""
        return stats(self._groups.queue_of(name, topic_name).queue, self._hosts.clock.now_ms())

    async def is_behind(self, name: str, topic_name: str) -> bool:
        """Whether leaders have committed messages of a topic that its queue has not seen yet."""
        hosted = self._groups.queue_of(name, topic_name)
        bounds = await self._look(hosted.topic, range(len(hosted.queue.partitions)))
        return any(
            one.last_stable_offset > known.high_watermark
            for one, known in zip(bounds, hosted.queue.partitions, strict=False)
        )

    def peek(
        self,
        name: str,
        topic_name: str,
        number: int | None = None,
        *,
        offset: int | None = None,
        count: int = 10,
    ) -> Promise[list[PeekedMessage]]:
        """Return messages with their state, of one partition or of all, without changing them.

        Without an offset, the first unfinished ones of each partition. There are fewer than `count`
        if their batches exceed `PEEK_BYTES_MAX` together.
        """
        if not 1 <= count <= PEEK_MESSAGES_MAX:
            raise InvalidRequest(f"count must be from 1 to {PEEK_MESSAGES_MAX}, not {count}.")
        hosted = self._groups.queue_of(name, topic_name)
        return promised(self._peek(hosted, number, offset, count))

    async def _peek(
        self, hosted: HostedQueue, number: int | None, offset: int | None, count: int
    ) -> list[PeekedMessage]:
        if number is not None:
            hosted.topic.partition(number)  # Raises if it does not exist.
        messages = _Peek(self._hosts.sources.reader, self._hosts.clock, hosted, count)
        for each in range(len(hosted.sources)) if number is None else [number]:
            if offset is None:
                await messages.find_open(each)
            else:
                first = max(offset, hosted.sources[each].start_offset)
                await messages.read(each, range(first, first + count))
        return messages.found

    def lanes(self, topic_name: str) -> TopicLanes:
        """Return the lane settings of a topic, what local replicas hold, and group statistics."""
        topic, now_ms = self._topics.get(topic_name), self._hosts.clock.now_ms()
        rules = lane_settings(self._hosts.values(topic))
        return TopicLanes(
            dict(zip(LANE_NAMES, rules.weights, strict=True)),
            rules.is_strict,
            rules.starvation_ms,
            [] if topic.is_internal else self._stored(topic),
            {
                one.group: stats(one.queue, now_ms).lanes
                for one in self._hosts.by_topic.get(topic.id, [])
            },
        )

    def _stored(self, topic: Topic) -> list[list[int]]:
        """Return the records per partition and lane; zero without a replica here."""
        lanes = self._hosts.sources.lanes
        kept = [self._topics.keeps(one) for one in topic.partitions]
        for partition, is_kept in zip(topic.partitions, kept, strict=True):
            if is_kept:
                lanes.of(partition)
        lanes.catch_up()
        return [
            lanes.of(one).index.counts(one.start_offset, one.last_stable_offset)
            if is_kept
            else [0] * LANE_COUNT
            for one, is_kept in zip(topic.partitions, kept, strict=True)
        ]


class _Peek:
    """Collects messages until there are enough, or their batches are too large."""

    def __init__(self, reader: RecordReader, clock: Clock, hosted: HostedQueue, count: int) -> None:
        self.found: list[PeekedMessage] = []
        self._reader = reader
        self._clock = clock
        self._hosted = hosted
        self._count = count
        self._room = PEEK_BYTES_MAX
        self._stretches = 0

    @property
    def _is_over(self) -> bool:
        is_searched = self._stretches >= PEEK_STRETCHES_TOTAL_MAX
        return len(self.found) >= self._count or self._room <= 0 or is_searched

    async def find_open(self, number: int) -> None:
        """Read the first unfinished messages, searching a bounded range."""
        end = self._hosted.sources[number].last_stable_offset
        start = self._hosted.queue.partitions[number].ledger.floor
        end = min(end, start + PEEK_STRETCHES_MAX * PEEK_STRETCH)
        for at in range(start, end, PEEK_STRETCH):
            if self._is_over:
                return
            if self._stretches:
                await self._next_turn()
            self._stretches += 1
            states = peek(self._hosted.queue, number, range(at, min(at + PEEK_STRETCH, end)))
            await self.read(number, [one.offset for one in states if one.state != "done"])

    async def _next_turn(self) -> None:
        turn: Promise[None] = Promise()
        self._clock.call_soon(lambda: turn.resolve(None))
        await turn

    async def read(self, number: int, offsets: Sequence[int]) -> None:
        """Read messages at these offsets, as many as are still needed."""
        end = self._hosted.sources[number].last_stable_offset
        at, decided = 0, offsets[: bisect_left(offsets, end)]
        while at < len(decided) and len(self.found) < self._count and self._room > 0:
            wanted = decided[at : at + self._count - len(self.found)]
            at += len(wanted)
            await self._read(number, wanted)

    async def _read(self, number: int, wanted: Sequence[int]) -> None:
        sources = self._hosted.sources
        read = await read_soon(self._reader, lambda: sources[number], wanted, bytes_max=self._room)
        if read.error is not None and not read.parts:
            raise read.error
        self._room = 0 if read.unread is not None else self._room - read.size
        records = read.records
        states = peek(self._hosted.queue, number, wanted)
        self.found += [
            PeekedMessage(one, records[one.offset]) for one in states if one.offset in records
        ]
