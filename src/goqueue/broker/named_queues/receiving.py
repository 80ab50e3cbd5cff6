"""Receiving from named queues."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from goqueue.broker.named_queues.attempts import Attempt, Attempts
from goqueue.broker.named_queues.named_queues import NamedQueue
from goqueue.broker.queues.queues import Queues
from goqueue.broker.queues.records import Received
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Cancellation
from goqueue.model.tenants import Text

# How long a short poll waits for stored messages that the owner has not been notified of yet.
ANNOUNCED_MS_MAX = 1_000


class ReceiveAttempt(NamedTuple):
    """A receive call that may be repeated under its name; the first call's note is returned."""

    name: Text
    note: bytes = b""


class QueueReceiving:
    """Receives messages at the owner of a queue, including repeated attempts."""

    def __init__(self, clock: Clock, queues: Queues) -> None:
        self._clock = clock
        self._queues = queues
        self._attempts = Attempts()

    async def receive(
        self,
        queue: NamedQueue,
        *,
        consumer: str,
        messages_max: int,
        wait_ms: int,
        visibility_ms: int,
        attempt: ReceiveAttempt | None,
        cancellation: Cancellation,
    ) -> tuple[Received, bytes]:
        """Lease messages, or return those of an earlier attempt of the same name if still held.

        Also returns the note of the attempt that leased them.
        """
        if attempt is not None:
            again = await self._again(queue, attempt.name, visibility_ms)
            if again is not None:
                return again.received, again.note
        receive = partial(
            self._receive,
            queue,
            consumer=consumer,
            messages_max=messages_max,
            visibility_ms=visibility_ms,
            cancellation=cancellation,
        )
        received = await receive(wait_ms)
        is_short = not wait_ms and not cancellation.is_cancelled
        if not received and is_short and not self._queues.is_alone:
            # This node may not have been notified yet of a message stored before this call, or
            # may have been notified while the leaders were queried.
            is_behind = await self._queues.inspection.is_behind(queue.group, queue.topic)
            received = await receive(ANNOUNCED_MS_MAX if is_behind else 0)
        if attempt is None:
            return received, b""
        now_ms = self._clock.wall_ms()
        self._attempts.keep(queue.id, attempt.name, received, now_ms, note=attempt.note)
        return received, attempt.note

    async def _receive(
        self,
        queue: NamedQueue,
        wait_ms: int,
        *,
        consumer: str,
        messages_max: int,
        visibility_ms: int,
        cancellation: Cancellation,
    ) -> Received:
        receiver = self._queues.receive(
            queue.group,
            queue.topic,
            consumer=consumer,
            messages_max=messages_max,
            wait_ms=wait_ms,
            visibility_ms=visibility_ms,
        )
        cancellation.on_cancel(receiver.cancel)
        return await receiver.promise

    async def _again(self, queue: NamedQueue, name: str, visibility_ms: int) -> Attempt | None:
        """Return the messages of an attempt if all are still leased, and extend their leases."""
        known = self._attempts.find(queue.id, name, self._clock.wall_ms())
        if known is None:
            return None
        outcomes = await self._queues.extend(
            queue.group, known.receipts, visibility_ms=visibility_ms
        )
        if any(outcomes):
            self._attempts.forget(queue.id, name)
            return None
        return known
