"""Small batches that came together and go into one log together, in plain Python.

`_runs.c` does the same, compiled. A batch is plain when its header, its checksum and its records
are right and nothing else has to be looked at: not compressed, of no idempotent producer, with no
attributes of ours.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from goqueue.model import decode_reference
from goqueue.model.attributes import may_have_attributes
from goqueue.model.batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    check_batch,
    read_header,
    stamp,
)
from goqueue.model.compression import Buffer
from goqueue.model.errors import GoQueueError

# Where batches begin and end in the bytes that hold them, in turns: packed numbers of four bytes in
# the order that the processor has. In a piece each is too small by the second number.
Spans = bytes
Piece = tuple[Spans, int]
# What an index is told of a batch: its offset, its place, and the newest time up to there with the
# offset of the batch that has it.
Mark = tuple[int, int, int, int]


def are_plain(data: Buffer, spans: Spans, bytes_max: int, time_min: int, time_max: int, /) -> bool:
    """Whether none of the batches in these spans needs a closer look."""
    return all(
        _is_plain(memoryview(data)[start:end], bytes_max, time_min, time_max)
        for start, end in _pairs(spans)
    )


def gather_run(
    data: Buffer, pieces: list[Piece], base_offset: int, leader_epoch: int, /
) -> tuple[bytes, bytes, int]:
    """The batches in these spans one after the other, stamped; their offsets; the next offset.

    The offsets are packed, eight bytes each.
    """
    spans = [(start + by, end + by) for some, by in pieces for start, end in _pairs(some)]
    run = bytearray().join(memoryview(data)[start:end] for start, end in spans)
    offsets = array("q")
    position = 0
    for start, end in spans:
        batch = memoryview(run)[position : position + end - start]
        stamp(batch, base_offset=base_offset, leader_epoch=leader_epoch)
        offsets.append(base_offset)
        base_offset = read_header(batch).next_offset
        position += end - start
    return bytes(run), offsets.tobytes(), base_offset


def mark_run(
    run: bytes, position: int, due: int, interval: int, newest: int, newest_offset: int, /
) -> tuple[list[Mark], int, int]:
    """What an index is told of a run that begins at `position` in its file.

    The first batch at `due` or behind it is marked, and then one after every `interval` bytes. The
    newest time so far, and the offset of the batch that has it, are given and answered.
    """
    marks: list[Mark] = []
    at = 0
    while at < len(run):
        header = read_header(memoryview(run)[at:])
        if header.max_timestamp > newest:
            newest, newest_offset = header.max_timestamp, header.base_offset
        if position + at >= due:
            marks.append((header.base_offset, position + at, newest, newest_offset))
            due = position + at + interval
        at += header.size
    return marks, newest, newest_offset


def _is_plain(batch: memoryview, bytes_max: int, time_min: int, time_max: int) -> bool:
    try:
        header = check_batch(batch)
    except GoQueueError:
        return False
    return (
        len(batch) <= bytes_max
        and header.base_offset == 0
        and header.record_count == header.last_offset_delta + 1
        and header.record_count > 0
        and header.attributes == 0
        and header.producer_id < 0
        and _has_good_records(batch, header, time_min, time_max)
        and not may_have_attributes(batch)
    )


def _has_good_records(batch: memoryview, header: BatchHeader, time_min: int, time_max: int) -> bool:
    """Whether all can be read, are in time, and the newest has the time of the batch."""
    try:
        _, oldest, newest = decode_reference.check_records(
            batch, HEADER_BYTES, header.record_count, header.base_timestamp, False
        )
    except GoQueueError:
        return False
    is_in_time = newest <= time_max and (oldest == NO_TIMESTAMP or oldest >= time_min)
    return newest == header.max_timestamp and is_in_time


def _pairs(spans: Spans) -> Iterator[tuple[int, int]]:
    numbers = memoryview(spans).cast("i").tolist()
    return zip(numbers[::2], numbers[1::2], strict=True)
