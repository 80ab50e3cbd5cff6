"""Serves partitions to nodes whose queues read them without having a replica.

Such a node needs two things: the lane of each message, as runs of offsets, which are few and which
the leader has already computed from its log; and the batches that hold the messages, a range at a
time, when they are to be delivered. Both cover only what is committed and decided, which no other
leader can change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topics
from goqueue.delivery import LaneIndex
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.peers import Answer, PeerKind
from goqueue.loop.promise import Promise
from goqueue.model.bounds import Offset, PartitionNumber, TopicId
from goqueue.partition import AbortedTransaction, Partition

RUNS_MAX = 20_000  # in one response; the rest comes with the next
BATCHES_BYTES_MAX = 1 << 20  # in one response, unless a single batch is larger
WAIT_MS_MAX = 10_000
NOT_LED = -1

encode = msgspec.msgpack.Encoder().encode


class LanesRequest(msgspec.Struct, frozen=True, array_like=True):
    """The lanes requested: for each partition the first offset, and its last known log start.

    A request replaces an earlier one of the same node with the same number.
    """

    number: int
    wait_ms: int
    places: list[tuple[bytes, int, int, int]]  # topic, partition, offset, known start


class LanesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """News of one place: `runs` alternates end offsets and lanes, from the requested offset."""

    place: int
    start_offset: int  # -1: this node does not lead the partition
    runs: list[int]
    may_expire: bool = True  # whether messages may have a time to live of their own


class AskedBatches(msgspec.Struct, frozen=True, array_like=True):
    topic_id: TopicId
    number: PartitionNumber
    offset: Offset
    bytes_max: Annotated[int, Meta(ge=0, le=1 << 40)]


class ToldBatches(msgspec.Struct, frozen=True, array_like=True):
    """What comes with batches; without batches, nothing is left before `end_offset`."""

    end_offset: int
    aborted: list[AbortedTransaction]


_lanes_decoder = msgspec.msgpack.Decoder(LanesRequest)
_batches_decoder = msgspec.msgpack.Decoder(AskedBatches)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A node's request that waits for news of lanes."""

    asked: LanesRequest
    promise: Promise[Answer]
    partitions: list[Partition] = field(default_factory=list)
    timer: Handle | None = None


class IndexedPartition(Protocol):
    """The lane index of one partition."""

    index: LaneIndex


class LaneIndexes(Protocol):
    """The lane indexes of the replicas on this node."""

    def of(self, partition: Partition) -> IndexedPartition: ...

    def catch_up(self) -> None: ...


class QueueSupply:
    """Serves the requests of other nodes."""

    def __init__(self, clock: Clock, topics: Topics, leaders: Leaders, lanes: LaneIndexes) -> None:
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._lanes = lanes
        self._waiting: dict[tuple[int, int], _Waiting] = {}  # by node and request number
        # The partitions that requests wait for.
        self.watched: dict[Partition, dict[tuple[int, int], None]] = {}
        leaders.serve(PeerKind.LANES, self._serve_lanes)
        leaders.serve(PeerKind.BATCHES, self._serve_batches)

    # Lanes

    def grown(self, partition: Partition) -> None:
        """Respond to waiting requests: a partition is indexed further, or not led any more."""
        for key in list(self.watched.get(partition, ())):
            news = self._news(self._waiting[key].asked)
            if news:
                self._answer(key, news)

    def _serve_lanes(self, caller: int, head: bytes, _: memoryview) -> Promise[Answer]:
        asked = _lanes_decoder.decode(head)
        key = (caller, asked.number)
        if key in self._waiting:
            self._answer(key, [])
        waiting = self._waiting[key] = _Waiting(asked, Promise())
        led = [self._led(topic_id, number) for topic_id, number, _offset, _start in asked.places]
        waiting.partitions = [one for one in led if one is not None]
        for partition in waiting.partitions:
            self._lanes.of(partition)
        self._lanes.catch_up()
        news = self._news(asked)
        if news or asked.wait_ms <= 0:
            self._answer(key, news)
            return waiting.promise
        for partition in waiting.partitions:
            self.watched.setdefault(partition, {})[key] = None
        wait_ms = min(asked.wait_ms, WAIT_MS_MAX)
        waiting.timer = self._clock.call_later(
            wait_ms, lambda: self._answer(key, self._news(asked))
        )
        return waiting.promise

    def _answer(self, key: tuple[int, int], news: list[LanesAnswer]) -> None:
        waiting = self._waiting.pop(key)
        if waiting.timer is not None:
            waiting.timer.cancel()
        for partition in waiting.partitions:
            watching = self.watched.get(partition)
            if watching is not None:
                watching.pop(key, None)
                if not watching:
                    del self.watched[partition]
        waiting.promise.resolve(Answer(encode(news)))

    def _news(self, asked: LanesRequest) -> list[LanesAnswer]:
        """Return the available news, as much as fits into one response."""
        news: list[LanesAnswer] = []
        room = RUNS_MAX
        for place, (topic_id, number, offset, known_start) in enumerate(asked.places):
            partition = self._led(topic_id, number)
            if partition is None:
                news.append(LanesAnswer(place, NOT_LED, []))
                continue
            index = self._lanes.of(partition).index
            start = partition.start_offset
            end = min(index.end, partition.last_stable_offset)
            if room <= 0 or (end <= max(offset, start) and start <= known_start):
                continue
            runs: list[int] = []
            for lane, _first, stop in index.runs(max(offset, start), end):
                runs += (stop, lane)
                room -= 1
                if room <= 0:
                    break
            news.append(LanesAnswer(place, start, runs, index.may_expire))
        return news

    def _led(self, topic_id: bytes, number: int) -> Partition | None:
        """Return a partition, if this node leads it."""
        topic = self._topics.find_by_id(topic_id)
        is_there = topic is not None and number < len(topic.partitions)
        if topic is None or not is_there or not self._leaders.is_here(topic, number):
            return None
        return topic.partitions[number]

    # Batches

    def _serve_batches(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        asked = _batches_decoder.decode(head)
        partition = self._topics.get_by_id(asked.topic_id).partition(asked.number)
        partition.check_leading()
        answer: Promise[Answer] = Promise()
        stable_end = partition.last_stable_offset
        bytes_max = min(asked.bytes_max, BATCHES_BYTES_MAX)
        part = partition.read(asked.offset, bytes_max=bytes_max, is_committed_only=True)
        if part is None:
            # A new leader may be behind the previous one; the response then covers nothing.
            answer.resolve(Answer(encode(ToldBatches(max(stable_end, asked.offset), []))))
            return answer
        aborted = list(partition.aborted_in(part))
        try:
            data = part.read_checked()
        except OSError as error:
            raise partition.unreadable(error, part.offset) from error
        answer.resolve(Answer(encode(ToldBatches(part.end_offset, aborted)), [data]))
        return answer
