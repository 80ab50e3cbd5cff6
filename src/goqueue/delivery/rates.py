"""Event rates per second, without storing individual events.

A rate is an exponentially decaying average: after `WINDOW_MS`, about a third of an event's weight
is left. It is updated only when an event is added or the rate is read, so that an idle lane costs
nothing.
"""

from __future__ import annotations

from math import exp

WINDOW_MS = 10_000


class Rates:
    """The rates of a few kinds of events, numbered from zero."""

    __slots__ = ("_at_ms", "_per_second")

    def __init__(self, count: int) -> None:
        self._per_second = [0.0] * count
        self._at_ms = [0] * count

    def add(self, number: int, count: int, now_ms: int) -> None:
        """Count `count` events of kind `number` now."""
        if now_ms == self._at_ms[number]:
            self._per_second[number] += count * 1000 / WINDOW_MS
            return
        self._per_second[number] = self.per_second(number, now_ms) + count * 1000 / WINDOW_MS
        self._at_ms[number] = now_ms

    def per_second(self, number: int, now_ms: int) -> float:
        # If the clock was set back, the rate must not grow.
        age_ms = max(0, now_ms - self._at_ms[number])
        return self._per_second[number] * exp(-age_ms / WINDOW_MS)
