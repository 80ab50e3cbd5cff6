"""Batches of records as columns of Arrow.

The decoder says where every field of a batch is; Arrow's own `take` then puts the fields together.
To Arrow the bytes of a batch are one array of pieces: what lies before the first value, the first
value, what lies before the second, and so on. Every other piece is a value. No record is ever an
object of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from goqueue.client import RawBatch
from goqueue.model.batch import LOG_APPEND_TIME, BatchHeader, read_header, unpack_payload
from goqueue.model.compression import Compression
from goqueue.model.decode_reference import Index
from goqueue.model.decoding import decoder
from goqueue.spark.planning import OffsetRange

# One batch of Arrow for Spark: smaller ones cost calls, larger ones the cache of the processor.
CHUNK_BYTES = 1 << 20
CHUNK_RECORDS_MAX = 100_000

Ints = np.ndarray[Any, np.dtype[np.int64]]
_ABSENT = -1
_TIMESTAMP_MS_MAX = ((1 << 63) - 1) // 1000
_ENDS = 2  # which of the decoder's columns begins with a zero


class Chunk(NamedTuple):
    """The records of some batches of one partition, and where their fields are in `data`."""

    data: bytes
    offsets: Ints
    timestamps: Ints
    timestamp_types: Ints
    ends: Ints  # where each record ends
    key_starts: Ints
    key_ends: Ints
    value_starts: Ints
    value_ends: Ints
    header_starts: Ints  # -1: no headers

    def __len__(self) -> int:
        return len(self.offsets)


def record_batches(
    batches: Iterable[RawBatch], wanted: OffsetRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The wanted records of a partition, the wanted columns of them, in chunks of a good size."""
    makers = [_MAKERS[name] for name in schema.names]
    for chunk in _chunks(batches, wanted):
        arrays = [make(chunk, wanted) for make in makers]
        if arrays:
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:  # Only their number is wanted.
            rows = pa.Array.from_buffers(pa.struct([]), len(chunk), [None])
            yield pa.RecordBatch.from_struct_array(rows)


def header_batches(
    batches: Iterable[RawBatch], wanted: OffsetRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """One row for each batch of a partition, from their headers alone."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        header = read_header(batch.data)
        if header.base_offset < wanted.start and not wanted.is_first:
            continue  # It belongs to the task before this one.
        row = _header_row(batch, header)
        rows.append({name: row[name] for name in schema.names})
        if len(rows) >= CHUNK_RECORDS_MAX:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _header_row(batch: RawBatch, header: BatchHeader) -> dict[str, Any]:
    return {
        "topic": batch.topic,
        "partition": batch.partition,
        "firstOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size,
        "codec": Compression(header.codec).name.lower(),
        "firstTimestamp": _microseconds(header.base_timestamp),
        "lastTimestamp": _microseconds(header.max_timestamp),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "firstSequence": header.base_sequence,
        "leaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
    }


def _microseconds(timestamp_ms: int) -> int:
    """Times that do not fit, 292 thousand years from now, are the last that does."""
    return min(max(timestamp_ms, -_TIMESTAMP_MS_MAX), _TIMESTAMP_MS_MAX) * 1000


# Chunks


@dataclass(frozen=True, slots=True)
class _Part:
    """One batch, unpacked, and what the decoder says of it."""

    data: bytes
    header: BatchHeader
    index: Index

    @property
    def count(self) -> int:
        return self.header.record_count


def _chunks(batches: Iterable[RawBatch], wanted: OffsetRange) -> Iterator[Chunk]:
    parts: list[_Part] = []
    size = records = 0
    for batch in batches:
        part = _unpack(batch)
        if not part.count:
            continue  # Compaction keeps a batch without records for its producer's sake.
        size += len(part.data)
        records += part.count
        if parts and (size > CHUNK_BYTES or records > CHUNK_RECORDS_MAX):
            yield _join(parts, wanted)
            parts, size, records = [], len(part.data), part.count
        parts.append(part)
    if parts:
        yield _join(parts, wanted)


def _unpack(batch: RawBatch) -> _Part:
    header = read_header(batch.data)
    data = bytes(unpack_payload(batch.data, header))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    index = decoder.index(
        data, header.record_count, header.base_offset, header.base_timestamp, append_time
    )
    return _Part(data, header, index)


def _join(parts: list[_Part], wanted: OffsetRange) -> Chunk:
    """Put batches together: few calls for many records, however small their batches are."""
    counts = [part.count for part in parts]
    sizes = [len(part.data) for part in parts]
    before = np.repeat(np.cumsum([0, *sizes[:-1]]), counts)
    ends, *fields = (_places(parts, counts, before, number) for number in range(2, 8))
    types = [int(bool(part.header.attributes & LOG_APPEND_TIME)) for part in parts]
    chunk = Chunk(
        parts[0].data if len(parts) == 1 else b"".join(part.data for part in parts),
        _offset_numbers(parts, counts),
        np.concatenate([np.frombuffer(part.index[1], np.int64) for part in parts]),
        np.repeat(np.array(types, np.int64), counts),
        ends,
        *fields,
    )
    if parts[0].header.base_offset >= wanted.start and parts[-1].header.last_offset < wanted.end:
        return chunk
    inside = (chunk.offsets >= wanted.start) & (chunk.offsets < wanted.end)
    return Chunk(chunk.data, *(column[inside] for column in chunk[1:]))


def _places(parts: list[_Part], counts: list[int], before: Ints, number: int) -> Ints:
    """One column of the decoder's places, moved to where the bytes of its batch are now."""
    found = []
    for part, count in zip(parts, counts, strict=True):
        view = part.index[number]
        if view is None:
            found.append(np.full(count, _ABSENT, np.int32))
        else:
            column = np.frombuffer(view, np.int32)
            found.append(column[1:] if number == _ENDS else column)
    places: Ints = np.concatenate(found).astype(np.int64)
    if len(parts) > 1:
        places += np.where(places >= 0, before, 0)
    return places


def _offset_numbers(parts: list[_Part], counts: list[int]) -> Ints:
    """Given in full only where compaction has left gaps."""
    if all(part.index[0] is None for part in parts):
        first = np.cumsum([0, *counts[:-1]])
        bases = np.array([part.header.base_offset for part in parts], np.int64) - first
        numbers: Ints = np.arange(sum(counts), dtype=np.int64) + np.repeat(bases, counts)
        return numbers
    return np.concatenate(
        [
            np.frombuffer(part.index[0], np.int64)
            if part.index[0] is not None
            else np.arange(count, dtype=np.int64) + part.header.base_offset
            for part, count in zip(parts, counts, strict=True)
        ]
    )


# Columns


def _fields(data: bytes, starts: Ints, ends: Ints, stops: Ints, kind: pa.DataType) -> pa.Array:
    """The bytes from start to end of each row; `stops` is a place after each row's own bytes."""
    absent = starts < 0
    bounds = np.empty(2 * len(starts) + 1, dtype=np.int32)
    bounds[0] = 0
    if absent.any():
        bounds[1::2] = np.where(absent, stops, starts)
        bounds[2::2] = np.where(absent, stops, ends)
    else:
        bounds[1::2] = starts
        bounds[2::2] = ends
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * len(starts), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    chosen = np.arange(1, 2 * len(starts), 2, dtype=np.int32)
    found = pieces.take(pa.array(chosen, mask=absent if absent.any() else None))
    return found if kind == pa.binary() else found.cast(kind)


def _keys(chunk: Chunk, _: OffsetRange) -> pa.Array:
    return _fields(chunk.data, chunk.key_starts, chunk.key_ends, chunk.ends, pa.binary())


def _values(chunk: Chunk, _: OffsetRange) -> pa.Array:
    return _fields(chunk.data, chunk.value_starts, chunk.value_ends, chunk.ends, pa.binary())


def _topics(chunk: Chunk, wanted: OffsetRange) -> pa.Array:
    return pa.repeat(pa.scalar(wanted.partition.topic, pa.string()), len(chunk))


def _partitions(chunk: Chunk, wanted: OffsetRange) -> pa.Array:
    return pa.repeat(pa.scalar(wanted.partition.partition, pa.int32()), len(chunk))


def _offsets(chunk: Chunk, _: OffsetRange) -> pa.Array:
    return pa.array(chunk.offsets, pa.int64())


def _timestamps(chunk: Chunk, _: OffsetRange) -> pa.Array:
    times = np.clip(chunk.timestamps, -_TIMESTAMP_MS_MAX, _TIMESTAMP_MS_MAX) * 1000
    return pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _timestamp_types(chunk: Chunk, _: OffsetRange) -> pa.Array:
    return pa.array(chunk.timestamp_types, pa.int64()).cast(pa.int32())


def _headers(chunk: Chunk, _: OffsetRange) -> pa.Array:
    """A list for each record that has headers, nothing for the others, as Kafka's source has it.

    All records are read in step: first the first header of each, then the second, and so on.
    """
    names: list[tuple[Ints, Ints, Ints, Ints, Ints, Ints]] = []
    rows = np.flatnonzero(chunk.header_starts >= 0)
    bytes_ = np.frombuffer(chunk.data, dtype=np.uint8)
    left, at = _varints(bytes_, chunk.header_starts[rows])
    counts = np.zeros(len(chunk), dtype=np.int64)
    counts[rows] = left
    number = 0
    while True:
        going = left > number
        rows, at, left = rows[going], at[going], left[going]
        if not len(rows):
            break
        name_length, name_start = _varints(bytes_, at)
        name_end = name_start + name_length
        value_length, value_start = _varints(bytes_, name_end)
        at = value_start + np.maximum(value_length, 0)
        value_start_or_none = np.where(value_length < 0, _ABSENT, value_start)
        place = np.full(len(rows), number, dtype=np.int64)
        names.append((rows, place, name_start, name_end, value_start_or_none, at))
        number += 1
    return _header_lists(chunk, counts, names)


def _header_lists(
    chunk: Chunk, counts: Ints, found: list[tuple[Ints, Ints, Ints, Ints, Ints, Ints]]
) -> pa.Array:
    empty = (np.empty(0, dtype=np.int64),) * 6
    columns = [np.concatenate(column) for column in zip(*(found or [empty]), strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    _, _, name_starts, name_ends, value_starts, value_ends = (one[order] for one in columns)
    names = _fields(chunk.data, name_starts, name_ends, name_ends, pa.string())
    values = _fields(chunk.data, value_starts, value_ends, value_ends, pa.binary())
    kind = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    entries = pa.StructArray.from_arrays([names, values], fields=list(kind))
    bounds = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=bounds[1:])
    present = np.packbits(counts > 0, bitorder="little")
    return pa.Array.from_buffers(
        pa.list_(pa.field("element", kind)),
        len(counts),
        [pa.py_buffer(present), pa.py_buffer(bounds)],
        children=[entries],
    )


def _varints(data: np.ndarray[Any, np.dtype[np.uint8]], at: Ints) -> tuple[Ints, Ints]:
    """The numbers at these places, and the places after them; the decoder has checked them."""
    raw = np.zeros(len(at), dtype=np.int64)
    position = at.copy()
    going = np.ones(len(at), dtype=bool)
    shift = 0
    while going.any():
        byte = data[position[going]].astype(np.int64)
        raw[going] |= (byte & 0x7F) << shift
        position[going] += 1
        going[going] = byte >= 0x80
        shift += 7
    return (raw >> 1) ^ -(raw & 1), position


_MAKERS: dict[str, Callable[[Chunk, OffsetRange], pa.Array]] = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
