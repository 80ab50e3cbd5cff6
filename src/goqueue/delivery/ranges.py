"""A set of offsets stored as ranges: a million consecutive offsets cost as much as one."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

Range = tuple[int, int]  # first offset, and the one after the last


class _Block:
    """Consecutive ranges of a set; at least one."""

    __slots__ = ("ends", "starts")

    def __init__(self, starts: array[int], ends: array[int]) -> None:
        self.starts = starts
        self.ends = ends

    def add(self, first: int, end: int) -> None:
        starts, ends = self.starts, self.ends
        low = bisect_left(ends, first)
        high, near = low, min(low + 3, len(starts))
        # Few ranges are close enough to be merged, and neighbours are adjacent in memory.
        while high < near and starts[high] <= end:
            high += 1
        if high == low + 3:
            high = bisect_right(starts, end, high)
        if high == low:
            starts.insert(low, first)
            ends.insert(low, end)
            return
        starts[low] = min(first, starts[low])
        ends[low] = max(end, ends[high - 1])
        if high > low + 1:
            self.cut(low + 1, high)

    def cut(self, first: int, end: int | None = None) -> None:
        """Remove the ranges with indexes from `first` up to `end`."""
        del self.starts[first:end]
        del self.ends[first:end]

    def split(self) -> _Block:
        """Keep the lower half and return the upper one."""
        half = len(self.starts) // 2
        upper = _Block(self.starts[half:], self.ends[half:])
        self.cut(half)
        return upper


class RangeSet:
    """Sorted ranges that neither overlap nor touch.

    They are stored in blocks, so that inserting or removing one among a million ranges moves the
    ranges of one block only.
    """

    __slots__ = ("_blocks", "ends")

    BLOCK_RANGES_MAX = 512

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._blocks: list[_Block] = []
        self.ends: list[int] = []  # the end of each block; the last is the end of the set
        for first, end in ranges:
            self.add(first, end)

    def __len__(self) -> int:
        """Return the number of ranges, which determines the memory used."""
        return sum(len(block.starts) for block in self._blocks)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[Range]:
        pairs = (zip(block.starts, block.ends, strict=True) for block in self._blocks)
        return iter([one for block in pairs for one in block])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def __contains__(self, offset: int) -> bool:
        return self.first_missing_from(offset) != offset

    def add(self, first: int, end: int) -> None:
        """Add the offsets from `first` up to, but not including, `end`."""
        if first >= end:
            return
        blocks, ends = self._blocks, self.ends
        number = min(bisect_left(ends, first), len(ends) - 1)
        if number < 0:
            blocks.append(_Block(array("q", (first,)), array("q", (end,))))
            ends.append(end)
            return
        block = blocks[number]
        if end < ends[number]:
            block.add(first, end)
        else:
            if number + 1 < len(blocks) and blocks[number + 1].starts[0] <= end:
                end = self._swallow(number + 1, end)
            block.add(first, end)
            ends[number] = block.ends[-1]
        if len(block.starts) > self.BLOCK_RANGES_MAX:
            blocks.insert(number + 1, block.split())
            ends[number : number + 1] = [block.ends[-1], ends[number]]

    def _swallow(self, number: int, end: int) -> int:
        """Remove ranges that start at or before `end`, from a block on; return their end."""
        blocks, low = self._blocks, number
        while number < len(blocks) and blocks[number].starts[0] <= end:
            block = blocks[number]
            high = bisect_right(block.starts, end)
            end = max(end, block.ends[high - 1])
            if high < len(block.starts):
                block.cut(0, high)
                break
            number += 1
        del blocks[low:number]
        del self.ends[low:number]
        return end

    def discard_before(self, offset: int) -> None:
        """Remove everything below `offset`."""
        gone = bisect_right(self.ends, offset)
        del self._blocks[:gone]
        del self.ends[:gone]
        if self._blocks:
            block = self._blocks[0]
            block.cut(0, bisect_right(block.ends, offset))
            block.starts[0] = max(block.starts[0], offset)

    def discard_from(self, offset: int) -> None:
        """Remove everything from `offset` on."""
        kept = bisect_left(self._blocks, offset, key=lambda block: block.starts[0])
        del self._blocks[kept:]
        del self.ends[kept:]
        if self._blocks:
            block = self._blocks[-1]
            block.cut(bisect_left(block.starts, offset))
            block.ends[-1] = self.ends[-1] = min(block.ends[-1], offset)

    def first_missing_from(self, offset: int) -> int:
        """Return the lowest offset at or above `offset` that is not in the set."""
        number = bisect_right(self.ends, offset)
        if number < len(self.ends):
            block = self._blocks[number]
            at = bisect_right(block.ends, offset)
            if block.starts[at] <= offset:
                return block.ends[at]
        return offset

    def gap_from(self, offset: int, *, until: int) -> Range:
        """Return the first range outside the set that starts at or above `offset`."""
        first = self.first_missing_from(offset)
        number = bisect_right(self.ends, first)
        if number == len(self.ends):
            return first, until
        block = self._blocks[number]
        return first, min(until, block.starts[bisect_right(block.ends, first)])

    def gaps(self, first: int, end: int) -> Iterator[Range]:
        """Yield the ranges between `first` and `end` that are not in the set."""
        while first < end:
            start, stop = self.gap_from(first, until=end)
            if start >= end:
                return
            yield start, stop
            first = stop

    def within(self, first: int, end: int) -> Iterator[Range]:
        """Yield the parts of the set from `first` up to `end`."""
        for block in self._blocks[bisect_right(self.ends, first) :]:
            for at in range(bisect_right(block.ends, first), len(block.starts)):
                if block.starts[at] >= end:
                    return
                yield max(first, block.starts[at]), min(end, block.ends[at])


def ranges_of(offsets: Sequence[int]) -> list[Range]:
    """Return sorted, distinct offsets as ranges."""
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
