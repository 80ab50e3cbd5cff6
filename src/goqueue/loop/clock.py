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


class Handle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """For durations: it never goes back or jumps, and stays near the wall clock's time."""

    def monotonic_ms(self) -> int:
        """For leases: it starts as `now_ms` does, and advances exactly at the rate of time."""

    def wall_ms(self) -> int:
        """The time of day, for timestamps and due times; it may be set at any time."""

    def call_soon(self, action: Callable[[], None]) -> object:
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


def earlier_ms(clock: Clock) -> int:
    """A time that has passed on both clocks."""
    return min(clock.now_ms(), clock.wall_ms())
