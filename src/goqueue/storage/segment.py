"""One segment: a file of batches with its indexes; appends, sealing and truncation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from goqueue.model.batch import CONTROL, HEADER_BYTES, NO_TIMESTAMP, BatchHeader
from goqueue.model.compression import Buffer
from goqueue.model.errors import CorruptBatch
from goqueue.model.runs import mark_run
from goqueue.storage.disk import Disk, File
from goqueue.storage.index import DamagedIndex, OffsetIndex, TimeIndex
from goqueue.storage.scanning import BatchFile, Located, Place
from goqueue.storage.transaction_index import AbortedTransaction, TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
NOT_KNOWN = -2

_INDEX_INTERVAL_BYTES = 4096
_INDEX_WRITE_ENTRIES_MIN = 32
_INDEX_SYNC_ENTRIES = 4096  # 16 MB of log to verify after a power failure
_STARTS_MAX = 16  # readers of a segment that continue without a search

Found = TypeVar("Found")


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment(BatchFile):
    """Batches with offsets from `base_offset` on. Only the newest segment of a log grows."""

    __slots__ = (
        "_disk",
        "_has_torn_end",
        "_index_sync_due",
        "_indexed_to",
        "_max_timestamp",
        "_newest_relative",
        "_starts",
        "aborted",
        "aborted_count",
        "created_ms",
        "durable_to",
        "index",
        "is_sealed",
        "times",
        "trusted_from",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        file: File,
        *,
        size: int,
        end_offset: int,
        created_ms: int,
        max_timestamp: int = NOT_KNOWN,
        aborted_count: int = NOT_KNOWN,
        is_sealed: bool = False,
        name_suffix: str = "",
    ) -> None:
        stem = f"{folder}/{segment_name(base_offset)}"
        super().__init__(file, base_offset=base_offset, size=size, end_offset=end_offset)
        self._disk = disk
        self.created_ms = created_ms
        self.is_sealed = is_sealed
        self.index = OffsetIndex(disk, stem + INDEX_SUFFIX + name_suffix)
        self.times = TimeIndex(disk, stem + TIME_INDEX_SUFFIX + name_suffix)
        self.aborted = TransactionIndex(disk, stem + TRANSACTION_INDEX_SUFFIX + name_suffix)
        # Number of transactions with their abort marker here, if known.
        self.aborted_count = aborted_count
        # Bytes before this survive a power failure: in the file, or in the commit journal.
        self.durable_to = size
        # Bytes from here on were verified and written by this process: they may be sent unread.
        self.trusted_from = size
        self._indexed_to = size
        self._max_timestamp = max_timestamp
        self._newest_relative = 0
        self._has_torn_end = False
        self._index_sync_due = _INDEX_SYNC_ENTRIES
        # Positions of batches at which a reader has stopped, by their offsets.
        self._starts: dict[int, int] = {}

    @classmethod
    def create(
        cls,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        now_ms: int,
        lazily: bool = False,
        name_suffix: str = "",
    ) -> Segment:
        stem = f"{folder}/{segment_name(base_offset)}"
        for suffix in INDEX_SUFFIXES:
            if disk.exists(stem + suffix + name_suffix):
                disk.remove(stem + suffix + name_suffix)
        file = disk.create(stem + LOG_SUFFIX + name_suffix, lazily=lazily)
        return cls(
            disk,
            folder,
            base_offset,
            file,
            size=0,
            end_offset=base_offset,
            created_ms=now_ms,
            max_timestamp=NO_TIMESTAMP,
            aborted_count=0,
            name_suffix=name_suffix,
        )

    # Writes

    def append(self, batch: memoryview, header: BatchHeader, *, index_interval_bytes: int) -> None:
        """Append one stamped batch; on an error the file is as it was before."""
        position = self._write(batch)
        self.note_batch(position, header, index_interval_bytes=index_interval_bytes)

    def append_run(self, run: bytes, next_offset: int, *, index_interval_bytes: int) -> None:
        """Append consecutive batches: all are written or none."""
        base, position = self.base_offset, self._write(run)
        due = self._indexed_to + index_interval_bytes if position else 0
        marks, newest, newest_offset = mark_run(
            run,
            position,
            due,
            index_interval_bytes,
            self.max_timestamp,
            base + self._newest_relative,
        )
        self._max_timestamp, self._newest_relative = newest, newest_offset - base
        for offset, place, newest, newest_offset in marks:
            self._mark(offset - base, place, newest, newest_offset - base)
        self.end_offset = next_offset

    def _write(self, data: Buffer) -> int:
        """Append bytes to the file, and return their position."""
        position = self.size
        if self._has_torn_end:
            self.file.truncate(position)
            self._has_torn_end = False
        try:
            self.file.append(data)
        except OSError:
            # Nothing may be written after a failed write until its rest is truncated.
            self._has_torn_end = True
            self.file.truncate(position)
            self._has_torn_end = False
            raise
        self.size = position + len(data)
        return position

    def note_batch(self, position: int, header: BatchHeader, *, index_interval_bytes: int) -> None:
        """Account for a batch in the file: end offset, time, indexes."""
        relative = header.base_offset - self.base_offset
        # A marker's timestamp belongs to no record, so it must not be indexed.
        if header.max_timestamp > self.max_timestamp and not header.attributes & CONTROL:
            self._max_timestamp = header.max_timestamp
            self._newest_relative = relative
        if position >= self._indexed_to + index_interval_bytes or position == 0:
            self._mark(relative, position, self._max_timestamp, self._newest_relative)
        self.end_offset = header.next_offset

    def _mark(self, relative: int, position: int, newest: int, newest_relative: int) -> None:
        """Add a batch to both indexes, which always have the same number of entries."""
        self.index.add(relative, position)
        self.times.add(newest, newest_relative)
        self._indexed_to = position

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Account for a transaction whose abort marker is in the file."""
        assert self.aborted_count >= 0, "what is not known cannot be added to"
        self.aborted.add_aborted(aborted)
        self.aborted_count += 1

    def synced(self, position: int) -> None:
        """Write index entries, since the file is durable up to `position`."""
        if self.index.pending >= _INDEX_WRITE_ENTRIES_MIN:
            self._write_indexes(self.index.count_pending(second_below=position))

    def take_index_files(self) -> list[File]:
        """Return the files of the indexes if they have grown enough to be worth a sync."""
        if not self.is_sealed and self._index_sync_due > 0:
            return []
        self._index_sync_due = _INDEX_SYNC_ENTRIES
        indexes = (self.times, self.aborted, self.index)
        return [index.file for index in indexes if index.file is not None]

    def seal(self) -> None:
        """Seal a segment that will not grow and is durable as a whole."""
        self.is_sealed = True
        if self.aborted_count > 0:
            self.aborted.seal(self.end_offset)
        has_aborted = self.aborted_count != 0
        self.index.seal(self.end_offset, has_aborted=has_aborted)
        self.times.seal(self.end_offset, has_aborted=has_aborted)

    def seal_found(self) -> bool:
        """Return whether the files are sealed as complete, and load the seal."""
        seal = self.index.seal_found()
        if seal is None or seal != self.times.seal_found():
            return False
        self.end_offset = seal.end_offset
        self.is_sealed = True
        self.aborted_count = NOT_KNOWN if seal.has_aborted else 0
        return True

    def truncate(self, place: Place) -> None:
        """Drop everything from a place on; the segment may grow again."""
        if self.is_sealed:
            self.index.unseal()
            self.is_sealed = False
        self.file.truncate(place.position)
        self.size, self.end_offset = place
        self._starts.clear()
        self.trusted_from = min(self.trusted_from, place.position)
        self.durable_to = min(self.durable_to, place.position)
        # Earlier damage is still there, and the recovery of a replica needs it.
        self.damages = {
            position: damage
            for position, damage in self.damages.items()
            if damage.resume is not None and damage.resume.position <= place.position
        }
        self.truncate_indexes(place.position)
        self._truncate_aborted(place.offset)

    def truncate_indexes(self, position: int) -> None:
        """Drop the index entries for the bytes from `position` on."""
        count = self._with_indexes(lambda: self.index.floor_number(position - 1, by=1)) + 1
        self.keep_indexed(count, until=position)

    def keep_indexed(self, count: int, *, until: int) -> None:
        """Keep the first `count` entries of both indexes; the segment is verified up to `until`."""
        self.index.cut(count)
        self.times.cut(count)
        last = self.index.last()
        self._indexed_to = 0 if last is None else last[1]
        self._find_newest(until=until)

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        self.index.close()
        self.times.close()
        self.aborted.close()

    def write_indexes(self) -> None:
        """Write all entries; the caller has synced the log."""
        self._write_indexes(self.index.pending)
        self.aborted.write_pending(self.aborted.pending)

    def remove(self) -> None:
        """Remove the files. Readers that hold the log file can still read it."""
        path = self.file.path
        is_there = self._disk.exists(path)
        if is_there:
            self.file.retire()
        self.index.remove()
        self.times.remove()
        self.aborted.remove()
        if is_there:
            self._disk.remove(path)

    def retire(self) -> None:
        """Keep the contents but not the names, which other files are about to take."""
        self.file.retire()
        self.index.forget_file()
        self.times.forget_file()
        self.aborted.forget_file()
        self.is_sealed = False

    # Reads

    def locate(self, offset: int) -> Located | None:
        """Return the batch that contains `offset`, or the first one after it; None at the end."""
        if offset >= self.end_offset:
            return None
        start = 0 if offset == self.base_offset else self._starts.get(offset)
        if start is not None and (found := self.batch_at(Place(start, offset))) is not None:
            return found
        place = self.place_before(offset)
        while True:
            try:
                for located in self.scan(place):
                    if located.header.last_offset >= offset:
                        return located
                return None
            except CorruptBatch as error:
                resume = self.damages[error.position].resume
                if resume is None or resume.offset > offset:
                    raise
                place = resume

    def readable(self, offset: int) -> Iterator[Located]:
        """Yield the batches from the one that contains `offset` on, without damaged ones."""
        for located in self.scan_readable(self.place_before(offset)):
            if located.header.last_offset >= offset:
                yield located

    def cut_place(self, position: int, *, after: Place) -> Place:
        """Return the last indexed batch start after a place and up to `position`, or that place."""
        if position >= self.size:
            return Place(self.size, self.end_offset)
        entry = self._with_indexes(lambda: self.index.floor(position, by=1))
        if entry is None or entry[1] <= after.position:
            return after
        return Place(entry[1], self.base_offset + entry[0])

    def remember(self, place: Place) -> None:
        """Remember where a reader has stopped and will continue."""
        starts = self._starts
        if len(starts) >= _STARTS_MAX and place.offset not in starts:
            del starts[next(iter(starts))]
        starts[place.offset] = place.position

    # Times

    @property
    def max_timestamp(self) -> int:
        """Return the largest timestamp of a record here, or -1."""
        if self._max_timestamp == NOT_KNOWN:
            self._ensure_indexes()
            self._find_newest()
        return self._max_timestamp

    @property
    def first_timestamp(self) -> int:
        """Return the timestamp of the first batch, or -1."""
        data = self.file.read(0, HEADER_BYTES)
        header = self._plausible(data, 0, 0, self.base_offset)
        return NO_TIMESTAMP if header is None else header.max_timestamp

    def offset_before(self, timestamp: int) -> int:
        """Return an offset not after the first record that is at least as new as `timestamp`."""
        self._ensure_indexes()
        entry = self._with_indexes(lambda: self.times.floor(timestamp - 1))
        return self.base_offset + (0 if entry is None else entry[1])

    def _find_newest(self, *, until: int | None = None) -> None:
        """Find the largest timestamp in the time index and the batches it does not cover."""
        times, index = self._with_indexes(lambda: (self.times.last(), self.index.last()))
        self._max_timestamp, self._newest_relative = times or (NO_TIMESTAMP, 0)
        relative, position = index or (0, 0)
        start = Place(position, self.base_offset + relative)
        for located in self.scan_readable(start, until=until):
            header = located.header
            if header.max_timestamp > self._max_timestamp and not header.is_control:
                self._max_timestamp = located.header.max_timestamp
                self._newest_relative = located.header.base_offset - self.base_offset

    # Indexes

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the log, skipping damage."""
        self.drop_indexes()
        end_offset = self.end_offset
        self._indexed_to, self._newest_relative, self._max_timestamp = 0, 0, NO_TIMESTAMP
        for located in self.scan_readable(Place(0, self.base_offset), is_checked=True):
            self.note_batch(*located, index_interval_bytes=_INDEX_INTERVAL_BYTES)
            # `note_batch` moves the end, by which the scan recognises the last batch.
            self.end_offset = end_offset
        if self.is_sealed and len(self.index):
            self.seal()

    def drop_indexes(self) -> None:
        """Remove the index files; they are rebuilt when they are needed."""
        self.index.remove()
        self.times.remove()

    def is_aborted_known(self) -> bool:
        """Return whether the index of aborted transactions is complete."""
        if self.aborted_count == NOT_KNOWN:
            seal = self.aborted.seal_found()
            if seal is None or seal.end_offset != self.end_offset:
                return False
            self.aborted_count = seal.entries
        return len(self.aborted) == self.aborted_count

    def replace_aborted(self, aborted: list[AbortedTransaction]) -> None:
        """Replace the index of aborted transactions by what the log contains."""
        self.aborted.remove()
        self.aborted_count = 0
        for one in aborted:
            self.note_aborted(one)
        self.seal_aborted()

    def seal_aborted(self) -> None:
        """Write the index of aborted transactions if the segment is sealed."""
        if self.is_sealed:
            try:
                self.aborted.seal(self.end_offset)
            except OSError:
                pass  # No space for it. It stays in memory, and can be rebuilt from the log.

    def _truncate_aborted(self, offset: int) -> None:
        try:
            if self.aborted_count > 0:
                self.aborted.unseal()
                self.aborted.cut_from(offset)
                self.aborted_count = len(self.aborted)
        except DamagedIndex:
            self.aborted_count = NOT_KNOWN
        if self.aborted_count == NOT_KNOWN:
            self.aborted.remove()

    def _with_indexes(self, look: Callable[[], Found]) -> Found:
        """Return the result of a look-up in the indexes; rebuild them if they are damaged."""
        try:
            return look()
        except DamagedIndex:
            self.rebuild_indexes()
            return look()

    def _ensure_indexes(self) -> None:
        if self.size and (not len(self.index) or len(self.index) != len(self.times)):
            self.rebuild_indexes()

    def _write_indexes(self, ready: int) -> None:
        # Times first: their entries without a counterpart are dropped at the next start.
        self.times.write_pending(ready)
        self.index.write_pending(ready)
        self._index_sync_due -= ready

    def place_before(self, offset: int) -> Place:
        """Return the start of a batch that is not after the one that contains `offset`."""
        if not len(self.index):
            self._ensure_indexes()
        entry = self._with_indexes(lambda: self.index.floor(offset - self.base_offset))
        if entry is None:
            return Place(0, self.base_offset)
        return Place(entry[1], self.base_offset + entry[0])
