"""Responses of a stream on their way to the client, written one after another by one task."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import InternalError

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd
    from goqueue.wire.grpc.routes import Wire

_log = logging.getLogger(__name__)


class Outbox:
    """Serialised responses, and the task that sends them.

    What is sent is bounded by those who put it here: a stream holds a limited number of requests
    and of messages until their responses are sent.
    """

    def __init__(self, front: FrontEnd, call: Call, wire: Wire) -> None:
        self._front = front
        self._call = call
        self._wire = wire
        self._waiting: deque[tuple[bytes, Callable[[], None]]] = deque()
        self._filled = asyncio.Event()
        self._is_last = False

    def put(self, data: bytes, sent: Callable[[], None]) -> None:
        """Send a response; `sent` is called when the client can take it."""
        self._front.unread.add(self._call, len(data))
        self._waiting.append((data, sent))
        self._filled.set()

    def end(self) -> None:
        """Finish when everything has been sent."""
        self._is_last = True
        self._filled.set()

    async def run(self) -> None:
        """Send responses until the last one."""
        while True:
            while self._waiting:
                data, sent = self._waiting.popleft()
                await self._wire.write(data)
                self._front.unread.sent(self._call, len(data))
                sent()
            if self._is_last:
                return
            self._filled.clear()
            await self._filled.wait()


async def together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run the parts of a stream until all have ended; if one fails, the others are cancelled."""
    tasks = [asyncio.create_task(one) for one in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for one in tasks:
            one.cancel()
        # Their cleaning up must be over when the call ends.
        await asyncio.gather(*tasks, return_exceptions=True)


async def called(register: Callable[[Callable[[], None]], None]) -> None:
    """Wait until the callback that is handed to `register` is called."""
    event = asyncio.Event()
    register(event.set)
    await event.wait()


def known_error(call: Call, error: Exception | None) -> GoQueueError:
    """Return the error for a client; what it cannot know is logged."""
    if isinstance(error, GoQueueError):
        return error
    _log.error("a request of %s failed", call.host, exc_info=error)
    return InternalError()
