"""Receive: messages of a queue group as far as there is credit, and their settling.

The requests of a client are read by one task, messages are received by another. Credit is what the
client can take beyond what it was given: each message takes one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.queues import Outcomes, Received
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.calls import decoded, value_of
from goqueue.wire.grpc.handlers.fields import (
    delay_of,
    group_of,
    reason_of,
    receipts_of,
    visibility_of,
)
from goqueue.wire.grpc.handlers.paging import messages_max_of
from goqueue.wire.grpc.handlers.settling import errors_of
from goqueue.wire.grpc.messages import consume_service_pb2 as bodies
from goqueue.wire.grpc.records import MESSAGES_MAX, received_messages, split_messages
from goqueue.wire.grpc.streams.outbox import Outbox, called, known_error, together
from goqueue.wire.grpc.streams.patience import Patience, admitted
from goqueue.wire.grpc.streams.window import Window

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd
    from goqueue.wire.grpc.routes import Wire

CREDIT_MAX = 1_000_000
WAIT_MS = 20_000  # for messages, before the group is asked again

_Entry = bodies.Nack | bodies.Reject | bodies.Extend
_Step = tuple[list[str], Promise[Outcomes]]  # receipts, and what becomes of them

_log = logging.getLogger(__name__)


async def receive(front: FrontEnd, call: Call, wire: Wire) -> None:
    data = await wire.read()
    if data is None:
        return
    first = decoded(bodies.ReceiveRequest, data)
    stream = _ReceiveStream(front, call, wire, first)
    try:
        await stream.admit(len(data))
        stream.handle(first, len(data))
        await together(stream.read(), stream.receive(), stream.outbox.run())
    finally:
        stream.close()


class Credit:
    """How many messages the client can take."""

    def __init__(self) -> None:
        self.count = 0
        self._is_last = False  # there will be no more
        self._go_on: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        return self._is_last and not self.count

    def add(self, count: int) -> None:
        """Add what a request gives; raise if it makes no sense."""
        if count and self._is_last:
            raise InvalidField("The stream was stopped, and takes no more credit.", field="credit")
        if count < 0 or self.count + count > CREDIT_MAX:
            raise InvalidField(
                f"Credit is not negative, and at most {CREDIT_MAX} in all.", field="credit"
            )
        self.count += count
        self._wake()

    def end(self) -> None:
        """Note that the client gives no more."""
        self._is_last = True
        self._wake()

    def withdraw(self) -> None:
        """Note that the client takes no more messages."""
        self.count = 0
        self.end()

    def take(self, count: int) -> None:
        self.count -= count

    def when_any(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when there is credit, or will be none: at once, or later."""
        self._go_on = go_on
        self._wake()

    def _wake(self) -> None:
        if (self.count or self._is_last) and self._go_on is not None:
            go_on, self._go_on = self._go_on, None
            go_on()


class _ReceiveStream:
    """A consumer of a queue group for as long as its stream lasts."""

    def __init__(
        self, front: FrontEnd, call: Call, wire: Wire, first: bodies.ReceiveRequest
    ) -> None:
        if not first.HasField("start"):
            raise InvalidField("The first request of a stream has `start`.", field="start")
        start = first.start
        self.outbox = Outbox(front, call, wire)
        self._front = front
        self._call = call
        self._wire = wire
        self._window = Window()
        self._credit = Credit()
        self._group, self._topic = group_of(start.group), start.topic
        self._consumer = start.consumer or call.host
        self._visibility_ms = visibility_of(start)
        self._messages_max = messages_max_of(start.messages_max)
        self._is_closed = False
        self._is_stopped = False  # by the client, which settles but receives no more
        self._parts = 2  # that still work: one reads requests, one receives messages
        self._receiving = Cancellation()
        self._received: Promise[Outcomes] = Promise()  # resolves after the last message
        self._unsent: list[str] = []  # receipts of messages that the client has not taken yet

    def close(self) -> None:
        """Return messages that were not sent, and the memory of requests without a response."""
        self._is_closed = True
        self._receiving.cancel()
        self._front.intake.give(self._window.bytes)
        self._give_back(self._unsent)

    # Requests

    async def read(self) -> None:
        """Handle requests, as long as there is room for them. After the last of them, the stream
        ends when its credit is used up."""
        while (data := await self._wire.read()) is not None:
            await self.admit(len(data))
            request = decoded(bodies.ReceiveRequest, data)
            if request.HasField("start"):
                raise InvalidField("Only the first request has `start`.", field="start")
            self.handle(request, len(data))
            while self._window.is_full:
                await called(self._window.when_left)
            if self._front.intake.is_full:
                await called(self._front.intake.when_room)
        self._credit.end()
        await self._finish()

    async def admit(self, size: int) -> None:
        """Wait until the quotas of the client allow a request, which takes memory meanwhile."""
        self._window.enter(size)
        self._front.intake.take(size)
        await admitted(self._front, self._call)

    async def _finish(self) -> None:
        """End the stream, when its client asks for nothing more and has all outcomes."""
        self._parts -= 1
        if self._parts:
            return
        while not self._window.is_empty:
            await called(self._window.when_left)
        self.outbox.end()

    def handle(self, request: bodies.ReceiveRequest, size: int) -> None:
        """Take the credit of a request that was admitted, and settle what it names."""
        self._credit.add(request.credit)
        settling = self._settling(request)
        if request.stop:
            self._stop()
            settling.append(([], self._received))
        if not settling:
            self._sent(size)
            return
        if not request.number:
            raise InvalidField(
                "A request that settles messages or stops the stream has a number.", field="number"
            )
        _Settlement(request.number, settling, self._call, partial(self._settled, size))

    def _settling(self, request: bodies.ReceiveRequest) -> list[_Step]:
        """Start to settle what a request names."""
        _check_count(request)
        queues, session, group = self._front.gate.queues, self._call.session, self._group
        steps: list[_Step] = []
        if request.ack:
            given = receipts_of(request.ack, "ack")
            steps.append((given, queues.ack(session, group=group, receipts=given)))
        for nack in request.nack:
            given = receipts_of(nack.receipts)
            outcomes = queues.nack(session, group=group, receipts=given, delay_ms=delay_of(nack))
            steps.append((given, outcomes))
        for reject in request.reject:
            given, reason = receipts_of(reject.receipts), reason_of(reject.reason)
            outcomes = queues.reject(session, group=group, receipts=given, reason=reason)
            steps.append((given, outcomes))
        for extend in request.extend:
            given, visibility_ms = receipts_of(extend.receipts), visibility_of(extend)
            outcomes = queues.extend(
                session, group=group, receipts=given, visibility_ms=visibility_ms
            )
            steps.append((given, outcomes))
        return steps

    def _settled(self, size: int, settlement: bodies.Settlement, seconds: float) -> None:
        if self._is_closed:
            return
        self._call.api.answered(seconds, self._call.trace)
        response = bodies.ReceiveResponse(settlements=[settlement])
        self._call.failed_in_part(response)
        self.outbox.put(response.SerializeToString(), partial(self._sent, size))

    def _sent(self, size: int) -> None:
        self._window.leave(size)
        self._front.intake.give(size)

    def _stop(self) -> None:
        """Send no more messages than are on their way to the client."""
        self._is_stopped = True
        self._credit.withdraw()
        self._receiving.cancel()

    # Messages

    async def receive(self) -> None:
        """Receive and send messages while there is credit."""
        patience = Patience()
        while True:
            await called(self._credit.when_any)
            if self._credit.is_over:
                break
            started = perf_counter()
            try:
                received = await value_of(self._receive())
            except GoQueueError as error:
                if self._is_stopped:
                    break
                await patience.wait(error)
                continue
            if self._unsent:
                patience.reset()
                await self._send(received)
            elif perf_counter() - started < WAIT_MS / 1000 and not self._is_stopped:
                # As many calls wait as may (delivery.waiting_max): further ones do not.
                await patience.rest()
            else:
                patience.reset()
        self._received.resolve([])
        await self._finish()

    def _receive(self) -> Promise[Received]:
        promise = self._front.gate.queues.receive(
            self._call.session,
            group=self._group,
            topic=self._topic,
            consumer=self._consumer,
            messages_max=min(self._credit.count, self._messages_max),
            wait_ms=WAIT_MS,
            visibility_ms=self._visibility_ms,
            cancellation=self._receiving,
        )
        promise.then(self._arrived)
        return promise

    def _arrived(self, received: Received | None, _: Exception | None) -> None:
        """Note what was received; if that is too late for this stream, give it back."""
        if received is None or not received:
            return
        receipts = [
            run.lease.head + tail
            for run in received.runs
            for tail in run.lease.tails[run.first : run.first + len(run.places)]
        ]
        if self._is_closed or self._is_stopped:
            self._give_back(receipts)
        else:
            self._credit.take(len(receipts))
            self._unsent = receipts

    async def _send(self, received: Received) -> None:
        """Send messages in responses that clients accept by default, and wait until it is done."""
        sent = asyncio.Event()
        left = 0

        def one_sent(count: int) -> None:
            nonlocal left
            del self._unsent[:count]
            left -= 1
            if not left:
                sent.set()

        for messages in split_messages(received_messages(received), self._page_bytes):
            left += 1
            data = bodies.ReceiveResponse(messages=messages).SerializeToString()
            self.outbox.put(data, partial(one_sent, len(messages)))
        await sent.wait()

    @property
    def _page_bytes(self) -> int:
        return self._front.limits.page_bytes_max

    def _give_back(self, receipts: Sequence[str]) -> None:
        """Return messages that the client has not seen, so that others receive them now. Their
        deliveries do not count: otherwise streams that break could dead-letter them."""
        if receipts:
            self._front.gate.queues.give_back(
                self._call.session, group=self._group, receipts=list(receipts)
            ).then(self._given_back)

    def _given_back(self, _: Outcomes | None, error: Exception | None) -> None:
        if error is not None:
            _log.debug("messages of %s return when their leases end: %s", self._group, error)


def _check_count(request: bodies.ReceiveRequest) -> None:
    """Raise if a request settles more than can be handled in one go."""
    # Each entry has at least one receipt.
    count = len(request.ack) + len(request.nack) + len(request.reject) + len(request.extend)
    if count <= MESSAGES_MAX:
        entries: list[_Entry] = [*request.nack, *request.reject, *request.extend]
        count = len(request.ack) + sum(len(one.receipts) for one in entries)
    if count > MESSAGES_MAX:
        raise InvalidField(
            f"A request settles at most {MESSAGES_MAX} messages; send several requests.",
            field="ack",
        )


class _Settlement:
    """What a request settles, until all of it has its outcome."""

    def __init__(
        self,
        number: int,
        steps: Sequence[_Step],
        call: Call,
        done: Callable[[bodies.Settlement, float], None],
    ) -> None:
        self._settlement = bodies.Settlement(number=number)
        self._call = call
        self._done = done
        self._left = len(steps)
        self._started = perf_counter()
        for receipts, outcomes in steps:
            outcomes.then(partial(self._arrived, receipts))

    def _arrived(
        self, receipts: Sequence[str], outcomes: Outcomes | None, error: Exception | None
    ) -> None:
        if outcomes is None:
            outcomes = [known_error(self._call, error)] * len(receipts)
        errors = errors_of(receipts, outcomes)
        self._settlement.errors.extend(errors)
        self._settlement.accepted += len(receipts) - len(errors)
        self._left -= 1
        if not self._left:
            self._done(self._settlement, perf_counter() - self._started)
