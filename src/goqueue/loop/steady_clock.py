"""A clock that nobody can set: it goes at the pace of a stop watch and stays near the wall clock.

Wall clocks are set, by people and by machines, back and ahead, by hours. Whatever lasts (a lease, a
session, a time-out) must not become longer or shorter by that. Yet some of it is written down and
goes on at another node, so the time must mean about the same everywhere. Hence this clock begins
with the wall clock's time, never goes back, and comes nearer to the wall clock slowly.

Even that pace is wrong for a lease, which must be neither cut short nor made longer. For whatever
needs no other node's clock there is the same beginning without the steering: monotonic time.

A machine without a battery begins in another century until it has asked somebody for the time. What
was written down before then lies ages ahead, so both times jump ahead then, once.
"""

from __future__ import annotations

from collections.abc import Callable

SLEW = 20  # it is faster or slower than true time by at most one part in so many
BORN_MS = 1_672_531_200_000  # 2023: a clock that shows less has not been set yet
STEERED_EVERY_MS = 20  # long enough for a step of one millisecond back not to be seen as one


class SteadyClock:
    def __init__(self, *, wall_ms: Callable[[], int], stopwatch_ms: Callable[[], int]) -> None:
        """`stopwatch_ms` counts from any moment on, and nobody sets it."""
        self._wall_ms = wall_ms
        self._stopwatch_ms = stopwatch_ms
        self._steered_ms = stopwatch_ms()
        self._ahead_ms = wall_ms() - self._steered_ms
        self._start_ms = self._ahead_ms  # what the wall clock showed when the stop watch began

    def now_ms(self) -> int:
        at_ms = self._stopwatch_ms()
        if at_ms - self._steered_ms >= STEERED_EVERY_MS:
            self._steer(at_ms)
        return at_ms + self._ahead_ms

    def monotonic_ms(self) -> int:
        """The time that the wall clock would show if nobody had set it since the start."""
        return self._stopwatch_ms() + self._start_ms

    def _steer(self, at_ms: int) -> None:
        """Come nearer to the wall clock, by no more than a small part of what has gone by."""
        step_ms_max = (at_ms - self._steered_ms) // SLEW
        wall_ms, now_ms = self._wall_ms(), at_ms + self._ahead_ms
        if now_ms < BORN_MS <= wall_ms:
            step_ms_max = wall_ms - now_ms
            self._start_ms = wall_ms - at_ms
        self._ahead_ms += max(-step_ms_max, min(step_ms_max, wall_ms - now_ms))
        self._steered_ms = at_ms
