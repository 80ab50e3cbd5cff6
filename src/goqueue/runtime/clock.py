"""The broker's scheduler on a real event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from goqueue.loop.clock import NANOSECONDS, SteadyClock

THREADS_MAX = 8

_Done = Callable[[Any, Exception | None], None]
_Work = tuple[Callable[[], Any], _Done]


class LoopClock:
    """Timers of the event loop, and a few threads for blocking calls.

    They are not a thread pool, because its futures cost more than the syncs they carry. Work goes
    to the thread that was busy last, whose data is still in the processor's cache; the others are
    not woken, as they would be by a shared queue.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Called several times per request, so bound directly.
        steady = SteadyClock(wall_ms=_wall_ms, stopwatch_ns=time.monotonic_ns)
        self.now_ms, self.monotonic_ms = steady.now_ms, steady.monotonic_ms
        self.wall_ms = _wall_ms
        self._threads: list[_Thread] = []
        self._idle: list[_Thread] = []
        self._waiting: deque[_Work] = deque()

    def call_soon(self, action: Callable[[], None]) -> None:
        self._loop.call_soon(action)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, action)

    def run_blocking(self, work: Callable[[], Any], done: _Done) -> None:
        if self._idle:
            self._idle.pop().give((work, done))
        elif len(self._threads) < THREADS_MAX:
            thread = _Thread(self._loop, self._finish)
            self._threads.append(thread)
            thread.give((work, done))
        else:
            self._waiting.append((work, done))

    def close(self) -> None:
        """Wait for running and queued work, and end the threads."""
        for number, work in enumerate(self._waiting):
            self._threads[number % THREADS_MAX].give(work)
        self._waiting.clear()
        for thread in self._threads:
            thread.give(None)
        for thread in self._threads:
            thread.join()

    def _finish(self, thread: _Thread, done: _Done, result: Any, error: Exception | None) -> None:
        if self._waiting:
            thread.give(self._waiting.popleft())
        else:
            self._idle.append(thread)
        done(result, error)


class _Thread:
    """A thread that runs the given calls and passes their results to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, finish: Callable[..., None]) -> None:
        self._loop = loop
        self._finish = finish
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="blocking", daemon=True)
        self._thread.start()
        # None ends the thread.
        self.give = self._work.put
        self.join = self._thread.join

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            result, error = None, None
            try:
                result = work()
            except Exception as failure:
                error = failure
            self._loop.call_soon_threadsafe(self._finish, self, done, result, error)


def _wall_ms() -> int:
    return time.time_ns() // NANOSECONDS
