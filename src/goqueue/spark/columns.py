"""Record batches as Arrow columns.

The decoder copies the fields of many batches into columns in Arrow's memory layout. No record ever
becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from goqueue.client import RawBatch
from goqueue.model.batch import LOG_APPEND_TIME, unpack_payload
from goqueue.model.compression import READER_UNPACKED_BYTES_MAX, Compression
from goqueue.model.decode_reference import (
    WANTS_HEADERS,
    WANTS_KEYS,
    WANTS_VALUES,
    Batch,
    BinaryColumn,
    HeaderColumns,
)
from goqueue.model.decoding import decoder
from goqueue.model.names import TopicPartition
from goqueue.spark.planning import OffsetRange

# Size of an Arrow batch for Spark: smaller ones cost calls, larger ones exceed the CPU caches.
CHUNK_BYTES = 1 << 20
# For callers that process all rows with numpy, whose call overhead outweighs the caches.
CHUNK_BYTES_LARGE = 4 << 20
CHUNK_RECORDS_MAX = 100_000

_TIMESTAMP_MS_MAX = ((1 << 63) - 1) // 1000
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_WANTED = {"key": WANTS_KEYS, "value": WANTS_VALUES, "headers": WANTS_HEADERS}
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

Numbers = np.ndarray[Any, np.dtype[Any]]


class Chunk(NamedTuple):
    """The requested records of some batches of one partition, as returned by the decoder."""

    offsets: bytes
    timestamps: bytes
    timestamp_types: bytes
    keys: BinaryColumn | None
    values: BinaryColumn | None
    headers: HeaderColumns | None

    def __len__(self) -> int:
        return len(self.offsets) // 8


def record_batches(
    batches: Iterable[RawBatch],
    wanted: OffsetRange,
    schema: pa.Schema,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of the requested records of a partition, in chunks."""
    makers = [_MAKERS[name] for name in schema.names]
    alike = Alike(wanted.partition)
    fields = sum(_WANTED.get(name, 0) for name in schema.names)
    for parts in _parts(batches, chunk_bytes):
        chunk = Chunk(*decoder.columns(parts, wanted.start, wanted.end, fields))
        arrays = [make(chunk, alike) for make in makers]
        if arrays:
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:  # Only the number of rows is requested.
            rows = pa.Array.from_buffers(pa.struct([]), len(chunk), [None])
            yield pa.RecordBatch.from_struct_array(rows)


def header_batches(
    batches: Iterable[RawBatch], wanted: OffsetRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield one row for each batch of a partition, from the batch headers alone."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        if batch.header.base_offset < wanted.start and not wanted.is_first:
            continue  # It belongs to the previous task.
        row = _header_row(batch)
        rows.append({name: row[name] for name in schema.names})
        if len(rows) >= CHUNK_RECORDS_MAX:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _header_row(batch: RawBatch) -> dict[str, Any]:
    header = batch.header
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
    """Convert to microseconds, clamping timestamps that do not fit (292,000 years from 1970)."""
    return min(max(timestamp_ms, -_TIMESTAMP_MS_MAX), _TIMESTAMP_MS_MAX) * 1000


# Chunks


def _parts(batches: Iterable[RawBatch], chunk_bytes: int) -> Iterator[list[Batch]]:
    """Group batches into chunks, in the form that the decoder takes."""
    parts: list[Batch] = []
    size = records = 0
    for batch in batches:
        header = batch.header
        if not header.record_count:
            continue  # Compaction keeps an empty batch for the state of its producer.
        data = unpack_payload(batch.data, header, bytes_max=READER_UNPACKED_BYTES_MAX)
        if parts and (
            size + len(data) > chunk_bytes or records + header.record_count > CHUNK_RECORDS_MAX
        ):
            yield parts
            parts, size, records = [], 0, 0
        size += len(data)
        records += header.record_count
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        parts.append(
            (data, header.record_count, header.base_offset, header.base_timestamp, append_time)
        )
    if parts:
        yield parts


# Columns


def _binary(column: BinaryColumn | None, rows: int, kind: pa.DataType) -> pa.Array:
    assert column is not None, "the decoder was asked for this column"
    bounds, content, present = column
    buffers = [None if present is None else pa.py_buffer(present), pa.py_buffer(bounds)]
    return pa.Array.from_buffers(kind, rows, [*buffers, pa.py_buffer(content)])


class Alike:
    """Columns that are constant within a partition: built once and sliced to length."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._rows = -1

    def topics(self, rows: int) -> pa.Array:
        self._make(rows)
        return self._topics.slice(0, rows)

    def partitions(self, rows: int) -> pa.Array:
        self._make(rows)
        return self._partitions.slice(0, rows)

    def _make(self, rows: int) -> None:
        if rows <= self._rows:
            return
        self._rows = rows + rows // 4  # The next chunk may be slightly longer.
        name = self._partition.topic.encode()
        bounds = np.arange(self._rows + 1, dtype=np.int32) * np.int32(len(name))
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(name * self._rows)]
        self._topics = pa.Array.from_buffers(pa.string(), self._rows, buffers)
        numbers = np.full(self._rows, self._partition.partition, np.int32)
        self._partitions = _numbers(numbers, self._rows, pa.int32())


def _keys(chunk: Chunk, _: Alike) -> pa.Array:
    return _binary(chunk.keys, len(chunk), pa.binary())


def _values(chunk: Chunk, _: Alike) -> pa.Array:
    return _binary(chunk.values, len(chunk), pa.binary())


def _topics(chunk: Chunk, alike: Alike) -> pa.Array:
    return alike.topics(len(chunk))


def _partitions(chunk: Chunk, alike: Alike) -> pa.Array:
    return alike.partitions(len(chunk))


def _numbers(column: bytes | Numbers, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(column)])


def _offsets(chunk: Chunk, _: Alike) -> pa.Array:
    return _numbers(chunk.offsets, len(chunk), pa.int64())


def _timestamps(chunk: Chunk, _: Alike) -> pa.Array:
    # `clip` does the same, but its overhead exceeds the work for the few numbers of a chunk.
    times = np.minimum(np.frombuffer(chunk.timestamps, np.int64), _TIMESTAMP_MS_MAX)
    np.maximum(times, -_TIMESTAMP_MS_MAX, out=times)
    times *= 1000
    return _numbers(times, len(chunk), _TIMESTAMP)


def _timestamp_types(chunk: Chunk, _: Alike) -> pa.Array:
    return _numbers(chunk.timestamp_types, len(chunk), pa.int32())


def _headers(chunk: Chunk, _: Alike) -> pa.Array:
    """A list for each record with headers, null for the others, as in Kafka's source."""
    assert chunk.headers is not None, "the decoder was asked for this column"
    (bounds, _none, present), names, values = chunk.headers
    count = len(names[0]) // 4 - 1
    entries = pa.StructArray.from_arrays(
        [_binary(names, count, pa.string()), _binary(values, count, pa.binary())],
        fields=list(_HEADER),
    )
    return pa.Array.from_buffers(
        pa.list_(pa.field("element", _HEADER)),
        len(chunk),
        [None if present is None else pa.py_buffer(present), pa.py_buffer(bounds)],
        children=[entries],
    )


_MAKERS: dict[str, Callable[[Chunk, Alike], pa.Array]] = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
