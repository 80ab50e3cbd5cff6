"""The order of a scan: which offsets to read next, and which of the found messages come first.

A scan is a state machine. It names ranges of offsets, gets the records that were found there, and
returns those that are next in its order. `places` say where another scan continues.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from goqueue.broker.gate.areas.records import Range
from goqueue.model.batch import Record

WINDOW_MIN = 16  # offsets of a partition that a descending scan reads at once
WINDOW_MAX = 1 << 20
STEP_BYTES = 16 << 20  # windows grow until their records have about this size together
BEFORE_ALL = -1 << 62  # as a time: no record that was not read can be newer


class Match(NamedTuple):
    """A message that was found. Of a long value only the first bytes are kept."""

    partition: int
    record: Record
    value_bytes: int  # of the whole value


class Read(NamedTuple):
    """What was read: records found, where each partition continues, and the bytes scanned."""

    records: Sequence[Match]
    places: Mapping[int, int]  # partitions that are not read to the end of their range
    scanned_bytes: int


class Scan(Protocol):
    """A scan in one order."""

    def ranges(self) -> list[Range]:
        """Return what to read next; nothing at the end."""

    def put(self, read: Read, room: int) -> list[Match]:
        """Take what was read; return at most `room` messages that are next."""

    @property
    def is_within_step(self) -> bool:
        """Whether something was scanned that a scan from `places` on would scan again."""

    @property
    def share(self) -> float | None:
        """Return how much of the offsets is scanned; None if there are none."""

    @property
    def places(self) -> dict[int, int]:
        """Where each partition continues after the last message that was returned."""


class Ascending:
    """From the oldest message on."""

    is_within_step = False

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._begins = {one.partition: one.begin for one in ranges if one.begin < one.end}
        self._ends = {one.partition: one.end for one in ranges}
        self._total = sum(self._ends[one] - begin for one, begin in self._begins.items())

    def ranges(self) -> list[Range]:
        return [Range(one, begin, self._ends[one]) for one, begin in self._begins.items()]

    def put(self, read: Read, room: int) -> list[Match]:
        self._begins = {one: place for one, place in read.places.items() if place < self._ends[one]}
        for number, record, _ in read.records[room:]:
            self._begins[number] = min(self._begins.get(number, record.offset), record.offset)
        return list(read.records[:room])

    @property
    def places(self) -> dict[int, int]:
        return dict(self._begins)

    @property
    def share(self) -> float | None:
        """Return how much of the offsets is scanned; None if there are none."""
        left = sum(self._ends[one] - begin for one, begin in self._begins.items())
        return 1 - left / self._total if self._total else None


class _Backwards:
    """A partition that is read window by window, from its end to its begin."""

    __slots__ = (
        "begin",
        "end",
        "found",
        "frontier_ms",
        "next_offset",
        "start",
        "until",
        "waiting",
        "width",
    )

    def __init__(self, wanted: Range, width: int) -> None:
        self.begin = wanted.begin
        self.end = wanted.end  # everything from here on is scanned
        self.width = width
        self.start = self.next_offset = self.until = wanted.end  # of the window that is being read
        self.found: deque[Match] = deque()  # in that window, the newest last
        self.waiting: deque[tuple[int, Match]] = deque()  # by time, the newest first
        self.frontier_ms: int = -BEFORE_ALL  # everything that is not scanned is not newer

    def open(self) -> None:
        """Begin with the next window."""
        self.until = self.end
        self.start = self.next_offset = max(self.begin, self.end - self.width)

    def close(self) -> None:
        """Note that a window was read to its end."""
        for match in reversed(self.found):
            # Times may decrease in a partition; offsets are what is kept in order.
            self.frontier_ms = min(self.frontier_ms, match.record.timestamp_ms)
            self.waiting.append((self.frontier_ms, match))
        self.found.clear()
        self.end = self.start
        if self.end == self.begin:
            self.frontier_ms = BEFORE_ALL

    @property
    def place(self) -> int:
        """Where the partition continues, downwards."""
        return self.waiting[0][1].record.offset + 1 if self.waiting else self.end


class Descending:
    """From the newest message on.

    With `is_exact` every record of a window is found, so that the order of times is that of all
    partitions together: a message waits until no partition can have a newer one. Otherwise what a
    window has is returned when all partitions have read theirs. Within a partition the order is
    that of offsets.
    """

    def __init__(self, ranges: Iterable[Range], *, wanted: int, is_exact: bool) -> None:
        ranges = [one for one in ranges if one.begin < one.end]
        self._is_exact = is_exact
        self._wanted = wanted  # messages, so that no partition keeps more
        width = max(WINDOW_MIN, 2 * wanted // max(1, len(ranges)))
        self._width_max = max(width, 2 * wanted) if is_exact else WINDOW_MAX
        self._partitions = {one.partition: _Backwards(one, width) for one in ranges}
        self._total = sum(one.end - one.begin for one in ranges)
        self._open: dict[int, _Backwards] = {}
        self._step_bytes = 0

    @property
    def is_within_step(self) -> bool:
        return bool(self._open)

    def ranges(self) -> list[Range]:
        if not self._open:
            self._begin_step()
        return [Range(number, one.next_offset, one.until) for number, one in self._open.items()]

    def _begin_step(self) -> None:
        self._step_bytes = 0
        left = {number: one for number, one in self._partitions.items() if one.end > one.begin}
        if self._is_exact and left:
            newest = max(one.frontier_ms for one in left.values())
            left = {number: one for number, one in left.items() if one.frontier_ms == newest}
        for number, one in left.items():
            one.open()
            self._open[number] = one

    def put(self, read: Read, room: int) -> list[Match]:
        self._step_bytes += read.scanned_bytes
        for match in read.records:
            one = self._open[match.partition]
            one.found.append(match)
            if len(one.found) > self._wanted + 1 and not self._is_exact:
                one.found.popleft()  # It comes on a later page, which finds it again.
        closed = [number for number in self._open if number not in read.places]
        for number, place in read.places.items():
            self._open[number].next_offset = place
        for number in closed:
            self._close(self._open.pop(number))
        return [] if self._open else self._next(room)

    def _close(self, one: _Backwards) -> None:
        one.close()
        if self._step_bytes < STEP_BYTES:
            one.width = min(self._width_max, one.width * 2)
        else:
            one.width = max(WINDOW_MIN, one.width // 2)

    def _next(self, room: int) -> list[Match]:
        """Return what waits and cannot be preceded by what was not read."""
        frontier = BEFORE_ALL
        if self._is_exact:
            frontier = max((one.frontier_ms for one in self._partitions.values()), default=frontier)
        heap = [
            (-one.waiting[0][0], number) for number, one in self._partitions.items() if one.waiting
        ]
        heapq.heapify(heap)
        found: list[Match] = []
        while heap and len(found) < room and -heap[0][0] >= frontier:
            _, number = heapq.heappop(heap)
            waiting = self._partitions[number].waiting
            found.append(waiting.popleft()[1])
            if waiting:
                heapq.heappush(heap, (-waiting[0][0], number))
        return found

    @property
    def places(self) -> dict[int, int]:
        return {
            number: one.place for number, one in self._partitions.items() if one.place > one.begin
        }

    @property
    def share(self) -> float | None:
        """Return how much of the offsets is scanned; None if there are none."""
        left = sum(one.end - one.begin for one in self._partitions.values())
        return 1 - left / self._total if self._total else None
