"""The commit journal: group commit of small writes to many logs, with one sync for all.

Syncing a log costs about the same for one record as for a thousand, and many logs cost many syncs.
So a round of small writes is copied into a journal, a preallocated file that is overwritten again
and again, and only the journal is synced. The logs themselves are synced later, many rounds at
once, before the journal's space is reused. After a crash the journal is replayed into the logs
before they are opened.

There are two files. While one takes the writes, the content of the other is synced to the logs. A
file's header names its generation, and only frames of that generation are valid; so a file is
emptied by writing a new generation to its header, alternating between two slots, because the power
may fail during that too.

A frame torn by a power failure was never acknowledged, but a frame that was corrupted later looks
the same. A frame names its generation at both ends, so that a trace of it is left; if there is one
the journal `is_suspect`, and only other nodes can show whether anything is missing. For the same
reason each of the two headers is written twice, side by side. What the disk cannot read counts as
corrupted.
"""

from __future__ import annotations

import errno
import struct
from collections import defaultdict
from typing import NamedTuple

from crc32c import crc32c

from goqueue.model.compression import Buffer
from goqueue.storage.disk import Disk, File, is_unreadable
from goqueue.storage.segment import LOG_SUFFIX, segment_name

LOG_KEY_BYTES = 20

_PATHS = ("meta/commit-journal-0", "meta/commit-journal-1")
_MAGIC = b"GQCJ"
_VERSION = 1
_HEADER = struct.Struct(">4sHQ")
_CHECKSUM = struct.Struct(">I")
_SLOT_BYTES = 4096  # a power failure tears at most a page
_FRAMES_START = 2 * _SLOT_BYTES
_FRAME = struct.Struct(">IQQ")  # body length, generation, sequence; then the checksum
_FRAME_HEAD_BYTES = _FRAME.size + _CHECKSUM.size
_TAIL = struct.Struct(f">{LOG_KEY_BYTES}sQQI")  # log, base offset, position, length
# The last tail of each frame has no data and belongs to no log. It has the generation and sequence.
_END_KEY = b"GQ journal frame end"
_GENERATION = struct.Struct(">Q")
_SECTOR_BYTES = 512  # the smallest unit that a disk loses
_GROWTH_BYTES = 1 << 20
_PAGE_BYTES = 4096  # of which one byte is unreadable, all are


class Tail(NamedTuple):
    """Bytes at the end of a segment that no sync of its file has covered."""

    log_key: bytes
    base_offset: int
    position: int
    data: bytes


class CommitJournal:
    """Two files that alternate.

    `write`, `grow` and `free` block and may run outside the event loop.
    """

    def __init__(self, disk: Disk, *, file_bytes: int) -> None:
        """Load the journal that an earlier process left, if any."""
        self._disk = disk
        self._files = tuple(_JournalFile(disk, path, file_bytes) for path in _PATHS)
        frames = sorted(frame for file in self._files for frame in file.read_frames())
        self._sequence = frames[-1].sequence if frames else 0
        self._left: dict[bytes, list[Tail]] = defaultdict(list)
        for frame in frames:
            for tail in _parse_tails(frame.body):
                if tail.log_key != _END_KEY:
                    self._left[tail.log_key].append(tail)
        # Whether something unreadable may have been acknowledged.
        self.is_suspect = any(file.is_suspect for file in self._files)
        self.current = 0

    # After a crash

    def check_readable(self) -> None:
        """Raise if the disk cannot read a part of the journal, in which there may be records."""
        for file in self._files:
            if file.is_unreadable:
                raise OSError(errno.EIO, "the commit journal cannot be read", file.path)

    @property
    def is_redone(self) -> bool:
        """Return whether no log needs anything that an earlier process left here."""
        return not self._left

    def redo(self, log_key: bytes, folder: str) -> list[str]:
        """Write back what a log's files may have lost; report what is missing. Blocks."""
        reports: list[str] = []
        by_base: dict[int, list[Tail]] = defaultdict(list)
        for tail in self._left.pop(log_key, ()):
            by_base[tail.base_offset].append(tail)
        for base_offset, tails in sorted(by_base.items()):
            path = f"{folder}/{segment_name(base_offset)}{LOG_SUFFIX}"
            # A segment's name is durable before any of its data comes here. So a missing segment
            # was removed later, by retention.
            if self._disk.exists(path):
                reports += _redo_file(self._disk.open(path), tails)
        return reports

    def clear(self) -> None:
        """Empty the journal: all logs are durable without it. Blocks."""
        self._left.clear()
        for number, file in enumerate(self._files):
            if not file.is_empty or file.is_suspect:
                self.free(number)
        self.is_suspect = False
        self.current = 0

    # While running

    def frame(self, tails: list[Tail]) -> bytearray:
        """Build the frame that makes these tails durable when it is written."""
        self._sequence += 1
        file = self._files[self.current]
        end = Tail(_END_KEY, file.generation, self._sequence, b"")
        parts = [bytes(_FRAME_HEAD_BYTES)]
        for log_key, base_offset, position, data in (*tails, end):
            parts += (_TAIL.pack(log_key, base_offset, position, len(data)), data)
        # The head is filled in afterwards, because a round may be large: it is copied only once.
        frame = bytearray().join(parts)
        _FRAME.pack_into(frame, 0, len(frame) - _FRAME_HEAD_BYTES, file.generation, self._sequence)
        view = memoryview(frame)
        checksum = crc32c(view[_FRAME_HEAD_BYTES:], crc32c(view[: _FRAME.size]))
        _CHECKSUM.pack_into(frame, _FRAME.size, checksum)
        return frame

    def has_room(self, tail_count: int, data_bytes: int) -> bool:
        """Return whether the current file has space for a frame of so many tails."""
        size = _FRAME_HEAD_BYTES + (tail_count + 1) * _TAIL.size + data_bytes
        return self._files[self.current].has_room(size)

    def is_empty(self, number: int) -> bool:
        return self._files[number].is_empty

    def begin_growth(self) -> int | None:
        """Return the current file's number if it should grow; then `grow` and `end_growth` follow.

        No write may be in progress. Until the end, only the present size of the file is available.
        """
        file = self._files[self.current]
        if not file.is_growth_due:
            return None
        file.is_growing = True
        return self.current

    def grow(self, number: int) -> None:
        """Grow a file by one step in advance, so that no round waits for it."""
        self._files[number].grow()

    def end_growth(self, number: int) -> None:
        self._files[number].is_growing = False

    def write(self, frame: Buffer) -> None:
        """Write a frame durably at the end of the current file."""
        self._files[self.current].write(frame)

    def switch(self) -> int:
        """Switch to the other file, which must be empty; return the number of the former one."""
        left = self.current
        self.current = 1 - left
        assert self._files[self.current].is_empty
        return left

    def free(self, number: int) -> None:
        """Empty a file durably: everything in it is durable in the logs."""
        self._files[number].empty()


class _Frame(NamedTuple):
    sequence: int
    body: memoryview


class _JournalFile:
    """A header of two slots, and frames from a fixed position on."""

    def __init__(self, disk: Disk, path: str, file_bytes: int) -> None:
        self._disk = disk
        self.path = path
        self._file_bytes = file_bytes
        self._file: File | None = disk.open(path) if disk.exists(path) else None
        self._size = self._file.size() if self._file is not None else 0
        self._end = _FRAMES_START
        self._slot = 0
        self.is_suspect = self.is_unreadable = False
        self.is_growing = False
        self.generation = 0
        for slot in range(2):
            generation = self._read_slot(slot)
            if generation > self.generation:
                self._slot, self.generation = slot, generation
        self._is_header_due = self.generation == 0
        if self._is_header_due:
            self.generation = 1
            # An unused file has no header, or an incomplete one.
            self.is_suspect = self.is_suspect or self._has_frames()

    @property
    def is_empty(self) -> bool:
        return self._end == _FRAMES_START

    @property
    def is_growth_due(self) -> bool:
        """Return whether half of it is used; it grows while the other half is."""
        is_short = self._size < min(2 * self._end, self._file_bytes)
        return is_short and not self.is_growing and not self.is_empty

    def has_room(self, size: int) -> bool:
        limit = self._size if self.is_growing else self._file_bytes
        return self._end + size <= limit

    def read_frames(self) -> list[_Frame]:
        """Return the frames of this generation, oldest first."""
        frames: list[_Frame] = []
        if self._file is None or self._is_header_due:
            return frames
        data = self._read(self._file, _FRAMES_START, max(_FRAMES_START, self._size))
        at: int | None = 0
        while at is not None:
            self._end = _FRAMES_START + at
            frame = self._frame_at(data, at)
            if frame is not None:
                frames.append(frame)
                at += _FRAME_HEAD_BYTES + len(frame.body)
            else:
                at = self._resume(data, at)
        return frames

    def _frame_at(self, data: bytes, at: int) -> _Frame | None:
        """Return the frame of this generation at `at`; None if it is not intact."""
        if at + _FRAME_HEAD_BYTES > len(data):
            return None
        length, generation, sequence = _FRAME.unpack_from(data, at)
        end = at + _FRAME_HEAD_BYTES + length
        if generation != self.generation or end > len(data):
            return None
        head = data[at : at + _FRAME.size]
        body = memoryview(data)[at + _FRAME_HEAD_BYTES : end]
        (checksum,) = _CHECKSUM.unpack_from(data, at + _FRAME.size)
        return _Frame(sequence, body) if crc32c(body, crc32c(head)) == checksum else None

    def _resume(self, data: bytes, at: int) -> int | None:
        """Return where the frame after an unreadable one may start; None if that was the last.

        What is there is left from an earlier generation, unless there is a trace of this one.
        """
        if at + _FRAME_HEAD_BYTES <= len(data):
            length, generation, _ = _FRAME.unpack_from(data, at)
            if generation == self.generation:
                self.is_suspect = True
                following: int = at + _FRAME_HEAD_BYTES + length
                if self._frame_at(data, following) is not None:
                    return following
        end = data.find(_END_KEY + _GENERATION.pack(self.generation), at)
        if end < 0:
            return None
        self.is_suspect = True
        return end + _TAIL.size

    def _has_frames(self) -> bool:
        """Return whether something was ever written where frames go."""
        return self._file is not None and any(
            self._read(self._file, _FRAMES_START, _FRAMES_START + _FRAME_HEAD_BYTES)
        )

    def _read(self, file: File, start: int, end: int) -> bytes:
        """Read a part of the file; zeros stand for what the disk cannot read."""
        try:
            return file.read(start, end - start)
        except OSError as error:
            if not is_unreadable(error):
                raise
        if end - start <= _PAGE_BYTES:
            self.is_suspect = self.is_unreadable = True
            return bytes(end - start)
        middle = start + max(_PAGE_BYTES, (end - start) // 2 // _PAGE_BYTES * _PAGE_BYTES)
        return self._read(file, start, middle) + self._read(file, middle, end)

    def write(self, frame: Buffer) -> None:
        self._reserve(self._end + len(frame)).write_durably(self._end, frame)
        self._end += len(frame)

    def empty(self) -> None:
        """Start a new generation, in a new file if the disk cannot read the present one."""
        if self.is_unreadable:
            self._remove()
            return
        file = self._reserve(_FRAMES_START)
        self._write_slot(file, 1 - self._slot, self.generation + 1)
        self._end = _FRAMES_START
        self.is_suspect = False

    def _remove(self) -> None:
        self._disk.remove(self.path)
        self._disk.sync_folder("meta")
        self._file, self._size, self._end, self._slot = None, 0, _FRAMES_START, 0
        self.generation, self._is_header_due = 1, True
        self.is_suspect = self.is_unreadable = False

    def _reserve(self, end: int) -> File:
        """Grow the file to at least `end`; overwriting is cheaper than growing later."""
        file = self._file
        if file is None:
            file = self._file = self._disk.create(self.path)
        while end > self._size:
            self.grow()
        if self._is_header_due:
            self._write_slot(file, self._slot, self.generation)
            self._is_header_due = False
        return file

    def grow(self) -> None:
        assert self._file is not None
        growth = min(_GROWTH_BYTES, self._file_bytes)
        self._file.append(bytes(growth))
        self._file.sync()
        self._size += growth

    def _write_slot(self, file: File, slot: int, generation: int) -> None:
        head = _HEADER.pack(_MAGIC, _VERSION, generation)
        head += _CHECKSUM.pack(crc32c(head))
        file.write_durably(slot * _SLOT_BYTES, head.ljust(_SECTOR_BYTES, b"\0") + head)
        self._slot, self.generation = slot, generation

    def _read_slot(self, slot: int) -> int:
        """Return the generation in a slot; 0 if there is none."""
        place = slot * _SLOT_BYTES
        return max(self._read_header(place), self._read_header(place + _SECTOR_BYTES))

    def _read_header(self, place: int) -> int:
        if self._file is None:
            return 0
        data = self._read(self._file, place, place + _HEADER.size + _CHECKSUM.size)
        if len(data) < _HEADER.size + _CHECKSUM.size:
            return 0
        magic, version, generation = _HEADER.unpack_from(data)
        (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
        is_good = (magic, version) == (_MAGIC, _VERSION)
        return generation if is_good and crc32c(data[: _HEADER.size]) == checksum else 0


def _parse_tails(body: memoryview) -> list[Tail]:
    tails, at = [], 0
    while at < len(body):
        log_key, base_offset, position, length = _TAIL.unpack_from(body, at)
        at += _TAIL.size
        tails.append(Tail(log_key, base_offset, position, bytes(body[at : at + length])))
        at += length
    return tails


def _redo_file(file: File, tails: list[Tail]) -> list[str]:
    """Write tails, oldest first, to their segment, and sync the file."""
    size = file.size()
    for tail in tails:
        if tail.position > size:
            return [
                f"{file.path} ends at byte {size}, but the commit journal continues at "
                f"{tail.position}: durable bytes are missing."
            ]
        data = tail.data
        if not _has(file, tail):
            inside = min(size - tail.position, len(data))
            if inside:
                file.overwrite(tail.position, data[:inside])
            if inside < len(data):
                file.append(data[inside:])
        size = max(size, tail.position + len(data))
    # Equal bytes may be only in the page cache, not on the disk.
    file.sync()
    return []


def _has(file: File, tail: Tail) -> bool:
    """Whether a file has these bytes; if it cannot be read, writing them may cure it."""
    try:
        return file.read(tail.position, len(tail.data)) == tail.data
    except OSError as error:
        if not is_unreadable(error):
            raise
        return False
