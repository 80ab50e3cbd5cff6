"""Decodes records with numpy: for machines without a compiler.

The start of a record depends on the length of the one before it, so lengths are read one by one.
The rest is read for all records at once: all timestamps, then all offsets, and so on. Small batches
are left to plain Python, and so is anything unusual: `decode_reference` refuses or decodes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from goqueue.model import decode_reference
from goqueue.model.decode_fields import RECORD_BYTES_MIN, read_varint
from goqueue.model.decode_reference import (
    WANTS_HEADERS,
    WANTS_KEYS,
    WANTS_VALUES,
    Batch,
    BinaryColumn,
    HeaderColumns,
    Index,
    TableColumns,
    check_records,
    checksums,
    headers,
    json_rows,
    raw_records,
    records,
    slices,
    texts,
)
from goqueue.model.errors import CorruptBatch

__all__ = [
    "check_records",
    "checksums",
    "columns",
    "headers",
    "index",
    "json_rows",
    "raw_records",
    "records",
    "slices",
    "texts",
]

RECORDS_MIN = 24  # for fewer, plain Python is as fast
_NUMBER_SHIFT_MAX = 49  # numbers of more than eight bytes are unusual
_ABSENT = -1

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]


class Unusual(Exception):
    """Bytes that are left to the reference implementation."""


class Field(NamedTuple):
    """The position of a field in each record; both are -1 where it is absent."""

    starts: Ints
    ends: Ints


class Walk(NamedTuple):
    """The positions of everything in the bytes of one or more batches."""

    data: bytes
    ends: Ints
    shifts: Ints
    deltas: Ints
    keys: Field
    values: Field
    header_counts: Ints
    header_starts: Ints  # the position of their count


def index(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Index:
    """See `decode_reference.index`."""
    try:
        walk = _walk([(data, count, base_offset, base_timestamp, append_time)])
        _check_headers(walk)
        offsets = _sums(np.full(count, base_offset), walk.deltas)
        timestamps = _sums(np.full(count, base_timestamp), walk.shifts)
    except Unusual:
        return decode_reference.index(data, count, base_offset, base_timestamp, append_time)
    if append_time is not None:
        timestamps[:] = append_time
    has_gaps = not np.array_equal(walk.deltas, np.arange(count))
    header_starts = np.where(walk.header_counts > 0, walk.header_starts, _ABSENT)
    return (
        _view(offsets, "q") if has_gaps else None,
        _view(timestamps, "q"),
        _view(np.concatenate([[0], walk.ends]), "i"),
        _view(walk.keys.starts, "i"),
        _view(walk.keys.ends, "i"),
        _view(walk.values.starts, "i"),
        _view(walk.values.ends, "i"),
        _view(header_starts, "i") if walk.header_counts.any() else None,
    )


def columns(batches: Sequence[Batch], start: int, end: int, wanted: int) -> TableColumns:
    """See `decode_reference.columns`."""
    try:
        return _columns(_walk(batches), batches, start, end, wanted)
    except Unusual:
        return decode_reference.columns(batches, start, end, wanted)


def _columns(
    walk: Walk, batches: Sequence[Batch], start: int, end: int, wanted: int
) -> TableColumns:
    counts = [count for _, count, *_ in batches]
    offsets = _sums(np.repeat([batch[2] for batch in batches], counts), walk.deltas)
    timestamps = _sums(np.repeat([batch[3] for batch in batches], counts), walk.shifts)
    types = np.repeat([batch[4] is not None for batch in batches], counts)
    append_times = np.repeat([batch[4] or 0 for batch in batches], counts)
    timestamps = np.where(types, append_times, timestamps)
    header_columns = _headers(walk, (offsets >= start) & (offsets < end))
    rows = np.flatnonzero((offsets >= start) & (offsets < end))
    return (
        offsets[rows].tobytes(),
        timestamps[rows].tobytes(),
        types[rows].astype(np.int32).tobytes(),
        _binary(walk.data, walk.keys, rows) if wanted & WANTS_KEYS else None,
        _binary(walk.data, walk.values, rows) if wanted & WANTS_VALUES else None,
        header_columns if wanted & WANTS_HEADERS else None,
    )


# The walk


def _walk(batches: Sequence[Batch]) -> Walk:
    counts = [batch[1] for batch in batches]
    if sum(counts) < RECORDS_MIN or min(counts, default=-1) < 0:
        raise Unusual
    data = bytes(batches[0][0]) if len(batches) == 1 else b"".join(batch[0] for batch in batches)
    starts, ends = _bodies(data, batches)
    octets: Octets = np.frombuffer(data, np.uint8)
    shifts, at = _numbers(octets, starts + 1, ends)
    deltas, at = _numbers(octets, at, ends)
    keys, at = _field(octets, at, ends)
    values, at = _field(octets, at, ends)
    header_counts, after = _numbers(octets, at, ends)
    if ((header_counts < 0) | ((header_counts == 0) & (after != ends))).any():
        raise Unusual
    return Walk(data, ends, shifts, deltas, keys, values, header_counts, at)


def _bodies(data: bytes, batches: Sequence[Batch]) -> tuple[Ints, Ints]:
    """The start, after its length, and the end of each record."""
    starts: list[int] = []
    ends: list[int] = []
    limit = position = 0
    try:
        for payload, count, *_ in batches:
            limit += len(payload)
            for _ in range(count):
                byte, second = data[position], data[position + 1]
                if byte >= 0x80 and second < 0x80:
                    length = (byte & 0x7F | second << 7) >> 1
                    position += 2
                elif byte < 0x80:
                    length = byte >> 1
                    position += 1
                else:
                    length, position = read_varint(data, position)
                starts.append(position)
                position += length
                ends.append(position)
                if byte & 1 or length < RECORD_BYTES_MIN:
                    raise Unusual
            if position != limit:
                raise Unusual
    except (IndexError, CorruptBatch):
        raise Unusual from None
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _numbers(octets: Octets, at: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The numbers at these positions, and the positions after them, within their records."""
    if (at >= ends).any():
        raise Unusual
    byte = octets[at].astype(np.int64)
    raw = byte & 0x7F
    after = at + 1
    going = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(going):
        if shift > _NUMBER_SHIFT_MAX or (after[going] >= ends[going]).any():
            raise Unusual
        byte = octets[after[going]].astype(np.int64)
        raw[going] |= (byte & 0x7F) << shift
        after[going] += 1
        going = going[byte >= 0x80]
        shift += 7
    return (raw >> 1) ^ -(raw & 1), after


def _field(octets: Octets, at: Ints, ends: Ints) -> tuple[Field, Ints]:
    lengths, starts = _numbers(octets, at, ends)
    stops = starts + np.maximum(lengths, 0)
    if (stops > ends).any():
        raise Unusual
    is_there = lengths >= 0
    return Field(np.where(is_there, starts, _ABSENT), np.where(is_there, stops, _ABSENT)), stops


def _sums(bases: Ints, deltas: Ints) -> Ints:
    sums: Ints = bases + deltas
    if (((bases ^ sums) & (deltas ^ sums)) < 0).any():
        raise Unusual  # They do not fit 64 bits.
    return sums


# Headers


def _check_headers(walk: Walk) -> None:
    _headers(walk, np.zeros(len(walk.ends), bool))


def _headers(walk: Walk, are_wanted: Flags) -> HeaderColumns:
    """The headers of the requested records; those of all are checked.

    They are read in step: first the first header of each record, then the second, and so on.
    """
    rows = np.flatnonzero(walk.header_counts > 0)
    octets: Octets = np.frombuffer(walk.data, np.uint8)
    ends, left = walk.ends[rows], walk.header_counts[rows]
    _, at = _numbers(octets, walk.header_starts[rows], ends) if len(rows) else (rows, rows)
    found: list[tuple[Ints, Ints, Ints, Ints, Ints, Ints]] = []
    while len(rows):
        names, at = _field(octets, at, ends)
        contents, at = _field(octets, at, ends)
        _check_names(walk.data, names)
        number = np.full(len(rows), len(found))
        found.append((rows, number, names.starts, names.ends, contents.starts, contents.ends))
        going = left > len(found)
        if (at != ends)[~going].any():
            raise Unusual
        rows, at, ends, left = rows[going], at[going], ends[going], left[going]
    return _header_columns(walk, are_wanted, found)


def _check_names(data: bytes, names: Field) -> None:
    if (names.starts < 0).any():
        raise Unusual
    for start, end in zip(names.starts.tolist(), names.ends.tolist(), strict=True):
        try:
            data[start:end].decode()
        except UnicodeDecodeError:
            raise Unusual from None


def _header_columns(
    walk: Walk, are_wanted: Flags, found: list[tuple[Ints, Ints, Ints, Ints, Ints, Ints]]
) -> HeaderColumns:
    none = (np.empty(0, np.int64),) * 6
    table = np.stack([np.concatenate(column) for column in zip(*(found or [none]), strict=True)])
    table = table[:, are_wanted[table[0]]]
    table = table[:, np.lexsort((table[1], table[0]))]
    counts = walk.header_counts[are_wanted]
    entries = np.arange(table.shape[1])
    return (
        (_bounds(counts), b"", _presence(counts > 0)),
        _binary(walk.data, Field(table[2], table[3]), entries),
        _binary(walk.data, Field(table[4], table[5]), entries),
    )


# Output for Arrow


def _binary(data: bytes, field: Field, rows: Ints) -> BinaryColumn:
    starts, ends = field.starts[rows], field.ends[rows]
    content = b"".join(
        [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    )
    return _bounds(ends - starts), content, _presence(starts >= 0)


def _bounds(lengths: Ints) -> bytes:
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    return bounds.tobytes()


def _presence(are_there: Flags) -> bytes | None:
    return None if are_there.all() else np.packbits(are_there, bitorder="little").tobytes()


def _view(numbers: Ints, kind: Literal["q", "i"]) -> memoryview:
    """Numbers in the type that the reference returns: 64 bits (q) or 32 (i)."""
    narrow = numbers.astype(np.int64 if kind == "q" else np.int32)
    return memoryview(narrow.tobytes()).cast(kind)
