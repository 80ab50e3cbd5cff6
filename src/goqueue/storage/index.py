"""Sparse indexes of a segment: from offset to position, and from time to offset.

An index holds one entry for about every four kilobytes of log. New entries wait in memory until
the log bytes before them are synced; only then are they written. Hence whatever an index file
says lies in the durable part of the log, and recovery need read only what comes after its last
entry. An index is never the truth: a missing or damaged one is built again from the log.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator

from goqueue.storage.disk import Disk, File

VERSION = 1
HEADER_BYTES = 8
_HEADER = struct.Struct(">4sHH")
_SEALED = 1
_WRITE_ENTRIES_MIN = 32


class Index:
    """Entries of two ascending integers in a file, the newest of them still in memory.

    The file is looked at when it is first needed; one that cannot be trusted counts as empty.
    """

    magic: bytes
    entry: struct.Struct

    __slots__ = ("_disk", "_file", "_path", "_pending", "_written")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._written: int | None = None
        self._pending: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return self._count() + len(self._pending)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> tuple[int, int]:
        written = self._count()
        if number >= written:
            return self._pending[number - written]
        data = self._open().read(HEADER_BYTES + number * self.entry.size, self.entry.size)
        if len(data) < self.entry.size:
            return (-1, -1)  # Cut off behind our back: below everything, so searches step over it.
        first, second = self.entry.unpack(data)
        return first, second

    def add(self, first: int, second: int) -> None:
        self._pending.append((first, second))

    def floor(self, target: int, *, by: int = 0) -> int:
        """The number of the last entry whose field `by` is at most `target`, or -1."""
        written, pending = self._count(), self._pending
        if pending and pending[0][by] <= target:
            low, high = written, written + len(pending)
        else:
            low, high = 0, written
        return bisect_right(range(high), target, lo=low, key=lambda n: self[n][by]) - 1

    def write_pending(self, *, second_max: int, at_once: bool = False) -> None:
        """Write the waiting entries whose second field is at most `second_max`."""
        pending = self._pending
        if not pending or (len(pending) < _WRITE_ENTRIES_MIN and not at_once):
            return
        ready = bisect_right(pending, second_max, key=lambda entry: entry[1])
        if not ready:
            return
        written = self._count()
        self._open().append(b"".join(self.entry.pack(*entry) for entry in pending[:ready]))
        self._written = written + ready
        del pending[:ready]

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        written = self._count()
        if count < written:
            self._open().truncate(HEADER_BYTES + count * self.entry.size)
            self._written = count
            self._pending.clear()
        else:
            del self._pending[count - written :]

    def is_sealed(self) -> bool:
        """Whether the segment was complete and durable when this was last written."""
        return self._count() > 0 and bool(self._header()[2] & _SEALED)

    def seal(self) -> None:
        """Write everything and mark the segment, which the caller has synced, as complete."""
        self.write_pending(second_max=1 << 62, at_once=True)
        self._count()
        self._open().overwrite(0, _HEADER.pack(self.magic, VERSION, _SEALED))
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def remove(self) -> None:
        self.close()
        self._file, self._written = None, None
        self._pending.clear()
        if self._disk.exists(self._path):
            self._disk.remove(self._path)

    def _count(self) -> int:
        """How many entries are in the file."""
        if self._written is None:
            self._written = self._load()
        return self._written

    def _load(self) -> int:
        if not self._disk.exists(self._path):
            return 0
        file = self._open()
        count, excess = divmod(file.size() - HEADER_BYTES, self.entry.size)
        if count < 0 or self._header()[:2] != (self.magic, VERSION):
            self._file = None
            file.close()
            self._disk.remove(self._path)
            return 0
        if excess:
            file.truncate(HEADER_BYTES + count * self.entry.size)
        return count

    def _header(self) -> tuple[bytes, int, int]:
        magic, version, flags = _HEADER.unpack(self._open().read(0, HEADER_BYTES))
        return magic, version, flags

    def _open(self) -> File:
        if self._file is None:
            if self._disk.exists(self._path):
                self._file = self._disk.open(self._path)
            else:
                self._file = self._disk.create(self._path)
                self._file.append(_HEADER.pack(self.magic, VERSION, 0))
        return self._file


class OffsetIndex(Index):
    """(offset relative to the segment, byte position of the batch that begins with it)."""

    magic = b"GQOI"
    entry = struct.Struct(">II")
    __slots__ = ()


class TimeIndex(Index):
    """(largest timestamp up to here, offset relative to the segment of the batch that has it)."""

    magic = b"GQTI"
    entry = struct.Struct(">qI")
    __slots__ = ()
