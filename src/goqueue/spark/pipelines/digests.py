"""What proves that records came through: how many, and a sum over all of them.

The sum does not depend on the order, so that records can be compared however they were cut into
files, tasks and partitions. Two sums are kept: one of key, value and headers, and one of these with
the timestamp, which a copy may or may not keep.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from crc32c import crc32c

Words = np.ndarray[Any, np.dtype[np.uint64]]

_MASK = (1 << 64) - 1
_ABSENT = 1 << 32  # no checksum of bytes is so large: nothing and empty are told apart
# Odd numbers without a pattern, so that a key and a value that change places change the sum.
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
    """The digest of all together."""
    whole = Digest()
    for one in digests:
        whole += one
    return whole


def digest_of(batch: pa.RecordBatch) -> Digest:
    """The digest of a batch of Arrow with the columns key, value, timestamp and headers."""
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
    """The checksum of each value's bytes."""
    if column.type != pa.binary():  # Spark can be told to hand out large ones.
        column = column.cast(pa.binary())
    _, bounds, data = column.buffers()
    offsets = np.frombuffer(bounds, np.int32)[column.offset : column.offset + len(column) + 1]
    view = memoryview(data or b"")
    found = [crc32c(view[start:end]) for start, end in pairwise(offsets.tolist())]
    words = np.array(found, np.uint64)
    if column.null_count:
        words[column.is_null().to_numpy(zero_copy_only=False)] = _ABSENT
    return words


def _header_checksums(column: pa.Array) -> Words:
    words = np.zeros(len(column), np.uint64)
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    for row, headers in zip(present.tolist(), column.drop_null().to_pylist(), strict=True):
        words[row] = _headers_checksum(headers)
    return words


def _headers_checksum(headers: Sequence[dict[str, Any]]) -> int:
    """No headers and an empty list of them are the same to a topic, and so here."""
    found = 0
    for header in headers:
        name, value = header["key"].encode(), header["value"]
        length = -1 if value is None else len(value)
        found = crc32c(struct.pack(">ii", len(name), length) + name + (value or b""), found)
    return found + len(headers)


def _mixed(words: Words, factor: int) -> Words:
    """Spread each number over all 64 bits; multiplication wraps around."""
    mixed: Words = (words ^ (words >> np.uint64(33))) * np.uint64(factor)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_TIME)
    return mixed ^ (mixed >> np.uint64(32))


def _sum(words: Words) -> int:
    return int(np.add.reduce(words, dtype=np.uint64))
