"""The broker's scheduler on a real event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from goqueue.broker.steady_clock import SteadyClock

THREADS_MAX = 8

_Done = Callable[[Any, Exception | None], None]
_Work = tuple[Callable[[], Any], _Done]


class LoopScheduler:
    """Timers of the event loop, and a few threads for what blocks.

    The threads are our own because a pool's futures cost more than the syncs they carry.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Asked for several times in every request, so without a detour.
        self.now_ms = SteadyClock(wall_ms=_wall_ms, stopwatch_ms=_stopwatch_ms).now_ms
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0

    def wall_ms(self) -> int:
        return _wall_ms()

    def call_soon(self, action: Callable[[], None]) -> None:
        self._loop.call_soon(action)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, action)

    def run_blocking(self, work: Callable[[], Any], done: _Done) -> None:
        self._busy += 1
        if self._busy > len(self._threads) < THREADS_MAX:
            thread = threading.Thread(target=self._run, name="blocking", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put((work, done))

    def close(self) -> None:
        """Wait for what is running, and end the threads."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            result, error = None, None
            try:
                result = work()
            except Exception as failure:
                error = failure
            self._loop.call_soon_threadsafe(self._finish, done, result, error)

    def _finish(self, done: _Done, result: Any, error: Exception | None) -> None:
        self._busy -= 1
        done(result, error)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _stopwatch_ms() -> int:
    return time.monotonic_ns() // 1_000_000
