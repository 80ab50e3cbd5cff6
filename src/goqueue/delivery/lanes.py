"""Lanes: the lane of each message of a partition, and the order in which lanes are served.

Lanes are sub-sequences of one log, stored as runs: the start of a run, and its lane. A partition in
which no message has a priority has one run, whatever its length. `LaneIndex` belongs to the
partition, so that all groups share it; each group has its own cursor per lane. Offsets without a
deliverable message (transaction markers and aborted records) are in no lane: they are neither
counted nor delivered.

`Chooser` decides what is delivered next: due retries, then a starving lane, then the lanes by their
shares. Lanes share the consumers of the whole topic, so the choice is made here and not per
partition. Nothing here scans all partitions, of which there may be thousands: each lane has a
rotation of the partitions with ready messages, and a heap of how long those have been ready.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import exp
from typing import NamedTuple, Protocol

import msgspec

from goqueue.delivery.due_times import DueTimes
from goqueue.delivery.ranges import Range
from goqueue.delivery.settings import LANE_COUNT, SIZES_CACHED, LaneSettings

NORMAL = 2
# Offsets without a message: markers, and records of aborted transactions.
NO_LANE = LANE_COUNT

# Nine bytes each. A partition with more runs than this still accepts messages, which are then
# counted in the lane of the last run until retention makes room.
RUNS_MAX = 8_000_000

ARRIVAL_CHECKPOINTS_MAX = 1024
ARRIVAL_STEP_MS = 20  # minimum distance; finer checkpoints would add no useful precision

RATE_WINDOW_MS = 10_000

MIXED = -1  # retries are chosen by due time, across lanes
# How many messages are taken from one partition before the next one's turn. Batches are read
# whole, so taking a few messages from each partition would read all of them for little.
PARTITION_TURN = 128
# A starving lane is served when this fraction of the starvation bound has elapsed, not later.
RESCUE_BEGINS = 0.75


class LaneState(msgspec.Struct, array_like=True, frozen=True):
    """An index as it is saved next to the partition's segments."""

    end: int
    starts: bytes  # signed 64-bit numbers, in the byte order given by `order`
    lanes: bytes
    order: str
    may_expire: bool = True


class LaneIndex:
    """The lanes of the offsets before `end`; those before the log start are dropped."""

    __slots__ = (
        "_has_priorities",
        "_lanes",
        "_runs_max",
        "_starts",
        "end",
        "has_gaps",
        "may_expire",
    )

    def __init__(self, first: int = 0, *, runs_max: int = RUNS_MAX) -> None:
        self.end = first
        self._starts = array("q")
        self._lanes = bytearray()
        self._runs_max = runs_max
        self._has_priorities = False
        self.has_gaps = False  # whether there may be offsets without a message
        self.may_expire = False  # whether messages may have a time to live of their own

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

    def lanes_of(self, offsets: Sequence[int]) -> bytes:
        """Return the lane of each message."""
        if self.is_plain:
            return _all_normal(len(offsets))
        return bytes([self.lane_of(offset) for offset in offsets])

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
        starts, lanes = self._starts.tobytes(), bytes(self._lanes)
        return LaneState(self.end, starts, lanes, _byte_order(), self.may_expire)

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
        index.may_expire = state.may_expire
        return index if is_sound and all(lane <= NO_LANE for lane in state.lanes) else None


@lru_cache(maxsize=SIZES_CACHED)
def _all_normal(count: int) -> bytes:
    """Return the lanes of `count` messages in the normal lane; leases of the same size share it."""
    return bytes((NORMAL,)) * count


def lane_counts(lanes: bytes) -> list[tuple[int, int]]:
    """Count the messages, at least one, in each lane that occurs."""
    first = lanes[0]
    if lanes.count(first) == len(lanes):
        return [(first, len(lanes))]  # the usual case
    return [(lane, lanes.count(lane)) for lane in set(lanes)]


def _byte_order() -> str:
    return "little" if array("H", (1,)).tobytes()[0] else "big"


class Arrivals:
    """Checkpoints (offset, time): messages from that offset on arrived at that time or later.

    A message gets the time of the checkpoint before it, so that its wait is never
    underestimated. When there are too many checkpoints, every second one is dropped.
    """

    __slots__ = ("_checkpoints_max", "_offsets", "_times")

    def __init__(
        self, first: int, now_ms: int, *, checkpoints_max: int = ARRIVAL_CHECKPOINTS_MAX
    ) -> None:
        """Messages that already exist count as having arrived now."""
        self._checkpoints_max = checkpoints_max
        self._offsets = array("q", (first,))
        self._times = array("q", (now_ms,))

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, first: int, now_ms: int) -> None:
        """Note that messages from `first` on have arrived now."""
        if first <= self._offsets[-1]:
            self._times[-1] = max(now_ms, self._times[-1])  # no message had arrived there yet
            return
        if now_ms < self._times[-1] + ARRIVAL_STEP_MS:
            return
        self._offsets.append(first)
        self._times.append(now_ms)
        if len(self._offsets) > self._checkpoints_max:
            self._offsets = self._offsets[::2]
            self._times = self._times[::2]

    def arrived_ms(self, offset: int) -> int:
        return self._times[max(0, bisect_right(self._offsets, offset) - 1)]

    def forget_before(self, offset: int) -> None:
        gone = bisect_right(self._offsets, offset) - 1
        if gone > 0:
            del self._offsets[:gone]
            del self._times[:gone]


class Rates:
    """The rates per second of a few kinds of events, numbered from zero.

    A rate is an exponentially decaying average: after `RATE_WINDOW_MS`, about a third of an event's
    weight is left. It is updated only when an event is added or the rate is read, so that an idle
    lane costs nothing.
    """

    __slots__ = ("_at_ms", "_per_second")

    def __init__(self, count: int) -> None:
        self._per_second = [0.0] * count
        self._at_ms = [0] * count

    def add(self, number: int, count: int, now_ms: int) -> None:
        """Count `count` events of kind `number` now."""
        if now_ms == self._at_ms[number]:
            self._per_second[number] += count * 1000 / RATE_WINDOW_MS
            return
        self._per_second[number] = self.per_second(number, now_ms) + count * 1000 / RATE_WINDOW_MS
        self._at_ms[number] = now_ms

    def per_second(self, number: int, now_ms: int) -> float:
        # If the clock was set back, the rate must not grow.
        age_ms = max(0, now_ms - self._at_ms[number])
        return self._per_second[number] * exp(-age_ms / RATE_WINDOW_MS)


class Pick(NamedTuple):
    """Offsets of one partition, chosen together."""

    partition: int
    lane: int
    offsets: Sequence[int]  # a range where they are contiguous


class Run(NamedTuple):
    """Chosen messages of one partition that have been read, in delivery order."""

    partition: int
    offsets: Sequence[int]
    keys: Sequence[bytes | None] | None = None  # given where the group's settings need them
    expires_ms: Sequence[int | None] | None = None  # given if any message has an expiry time


class Backlog(Protocol):
    """The messages of one partition that are not in flight, and not done."""

    number: int
    ready: list[int]  # messages that were never chosen, by lane
    waiting: dict[int, int]  # messages that may be chosen again, from a time on

    def take(self, lane: int, count: int) -> Sequence[int]:
        """Choose up to `count` ready messages of a lane, in log order."""

    def oldest_ms(self, lane: int) -> int:
        """When the lane's next message became ready; the lane must have one."""

    def arrived_ms(self, offset: int) -> int:
        """When a message arrived."""

    def wait(self, offset: int, due_ms: int) -> None:
        """Let a message be chosen again from a time on."""

    def take_waiting(self, offset: int) -> None:
        """Choose a waiting message."""


class LaneShares:
    """Deficit round-robin: a turn adds a lane's weight, and a message costs the least weight."""

    __slots__ = ("_cost", "_credit", "_is_strict", "_lane", "_weights")

    def __init__(self, settings: LaneSettings) -> None:
        self._weights = settings.weights
        self._cost = min(settings.weights)
        self._is_strict = settings.is_strict
        self._credit = [0] * LANE_COUNT
        self._lane = LANE_COUNT - 1

    def next_lane(self, ready: list[int]) -> tuple[int, int]:
        """Return the lane whose turn it is among the ready ones, and how many messages it gets."""
        if self._is_strict:
            return ready[0], PARTITION_TURN
        if self._lane not in ready or self._credit[self._lane] < self._cost:
            self._turn(ready)
        return self._lane, self._credit[self._lane] // self._cost

    def charge(self, lane: int, count: int) -> None:
        if not self._is_strict:
            self._credit[lane] -= count * self._cost

    def _turn(self, ready: list[int]) -> None:
        # A lane that has run empty loses its credit: idle time must not accumulate any.
        for lane in range(LANE_COUNT):
            if lane not in ready:
                self._credit[lane] = 0
        self._lane = next((lane for lane in ready if lane > self._lane), ready[0])
        self._credit[self._lane] += self._weights[self._lane]


class Chooser:
    """The order of choice over the partitions of one queue."""

    def __init__(self, settings: LaneSettings) -> None:
        self.configure(settings)
        self.longest_wait_ms = [0] * LANE_COUNT
        self._partitions: list[Backlog] = []
        self._ready: list[dict[int, None]] = [{} for _ in range(LANE_COUNT)]
        self._oldest: list[list[tuple[int, int]]] = [[] for _ in range(LANE_COUNT)]
        self._listed: list[set[int]] = [set() for _ in range(LANE_COUNT)]
        self._due = DueTimes(self._partitions)
        self._is_rescue_turn = True

    def configure(self, settings: LaneSettings) -> None:
        self.settings = settings
        self._shares = LaneShares(settings)

    def add(self, partition: Backlog) -> None:
        assert partition.number == len(self._partitions)
        self._partitions.append(partition)
        for offset, due_ms in partition.waiting.items():
            self.queue_one(partition.number, offset, due_ms)

    # Availability

    def refresh(self, partition: Backlog, *, is_blocked: bool) -> None:
        """Update which lanes have ready messages in a partition, after a change to it."""
        number = partition.number
        for lane, count in enumerate(partition.ready):
            if not count or is_blocked:
                self._ready[lane].pop(number, None)
            elif number not in self._ready[lane]:
                self._ready[lane][number] = None
                if number not in self._listed[lane]:
                    self._listed[lane].add(number)
                    heapq.heappush(self._oldest[lane], (partition.oldest_ms(lane), number))

    def queue_one(self, partition: int, offset: int, due_ms: int) -> None:
        """Queue a waiting message by due time."""
        self._due.add(partition, offset, due_ms)

    @property
    def has_ready(self) -> bool:
        return any(self._ready)

    def next_due_ms(self) -> int | None:
        """When the next waiting message may be chosen."""
        first = self._due.first()
        return None if first is None else first.due_ms

    def next_due_after_ms(self, now_ms: int) -> int | None:
        """When the next waiting message may be chosen that may not be chosen yet."""
        return self._due.next_after_ms(now_ms)

    def oldest_ms(self, lane: int) -> int | None:
        """When the message that has been ready longest in a lane became ready."""
        heap, ready = self._oldest[lane], self._ready[lane]
        while heap:
            since_ms, number = heap[0]
            if number not in ready:
                heapq.heappop(heap)
                self._listed[lane].discard(number)
                continue
            actual_ms = self._partitions[number].oldest_ms(lane)
            if actual_ms <= since_ms:
                return actual_ms
            heapq.heapreplace(heap, (actual_ms, number))
        return None

    # Choosing

    def choose(self, now_ms: int, count_max: int, *, fresh_max: int) -> list[Pick]:
        """Choose up to `count_max` messages, at most `fresh_max` of them never delivered before."""
        picks = self._choose_due(now_ms, count_max)
        room = min(count_max - sum(len(pick.offsets) for pick in picks), fresh_max)
        while room > 0:
            ready = [lane for lane in range(LANE_COUNT) if self._ready[lane]]
            if not ready:
                break
            room -= self._choose_from_lane(now_ms, ready, room, picks)
        return picks

    def choose_from(
        self,
        number: int,
        now_ms: int,
        count_max: int,
        *,
        fresh_max: Callable[[int], int],
        is_alone: Callable[[int], bool],
    ) -> list[Pick]:
        """Choose like `choose`, from one partition.

        A retry that `is_alone` is not chosen together with anything else. `fresh_max` gets the
        room that retries have left and returns how many others to choose.
        """
        picks = self._choose_due(now_ms, count_max, number, is_alone)
        if picks and is_alone(picks[0].offsets[0]):
            return picks
        room = fresh_max(count_max - sum(len(pick.offsets) for pick in picks))
        while room > 0:
            ready = [lane for lane in range(LANE_COUNT) if number in self._ready[lane]]
            if not ready:
                break
            room -= self._choose_from_lane(now_ms, ready, room, picks, number)
        return picks

    def has_from(self, number: int, now_ms: int) -> bool:
        """Whether a partition has messages that may be chosen now."""
        if any(number in ready for ready in self._ready):
            return True
        first = self._due.first(number)
        return first is not None and first.due_ms <= now_ms

    def _choose_due(
        self,
        now_ms: int,
        count_max: int,
        number: int | None = None,
        is_alone: Callable[[int], bool] | None = None,
    ) -> list[Pick]:
        picks: list[Pick] = []
        if not self._due.by_partition:
            return picks
        offsets: list[int] = []
        for count in range(count_max):
            first = self._due.first(number)
            if first is None or first.due_ms > now_ms:
                break
            stands_alone = is_alone is not None and is_alone(first.offset)
            if stands_alone and count:
                break
            self._due.take(first.partition)
            self._partitions[first.partition].take_waiting(first.offset)
            if not picks or picks[-1].partition != first.partition:
                offsets = []
                picks.append(Pick(first.partition, MIXED, offsets))
            offsets.append(first.offset)
            if stands_alone:
                break
        return picks

    def _choose_from_lane(
        self,
        now_ms: int,
        ready: list[int],
        room: int,
        picks: list[Pick],
        number: int | None = None,
    ) -> int:
        """Choose messages of the lane whose turn it is, of one partition or of any."""
        if len(ready) == 1:
            return self._take(now_ms, ready[0], room, picks, number=number)
        lane, count = self._shares.next_lane(ready)
        starving = self._starving_lane(now_ms, [one for one in ready if one != lane], number)
        if starving is not None and self._is_rescue_turn:
            # Only every second message, so that the backlog of one lane leaves room for others.
            self._is_rescue_turn = False
            if number is None:
                _, number = self._oldest[starving][0]
            return self._take(now_ms, starving, 1, picks, number=number)
        self._is_rescue_turn = True
        count = 1 if starving is not None else min(count, room)
        count = self._take(now_ms, lane, count, picks, number=number)
        self._shares.charge(lane, count)
        return count

    def _starving_lane(self, now_ms: int, ready: list[int], number: int | None) -> int | None:
        """Return the lane whose oldest message has waited longest, if the bound is near."""
        longest, starving = int(self.settings.starvation_ms * RESCUE_BEGINS), None
        for lane in ready:
            if number is None:
                since_ms = self.oldest_ms(lane)
            else:
                since_ms = self._partitions[number].oldest_ms(lane)
            if since_ms is not None and now_ms - since_ms > longest:
                longest, starving = now_ms - since_ms, lane
        return starving

    def _take(
        self, now_ms: int, lane: int, count: int, picks: list[Pick], *, number: int | None
    ) -> int:
        """Take messages of a lane from partition `number`, or from the one whose turn it is."""
        ready = self._ready[lane]
        if number is None:
            number = next(iter(ready))
        partition = self._partitions[number]
        del ready[number]
        taken = partition.take(lane, min(count, PARTITION_TURN))
        assert taken, "a partition is listed as ready and has nothing"
        wait_ms = now_ms - partition.arrived_ms(taken[0])
        if partition.ready[lane]:
            ready[number] = None
        self.longest_wait_ms[lane] = max(self.longest_wait_ms[lane], wait_ms)
        picks.append(Pick(number, lane, taken))
        return len(taken)
