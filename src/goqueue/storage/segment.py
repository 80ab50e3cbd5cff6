"""One segment: a file of batches with its two indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from goqueue.model.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    is_intact,
    read_header,
)
from goqueue.model.errors import CorruptBatch
from goqueue.storage.disk import Disk, File
from goqueue.storage.index import OffsetIndex, TimeIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
RELATIVE_OFFSET_MAX = (1 << 31) - 1
NOT_KNOWN = -2

_SCAN_BYTES = 256 << 10
_RESUME_SEARCH_BYTES = 64 << 20
_BATCH_LENGTH_MIN = HEADER_BYTES - LENGTH_PREFIX_BYTES
# Where a header may begin: an offset below 2**48, and the format's number sixteen bytes on.
_HEADER_START = re.compile(rb"(?=\x00\x00.{14}\x02)", re.DOTALL)


class Located(NamedTuple):
    """A batch header and where in its segment it stands."""

    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        return self.position + self.header.size


class Resume(NamedTuple):
    """Where a segment can be read again after damage."""

    offset: int
    position: int


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    """Batches with offsets from `base_offset` on. Only the newest segment of a log grows."""

    __slots__ = (
        "_disk",
        "_max_timestamp",
        "_newest_relative",
        "_stem",
        "base_offset",
        "created_ms",
        "end_offset",
        "file",
        "index",
        "indexed_to",
        "resumes",
        "size",
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
    ) -> None:
        self._disk = disk
        self._stem = f"{folder}/{segment_name(base_offset)}"
        self.base_offset = base_offset
        self.file = file
        self.size = size
        self.end_offset = end_offset
        self._max_timestamp = max_timestamp
        self.created_ms = created_ms
        self.index = OffsetIndex(disk, self._stem + INDEX_SUFFIX)
        self.times = TimeIndex(disk, self._stem + TIME_INDEX_SUFFIX)
        self.indexed_to = size
        self._newest_relative = 0
        # Bytes from here on were checked and written by this process: they may be sent unread.
        self.trusted_from = size
        # Damaged positions, each with where to go on (None: nowhere).
        self.resumes: dict[int, Resume | None] = {}

    @classmethod
    def create(
        cls, disk: Disk, folder: str, base_offset: int, *, now_ms: int, lazily: bool = False
    ) -> Segment:
        stem = f"{folder}/{segment_name(base_offset)}"
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if disk.exists(stem + suffix):
                disk.remove(stem + suffix)
        file = disk.create(stem + LOG_SUFFIX, lazily=lazily)
        return cls(
            disk,
            folder,
            base_offset,
            file,
            size=0,
            end_offset=base_offset,
            created_ms=now_ms,
            max_timestamp=NO_TIMESTAMP,
        )

    def append(self, batch: memoryview, header: BatchHeader, *, index_interval_bytes: int) -> None:
        """Write one stamped batch at the end; on an error the file is as it was before."""
        position = self.size
        try:
            self.file.append(batch)
        except OSError:
            self.file.truncate(position)
            raise
        self.size = position + len(batch)
        self.note_batch(position, header, index_interval_bytes=index_interval_bytes)

    def note_batch(self, position: int, header: BatchHeader, *, index_interval_bytes: int) -> None:
        """Take a batch that is in the file into account: end offset, time, indexes."""
        relative = header.base_offset - self.base_offset
        if header.max_timestamp > self.max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._newest_relative = relative
        if position >= self.indexed_to + index_interval_bytes or position == 0:
            self.index.add(relative, position)
            self.indexed_to = position
            self._note_time()
        self.end_offset = header.next_offset

    def synced(self, position: int, offset: int) -> None:
        """The file is durable up to `position`, where `offset` begins: index entries may follow."""
        self.index.write_pending(second_max=position)
        self.times.write_pending(second_max=offset - self.base_offset - 1)

    def seal(self) -> None:
        """Mark a segment that will not grow and is durable as a whole."""
        self._note_time()
        self.index.seal()
        self.times.seal()

    def locate(self, offset: int) -> Located | None:
        """The batch that holds `offset`, or the first one after it; None at the end."""
        position = self._position_before(offset)
        while True:
            try:
                for located in self.scan(position):
                    if located.header.last_offset >= offset:
                        return located
                return None
            except CorruptBatch as error:
                resume = self.resumes.get(error.position)
                if resume is None or resume.offset > offset:
                    raise
                position = resume.position

    def scan(self, position: int, *, until: int | None = None) -> Iterator[Located]:
        """Headers from `position` on, in order, without checksums; damage raises CorruptBatch."""
        end = self.size if until is None else until
        while position < end:
            start, data = position, self.file.read(position, min(_SCAN_BYTES, self.size - position))
            for located in self._walk(data, start):
                if located.position >= end:
                    return
                yield located
                position = located.end
            if position == start:
                # One batch may be larger than a chunk; its successor is then not in sight.
                header = self._header_at(position)
                if header is None:
                    raise self.corrupt(position)
                yield Located(position, header)
                position += header.size

    def read_checked(self, position: int, length: int) -> bytes:
        """Whole batches in `position`..`position + length`, their checksums verified.

        Damage ends what is returned; damage in the very first batch raises `CorruptBatch`.
        """
        data = self.file.read(position, length + HEADER_BYTES)  # with the header that follows
        view = memoryview(data)
        good = 0
        for located in self._walk(data, position):
            at = located.position - position
            if at + located.header.size > length or not is_intact(view[at:], located.header):
                break
            good = at + located.header.size
        if good == 0 and length:
            raise self.corrupt(position)
        return data[:good]

    def corrupt(self, position: int) -> CorruptBatch:
        """The error for a damaged batch, telling where it stands and where to go on."""
        if position not in self.resumes:
            self.resumes[position] = self._find_resume(position)
        resume = self.resumes[position]
        hint = f"; readable again from offset {resume.offset}" if resume else ""
        error = CorruptBatch(f"Damaged batch in {self.file.path} at byte {position}{hint}.")
        error.position = position
        return error

    def cut_position(self, position: int, *, after: int) -> int:
        """The last indexed batch start in (`after`, `position`], or `after` when there is none."""
        if position >= self.size:
            return self.size
        number = self.index.floor(position, by=1)
        return max(after, self.index[number][1]) if number >= 0 else after

    def offset_before(self, timestamp: int) -> int:
        """An offset not after the first record that is at least as new as `timestamp`."""
        number = self.times.floor(timestamp - 1)
        return self.base_offset + (self.times[number][1] if number >= 0 else 0)

    def rebuild_indexes(self, *, index_interval_bytes: int = 4096) -> None:
        """Build both indexes again from the log, stepping over damage."""
        self.index.remove()
        self.times.remove()
        self.index = OffsetIndex(self._disk, self._stem + INDEX_SUFFIX)
        self.times = TimeIndex(self._disk, self._stem + TIME_INDEX_SUFFIX)
        self.indexed_to, self._newest_relative = 0, 0
        end_offset, self._max_timestamp = self.end_offset, NO_TIMESTAMP
        for located in self.readable():
            self.note_batch(
                located.position, located.header, index_interval_bytes=index_interval_bytes
            )
        self.end_offset = end_offset

    def readable(self, position: int = 0, *, until: int | None = None) -> Iterator[Located]:
        """Like `scan`, but damaged batches are stepped over."""
        while True:
            try:
                for located in self.scan(position, until=until):
                    yield located
                    position = located.end
                return
            except CorruptBatch as error:
                resume = self.resumes.get(error.position)
                if resume is None:
                    return
                position = resume.position

    def truncate(self, position: int, end_offset: int) -> None:
        """Drop everything from `position` on, where the batch of `end_offset` would begin."""
        self.file.truncate(position)
        self.size = position
        self.end_offset = end_offset
        self.trusted_from = min(self.trusted_from, position)
        self.resumes.clear()
        self.truncate_indexes(position)

    def truncate_indexes(self, position: int) -> None:
        """Forget what the indexes say of the bytes from `position` on."""
        self.index.cut(self.index.floor(position - 1, by=1) + 1)
        last, self.indexed_to = self.index[len(self.index) - 1] if len(self.index) else (-1, 0)
        # A time entry is as old as the index entry made with it, or older.
        self.times.cut(self.times.floor(last, by=1) + 1)
        self._find_newest(until=position)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a record here, or -1."""
        if self._max_timestamp == NOT_KNOWN:
            self._find_newest()
        return self._max_timestamp

    @property
    def newest_offset(self) -> int:
        """The base offset of the batch that has the largest timestamp."""
        if self._max_timestamp == NOT_KNOWN:
            self._find_newest()
        return self.base_offset + self._newest_relative

    def remove(self) -> None:
        """Take the files away. Whoever still sends from the log file keeps it open."""
        self.index.remove()
        self.times.remove()
        self.file.close()
        if self._disk.exists(self._stem + LOG_SUFFIX):
            self._disk.remove(self._stem + LOG_SUFFIX)

    def close(self) -> None:
        self.file.close()
        self.index.close()
        self.times.close()

    def _find_newest(self, *, until: int | None = None) -> None:
        """Learn the largest timestamp from the time index and the batches it does not cover.

        Each index entry came with a time entry if there was anything new to say, so only the
        batches from the last index entry on are to be looked at.
        """
        self._max_timestamp, self._newest_relative = NO_TIMESTAMP, 0
        if len(self.times):
            self._max_timestamp, self._newest_relative = self.times[len(self.times) - 1]
        start = self.index[len(self.index) - 1][1] if len(self.index) else 0
        for located in self.readable(start, until=until):
            if located.header.max_timestamp > self._max_timestamp:
                self._max_timestamp = located.header.max_timestamp
                self._newest_relative = located.header.base_offset - self.base_offset

    def _note_time(self) -> None:
        last = self.times[len(self.times) - 1][0] if len(self.times) else NO_TIMESTAMP
        if self.max_timestamp > last:
            self.times.add(self.max_timestamp, self._newest_relative)

    def _position_before(self, offset: int) -> int:
        """Where a batch begins that is not after the one that holds `offset`."""
        number = self.index.floor(offset - self.base_offset)
        if number < 0:
            if len(self.index) == 0 and self.size:
                self.rebuild_indexes()
                return self._position_before(offset)
            return 0
        relative, position = self.index[number]
        header = self._header_at(position)
        if header is not None and header.base_offset == self.base_offset + relative:
            return position
        if self._is_index_sound():
            return position  # The index is in order, so it is the batch there that is damaged.
        self.rebuild_indexes()
        number = self.index.floor(offset - self.base_offset)
        return self.index[number][1] if number >= 0 else 0

    def _walk(self, data: bytes, position: int) -> Iterator[Located]:
        """The batches in `data`, which was read at `position`, while they are in order.

        A header's own offset and length are outside its checksum, so a batch counts only when
        the one after it (or the end of the segment) begins no earlier than it ends.
        """
        at, previous = 0, None
        while at + HEADER_BYTES <= len(data):
            header = read_header(data, at)
            if not self._is_plausible(header, position + at):
                return
            if previous is not None:
                if header.base_offset < previous.header.next_offset:
                    return
                yield previous
            previous = Located(position + at, header)
            at += header.size
        if (
            previous is not None
            and previous.end == self.size
            and previous.header.next_offset <= self.end_offset
        ):
            yield previous

    def _header_at(self, position: int) -> BatchHeader | None:
        data = self.file.read(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return None
        header = read_header(data)
        return header if self._is_plausible(header, position) else None

    def _is_plausible(self, header: BatchHeader, position: int) -> bool:
        return (
            header.magic == MAGIC
            and header.batch_length >= _BATCH_LENGTH_MIN
            and position + header.size <= self.size
            and 0 <= header.base_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and header.last_offset_delta >= 0
        )

    def _find_resume(self, damaged: int) -> Resume | None:
        """Search the bytes after a damaged position for the next intact batch."""
        start = damaged + 1
        while start < min(self.size, damaged + _RESUME_SEARCH_BYTES):
            data = self.file.read(start, _SCAN_BYTES)
            for match in _HEADER_START.finditer(data):
                if match.start() + HEADER_BYTES > len(data):
                    break
                header = read_header(data, match.start())
                position = start + match.start()
                if self._is_plausible(header, position):
                    batch = self.file.read(position, header.size)
                    if is_intact(memoryview(batch), header):
                        return Resume(header.base_offset, position)
            if len(data) < _SCAN_BYTES:
                return None
            start += _SCAN_BYTES - HEADER_BYTES
        return None

    def _is_index_sound(self) -> bool:
        previous = (-1, -1)
        for entry in self.index:
            if entry[0] <= previous[0] or entry[1] <= previous[1] or entry[1] >= self.size:
                return False
            previous = entry
        return True
