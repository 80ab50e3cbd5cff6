"""Positions of batches in a segment, and the search for an intact one after a damaged one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from goqueue.model.batch import HEADER_BYTES, BatchHeader, is_intact, read_header

if TYPE_CHECKING:
    from goqueue.storage.segment import Segment

RELATIVE_OFFSET_MAX = (1 << 31) - 1

_WINDOW_BYTES = 256 << 10
_SEARCH_BYTES_MAX = 64 << 20
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
    def place(self) -> Place:
        return Place(self.position, self.header.base_offset)


class Damage(NamedTuple):
    """Where a segment cannot be read, and where it can be read again (None: nowhere)."""

    place: Place
    resume: Place | None
    end: Place  # of the segment when it was found; what was written later starts there


def find_resume(segment: Segment, damaged: Place) -> Place | None:
    """Return the next intact batch after a damaged one.

    A record may itself contain bytes of batches. So the end that the damaged batch claims is tried
    first, and in the search a batch with a valid successor is preferred.
    """
    header = header_at(segment, damaged.position)
    if header is not None:
        at_end = _intact_at(segment, damaged.position + header.size, damaged.offset)
        if at_end is not None:
            return at_end.place
    first: Place | None = None
    for candidate in _search_intact(segment, damaged):
        if segment.is_followed(candidate.header, b"", 0, candidate.end):
            return candidate.place
        first = first or candidate.place
    return first


def _search_intact(segment: Segment, damaged: Place) -> Iterator[Located]:
    start = damaged.position + 1
    while start < min(segment.size, damaged.position + _SEARCH_BYTES_MAX):
        data = segment.file.read(start, _WINDOW_BYTES)
        for match in _HEADER_START.finditer(data):
            if match.start() + HEADER_BYTES > len(data):
                break
            candidate = read_header(data, match.start())
            if _can_follow(segment, candidate, start + match.start(), damaged.offset):
                located = _intact_at(segment, start + match.start(), damaged.offset)
                if located is not None:
                    yield located
        if len(data) < _WINDOW_BYTES:
            return
        start += _WINDOW_BYTES - HEADER_BYTES


def _intact_at(segment: Segment, position: int, after_offset: int) -> Located | None:
    header = header_at(segment, position)
    if header is None or not _can_follow(segment, header, position, after_offset):
        return None
    data = segment.file.read(position, header.size)
    return Located(position, header) if is_intact(memoryview(data), header) else None


def _can_follow(segment: Segment, header: BatchHeader, position: int, after_offset: int) -> bool:
    relative = header.base_offset - segment.base_offset
    return (
        header.base_offset > after_offset
        and relative <= RELATIVE_OFFSET_MAX
        and segment.is_possible(header, position)
    )


def header_at(segment: Segment, position: int) -> BatchHeader | None:
    """Return what would be the header of a batch at a position; None after the end."""
    data = segment.file.read(position, HEADER_BYTES) if position < segment.size else b""
    return read_header(data) if len(data) == HEADER_BYTES else None
