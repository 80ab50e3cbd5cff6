"""The order of delivery: due retries, then a starving lane, then the lanes by their shares.

Lanes share the consumers of the whole topic, so the choice is made here and not per partition.
Nothing here scans all partitions, of which there may be thousands: each lane has a rotation of the
partitions with ready messages, and a heap of how long those have been ready.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from goqueue.delivery.lanes import LANE_COUNT
from goqueue.delivery.partition_queue import PartitionQueue
from goqueue.delivery.settings import LaneSettings

MIXED = -1  # retries are chosen by due time, across lanes
# How many messages are taken from one partition before the next one's turn. Batches are read
# whole, so taking a few messages from each partition would read all of them for little.
PARTITION_TURN = 128
# A starving lane is served when this fraction of the starvation bound has elapsed, not later.
RESCUE_BEGINS = 0.75


class Pick(NamedTuple):
    """Offsets of one partition, chosen together."""

    partition: int
    lane: int
    offsets: Sequence[int]  # a range where they are contiguous


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
        self._partitions: list[PartitionQueue] = []
        self._ready: list[dict[int, None]] = [{} for _ in range(LANE_COUNT)]
        self._oldest: list[list[tuple[int, int]]] = [[] for _ in range(LANE_COUNT)]
        self._listed: list[set[int]] = [set() for _ in range(LANE_COUNT)]
        self._due: list[tuple[int, int, int]] = []
        self._is_rescue_turn = True

    def configure(self, settings: LaneSettings) -> None:
        self.settings = settings
        self._shares = LaneShares(settings)

    def add(self, partition: PartitionQueue) -> None:
        assert partition.number == len(self._partitions)
        self._partitions.append(partition)
        self.queue_waiting(partition)

    # Availability

    def refresh(self, partition: PartitionQueue, *, parked_max: int) -> None:
        """Update which lanes have ready messages in a partition, after a change to it."""
        is_blocked = partition.lines.parked_count >= parked_max
        number = partition.number
        for lane, count in enumerate(partition.ready):
            if not count or is_blocked:
                self._ready[lane].pop(number, None)
            elif number not in self._ready[lane]:
                self._ready[lane][number] = None
                if number not in self._listed[lane]:
                    self._listed[lane].add(number)
                    heapq.heappush(self._oldest[lane], (partition.oldest_ms(lane), number))

    def queue_waiting(self, partition: PartitionQueue) -> None:
        """Queue all waiting messages of a partition by due time."""
        for offset, due_ms in partition.waiting.items():
            self.queue_one(partition.number, offset, due_ms)

    def queue_one(self, partition: int, offset: int, due_ms: int) -> None:
        heapq.heappush(self._due, (due_ms, partition, offset))

    @property
    def has_ready(self) -> bool:
        return any(self._ready)

    def next_due_ms(self) -> int | None:
        """When the next waiting message may be chosen."""
        due = self._due
        while due and not self._is_current(due[0]):
            heapq.heappop(due)
        return due[0][0] if due else None

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
        picks: list[Pick] = []
        room = count_max - self._choose_due(now_ms, count_max, picks)
        room = min(room, fresh_max)
        while room > 0:
            ready = [lane for lane in range(LANE_COUNT) if self._ready[lane]]
            if not ready:
                break
            room -= self._choose_from_lane(now_ms, ready, room, picks)
        return picks

    def _choose_due(self, now_ms: int, count_max: int, picks: list[Pick]) -> int:
        due, count = self._due, 0
        offsets: list[int] = []
        while due and count < count_max and due[0][0] <= now_ms:
            entry = heapq.heappop(due)
            if not self._is_current(entry):
                continue
            _, number, offset = entry
            self._partitions[number].take_waiting(offset)
            if not picks or picks[-1].partition != number:
                offsets = []
                picks.append(Pick(number, MIXED, offsets))
            offsets.append(offset)
            count += 1
        return count

    def _is_current(self, entry: tuple[int, int, int]) -> bool:
        due_ms, number, offset = entry
        return self._partitions[number].waiting.get(offset) == due_ms

    def _choose_from_lane(self, now_ms: int, ready: list[int], room: int, picks: list[Pick]) -> int:
        if len(ready) == 1:
            return self._take(now_ms, ready[0], room, picks)
        lane, count = self._shares.next_lane(ready)
        starving = self._starving_lane(now_ms, [one for one in ready if one != lane])
        if starving is not None and self._is_rescue_turn:
            # Only every second message, so that the backlog of one lane leaves room for others.
            self._is_rescue_turn = False
            _, number = self._oldest[starving][0]
            return self._take(now_ms, starving, 1, picks, number=number)
        self._is_rescue_turn = True
        count = self._take(now_ms, lane, 1 if starving is not None else min(count, room), picks)
        self._shares.charge(lane, count)
        return count

    def _starving_lane(self, now_ms: int, ready: list[int]) -> int | None:
        """Return the lane whose oldest message has waited longest, if the bound is near."""
        longest, starving = int(self.settings.starvation_ms * RESCUE_BEGINS), None
        for lane in ready:
            since_ms = self.oldest_ms(lane)
            if since_ms is not None and now_ms - since_ms > longest:
                longest, starving = now_ms - since_ms, lane
        return starving

    def _take(
        self, now_ms: int, lane: int, count: int, picks: list[Pick], *, number: int = -1
    ) -> int:
        """Take messages of a lane from partition `number`, or from the one whose turn it is."""
        ready = self._ready[lane]
        if number < 0:
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
