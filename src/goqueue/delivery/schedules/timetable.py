"""When each message is due: a hierarchical timing wheel.

A message that is due in the far future is an entry in a coarse bucket, on disk. As its time
approaches, the bucket is opened and its entries are distributed to finer buckets, a block at a
time, until those of the coming minute are in memory: an array of numbers per due time, and a heap
of the due times. A minute bucket keeps its file while it is in memory, for the next start.

The timetable does not track the state of messages. It calls `is_current` before it moves an entry
on, so that entries of cancelled or moved messages are dropped.

A bucket holds the messages due in a range of time, unordered within it. Its file has a header and
blocks of entries. An entry is the due time and the number of one message; a block has its length
and a checksum. Files are append-only. Their contents can be rebuilt from the log, so damage is
reported as `DamagedBucket` and repaired by rebuilding.
"""

from __future__ import annotations

import logging
import struct
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from goqueue.storage.disk import Disk, File

ENTRY_BYTES = 16
BLOCK_ENTRIES_MAX = 1024
BUFFERED_ENTRIES_MAX = 65_536  # over all buckets; then all are written
NEVER_MS = 1 << 62

_HEADER = struct.Struct("<4sHH")
_MAGIC = b"GQTB"
_VERSION = 1
_BLOCK = struct.Struct("<II")  # entries, checksum
_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS

_log = logging.getLogger(__name__)

IsCurrent = Callable[[int, int], bool]  # number, due time


class Level(NamedTuple):
    """One size of buckets, and how long before its start a bucket is opened and split up."""

    name: str
    size_ms: int
    lead_ms: int


# Each size holds a few dozen of the next smaller one, so that a hundred years need fewer than two
# hundred files. The lead times allow a large bucket to be split up in small steps.
LEVELS = (
    Level("minute", _MINUTE_MS, 20 * _SECOND_MS),
    Level("hour", _HOUR_MS, 5 * _MINUTE_MS),
    Level("day", _DAY_MS, _HOUR_MS),
    Level("days32", 32 * _DAY_MS, 12 * _HOUR_MS),
    Level("days1024", 1024 * _DAY_MS, 5 * _DAY_MS),
)

_COARSEST = len(LEVELS) - 1


class DamagedBucket(Exception):
    """A bucket file does not contain what was written to it."""


class BucketState(msgspec.Struct, array_like=True, frozen=True):
    """A bucket file as recorded in a checkpoint: what lies beyond `size` is ignored."""

    level: int
    number: int
    serial: int
    size: int
    position: int
    due_min_ms: int


class Bucket:
    """One bucket: entries on disk, and the newest ones in a buffer."""

    __slots__ = (
        "_disk",
        "_file",
        "buffer",
        "cascade_until",
        "due_min_ms",
        "is_dirty",
        "is_open",
        "level",
        "number",
        "path",
        "position",
        "serial",
        "size",
    )

    def __init__(self, disk: Disk, folder: str, *, level: int, number: int, serial: int) -> None:
        self._disk = disk
        self._file: File | None = None
        self.level = level
        self.number = number
        self.serial = serial  # never reused, so that the files of a checkpoint are not overwritten
        self.path = f"{folder}/{LEVELS[level].name}-{number}-{serial}"
        self.buffer = array("q")
        self.size = 0
        self.position = 0  # up to where entries have been distributed to finer buckets
        self.cascade_until = (
            0  # up to where they have to be; a minute's later entries are in memory
        )
        self.due_min_ms = 1 << 62
        self.is_dirty = False
        self.is_open = False

    @classmethod
    def restore(cls, disk: Disk, folder: str, state: BucketState) -> Bucket:
        """Open the bucket of a checkpoint; `DamagedBucket` if its file is missing or short."""
        bucket = cls(disk, folder, level=state.level, number=state.number, serial=state.serial)
        if not disk.exists(bucket.path):
            raise DamagedBucket(f"{bucket.path} is missing.")
        bucket._file = disk.open(bucket.path)
        size = bucket._file.size()
        if size < state.size:
            raise DamagedBucket(f"{bucket.path} has {size} bytes; {state.size} were synced.")
        if size > state.size:
            bucket._file.truncate(state.size)
        bucket.size, bucket.position = state.size, state.position
        bucket.due_min_ms = state.due_min_ms
        return bucket

    @property
    def start_ms(self) -> int:
        return self.number * LEVELS[self.level].size_ms

    @property
    def end_ms(self) -> int:
        return self.start_ms + LEVELS[self.level].size_ms

    @property
    def is_drained(self) -> bool:
        return self.position >= self.cascade_until

    def open(self) -> array[int]:
        """Start to distribute the entries: `next_block` reads those on disk.

        Return the buffered entries. A minute bucket also keeps them, to be written.
        """
        self.is_open = True
        self.cascade_until = self.size
        entries = self.buffer[:]
        if self.level > 0:
            self.buffer = array("q")
        return entries

    def state(self) -> BucketState:
        """Return the state on disk; a minute bucket is read from its start after a restart."""
        position = 0 if self.level == 0 else self.position
        return BucketState(
            self.level, self.number, self.serial, self.size, position, self.due_min_ms
        )

    def add(self, due_ms: int, number: int) -> None:
        buffer = self.buffer
        buffer.append(due_ms)
        buffer.append(number)
        if due_ms < self.due_min_ms:
            self.due_min_ms = due_ms

    def extend(self, entries: list[int]) -> None:
        """Add many entries, due time and number alternating."""
        self.buffer.extend(entries)
        self.due_min_ms = min(self.due_min_ms, *entries[::2])

    def flush(self) -> None:
        """Write the buffer to the file without syncing; on an error it stays buffered."""
        if not self.buffer:
            return
        if self._file is None:
            self._file = self._disk.create(self.path)
        data = bytearray() if self.size else bytearray(_HEADER.pack(_MAGIC, _VERSION, self.level))
        for start in range(0, len(self.buffer), 2 * BLOCK_ENTRIES_MAX):
            entries = _little_endian(self.buffer[start : start + 2 * BLOCK_ENTRIES_MAX]).tobytes()
            data += _BLOCK.pack(len(entries) // ENTRY_BYTES, crc32c(entries)) + entries
        self._file.truncate(self.size)  # Remove the remains of a failed write.
        self._file.append(data)
        self.size += len(data)
        self.buffer = array("q")
        self.is_dirty = True

    def next_block(self) -> array[int]:
        """Return the next entries to be distributed, due time and number alternating."""
        entries, self.position = self.read_block(self.position)
        return entries

    def read_block(self, position: int) -> tuple[array[int], int]:
        """Return the block at a position, and the position after it."""
        assert self._file is not None
        position = max(position, _HEADER.size)
        head = self._file.read(position, _BLOCK.size)
        if len(head) < _BLOCK.size:
            raise DamagedBucket(f"{self.path} ends at byte {position}; it has {self.size}.")
        count, checksum = _BLOCK.unpack(head)
        start = position + _BLOCK.size
        if not 0 < count <= BLOCK_ENTRIES_MAX or start + count * ENTRY_BYTES > self.size:
            raise DamagedBucket(f"{self.path} has a block of {count} entries at byte {position}.")
        data = self._file.read(start, count * ENTRY_BYTES)
        if crc32c(data) != checksum:
            raise DamagedBucket(f"{self.path} fails its checksum at byte {position}.")
        return _little_endian(array("q", data)), start + len(data)

    def sync(self) -> None:
        """Make what was flushed durable. Blocks, and may run outside the event loop."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _little_endian(entries: array[int]) -> array[int]:
    """Convert entries between the byte orders of memory and disk."""
    if sys.byteorder == "big":
        entries = entries[:]
        entries.byteswap()
    return entries


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
        self._cascading: deque[Bucket] = deque()
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

    # Cascading

    def advance(self, now_ms: int) -> None:
        """Open the buckets whose time approaches. `cascade` then empties them in small steps."""
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
            self._cascading.append(bucket)
            self._move_on(level, entries)

    @property
    def is_cascading(self) -> bool:
        return bool(self._cascading)

    def cascade(self) -> None:
        """Distribute one block of entries; a bucket must be open for that."""
        bucket = self._cascading[0]
        if bucket.is_drained:
            self._cascading.popleft()
        else:
            self._move_on(bucket.level, bucket.next_block())

    def _move_on(self, level: int, entries: array[int]) -> None:
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
            if not bucket.is_open or bucket in self._cascading
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
                if (not bucket.is_open or bucket in self._cascading)
                and bucket.start_ms < until_ms
                and bucket.end_ms > from_ms
            ),
            key=lambda bucket: bucket.start_ms,
        )
        spans = [
            (one, one.position, one.cascade_until, array("q"))
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
            is_over = bucket.is_open and bucket not in self._cascading
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
