"""Turns of the event loop: work in slices, and work that must not overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import RequestTimedOut

T = TypeVar("T")


def turn(clock: Clock) -> Promise[None]:
    """Return what resolves in the next turn of the event loop, for work in slices."""
    next_turn: Promise[None] = Promise()
    clock.call_soon(lambda: next_turn.resolve(None))
    return next_turn


class Turns:
    """A queue of coroutines, of which one runs at a time."""

    def __init__(self, clock: Clock, *, waiting_max: int) -> None:
        self._clock = clock
        self._waiting_max = waiting_max
        self._waiting: deque[Promise[None]] = deque()
        self._is_taken = False

    async def run(self, work: Callable[[], Coroutine[Promise[Any], None, T]]) -> T:
        """Run `work` when everything queued before it is done."""
        if len(self._waiting) >= self._waiting_max:
            raise RequestTimedOut("Too many requests of this kind are queued; retry later.")
        if self._is_taken:
            turn: Promise[None] = Promise()
            self._waiting.append(turn)
            await turn
        self._is_taken = True
        try:
            return await work()
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        if not self._waiting:
            self._is_taken = False
            return
        turn = self._waiting.popleft()
        # Not immediately: a long queue would make a deep stack.
        self._clock.call_soon(lambda: turn.resolve(None))
