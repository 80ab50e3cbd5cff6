"""How much happens per second, without remembering when it happened.

A rate is what happened lately, each event counting less the longer ago it was: after
`WINDOW_MS` a third of it is left. It is brought up to date only when something happens or somebody
asks, so that a lane in which nothing happens costs nothing.
"""

from __future__ import annotations

from math import exp

WINDOW_MS = 10_000


class Rates:
    """The rates of a few things that are numbered from zero."""

    __slots__ = ("_at_ms", "_per_second")

    def __init__(self, count: int) -> None:
        self._per_second = [0.0] * count
        self._at_ms = [0] * count

    def add(self, number: int, count: int, now_ms: int) -> None:
        """So many of a thing happened now."""
        if now_ms == self._at_ms[number]:
            self._per_second[number] += count * 1000 / WINDOW_MS
            return
        self._per_second[number] = self.per_second(number, now_ms) + count * 1000 / WINDOW_MS
        self._at_ms[number] = now_ms

    def per_second(self, number: int, now_ms: int) -> float:
        # A clock that was set back makes nothing grow.
        age_ms = max(0, now_ms - self._at_ms[number])
        return self._per_second[number] * exp(-age_ms / WINDOW_MS)
