"""Remote reads: reading partitions that other nodes lead.

Followers may lag behind the leader, so a client that has just written a record, or got an offset
from elsewhere, might not find it in a follower. Front ends that read records for their clients
therefore read from the leaders, from several at a time if necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from goqueue.broker.reading.records import Damaged, Page, Place, Reading
from goqueue.broker.reading.records_ends import search_records_ends
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, PeerKind, Peers, read_answer
from goqueue.loop.promise import Promise, promised
from goqueue.model.batch import Record
from goqueue.model.errors import CorruptBatch, GoQueueError, NotLeader
from goqueue.model.names import TopicPartition
from goqueue.partition import Partition

ANSWER_MS = 10_000  # for a node to respond, in addition to the wait requested of it
NO_LEADER = -1
_NONE = -1

_encode = msgspec.msgpack.Encoder().encode


# Bounds of partitions


class _HasOffset(Protocol):
    @property
    def offset(self) -> int: ...


class _HasSize(Protocol):
    @property
    def size(self) -> int: ...


class Bounds(Protocol):
    """The bounds of a partition, needed before it is read; `Partition` implements it."""

    @property
    def name(self) -> TopicPartition: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log(self) -> _HasSize: ...
    def find_timestamp(
        self, timestamp: int, *, is_committed_only: bool = False
    ) -> _HasOffset | None: ...
    def records_end(self) -> int: ...


class _Found(NamedTuple):
    offset: int


class _RemoteLog(NamedTuple):
    size: int


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    """A partition as its leader reports it; `times` are the offsets of the requested timestamps."""

    leader_epoch: int
    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    size: int
    times: list[tuple[int, int]]  # for readers of everything, and of committed records only
    records_end: int = _NONE  # if it was requested


class _Look(msgspec.Struct, frozen=True, array_like=True):
    partitions: list[tuple[bytes, int]]
    times_ms: list[int]
    with_records_end: bool = False


class RemoteBounds:
    """The bounds of a partition as another node reported them a moment ago."""

    def __init__(self, name: TopicPartition, seen: _Seen, times_ms: Sequence[int]) -> None:
        self.name = name
        self.leader_epoch = seen.leader_epoch
        self.start_offset = seen.start_offset
        self.end_offset = seen.end_offset
        self.high_watermark = seen.high_watermark
        self.last_stable_offset = seen.last_stable_offset
        self.log = _RemoteLog(seen.size)
        self._times = dict(zip(times_ms, seen.times, strict=True))
        self._records_end = seen.records_end

    def find_timestamp(
        self, timestamp: int, *, is_committed_only: bool = False
    ) -> _HasOffset | None:
        """Look up one of the requested timestamps."""
        offset = self._times[timestamp][is_committed_only]
        return None if offset == _NONE else _Found(offset)

    def records_end(self) -> int:
        """Where the records end; the high watermark if that was not requested or not reported."""
        return self.high_watermark if self._records_end == _NONE else self._records_end


# Reading


class _Read(msgspec.Struct, frozen=True, array_like=True):
    number: int  # identifies this read among the caller's, to cancel it
    places: list[tuple[bytes, int, int, int]]  # topic, partition, offset and end
    records_max: int
    bytes_max: int
    wait_ms: int
    is_committed_only: bool


_Sent = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int, int]


class _Page(msgspec.Struct, frozen=True, array_like=True):
    """A page; places are given by their index in the request."""

    records: list[_Sent]
    offsets: list[int]
    damaged: list[tuple[int, int, int, str]]


_look_decoder = msgspec.msgpack.Decoder(_Look)
_seen_decoder = msgspec.msgpack.Decoder(list[_Seen])
_read_decoder = msgspec.msgpack.Decoder(_Read)
_page_decoder = msgspec.msgpack.Decoder(_Page)
_number_decoder = msgspec.msgpack.Decoder(int)

Here = Callable[[Reading, int], None]


class RemoteReader:
    """Requests records from other nodes, and serves their requests."""

    def __init__(
        self, clock: Clock, topics: Topics, leaders: Leaders, peers: Peers, *, start: Here
    ) -> None:
        """`start` begins a read of partitions led here, waiting for up to so many milliseconds."""
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._peers = peers
        self._start = start
        self._last = 0
        self._served: dict[tuple[int, int], Callable[[], None]] = {}
        peers.serve(PeerKind.LOOK, self._serve_look)
        peers.serve(PeerKind.READ, self._serve_read)
        peers.listen(PeerKind.READ, self._serve_cancel)

    # Sending

    async def look(
        self,
        topic: Topic,
        numbers: Sequence[int],
        *,
        times_ms: Sequence[int] = (),
        may_guess: bool = False,
        with_records_end: bool = False,
    ) -> list[Bounds]:
        """The current bounds of partitions, from their leaders.

        With `may_guess`, use those of this node's replica if no leader responds.
        """
        found: dict[int, Bounds] = {}
        nodes: dict[int, list[int]] = {}
        here: list[Partition] = []
        for number in numbers:
            partition = topic.partition(number)
            if self._leaders.is_here(topic, number):
                found[number] = partition
                here.append(partition)
            else:
                nodes.setdefault(self._leaders.node_of(topic, number), []).append(number)
        asked = [
            (its, self._ask_bounds(topic, node, its, times_ms, with_records_end))
            for node, its in nodes.items()
        ]
        if with_records_end:
            await search_records_ends(self._clock, here)
        for its, answer in asked:
            try:
                answers = await answer
            except GoQueueError:
                if not may_guess:
                    raise
                found.update((number, topic.partition(number)) for number in its)
                continue
            for number, seen in zip(its, answers, strict=True):
                found[number] = RemoteBounds(topic.partition(number).name, seen, times_ms)
        return [found[number] for number in numbers]

    def _ask_bounds(
        self,
        topic: Topic,
        node: int,
        numbers: Sequence[int],
        times_ms: Sequence[int],
        with_records_end: bool,
    ) -> Promise[list[_Seen]]:
        if node in (NO_LEADER, self._leaders.node_id):
            refused: Promise[list[_Seen]] = Promise()
            refused.reject(NotLeader(topic.partition(numbers[0]).name, NO_LEADER))
            return refused
        partitions = [(topic.id, number) for number in numbers]
        head = _encode(_Look(partitions, list(times_ms), with_records_end))
        called = self._peers.call(node, PeerKind.LOOK, head, timeout_ms=ANSWER_MS)
        return read_answer(called, lambda answer: _seen_decoder.decode(answer.head))

    def split(self, places: Sequence[Place]) -> dict[int, list[int]]:
        """The indexes of places, by the node that leads them."""
        nodes: dict[int, list[int]] = {}
        for position, place in enumerate(places):
            name = place.partition.name
            topic = self._topics.get(name.topic)
            if self._leaders.is_here(topic, name.partition):
                node = self._leaders.node_id
            else:
                node = self._leaders.node_of(topic, name.partition)
                if node in (NO_LEADER, self._leaders.node_id):
                    raise NotLeader(name, NO_LEADER)
            nodes.setdefault(node, []).append(position)
        return nodes

    def read(
        self,
        node: int,
        places: Sequence[Place],
        *,
        records_max: int,
        bytes_max: int,
        wait_ms: int,
        is_committed_only: bool,
    ) -> tuple[Promise[Page], Callable[[], None]]:
        """Read places at the node that leads them all; also return a function to cancel it."""
        result: Promise[Page] = Promise()
        if node == self._leaders.node_id:
            reading = Reading(
                places,
                records_max=records_max,
                bytes_max=bytes_max,
                is_committed_only=is_committed_only,
                is_curable=self._is_curable,
            )
            self._start(reading, wait_ms)
            return reading.promise, reading.cancel
        self._last += 1
        number = self._last
        head = _encode(
            _Read(
                number,
                [self._sent(place) for place in places],
                records_max,
                bytes_max,
                wait_ms,
                is_committed_only,
            )
        )
        called = self._peers.call(node, PeerKind.READ, head, timeout_ms=wait_ms + ANSWER_MS)
        result = read_answer(
            called, lambda answer: _read_page(places, _page_decoder.decode(answer.body))
        )
        return result, partial(self._cancel, node, number, result)

    def _cancel(self, node: int, number: int, result: Promise[Page]) -> None:
        if not result.is_done:
            self._peers.notify(node, PeerKind.READ, _encode(number))

    def _sent(self, place: Place) -> tuple[bytes, int, int, int]:
        name = place.partition.name
        until = _NONE if place.until_offset is None else place.until_offset
        return self._topics.get(name.topic).id, name.partition, place.offset, until

    def _is_curable(self, partition: Partition) -> bool:
        topic = self._topics.find(partition.name.topic)
        if topic is None:
            return False
        return self._leaders.is_curable(topic.id, partition.name.partition)

    # Serving

    def _led(self, topic_id: bytes, number: int) -> Partition:
        partition = self._topics.get_by_id(topic_id).partition(number)
        partition.check_leading()
        return partition

    def _serve_look(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        return promised(self._look_here(_look_decoder.decode(head)))

    async def _look_here(self, asked: _Look) -> Answer:
        if asked.with_records_end:
            await search_records_ends(self._clock, [self._led(*one) for one in asked.partitions])
        return Answer(_encode([_seen(self._led(*one), asked) for one in asked.partitions]))

    def _serve_read(self, caller: int, head: bytes, _: memoryview) -> Promise[Answer]:
        asked = _read_decoder.decode(head)
        places = [
            Place(self._led(topic_id, number), offset, None if until == _NONE else until)
            for topic_id, number, offset, until in asked.places
        ]
        reading = Reading(
            places,
            records_max=asked.records_max,
            bytes_max=asked.bytes_max,
            is_committed_only=asked.is_committed_only,
            is_curable=self._is_curable,
        )
        answer: Promise[Answer] = Promise()

        def done(page: Page | None, error: Exception | None) -> None:
            self._served.pop((caller, asked.number), None)
            sent = Answer() if page is None else Answer(b"", [_encode(_sent_page(page))])
            answer.settle(sent, error)

        def give_up() -> None:
            reading.cancel()
            done(Page(places=list(places)), None)

        self._served[caller, asked.number] = give_up
        self._start(reading, asked.wait_ms)
        reading.promise.then(done)
        return answer

    def _serve_cancel(self, caller: int, head: bytes, _: memoryview) -> None:
        give_up = self._served.get((caller, _number_decoder.decode(head)))
        if give_up is not None:
            give_up()


def _seen(partition: Partition, asked: _Look) -> _Seen:
    def offset(time_ms: int, is_committed_only: bool) -> int:
        found = partition.find_timestamp(time_ms, is_committed_only=is_committed_only)
        return _NONE if found is None else found.offset

    return _Seen(
        partition.leader_epoch,
        partition.start_offset,
        partition.end_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.size,
        [(offset(one, False), offset(one, True)) for one in asked.times_ms],
        partition.records_end() if asked.with_records_end else _NONE,
    )


def _sent_page(page: Page) -> _Page:
    positions = {place.partition: position for position, place in enumerate(page.places)}
    return _Page(
        [
            (
                positions[partition],
                record.key,
                record.value,
                record.headers,
                record.timestamp_ms,
                record.offset,
            )
            for partition, record in page.records
        ],
        [place.offset for place in page.places],
        [
            (positions[one.partition], one.offset, one.next_offset, str(one.error))
            for one in page.damaged
        ],
    )


def _read_page(places: Sequence[Place], sent: _Page) -> Page:
    page = Page()
    for position, key, value, headers, timestamp_ms, offset in sent.records:
        record = Record(key, value, headers, timestamp_ms=timestamp_ms, offset=offset)
        page.records.append((places[position].partition, record))
    page.places = [
        place._replace(offset=offset) for place, offset in zip(places, sent.offsets, strict=True)
    ]
    for position, offset, next_offset, text in sent.damaged:
        error = CorruptBatch(text)
        error.next_offset = next_offset
        page.damaged.append(Damaged(places[position].partition, offset, next_offset, error))
    return page
