"""Opening a log that was not closed: find its durable end, step over damage, invent nothing.

Index entries are written only for synced bytes, so the tail to be examined begins at the last
entry. Two kinds of bad bytes are told apart there. A torn write was never acknowledged: the log
ends before it. A damaged batch with intact ones after it was once whole: it stays in its place,
is reported, and what follows is kept.
"""

from __future__ import annotations

from goqueue.model.batch import HEADER_BYTES, BatchHeader, is_intact, read_header
from goqueue.storage.disk import Disk
from goqueue.storage.segment import LOG_SUFFIX, Resume, Segment
from goqueue.storage.swap import finish_swap

_CHUNK_BYTES = 1 << 20
_PAGE_BYTES = 4096


def recover_segments(
    disk: Disk, folder: str, *, start_offset: int, now_ms: int, index_interval_bytes: int
) -> tuple[list[Segment], list[str]]:
    """The segments of a log, ready to be read and appended to, and what was found damaged."""
    finish_swap(disk, folder)
    bases = sorted(
        int(name[: -len(LOG_SUFFIX)]) for name in disk.list(folder) if name.endswith(LOG_SUFFIX)
    )
    if not bases:
        # A partition that was never written to needs no files; any later segment does, because
        # its name is what tells where the log goes on.
        return [Segment.create(disk, folder, start_offset, now_ms=now_ms, lazily=True)], []
    segments = [
        _open_segment(disk, folder, base, next_base, now_ms)
        for base, next_base in zip(bases, [*bases[1:], bases[-1]], strict=True)
    ]
    first_open = len(segments) - 1
    while first_open > 0 and not segments[first_open - 1].index.is_sealed():
        first_open -= 1
    reports: list[str] = []
    for number in range(first_open, len(segments)):
        is_torn = _recover_tail(segments[number], reports, index_interval_bytes)
        is_gap = (
            number + 1 < len(segments)
            and segments[number].end_offset != segments[number + 1].base_offset
        )
        if is_torn and is_gap:
            for later in segments[number + 1 :]:
                later.remove()
            del segments[number + 1 :]
            break
    return segments, reports


def _open_segment(disk: Disk, folder: str, base: int, end_offset: int, now_ms: int) -> Segment:
    file = disk.open(f"{folder}/{base:020d}{LOG_SUFFIX}")
    return Segment(
        disk, folder, base, file, size=file.size(), end_offset=end_offset, created_ms=now_ms
    )


def _recover_tail(segment: Segment, reports: list[str], index_interval_bytes: int) -> bool:
    """Examine what follows the last index entry; return whether a torn end was cut off."""
    start, expected = _last_indexed(segment)
    segment.truncate_indexes(start)
    position, trusted_from = start, start
    chunk, chunk_start = b"", start
    while position < segment.size:
        at = position - chunk_start
        header = _intact_header(chunk, at, expected)
        if header is None:
            chunk, chunk_start = _read_batch(segment, position), position
            header = _intact_header(chunk, 0, expected)
        if header is not None:
            segment.note_batch(position, header, index_interval_bytes=index_interval_bytes)
            position, expected = position + header.size, header.next_offset
            continue
        resume = None if _is_unwritten(segment, position) else _resume(segment, position, expected)
        if resume is None:
            reports.append(
                f"{segment.file.path}: cut off {segment.size - position} bytes of an unfinished "
                f"write at byte {position}, offset {expected}."
            )
            segment.truncate(position, expected)
            segment.trusted_from = min(trusted_from, position)
            return True
        reports.append(str(segment.corrupt(position)))
        trusted_from = resume.position
        position, expected = resume.position, resume.offset
    segment.end_offset = expected
    segment.trusted_from = trusted_from
    return False


def _last_indexed(segment: Segment) -> tuple[int, int]:
    """Position and offset of the last batch in the index that is whole."""
    for number in range(len(segment.index) - 1, -1, -1):
        relative, position = segment.index[number]
        expected = segment.base_offset + relative
        if position < segment.size and _intact_header(_read_batch(segment, position), 0, expected):
            return position, expected
    return 0, segment.base_offset


def _read_batch(segment: Segment, position: int) -> bytes:
    """Bytes from `position` on that hold the batch there, if there is one."""
    data = segment.file.read(position, _CHUNK_BYTES)
    if len(data) >= HEADER_BYTES:
        size = read_header(data).size
        if len(data) < size <= segment.size - position:
            data = segment.file.read(position, size)
    return data


def _intact_header(data: bytes, at: int, expected: int) -> BatchHeader | None:
    if at + HEADER_BYTES > len(data):
        return None
    header = read_header(data, at)
    if header.base_offset != expected or not HEADER_BYTES <= header.size <= len(data) - at:
        return None
    if header.magic != 2 or not is_intact(memoryview(data)[at:], header):
        return None
    return header


def _is_unwritten(segment: Segment, position: int) -> bool:
    """Whether the page after the last good batch never reached the disk: it reads as zeros."""
    length = min(HEADER_BYTES, _PAGE_BYTES - position % _PAGE_BYTES)
    return not any(segment.file.read(position, length))


def _resume(segment: Segment, position: int, expected: int) -> Resume | None:
    segment.end_offset = expected
    segment.corrupt(position)
    resume = segment.resumes[position]
    return resume if resume is not None and resume.offset > expected else None
