"""Look-up of records by their timestamps."""

from __future__ import annotations

from goqueue.model.batch import Record, decode_records, unpack_payload
from goqueue.storage.damage import Located
from goqueue.storage.log import Log
from goqueue.storage.segment import Segment


def find_timestamp(log: Log, timestamp: int, *, until_offset: int) -> Record | None:
    """Return the first readable record at least as new as `timestamp`."""
    for segment in list(log.segments):
        if segment.end_offset <= log.start_offset or segment.max_timestamp < timestamp:
            continue
        start = max(segment.offset_before(timestamp), log.start_offset)
        for located in segment.readable(start):
            if located.header.base_offset >= until_offset:
                return None
            if located.header.max_timestamp < timestamp or located.header.is_control:
                continue
            for record in records_of(segment, located):
                if record.timestamp_ms >= timestamp and record.offset >= log.start_offset:
                    return record
    return None


def find_newest(log: Log, *, until_offset: int) -> Record | None:
    """Return the first record that has the largest timestamp of all."""
    newest = max(
        (one.max_timestamp for one in log.segments if one.end_offset > log.start_offset),
        default=-1,
    )
    return find_timestamp(log, newest, until_offset=until_offset) if newest >= 0 else None


def records_of(segment: Segment, located: Located) -> list[Record]:
    """Return the records of a batch; none if it is damaged, since it is unreadable."""
    data = segment.read_batch(located)
    if data is None:
        return []
    return list(decode_records(located.header, unpack_payload(data, located.header)))
