"""What a stream does about errors that pass: it waits, and tries again for a while.

A client over its quota is slowed, for as long as it likes: its requests are not read meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, QuotaExceeded

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

T = TypeVar("T")

PATIENCE_MS = 30_000  # longer than a fail-over takes
PAUSE_MS_MIN = 50
PAUSE_MS_MAX = 1_000


class Patience:
    """The pauses between attempts, which become longer, and their limit."""

    def __init__(self) -> None:
        self._pause_ms = PAUSE_MS_MIN
        self._waited_ms = 0

    def reset(self) -> None:
        """Note that an attempt has succeeded."""
        self._pause_ms, self._waited_ms = PAUSE_MS_MIN, 0

    def pause_ms(self, error: GoQueueError) -> int:
        """Return how long to wait before the next attempt; raise the error if there is none."""
        if isinstance(error, QuotaExceeded):
            return error.wait_ms
        if not error.retryable or self._waited_ms >= PATIENCE_MS:
            raise error
        pause_ms = self._next_ms()
        self._waited_ms += pause_ms
        return pause_ms

    async def wait(self, error: GoQueueError) -> None:
        await asyncio.sleep(self.pause_ms(error) / 1000)

    async def rest(self) -> None:
        """Wait after an answer that came at once and was empty."""
        await asyncio.sleep(self._next_ms() / 1000)

    def _next_ms(self) -> int:
        pause_ms = self._pause_ms
        self._pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        return pause_ms


async def within_quota(front: FrontEnd, call: Call) -> None:
    """Wait until a client that publishes has no debt, before another request of it takes memory."""
    while (meter := front.gate.client_limits.meter(call.session)) is not None:
        try:
            meter.check_request()
            meter.check_produce()
        except QuotaExceeded as error:
            await _wait(error)
        except GoQueueError:
            return  # The tenant stores as much as it may, with which each request is answered.
        else:
            return


async def admitted(front: FrontEnd, call: Call) -> None:
    """Charge a request of a stream, as soon as its client may make another one."""
    while (meter := front.gate.client_limits.meter(call.session)) is not None:
        try:
            meter.admit_request()
        except QuotaExceeded as error:
            await _wait(error)
        else:
            return


async def begun(begin: Callable[[], Promise[T]]) -> Promise[T]:
    """Begin something as soon as no quota refuses it, which the gate does at once."""
    while True:
        promise = begin()
        refusals: list[Exception | None] = []
        if promise.is_done:
            promise.then(lambda _, error, seen=refusals: seen.append(error))  # type: ignore[misc]
        refusal = refusals[0] if refusals else None
        if not isinstance(refusal, QuotaExceeded):
            return promise
        await _wait(refusal)


async def _wait(error: QuotaExceeded) -> None:
    await asyncio.sleep(error.wait_ms / 1000)
