"""The owners of schedules, from any node: finds them, and has them store, list and cancel messages.

A partition of schedules is owned by the node that leads it; a single node owns all of them. What an
owner here does is passed in by `serve`; the other owners are called over the peer protocol. Such a
call may be received twice, but must not be carried out twice. Calls that change state have a unique
number, by which a repeated call gets the response of the first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol, TypeVar, cast

import msgspec

from goqueue.broker.replication.leaders import CALL_TIMEOUT_MS, Leaders
from goqueue.broker.schedules.listing import ScheduledEntry, SchedulePage, ScheduleStats, Wanted
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery.schedules import NEVER_MS, NO_EPOCH, ScheduledMessage, ScheduleIds
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, PeerKind, read_answer
from goqueue.loop.promise import Promise
from goqueue.model.batch import read_header
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    GoQueueError,
    NotCoordinator,
    RequestTimedOut,
    UnknownSchedule,
    UnknownTopicId,
)
from goqueue.model.names import SCHEDULED_TOPIC, ProducerIdentity
from goqueue.partition import Partition

STORE_MS_MAX = 5_000  # how long to look for an owner that accepts a message
STORE_RETRY_MS = 100
STORE_ATTEMPT_MS = 2_000  # per attempt to store a batch, which the owner deduplicates
APPEND_TIMEOUT_MS = 2_000  # an append is idempotent, so the timeout is short
CALLS_REMEMBERED_MAX = 10_000
NOBODY = -1

_encode = msgspec.msgpack.Encoder().encode
T = TypeVar("T")
R = TypeVar("R")


class Store(msgspec.Struct, frozen=True, array_like=True, tag="store"):
    """Store messages in a partition of schedules; the response has their numbers."""

    token: int
    number: int
    messages: list[ScheduledMessage]
    transaction: ProducerIdentity | None = None
    is_one_batch: bool = False  # of a producer, stored as a whole or not at all
    leader_epoch: int = NO_EPOCH  # of the partition that the batch was sent to


class Append(msgspec.Struct, frozen=True, array_like=True, tag="append"):
    """Store a batch of released messages, which is the body, in its topic."""

    topic_id: bytes
    number: int


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Cancel messages; the response has the refusal of each, if any."""

    token: int
    schedule_ids: list[str]


class List(msgspec.Struct, frozen=True, array_like=True, tag="list"):
    """Get a page of the messages waiting on one node."""

    topics: frozenset[str] | None
    from_ms: int
    until_ms: int
    limit: int
    after: str


class Count(msgspec.Struct, frozen=True, array_like=True, tag="count"):
    """Count the messages waiting on one node."""

    topics: frozenset[str] | None = None
    from_ms: int = 0
    until_ms: int = NEVER_MS


class Stats(msgspec.Struct, frozen=True, array_like=True, tag="stats"):
    """Get the metrics of one node."""


Call = Store | Append | Cancel | List | Count | Stats
Refused = tuple[str, str] | None  # code and text of an error

_call_decoder = msgspec.msgpack.Decoder(Call)
_numbers_decoder = msgspec.msgpack.Decoder(list[int])
_refused_decoder = msgspec.msgpack.Decoder(list[Refused])
_page_decoder = msgspec.msgpack.Decoder(tuple[list[tuple[str, str, int]], str])
_offset_decoder = msgspec.msgpack.Decoder(int)
_count_decoder = msgspec.msgpack.Decoder(int)
_stats_decoder = msgspec.msgpack.Decoder(list[int | None])

StoreHere = Callable[[Store], Promise[list[int]]]


class CancelsHere(Protocol):
    """Cancels messages that this node owns."""

    def cancel_here(self, schedule_ids: Sequence[str]) -> Promise[list[GoQueueError | None]]: ...


class QueriesHere(Protocol):
    """Answers queries about the messages that this node owns."""

    def list_here(self, wanted: Wanted, *, limit: int, after: str) -> Promise[SchedulePage]: ...

    def count_here(self, wanted: Wanted) -> Promise[int]: ...

    def stats_here(self) -> ScheduleStats: ...


class ScheduleOwners:
    """Finds the owners of schedules and calls them, here or on other nodes."""

    def __init__(self, clock: Clock, topics: Topics, leaders: Leaders, random: Random) -> None:
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._turn = random.getrandbits(16)  # so that nodes begin with different partitions
        self._token = random.getrandbits(62)  # so that no earlier run of a node used it
        self._served: OrderedDict[tuple[int, int], Promise[Answer]] = OrderedDict()
        self._ids_of: Topic | None = None
        self._ids = ScheduleIds(b"")
        self._store_here: StoreHere
        self._changes: CancelsHere
        self._queries: QueriesHere

    def serve(self, store: StoreHere, changes: CancelsHere, queries: QueriesHere) -> None:
        """Have these carry out what nodes, this one included, request from this node."""
        self._store_here = store
        self._changes = changes
        self._queries = queries
        self._leaders.serve(PeerKind.SCHEDULES, self._serve)

    # Location

    @property
    def is_alone(self) -> bool:
        return self._leaders.is_alone

    def ids(self) -> ScheduleIds:
        """Writes and reads schedule ids."""
        topic = self._topic()
        if topic is not self._ids_of:
            self._ids_of, self._ids = topic, ScheduleIds(b"" if topic is None else topic.id)
        return self._ids

    def partition_count(self) -> int:
        topic = self._topic()
        return 0 if topic is None else len(topic.partitions)

    def _topic(self) -> Topic | None:
        """The internal topic; None on a single node that has stored nothing yet."""
        topic = self._topics.find(SCHEDULED_TOPIC)
        if topic is None and not self._leaders.is_alone:
            raise CoordinatorNotAvailable("The cluster is still forming; retry.")
        return topic

    def node_of(self, number: int) -> int:
        """The node that leads a partition of schedules; -1 if there is none."""
        topic = self._topics.find(SCHEDULED_TOPIC)
        if topic is None or not 0 <= number < len(topic.partitions):
            return NOBODY
        return self._leaders.node_of(topic, number)

    def owner_of(self, schedule_id: str) -> int:
        """The node that owns a message; -1 if there is none."""
        number, _ = self.ids().read(schedule_id)
        if number >= self.partition_count():
            raise UnknownSchedule(schedule_id)
        return self.node_of(number)

    def is_here(self, node: int) -> bool:
        return node == self._leaders.node_id

    @property
    def are_here(self) -> bool:
        """Whether this node owns all schedules."""
        return all(self.is_here(self.node_of(one)) for one in range(self.partition_count()))

    def others(self) -> list[int]:
        """The other nodes that own schedules; raise if some partition has no owner now."""
        nodes = {self.node_of(number) for number in range(self.partition_count())}
        if NOBODY in nodes:
            raise CoordinatorNotAvailable("Some of the schedules have no owner now; retry.")
        return sorted(nodes - {self._leaders.node_id})

    def epoch_of(self, topic_id: bytes, number: int) -> int:
        """The newest leader epoch of a topic's partition in this node's metadata."""
        topic = self._topics.find_by_id(topic_id)
        if topic is None or not 0 <= number < len(topic.partitions):
            return NO_EPOCH
        return self._leaders.epoch_of(topic, number)

    # Storing

    async def store_batch(
        self,
        number: int,
        messages: list[ScheduledMessage],
        *,
        leader_epoch: int,
        transaction: ProducerIdentity | None,
        timeout_ms: int,
        check: Callable[[], None],
    ) -> None:
        """Store the delayed records of one producer's batch at the owner of a partition.

        If the producer has an id, the owner recognises a batch that it already has, so a batch with
        an unknown outcome is sent again, to the same or the next owner. `check` is called before
        each attempt, and raises if this node may no longer store the batch.
        """
        is_repeatable = messages[0].origin is not None
        deadline_ms = self._clock.now_ms() + timeout_ms
        left_ms = timeout_ms
        while True:
            check()
            call = Store(self._next_token(), number, messages, transaction, True, leader_epoch)
            try:
                await self._store(
                    call, timeout_ms=min(left_ms, STORE_ATTEMPT_MS) if is_repeatable else left_ms
                )
                return
            except FencedLeaderEpoch:
                raise
            except GoQueueError as error:
                is_unknown = isinstance(error, RequestTimedOut) and not is_repeatable
                left_ms = deadline_ms - self._clock.now_ms() - STORE_RETRY_MS
                if is_unknown or not self._may_retry(error) or left_ms <= 0:
                    raise
            await self._pause()

    async def store(
        self,
        messages: list[ScheduledMessage],
        *,
        number: int | None = None,
        own: Sequence[int] = (),
        transaction: ProducerIdentity | None = None,
    ) -> tuple[int, list[int]]:
        """Store messages in a given partition, or in any; return the partition and their numbers.

        Those of a transaction become one batch. An owner that refuses has stored nothing, so the
        call is retried. An owner that does not respond may have stored them.
        """
        deadline_ms = self._clock.now_ms() + STORE_MS_MAX
        is_one_batch = transaction is not None
        while True:
            wanted = self._some_number(own) if number is None else number
            call = Store(self._next_token(), wanted, messages, transaction, is_one_batch)
            try:
                return wanted, await self._store(call, timeout_ms=CALL_TIMEOUT_MS)
            except RequestTimedOut:
                raise
            except GoQueueError as error:
                if not self._may_retry(error) or self._clock.now_ms() >= deadline_ms:
                    raise
            own = ()
            await self._pause()

    def _some_number(self, own: Sequence[int]) -> int:
        """A partition to store in: one led by this node if possible, else any with a leader."""
        self._turn += 1
        if own:
            return own[self._turn % len(own)]
        count = self.partition_count()
        led = [number for number in range(count) if self.node_of(number) != NOBODY]
        return led[self._turn % len(led)] if led else self._turn % count

    def _store(self, call: Store, *, timeout_ms: int) -> Promise[list[int]]:
        node = self.node_of(call.number)
        if node == self._leaders.node_id:
            return self._store_here(call)
        if node == NOBODY:
            raise not_here()
        return self._ask(node, call, _numbers_decoder.decode, timeout_ms=timeout_ms)

    def _may_retry(self, error: GoQueueError) -> bool:
        """Whether another attempt may meet another owner."""
        return error.retryable and not self._leaders.is_alone

    def _pause(self) -> Promise[None]:
        promise: Promise[None] = Promise()
        self._clock.call_later(STORE_RETRY_MS, lambda: promise.resolve(None))
        return promise

    # Appending released messages to their topics

    def append(self, topic: Topic, number: int, batch: bytearray) -> Promise[int]:
        """Store a batch of released messages at the leader of a partition, in one attempt.

        It resolves with the last offset, -1 if a node of an earlier version has stored it. An error
        raised synchronously means that nothing was stored.
        """
        if self._leaders.is_here(topic, number):
            return self._append_here(topic.partition(number), batch)
        called = self._leaders.call(
            topic,
            number,
            PeerKind.SCHEDULES,
            _encode(Append(topic.id, number)),
            body=bytes(batch),
            timeout_ms=APPEND_TIMEOUT_MS,
        )
        return read_answer(called, lambda answer: _read_offset(answer.head))

    def _append_here(self, partition: Partition, batch: bytearray) -> Promise[int]:
        """Append a batch of released messages, whose sizes were checked when they were accepted."""
        partition.check_leading()
        refusal = partition.failure or partition.shortage
        if refusal is not None:
            raise refusal
        earlier = partition.producers.check(read_header(batch))
        if earlier is not None:
            last_offset = earlier.last_offset
        else:
            is_append_time = partition.settings.is_append_time
            view, now_ms = memoryview(batch), self._clock.wall_ms()
            written = partition.write(view, now_ms=now_ms, is_append_time=is_append_time)
            last_offset = written.last_offset
        stored: Promise[int] = Promise()
        partition.when_committed(
            last_offset, lambda error: stored.settle(None if error else last_offset, error)
        )
        return stored

    # Calls to one owner on another node

    def cancel(self, node: int, schedule_ids: list[str]) -> Promise[list[Refused]]:
        return self._ask(node, Cancel(self._next_token(), schedule_ids), _refused_decoder.decode)

    def page(self, node: int, wanted: Wanted, *, limit: int, after: str) -> Promise[SchedulePage]:
        def read(head: bytes) -> SchedulePage:
            entries, cursor = _page_decoder.decode(head)
            return SchedulePage([ScheduledEntry(*one) for one in entries], cursor)

        return self._ask(node, List(*wanted, limit, after), read)

    def count(self, node: int, wanted: Wanted) -> Promise[int]:
        return self._ask(node, Count(*wanted), _count_decoder.decode)

    def stats(self, node: int) -> Promise[ScheduleStats]:
        def read(head: bytes) -> ScheduleStats:
            return ScheduleStats(*cast(Any, _stats_decoder.decode(head)))

        return self._ask(node, Stats(), read)

    def _ask(
        self,
        node: int,
        call: Call,
        read: Callable[[bytes], T],
        *,
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> Promise[T]:
        called = self._leaders.ask(node, PeerKind.SCHEDULES, _encode(call), timeout_ms=timeout_ms)
        return read_answer(called, lambda answer: read(answer.head))

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    # Serving other nodes

    def _serve(self, node: int, head: bytes, body: memoryview) -> Promise[Answer]:
        call = _call_decoder.decode(head)
        if not isinstance(call, Store | Cancel):
            return self._answer(call, body)
        answer = self._served.get((node, call.token))
        if answer is None:
            try:
                answer = self._answer(call, body)
            except GoQueueError as error:
                # A later repetition might be carried out after the caller has tried another node.
                answer = Promise()
                answer.reject(error)
            self._served[node, call.token] = answer
            if len(self._served) > CALLS_REMEMBERED_MAX:
                self._served.popitem(last=False)
        return answer

    def _answer(self, call: Call, body: memoryview) -> Promise[Answer]:
        if isinstance(call, Append):
            topic = self._topics.find_by_id(call.topic_id)
            if topic is None:
                raise UnknownTopicId(call.topic_id.hex())
            # The partition stamps it in place, so it gets a copy.
            stored = self._append_here(topic.partition(call.number), bytearray(body))
            return _mapped(stored, lambda last_offset: Answer(_encode(last_offset)))
        if isinstance(call, Store):
            return _answered(self._store_for_other(call), list)
        if isinstance(call, Cancel):
            cancelled = self._changes.cancel_here(call.schedule_ids)
            return _answered(cancelled, lambda found: [_refused(one) for one in found])
        if isinstance(call, List):
            wanted = Wanted(call.topics, call.from_ms, call.until_ms)
            page = self._queries.list_here(wanted, limit=call.limit, after=call.after)
            return _answered(page, lambda page: [[tuple(one) for one in page[0]], page[1]])
        if isinstance(call, Count):
            count = self._queries.count_here(Wanted(call.topics, call.from_ms, call.until_ms))
            return _answered(count, lambda count: count)
        answer: Promise[Answer] = Promise()
        answer.resolve(Answer(_encode(list(self._queries.stats_here()))))
        return answer

    def _store_for_other(self, call: Store) -> Promise[list[int]]:
        for topic_id in {one.topic_id for one in call.messages}:
            # The caller already has the topic; a message for it must not be refused as unknown
            # here.
            if self._topics.find_by_id(topic_id) is None:
                raise UnknownTopicId(topic_id.hex())
        return self._store_here(call)


def not_here() -> NotCoordinator:
    return NotCoordinator("Another node owns these schedules now; find the owner again.")


def _read_offset(head: bytes) -> int:
    return _offset_decoder.decode(head) if head else -1


def _mapped(promise: Promise[T], read: Callable[[T], R]) -> Promise[R]:
    result: Promise[R] = Promise()

    def done(value: T | None, error: Exception | None) -> None:
        if error is not None:
            result.reject(error)
        else:
            result.resolve(read(cast(T, value)))

    promise.then(done)
    return result


def _answered(promise: Promise[T], write: Callable[[T], object]) -> Promise[Answer]:
    return _mapped(promise, lambda value: Answer(_encode(write(value))))


def _refused(error: GoQueueError | None) -> Refused:
    return None if error is None else (error.code, str(error))
