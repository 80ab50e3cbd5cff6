"""Read-only inspection of queues and of the lanes of topics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.queues.records import RecordReader, read_soon
from goqueue.broker.topics.settings import lane_settings
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery import (
    LANE_COUNT,
    LANE_NAMES,
    PEEK_MESSAGES_MAX,
    LaneStats,
    MessageState,
    peek,
    stats,
)
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record

# A peek searches ranges of offsets for unfinished messages, one range per loop iteration.
PEEK_STRETCHES_MAX = 20  # of one partition
PEEK_STRETCHES_TOTAL_MAX = 200
PEEK_BYTES_MAX = 4 << 20  # total size of the batches that a peek reads, or one larger batch


class PeekedMessage(NamedTuple):
    state: MessageState
    record: Record | None


class TopicLanes(NamedTuple):
    """The lanes of a topic: their settings, stored records, and the statistics of each group."""

    weights: Mapping[str, int]
    is_strict: bool
    starvation_ms: int
    stored: list[list[int]]  # records per partition and lane; zero without a replica here
    groups: Mapping[str, Sequence[LaneStats]]


async def peek_at(
    reader: RecordReader,
    clock: Clock,
    hosted: HostedQueue,
    number: int | None,
    offset: int | None,
    count: int,
) -> list[PeekedMessage]:
    """Return messages of one partition or of all; without an offset, the first unfinished ones.

    There are fewer than `count` if their batches exceed `PEEK_BYTES_MAX` together.
    """
    if number is not None:
        hosted.topic.partition(number)  # Raises if it does not exist.
    messages = _Peek(reader, clock, hosted, count)
    for each in range(len(hosted.sources)) if number is None else [number]:
        if offset is None:
            await messages.find_open(each)
        else:
            first = max(offset, hosted.sources[each].start_offset)
            await messages.read(each, range(first, first + count))
    return messages.found


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
        end = min(end, start + PEEK_STRETCHES_MAX * PEEK_MESSAGES_MAX)
        for at in range(start, end, PEEK_MESSAGES_MAX):
            if self._is_over:
                return
            if self._stretches:
                await self._next_turn()
            self._stretches += 1
            states = peek(self._hosted.queue, number, range(at, min(at + PEEK_MESSAGES_MAX, end)))
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


def lanes_of(hosts: QueueHosts, topics: Topics, topic: Topic, *, now_ms: int) -> TopicLanes:
    """Return the lane settings of a topic, what local replicas hold, and each group's figures."""
    rules = lane_settings(hosts.values(topic))
    lanes = hosts.sources.lanes
    kept = [not topic.is_internal and topics.keeps(one) for one in topic.partitions]
    for partition, is_kept in zip(topic.partitions, kept, strict=True):
        if is_kept:
            lanes.of(partition)
    lanes.catch_up()
    stored = [
        lanes.of(one).index.counts(one.start_offset, one.last_stable_offset)
        if is_kept
        else [0] * LANE_COUNT
        for one, is_kept in zip(topic.partitions, kept, strict=True)
    ]
    hosted = hosts.by_topic.get(topic.id, [])
    return TopicLanes(
        dict(zip(LANE_NAMES, rules.weights, strict=True)),
        rules.is_strict,
        rules.starvation_ms,
        [] if topic.is_internal else stored,
        {one.group: stats(one.queue, now_ms).lanes for one in hosted},
    )
