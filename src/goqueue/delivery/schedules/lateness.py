"""A histogram of how late messages were released since the node started, of constant size.

Up to a quarter of a second, each millisecond has its own bin; beyond that every doubling has 128
bins, so that the error of a percentile is below one percent.
"""

from __future__ import annotations

from collections.abc import Iterable

_EXACT_BITS = 8
_EXACT_MS = 1 << _EXACT_BITS
_STEPS_BITS = _EXACT_BITS - 1
_STEPS = 1 << _STEPS_BITS
_DOUBLINGS = 34  # half a century; anything later is counted as that


class Lateness:
    """Counts of release delays, and their percentiles."""

    __slots__ = ("_counts", "max_ms", "total")

    def __init__(self) -> None:
        self._counts = [0] * (_EXACT_MS + _DOUBLINGS * _STEPS)
        self.total = 0
        self.max_ms = 0

    def note(self, latenesses_ms: Iterable[int]) -> None:
        """Count messages; one that appears early, because the clock was set back, was on time."""
        counts, max_ms = self._counts, self.max_ms
        for late_ms in latenesses_ms:
            if late_ms > max_ms:
                max_ms = late_ms
            counts[late_ms if 0 <= late_ms < _EXACT_MS else _step(late_ms)] += 1
            self.total += 1
        self.max_ms = max_ms

    def percentile_ms(self, percent: float) -> int:
        """The lateness that `percent` of the messages did not exceed; 0 if there are none."""
        wanted = self.total * percent / 100
        seen = 0
        for step, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_step_end_ms(step), self.max_ms)
        return 0


def _step(late_ms: int) -> int:
    if late_ms < 0:
        return 0
    doubling = min(late_ms.bit_length() - _EXACT_BITS, _DOUBLINGS)
    within = min(late_ms >> doubling, _EXACT_MS - 1) - _STEPS
    return _EXACT_MS + (doubling - 1) * _STEPS + within


def _step_end_ms(step: int) -> int:
    """Return the largest lateness that is counted in a bin."""
    if step < _EXACT_MS:
        return step
    doubling, within = divmod(step - _EXACT_MS, _STEPS)
    return ((_STEPS + within + 1) << (doubling + 1)) - 1
