"""Time and threads, as the broker sees them; real in `runtime`, virtual in tests.

There are two clocks. How long something lasts is measured with `now_ms`, which nobody can set; what
is stored, shown or promised for a time of day is said by `wall_ms`, which may jump. What deletes
goes by `earlier_ms`, so that no clock that is set ahead by mistake costs anything.

`now_ms` follows a wall clock that was set, slowly. Leases must not notice even that: queues go by
`monotonic_ms`, and their journal carries it from one owner's clock to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Handle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """For whatever lasts: it never goes back or jumps, and is near the wall clock's time."""

    def monotonic_ms(self) -> int:
        """For leases: it begins as `now_ms` does, and passes exactly as fast as time."""

    def wall_ms(self) -> int:
        """The time of day, for timestamps and what is due at one; it may be set at any time."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """After everything that is already due."""

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> Handle: ...

    def run_blocking(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        """Run `work` outside the event loop, then `done(result, error)` inside it."""


class MonotonicClock:
    """A scheduler whose `now_ms` is monotonic time, for those who measure leases."""

    def __init__(self, clock: Clock) -> None:
        self.now_ms = self.monotonic_ms = clock.monotonic_ms
        self.wall_ms = clock.wall_ms
        self.call_soon = clock.call_soon
        self.call_later = clock.call_later
        self.run_blocking = clock.run_blocking


def earlier_ms(clock: Clock) -> int:
    """A time that both clocks agree has come."""
    return min(clock.now_ms(), clock.wall_ms())
