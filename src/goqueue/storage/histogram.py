"""How the records of a log are spread over time, from its indexes and the headers of batches."""

from __future__ import annotations

from goqueue.storage.log import Log


def offset_at_time(log: Log, timestamp: int, *, until_offset: int) -> int:
    """Return the offset of the first batch that has a record at least as new as `timestamp`.

    No record is decoded: the result is right to a batch. Without such a batch it is `until_offset`.
    """
    for segment in list(log.segments):
        if segment.end_offset <= log.start_offset or segment.max_timestamp < timestamp:
            continue
        start = max(segment.offset_before(timestamp), log.start_offset)
        for located in segment.readable(start):
            header = located.header
            if header.base_offset >= until_offset:
                return until_offset
            if header.max_timestamp >= timestamp and not header.is_control:
                return max(header.base_offset, log.start_offset)
    return until_offset
