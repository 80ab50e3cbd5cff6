"""Scans of the batches in a file, and the handling of damaged ones.

Offsets have no gaps: each batch starts with the offset after the one before it. A batch's own
offset and length are outside its checksum, and this rule is what protects them: a reader always has
the offset that must come next.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from goqueue.model.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_EPOCH,
    BatchHeader,
    is_intact,
    read_header,
)
from goqueue.model.errors import CorruptBatch
from goqueue.storage.disk import File

RELATIVE_OFFSET_MAX = (1 << 31) - 1
EPOCH_MAX = (1 << 31) - 1

_WINDOW_BYTES_MIN = 8 << 10  # enough for the batches between two index entries
_WINDOW_BYTES_MAX = 256 << 10
_RESUME_SEARCH_BYTES = 64 << 20
_BATCH_LENGTH_MIN = HEADER_BYTES - LENGTH_PREFIX_BYTES
_OFFSET = struct.Struct(">q")
# Where a header may start: an offset below 2**48, and the format version sixteen bytes later.
_HEADER_START = re.compile(rb"(?=\x00\x00.{14}\x02)", re.DOTALL)


class Place(NamedTuple):
    """A position in a segment and the offset that must start there."""

    position: int
    offset: int


class Located(NamedTuple):
    """A batch header and its position in the segment."""

    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        return self.position + self.header.size

    @property
    def after(self) -> Place:
        return Place(self.position + self.header.size, self.header.next_offset)


class Damage(NamedTuple):
    """Where a segment cannot be read, and where it can be read again (None: nowhere)."""

    place: Place
    resume: Place | None
    end: Place  # of the segment when it was found; what was written later starts there


class BatchFile:
    """Batches with offsets from `base_offset` up to `end_offset`, in `size` bytes of a file."""

    __slots__ = ("base_offset", "damages", "end_offset", "epoch_max", "file", "size")

    def __init__(self, file: File, *, base_offset: int, size: int, end_offset: int) -> None:
        self.base_offset = base_offset
        self.file = file
        self.size = size
        self.end_offset = end_offset
        # Batches of a later epoch than this cannot have been written.
        self.epoch_max = EPOCH_MAX
        # Damage found so far, by position.
        self.damages: dict[int, Damage] = {}

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
                is_believed = not is_checked and self._is_followed(header, data, position, stop)
                if not is_believed and not self._is_intact(header, data, position, at):
                    raise self.corrupt(Place(position + at, offset))
                yield Located(position + at, header)
                at, offset = stop, header.next_offset
            position += at
            window = min(4 * window, _WINDOW_BYTES_MAX)
        if until is None and offset != self.end_offset:
            raise self.corrupt(Place(position, offset))

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

    def batch_at(self, place: Place) -> Located | None:
        """Return the batch that starts at a place, accepted as in a scan; None otherwise."""
        position = place.position
        data = self.file.read(position, min(_WINDOW_BYTES_MIN, self.size - position))
        header = self._plausible(data, 0, *place)
        if header is None or not self._is_followed(header, data, position, header.size):
            return None
        return Located(position, header)

    def is_batch_at(self, place: Place) -> bool:
        """Return whether there is an intact batch at a place."""
        data = self.file.read(place.position, HEADER_BYTES)
        header = self._plausible(data, 0, *place)
        return header is not None and self._is_intact(header, b"", place.position, 0)

    def offset_at(self, position: int) -> int:
        """Return the offset of the batch that starts at a position; at the end, the next offset."""
        if position >= self.size:
            return self.end_offset
        (offset,) = _OFFSET.unpack(self.file.read(position, _OFFSET.size))
        return int(offset)

    def read_batch(self, located: Located) -> bytes | None:
        """Return the bytes of one batch; None if they are damaged."""
        data = self.file.read(located.position, located.header.size)
        return data if is_intact(memoryview(data), located.header) else None

    def corrupt(self, place: Place) -> CorruptBatch:
        """Return the error for a damaged batch, with its position and where to continue."""
        damage = self.damages.get(place.position)
        if damage is None:
            damage = Damage(place, self._find_resume(place), Place(self.size, self.end_offset))
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

    # Damage

    def _plausible(self, data: bytes, at: int, position: int, offset: int) -> BatchHeader | None:
        """Return the header at `at`; None if it cannot be that of `offset` at `position`."""
        if at + HEADER_BYTES > len(data):
            return None
        header = read_header(data, at)
        if header.base_offset != offset or not self._is_possible(header, position):
            return None
        return header

    def _is_possible(self, header: BatchHeader, position: int) -> bool:
        return (
            header.magic == MAGIC
            and header.batch_length >= _BATCH_LENGTH_MIN
            and position + header.size <= self.size
            and header.last_offset_delta >= 0
            and NO_EPOCH <= header.leader_epoch <= self.epoch_max
        )

    def _is_followed(self, header: BatchHeader, data: bytes, position: int, stop: int) -> bool:
        """Return whether the next batch starts with the offset that this one implies."""
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

    def _find_resume(self, damaged: Place) -> Place | None:
        """Return the next intact batch after a damaged one.

        A record may itself contain bytes of batches. So the end that the damaged batch claims is
        tried first, and in the search a batch with a valid successor is preferred.
        """
        header = self._header_at(damaged.position)
        if header is not None:
            at_end = self._intact_at(damaged.position + header.size, damaged.offset)
            if at_end is not None:
                return Place(at_end.position, at_end.header.base_offset)
        first: Place | None = None
        for candidate in self._search_intact(damaged):
            place = Place(candidate.position, candidate.header.base_offset)
            if self._is_followed(candidate.header, b"", 0, candidate.end):
                return place
            first = first or place
        return first

    def _search_intact(self, damaged: Place) -> Iterator[Located]:
        start = damaged.position + 1
        while start < min(self.size, damaged.position + _RESUME_SEARCH_BYTES):
            data = self.file.read(start, _WINDOW_BYTES_MAX)
            for match in _HEADER_START.finditer(data):
                if match.start() + HEADER_BYTES > len(data):
                    break
                candidate = read_header(data, match.start())
                if self._can_follow(candidate, start + match.start(), damaged.offset):
                    located = self._intact_at(start + match.start(), damaged.offset)
                    if located is not None:
                        yield located
            if len(data) < _WINDOW_BYTES_MAX:
                return
            start += _WINDOW_BYTES_MAX - HEADER_BYTES

    def _intact_at(self, position: int, after_offset: int) -> Located | None:
        header = self._header_at(position)
        if header is None or not self._can_follow(header, position, after_offset):
            return None
        data = self.file.read(position, header.size)
        return Located(position, header) if is_intact(memoryview(data), header) else None

    def _can_follow(self, header: BatchHeader, position: int, after_offset: int) -> bool:
        relative = header.base_offset - self.base_offset
        return (
            header.base_offset > after_offset
            and relative <= RELATIVE_OFFSET_MAX
            and self._is_possible(header, position)
        )

    def _header_at(self, position: int) -> BatchHeader | None:
        data = self.file.read(position, HEADER_BYTES) if position < self.size else b""
        return read_header(data) if len(data) == HEADER_BYTES else None
