"""A set of offsets kept as ranges: a million consecutive ones cost as much as one."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

Range = tuple[int, int]  # first offset, and the one after the last


class RangeSet:
    """Sorted ranges that neither overlap nor touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts = array("q")
        self._ends = array("q")
        for first, end in ranges:
            self.add(first, end)

    def __len__(self) -> int:
        """The number of ranges, which is what the set costs."""
        return len(self._starts)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def add(self, first: int, end: int) -> None:
        """Put in the offsets from `first` up to, not including, `end`."""
        if first >= end:
            return
        starts, ends = self._starts, self._ends
        if not ends or first > ends[-1]:
            starts.append(first)
            ends.append(end)
            return
        low = bisect_left(ends, first)
        high = bisect_right(starts, end)
        if low < high:
            first = min(first, starts[low])
            end = max(end, ends[high - 1])
        if high - low == 1:
            starts[low], ends[low] = first, end
        else:
            starts[low:high] = array("q", (first,))
            ends[low:high] = array("q", (end,))

    def discard_before(self, offset: int) -> None:
        """Take out everything below `offset`."""
        starts, ends = self._starts, self._ends
        gone = bisect_right(ends, offset)
        if gone:
            del starts[:gone]
            del ends[:gone]
        if starts and starts[0] < offset:
            starts[0] = offset

    def discard_from(self, offset: int) -> None:
        """Take out everything from `offset` on."""
        starts, ends = self._starts, self._ends
        kept = bisect_left(starts, offset)
        del starts[kept:]
        del ends[kept:]
        if ends and ends[-1] > offset:
            ends[-1] = offset

    def first_missing_from(self, offset: int) -> int:
        """The lowest offset that is not below `offset` and not in the set."""
        at = bisect_right(self._starts, offset) - 1
        if at >= 0 and offset < self._ends[at]:
            return self._ends[at]
        return offset

    def gap_from(self, offset: int, *, until: int) -> Range:
        """The first stretch outside the set that begins at `offset` or later."""
        first = self.first_missing_from(offset)
        at = bisect_left(self._starts, first)
        return first, min(until, self._starts[at]) if at < len(self._starts) else until

    def gaps(self, first: int, end: int) -> Iterator[Range]:
        """The stretches of `first` to `end` that are not in the set."""
        while first < end:
            start, stop = self.gap_from(first, until=end)
            if start >= end:
                return
            yield start, stop
            first = stop

    def within(self, first: int, end: int) -> Iterator[Range]:
        """The parts of the set from `first` up to `end`."""
        at = bisect_right(self._ends, first)
        while at < len(self._starts) and self._starts[at] < end:
            yield max(first, self._starts[at]), min(end, self._ends[at])
            at += 1


def ranges_of(offsets: Sequence[int]) -> list[Range]:
    """Sorted offsets, each there once, as ranges."""
    if not offsets:
        return []
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return [(first, last + 1)]
    ranges: list[Range] = []
    end = first
    for offset in offsets:
        if offset != end:
            ranges.append((first, end))
            first = offset
        end = offset + 1
    ranges.append((first, end))
    return ranges
