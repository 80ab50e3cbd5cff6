"""The broker's scheduler on a real event loop, and a clock that cannot be set."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from goqueue.loop.clock import NANOSECONDS

THREADS_MAX = 8
SLEW = 20  # a steady clock runs faster or slower than true time by at most one part in this many
BORN_MS = 1_672_531_200_000  # 2023: a clock that shows less has not been set yet
STEERED_EVERY_MS = 20  # long enough that correcting by one millisecond never turns time back

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
        steady = SteadyClock(wall_ns=time.time_ns, stopwatch_ns=time.monotonic_ns)
        self.now_ms, self.monotonic_ms = steady.now_ms, steady.monotonic_ms
        self.wall_ms = steady.wall_ms
        self.call_soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self._threads: list[_Thread] = []
        self._idle: list[_Thread] = []
        self._waiting: deque[_Work] = deque()

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


class SteadyClock:
    """A clock that cannot be set: it runs at the rate of a monotonic clock, near the wall clock.

    Wall clocks are set, by people and by machines, back and ahead, by hours. A duration (a lease, a
    session, a timeout) must not become longer or shorter by that. Yet some durations are persisted
    and continue on another node, so the time must mean about the same everywhere. Hence this clock
    starts at the wall clock's time, never goes back, and slews slowly towards the wall clock.

    Even slewing is wrong for a lease, which must be neither shortened nor extended. What does not
    need another node's clock uses the same start without slewing: monotonic time.

    A machine without a clock battery starts decades in the past until it has synchronised its time.
    What was persisted before then lies decades ahead, so both times then jump ahead, once.
    """

    def __init__(self, *, wall_ns: Callable[[], int], stopwatch_ns: Callable[[], int]) -> None:
        """`stopwatch_ns` counts from any starting point, and cannot be set."""
        self._wall_ns = wall_ns
        self._stopwatch_ns = stopwatch_ns
        self._steered_ms = stopwatch_ns() // NANOSECONDS
        self._ahead_ms = self.wall_ms() - self._steered_ms
        self._start_ms = self._ahead_ms  # the wall clock's time when the stopwatch started

    def now_ms(self) -> int:
        at_ms = self._stopwatch_ns() // NANOSECONDS
        if at_ms - self._steered_ms >= STEERED_EVERY_MS:
            self._steer(at_ms)
        return at_ms + self._ahead_ms

    def monotonic_ms(self) -> int:
        """The time that the wall clock would show if it had not been set since the start."""
        return self._stopwatch_ns() // NANOSECONDS + self._start_ms

    def wall_ms(self) -> int:
        return self._wall_ns() // NANOSECONDS

    def _steer(self, at_ms: int) -> None:
        """Slew towards the wall clock, by at most a small part of the elapsed time."""
        step_ms_max = (at_ms - self._steered_ms) // SLEW
        wall_ms, now_ms = self.wall_ms(), at_ms + self._ahead_ms
        if now_ms < BORN_MS <= wall_ms:
            step_ms_max = wall_ms - now_ms
            self._start_ms = wall_ms - at_ms
        self._ahead_ms += max(-step_ms_max, min(step_ms_max, wall_ms - now_ms))
        self._steered_ms = at_ms
