"""Sparse indexes of a segment: from offset to position, and from time to offset.

An index has one entry for about every four kilobytes of log. New entries stay in memory until the
log bytes before them are synced; only then are they written. So every entry of an index file refers
to the durable part of the log, and recovery reads only what comes after its last entry. When a
segment is complete and durable its offset index is sealed: the header then has the number of
entries and the end of the segment.

An index is never authoritative, and it is synced only occasionally, to keep recovery short. Each
entry has its own checksum, so that damage by a crash or a flipped bit is detected on use, and the
index is rebuilt.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import NamedTuple

from crc32c import crc32c

from goqueue.storage.disk import Disk, File

VERSION = 2
_HEADER = struct.Struct(">4sHHIQI")  # magic, version, flags, entries, end offset, checksum
HEADER_BYTES = _HEADER.size
_CHECKSUM = struct.Struct(">I")
_READ_ENTRIES = 512  # as cheap to read as one
_SEALED = 1
_HAS_ABORTED = 2

Entry = tuple[int, ...]


class DamagedIndex(Exception):
    """An index entry is damaged. The owner rebuilds the index."""


class Seal(NamedTuple):
    """What a sealed index has recorded about its segment."""

    entries: int
    end_offset: int
    has_aborted: bool = False  # whether a transaction was, or may have been, aborted in it


class Index:
    """Entries of ascending integers in a file, the newest of them still in memory.

    The file is read when it is first needed; a file that cannot be trusted counts as empty.
    """

    magic: bytes
    entry: struct.Struct

    __slots__ = (
        "_disk",
        "_entry_bytes",
        "_file",
        "_is_in_memory",
        "_path",
        "_pending",
        "_written",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._entry_bytes = self.entry.size + _CHECKSUM.size
        self._file: File | None = None
        self._written: int | None = None
        self._is_in_memory = False
        self._pending: list[Entry] = []

    def __len__(self) -> int:
        return self._count() + len(self._pending)

    def __getitem__(self, number: int) -> Entry:
        written = self._count()
        if number >= written:
            return self._pending[number - written]
        data = self._open().read(HEADER_BYTES + number * self._entry_bytes, self._entry_bytes)
        return self._unpack(data, number)

    def last(self) -> Entry | None:
        count = len(self)
        return self[count - 1] if count else None

    def add(self, *entry: int) -> None:
        self._pending.append(entry)

    def floor(self, target: int, *, by: int = 0) -> Entry | None:
        """Return the last entry whose field `by` is at most `target`."""
        number = self.floor_number(target, by=by)
        return self[number] if number >= 0 else None

    def floor_number(self, target: int, *, by: int = 0) -> int:
        """Return the number of the last entry whose field `by` is at most `target`, or -1."""
        written, pending = self._count(), self._pending
        if pending and pending[0][by] <= target:
            return written + bisect_right(pending, target, key=itemgetter(by)) - 1
        low, high = 0, written
        while high - low > _READ_ENTRIES:
            middle = (low + high) // 2
            if self[middle][by] <= target:
                low = middle + 1
            else:
                high = middle
        return self._floor_number_within(low, high, target, by=by)

    def _floor_number_within(self, low: int, high: int, target: int, *, by: int) -> int:
        """Return the same if the entry after it is one of these, or the first after them."""
        if low == high:
            return low - 1  # and a look-up creates no file
        size, unpack_from = self._entry_bytes, self.entry.unpack_from
        data = self._open().read(HEADER_BYTES + low * size, (high - low) * size)
        if len(data) < (high - low) * size:
            raise DamagedIndex(f"{self._path} ends early.")
        after = bisect_right(
            range(high - low), target, key=lambda n: unpack_from(data, n * size)[by]
        )
        # Entries ascend: two intact neighbours prove the result of the search.
        for number in range(max(0, after - 1), min(after + 1, high - low)):
            self._unpack(data[number * size : (number + 1) * size], low + number)
        return low + after - 1

    @property
    def file(self) -> File | None:
        """Return the file, if it is in use."""
        return self._file

    @property
    def pending(self) -> int:
        """Return how many entries are in memory."""
        return len(self._pending)

    def count_pending(self, *, second_below: int) -> int:
        """Return how many entries in memory have a second field below `second_below`."""
        return bisect_left(self._pending, second_below, key=lambda entry: entry[1])

    def write_pending(self, ready: int) -> None:
        """Write the first `ready` entries from memory."""
        pending = self._pending
        if not ready:
            return
        written = self._count()
        file = self._open()
        try:
            file.append(b"".join(self._pack(entry) for entry in pending[:ready]))
        except OSError:
            file.truncate(HEADER_BYTES + written * self._entry_bytes)
            raise
        self._written = written + ready
        del pending[:ready]

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        written = self._count()
        if count < written:
            self._open().truncate(HEADER_BYTES + count * self._entry_bytes)
            self._written = count
            self._pending.clear()
        else:
            del self._pending[count - written :]

    def seal_found(self) -> Seal | None:
        """Return the seal; None if there is none or entries are missing."""
        count = self._count()
        if not count:
            return None
        found = self._read_header(self._open())
        return found if found is not None and found.entries == count else None

    def seal(self, end_offset: int, *, has_aborted: bool = False) -> None:
        """Write everything and mark the segment, which the caller has synced, as complete."""
        self.write_pending(len(self._pending))
        count = self._count()
        flags = _SEALED | _HAS_ABORTED if has_aborted else _SEALED
        self._open().overwrite(0, self._pack_header(flags, count, end_offset))
        self.close()

    def unseal(self) -> None:
        """Remove the seal durably, because the segment will grow again."""
        if self.seal_found() is not None:
            self._open().overwrite(0, self._pack_header(0, 0, 0))
            self._open().sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def remove(self) -> None:
        """Drop everything, including the file."""
        if self._file is not None:
            self._file.retire()  # a thread may be about to sync it
        self._file, self._written = None, 0
        self._pending.clear()
        if not self._is_in_memory and self._disk.exists(self._path):
            self._disk.remove(self._path)

    def forget_file(self) -> None:
        """Become an empty in-memory index: the file's name belongs to another index now."""
        self._is_in_memory = True
        self.remove()

    def _count(self) -> int:
        """Return how many entries are in the file."""
        if self._written is None:
            self._written = self._load()
        return self._written

    def _load(self) -> int:
        if not self._disk.exists(self._path):
            return 0
        file = self._open()
        count, excess = divmod(file.size() - HEADER_BYTES, self._entry_bytes)
        if count < 0 or self._read_header(file) is None:
            self._file = None
            file.close()
            self._disk.remove(self._path)
            return 0
        if excess:
            file.truncate(HEADER_BYTES + count * self._entry_bytes)
        return count

    def _read_header(self, file: File) -> Seal | None:
        """Return the seal of a valid header; an unsealed one has -1 entries."""
        data = file.read(0, HEADER_BYTES)
        magic, version, flags, count, end_offset, checksum = _HEADER.unpack(data)
        if (magic, version) != (self.magic, VERSION):
            return None
        if crc32c(data[: -_CHECKSUM.size]) != checksum:
            return None
        if not flags & _SEALED:
            return Seal(-1, -1)
        return Seal(count, end_offset, bool(flags & _HAS_ABORTED))

    def _pack_header(self, flags: int, count: int, end_offset: int) -> bytes:
        data = _HEADER.pack(self.magic, VERSION, flags, count, end_offset, 0)
        data = data[: -_CHECKSUM.size]
        return data + _CHECKSUM.pack(crc32c(data))

    def _pack(self, entry: Entry) -> bytes:
        data = self.entry.pack(*entry)
        return data + _CHECKSUM.pack(crc32c(data))

    def _unpack(self, data: bytes, number: int) -> Entry:
        split = self.entry.size
        if len(data) < self._entry_bytes or data[split:] != _CHECKSUM.pack(crc32c(data[:split])):
            raise DamagedIndex(f"Entry {number} of {self._path} is damaged.")
        return self.entry.unpack_from(data)

    def _open(self) -> File:
        if self._file is None:
            if self._disk.exists(self._path):
                self._file = self._disk.open(self._path)
            else:
                file = self._disk.create(self._path)
                try:
                    file.append(self._pack_header(0, 0, 0))
                except OSError:
                    self._disk.remove(self._path)
                    raise
                self._file = file
        return self._file


class OffsetIndex(Index):
    """(offset relative to the segment, byte position of the batch that starts with it)."""

    magic = b"GQOI"
    entry = struct.Struct(">II")
    __slots__ = ()


class TimeIndex(Index):
    """(largest timestamp so far, relative offset of the batch that has it)."""

    magic = b"GQTI"
    entry = struct.Struct(">qI")
    __slots__ = ()
