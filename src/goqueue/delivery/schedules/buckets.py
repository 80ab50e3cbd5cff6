"""Time buckets on disk: the messages due in a range of time, unordered within it.

A bucket file has a header and blocks of entries. An entry is the due time and the number of one
message; a block has its length and a checksum. Files are append-only. Their contents can be rebuilt
from the log, so damage is reported as `DamagedBucket` and repaired by rebuilding.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from goqueue.storage.disk import Disk, File

ENTRY_BYTES = 16
BLOCK_ENTRIES_MAX = 1024

_HEADER = struct.Struct("<4sHH")
_MAGIC = b"GQTB"
_VERSION = 1
_BLOCK = struct.Struct("<II")  # entries, checksum
_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS


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
        "deal_until",
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
        self.deal_until = 0  # up to where they have to be; a minute's later entries are in memory
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
        return self.position >= self.deal_until

    def open(self) -> array[int]:
        """Start to distribute the entries: `next_block` reads those on disk.

        Return the buffered entries. A minute bucket also keeps them, to be written.
        """
        self.is_open = True
        self.deal_until = self.size
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
