"""The broker's scheduler on a real event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS_MAX = 8


class LoopScheduler:
    """Timers of the event loop, and a few threads for what blocks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="blocking")

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_soon(self, action: Callable[[], None]) -> None:
        self._loop.call_soon(action)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, action)

    def run_blocking(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        def run() -> None:
            try:
                result, error = work(), None
            except Exception as failure:
                result, error = None, failure
            self._loop.call_soon_threadsafe(done, result, error)

        self._threads.submit(run)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
