"""Calls between nodes about schedules: store, release, cancel, list, count.

A call may be received twice, but must not be carried out twice. Calls that change state have a
unique number, by which a repeated call gets the response of the first.
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
from goqueue.partition import NO_LEADER

CALLS_REMEMBERED_MAX = 10_000
APPEND_TIMEOUT_MS = 2_000  # an append is idempotent, so the timeout is short

_encode = msgspec.msgpack.Encoder().encode
T = TypeVar("T")


class Store(msgspec.Struct, frozen=True, array_like=True, tag="store"):
    """Store messages in a partition of schedules; the response has their numbers."""

    token: int
    number: int
    messages: list[ScheduledMessage]
    transaction: tuple[int, int] | None = None
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

    topic: str | None
    from_ms: int
    until_ms: int
    limit: int
    after: str


class Count(msgspec.Struct, frozen=True, array_like=True, tag="count"):
    """Count the messages waiting on one node."""

    topic: str | None = None
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
    """Sends calls to other nodes, and serves theirs."""

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
        self._token = random.getrandbits(62)  # so that no earlier run of a node used it
        self._heard: OrderedDict[tuple[int, int], Promise[Answer]] = OrderedDict()
        peers.serve(PeerKind.SCHEDULES, self._serve)

    # Sending

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
        """Store messages at the owner of a partition of schedules; return their numbers."""
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
        """Store a batch of released messages at the leader of a partition, in one attempt."""
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

    # Serving

    def _serve(self, node: int, head: bytes, body: memoryview) -> Promise[Answer]:
        call = _call_decoder.decode(head)
        if not isinstance(call, Store | Cancel):
            return self._answer(call, body)
        heard = self._heard.get((node, call.token))
        if heard is None:
            try:
                heard = self._answer(call, body)
            except GoQueueError as error:
                # A later repetition might be carried out after the caller has tried another node.
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
            # The caller already has the topic; a message for it must not be refused as unknown
            # here.
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
        """Append a batch of released messages, whose sizes were checked when they were accepted."""
        topic = self._topics.find_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id.hex())
        partition = topic.partition(number)
        partition.check_leading()
        refusal = partition.failure or partition.shortage
        if refusal is not None:
            raise refusal
        own = bytearray(batch)  # The partition stamps it in place.
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
    """The error when something was written, but may still be lost."""
    return RequestTimedOut(f"The messages may or may not have been scheduled: {error}")


def not_here() -> NotCoordinator:
    return NotCoordinator("Another node owns these schedules now; find the owner again.")


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
