"""When records were written, looked up in another thread.

The event loop says where to search, without touching the disk. The thread opens the files itself
and only reads what no longer changes: batches and index entries before the end at that time. It
must therefore not be used in a log that may be truncated, such as a follower's. Segments may be
removed meanwhile; then there is no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.model.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    decode_records,
    is_intact,
    read_header,
    unpack_payload,
)
from goqueue.model.errors import GoQueueError
from goqueue.storage.disk import Disk, File
from goqueue.storage.index import AbortedSpans, DamagedIndex, OffsetIndex
from goqueue.storage.log import Log

UNKNOWN_MS = -1
NOTHING_MS = -2  # there is no record, only markers of transactions
BATCHES_MAX = 1_000  # of one search; between two index entries there are fewer than a hundred
PARTS_MAX = 2  # segments; those that have only markers are few
_WINDOW_BYTES = 16 << 10


class _Part(NamedTuple):
    """One segment as it was."""

    log_path: str
    offsets: OffsetIndex
    base_offset: int
    bytes: int
    position: int  # of a batch at or before the offset; -1: the index in the file says it


class Search(NamedTuple):
    """A search for the first record at or after an offset, and before another one."""

    offset: int
    until: int
    parts: Sequence[_Part]
    aborted: AbortedSpans  # whose records do not count
    is_whole: bool  # whether there is nothing after these parts


def search_for(log: Log, offset: int, *, until: int, aborted: AbortedSpans | None = None) -> Search:
    """Return what to search for; nothing is read."""
    parts, segments = [], log.segments_from(offset)
    for segment in segments[:PARTS_MAX]:
        index = segment.indexes.offsets
        entry = index.pending_floor(max(0, offset - segment.base_offset))
        position = -1 if entry is None else entry[1]
        if segment.base_offset >= offset:
            position = 0
        parts.append(_Part(segment.file.path, index, segment.base_offset, segment.size, position))
    skipped = AbortedSpans() if aborted is None else aborted
    return Search(offset, until, parts, skipped, is_whole=len(segments) <= PARTS_MAX)


def find_time(disk: Disk, search: Search) -> int:
    """Return the timestamp of the record; run it in a thread."""
    try:
        for part in search.parts:
            found = _find_in(disk, part, search)
            if found != NOTHING_MS:
                return found
    except (OSError, DamagedIndex, GoQueueError, ValueError):
        return UNKNOWN_MS  # It was removed meanwhile, or is damaged, which others report.
    return NOTHING_MS if search.is_whole else UNKNOWN_MS


def _find_in(disk: Disk, part: _Part, search: Search) -> int:
    position = part.position if part.position >= 0 else _indexed(disk, part, search.offset)
    file = disk.open(part.log_path)
    file.pin()
    try:
        return _scan(file, position, part.bytes, search)
    finally:
        file.unpin()
        file.close()


def _indexed(disk: Disk, part: _Part, offset: int) -> int:
    """Return where the index in the file says that a search begins."""
    path = part.offsets.path
    if not disk.exists(path):
        return 0
    file = disk.open(path)
    file.pin()
    try:
        entry = part.offsets.written_floor(file, offset - part.base_offset)
    finally:
        file.unpin()
        file.close()
    return 0 if entry is None else entry[1]


def _scan(file: File, position: int, end: int, search: Search) -> int:
    data, start = b"", position
    for _ in range(BATCHES_MAX):
        if position + HEADER_BYTES > end:
            return NOTHING_MS
        if position - start + HEADER_BYTES > len(data):
            data, start = file.read(position, _WINDOW_BYTES), position
        header = read_header(memoryview(data)[position - start :])
        if header.base_offset >= search.until:
            return NOTHING_MS
        if header.size < HEADER_BYTES:
            return UNKNOWN_MS
        if header.next_offset > search.offset and _has_records(header, search.aborted):
            return _time_in(file, position, header, search.offset)
        position += header.size
    return UNKNOWN_MS


def _has_records(header: BatchHeader, aborted: AbortedSpans) -> bool:
    return bool(header.record_count) and not header.is_control and not aborted.cover(header)


def _time_in(file: File, position: int, header: BatchHeader, offset: int) -> int:
    """Return the timestamp of the first record of a batch at or after an offset."""
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    if offset <= header.base_offset and header.record_count > header.last_offset_delta:
        return header.base_timestamp
    data = file.read(position, header.size)
    if not is_intact(memoryview(data), header):
        return UNKNOWN_MS
    times = (
        record.timestamp_ms
        for record in decode_records(header, unpack_payload(data, header))
        if record.offset >= offset
    )
    return next(times, UNKNOWN_MS)
