"""Finds where the records of a partition end, for lag.

The end of the log is the wrong measure of lag with transactions: markers take offsets that no
consumer receives, and most clients commit the offset after the last record they received. The
search goes backward from the high watermark, one index entry at a time, so that it costs one short
read if the log ends with a record, and appends maintain nothing for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from goqueue.model.batch import BatchHeader
from goqueue.storage.aborted import find_aborted
from goqueue.storage.damage import Located
from goqueue.storage.index import AbortedSpans
from goqueue.storage.log import Log
from goqueue.storage.segment import Segment
from goqueue.storage.timestamps import records_of

# A log may end with any number of markers, so a search reads a slice of it; the next one continues
# where this one stopped, and until then the result is too large.
SLICE_BATCHES = 100
SEARCH_BATCHES_MAX = 10_000  # in slices, for one request

_base_offset = attrgetter("base_offset")


class NoRecords(NamedTuple):
    """A range of offsets without records, `until` excluded."""

    since: int
    until: int
    is_whole: bool = False  # whether there is a record before it, or nothing

    def is_end_of(self, until: int) -> bool:
        """Whether a search back from an offset would find nothing else."""
        return self.is_whole and self.until == until


def search_back(
    log: Log, until: int, known: NoRecords, *, batches_max: int = SLICE_BATCHES
) -> NoRecords:
    """Return the range without records that ends at the high watermark `until`.

    `known` is the result of the previous search. It stays valid: records are only ever removed.
    """
    since, batches_left = until, batches_max
    while since > log.start_offset and batches_left > 0:
        if known.since < since <= known.until:
            since = known.since
            continue
        segment = log.segments[max(0, bisect_right(log.segments, since - 1, key=_base_offset) - 1)]
        begin, batches = _stretch(segment, since)
        last = _last_record(log, segment, batches, since=since, until=until)
        if last is not None:
            return NoRecords(min(last + 1, until), until, is_whole=True)
        since = begin
        batches_left -= max(1, len(batches))
    is_whole = since <= log.start_offset
    return NoRecords(max(since, log.start_offset), until, is_whole)


def _stretch(segment: Segment, until: int) -> tuple[int, list[Located]]:
    """Return the batches of one index entry before an offset, and their first offset."""
    place = segment.place_before(until - 1)
    batches = []
    for located in segment.scan_readable(place):
        if located.header.base_offset >= until:
            break
        batches.append(located)
    return place.offset, batches


def _last_record(
    log: Log, segment: Segment, batches: Sequence[Located], *, since: int, until: int
) -> int | None:
    """Return the offset of the last record of these batches, which end at `since`, that was not
    aborted.
    """
    aborted: AbortedSpans | None = None
    for located in reversed(batches):
        header = located.header
        if header.is_control or not header.record_count:
            continue
        if header.is_transactional:
            if aborted is None:
                aborted = _aborted(log, batches[0].header.base_offset, since, until)
            if aborted.cover(header):
                continue
        offset = _last_offset(segment, located, header)
        return offset if offset >= log.start_offset else None
    return None


def _aborted(log: Log, begin: int, end: int, until: int) -> AbortedSpans:
    """Return the aborted transactions with records from `begin` to `end`."""
    if not log.has_aborted(begin):
        return AbortedSpans()
    # A marker after the high watermark may still be lost with its leader.
    return AbortedSpans(one for one in find_aborted(log, begin, end) if one.last_offset < until)


def _last_offset(segment: Segment, located: Located, header: BatchHeader) -> int:
    """Return the last record's offset; compaction may have removed the batch's last records."""
    if header.record_count > header.last_offset_delta:
        return header.last_offset
    records = records_of(segment, located)
    return records[-1].offset if records else header.last_offset
