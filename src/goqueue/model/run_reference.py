"""Small batches that came together and go into one log together, in plain Python.

`_runs.c` does the same, compiled. A batch is plain when its header and its checksum are all that
has to be looked at: not compressed, of no idempotent producer, with no attributes of ours.
"""

from __future__ import annotations

from goqueue.model.attributes import may_have_attributes
from goqueue.model.batch import NO_TIMESTAMP, BatchHeader, check_batch, read_header, stamp
from goqueue.model.compression import Buffer
from goqueue.model.errors import GoQueueError

Span = tuple[int, int]  # where a batch begins and ends in the bytes that hold it


def is_plain(
    data: Buffer, start: int, end: int, bytes_max: int, time_min: int, time_max: int, /
) -> bool:
    """Whether the batch from start to end needs no closer look."""
    batch = memoryview(data)[start:end]
    try:
        header = check_batch(batch)
    except GoQueueError:
        return False
    is_in_time = header.max_timestamp == NO_TIMESTAMP or (
        header.max_timestamp <= time_max and header.base_timestamp >= time_min
    )
    return (
        len(batch) <= bytes_max
        and is_in_time
        and header.record_count == header.last_offset_delta + 1
        and header.record_count > 0
        and header.attributes == 0
        and header.producer_id < 0
        and not may_have_attributes(batch)
    )


def gather_run(
    data: Buffer,
    spans: list[Span],
    base_offset: int,
    leader_epoch: int,
    row: type[BatchHeader],
    /,
) -> tuple[bytes, list[BatchHeader]]:
    """The batches in these spans one after the other, stamped, and their headers."""
    run = bytearray().join(memoryview(data)[start:end] for start, end in spans)
    headers: list[BatchHeader] = []
    position = 0
    for start, end in spans:
        batch = memoryview(run)[position : position + end - start]
        stamp(batch, base_offset=base_offset, leader_epoch=leader_epoch)
        header = row._make(read_header(batch))
        headers.append(header)
        base_offset = header.next_offset
        position += end - start
    return bytes(run), headers
