"""The clock that nobody can set."""

from __future__ import annotations

import random

from goqueue.loop.clock import NANOSECONDS
from goqueue.runtime.clock import BORN_MS, SLEW, SteadyClock

NOON_MS = 1_790_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class Clocks:
    """A wall clock that can be set, and a stop watch that cannot."""

    def __init__(self, wall_ms: int = NOON_MS) -> None:
        self.wall_ms = wall_ms
        self.stopwatch_ms = 12_345
        self.steady = SteadyClock(
            wall_ns=lambda: self.wall_ms * NANOSECONDS,
            stopwatch_ns=lambda: self.stopwatch_ms * NANOSECONDS,
        )

    def go_on(self, ms: int) -> int:
        """Let time go by; how much of it the steady clock has counted."""
        before_ms = self.steady.now_ms()
        self.wall_ms += ms
        self.stopwatch_ms += ms
        return self.steady.now_ms() - before_ms

    @property
    def ahead_ms(self) -> int:
        return self.steady.now_ms() - self.wall_ms


def test_it_shows_the_wall_clocks_time_while_nobody_sets_that() -> None:
    clocks = Clocks()
    assert clocks.ahead_ms == 0
    for ms in (1, 19, 20, 500, HOUR_MS):
        assert clocks.go_on(ms) == ms
    assert clocks.ahead_ms == 0


def test_setting_the_wall_clock_makes_nothing_longer_or_shorter() -> None:
    for step_ms in (-24 * HOUR_MS, -10 * MINUTE_MS, 10 * MINUTE_MS, 24 * HOUR_MS):
        clocks = Clocks()
        clocks.wall_ms += step_ms
        for _ in range(30):
            assert abs(clocks.go_on(1_000) - 1_000) <= 1_000 // SLEW


def test_monotonic_time_passes_as_fast_as_time_whatever_the_wall_clock_is_set_to() -> None:
    clocks = Clocks()
    assert clocks.steady.monotonic_ms() == NOON_MS
    for step_ms in (-24 * HOUR_MS, -1, 0, 1, 10 * MINUTE_MS):
        clocks.wall_ms += step_ms
        before_ms = clocks.steady.monotonic_ms()
        clocks.go_on(10 * MINUTE_MS)
        assert clocks.steady.monotonic_ms() - before_ms == 10 * MINUTE_MS


def test_it_comes_back_to_the_wall_clock_by_and_by() -> None:
    for step_ms in (-MINUTE_MS, MINUTE_MS):
        clocks = Clocks()
        clocks.wall_ms += step_ms
        for _ in range(2 * SLEW * MINUTE_MS // 1_000):
            clocks.go_on(1_000)
        assert clocks.ahead_ms == 0


def test_it_never_goes_back_however_often_it_is_read() -> None:
    clocks, chance = Clocks(), random.Random(1)
    last_ms = clocks.steady.now_ms()
    for _ in range(20_000):
        if chance.random() < 0.01:
            clocks.wall_ms += chance.choice([-HOUR_MS, -50, -1, 1, 50, HOUR_MS])
        clocks.go_on(chance.choice([0, 1, 1, 3, 19, 20, 21, 40, 1_000]))
        assert clocks.steady.now_ms() >= last_ms
        last_ms = clocks.steady.now_ms()


def test_a_machine_that_began_in_another_century_learns_the_time_at_once() -> None:
    clocks = Clocks(wall_ms=1_000)
    clocks.go_on(1_000)
    clocks.wall_ms = NOON_MS
    clocks.go_on(1_000)
    assert clocks.ahead_ms == 0
    assert clocks.steady.monotonic_ms() == clocks.wall_ms
    clocks.wall_ms = BORN_MS - 1  # and back again, which nobody follows
    assert clocks.go_on(1_000) >= 0
    assert clocks.steady.now_ms() > NOON_MS
