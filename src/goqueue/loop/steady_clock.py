"""A clock that cannot be set: it runs at the rate of a monotonic clock, near the wall clock.

Wall clocks are set, by people and by machines, back and ahead, by hours. A duration (a lease, a
session, a timeout) must not become longer or shorter by that. Yet some durations are persisted and
continue on another node, so the time must mean about the same everywhere. Hence this clock starts
at the wall clock's time, never goes back, and slews slowly towards the wall clock.

Even slewing is wrong for a lease, which must be neither shortened nor extended. What does not need
another node's clock uses the same start without slewing: monotonic time.

A machine without a clock battery starts decades in the past until it has synchronised its time.
What was persisted before then lies decades ahead, so both times then jump ahead, once.
"""

from __future__ import annotations

from collections.abc import Callable

SLEW = 20  # it runs faster or slower than true time by at most one part in this many
BORN_MS = 1_672_531_200_000  # 2023: a clock that shows less has not been set yet
STEERED_EVERY_MS = 20  # long enough that correcting by one millisecond never turns time back


class SteadyClock:
    def __init__(self, *, wall_ms: Callable[[], int], stopwatch_ms: Callable[[], int]) -> None:
        """`stopwatch_ms` counts from any starting point, and cannot be set."""
        self._wall_ms = wall_ms
        self._stopwatch_ms = stopwatch_ms
        self._steered_ms = stopwatch_ms()
        self._ahead_ms = wall_ms() - self._steered_ms
        self._start_ms = self._ahead_ms  # the wall clock's time when the stopwatch started

    def now_ms(self) -> int:
        at_ms = self._stopwatch_ms()
        if at_ms - self._steered_ms >= STEERED_EVERY_MS:
            self._steer(at_ms)
        return at_ms + self._ahead_ms

    def monotonic_ms(self) -> int:
        """The time that the wall clock would show if it had not been set since the start."""
        return self._stopwatch_ms() + self._start_ms

    def _steer(self, at_ms: int) -> None:
        """Slew towards the wall clock, by at most a small part of the elapsed time."""
        step_ms_max = (at_ms - self._steered_ms) // SLEW
        wall_ms, now_ms = self._wall_ms(), at_ms + self._ahead_ms
        if now_ms < BORN_MS <= wall_ms:
            step_ms_max = wall_ms - now_ms
            self._start_ms = wall_ms - at_ms
        self._ahead_ms += max(-step_ms_max, min(step_ms_max, wall_ms - now_ms))
        self._steered_ms = at_ms
