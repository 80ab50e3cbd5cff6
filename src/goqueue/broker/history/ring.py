"""The newest values of some series at equal distances, in a bounded number of bytes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan

TRIMMED_ROWS = 60  # removed at once, so that a row costs little


class Ring:
    """Rows of values by bucket, which is a time divided by the distance between rows.

    A bucket for which nothing was recorded has the value nan. Values are kept with 24 bits of
    precision.
    """

    __slots__ = ("_first", "_rows_max", "_values", "_width")

    def __init__(self, rows_max: int, width: int) -> None:
        self._rows_max = rows_max
        self._width = width
        self._first = 0  # the bucket of the first row
        self._values = array("f")

    @property
    def end(self) -> int:
        """The bucket after the last row."""
        return self._first + len(self._values) // self._width

    @property
    def is_empty(self) -> bool:
        return not self._values

    def put(self, bucket: int, values: Sequence[float]) -> None:
        """Add a row; one that is not newer than the last is dropped, as the clock was set back."""
        if self._values and bucket < self.end:
            return
        if not self._values or bucket - self.end >= self._rows_max:
            self._values, self._first = array("f"), bucket
        self._values.extend([nan] * (self._width * (bucket - self.end)))
        self._values.extend(values)
        surplus = self.end - self._first - self._rows_max
        if surplus >= TRIMMED_ROWS:
            del self._values[: surplus * self._width]
            self._first += surplus

    def column(self, number: int, begin: int, end: int) -> array[float]:
        """Return one series from a bucket up to another; nan outside of what is kept."""
        first, last = max(begin, self._first), min(end, self.end)
        if first >= last:
            return array("f", [nan]) * max(0, end - begin)
        width = self._width
        known = self._values[(first - self._first) * width + number : (last - self._first) * width]
        gap = array("f", [nan])
        return gap * (first - begin) + known[::width] + gap * (end - last)

    def is_quiet(self, since: int) -> bool:
        """Whether nothing but zeros was recorded from a bucket on."""
        first = max(0, since - self._first) * self._width
        return not any(one and one == one for one in self._values[first:])
