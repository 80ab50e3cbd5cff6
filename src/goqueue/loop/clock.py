"""Time and threads as the broker uses them; real in `runtime`, virtual in tests.

There are two clocks. Durations are measured with `now_ms`, which cannot be set. Times that are
stored, displayed or due at a time of day are given by `wall_ms`, which may jump. Deletions use
`earlier_ms`, so that a clock set ahead by mistake deletes nothing.

`now_ms` slowly follows a wall clock that was set. Leases must not be affected even by that: queues
use `monotonic_ms`, and their journal converts it from one owner's clock to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

NANOSECONDS = 1_000_000  # of a millisecond
SLEW = 20  # it runs faster or slower than true time by at most one part in this many
BORN_MS = 1_672_531_200_000  # 2023: a clock that shows less has not been set yet
STEERED_EVERY_MS = 20  # long enough that correcting by one millisecond never turns time back


class Handle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """For durations: it never goes back or jumps, and stays near the wall clock's time."""

    def monotonic_ms(self) -> int:
        """For leases: it starts as `now_ms` does, and advances exactly at the rate of time."""

    def wall_ms(self) -> int:
        """The time of day, for timestamps and due times; it may be set at any time."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call `action` after everything that is already due."""

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> Handle: ...

    def run_blocking(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        """Run `work` outside the event loop, then `done(result, error)` inside it."""


class MonotonicClock:
    """A clock whose `now_ms` is monotonic time, for measuring leases."""

    def __init__(self, clock: Clock) -> None:
        self.now_ms = self.monotonic_ms = clock.monotonic_ms
        self.wall_ms = clock.wall_ms
        self.call_soon = clock.call_soon
        self.call_later = clock.call_later
        self.run_blocking = clock.run_blocking


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

    def __init__(self, *, wall_ms: Callable[[], int], stopwatch_ns: Callable[[], int]) -> None:
        """`stopwatch_ns` counts from any starting point, and cannot be set."""
        self._wall_ms = wall_ms
        self._stopwatch_ns = stopwatch_ns
        self._steered_ms = stopwatch_ns() // NANOSECONDS
        self._ahead_ms = wall_ms() - self._steered_ms
        self._start_ms = self._ahead_ms  # the wall clock's time when the stopwatch started

    def now_ms(self) -> int:
        at_ms = self._stopwatch_ns() // NANOSECONDS
        if at_ms - self._steered_ms >= STEERED_EVERY_MS:
            self._steer(at_ms)
        return at_ms + self._ahead_ms

    def monotonic_ms(self) -> int:
        """The time that the wall clock would show if it had not been set since the start."""
        return self._stopwatch_ns() // NANOSECONDS + self._start_ms

    def _steer(self, at_ms: int) -> None:
        """Slew towards the wall clock, by at most a small part of the elapsed time."""
        step_ms_max = (at_ms - self._steered_ms) // SLEW
        wall_ms, now_ms = self._wall_ms(), at_ms + self._ahead_ms
        if now_ms < BORN_MS <= wall_ms:
            step_ms_max = wall_ms - now_ms
            self._start_ms = wall_ms - at_ms
        self._ahead_ms += max(-step_ms_max, min(step_ms_max, wall_ms - now_ms))
        self._steered_ms = at_ms


def earlier_ms(clock: Clock) -> int:
    """A time that has passed on both clocks."""
    return min(clock.now_ms(), clock.wall_ms())
