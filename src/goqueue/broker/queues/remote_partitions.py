"""Remote partitions: those that queues of this node read without a local replica.

The owner of a queue group need not have a replica of every partition of its topics. It gets the
missing data from their leaders: the lanes of all messages, as they arrive, and the batches to be
delivered next, of which a bounded amount is read ahead. The delivery state stays with the owner.

Reading never blocks. Missing data raises `Awaited`, and readers are notified when it has arrived.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from zlib import crc32

import msgspec

from goqueue.broker.queues.supply import (
    NOT_LED,
    AskedBatches,
    LanesAnswer,
    LanesRequest,
    ToldBatches,
    encode,
)
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery import Arrivals, LaneIndex
from goqueue.loop.clock import Clock
from goqueue.loop.peers import PeerKind, read_answer
from goqueue.loop.promise import Promise
from goqueue.model.batch import read_header
from goqueue.model.errors import CorruptBatch, GoQueueError, NotLeader, OffsetOutOfRange
from goqueue.model.names import TopicPartition
from goqueue.partition import AbortedTransaction

WAIT_MS = 5_000  # for news of lanes, before the request is repeated
ANSWER_MS = 5_000  # for the response, in addition
RETRY_MS = 100
# Concurrent long-poll requests to one node; partitions share them.
QUESTIONS_MAX = 16
FETCHES_MAX = 4  # concurrent, per partition
SINGLE_BYTES = 32 << 10  # fetched for a single message
AHEAD_BYTES_MAX = 32 << 20  # batches read ahead, over all partitions
_PIECE_COST = 4 << 10  # approximate memory of a piece besides its bytes

_log = logging.getLogger(__name__)

_lanes_decoder = msgspec.msgpack.Decoder(list[LanesAnswer])
_batches_decoder = msgspec.msgpack.Decoder(ToldBatches)

Key = tuple[bytes, int]


class Awaited(Exception):
    """The data has to be fetched from another node first."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches as sent by their leader, or the reason why these offsets cannot be read."""

    offset: int
    end_offset: int
    data: bytes = b""
    aborted: Sequence[AbortedTransaction] = ()
    error: GoQueueError | None = None

    def after(self, offset: int) -> Piece:
        """Return the part that begins with the batch that holds an offset, or the next one."""
        at = 0
        while at < len(self.data):
            header = read_header(self.data, at)
            if header.last_offset >= offset:
                break
            at += header.size
        return Piece(offset, self.end_offset, self.data[at:] if at else self.data, self.aborted)


class RemoteCopy:
    """A remote partition, as far as its data is needed here."""

    def __init__(self, copies: RemoteCopies, topic: Topic, number: int, now_ms: int) -> None:
        self.topic = topic
        self.number = number
        self.name = TopicPartition(topic.name, number)
        self.index = LaneIndex()
        self.arrivals = Arrivals(0, now_ms)
        self.start_offset = 0
        self.is_known = False  # whether a leader has ever reported on it
        self.is_gone = False
        self.led_by: tuple[int, int] | None = None  # node and epoch of the leader being polled
        self.fetching: dict[int, None] = {}  # offsets
        self.tenure = 0  # counts the leaders that were polled
        self.is_resting = False
        self._waiting: list[Promise[None]] = []
        self._pieces: dict[int, Piece] = {}
        self._firsts: list[int] = []
        self._copies = copies

    @property
    def key(self) -> Key:
        return self.topic.id, self.number

    @property
    def source(self) -> RemoteCopy:
        """The source from which records are read."""
        return self

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which the lanes of messages are available here."""
        return self.index.end

    @property
    def stable_end(self) -> int:
        return self.index.end

    def read(self, offset: int, *, bytes_max: int) -> Piece:
        """Return the batches from `offset` on that are here; raise `Awaited` if there are none."""
        piece = self.find(offset)
        if piece is None:
            self._copies.fetch(self, offset, bytes_max)
            raise Awaited
        if piece.error is not None:
            raise piece.error
        self._copies.touch(self, piece)
        following = piece.end_offset
        if bytes_max > 1 and following < self.index.end and self.find(following) is None:
            self._copies.fetch(self, following, bytes_max)
        return piece.after(offset)

    def arrival(self) -> Promise[None]:
        """Resolves when data has arrived; rejected if the request cannot be served now."""
        promise: Promise[None] = Promise()
        if self.is_gone:
            promise.reject(NotLeader(self.name, -1))
        else:
            self._waiting.append(promise)
        return promise

    def tell(self, error: GoQueueError | None) -> None:
        """Notify waiting readers: they may retry, or get the error."""
        waiting, self._waiting = self._waiting, []
        for promise in waiting:
            promise.settle(None, error)

    # Read-ahead

    def find(self, offset: int) -> Piece | None:
        at = bisect_right(self._firsts, offset) - 1
        if at < 0:
            return None
        piece = self._pieces[self._firsts[at]]
        return piece if offset < piece.end_offset else None

    def put(self, piece: Piece) -> None:
        if piece.offset not in self._pieces:
            insort(self._firsts, piece.offset)
        self._pieces[piece.offset] = piece

    def drop(self, first: int) -> None:
        if self._pieces.pop(first, None) is not None:
            del self._firsts[bisect_left(self._firsts, first)]

    def damaged(self) -> list[int]:
        """Return where unreadable pieces begin; another leader may be able to read them."""
        return [first for first, piece in self._pieces.items() if piece.error is not None]


@dataclass(slots=True, eq=False)
class _Question:
    """The partitions about which one leader is polled in one request."""

    node: int
    number: int
    copies: dict[Key, RemoteCopy] = field(default_factory=dict)
    turn: int = 0  # the number of the current request
    is_due: bool = False


class RemoteCopies:
    """All remote partitions, kept up to date from their leaders."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        *,
        grown: Callable[[RemoteCopy], None],
        begins: Callable[[RemoteCopy, int], None],
        arrived: Callable[[RemoteCopy], None],
        is_used: Callable[[RemoteCopy], bool],
    ) -> None:
        """`grown` is called for more messages, `arrived` for batches that can be read now.

        `begins` is called with a later log start before it is applied.
        """
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._grown = grown
        self._begins = begins
        self._arrived = arrived
        self._is_used = is_used
        self._copies: dict[Key, RemoteCopy] = {}
        self._questions: dict[tuple[int, int], _Question] = {}
        self._ahead: OrderedDict[tuple[RemoteCopy, int], int] = OrderedDict()
        self._ahead_bytes = 0
        self._is_stopped = False

    def of(self, topic: Topic, number: int) -> RemoteCopy:
        """Return a remote partition, which is followed from now on."""
        copy = self._copies.get((topic.id, number))
        if copy is None:
            copy = RemoteCopy(self, topic, number, self._clock.now_ms())
            self._copies[copy.key] = copy
            self._enlist(copy)
        return copy

    def leaders_changed(self, topic_id: bytes) -> None:
        """Poll the current leaders after the metadata of a topic's partitions has changed."""
        for copy in [one for one in self._copies.values() if one.topic.id == topic_id]:
            if copy.led_by != self._leader_of(copy):
                self._leave(copy)
                copy.tell(None)
                self._arrived(copy)
                self._enlist(copy)

    def stop(self) -> None:
        self._is_stopped = True

    def _leader_of(self, copy: RemoteCopy) -> tuple[int, int] | None:
        node = self._leaders.node_of(copy.topic, copy.number)
        if node < 0 or node == self._leaders.node_id:
            return None
        return node, self._leaders.epoch_of(copy.topic, copy.number)

    # Following

    def _enlist(self, copy: RemoteCopy) -> None:
        """Start polling the leader of a partition, or retry later if it has none."""
        if self._is_stopped or copy.is_gone or copy.led_by is not None:
            return
        if not self._is_used(copy):
            self._drop(copy)
            return
        copy.led_by = self._leader_of(copy)
        if copy.led_by is None:
            self._clock.call_later(RETRY_MS, partial(self._enlist, copy))
            return
        number = crc32(copy.topic.id + copy.number.to_bytes(4, "big")) % QUESTIONS_MAX
        place = (copy.led_by[0], number)
        question = self._questions.get(place)
        if question is None:
            question = self._questions[place] = _Question(*place)
        question.copies[copy.key] = copy
        self._ask_soon(question)

    def _leave(self, copy: RemoteCopy) -> None:
        """Stop polling a node that no longer leads the partition."""
        for question in list(self._questions.values()):
            if question.copies.pop(copy.key, None) is not None and not question.copies:
                del self._questions[question.node, question.number]
        copy.led_by = None
        copy.tenure += 1
        copy.fetching.clear()
        for first in copy.damaged():
            self._forget(copy, first)

    def _drop(self, copy: RemoteCopy) -> None:
        """Drop a partition that no queue reads any more."""
        self._leave(copy)
        copy.is_gone = True
        del self._copies[copy.key]
        for key in [one for one in self._ahead if one[0] is copy]:
            self._forget(*key)
        copy.tell(NotLeader(copy.name, -1))

    def _ask_soon(self, question: _Question) -> None:
        """Send the request at the end of the loop iteration, so that changes share it."""
        if not question.is_due:
            question.is_due = True
            self._clock.call_soon(partial(self._ask, question))

    def _ask(self, question: _Question) -> None:
        question.is_due = False
        for copy in [one for one in question.copies.values() if not self._is_used(one)]:
            self._drop(copy)
        if self._is_stopped or not question.copies:
            return
        question.turn += 1
        copies = list(question.copies.values())
        asked = LanesRequest(
            question.number,
            WAIT_MS,
            [
                # For an unknown partition the log start is news, so that the response is immediate.
                (*one.key, one.index.end, one.start_offset if one.is_known else -1)
                for one in copies
            ],
        )
        called = self._leaders.ask(
            question.node, PeerKind.LANES, encode(asked), timeout_ms=WAIT_MS + ANSWER_MS
        )
        read_answer(called, lambda answer: _lanes_decoder.decode(answer.head)).then(
            partial(self._answered, question, question.turn, copies)
        )

    def _answered(
        self,
        question: _Question,
        turn: int,
        copies: list[RemoteCopy],
        answer: list[LanesAnswer] | None,
        error: Exception | None,
    ) -> None:
        if question.turn != turn or self._is_stopped:
            return
        if answer is None:
            if not isinstance(error, GoQueueError):
                assert error is not None
                raise error
            for copy in list(question.copies.values()):
                self._try_later(copy)
            return
        for told in answer:
            copy = copies[told.place]
            if question.copies.get(copy.key) is not copy:
                continue
            if told.start_offset == NOT_LED:
                self._try_later(copy)
            else:
                self._learn(copy, told)
        if question.copies:
            self._ask_soon(question)

    def _try_later(self, copy: RemoteCopy) -> None:
        was_fetching = bool(copy.fetching)
        self._leave(copy)
        if was_fetching:
            # Those responses will be ignored, so the waiting readers must fetch again.
            copy.tell(None)
            self._arrived(copy)
        self._clock.call_later(RETRY_MS, partial(self._enlist, copy))

    def _learn(self, copy: RemoteCopy, told: LanesAnswer) -> None:
        if told.start_offset > copy.start_offset:
            self._begins(copy, told.start_offset)
            copy.start_offset = told.start_offset
            copy.index.forget_before(told.start_offset)
            copy.arrivals.forget_before(told.start_offset)
        copy.index.may_expire = told.may_expire
        first = copy.index.end
        for end, lane in zip(told.runs[::2], told.runs[1::2], strict=True):
            if end > copy.index.end:
                copy.index.note(copy.index.end, end - 1, lane)
        if copy.index.end > first:
            copy.arrivals.note(first, self._clock.now_ms())
            self._grown(copy)
        if not copy.is_known:
            copy.is_known = True
            self._arrived(copy)

    # Fetching

    def fetch(self, copy: RemoteCopy, offset: int, bytes_max: int) -> None:
        """Fetch the batches from an offset on from the leader of the partition."""
        is_busy = offset in copy.fetching or len(copy.fetching) >= FETCHES_MAX
        if is_busy or copy.is_resting or copy.is_gone or self._is_stopped:
            return
        copy.fetching[offset] = None
        topic_id, number = copy.key
        asked = AskedBatches(topic_id, number, offset, max(bytes_max, SINGLE_BYTES))
        called = self._leaders.call(copy.topic, number, PeerKind.BATCHES, encode(asked))
        read_answer(
            called,
            lambda answer: _piece(offset, _batches_decoder.decode(answer.head), bytes(answer.body)),
        ).then(partial(self._fetched, copy, copy.tenure, offset))

    def _fetched(
        self,
        copy: RemoteCopy,
        tenure: int,
        offset: int,
        piece: Piece | None,
        error: Exception | None,
    ) -> None:
        if copy.is_gone or copy.tenure != tenure or self._is_stopped:
            return
        copy.fetching.pop(offset, None)
        if isinstance(error, CorruptBatch):
            piece = Piece(offset, max(error.next_offset or 0, offset + 1), error=error)
        elif error is not None and not isinstance(error, GoQueueError):
            raise error
        if piece is None or piece.end_offset <= offset:
            self._rest(copy, error if isinstance(error, GoQueueError) else None)
            return
        self._keep(copy, piece)
        copy.tell(None)
        self._arrived(copy)

    def _rest(self, copy: RemoteCopy, error: GoQueueError | None) -> None:
        """Pause after data could not be fetched, then retry."""
        if isinstance(error, OffsetOutOfRange):
            # It was deleted. A request for the new log start is answered at once.
            for question in self._questions.values():
                if copy.key in question.copies:
                    self._ask_soon(question)
        copy.is_resting = True
        copy.tell(error or NotLeader(copy.name, -1))

        def go_on() -> None:
            copy.is_resting = False
            if not copy.is_gone:
                copy.tell(None)
                self._arrived(copy)

        self._clock.call_later(RETRY_MS, go_on)

    # Read-ahead

    def touch(self, copy: RemoteCopy, piece: Piece) -> None:
        self._ahead.move_to_end((copy, piece.offset))

    def _keep(self, copy: RemoteCopy, piece: Piece) -> None:
        self._forget(copy, piece.offset)
        copy.put(piece)
        size = self._ahead[copy, piece.offset] = len(piece.data) + _PIECE_COST
        self._ahead_bytes += size
        while self._ahead_bytes > AHEAD_BYTES_MAX and len(self._ahead) > 1:
            self._forget(*next(iter(self._ahead)))

    def _forget(self, copy: RemoteCopy, first: int) -> None:
        size = self._ahead.pop((copy, first), None)
        if size is not None:
            self._ahead_bytes -= size
            copy.drop(first)


def _piece(offset: int, told: ToldBatches, data: bytes) -> Piece:
    """Return what was sent; damage may have ended it before the announced end."""
    end, at = told.end_offset, 0
    while at < len(data):
        header = read_header(data, at)
        at += header.size
        end = header.next_offset
    return Piece(offset, end, data, told.aborted)
