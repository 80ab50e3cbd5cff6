"""Indexes of a segment: offset to position, time to offset, and aborted transactions.

The first two are sparse, with one entry for about every four kilobytes of log. New entries stay in
memory until the log bytes before them are synced; only then are they written. So every entry of an
index file refers to the durable part of the log, and recovery reads only what comes after its last
entry. When a segment is complete and durable its indexes are sealed: the header then has the number
of entries and the end of the segment.

An index is never authoritative, and it is synced only occasionally, to keep recovery short. Each
entry has its own checksum, so that damage by a crash or a flipped bit is detected on use, and the
index is rebuilt.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from crc32c import crc32c

from goqueue.model.batch import TRANSACTIONAL, BatchHeader
from goqueue.storage.disk import Disk, File

INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
KEYS_SUFFIX = ".keys"  # see `key_filters`
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, KEYS_SUFFIX)
VERSION = 2
NOT_KNOWN = -2

_HEADER = struct.Struct(">4sHHIQI")  # magic, version, flags, entries, end offset, checksum
_HEADER_BYTES = _HEADER.size
_CHECKSUM = struct.Struct(">I")
_READ_ENTRIES = 512  # as cheap to read as one
_SEALED = 1
_HAS_ABORTED = 2
_BLOCK_ENTRIES = 128  # of aborted transactions, read at once
_WRITE_ENTRIES_MIN = 32
_SYNC_ENTRIES = 4096  # 16 MB of log to verify after a power failure

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
        "_pending",
        "_written",
        "path",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
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
        data = self._open().read(_HEADER_BYTES + number * self._entry_bytes, self._entry_bytes)
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
        data = self._open().read(_HEADER_BYTES + low * size, (high - low) * size)
        if len(data) < (high - low) * size:
            raise DamagedIndex(f"{self.path} ends early.")
        after = bisect_right(
            range(high - low), target, key=lambda n: unpack_from(data, n * size)[by]
        )
        # Entries ascend: two intact neighbours prove the result of the search.
        for number in range(max(0, after - 1), min(after + 1, high - low)):
            self._unpack(data[number * size : (number + 1) * size], low + number)
        return low + after - 1

    def pending_floor(self, target: int) -> Entry | None:
        """Return the last entry whose first field is at most `target`, if it is in memory."""
        number = bisect_right(self._pending, target, key=itemgetter(0)) - 1
        return self._pending[number] if number >= 0 else None

    def written_floor(self, file: File, target: int) -> Entry | None:
        """Return the same of the entries in the file, for another thread, which has opened it."""
        low, high = 0, max(0, file.size() - _HEADER_BYTES) // self._entry_bytes
        found: Entry | None = None
        while low < high:
            middle = (low + high) // 2
            data = file.read(_HEADER_BYTES + middle * self._entry_bytes, self._entry_bytes)
            entry = self._unpack(data, middle)
            if entry[0] <= target:
                low, found = middle + 1, entry
            else:
                high = middle
        return found

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
            file.truncate(_HEADER_BYTES + written * self._entry_bytes)
            raise
        self._written = written + ready
        del pending[:ready]

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        written = self._count()
        if count < written:
            self._open().truncate(_HEADER_BYTES + count * self._entry_bytes)
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
        if not self._is_in_memory and self._disk.exists(self.path):
            self._disk.remove(self.path)

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
        if not self._disk.exists(self.path):
            return 0
        file = self._open()
        count, excess = divmod(file.size() - _HEADER_BYTES, self._entry_bytes)
        if count < 0 or self._read_header(file) is None:
            self._file = None
            file.close()
            self._disk.remove(self.path)
            return 0
        if excess:
            file.truncate(_HEADER_BYTES + count * self._entry_bytes)
        return count

    def _read_header(self, file: File) -> Seal | None:
        """Return the seal of a valid header; an unsealed one has -1 entries."""
        data = file.read(0, _HEADER_BYTES)
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
            raise DamagedIndex(f"Entry {number} of {self.path} is damaged.")
        return self.entry.unpack_from(data)

    def _open(self) -> File:
        if self._file is None:
            if self._disk.exists(self.path):
                self._file = self._disk.open(self.path)
            else:
                file = self._disk.create(self.path)
                try:
                    file.append(self._pack_header(0, 0, 0))
                except OSError:
                    self._disk.remove(self.path)
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


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted in this partition; `last_offset` is that of its marker.

    All transactions that started before `last_stable_offset` had ended when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedSpans:
    """Aborted transactions, arranged for fast look-up by batch."""

    __slots__ = ("_spans",)

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        # By producer; its transactions do not overlap, so these are in order.
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for one in aborted:
            self._spans.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))

    def __bool__(self) -> bool:
        return bool(self._spans)

    def cover(self, header: BatchHeader) -> bool:
        """Return whether a batch belongs to one of the transactions."""
        spans = self._spans.get(header.producer_id)
        if spans is None or not header.attributes & TRANSACTIONAL:
            return False
        at = bisect_right(spans, header.base_offset, key=lambda span: span[0]) - 1
        return at >= 0 and header.base_offset <= spans[at][1]


class TransactionIndex(Index):
    """Aborted transactions in the order of their markers, in a file if there are any.

    A read-committed reader receives whole ranges of the log, and a list of aborted transactions to
    skip. The log itself shows an abort only at a transaction's end, so each abort is indexed in the
    segment of its marker.
    """

    magic = b"GQTX"
    entry = struct.Struct(">qqqq")
    __slots__ = ()

    def entries(self, number: int = 0) -> Iterator[AbortedTransaction]:
        """Yield the entries from one on; those in the file are read a block at a time."""
        size = self._entry_bytes
        while (left := self._count() - number) > 0:
            count = min(_BLOCK_ENTRIES, left)
            data = self._open().read(_HEADER_BYTES + number * size, count * size)
            for at in range(0, count * size, size):
                yield AbortedTransaction._make(self._unpack(data[at : at + size], number))
                number += 1
        for pending in range(number, len(self)):
            yield AbortedTransaction._make(self[pending])

    def overlapping(self, first_offset: int, until_offset: int) -> Iterator[AbortedTransaction]:
        """Yield transactions with their markers at `first_offset` or later.

        They end with the one after which none can have started before `until_offset`.
        """
        for aborted in self.entries(self.floor_number(first_offset - 1, by=2) + 1):
            yield aborted
            if aborted.last_stable_offset >= until_offset:
                return

    def write_before(self, offset: int) -> None:
        """Write the entries whose markers, before `offset`, are synced in the log."""
        self.write_pending(bisect_left(self._pending, offset, key=lambda entry: entry[2]))

    def seal_found(self) -> Seal | None:
        """Return the seal; unlike other indexes this one may be complete and empty."""
        count = self._count()
        if not count and not self._disk.exists(self.path):
            return None
        found = self._read_header(self._open())
        return found if found is not None and found.entries == count else None

    def cut_from(self, offset: int) -> None:
        """Drop the transactions whose markers are at `offset` or later."""
        self.cut(self.floor_number(offset - 1, by=2) + 1)


class SegmentIndexes:
    """The indexes of one segment; those by offset and by time have the same number of entries."""

    __slots__ = (
        "_sync_due",
        "aborted",
        "aborted_count",
        "indexed_to",
        "max_timestamp",
        "newest_relative",
        "offsets",
        "times",
    )

    def __init__(
        self,
        disk: Disk,
        stem: str,
        suffix: str,
        *,
        indexed_to: int,
        max_timestamp: int,
        aborted_count: int,
    ) -> None:
        self.offsets = OffsetIndex(disk, stem + INDEX_SUFFIX + suffix)
        self.times = TimeIndex(disk, stem + TIME_INDEX_SUFFIX + suffix)
        self.aborted = TransactionIndex(disk, stem + TRANSACTION_INDEX_SUFFIX + suffix)
        # Position of the last batch with an entry.
        self.indexed_to = indexed_to
        # The newest record so far, and the relative offset of its batch; NOT_KNOWN only in a
        # segment that does not grow.
        self.max_timestamp = max_timestamp
        self.newest_relative = 0
        # Number of transactions with their abort marker in the segment, or NOT_KNOWN. An index with
        # another number of entries is rebuilt from the log.
        self.aborted_count = aborted_count
        self._sync_due = _SYNC_ENTRIES

    @property
    def is_usable(self) -> bool:
        """Return whether the indexes by offset and by time have entries, and equally many."""
        count = len(self.offsets)
        return count > 0 and count == len(self.times)

    def add(self, relative: int, position: int, newest: int, newest_relative: int) -> None:
        """Add a batch to the indexes by offset and by time."""
        self.offsets.add(relative, position)
        self.times.add(newest, newest_relative)
        self.indexed_to = position

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose abort marker is in the segment."""
        assert self.aborted_count >= 0, "what is not known cannot be added to"
        self.aborted.add(*aborted)
        self.aborted_count += 1

    def keep(self, count: int) -> None:
        """Keep the first `count` entries by offset and by time."""
        self.offsets.cut(count)
        self.times.cut(count)
        last = self.offsets.last()
        self.indexed_to = 0 if last is None else last[1]

    def drop(self) -> None:
        """Remove the files by offset and by time; they are rebuilt when they are needed."""
        self.offsets.remove()
        self.times.remove()

    # Files

    def write_synced(self, position: int, end_offset: int) -> None:
        """Write entries, since the log is durable up to a position and offset."""
        if self.offsets.pending >= _WRITE_ENTRIES_MIN:
            self._write(self.offsets.count_pending(second_below=position))
        if self.aborted.pending:
            self.aborted.write_before(end_offset)

    def write_all(self) -> None:
        """Write all entries; the caller has synced the log."""
        self._write(self.offsets.pending)
        self.aborted.write_pending(self.aborted.pending)

    def _write(self, ready: int) -> None:
        # Times first: their entries without a counterpart are dropped at the next start.
        self.times.write_pending(ready)
        self.offsets.write_pending(ready)
        self._sync_due -= ready

    @property
    def files(self) -> list[File]:
        """Return the files in use, that by offset last."""
        indexes = (self.times, self.aborted, self.offsets)
        return [index.file for index in indexes if index.file is not None]

    def take_grown(self) -> list[File]:
        """Return the files if they have grown enough to be worth a sync."""
        if self._sync_due > 0:
            return []
        self._sync_due = _SYNC_ENTRIES
        return self.files

    def close(self) -> None:
        for index in (self.offsets, self.times, self.aborted):
            index.close()

    def remove(self) -> None:
        for index in (self.offsets, self.times, self.aborted):
            index.remove()

    def forget_files(self) -> None:
        """Become empty in-memory indexes: the names of the files belong to others now."""
        for index in (self.offsets, self.times, self.aborted):
            index.forget_file()

    # Seals

    def seal(self, end_offset: int) -> None:
        """Write everything, and mark the segment as complete; the caller has synced it."""
        if self.aborted_count > 0:
            self.aborted.seal(end_offset)
        has_aborted = self.aborted_count != 0
        self.offsets.seal(end_offset, has_aborted=has_aborted)
        self.times.seal(end_offset, has_aborted=has_aborted)

    def seal_found(self) -> Seal | None:
        """Return the seal, if the indexes by offset and by time have the same; load its count."""
        seal = self.offsets.seal_found()
        if seal is None or seal != self.times.seal_found():
            return None
        self.aborted_count = NOT_KNOWN if seal.has_aborted else 0
        return seal

    # Aborted transactions

    def is_aborted_known(self, end_offset: int) -> bool:
        """Return whether the index of aborted transactions is complete, up to the segment's end."""
        if self.aborted_count == NOT_KNOWN:
            seal = self.aborted.seal_found()
            if seal is None or seal.end_offset != end_offset:
                return False
            self.aborted_count = seal.entries
        return len(self.aborted) == self.aborted_count

    def replace_aborted(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """Replace the index of aborted transactions by what the log contains."""
        self.aborted.remove()
        self.aborted_count = 0
        for one in aborted:
            self.add_aborted(one)

    def truncate_aborted(self, offset: int) -> None:
        """Drop the transactions whose markers are at `offset` or later."""
        try:
            if self.aborted_count > 0:
                self.aborted.unseal()
                self.aborted.cut_from(offset)
                self.aborted_count = len(self.aborted)
        except DamagedIndex:
            self.aborted_count = NOT_KNOWN
        if self.aborted_count == NOT_KNOWN:
            self.aborted.remove()


def aborted_by(
    marker: BatchHeader, *, first_offset: int, still_open: Iterable[int]
) -> AbortedTransaction:
    """Return the entry for a marker; `still_open` are the first offsets of the others, in order."""
    stable = next(iter(still_open), marker.next_offset)
    return AbortedTransaction(marker.producer_id, first_offset, marker.base_offset, stable)
