"""Reads a topic message by message, to its end or continuously.

A reader has its position in every partition as a `cursor`, a short text that can be stored and
given to another reader later. Damaged records on the broker's disk are never skipped silently:
without `on_damage` the reader raises `CorruptBatch`, and continues after them at the next call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from goqueue.client.http.api import HTTP, Api
from goqueue.client.http.messages import Message
from goqueue.client.http.moments import Duration, Position
from goqueue.client.http.request import AsyncSender, Request, Sender
from goqueue.client.http.requests.messages import Page
from goqueue.model.errors import CorruptBatch
from goqueue.wire.http.bodies.messages import Damage
from goqueue.wire.http.bodies.topics import Partition

OnDamage = Callable[[Damage], object]

PAGE_MESSAGES = 500
FOLLOW_WAIT_SECONDS = 20.0
PAGES_PER_LOOK = 100  # how often a follower checks for added partitions


@dataclass(slots=True)
class Progress:
    """The position of a reader, and the messages it has fetched and not returned yet."""

    topic: str
    partition: int | None = None
    offset: int | None = None
    from_: Position | None = None
    until: Position | None = None
    is_followed: bool = False
    count_max: int | None = None
    on_damage: OnDamage | None = None
    cursor: str = ""
    is_at_end: bool = False
    fetched: deque[Message] = field(default_factory=deque)
    damaged: deque[Damage] = field(default_factory=deque)
    api: Api = HTTP
    _offsets: dict[int, int] = field(default_factory=dict)  # after the last message returned
    _page_cursor: str = ""
    _pages_since_look: int = 0

    def __post_init__(self) -> None:
        self._page_cursor = self.cursor

    def take(self) -> Message | None:
        """Return the next message that was fetched."""
        self._report_damage()
        if self.count_max == 0:
            self.is_at_end = True
            return None
        if not self.fetched:
            return None
        message = self.fetched.popleft()
        if self.count_max is not None:
            self.count_max -= 1
        self._offsets[message.partition] = message.offset + 1
        self.cursor = _cursor_of(self._offsets) if self.fetched else self._page_cursor
        return message

    def is_look_due(self) -> bool:
        """Whether to check for added partitions; only a reader of all partitions needs them."""
        known = _offsets_of(self._page_cursor)
        return (
            self.is_followed
            and self.partition is None
            and self._pages_since_look >= PAGES_PER_LOOK
            and sorted(known) == list(range(len(known)))
        )

    def looked(self, partitions: list[Partition]) -> None:
        """Read added partitions from their beginning."""
        self._pages_since_look = 0
        known = _offsets_of(self._page_cursor)
        added = {
            one.partition: one.start_offset for one in partitions if one.partition not in known
        }
        self._offsets |= added
        self._page_cursor = _cursor_of(known | added)

    def next_request(self, wait: Duration) -> Request[Page]:
        if self._page_cursor:
            return self.api.messages.read_page(
                self.topic,
                cursor=self._page_cursor,
                until=self.until,
                limit=PAGE_MESSAGES,
                wait=wait if self.is_followed else 0,
            )
        return self.api.messages.read_page(
            self.topic,
            partition=self.partition,
            offset=self.offset,
            from_=self.from_,
            until=self.until,
            limit=PAGE_MESSAGES,
            wait=wait if self.is_followed else 0,
        )

    def arrived(self, page: Page) -> None:
        """Process a page. At the end, a request returns no message and moves no position."""
        has_moved = page.cursor != self._page_cursor
        is_first = not self._page_cursor
        if is_first:
            # A partition starts at its first message, or where the page ends.
            self._offsets = _offsets_of(page.cursor)
            for message in reversed(page.messages):
                self._offsets[message.partition] = message.offset
        self._page_cursor = page.cursor
        # A page without messages took as long as a long poll.
        self._pages_since_look += 1 if page.messages else PAGES_PER_LOOK
        self.fetched.extend(page.messages)
        self.damaged.extend(page.damaged)
        if not page.messages:
            self.cursor = page.cursor
            self._offsets = _offsets_of(page.cursor)
            is_idle = not page.damaged and (is_first or not has_moved)
            self.is_at_end = is_idle and not self.is_followed

    def _report_damage(self) -> None:
        while self.damaged:
            damage = self.damaged.popleft()
            if self.on_damage is None:
                raise CorruptBatch(
                    f"Records of {self.topic}/{damage.partition} from offset {damage.offset} to "
                    f"{damage.next_offset - 1} cannot be read: {damage.detail} Request the "
                    "next message to continue after them, or set on_damage."
                )
            self.on_damage(damage)


class MessageReader:
    """Iterates over the messages of a topic. `close` ends a reader that follows."""

    def __init__(self, transport: Sender, progress: Progress, wait: Duration) -> None:
        self._transport = transport
        self._progress = progress
        self._wait = wait
        self._is_closed = False

    @property
    def cursor(self) -> str:
        """The position after the last message returned; empty before the first read."""
        return self._progress.cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        progress = self._progress
        while not self._is_closed:
            message = progress.take()
            if message is not None:
                return message
            if progress.is_at_end:
                break
            if progress.is_look_due():
                progress.looked(
                    self._transport.send(progress.api.topics.partitions(progress.topic))
                )
            progress.arrived(self._transport.send(progress.next_request(self._wait)))
        raise StopIteration

    def close(self) -> None:
        """End after the current wait, if there is one."""
        self._is_closed = True


class AsyncMessageReader:
    """Iterates over the messages of a topic, with `async for`."""

    def __init__(self, transport: AsyncSender, progress: Progress, wait: Duration) -> None:
        self._transport = transport
        self._progress = progress
        self._wait = wait
        self._is_closed = False

    @property
    def cursor(self) -> str:
        """The position after the last message returned; empty before the first read."""
        return self._progress.cursor

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        progress = self._progress
        while not self._is_closed:
            message = progress.take()
            if message is not None:
                return message
            if progress.is_at_end:
                break
            if progress.is_look_due():
                progress.looked(
                    await self._transport.send(progress.api.topics.partitions(progress.topic))
                )
            progress.arrived(await self._transport.send(progress.next_request(self._wait)))
        raise StopAsyncIteration

    def close(self) -> None:
        """End after the current wait, if there is one."""
        self._is_closed = True


def _offsets_of(cursor: str) -> dict[int, int]:
    pairs = (pair.split(":") for pair in cursor.split(",") if pair)
    return {int(number): int(offset) for number, offset in pairs}


def _cursor_of(offsets: dict[int, int]) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in offsets.items())
