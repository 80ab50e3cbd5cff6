"""A queue consumer with threads: receives messages, calls a handler, and settles them.

    consumer = client.consumer("orders", group="billing", concurrency=8)

    @consumer.handler
    def handle(message):
        ...

    consumer.run()

If the handler returns, its message is acknowledged; if it raises, the message is delivered again,
after a chosen delay with `Retry(after=...)`; `Reject(reason)` dead-letters it. Leases are extended
while handlers run. SIGTERM, SIGINT and `stop` end the consumer gracefully.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from goqueue.client.backoff import Backoff
from goqueue.client.http.consumers.workload import (
    ConsumerSettings,
    Reject,
    Retry,
    Settlement,
    Tally,
    Verdict,
    Workload,
    decision_on,
)
from goqueue.client.http.messages import ReceivedMessage
from goqueue.client.http.request import Request, Sender
from goqueue.client.http.requests.queues import Outcomes, QueueRequests
from goqueue.model.errors import GoQueueError, InvalidRequest, UnknownTopic

Handler = Callable[[ReceivedMessage], object]
H = TypeVar("H", bound=Handler)

BACKOFF_MS_MIN = 200
BACKOFF_MS_MAX = 10_000
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("goqueue.consumer")


def now_ms() -> float:
    return time.monotonic() * 1000


class Consumer:
    """Runs a handler on the messages of a queue, several concurrently."""

    def __init__(
        self, transport: Sender, requests: QueueRequests, settings: ConsumerSettings
    ) -> None:
        self._transport = transport
        self._requests = requests
        self._settings = settings
        self._workload = Workload(settings)
        self._changed = threading.Condition(threading.RLock())
        self._handler: Handler | None = None
        self._is_stopped = False
        self._is_over = False
        self._is_broken = False  # an internal thread has failed
        self._failure: Exception | None = None

    @property
    def tally(self) -> Tally:
        """Counts of the messages handled so far."""
        return self._workload.tally

    def handler(self, function: H) -> H:
        """Register the function that handles messages."""
        self._handler = function
        return function

    def stop(self) -> None:
        """Stop gracefully: receive no more, let handlers finish, settle. Return at once."""
        self._is_stopped = True  # a single assignment, as a signal may interrupt anywhere
        # A signal handler runs in the main thread, which may hold the lock; the lock is reentrant.
        with self._changed:
            self._changed.notify_all()

    def run(self) -> Tally:
        """Work until `stop` or a signal; raise if continuing makes no sense."""
        if self._handler is None:
            raise InvalidRequest("There is no handler; mark a function with @consumer.handler.")
        if self._is_over:
            raise InvalidRequest("A consumer runs once; create another one.")
        threads = [
            threading.Thread(target=self._guard, args=(work,), name=name, daemon=True)
            for name, work in self._jobs(self._handler)
        ]
        for thread in threads:
            thread.start()
        try:
            with _stopping_on_signals(self.stop):
                self._receive_all()
                self._wind_up()
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            for thread in threads[self._settings.concurrency :]:
                thread.join()  # threads of handlers that do not end are not joined
        if self._failure is not None:
            raise self._failure
        return self._workload.tally

    def _jobs(self, handler: Handler) -> Iterator[tuple[str, Callable[[], None]]]:
        for number in range(self._settings.concurrency):
            yield f"goqueue-handler-{number}", lambda: self._handle_all(handler)
        yield "goqueue-settle", self._settle_all
        yield "goqueue-extend", self._extend_all

    def _guard(self, work: Callable[[], None]) -> None:
        """Stop the consumer if an internal thread fails, instead of continuing without it."""
        try:
            work()
        except Exception as error:
            with self._changed:
                self._failure = self._failure or error
                self._is_broken = True
                self.stop()

    # Receiving

    def _receive_all(self) -> None:
        backoff = _backoff()
        while room := self._wait_for_room():
            try:
                messages = self._transport.send(
                    receive_request(self._requests, self._settings, room)
                )
            except GoQueueError as error:
                if not may_pass(error):
                    self._failure = error
                    return
                self._pause(backoff.next_ms(), error)
                continue
            backoff = _backoff()
            with self._changed:
                self._workload.received(messages, now_ms())
                self._changed.notify_all()

    def _wait_for_room(self) -> int:
        """How many messages to request; none if the consumer is stopping."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._workload.room() > 0)
            return 0 if self._is_stopped else self._workload.room()

    def _pause(self, wait_ms: float, error: GoQueueError) -> None:
        log.warning("receiving failed, retrying in %.1f s: %s", wait_ms / 1000, error)
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, wait_ms / 1000)

    def _wind_up(self) -> None:
        """Give back messages not begun, and wait for the others up to the shutdown timeout."""
        workload = self._workload
        with self._changed:
            workload.stop()
            self._changed.notify_all()
            seconds = self._settings.shutdown_ms / 1000
            self._changed.wait_for(lambda: not workload.running, seconds)
            for message in workload.abandon():
                log.error(
                    "the handler of %s did not end in time; it is delivered again",
                    message,
                )
            # Bounded by the retries of the requests in flight.
            self._changed.wait_for(lambda: workload.is_settled or self._is_broken)

    # Handling

    def _handle_all(self, handler: Handler) -> None:
        while (message := self._next_message()) is not None:
            error = _run(handler, message)
            with self._changed:
                self._workload.ended(message, decision_on(error))
                self._changed.notify_all()

    def _next_message(self) -> ReceivedMessage | None:
        with self._changed:
            while not self._is_over and not self._workload.is_stopping:
                message = self._workload.begin(now_ms())
                if message is not None:
                    return message
                self._changed.wait()
        return None

    # Settling and extending

    def _settle_all(self) -> None:
        while (settlement := self._next_settlement()) is not None:
            errors: Outcomes | None = None
            try:
                errors = self._transport.send(settle_request(self._requests, settlement))
            except GoQueueError as error:
                log_unsettled(settlement, error)
            with self._changed:
                log_stale(self._workload.settled(settlement, errors), settlement)
                self._changed.notify_all()

    def _next_settlement(self) -> Settlement | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._workload.has_decisions)
            return self._workload.take_settlement()

    def _extend_all(self) -> None:
        while (receipts := self._next_extension()) is not None:
            request = extend_request(self._requests, self._settings, receipts)
            try:
                errors = self._transport.send(request)
            except GoQueueError as error:
                log.warning("leases could not be extended, retrying: %s", error)
                with self._changed:
                    self._workload.not_extended(receipts, now_ms())
                continue
            with self._changed:
                log_lost(self._workload.extended(receipts, errors, now_ms()))

    def _next_extension(self) -> list[str] | None:
        with self._changed:
            while not self._is_over:
                receipts = self._workload.leases_to_extend(now_ms())
                if receipts:
                    return receipts
                due_ms = self._workload.next_extension_ms()
                self._changed.wait(None if due_ms is None else max(0, due_ms - now_ms()) / 1000)
        return None


def _run(handler: Handler, message: ReceivedMessage) -> BaseException | None:
    try:
        handler(message)
    except BaseException as error:  # a thread that ended here would never settle its message
        log_error(message, error)
        return error
    return None


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first signal; a second one has its usual effect."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may install signal handlers
        return
    before = {one: signal.getsignal(one) for one in STOP_SIGNALS}

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, handler)

    def stop_once(number: int, frame: object) -> None:
        restore()
        log.info("stopping: %s", signal.Signals(number).name)
        stop()

    for one in STOP_SIGNALS:
        signal.signal(one, stop_once)
    try:
        yield
    finally:
        restore()


# Shared with the asynchronous consumer.


def _backoff() -> Backoff:
    return Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX, Random())


def may_pass(error: GoQueueError) -> bool:
    """Whether a consumer retries after this error: brokers restart, wrong names stay wrong."""
    return error.retryable and not isinstance(error, UnknownTopic)


def receive_request(
    requests: QueueRequests, settings: ConsumerSettings, room: int
) -> Request[list[ReceivedMessage]]:
    return requests.receive(
        room, wait=settings.wait_ms / 1000, visibility=settings.visibility_ms / 1000
    )


def settle_request(requests: QueueRequests, settlement: Settlement) -> Request[Outcomes]:
    decision = settlement.decision
    if decision.verdict is Verdict.ACK:
        return requests.ack_many(settlement.receipts)
    if decision.verdict is Verdict.REJECT:
        return requests.reject_many(settlement.receipts, reason=decision.reason)
    delay = None if decision.delay_ms is None else decision.delay_ms / 1000
    return requests.nack_many(settlement.receipts, delay=delay)


def extend_request(
    requests: QueueRequests, settings: ConsumerSettings, receipts: list[str]
) -> Request[Outcomes]:
    return requests.extend_many(receipts, visibility=settings.visibility_ms / 1000)


def log_error(message: ReceivedMessage, error: BaseException) -> None:
    if isinstance(error, Retry | Reject):
        log.info("%s: %s: %s", message, type(error).__name__.lower(), error)
    else:
        log.warning("the handler of %s failed", message, exc_info=error)


def log_unsettled(settlement: Settlement, error: GoQueueError) -> None:
    count, verdict = len(settlement.receipts), settlement.decision.verdict.value
    log.error("%d messages will be delivered again; their %s failed: %s", count, verdict, error)


def log_stale(count: int, settlement: Settlement) -> None:
    if count:
        verdict = settlement.decision.verdict.value
        log.warning("%s came too late for %d messages; they are delivered again", verdict, count)


def log_lost(messages: list[ReceivedMessage]) -> None:
    for message in messages:
        log.warning("the lease of %s has expired; it is delivered again", message)
