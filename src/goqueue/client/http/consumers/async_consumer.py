"""A queue consumer with coroutines; the rules are those of `consumer`.

consumer = client.consumer("orders", group="billing", concurrency=100)

@consumer.handler
async def handle(message):
    ...

await consumer.run()
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from goqueue.client.backoff import Backoff
from goqueue.client.http.consumers.consumer import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    STOP_SIGNALS,
    extend_request,
    log,
    log_error,
    log_lost,
    log_stale,
    log_unsettled,
    may_pass,
    now_ms,
    receive_request,
    settle_request,
)
from goqueue.client.http.consumers.workload import (
    GIVE_BACK,
    ConsumerSettings,
    Settlement,
    Tally,
    Workload,
    decision_on,
)
from goqueue.client.http.messages import ReceivedMessage
from goqueue.client.http.request import AsyncSender
from goqueue.client.http.requests.queues import Outcomes, QueueRequests
from goqueue.model.errors import GoQueueError, InvalidRequest

AsyncHandler = Callable[[ReceivedMessage], Awaitable[object]]
H = TypeVar("H", bound=AsyncHandler)


class AsyncConsumer:
    """Runs a coroutine on the messages of a queue, several concurrently."""

    def __init__(
        self, transport: AsyncSender, requests: QueueRequests, settings: ConsumerSettings
    ) -> None:
        self._transport = transport
        self._requests = requests
        self._settings = settings
        self._workload = Workload(settings)
        self._handler: AsyncHandler | None = None
        self._stopped = asyncio.Event()
        self._changed = asyncio.Condition()
        self._running: dict[asyncio.Task[None], ReceivedMessage] = {}
        self._is_broken = False  # an internal task has failed
        self._failure: Exception | None = None

    @property
    def tally(self) -> Tally:
        """Counts of the messages handled so far."""
        return self._workload.tally

    def handler(self, function: H) -> H:
        """Register the coroutine function that handles messages."""
        self._handler = function
        return function

    def stop(self) -> None:
        """Stop gracefully: receive no more, let handlers finish, settle. Return at once."""
        self._stopped.set()

    async def run(self) -> Tally:
        """Work until `stop` or a signal; raise if continuing makes no sense."""
        if self._handler is None:
            raise InvalidRequest("There is no handler; mark a function with @consumer.handler.")
        if self._workload.is_stopping:
            raise InvalidRequest("A consumer runs once; create another one.")
        loop = asyncio.get_running_loop()
        helpers = [loop.create_task(self._settle_all()), loop.create_task(self._extend_all())]
        for helper in helpers:
            helper.add_done_callback(self._helper_ended)
        try:
            with _stopping_on_signals(self.stop):
                await self._receive_all(self._handler)
                await self._wind_up()
        finally:
            for task in [*helpers, *self._running]:
                task.cancel()
            await asyncio.gather(*helpers, *self._running, return_exceptions=True)
        if self._failure is not None:
            raise self._failure
        return self._workload.tally

    def _helper_ended(self, task: asyncio.Task[None]) -> None:
        """Stop the consumer if an internal task fails, instead of continuing without it."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failure = self._failure or error
            self._is_broken = True
            self.stop()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # Receiving

    async def _receive_all(self, handler: AsyncHandler) -> None:
        backoff = _backoff()
        while not self._stopped.is_set():
            room = await self._room()
            if not room:
                return
            try:
                messages = await self._transport.send(
                    receive_request(self._requests, self._settings, room)
                )
            except GoQueueError as error:
                if not may_pass(error):
                    self._failure = error
                    return
                await self._pause(backoff.next_ms(), error)
                continue
            backoff = _backoff()
            self._workload.received(messages, now_ms())
            self._begin_all(handler)
            await self._notify()

    async def _room(self) -> int:
        """How many messages to request; none if the consumer is stopping."""
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            while not self._stopped.is_set():
                room = self._workload.room()
                if room:
                    return room
                changed = asyncio.ensure_future(self._wait_for_change())
                try:
                    await asyncio.wait({stopped, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                    await asyncio.gather(changed, return_exceptions=True)
        finally:
            stopped.cancel()
        return 0

    async def _wait_for_change(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._workload.room() > 0)

    async def _pause(self, wait_ms: float, error: GoQueueError) -> None:
        log.warning("receiving failed, retrying in %.1f s: %s", wait_ms / 1000, error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), wait_ms / 1000)

    async def _wind_up(self) -> None:
        """Give back messages not begun, and wait for the others up to the shutdown timeout."""
        self._workload.stop()
        await self._notify()
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.shutdown_ms / 1000)
        late = dict(self._running)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        async with self._changed:
            # Bounded by the retries of the requests in flight.
            await self._changed.wait_for(lambda: self._workload.is_settled or self._is_broken)

    # Handling

    def _begin_all(self, handler: AsyncHandler) -> None:
        loop = asyncio.get_running_loop()
        while (message := self._workload.begin(now_ms())) is not None:
            task = loop.create_task(self._handle(handler, message))
            self._running[task] = message
            task.add_done_callback(self._running.pop)

    async def _handle(self, handler: AsyncHandler, message: ReceivedMessage) -> None:
        decision = GIVE_BACK
        try:
            await handler(message)
            decision = decision_on(None)
        except asyncio.CancelledError:
            # It was cancelled, so another consumer may start it again at once.
            self._workload.tally.abandoned += 1
            log.error(
                "the handler of %s did not end in time; it is delivered again",
                message,
            )
            raise
        except Exception as error:
            log_error(message, error)
            decision = decision_on(error)
        finally:
            self._workload.ended(message, decision)
            if not self._workload.is_stopping:
                self._begin_all(handler)
            await self._notify()

    # Settling and extending

    async def _settle_all(self) -> None:
        while True:
            settlement = await self._next_settlement()
            errors: Outcomes | None = None
            try:
                errors = await self._transport.send(settle_request(self._requests, settlement))
            except GoQueueError as error:
                log_unsettled(settlement, error)
            log_stale(self._workload.settled(settlement, errors), settlement)
            await self._notify()

    async def _next_settlement(self) -> Settlement:
        async with self._changed:
            await self._changed.wait_for(lambda: self._workload.has_decisions)
            settlement = self._workload.take_settlement()
            assert settlement is not None, "there are decisions"
            return settlement

    async def _extend_all(self) -> None:
        pause = self._settings.visibility_ms / 1000 / 20
        while True:
            await asyncio.sleep(pause)
            receipts = self._workload.leases_to_extend(now_ms())
            if not receipts:
                continue
            request = extend_request(self._requests, self._settings, receipts)
            try:
                errors = await self._transport.send(request)
            except GoQueueError as error:
                log.warning("leases could not be extended, retrying: %s", error)
                self._workload.not_extended(receipts, now_ms())
                continue
            log_lost(self._workload.extended(receipts, errors, now_ms()))


def _backoff() -> Backoff:
    return Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX, Random())


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first signal, if the event loop supports signal handlers."""
    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []

    def restore() -> None:
        while handled:
            loop.remove_signal_handler(handled.pop())

    def stop_once() -> None:
        restore()
        stop()

    for one in STOP_SIGNALS:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(one, stop_once)
            handled.append(one)
    try:
        yield
    finally:
        restore()
