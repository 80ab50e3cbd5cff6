"""One segment: a file of batches with its indexes. It appends, reads, seals and truncates.

Offsets have no gaps: each batch starts with the offset after the one before it. A batch's own
offset and length are outside its checksum, and this rule is what protects them: a reader always has
the offset that must come next.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from goqueue.model.batch import (
    CONTROL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    is_intact,
    read_header,
)
from goqueue.model.compression import Buffer
from goqueue.model.errors import CorruptBatch
from goqueue.model.runs import mark_run
from goqueue.storage.damage import Damage, Located, Place, find_resume
from goqueue.storage.disk import Disk, File
from goqueue.storage.index import (
    INDEX_SUFFIXES,
    KEYS_SUFFIX,
    NOT_KNOWN,
    DamagedIndex,
    SegmentIndexes,
)

LOG_SUFFIX = ".log"
EPOCH_MAX = (1 << 31) - 1

_INDEX_INTERVAL_BYTES = 4096
_STARTS_MAX = 16  # readers of a segment that continue without a search
_PAGE_BYTES = 4 << 10  # what a bad sector makes unreadable
_WINDOW_BYTES_MIN = 8 << 10  # enough for the batches between two index entries
_WINDOW_BYTES_MAX = 256 << 10
_BATCH_LENGTH_MIN = HEADER_BYTES - LENGTH_PREFIX_BYTES
_OFFSET = struct.Struct(">q")

Found = TypeVar("Found")


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class SegmentState(msgspec.Struct, array_like=True):
    """What is known of a segment when it is opened; two of the fields may be NOT_KNOWN."""

    base_offset: int
    size: int
    end_offset: int
    max_timestamp: int
    created_ms: int
    aborted_count: int = 0


class Segment:
    """Batches with offsets from `base_offset` on. Only the newest segment of a log grows."""

    __slots__ = (
        "_disk",
        "_has_torn_end",
        "_starts",
        "base_offset",
        "created_ms",
        "damages",
        "durable_to",
        "end_offset",
        "epoch_max",
        "file",
        "indexes",
        "is_sealed",
        "size",
        "trusted_from",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        file: File,
        state: SegmentState,
        *,
        is_sealed: bool = False,
        name_suffix: str = "",
    ) -> None:
        size = state.size
        self._disk = disk
        self.file = file
        self.base_offset = state.base_offset
        self.size = size
        self.end_offset = state.end_offset
        self.created_ms = state.created_ms
        self.is_sealed = is_sealed
        self.indexes = SegmentIndexes(
            disk,
            f"{folder}/{segment_name(state.base_offset)}",
            name_suffix,
            indexed_to=size,
            max_timestamp=state.max_timestamp,
            aborted_count=state.aborted_count,
        )
        # Batches of a later epoch than this cannot have been written.
        self.epoch_max = EPOCH_MAX
        # Damage found so far, by position.
        self.damages: dict[int, Damage] = {}
        # Bytes before this survive a power failure: in the file, or in the commit journal.
        self.durable_to = size
        # Bytes from here on were verified and written by this process: they may be sent unread.
        self.trusted_from = size
        self._has_torn_end = False
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
        state = SegmentState(base_offset, 0, base_offset, NO_TIMESTAMP, now_ms)
        return cls(disk, folder, file, state, name_suffix=name_suffix)

    def state(self) -> SegmentState:
        """Return what opens the segment again without reading its files."""
        return SegmentState(
            self.base_offset,
            self.size,
            self.end_offset,
            self.max_timestamp,
            self.created_ms,
            self.indexes.aborted_count,
        )

    # Writes

    def append(self, batch: memoryview, header: BatchHeader, *, index_interval_bytes: int) -> None:
        """Append one stamped batch; on an error the file is as it was before."""
        position = self._write(batch)
        self.note_batch(position, header, index_interval_bytes=index_interval_bytes)

    def append_run(self, run: bytes, next_offset: int, *, index_interval_bytes: int) -> None:
        """Append consecutive batches: all are written or none."""
        base, indexes, position = self.base_offset, self.indexes, self._write(run)
        marks, newest, newest_offset = mark_run(
            run,
            position,
            indexes.indexed_to + index_interval_bytes if position else 0,
            index_interval_bytes,
            indexes.max_timestamp,
            base + indexes.newest_relative,
        )
        indexes.max_timestamp, indexes.newest_relative = newest, newest_offset - base
        for offset, place, newest, newest_offset in marks:
            indexes.add(offset - base, place, newest, newest_offset - base)
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
        indexes = self.indexes
        relative = header.base_offset - self.base_offset
        # A marker's timestamp belongs to no record, so it must not be indexed.
        if header.max_timestamp > indexes.max_timestamp and not header.attributes & CONTROL:
            indexes.max_timestamp = header.max_timestamp
            indexes.newest_relative = relative
        if position >= indexes.indexed_to + index_interval_bytes or position == 0:
            indexes.add(relative, position, indexes.max_timestamp, indexes.newest_relative)
        self.end_offset = header.next_offset

    def seal(self) -> None:
        """Seal a segment that will not grow and is durable as a whole."""
        self.is_sealed = True
        self.indexes.seal(self.end_offset)

    def seal_found(self) -> bool:
        """Return whether the files are sealed as complete, and load the seal."""
        seal = self.indexes.seal_found()
        if seal is None:
            return False
        self.end_offset = seal.end_offset
        self.is_sealed = True
        return True

    def truncate(self, place: Place) -> None:
        """Drop everything from a place on; the segment may grow again."""
        if self.is_sealed:
            self.indexes.offsets.unseal()
            self.is_sealed = False
        self._remove_key_filters()
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
        offsets = self.indexes.offsets
        count = self._with_indexes(lambda: offsets.floor_number(place.position - 1, by=1)) + 1
        self.keep_indexed(count, until=place.position)
        self.indexes.truncate_aborted(place.offset)

    def keep_indexed(self, count: int, *, until: int) -> None:
        """Keep the first `count` index entries; the segment is verified up to `until`."""
        self.indexes.keep(count)
        self._find_newest(until=until)

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        self.indexes.close()

    def remove(self) -> None:
        """Remove the files. Readers that hold the log file can still read it."""
        path = self.file.path
        is_there = self._disk.exists(path)
        if is_there:
            self.file.retire()
        self.indexes.remove()
        self._remove_key_filters()
        if is_there:
            self._disk.remove(path)

    def retire(self) -> None:
        """Keep the contents but not the names, which other files are about to take."""
        self.file.retire()
        self.indexes.forget_files()
        self.is_sealed = False

    def _remove_key_filters(self) -> None:
        stem, suffix, _ = self.file.path.rpartition(LOG_SUFFIX)
        if suffix and self._disk.exists(stem + KEYS_SUFFIX):
            self._disk.remove(stem + KEYS_SUFFIX)

    # Reads

    def locate(self, offset: int) -> Located | None:
        """Return the batch that contains `offset`, or the first one after it; None at the end."""
        if offset >= self.end_offset:
            return None
        start = 0 if offset == self.base_offset else self._starts.get(offset)
        if start is not None and (found := self._batch_at(start, offset)) is not None:
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

    def place_of(self, offset: int) -> Place:
        """Return where the batch, or the damage, that contains `offset` starts."""
        try:
            located = self.locate(offset)
        except CorruptBatch as error:
            return self.damages[error.position].place
        return Place(self.size, self.end_offset) if located is None else located.place

    def truncation_place(self, offset: int) -> Place:
        """Like `place_of`, but by the index alone if the file cannot be read there.

        That may be why it is truncated.
        """
        try:
            return self.place_of(offset)
        except OSError:
            if offset == self.base_offset:
                return Place(0, offset)
            place = self.place_before(offset)
            if place.offset != offset:
                raise
            return place

    def place_before(self, offset: int) -> Place:
        """Return the start of a batch that is not after the one that contains `offset`."""
        offsets = self.indexes.offsets
        if not len(offsets):
            self._ensure_indexes()
        entry = self._with_indexes(lambda: offsets.floor(offset - self.base_offset))
        return self._indexed(entry)

    def place_of_page(self, offset: int) -> Place:
        """Return an indexed start of a batch before the page of the file that contains `offset`."""
        start = self.place_before(offset).position // _PAGE_BYTES * _PAGE_BYTES
        return self._indexed(self._with_indexes(lambda: self.indexes.offsets.floor(start, by=1)))

    def _indexed(self, entry: tuple[int, ...] | None) -> Place:
        """Return the place of an entry of the index by offset; without one, the segment's start."""
        if entry is None:
            return Place(0, self.base_offset)
        return Place(entry[1], self.base_offset + entry[0])

    def cut_place(self, position: int, *, after: Place) -> Place:
        """Return the last indexed batch start after a place and up to `position`, or that place."""
        if position >= self.size:
            return Place(self.size, self.end_offset)
        entry = self._with_indexes(lambda: self.indexes.offsets.floor(position, by=1))
        if entry is None or entry[1] <= after.position:
            return after
        return Place(entry[1], self.base_offset + entry[0])

    def remember(self, place: Place) -> None:
        """Remember where a reader has stopped and will continue."""
        starts = self._starts
        if len(starts) >= _STARTS_MAX and place.offset not in starts:
            del starts[next(iter(starts))]
        starts[place.offset] = place.position

    def read_checked(self, place: Place, length: int) -> bytes:
        """Return whole batches in `length` bytes from a place on, with verified checksums.

        Damage ends what is returned; damage in the very first batch raises `CorruptBatch`.
        """
        data = self.file.read(place.position, length)
        view = memoryview(data)
        at, offset = 0, place.offset
        while at < len(data):
            header = self._plausible(data, at, place.position + at, offset)
            if header is None or at + header.size > length or not is_intact(view[at:], header):
                break
            at, offset = at + header.size, header.next_offset
        if at == 0 and length:
            raise self.corrupt(place)
        return data[:at]

    def read_batch(self, located: Located) -> bytes | None:
        """Return the bytes of one batch; None if they are damaged."""
        data = self.file.read(located.position, located.header.size)
        return data if is_intact(memoryview(data), located.header) else None

    def _batch_at(self, position: int, offset: int) -> Located | None:
        """Return the batch that starts at a position, accepted as in a scan; None otherwise."""
        data = self.file.read(position, min(_WINDOW_BYTES_MIN, self.size - position))
        header = self._plausible(data, 0, position, offset)
        if header is None or not self.is_followed(header, data, position, header.size):
            return None
        return Located(position, header)

    # Scans

    def readable(self, offset: int) -> Iterator[Located]:
        """Yield the batches from the one that contains `offset` on, without damaged ones."""
        for located in self.scan_readable(self.place_before(offset)):
            if located.header.last_offset >= offset:
                yield located

    def scan_readable(
        self, place: Place | None, *, until: int | None = None, is_checked: bool = False
    ) -> Iterator[Located]:
        """Like `scan`, but skip damaged batches."""
        while place is not None:
            try:
                yield from self.scan(place, until=until, is_checked=is_checked)
                return
            except CorruptBatch as error:
                place = self.damages[error.position].resume

    def scan(
        self, place: Place, *, until: int | None = None, is_checked: bool = False
    ) -> Iterator[Located]:
        """Yield the batches from a place on, in order; damage raises `CorruptBatch`.

        Only headers are read, and each is accepted if the batch after it starts with the offset
        that it implies. `is_checked` also verifies the batches by their checksums.
        """
        end = self.size if until is None else until
        window = _WINDOW_BYTES_MIN
        position, offset = place
        while position < end:
            data = self.file.read(position, min(window, self.size - position))
            at = 0
            while position + at < end:
                if at + HEADER_BYTES > len(data) and at:
                    break  # The next window starts with this batch.
                header = self._plausible(data, at, position + at, offset)
                if header is None:
                    raise self.corrupt(Place(position + at, offset))
                stop = at + header.size
                if at and stop + _OFFSET.size > len(data) and position + stop < self.size:
                    break
                is_believed = not is_checked and self.is_followed(header, data, position, stop)
                if not is_believed and not self._is_intact(header, data, position, at):
                    raise self.corrupt(Place(position + at, offset))
                yield Located(position + at, header)
                at, offset = stop, header.next_offset
            position += at
            window = min(4 * window, _WINDOW_BYTES_MAX)
        if until is None and offset != self.end_offset:
            raise self.corrupt(Place(position, offset))

    def _plausible(self, data: bytes, at: int, position: int, offset: int) -> BatchHeader | None:
        """Return the header at `at`; None if it cannot be that of `offset` at `position`."""
        if at + HEADER_BYTES > len(data):
            return None
        header = read_header(data, at)
        if header.base_offset != offset or not self.is_possible(header, position):
            return None
        return header

    def is_possible(self, header: BatchHeader, position: int) -> bool:
        """Return whether a batch with this header can be at a position."""
        return (
            header.magic == MAGIC
            and header.batch_length >= _BATCH_LENGTH_MIN
            and position + header.size <= self.size
            and header.last_offset_delta >= 0
            and NO_EPOCH <= header.leader_epoch <= self.epoch_max
        )

    def is_followed(self, header: BatchHeader, data: bytes, position: int, stop: int) -> bool:
        """Return whether the next batch starts with the offset that this one implies.

        `data` has the bytes from `position` on, as far as they are read; this batch ends at `stop`.
        """
        if position + stop == self.size:
            return header.next_offset == self.end_offset
        if stop + _OFFSET.size <= len(data):
            return bool(_OFFSET.unpack_from(data, stop)[0] == header.next_offset)
        found = self.file.read(position + stop, _OFFSET.size)
        return found == _OFFSET.pack(header.next_offset)

    def _is_intact(self, header: BatchHeader, data: bytes, position: int, at: int) -> bool:
        if at + header.size <= len(data):
            return is_intact(memoryview(data)[at:], header)
        return is_intact(memoryview(self.file.read(position + at, header.size)), header)

    def corrupt(self, place: Place) -> CorruptBatch:
        """Return the error for a damaged batch, with its position and where to continue."""
        damage = self.damages.get(place.position)
        if damage is None:
            damage = Damage(place, find_resume(self, place), Place(self.size, self.end_offset))
            self.damages[place.position] = damage
        elif damage.resume is None and damage.end.position < self.size:
            damage = damage._replace(resume=damage.end)
            self.damages[place.position] = damage
        next_offset = damage.resume.offset if damage.resume else self.end_offset
        error = CorruptBatch(
            f"Damaged batch in {self.file.path} at byte {place.position}, offset {place.offset}; "
            f"readable again from offset {next_offset}."
        )
        error.position = place.position
        error.next_offset = next_offset
        return error

    # Times

    @property
    def max_timestamp(self) -> int:
        """Return the largest timestamp of a record here, or -1."""
        if self.indexes.max_timestamp == NOT_KNOWN:
            self._ensure_indexes()
            self._find_newest()
        return self.indexes.max_timestamp

    def offset_before(self, timestamp: int) -> int:
        """Return an offset not after the first record that is at least as new as `timestamp`."""
        self._ensure_indexes()
        entry = self._with_indexes(lambda: self.indexes.times.floor(timestamp - 1))
        return self.base_offset + (0 if entry is None else entry[1])

    def _find_newest(self, *, until: int | None = None) -> None:
        """Find the largest timestamp in the time index and the batches it does not cover."""
        indexes = self.indexes
        times, last = self._with_indexes(lambda: (indexes.times.last(), indexes.offsets.last()))
        indexes.max_timestamp, indexes.newest_relative = times or (NO_TIMESTAMP, 0)
        relative, position = last or (0, 0)
        start = Place(position, self.base_offset + relative)
        for located in self.scan_readable(start, until=until):
            header = located.header
            if header.max_timestamp > indexes.max_timestamp and not header.is_control:
                indexes.max_timestamp = header.max_timestamp
                indexes.newest_relative = header.base_offset - self.base_offset

    # Indexes

    def _rebuild_indexes(self) -> None:
        """Rebuild the indexes by offset and by time from the log, skipping damage."""
        indexes, end_offset = self.indexes, self.end_offset
        indexes.drop()
        indexes.indexed_to, indexes.newest_relative = 0, 0
        indexes.max_timestamp = NO_TIMESTAMP
        for located in self.scan_readable(Place(0, self.base_offset), is_checked=True):
            self.note_batch(*located, index_interval_bytes=_INDEX_INTERVAL_BYTES)
            # `note_batch` moves the end, by which the scan recognises the last batch.
            self.end_offset = end_offset
        if self.is_sealed and len(indexes.offsets):
            self.seal()

    def _ensure_indexes(self) -> None:
        if self.size and not self.indexes.is_usable:
            self._rebuild_indexes()

    def _with_indexes(self, look: Callable[[], Found]) -> Found:
        """Return the result of a look-up in the indexes; rebuild them if they are damaged."""
        try:
            return look()
        except DamagedIndex:
            self._rebuild_indexes()
            return look()
