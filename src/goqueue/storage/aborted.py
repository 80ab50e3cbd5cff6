"""Look-up of the aborted transactions of a log, and their recovery from the log itself."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from goqueue.model.batch import Marker, decode_marker
from goqueue.model.errors import CorruptBatch
from goqueue.storage.damage import Located
from goqueue.storage.index import NOT_KNOWN, AbortedTransaction, DamagedIndex, aborted_by
from goqueue.storage.log import Log
from goqueue.storage.segment import Segment

_base_offset = attrgetter("base_offset")


def find_aborted(log: Log, first_offset: int, until_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records from `first_offset` to `until_offset`."""
    found: list[AbortedTransaction] = []
    number = max(0, bisect_right(log.segments, first_offset, key=_base_offset) - 1)
    for segment in log.segments[number:]:
        if not segment.indexes.aborted_count:
            continue
        for one in _known(log, segment, first_offset, until_offset):
            if one.first_offset < until_offset:
                found.append(one)
            if one.last_stable_offset >= until_offset:
                return found
    return found


def restore_aborted(log: Log, offset: int, *, base_offset: int, count: int) -> None:
    """Prepare to replay the batches from `offset` on.

    In the segment that starts at `base_offset`, `count` transactions were aborted before that.
    Index entries of later ones are dropped, and missing ones of earlier ones are restored.
    """
    for segment in log.segments:
        if segment.base_offset >= offset:
            segment.indexes.replace_aborted()
        elif segment.indexes.aborted_count and (
            segment.end_offset > offset or not segment.is_sealed
        ):
            expected = count if segment.base_offset == base_offset else NOT_KNOWN
            _keep_before(log, segment, offset, expected)


def seal_aborted(log: Log) -> None:
    """Write the restored entries of sealed segments."""
    for segment in log.segments:
        if segment.indexes.aborted.pending:
            _seal(segment)


def read_marker(segment: Segment, located: Located) -> Marker | None:
    """Decode a control batch; None if it cannot be read."""
    data = segment.read_batch(located)
    try:
        return None if data is None else decode_marker(data)
    except CorruptBatch:
        return None


def _known(
    log: Log, segment: Segment, first_offset: int, until_offset: int
) -> list[AbortedTransaction]:
    """Return transactions with their marker in this segment that may overlap the offsets."""
    indexes = segment.indexes
    try:
        if indexes.is_aborted_known(segment.end_offset):
            return list(indexes.aborted.overlapping(first_offset, until_offset))
    except DamagedIndex:
        pass
    indexes.replace_aborted(_learn(log, segment))
    _seal(segment)
    return list(indexes.aborted.overlapping(first_offset, until_offset))


def _keep_before(log: Log, segment: Segment, offset: int, count: int) -> None:
    indexes = segment.indexes
    try:
        is_whole = indexes.is_aborted_known(segment.end_offset)
        indexes.aborted.cut_from(offset)
        if is_whole or len(indexes.aborted) == count:
            indexes.aborted_count = len(indexes.aborted)
            return
    except DamagedIndex:
        pass
    learnt = _learn(log, segment)
    indexes.replace_aborted(one for one in learnt if one.last_offset < offset)
    _seal(segment)


def _seal(segment: Segment) -> None:
    """Write the index of aborted transactions if the segment is sealed."""
    if segment.is_sealed:
        try:
            segment.indexes.aborted.seal(segment.end_offset)
        except OSError:
            pass  # No space for it. It stays in memory, and can be rebuilt from the log.


def _learn(log: Log, segment: Segment) -> list[AbortedTransaction]:
    """Rebuild the index of a segment from the log."""
    markers = (read_marker(segment, one) for one in _markers(segment))
    if all(marker is None or marker.is_commit for marker in markers):
        return []
    learnt: list[AbortedTransaction] = []
    firsts: dict[int, int] = {}  # first offsets of open transactions by producer, in order
    for one, located in log.located(log.segments[0].base_offset):
        if one.base_offset > segment.base_offset:
            break
        header = located.header
        if not header.is_control:
            if header.is_transactional and header.record_count:
                firsts.setdefault(header.producer_id, header.base_offset)
            continue
        marker = read_marker(one, located)
        first = None if marker is None else firsts.pop(header.producer_id, None)
        if marker is not None and not marker.is_commit and first is not None and one is segment:
            learnt.append(aborted_by(header, first_offset=first, still_open=firsts.values()))
    return learnt


def _markers(segment: Segment) -> Iterator[Located]:
    return (one for one in segment.readable(segment.base_offset) if one.header.is_control)
