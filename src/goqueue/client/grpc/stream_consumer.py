"""Members of a stream group, over a stream of `Subscribe`.

    with client.stream_consumer("orders", group="totals") as consumer:
        for message in consumer:
            ...

A message is committed when the next one is requested, or by `commit` if `auto_commit` is off. The
stream is read in the background, a little ahead of the caller. If it breaks, the member subscribes
again. A caller that does not poll for too long leaves the group until its next poll.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

import grpc

from goqueue.client.backoff import Backoff
from goqueue.client.grpc.subscription import (
    PATH,
    RESPONSES_MAX,
    Subscription,
    may_resubscribe,
)
from goqueue.client.grpc.transport import AsyncStream, AsyncTransport, Transport
from goqueue.client.http.consumers.membership import MemberIdentity
from goqueue.client.http.consumers.stream_consumer import WAIT_SECONDS, several
from goqueue.client.http.failures import Failure, answer_lost
from goqueue.client.http.messages import Message
from goqueue.client.http.moments import Duration, duration_ms
from goqueue.client.http.requests.members import Partitions
from goqueue.client.http.steps import run_steps, run_steps_async
from goqueue.model.errors import InvalidRequest
from goqueue.wire.grpc.messages import consume_service_pb2 as wire

_log = logging.getLogger(__name__)

Arrival = wire.SubscribeResponse | Failure
_OUTSIDE = "Use this consumer in a `with` block, which subscribes and leaves."


class Mailbox:
    """What has arrived and was not taken yet, between two threads; bounded."""

    def __init__(self, count_max: int = RESPONSES_MAX) -> None:
        self._count_max = count_max
        self._items: deque[Arrival] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, item: wire.SubscribeResponse, wait_seconds: float) -> bool:
        """Add a response as soon as there is room; return False if there was none in time."""
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: self._is_closed or len(self._items) < self._count_max, wait_seconds
            )
            if not has_room or self._is_closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def fail(self, failure: Failure) -> None:
        """Replace everything by a failure: what came before it will come again."""
        with self._changed:
            self._items.clear()
            self._items.append(failure)
            self._changed.notify_all()

    def get(self, wait_seconds: float) -> Arrival | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._items, wait_seconds)
            if not self._items:
                return None
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Attendance:
    """How long the caller may still stay away before the member leaves."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._is_polling = False
        self._polled_at = time.monotonic()
        self.has_left = False

    @property
    def remaining_seconds(self) -> float:
        if self._is_polling:
            return self._seconds_max
        return self._polled_at + self._seconds_max - time.monotonic()

    def __enter__(self) -> None:
        self._is_polling = True

    def __exit__(self, *_: object) -> None:
        self._polled_at = time.monotonic()
        self._is_polling = False


class StreamConsumer:
    """One member. One thread polls; another reads the stream, and a third one watches the polls."""

    def __init__(self, transport: Transport, subscription: Subscription) -> None:
        self._transport = transport
        self._subscription = subscription
        self._mailbox = Mailbox()
        self._closing = threading.Event()
        self._call_lock = threading.Lock()
        self._call: grpc.RpcContext | None = None
        self._reader: threading.Thread | None = None
        self._watch: threading.Thread | None = None
        self._attendance = Attendance(subscription.settings.poll_ms_max / 1000)

    @property
    def identity(self) -> MemberIdentity:
        """The member; a transaction commits offsets in its name."""
        return self._subscription.identity

    @property
    def assignment(self) -> Partitions:
        """The partitions assigned to this member."""
        return self._subscription.owned

    def poll(self, *, limit: int | None = None, wait: Duration = WAIT_SECONDS) -> Sequence[Message]:
        """Return the next messages; none if none arrived within the wait."""
        subscription = self._subscription
        with self._attendance:
            if subscription.settings.auto_commit:
                run_steps(subscription.commit_returned(), self._transport)
            until = time.monotonic() + duration_ms(wait) / 1000
            while not subscription.has_pending and not self._closing.is_set():
                self._read_on()
                arrival = self._mailbox.get(max(0.0, until - time.monotonic()))
                if arrival is None:
                    break
                self._apply(arrival)
            return subscription.take(limit or subscription.settings.limit)

    def __iter__(self) -> Iterator[Message]:
        while not self._closing.is_set():
            yield from self.poll()

    def commit(self, messages: Message | Iterable[Message] | None = None) -> None:
        """Commit the offsets after these messages; without any, after all that were returned."""
        run_steps(self._subscription.commit(several(messages)), self._transport)

    def close(self) -> None:
        """Commit what was returned, if that is automatic, and leave."""
        self._leave(has_finished=True)

    def __enter__(self) -> Self:
        with self._attendance:
            self._read_on()
            # The first response, or the reason why there is none, such as an unknown topic.
            arrival = self._mailbox.get(self._transport.settings.answer_ms_max / 1000)
            if arrival is not None:
                try:
                    self._apply(arrival)
                except BaseException:
                    self._leave(has_finished=False)
                    raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an error, messages in progress are not committed, and are delivered again.
        self._leave(has_finished=error is None)

    def _apply(self, arrival: Arrival) -> None:
        """Apply what has arrived; raise the error of a stream that cannot be resumed."""
        if not isinstance(arrival, Failure):
            run_steps(self._subscription.arrived(arrival), self._transport)
            return
        run_steps(self._subscription.lost(), self._transport)
        if not self._is_reading():
            raise arrival.error

    def _is_reading(self) -> bool:
        return self._reader is not None and self._reader.is_alive()

    def _read_on(self) -> None:
        """Read the stream in the background, again if that has ended with an error."""
        if self._closing.is_set():
            raise InvalidRequest(_OUTSIDE)
        if not self._is_reading():
            self._attendance.has_left = False
            self._reader = threading.Thread(
                target=self._read, name="goqueue-subscription", daemon=True
            )
            self._reader.start()
        if self._watch is None or not self._watch.is_alive():
            self._watch = threading.Thread(
                target=self._watch_polls, name="goqueue-subscription-watch", daemon=True
            )
            self._watch.start()

    def _watch_polls(self) -> None:
        """Leave the group when the caller has stopped polling."""
        while (remaining := self._attendance.remaining_seconds) > 0:
            if self._closing.wait(remaining):
                return
        with self._call_lock:
            self._attendance.has_left = True
            if self._call is not None:
                self._call.cancel()

    def _read(self) -> None:
        retry = self._transport.settings.retry
        backoff = Backoff(retry.backoff_ms_min, retry.backoff_ms_max, self._transport.random)
        while not self._closing.is_set():
            failure = self._read_stream(backoff)
            if self._closing.is_set():
                return
            is_last = not may_resubscribe(failure) or backoff.attempts >= retry.retries_max
            if is_last or self._attendance.has_left:
                self._reader = None
                self._mailbox.fail(failure)
                return
            _log.info("the subscription of %s is renewed: %s", self.identity, failure.error)
            self._mailbox.fail(failure)
            self._closing.wait(max(failure.wait_seconds_min, backoff.next_ms() / 1000))

    def _read_stream(self, backoff: Backoff) -> Failure:
        """Read one stream to its end; return why it has ended."""
        idle_seconds_max = self._subscription.settings.poll_ms_max / 1000
        address = str(self._transport.target)
        try:
            call = self._transport.stream(PATH, self._subscription.request())
            with self._call_lock:
                self._call = call
                if self._closing.is_set() or self._attendance.has_left:
                    call.cancel()
            for data in call:
                backoff.attempts = 0
                if not self._mailbox.put(wire.SubscribeResponse.FromString(data), idle_seconds_max):
                    self._attendance.has_left = True
                    call.cancel()  # the caller does not poll any more; others get the partitions
                    return answer_lost(address, "nothing was polled for too long")
        except grpc.RpcError as error:
            return self._transport.stream_error(error)
        return answer_lost(address, "the broker ended the stream")

    def _leave(self, *, has_finished: bool) -> None:
        try:
            if has_finished and self._subscription.settings.auto_commit and self.assignment:
                run_steps(self._subscription.commit_returned(), self._transport)
        finally:
            self._closing.set()
            self._mailbox.close()
            with self._call_lock:
                if self._call is not None:
                    self._call.cancel()
            for thread in (self._reader, self._watch):
                if thread is not None:
                    thread.join()


class AsyncStreamConsumer:
    """One member, for the coroutines of one event loop; polls are sequential."""

    def __init__(self, transport: AsyncTransport, subscription: Subscription) -> None:
        self._transport = transport
        self._subscription = subscription
        self._mailbox: asyncio.Queue[Arrival] = asyncio.Queue(RESPONSES_MAX)
        self._is_closing = False
        self._reader: asyncio.Task[None] | None = None
        self._call: AsyncStream | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._attendance = Attendance(subscription.settings.poll_ms_max / 1000)

    @property
    def identity(self) -> MemberIdentity:
        """The member; a transaction commits offsets in its name."""
        return self._subscription.identity

    @property
    def assignment(self) -> Partitions:
        """The partitions assigned to this member."""
        return self._subscription.owned

    async def poll(
        self, *, limit: int | None = None, wait: Duration = WAIT_SECONDS
    ) -> Sequence[Message]:
        """Return the next messages; none if none arrived within the wait."""
        subscription = self._subscription
        with self._attendance:
            if subscription.settings.auto_commit:
                await run_steps_async(subscription.commit_returned(), self._transport)
            until = time.monotonic() + duration_ms(wait) / 1000
            while not subscription.has_pending and not self._is_closing:
                self._read_on()
                arrival = await self._arrival(max(0.0, until - time.monotonic()))
                if arrival is None:
                    break
                await self._apply(arrival)
            return subscription.take(limit or subscription.settings.limit)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._is_closing:
            for message in await self.poll():
                yield message

    async def commit(self, messages: Message | Iterable[Message] | None = None) -> None:
        """Commit the offsets after these messages; without any, after all that were returned."""
        await run_steps_async(self._subscription.commit(several(messages)), self._transport)

    async def close(self) -> None:
        """Commit what was returned, if that is automatic, and leave."""
        await self._leave(has_finished=True)

    async def __aenter__(self) -> Self:
        with self._attendance:
            self._read_on()
            arrival = await self._arrival(self._transport.settings.answer_ms_max / 1000)
            if arrival is not None:
                try:
                    await self._apply(arrival)
                except BaseException:
                    await self._leave(has_finished=False)
                    raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(has_finished=error is None)

    async def _arrival(self, wait_seconds: float) -> Arrival | None:
        if not self._mailbox.empty():
            return self._mailbox.get_nowait()
        try:
            async with asyncio.timeout(wait_seconds):
                return await self._mailbox.get()
        except TimeoutError:
            return None

    async def _apply(self, arrival: Arrival) -> None:
        """Apply what has arrived; raise the error of a stream that cannot be resumed."""
        if not isinstance(arrival, Failure):
            await run_steps_async(self._subscription.arrived(arrival), self._transport)
            return
        await run_steps_async(self._subscription.lost(), self._transport)
        if self._reader is None:
            raise arrival.error

    def _read_on(self) -> None:
        """Read the stream in the background, again if that has ended with an error."""
        if self._is_closing:
            raise InvalidRequest(_OUTSIDE)
        if self._reader is None:
            self._attendance.has_left = False
            self._reader = asyncio.get_running_loop().create_task(self._read())
        if self._watch is None:
            self._watch_polls()

    def _watch_polls(self) -> None:
        """Leave the group when the caller has stopped polling."""
        remaining = self._attendance.remaining_seconds
        if remaining > 0:
            loop = asyncio.get_running_loop()
            self._watch = loop.call_later(remaining, self._watch_polls)
            return
        self._watch = None
        self._attendance.has_left = True
        if self._call is not None:
            self._call.cancel()

    async def _read(self) -> None:
        retry = self._transport.settings.retry
        backoff = Backoff(retry.backoff_ms_min, retry.backoff_ms_max, self._transport.random)
        while True:
            failure = await self._read_stream(backoff)
            is_last = not may_resubscribe(failure) or backoff.attempts >= retry.retries_max
            is_last = is_last or self._attendance.has_left
            while not self._mailbox.empty():
                self._mailbox.get_nowait()  # what came before the failure will come again
            if is_last:
                self._reader = None
            self._mailbox.put_nowait(failure)
            if is_last:
                return
            _log.info("the subscription of %s is renewed: %s", self.identity, failure.error)
            await asyncio.sleep(max(failure.wait_seconds_min, backoff.next_ms() / 1000))

    async def _read_stream(self, backoff: Backoff) -> Failure:
        """Read one stream to its end; return why it has ended."""
        idle_seconds_max = self._subscription.settings.poll_ms_max / 1000
        address = str(self._transport.target)
        call = self._call = self._transport.stream(PATH, self._subscription.request())
        try:
            async for data in call:
                backoff.attempts = 0
                response = wire.SubscribeResponse.FromString(data)
                try:
                    async with asyncio.timeout(idle_seconds_max):
                        await self._mailbox.put(response)
                except TimeoutError:
                    # The caller does not poll any more; others get the partitions.
                    self._attendance.has_left = True
                    return answer_lost(address, "nothing was polled for too long")
        except grpc.RpcError as error:
            return self._transport.stream_error(error)
        except asyncio.CancelledError:
            if not self._attendance.has_left or self._is_closing:
                raise
            return answer_lost(address, "nothing was polled for too long")
        finally:
            call.cancel()
        return answer_lost(address, "the broker ended the stream")

    async def _leave(self, *, has_finished: bool) -> None:
        try:
            if has_finished and self._subscription.settings.auto_commit and self.assignment:
                await run_steps_async(self._subscription.commit_returned(), self._transport)
        finally:
            self._is_closing = True
            if self._watch is not None:
                self._watch.cancel()
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.gather(self._reader, return_exceptions=True)
                self._reader = None
