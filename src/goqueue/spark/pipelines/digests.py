"""Digests that verify that records arrived: their number, and a sum over all of them.

The sum does not depend on the order, so records can be compared however they are divided into
files, tasks and partitions. There are two sums: one over key, value and headers, and one that
includes the timestamp, which a copy may or may not preserve.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goqueue.model.decoding import decoder

Words = np.ndarray[Any, np.dtype[np.uint64]]
Bounds = np.ndarray[Any, np.dtype[np.int32]]

_MASK = (1 << 64) - 1
_LENGTHS_BYTES = 8  # of the two numbers before a header
_ABSENT = 1 << 32  # larger than any checksum, which distinguishes null from empty
# Odd numbers without a pattern, so that swapping a key and a value changes the sum.
_KEY, _VALUE, _HEADERS, _TIME = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0xD6E8FEB86659FD93,
)


class Digest(msgspec.Struct, frozen=True):
    """Some records: their number, and the two sums."""

    records: int = 0
    content: int = 0
    timed: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            self.records + other.records,
            (self.content + other.content) & _MASK,
            (self.timed + other.timed) & _MASK,
        )


def total(digests: Iterable[Digest]) -> Digest:
    """Combine digests."""
    whole = Digest()
    for one in digests:
        whole += one
    return whole


def digest_of(batch: pa.RecordBatch) -> Digest:
    """Return the digest of an Arrow batch with the columns key, value, timestamp and headers."""
    rows = len(batch)
    if not rows:
        return Digest()
    content = _mixed(_checksums(batch["key"]), _KEY)
    content = _mixed(content ^ _mixed(_checksums(batch["value"]), _VALUE), _VALUE)
    content = _mixed(content ^ _mixed(_header_checksums(batch["headers"]), _HEADERS), _HEADERS)
    times = batch["timestamp"].cast(pa.int64()).to_numpy(zero_copy_only=False)
    timed = _mixed(content ^ _mixed(times.astype(np.int64).view(np.uint64), _TIME), _TIME)
    return Digest(rows, _sum(content), _sum(timed))


def _checksums(column: pa.Array) -> Words:
    """Return the checksum of each value's bytes."""
    if column.type != pa.binary():  # Spark can be configured to return large ones.
        column = column.cast(pa.binary())
    _, bounds, data = column.buffers()
    words = _sums_between(data, np.frombuffer(bounds, np.int32), column.offset, len(column))
    if column.null_count:
        words[column.is_null().to_numpy(zero_copy_only=False)] = _ABSENT
    return words


def _header_checksums(column: pa.Array) -> Words:
    """Return the checksum of each record's headers, with their lengths and number.

    A topic does not distinguish null headers from an empty list, so neither does this.
    """
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    if not counts.any():
        return np.zeros(len(column), np.uint64)
    entries = column.flatten()  # of this slice, without entries under nulls
    names, values = entries.field("key"), entries.field("value")
    lengths = np.empty((len(entries), 2), ">i4")
    lengths[:, 0] = pc.binary_length(names).to_numpy(zero_copy_only=False)
    lengths[:, 1] = pc.binary_length(values).fill_null(-1).to_numpy(zero_copy_only=False)
    bounds = np.arange(len(entries) + 1, dtype=np.int32) * np.int32(_LENGTHS_BYTES)
    heads = pa.Array.from_buffers(
        pa.binary(), len(entries), [None, pa.py_buffer(bounds), pa.py_buffer(lengths.tobytes())]
    )
    parts = [heads, names.cast(pa.binary()), values.fill_null(b""), b""]
    _, bounds_buffer, data = pc.binary_join_element_wise(*parts).buffers()
    ends = np.concatenate([[0], np.cumsum(counts)])
    found = _sums_between(data, np.frombuffer(bounds_buffer, np.int32)[ends], 0, len(column))
    found += counts.astype(np.uint64)
    return found


def _sums_between(data: pa.Buffer | None, bounds: Bounds, first: int, rows: int) -> Words:
    """Return the checksums of a range of rows."""
    chosen = memoryview(bounds[first : first + rows + 1].tobytes()).cast("i")
    sums = decoder.checksums(memoryview(data or b""), chosen)
    return np.frombuffer(sums, np.uint32).astype(np.uint64)


def _mixed(words: Words, factor: int) -> Words:
    """Mix each number over all 64 bits; multiplication wraps around."""
    mixed: Words = (words ^ (words >> np.uint64(33))) * np.uint64(factor)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_TIME)
    return mixed ^ (mixed >> np.uint64(32))


def _sum(words: Words) -> int:
    return int(np.add.reduce(words, dtype=np.uint64))
