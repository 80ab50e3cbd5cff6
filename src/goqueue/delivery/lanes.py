"""Which lane each offset of a partition is in.

Lanes are sub-sequences of one log, stored as runs: the start of a run, and its lane. A partition in
which no message has a priority has one run, whatever its length. The index belongs to the
partition, so that all groups share it; each group has its own cursor per lane.

Offsets without a deliverable message (transaction markers and aborted records) are in no lane:
they are neither counted nor delivered.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from goqueue.delivery.ranges import Range

LANE_NAMES = ("critical", "high", "normal", "low", "background")
LANE_COUNT = len(LANE_NAMES)
NORMAL = 2
# Offsets without a message: markers, and records of aborted transactions.
NO_LANE = LANE_COUNT

# Nine bytes each. A partition with more runs than this still accepts messages, which are then
# counted in the lane of the last run until retention makes room.
RUNS_MAX = 8_000_000


class LaneState(msgspec.Struct, array_like=True, frozen=True):
    """An index as it is saved next to the partition's segments."""

    end: int
    starts: bytes  # signed 64-bit numbers, in the byte order given by `order`
    lanes: bytes
    order: str


class LaneIndex:
    """The lanes of the offsets before `end`; those before the log start are dropped."""

    __slots__ = ("_has_priorities", "_lanes", "_runs_max", "_starts", "end", "has_gaps")

    def __init__(self, first: int = 0, *, runs_max: int = RUNS_MAX) -> None:
        self.end = first
        self._starts = array("q")
        self._lanes = bytearray()
        self._runs_max = runs_max
        self._has_priorities = False
        self.has_gaps = False  # whether there may be offsets without a message

    def __len__(self) -> int:
        """Return the number of runs, which determines the memory used."""
        return len(self._starts)

    @property
    def is_plain(self) -> bool:
        """Whether every indexed message is in the normal lane."""
        if not self._has_priorities:
            return True
        return not self._lanes or (len(self._lanes) == 1 and self._lanes[0] == NORMAL)

    def note(self, first: int, last: int, lane: int) -> None:
        """Put offsets `first` to `last` into `lane`; skipped ones are in the normal lane."""
        assert self.end <= first <= last, "lanes are noted in the order of the log"
        if first > self.end and not (self._lanes and self._lanes[-1] == NORMAL):
            self._begin_run(self.end, NORMAL)
        if not self._lanes or self._lanes[-1] != lane:
            self._begin_run(first, lane)
        self.end = last + 1

    def _begin_run(self, first: int, lane: int) -> None:
        # The last run must be one of messages, or messages still to come would be in no lane.
        room = self._runs_max - (lane == NO_LANE)
        if len(self._starts) < room:
            self._starts.append(first)
            self._lanes.append(lane)
            if lane == NO_LANE:
                self.has_gaps = True
            elif lane != NORMAL:
                self._has_priorities = True

    def lane_of(self, offset: int) -> int:
        """Return the lane of a message; the normal one where there is no message."""
        at = bisect_right(self._starts, offset) - 1
        lane = self._lanes[at] if at >= 0 else NORMAL
        return NORMAL if lane == NO_LANE else lane

    def next_in_lane(self, lane: int, from_offset: int, until: int) -> tuple[int, int] | None:
        """Return the next run of offsets in `lane`, clipped to `from_offset` and `until`."""
        until = min(until, self.end)
        if from_offset >= until or not self._starts:
            return None
        starts = self._starts
        at = self._lanes.find(lane, max(0, bisect_right(starts, from_offset) - 1))
        if at < 0 or starts[at] >= until:
            return None
        end = starts[at + 1] if at + 1 < len(starts) else until
        return max(from_offset, starts[at]), min(until, end)

    def counts(self, first: int, end: int) -> list[int]:
        """Count the offsets from `first` up to `end` in each lane."""
        counts = [0] * LANE_COUNT
        for lane, start, stop in self.runs(first, min(end, self.end)):
            if lane != NO_LANE:
                counts[lane] += stop - start
        return counts

    def message_from(self, offset: int, until: int) -> int:
        """Return the offset if it may hold a message, else the next one that may."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or self._lanes[at] != NO_LANE or offset >= min(until, self.end):
            return offset
        return min(until, self._starts[at + 1] if at + 1 < len(self._starts) else self.end)

    def without_messages(self, first: int, end: int) -> list[Range]:
        """Return the ranges from `first` up to `end` that hold no message."""
        found: list[Range] = []
        starts, end = self._starts, min(end, self.end)
        at = self._lanes.find(NO_LANE, max(0, bisect_right(starts, first) - 1))
        while at >= 0 and starts[at] < end:
            stop = starts[at + 1] if at + 1 < len(starts) else end
            if max(first, starts[at]) < min(stop, end):
                found.append((max(first, starts[at]), min(stop, end)))
            at = self._lanes.find(NO_LANE, at + 1)
        return found

    def runs(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (lane, first, end) for each run from `first` up to `end`."""
        starts = self._starts
        at = max(0, bisect_right(starts, first) - 1)
        while at < len(starts) and starts[at] < end:
            stop = starts[at + 1] if at + 1 < len(starts) else end
            start = max(first, starts[at])
            if start < min(stop, end):
                yield self._lanes[at], start, min(stop, end)
            at += 1

    def forget_before(self, offset: int) -> None:
        """Drop what lies before `offset`, the new log start."""
        gone = bisect_right(self._starts, offset) - 1
        if gone > 0:
            del self._starts[:gone]
            del self._lanes[:gone]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset
        if self.end < offset:
            self._starts, self._lanes, self.end = array("q"), bytearray(), offset

    def state(self) -> LaneState:
        return LaneState(self.end, self._starts.tobytes(), bytes(self._lanes), _byte_order())

    @classmethod
    def restore(cls, state: LaneState) -> LaneIndex | None:
        """Return the saved index, or None if it is damaged or has another byte order."""
        index = cls(state.end)
        if state.order != _byte_order() or len(state.starts) != 8 * len(state.lanes):
            return None
        index._starts.frombytes(state.starts)
        index._lanes += state.lanes
        starts = index._starts
        is_sorted = all(starts[at] < starts[at + 1] for at in range(len(starts) - 1))
        is_sound = is_sorted and (not starts or starts[-1] < state.end)
        index._has_priorities = any(lane not in (NORMAL, NO_LANE) for lane in set(state.lanes))
        index.has_gaps = NO_LANE in state.lanes
        return index if is_sound and all(lane <= NO_LANE for lane in state.lanes) else None


def lane_counts(lanes: bytes) -> list[tuple[int, int]]:
    """Count the messages, at least one, in each lane that occurs."""
    first = lanes[0]
    if lanes.count(first) == len(lanes):
        return [(first, len(lanes))]  # the usual case
    return [(lane, lanes.count(lane)) for lane in set(lanes)]


def _byte_order() -> str:
    return "little" if array("H", (1,)).tobytes()[0] else "big"
