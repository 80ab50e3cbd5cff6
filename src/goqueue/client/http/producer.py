"""Publishes lists of messages, and single messages in the background, in batches.

    with client.producer() as producer:
        future = producer.send("orders", "hello", key="42")
        ...
    future.result().offset

Leaving the block waits for all responses. A message that was not published has its error in its
future, and `flush` and `close` raise the first such error since the last flush, so that it cannot
be overlooked.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from goqueue.client.http.batching import Batch, Batcher, ProducerSettings, split
from goqueue.client.http.messages import Acks, Data, Outgoing, Published
from goqueue.client.http.request import AsyncSender, Sender
from goqueue.client.http.requests.messages import MessageRequests, Outcome
from goqueue.client.http.steps import Steps
from goqueue.model.errors import GoQueueError, InvalidRequest

_REQUESTS = MessageRequests()
_CLOSED = "This producer is closed; create another one."


class PartlyPublished(GoQueueError):
    """Some messages of a list were published and others were not.

    `outcomes` has, for each message in the given order, its position or its error.
    """

    code = "partly_published"

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        failed = [one for one in outcomes if isinstance(one, GoQueueError)]
        super().__init__(
            f"{len(failed)} of {len(outcomes)} messages were not published; the first because: "
            f"{failed[0]} Look at .outcomes for each of them."
        )


def publish_all(
    topic: str,
    messages: Iterable[Outgoing | Data],
    acks: Acks,
    requests: MessageRequests = _REQUESTS,
) -> Steps[list[Published]]:
    """Publish messages in order, and stop at the first request that fails as a whole."""
    parts = [
        requests.encoded(one if isinstance(one, Outgoing) else Outgoing(one)) for one in messages
    ]
    outcomes: list[Outcome] = []
    for chunk in split(parts):
        try:
            outcomes += yield requests.publish_encoded(topic, chunk, acks=acks)
        except GoQueueError as error:
            if not outcomes:
                raise
            outcomes += [error] * (len(parts) - len(outcomes))
            break
    published = [one for one in outcomes if isinstance(one, Published)]
    if len(published) < len(outcomes):
        if len(outcomes) == 1 and isinstance(outcomes[0], GoQueueError):
            raise outcomes[0]
        raise PartlyPublished(outcomes)
    return published


def _now_ms() -> float:
    return time.monotonic() * 1000


class Producer:
    """A producer for any number of threads. `send` blocks only while the buffer is full."""

    def __init__(
        self,
        transport: Sender,
        settings: ProducerSettings,
        acks: Acks,
        requests: MessageRequests = _REQUESTS,
    ) -> None:
        self._transport = transport
        self._requests = requests
        self._acks: Acks = acks
        self._batcher: Batcher[Future[Published]] = Batcher(settings)
        self._changed = threading.Condition()
        self._failure: GoQueueError | None = None
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"goqueue-producer-{number}", daemon=True)
            for number in range(settings.in_flight_max)
        ]
        for thread in self._threads:
            thread.start()

    def send(
        self, topic: str, value: Data | Outgoing | None, *, key: Data | None = None, **fields: Any
    ) -> Future[Published]:
        """Publish in the background. Pass an `Outgoing` as the value, or its fields by name."""
        part = self._requests.encoded(_outgoing(value, key, fields))
        future: Future[Published] = Future()
        future.set_running_or_notify_cancel()  # a message that was sent cannot be cancelled
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._batcher.has_room(len(part)))
            if self._is_closed:
                raise InvalidRequest(_CLOSED)
            self._batcher.add(topic, part, future, _now_ms())
            self._changed.notify_all()
        return future

    def flush(self) -> None:
        """Wait until everything has been sent; raise the first error since the last flush."""
        with self._changed:
            self._batcher.flush()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._batcher.message_count)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Flush, and end the background threads."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            for thread in self._threads:
                thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                outcomes = self._transport.send(
                    self._requests.publish_encoded(batch.topic, batch.parts, acks=self._acks)
                )
            except Exception as error:
                outcomes = [_as_outcome(error)] * len(batch.parts)
            with self._changed:
                self._failure = self._failure or _first_failure(outcomes)
                self._batcher.done(batch)
                self._changed.notify_all()
            _settle(batch.futures, outcomes)

    def _next_batch(self) -> Batch[Future[Published]] | None:
        with self._changed:
            while True:
                batch = self._batcher.take(_now_ms())
                if batch is not None:
                    return batch
                if self._is_closed:
                    return None
                due_ms = self._batcher.next_due_ms()
                self._changed.wait(None if due_ms is None else (due_ms - _now_ms()) / 1000)


class AsyncProducer:
    """A producer for one event loop. `send` waits only while the buffer is full."""

    def __init__(
        self,
        transport: AsyncSender,
        settings: ProducerSettings,
        acks: Acks,
        requests: MessageRequests = _REQUESTS,
    ) -> None:
        self._transport = transport
        self._requests = requests
        self._acks: Acks = acks
        self._batcher: Batcher[asyncio.Future[Published]] = Batcher(settings)
        self._changed = asyncio.Condition()
        self._failure: GoQueueError | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def send(
        self, topic: str, value: Data | Outgoing | None, *, key: Data | None = None, **fields: Any
    ) -> asyncio.Future[Published]:
        """Publish in the background; await the returned future, or leave it to `flush`."""
        part = self._requests.encoded(_outgoing(value, key, fields))
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._is_closed or self._batcher.has_room(len(part))
            )
            if self._is_closed:
                raise InvalidRequest(_CLOSED)
            future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
            # An error that nobody awaits is raised by `flush`, so the event loop need not log it.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._batcher.add(topic, part, future, _now_ms())
        self._pump()
        return future

    async def flush(self) -> None:
        """Wait until everything has been sent; raise the first error since the last flush."""
        self._batcher.flush()
        self._pump()
        async with self._changed:
            await self._changed.wait_for(lambda: not self._batcher.message_count)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush, and accept no more messages."""
        try:
            await self.flush()
        finally:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
            async with self._changed:
                self._changed.notify_all()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _pump(self) -> None:
        """Start a request for every batch that is due, and schedule a call for the next one."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (batch := self._batcher.take(_now_ms())) is not None:
            task = loop.create_task(self._publish(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        due_ms = self._batcher.next_due_ms()
        if due_ms is not None:
            self._timer = loop.call_later(max(0.0, due_ms - _now_ms()) / 1000, self._pump)

    async def _publish(self, batch: Batch[asyncio.Future[Published]]) -> None:
        try:
            outcomes = await self._transport.send(
                self._requests.publish_encoded(batch.topic, batch.parts, acks=self._acks)
            )
        except Exception as error:
            outcomes = [_as_outcome(error)] * len(batch.parts)
        self._failure = self._failure or _first_failure(outcomes)
        self._batcher.done(batch)
        _settle(batch.futures, outcomes)
        self._pump()
        async with self._changed:
            self._changed.notify_all()


def _outgoing(value: Data | Outgoing | None, key: Data | None, fields: dict[str, Any]) -> Outgoing:
    if not isinstance(value, Outgoing):
        return Outgoing(value, key, **fields)
    if key is not None or fields:
        raise InvalidRequest("An Outgoing has its own key and fields; pass nothing beside it.")
    return value


def _as_outcome(error: Exception) -> GoQueueError:
    if isinstance(error, GoQueueError):
        return error
    outcome = InvalidRequest(f"The messages could not be sent: {error!r}.")
    outcome.__cause__ = error
    return outcome


def _first_failure(outcomes: list[Outcome]) -> GoQueueError | None:
    return next((one for one in outcomes if isinstance(one, GoQueueError)), None)


def _settle(
    futures: Sequence[Future[Published] | asyncio.Future[Published]], outcomes: list[Outcome]
) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue  # the caller cancelled its future
        if isinstance(outcome, GoQueueError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
