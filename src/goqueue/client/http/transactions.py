"""Transactions as blocks: their effects become visible together at the end, or not at all.

    with client.transaction() as transaction:
        transaction.publish("shipments", message.value)
        transaction.ack(message)

Leaving the block commits, an exception aborts. The operations are written once, as steps; the two
classes run them with threads and with coroutines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeAlias

from goqueue.client.http.batching import split
from goqueue.client.http.consumers.membership import Membered
from goqueue.client.http.messages import (
    NO_HEADERS,
    Data,
    Headers,
    Message,
    Outgoing,
    Published,
    ReceivedMessage,
)
from goqueue.client.http.moments import Duration, Moment
from goqueue.client.http.request import AsyncSender, Sender
from goqueue.client.http.requests.queries import QueryRequests
from goqueue.client.http.requests.transactions import InTransaction, TransactionRequests
from goqueue.client.http.shells import AsyncShell, Shell, async_call, call
from goqueue.client.http.steps import Steps, run_steps, run_steps_async
from goqueue.model.errors import GoQueueError, InvalidRequest, TransactionAbortable
from goqueue.model.names import TopicPartition
from goqueue.wire.http.bodies.transactions import Begun
from goqueue.wire.http.fields import Priority

RECEIPTS_MAX = 1000  # in one request
Positions: TypeAlias = Mapping[TopicPartition, int] | Iterable[Message]

_REQUESTS = TransactionRequests()


class Transactions(Shell[TransactionRequests]):
    """Lists and describes transactions, and ends those of other clients."""

    list_all = call(TransactionRequests.list_all)
    describe = call(TransactionRequests.describe)
    abort = call(TransactionRequests.abort)


class AsyncTransactions(AsyncShell[TransactionRequests]):
    """Lists and describes transactions, and ends those of other clients."""

    list_all = async_call(TransactionRequests.list_all)
    describe = async_call(TransactionRequests.describe)
    abort = async_call(TransactionRequests.abort)


class Queries(Shell[QueryRequests]):
    """Transactions of a query, prepared one by one and committed together for an epoch."""

    open = call(QueryRequests.open)
    list_all = call(QueryRequests.list_all)
    describe = call(QueryRequests.describe)
    begin = call(QueryRequests.begin)
    prepare = call(QueryRequests.prepare)
    commit = call(QueryRequests.commit)


class AsyncQueries(AsyncShell[QueryRequests]):
    """Transactions of a query, prepared one by one and committed together for an epoch."""

    open = async_call(QueryRequests.open)
    list_all = async_call(QueryRequests.list_all)
    describe = async_call(QueryRequests.describe)
    begin = async_call(QueryRequests.begin)
    prepare = async_call(QueryRequests.prepare)
    commit = async_call(QueryRequests.commit)


class Script:
    """The operations of one transaction, as steps."""

    def __init__(
        self,
        transactional_id: str | None,
        timeout: Duration,
        requests: TransactionRequests = _REQUESTS,
    ) -> None:
        self._requests = requests
        self._transactional_id = transactional_id
        self._timeout = timeout
        self._begun: Begun | None = None
        self._is_ended = False

    @property
    def begun(self) -> Begun:
        if self._begun is None:
            raise InvalidRequest("This transaction has not begun; use it in a `with` block.")
        return self._begun

    def begin(self) -> Steps[None]:
        if self._begun is not None:
            raise InvalidRequest("A transaction is used once; create another one.")
        self._begun = yield self._requests.begin(self._transactional_id, timeout=self._timeout)

    def publish(self, topic: str, messages: Iterable[Outgoing | Data]) -> Steps[list[Published]]:
        requests = self._in()
        parts = [
            requests.encoded(topic, one if isinstance(one, Outgoing) else Outgoing(one))
            for one in messages
        ]
        published: list[Published] = []
        for chunk in split(parts):
            for outcome in (yield requests.publish(chunk)):
                if isinstance(outcome, GoQueueError):
                    raise outcome
                published.append(outcome)
        return published

    def ack(self, messages: Sequence[ReceivedMessage]) -> Steps[None]:
        requests = self._in()
        receipts: dict[str, list[str]] = {}
        for one in messages:
            receipts.setdefault(one.group, []).append(one.receipt)
        for group, some in receipts.items():
            for first in range(0, len(some), RECEIPTS_MAX):
                outcomes = yield requests.ack(group, some[first : first + RECEIPTS_MAX])
                for error in outcomes:
                    if error is not None:
                        raise error

    def commit_offsets(self, group: Membered | str, positions: Positions) -> Steps[None]:
        offsets: dict[TopicPartition, int] = {}
        if isinstance(positions, Mapping):
            offsets.update(positions)
        else:
            for one in positions:
                partition = TopicPartition(one.topic, one.partition)
                offsets[partition] = max(offsets.get(partition, 0), one.offset + 1)
        requests = self._in()
        if offsets:
            member = None if isinstance(group, str) else group.identity
            refused = yield requests.commit_offsets(
                group if isinstance(group, str) else group.identity.group,
                offsets,
                member_id=None if member is None else member.member_id,
                member_epoch=None if member is None else member.epoch,
            )
            for error in refused.values():
                raise error

    def commit(self) -> Steps[None]:
        self._in()
        try:
            yield self._requests.commit(self.begun.id)
        except TransactionAbortable:
            yield from self._give_up()
            raise
        self._is_ended = True

    def abort(self) -> Steps[None]:
        if self._begun is not None and not self._is_ended:
            self._is_ended = True
            yield self._requests.abort(self.begun.id)

    def leave(self, error: BaseException | None) -> Steps[None]:
        """End the block; an error that ended it is not replaced by another."""
        if self._is_ended:
            return
        if error is None:
            yield from self.commit()
        else:
            yield from self._give_up()

    def _give_up(self) -> Steps[None]:
        # If this fails as well, the transaction times out, with the same effect.
        with contextlib.suppress(GoQueueError):
            yield from self.abort()

    def _in(self) -> InTransaction:
        if self._is_ended:
            raise InvalidRequest("This transaction has ended; create another one.")
        return self._requests.inside(self.begun.id)


class Transaction:
    """One transaction, for one thread."""

    def __init__(self, transport: Sender, script: Script) -> None:
        self._transport = transport
        self._script = script

    @property
    def id(self) -> str:
        return self._script.begun.id

    @property
    def transactional_id(self) -> str:
        return self._script.begun.transactional_id

    def publish(
        self,
        topic: str,
        value: Data | None,
        *,
        key: Data | None = None,
        headers: Headers = NO_HEADERS,
        priority: Priority | None = None,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
        ttl: Duration | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Published:
        """Publish one message; readers see it after the commit."""
        message = Outgoing(
            value, key, headers, priority, delay, deliver_at, ttl, partition, timestamp_ms
        )
        return self.publish_many(topic, [message])[0]

    def publish_many(self, topic: str, messages: Iterable[Outgoing | Data]) -> list[Published]:
        """Publish messages in order; if one is refused, raise its error."""
        return run_steps(self._script.publish(topic, messages), self._transport)

    def ack(self, *messages: ReceivedMessage) -> None:
        """Acknowledge these messages of a queue with the commit.

        Raise `StaleReceipt` if this consumer no longer holds one of them.
        """
        run_steps(self._script.ack(messages), self._transport)

    def commit_offsets(self, group: Membered | str, positions: Positions) -> None:
        """Move a stream group past these messages, or to these offsets, with the commit.

        For a group that has members, give the consumer that owns the partitions.
        """
        run_steps(self._script.commit_offsets(group, positions), self._transport)

    def commit(self) -> None:
        """Commit now; all readers can see its effects when this returns."""
        run_steps(self._script.commit(), self._transport)

    def abort(self) -> None:
        """Abort: nothing of it takes effect."""
        run_steps(self._script.abort(), self._transport)

    def __enter__(self) -> Self:
        run_steps(self._script.begin(), self._transport)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        run_steps(self._script.leave(error), self._transport)


class AsyncTransaction:
    """One transaction, for coroutines."""

    def __init__(self, transport: AsyncSender, script: Script) -> None:
        self._transport = transport
        self._script = script

    @property
    def id(self) -> str:
        return self._script.begun.id

    @property
    def transactional_id(self) -> str:
        return self._script.begun.transactional_id

    async def publish(
        self,
        topic: str,
        value: Data | None,
        *,
        key: Data | None = None,
        headers: Headers = NO_HEADERS,
        priority: Priority | None = None,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
        ttl: Duration | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Published:
        """Publish one message; readers see it after the commit."""
        message = Outgoing(
            value, key, headers, priority, delay, deliver_at, ttl, partition, timestamp_ms
        )
        return (await self.publish_many(topic, [message]))[0]

    async def publish_many(
        self, topic: str, messages: Iterable[Outgoing | Data]
    ) -> list[Published]:
        """Publish messages in order; if one is refused, raise its error."""
        return await run_steps_async(self._script.publish(topic, messages), self._transport)

    async def ack(self, *messages: ReceivedMessage) -> None:
        """Acknowledge these messages of a queue with the commit.

        Raise `StaleReceipt` if this consumer no longer holds one of them.
        """
        await run_steps_async(self._script.ack(messages), self._transport)

    async def commit_offsets(self, group: Membered | str, positions: Positions) -> None:
        """Move a stream group past these messages, or to these offsets, with the commit.

        For a group that has members, give the consumer that owns the partitions.
        """
        await run_steps_async(self._script.commit_offsets(group, positions), self._transport)

    async def commit(self) -> None:
        """Commit now; all readers can see its effects when this returns."""
        await run_steps_async(self._script.commit(), self._transport)

    async def abort(self) -> None:
        """Abort: nothing of it takes effect."""
        await run_steps_async(self._script.abort(), self._transport)

    async def __aenter__(self) -> Self:
        await run_steps_async(self._script.begin(), self._transport)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await run_steps_async(self._script.leave(error), self._transport)
