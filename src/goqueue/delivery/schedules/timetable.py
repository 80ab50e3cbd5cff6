"""A hierarchical timing wheel: coarse buckets on disk, the next minute in memory.

A message that is due in the far future is an entry in a coarse bucket. As its time approaches, the
bucket is opened and its entries are distributed to finer buckets, a block at a time, until those of
the coming minute are in memory: an array of numbers per due time, and a heap of the due times. A
minute bucket keeps its file while it is in memory, for the next start.

The timetable does not track the state of messages. It calls `is_current` before it moves an entry
on, so that entries of cancelled or moved messages are dropped.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

from goqueue.delivery.schedules.buckets import (
    BLOCK_ENTRIES_MAX,
    LEVELS,
    Bucket,
    BucketState,
)
from goqueue.storage.disk import Disk

BUFFERED_ENTRIES_MAX = 65_536  # over all buckets; then all are written
NEVER_MS = 1 << 62

_log = logging.getLogger(__name__)

_COARSEST = len(LEVELS) - 1
_MINUTE_MS = LEVELS[0].size_ms

IsCurrent = Callable[[int, int], bool]  # number, due time


class Timetable:
    """When each message of one partition is due."""

    def __init__(self, disk: Disk, folder: str, is_current: IsCurrent) -> None:
        self._disk = disk
        self._folder = folder
        self._is_current = is_current
        self._buckets: dict[tuple[int, int], Bucket] = {}
        # Per level: buckets that start before this are open, so nothing is added to them any
        # more. Minutes that start before the first of these times are in memory.
        self._opened_ms = [0] * len(LEVELS)
        self._ticks: dict[int, array[int]] = {}
        self._heap: list[int] = []
        self._taken: dict[int, int] = {}  # how many of a due time's numbers have been taken
        self._dealing: deque[Bucket] = deque()
        self._floor_ms = 0
        self._buffered = 0
        self._dropped: list[str] = []
        self.readers = 0  # active readers of `sources`; while there are any, no file is removed
        self.serial_next = 1

    def restore(self, states: list[BucketState], *, serial_next: int) -> None:
        """Open the buckets of a checkpoint and remove every other bucket file."""
        self.serial_next = serial_next
        for state in states:
            bucket = Bucket.restore(self._disk, self._folder, state)
            self._buckets[state.level, state.number] = bucket
        known = {bucket.path for bucket in self._buckets.values()}
        for name in self._disk.list(self._folder):
            path = f"{self._folder}/{name}"
            if path not in known and name.startswith(tuple(level.name for level in LEVELS)):
                self._disk.remove(path)

    # Adding

    def add(self, due_ms: int, number: int) -> None:
        """Add a message; in memory at once if it is due soon."""
        if due_ms < self._opened_ms[0]:
            self._add_tick(due_ms, number)
            self._add_entry(0, max(due_ms, self._floor_ms) // _MINUTE_MS, due_ms, number)
            return
        level = self._level_of(due_ms)
        self._add_entry(level, due_ms // LEVELS[level].size_ms, due_ms, number)

    def add_many(self, first: int, dues_ms: Iterable[int]) -> None:
        """Add messages with consecutive numbers from `first` on, with these due times."""
        by_minute: dict[int, list[int]] = {}
        for number, due_ms in enumerate(dues_ms, first):
            minute = due_ms // _MINUTE_MS
            if minute in by_minute:
                by_minute[minute] += (due_ms, number)
            else:
                by_minute[minute] = [due_ms, number]
        # Buckets start at whole minutes, so the entries of one minute go to the same bucket.
        for minute, entries in by_minute.items():
            start_ms = minute * _MINUTE_MS
            if start_ms < self._opened_ms[0]:
                for due_ms, number in zip(entries[::2], entries[1::2], strict=True):
                    self.add(due_ms, number)
            else:
                level = self._level_of(start_ms)
                bucket = self._bucket(level, start_ms // LEVELS[level].size_ms)
                bucket.extend(entries)
                self._count_buffered(bucket, len(entries) // 2)

    def _level_of(self, due_ms: int) -> int:
        """Return the finest level whose bucket for a time is not open yet."""
        level = 0
        while level < _COARSEST and due_ms >= self._opened_ms[level + 1]:
            level += 1
        return level

    def _add_tick(self, due_ms: int, number: int) -> None:
        tick = self._ticks.get(due_ms)
        if tick is None:
            self._ticks[due_ms] = array("q", (number,))
            heappush(self._heap, due_ms)
        else:
            tick.append(number)

    def _add_entry(self, level: int, bucket_number: int, due_ms: int, number: int) -> None:
        bucket = self._bucket(level, bucket_number)
        bucket.add(due_ms, number)
        self._count_buffered(bucket, 1)

    def _bucket(self, level: int, bucket_number: int) -> Bucket:
        bucket = self._buckets.get((level, bucket_number))
        if bucket is None:
            bucket = Bucket(
                self._disk,
                self._folder,
                level=level,
                number=bucket_number,
                serial=self.serial_next,
            )
            bucket.is_open = level == 0 and bucket.start_ms < self._opened_ms[0]
            self.serial_next += 1
            self._buckets[level, bucket_number] = bucket
        return bucket

    def _count_buffered(self, bucket: Bucket, count: int) -> None:
        """Count entries added to a bucket's buffer, and write it when it is large enough."""
        self._buffered += count
        try:
            if len(bucket.buffer) >= 2 * BLOCK_ENTRIES_MAX:
                buffered = len(bucket.buffer) // 2
                bucket.flush()
                self._buffered -= buffered
            elif self._buffered >= BUFFERED_ENTRIES_MAX:
                self.flush()
        except OSError as error:
            # The log has the message. The entry stays in memory until it can be written.
            _log.warning("%s cannot be written and is kept in memory: %s", bucket.path, error)

    def flush(self) -> None:
        """Write every buffer to its file."""
        for bucket in self._buckets.values():
            bucket.flush()
        self._buffered = 0

    # Distributing

    def advance(self, now_ms: int) -> None:
        """Open the buckets whose time approaches. `deal` then empties them in small steps."""
        self._floor_ms = max(self._floor_ms, now_ms)
        for number in range(_COARSEST, -1, -1):
            level = LEVELS[number]
            until_ms = (now_ms + level.lead_ms) // level.size_ms * level.size_ms + level.size_ms
            if until_ms > self._opened_ms[number]:
                self._opened_ms[number] = until_ms
                self._open(number, until_ms)

    def _open(self, level: int, until_ms: int) -> None:
        opening = [
            bucket
            for bucket in self._buckets.values()
            if bucket.level == level and bucket.start_ms < until_ms and not bucket.is_open
        ]
        for bucket in opening:
            entries = bucket.open()
            if level > 0:
                self._buffered -= len(entries) // 2
            self._dealing.append(bucket)
            self._carry_on(level, entries)

    @property
    def is_dealing(self) -> bool:
        return bool(self._dealing)

    def deal(self) -> None:
        """Distribute one block of entries; a bucket must be open for that."""
        bucket = self._dealing[0]
        if bucket.is_drained:
            self._dealing.popleft()
        else:
            self._carry_on(bucket.level, bucket.next_block())

    def _carry_on(self, level: int, entries: array[int]) -> None:
        put = self._add_tick if level == 0 else self.add
        for due_ms, number in zip(entries[::2], entries[1::2], strict=True):
            if self._is_current(number, due_ms):
                put(due_ms, number)

    # Taking

    def take_due(self, now_ms: int, count_max: int) -> list[tuple[int, int]]:
        """Take up to `count_max` due messages, with their due times, earliest first."""
        taken: list[tuple[int, int]] = []
        heap, is_current = self._heap, self._is_current
        while heap and heap[0] <= now_ms and len(taken) < count_max:
            due_ms = heap[0]
            numbers = self._ticks[due_ms]
            start = self._taken.pop(due_ms, 0)
            stop = start + count_max - len(taken)
            now = numbers[start:stop]
            taken += [(due_ms, number) for number in now if is_current(number, due_ms)]
            if stop < len(numbers):
                self._taken[due_ms] = stop
            else:
                del self._ticks[due_ms]
                heappop(heap)
        return taken

    def put_back(self, due_ms: int, number: int) -> None:
        """Undo the taking of a message: it is due as before, and still in its file."""
        self._add_tick(due_ms, number)

    def next_ms(self) -> int:
        """When the next action is needed: a message is due or a bucket must be opened."""
        opening_ms = min(
            opened_ms - level.lead_ms
            for level, opened_ms in zip(LEVELS, self._opened_ms, strict=True)
        )
        return min(self._heap[0], opening_ms) if self._heap else opening_ms

    def due_min_ms(self) -> int:
        """Return the earliest due time of all entries; `NEVER_MS` if there are none."""
        waiting = [
            bucket.due_min_ms
            for bucket in self._buckets.values()
            if not bucket.is_open or bucket in self._dealing
        ]
        return min([*waiting, self._heap[0] if self._heap else NEVER_MS])

    # Inspection

    def sources(self, from_ms: int, until_ms: int) -> Iterator[tuple[int, Iterator[array[int]]]]:
        """Yield (time, blocks) of a time range; no entry of a source is due before its time.

        The caller may pause between blocks: entries that are distributed in the meantime are
        still found once, and only once.
        """
        buckets = sorted(
            (
                bucket
                for bucket in self._buckets.values()
                if (not bucket.is_open or bucket in self._dealing)
                and bucket.start_ms < until_ms
                and bucket.end_ms > from_ms
            ),
            key=lambda bucket: bucket.start_ms,
        )
        spans = [
            (one, one.position, one.deal_until, array("q"))
            if one.is_open
            else (one, one.position, one.size, one.buffer[:])
            for one in buckets
        ]
        ticks = [
            (due_ms, self._ticks[due_ms][self._taken.get(due_ms, 0) :])
            for due_ms in sorted(self._heap)
            if from_ms <= due_ms < until_ms
        ]
        yield (ticks[0][0] if ticks else 0), _tick_blocks(ticks)
        for bucket, position, size, buffer in spans:
            start_ms = 0 if bucket.is_open else bucket.start_ms  # It may hold overdue entries.
            yield start_ms, _bucket_blocks(bucket, position, size, buffer)

    # Checkpoints

    def checkpoint(self, outstanding_ms: int) -> tuple[list[BucketState], list[Bucket]]:
        """Flush, drop completed buckets, and return the remaining states and what to sync.

        `outstanding_ms` is the earliest due time of a message that was taken and has not ended.
        """
        self.flush()
        low_ms = min(outstanding_ms, self._heap[0] if self._heap else NEVER_MS)
        for key, bucket in list(self._buckets.items()):
            is_over = bucket.is_open and bucket not in self._dealing
            if is_over and (bucket.level > 0 or bucket.end_ms <= low_ms):
                bucket.close()
                self._dropped += [bucket.path] if bucket.size else []
                del self._buckets[key]
        buckets = list(self._buckets.values())
        dirty = [bucket for bucket in buckets if bucket.is_dirty]
        for bucket in dirty:
            bucket.is_dirty = False
        return [bucket.state() for bucket in buckets], dirty

    def mark_dirty(self) -> None:
        """Mark all buckets for syncing again, because a checkpoint was not written."""
        for bucket in self._buckets.values():
            bucket.is_dirty = True

    def take_dropped(self) -> list[str]:
        """Return files that may be removed once a checkpoint without them is durable."""
        if self.readers:
            return []
        dropped, self._dropped = self._dropped, []
        return dropped

    def close(self) -> None:
        for bucket in self._buckets.values():
            bucket.close()


def _tick_blocks(ticks: list[tuple[int, array[int]]]) -> Iterator[array[int]]:
    block = array("q")
    for due_ms, numbers in ticks:
        for number in numbers:
            block.append(due_ms)
            block.append(number)
        if len(block) >= 2 * BLOCK_ENTRIES_MAX:
            yield block
            block = array("q")
    yield block


def _bucket_blocks(
    bucket: Bucket, position: int, size: int, buffer: array[int]
) -> Iterator[array[int]]:
    while position < size:
        entries, position = bucket.read_block(position)
        yield entries
    if buffer:
        yield buffer
