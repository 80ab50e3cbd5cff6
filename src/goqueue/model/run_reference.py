"""Small batches that arrived together and are appended to one log together, in plain Python.

`_runs.c` does the same, compiled. A batch is plain if its header, its checksum and its records are
valid and it needs no other processing: not compressed, not of an idempotent producer, without
GoQueue's attributes.
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

# Alternating starts and ends of batches in the bytes that hold them: packed four-byte numbers in
# native byte order. A piece also has a number to add to each of them.
Spans = bytes
Piece = tuple[Spans, int]
# An index entry of a batch: its offset, its position, and the newest timestamp up to there with
# the offset of the batch that has it.
Mark = tuple[int, int, int, int]


def are_plain(data: Buffer, spans: Spans, bytes_max: int, time_min: int, time_max: int, /) -> bool:
    """Whether all batches in these spans are plain."""
    return all(
        _is_plain(memoryview(data)[start:end], bytes_max, time_min, time_max)
        for start, end in _pairs(spans)
    )


def gather_run(
    data: Buffer, pieces: list[Piece], base_offset: int, leader_epoch: int, /
) -> tuple[bytes, bytes, int]:
    """Join the batches in these spans, stamped; also return their offsets and the next offset.

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
    """The index entries of a run that begins at `position` in its file.

    The first batch at or after `due` is marked, and then one after every `interval` bytes. The
    newest timestamp so far, and the offset of the batch that has it, are passed in and returned.
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
    """Whether all are valid, within the time range, and the newest has the batch's timestamp."""
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
