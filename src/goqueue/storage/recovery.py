"""Recovery of a log that was not closed: find its durable end, and skip damage.

Sealed segments were durable as a whole and are accepted as they are. In the others, index entries
exist only for synced bytes, so the tail to be verified starts at the last entry. Two kinds of bad
bytes are distinguished there. A torn write was never acknowledged: the log ends before it. A
damaged batch with intact ones after it was once whole: it stays in its place, is reported, and what
follows is kept.

The last batch of a log may have been whole and corrupted since, which looks the same as a torn
write. So `before_cut` is called before anything is truncated, for callers that can compare with
other replicas: the next start will find no trace of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from goqueue.model.errors import CorruptBatch
from goqueue.storage.damage import Located, Place, header_at
from goqueue.storage.disk import Disk
from goqueue.storage.index import NOT_KNOWN, DamagedIndex
from goqueue.storage.segment import LOG_SUFFIX, Segment, SegmentState
from goqueue.storage.swap import drop_leftovers, finish_swap

_LOG_NAME = re.compile(r"\d{20}\.log")
_ALWAYS_SET_BYTES = 17  # offset, length, epoch and magic: not all zero in any batch


def recover_segments(
    disk: Disk,
    folder: str,
    *,
    start_offset: int,
    now_ms: int,
    index_interval_bytes: int,
    before_cut: Callable[[], None],
) -> tuple[list[Segment], list[str]]:
    """Return the segments of a log, ready for reads and appends, and reports of damage."""
    finish_swap(disk, folder)
    drop_leftovers(disk, folder)
    segments = _open_segments(disk, folder, now_ms=now_ms)
    # A crash may bring back some, but not all, of the segments that were being removed.
    while len(segments) > 1 and segments[1].base_offset <= start_offset:
        segments.pop(0).remove()
    if not segments:
        # A partition that was never written needs no files; any later segment does, because its
        # name shows where the log continues.
        return [Segment.create(disk, folder, start_offset, now_ms=now_ms, lazily=True)], []
    reports: list[str] = []
    first_open = _accept_sealed(segments, reports)
    # A crash during a truncation leaves a sealed segment at the end. It will grow, and its old seal
    # must not be found again after that.
    segments[-1].indexes.offsets.unseal()
    for number in range(first_open, len(segments)):
        segment = segments[number]
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        _recover_tail(segment, next_base, reports, index_interval_bytes, before_cut)
        # After a crash of the process its last writes may be only in the page cache.
        segment.file.sync()
        if next_base is not None and segment.end_offset != next_base:
            before_cut()
            reports += _drop(segments[number + 1 :], disk, folder)
            del segments[number + 1 :]
            break
        if next_base is not None:
            segment.seal()
    _sync_names(disk, folder)
    return segments, reports


def _open_segments(disk: Disk, folder: str, *, now_ms: int) -> list[Segment]:
    names = [name for name in disk.list(folder) if _LOG_NAME.fullmatch(name)]
    segments = []
    for name in names:
        base = int(name[: -len(LOG_SUFFIX)])
        file = disk.open(f"{folder}/{name}")
        state = SegmentState(base, file.size(), base, NOT_KNOWN, now_ms, NOT_KNOWN)
        segments.append(Segment(disk, folder, file, state))
    return segments


def _accept_sealed(segments: list[Segment], reports: list[str]) -> int:
    """Accept sealed segments as they are; return the number of the first to verify."""
    first_open = 0
    for number, segment in enumerate(segments[:-1]):
        if segment.seal_found():
            first_open = number + 1
    for segment, following in pairwise(segments[: first_open + 1]):
        if not segment.is_sealed:
            # The seal was lost, but not the log: it was synced before the sealed one after it.
            segment.indexes.drop()
            segment.is_sealed = True
            segment.end_offset = following.base_offset
        if segment.end_offset != following.base_offset:
            reports.append(
                f"{segment.file.path} ends at offset {segment.end_offset}; offsets up to "
                f"{following.base_offset} are missing."
            )
    return first_open


def _recover_tail(
    segment: Segment,
    next_base: int | None,
    reports: list[str],
    index_interval_bytes: int,
    before_cut: Callable[[], None],
) -> None:
    """Verify what follows the last index entry, and truncate a torn end."""
    count, place = _last_indexed(segment)
    segment.keep_indexed(count, until=place.position)
    segment.end_offset, segment.trusted_from = place.offset, place.position
    while True:
        try:
            for located in segment.scan(place, until=segment.size, is_checked=True):
                segment.note_batch(*located, index_interval_bytes=index_interval_bytes)
            return
        except CorruptBatch as error:
            damaged, resume, _ = segment.damages[error.position]
        if resume is not None and not _is_unwritten(segment, damaged.position):
            reports.append(str(segment.corrupt(damaged)))
            segment.trusted_from = resume.position
            place = resume
        elif next_base is not None and _was_last_batch(segment, damaged, next_base):
            segment.end_offset = next_base
            segment.trusted_from = segment.size
            reports.append(str(segment.corrupt(damaged)))
            return
        else:
            reports.append(
                f"{segment.file.path}: truncated {segment.size - damaged.position} bytes of an "
                f"unfinished write at byte {damaged.position}, offset {damaged.offset}."
            )
            before_cut()
            segment.truncate(damaged)
            return


def _last_indexed(segment: Segment) -> tuple[int, Place]:
    """Return the last indexed place with an intact batch, and the number of entries before it."""
    offsets, times = segment.indexes.offsets, segment.indexes.times
    for number in range(min(len(offsets), len(times)) - 1, -1, -1):
        try:
            relative, position = offsets[number]
            if number:
                offsets[number - 1], times[number - 1]
        except DamagedIndex:
            continue
        place = Place(position, segment.base_offset + relative)
        if _is_batch_at(segment, place):
            return number, place
    return 0, Place(0, segment.base_offset)


def _is_batch_at(segment: Segment, place: Place) -> bool:
    """Return whether there is an intact batch at a place."""
    header = header_at(segment, place.position)
    if header is None or header.base_offset != place.offset:
        return False
    is_possible = segment.is_possible(header, place.position)
    return is_possible and segment.read_batch(Located(place.position, header)) is not None


def _is_unwritten(segment: Segment, position: int) -> bool:
    """Return whether the page after the last good batch was never written: it reads as zeros."""
    return not any(segment.file.read(position, _ALWAYS_SET_BYTES))


def _was_last_batch(segment: Segment, damaged: Place, next_base: int) -> bool:
    """Return whether the damaged end of a segment was a whole batch, since the next one fits it."""
    header = header_at(segment, damaged.position)
    if header is None or _is_unwritten(segment, damaged.position):
        return False
    return (
        damaged.position + header.size == segment.size
        or damaged.offset + header.last_offset_delta + 1 == next_base
    )


def _drop(segments: list[Segment], disk: Disk, folder: str) -> list[str]:
    """Remove segments after a torn one: nothing in them was ever acknowledged."""
    reports = [
        f"{segment.file.path}: removed, because the segment before it is incomplete."
        for segment in segments
    ]
    for segment in reversed(segments):
        segment.remove()
    disk.sync_folder(folder)
    return reports


def _sync_names(disk: Disk, folder: str) -> None:
    while True:
        disk.sync_folder(folder)
        if not folder:
            return
        folder = folder.rpartition("/")[0]
