"""Look-up of the aborted transactions of a log, and their recovery from the log itself."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from goqueue.model.batch import Marker, decode_marker
from goqueue.model.errors import CorruptBatch
from goqueue.storage.index import DamagedIndex
from goqueue.storage.log import Log
from goqueue.storage.scanning import Located
from goqueue.storage.segment import NOT_KNOWN, Segment
from goqueue.storage.transaction_index import AbortedTransaction, aborted_by

_base_offset = attrgetter("base_offset")
_aborted_count = attrgetter("aborted_count")


def has_aborted(log: Log, offset: int) -> bool:
    """Return whether there may be aborted transactions with records from `offset` on."""
    return any(map(_aborted_count, log.segments[_number_of(log, offset) :]))


def find_aborted(log: Log, first_offset: int, until_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records from `first_offset` to `until_offset`."""
    found: list[AbortedTransaction] = []
    for segment in log.segments[_number_of(log, first_offset) :]:
        if not segment.aborted_count:
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
            segment.aborted.remove()
            segment.aborted_count = 0
        elif segment.aborted_count and (segment.end_offset > offset or not segment.is_sealed):
            expected = count if segment.base_offset == base_offset else NOT_KNOWN
            _keep_before(log, segment, offset, expected)


def seal_aborted(log: Log) -> None:
    """Write the restored entries of sealed segments."""
    for segment in log.segments:
        if segment.aborted.pending:
            segment.seal_aborted()


def read_marker(segment: Segment, located: Located) -> Marker | None:
    """Decode a control batch; None if it cannot be read."""
    data = segment.read_batch(located)
    try:
        return None if data is None else decode_marker(data)
    except CorruptBatch:
        return None


def _number_of(log: Log, offset: int) -> int:
    """Return the number of the segment that contains an offset."""
    return max(0, bisect_right(log.segments, offset, key=_base_offset) - 1)


def _known(
    log: Log, segment: Segment, first_offset: int, until_offset: int
) -> list[AbortedTransaction]:
    """Return transactions with their marker in this segment that may overlap the offsets."""
    try:
        if segment.is_aborted_known():
            return list(segment.aborted.overlapping(first_offset, until_offset))
    except DamagedIndex:
        pass
    segment.replace_aborted(_learn(log, segment))
    return list(segment.aborted.overlapping(first_offset, until_offset))


def _keep_before(log: Log, segment: Segment, offset: int, count: int) -> None:
    try:
        is_whole = segment.is_aborted_known()
        segment.aborted.cut_from(offset)
        if is_whole or len(segment.aborted) == count:
            segment.aborted_count = len(segment.aborted)
            return
    except DamagedIndex:
        pass
    learnt = _learn(log, segment)
    segment.replace_aborted([one for one in learnt if one.last_offset < offset])


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
