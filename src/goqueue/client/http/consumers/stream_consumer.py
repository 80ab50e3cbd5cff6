"""Members of a stream group, with heartbeats.

    with client.stream_consumer("orders", group="totals") as consumer:
        for message in consumer:
            ...

A message is committed when the next one is requested, or by `commit` if `auto_commit` is off.
Heartbeats are sent in the background while the caller processes the messages of a poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from goqueue.client.http.consumers.membership import MemberIdentity, Membership
from goqueue.client.http.messages import Message
from goqueue.client.http.moments import Duration, duration_ms
from goqueue.client.http.request import AsyncSender, Sender
from goqueue.client.http.requests.members import Partitions
from goqueue.client.http.steps import Steps, run_steps, run_steps_async
from goqueue.model.errors import GoQueueError

T = TypeVar("T")

WAIT_SECONDS = 20.0


class Contact:
    """The times of the last request to the broker and of the user's last poll."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._spoken_at = self._polled_at = time.monotonic()

    def spoken(self, *, is_poll: bool) -> None:
        self._spoken_at = time.monotonic()
        if is_poll:
            self._polled_at = self._spoken_at

    def heartbeat_due_seconds(self) -> float:
        """Seconds until the next heartbeat is due."""
        interval = self._membership.heartbeat_ms / 1000
        return max(0.0, self._spoken_at + interval - time.monotonic())

    @property
    def is_stuck(self) -> bool:
        """Whether the user has not polled for so long that others should get the partitions."""
        silent_ms = (time.monotonic() - self._polled_at) * 1000
        return silent_ms > self._membership.settings.poll_ms_max


class StreamConsumer:
    """One member. One thread polls; heartbeats have their own thread."""

    def __init__(self, transport: Sender, membership: Membership) -> None:
        self._transport = transport
        self._membership = membership
        self._contact = Contact(membership)
        self._lock = threading.RLock()  # requests of one member are sequential
        self._closing = threading.Event()
        self._heart: threading.Thread | None = None

    @property
    def identity(self) -> MemberIdentity:
        """The member; a transaction commits offsets in its name."""
        return self._membership.identity

    @property
    def assignment(self) -> Partitions:
        """The partitions assigned to this member."""
        return self._membership.owned

    def poll(self, *, limit: int | None = None, wait: Duration = WAIT_SECONDS) -> Sequence[Message]:
        """Return the next messages; none if none arrived within the wait."""
        settings = self._membership.settings
        until = time.monotonic() + duration_ms(wait) / 1000
        while True:
            left_ms = max(0, round((until - time.monotonic()) * 1000))
            messages = self._take(
                self._membership.poll(limit=limit or settings.limit, wait_ms=left_ms), is_poll=True
            )
            # The broker waits for at most one heartbeat interval.
            if messages or time.monotonic() >= until or self._closing.is_set():
                return messages

    def __iter__(self) -> Iterator[Message]:
        while not self._closing.is_set():
            yield from self.poll()

    def commit(self, messages: Message | Iterable[Message] | None = None) -> None:
        """Commit the offsets after these messages; without any, after all that were returned."""
        self._take(self._membership.commit(several(messages)))

    def close(self) -> None:
        """Commit what was returned, if that is automatic, and leave."""
        self._leave(has_finished=True)

    def __enter__(self) -> Self:
        self._take(self._membership.join())
        self._heart = threading.Thread(target=self._beat, name="goqueue-heartbeat", daemon=True)
        self._heart.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an error, messages in progress are not committed, and are delivered again.
        self._leave(has_finished=error is None)

    def _leave(self, *, has_finished: bool) -> None:
        self._closing.set()
        if self._heart is not None:
            self._heart.join()
            self._heart = None
        try:
            if has_finished and self._membership.settings.auto_commit and self._membership.owned:
                self._take(self._membership.commit())
        finally:
            self._take(self._membership.leave())

    def _beat(self) -> None:
        while not self._closing.wait(self._contact.heartbeat_due_seconds()):
            # A poll in progress counts as a heartbeat; it holds the lock, and moves the due time.
            with self._lock:
                if self._contact.heartbeat_due_seconds() > 0:
                    continue
                if not self._contact.is_stuck:
                    with contextlib.suppress(GoQueueError):  # the next poll gets the same error
                        self._take(self._membership.heartbeat())
                self._contact.spoken(is_poll=False)

    def _take(self, steps: Steps[T], *, is_poll: bool = False) -> T:
        with self._lock:
            result = run_steps(steps, self._transport)
            self._contact.spoken(is_poll=is_poll)
            return result


class AsyncStreamConsumer:
    """One member, for the coroutines of one event loop; polls are sequential."""

    def __init__(self, transport: AsyncSender, membership: Membership) -> None:
        self._transport = transport
        self._membership = membership
        self._contact = Contact(membership)
        self._lock = asyncio.Lock()
        self._is_closing = False
        self._heart: asyncio.Task[None] | None = None

    @property
    def identity(self) -> MemberIdentity:
        """The member; a transaction commits offsets in its name."""
        return self._membership.identity

    @property
    def assignment(self) -> Partitions:
        """The partitions assigned to this member."""
        return self._membership.owned

    async def poll(
        self, *, limit: int | None = None, wait: Duration = WAIT_SECONDS
    ) -> Sequence[Message]:
        """Return the next messages; none if none arrived within the wait."""
        settings = self._membership.settings
        until = time.monotonic() + duration_ms(wait) / 1000
        while True:
            left_ms = max(0, round((until - time.monotonic()) * 1000))
            messages = await self._take(
                self._membership.poll(limit=limit or settings.limit, wait_ms=left_ms), is_poll=True
            )
            if messages or time.monotonic() >= until or self._is_closing:
                return messages

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._is_closing:
            for message in await self.poll():
                yield message

    async def commit(self, messages: Message | Iterable[Message] | None = None) -> None:
        """Commit the offsets after these messages; without any, after all that were returned."""
        # Not under the lock: `on_rebalance` may commit during a poll.
        await run_steps_async(self._membership.commit(several(messages)), self._transport)

    async def close(self) -> None:
        """Commit what was returned, if that is automatic, and leave."""
        await self._leave(has_finished=True)

    async def __aenter__(self) -> Self:
        await self._take(self._membership.join())
        self._heart = asyncio.get_running_loop().create_task(self._beat())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(has_finished=error is None)

    async def _leave(self, *, has_finished: bool) -> None:
        self._is_closing = True
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
            self._heart = None
        try:
            if has_finished and self._membership.settings.auto_commit and self._membership.owned:
                await self.commit()
        finally:
            await self._take(self._membership.leave())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._contact.heartbeat_due_seconds())
            async with self._lock:
                if self._contact.heartbeat_due_seconds() > 0:
                    continue
                if not self._contact.is_stuck:
                    with contextlib.suppress(GoQueueError):  # the next poll gets the same error
                        await run_steps_async(self._membership.heartbeat(), self._transport)
                self._contact.spoken(is_poll=False)

    async def _take(self, steps: Steps[T], *, is_poll: bool = False) -> T:
        async with self._lock:
            result = await run_steps_async(steps, self._transport)
            self._contact.spoken(is_poll=is_poll)
            return result


def several(messages: Message | Iterable[Message] | None) -> Iterable[Message] | None:
    return [messages] if isinstance(messages, Message) else messages
