"""What nodes ask each other about schedules: to store, to release, to cancel, to list, to count.

A call may be heard twice, and must not be carried out twice. Those that change something bear a
number of their own, by which a second hearing gets the answer of the first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import Any, Protocol, TypeVar, cast

import msgspec

from goqueue.broker.replication.leaders import CALL_TIMEOUT_MS, Leaders
from goqueue.broker.schedules.listing import ScheduledEntry, SchedulePage, ScheduleStats
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery.schedules import NEVER_MS, NO_EPOCH, ScheduledMessage
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, Answered, PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.batch import read_header
from goqueue.model.errors import (
    GoQueueError,
    NotCoordinator,
    NotLeader,
    RequestTimedOut,
    UnknownTopicId,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.partition.partition import NO_LEADER

CALLS_REMEMBERED_MAX = 10_000
APPEND_TIMEOUT_MS = 2_000  # it can be repeated without harm, so nobody waits for long

_encode = msgspec.msgpack.Encoder().encode
T = TypeVar("T")


class Store(msgspec.Struct, frozen=True, array_like=True, tag="store"):
    """Have messages wait in a partition of schedules; answered with their numbers."""

    token: int
    number: int
    messages: list[ScheduledMessage]
    transaction: tuple[int, int] | None = None
    is_one_batch: bool = False  # of a producer, of which all or nothing is stored
    leader_epoch: int = NO_EPOCH  # of the partition that the batch was sent to


class Append(msgspec.Struct, frozen=True, array_like=True, tag="append"):
    """Store a batch of released messages, which is the body, in its topic."""

    topic_id: bytes
    number: int


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Cancel messages; answered with why each was refused, if it was."""

    token: int
    schedule_ids: list[str]


class List(msgspec.Struct, frozen=True, array_like=True, tag="list"):
    """A page of what waits on one node."""

    topic: str | None
    from_ms: int
    until_ms: int
    limit: int
    after: str


class Count(msgspec.Struct, frozen=True, array_like=True, tag="count"):
    """How many messages wait on one node."""

    topic: str | None = None
    from_ms: int = 0
    until_ms: int = NEVER_MS


class Stats(msgspec.Struct, frozen=True, array_like=True, tag="stats"):
    """The figures of one node."""


Call = Store | Append | Cancel | List | Count | Stats
Refused = tuple[str, str] | None  # code and text of an error

_call_decoder = msgspec.msgpack.Decoder(Call)
_numbers_decoder = msgspec.msgpack.Decoder(list[int])
_refused_decoder = msgspec.msgpack.Decoder(list[Refused])
_page_decoder = msgspec.msgpack.Decoder(tuple[list[tuple[str, str, int]], str])
_count_decoder = msgspec.msgpack.Decoder(int)
_stats_decoder = msgspec.msgpack.Decoder(list[int | None])


class Owner(Protocol):
    """The schedules of this node, as other nodes call them."""

    def store_here(
        self,
        number: int,
        messages: list[ScheduledMessage],
        *,
        transaction: ProducerIdentity | None,
        is_one_batch: bool,
        leader_epoch: int,
    ) -> Promise[list[int]]: ...

    def cancel_here(self, schedule_ids: list[str]) -> Promise[list[GoQueueError | None]]: ...

    def list_here(
        self, *, topic: str | None, from_ms: int, until_ms: int, limit: int, after: str
    ) -> Promise[SchedulePage]: ...

    def count_here(self, *, topic: str | None, from_ms: int, until_ms: int) -> Promise[int]: ...

    def stats_here(self) -> ScheduleStats: ...


class ScheduleCalls:
    """Asks other nodes, and answers them."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        peers: Peers,
        random: Random,
        owner: Owner,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._peers = peers
        self._owner = owner
        self._token = random.getrandbits(62)  # so that no earlier life of a node used it
        self._heard: OrderedDict[tuple[int, int], Promise[Answer]] = OrderedDict()
        peers.serve(PeerKind.SCHEDULES, self._serve)

    # Asking

    def store(
        self,
        node: int,
        number: int,
        messages: list[ScheduledMessage],
        *,
        transaction: ProducerIdentity | None,
        is_one_batch: bool,
        leader_epoch: int,
        timeout_ms: int,
    ) -> Promise[list[int]]:
        """Have messages stored by the owner of a partition of schedules; their numbers."""
        identity = None if transaction is None else tuple(transaction)
        call = Store(
            self._next_token(),
            number,
            messages,
            cast(tuple[int, int] | None, identity),
            is_one_batch,
            leader_epoch,
        )
        return self._ask(node, call, _numbers_decoder.decode, timeout_ms=timeout_ms)

    def cancel(self, node: int, schedule_ids: list[str]) -> Promise[list[Refused]]:
        return self._ask(node, Cancel(self._next_token(), schedule_ids), _refused_decoder.decode)

    def page(
        self,
        node: int,
        *,
        topic: str | None,
        from_ms: int,
        until_ms: int,
        limit: int,
        after: str,
    ) -> Promise[SchedulePage]:
        def read(head: bytes) -> SchedulePage:
            entries, cursor = _page_decoder.decode(head)
            return SchedulePage([ScheduledEntry(*one) for one in entries], cursor)

        return self._ask(node, List(topic, from_ms, until_ms, limit, after), read)

    def count(self, node: int, *, topic: str | None, from_ms: int, until_ms: int) -> Promise[int]:
        return self._ask(node, Count(topic, from_ms, until_ms), _count_decoder.decode)

    def stats(self, node: int) -> Promise[ScheduleStats]:
        def read(head: bytes) -> ScheduleStats:
            return ScheduleStats(*cast(Any, _stats_decoder.decode(head)))

        return self._ask(node, Stats(), read)

    def append(self, topic: Topic, number: int, batch: bytes) -> Promise[None]:
        """Have a batch of released messages stored by whoever leads a partition, once."""
        if self._leaders.is_here(topic, number):
            done: Promise[None] = Promise()
            try:
                self._append_here(topic.id, number, batch).then(
                    lambda _, error: done.settle(None, error)
                )
            except GoQueueError as error:
                done.reject(error)
            return done
        node = self._leaders.node_of(topic, number)
        if node in (NO_LEADER, self._leaders.node_id):
            refused: Promise[None] = Promise()
            refused.reject(NotLeader(TopicPartition(topic.name, number), NO_LEADER))
            return refused
        head = _encode(Append(topic.id, number))
        called = self._peers.call(
            node, PeerKind.SCHEDULES, head, [batch], timeout_ms=APPEND_TIMEOUT_MS
        )
        return _mapped(called, lambda _: None)

    def _ask(
        self,
        node: int,
        call: Call,
        read: Callable[[bytes], T],
        *,
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> Promise[T]:
        called = self._peers.call(node, PeerKind.SCHEDULES, _encode(call), timeout_ms=timeout_ms)
        return _mapped(called, lambda answer: read(answer.head))

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    # Answering

    def _serve(self, node: int, head: bytes, body: memoryview) -> Promise[Answer]:
        call = _call_decoder.decode(head)
        if not isinstance(call, Store | Cancel):
            return self._answer(call, body)
        heard = self._heard.get((node, call.token))
        if heard is None:
            try:
                heard = self._answer(call, body)
            except GoQueueError as error:
                # Heard again later it might be carried out, when the caller has gone elsewhere.
                heard = Promise()
                heard.reject(error)
            self._heard[node, call.token] = heard
            if len(self._heard) > CALLS_REMEMBERED_MAX:
                self._heard.popitem(last=False)
        return heard

    def _answer(self, call: Call, body: memoryview) -> Promise[Answer]:
        owner = self._owner
        if isinstance(call, Append):
            return self._append_here(call.topic_id, call.number, body)
        if isinstance(call, Store):
            return _answered(self._store_here(call), list)
        if isinstance(call, Cancel):
            return _answered(
                owner.cancel_here(call.schedule_ids), lambda found: [_refused(one) for one in found]
            )
        if isinstance(call, List):
            page = owner.list_here(
                topic=call.topic,
                from_ms=call.from_ms,
                until_ms=call.until_ms,
                limit=call.limit,
                after=call.after,
            )
            return _answered(page, lambda page: [[tuple(one) for one in page[0]], page[1]])
        if isinstance(call, Count):
            count = owner.count_here(topic=call.topic, from_ms=call.from_ms, until_ms=call.until_ms)
            return _answered(count, lambda count: count)
        answer: Promise[Answer] = Promise()
        answer.resolve(Answer(_encode(list(owner.stats_here()))))
        return answer

    def _store_here(self, call: Store) -> Promise[list[int]]:
        for topic_id in {one.topic_id for one in call.messages}:
            # Somebody knows the topic already; a message for it must not find it missing here.
            if self._topics.find_by_id(topic_id) is None:
                raise UnknownTopicId(topic_id.hex())
        transaction = None if call.transaction is None else ProducerIdentity(*call.transaction)
        return self._owner.store_here(
            call.number,
            call.messages,
            transaction=transaction,
            is_one_batch=call.is_one_batch,
            leader_epoch=call.leader_epoch,
        )

    def _append_here(
        self, topic_id: bytes, number: int, batch: bytes | memoryview
    ) -> Promise[Answer]:
        """Store a batch of released messages, whose sizes were checked when they came."""
        topic = self._topics.find_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id.hex())
        partition = topic.partition(number)
        partition.check_leading()
        refusal = partition.failure or partition.shortage
        if refusal is not None:
            raise refusal
        own = bytearray(batch)  # The partition stamps it.
        earlier = partition.producers.check(read_header(own))
        if earlier is not None:
            last_offset = earlier.last_offset
        else:
            is_append_time = partition.settings.is_append_time
            now_ms = self._clock.wall_ms()
            view = memoryview(own)
            written = partition.write(view, now_ms=now_ms, is_append_time=is_append_time)
            last_offset = written.last_offset
        answer: Promise[Answer] = Promise()
        partition.when_committed(
            last_offset, lambda error: answer.settle(None if error else Answer(), error)
        )
        return answer


def unknown_outcome(error: GoQueueError) -> RequestTimedOut:
    """What to say when something was written and nobody knows whether it will stay."""
    return RequestTimedOut(f"Nobody knows whether the messages were scheduled: {error}")


def not_here() -> NotCoordinator:
    return NotCoordinator("Another node keeps these schedules now; look for it again.")


def _mapped(promise: Promise[Answered], read: Callable[[Answered], T]) -> Promise[T]:
    result: Promise[T] = Promise()

    def done(answer: Answered | None, error: Exception | None) -> None:
        if answer is None:
            assert error is not None
            result.reject(error)
        else:
            result.resolve(read(answer))

    promise.then(done)
    return result


def _answered(promise: Promise[T], write: Callable[[T], object]) -> Promise[Answer]:
    answer: Promise[Answer] = Promise()

    def done(value: T | None, error: Exception | None) -> None:
        answer.settle(None if error else Answer(_encode(write(cast(T, value)))), error)

    promise.then(done)
    return answer


def _refused(error: GoQueueError | None) -> Refused:
    return None if error is None else (error.code, str(error))
