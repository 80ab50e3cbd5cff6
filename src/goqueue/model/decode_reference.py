"""Decodes records in plain Python: the reference for `_decode.c`, and its replacement.

Both modules have the same functions, results and refusals. They handle only bytes: batch headers,
compression and checksums are processed before. Invalid bytes are always refused with
`CorruptBatch`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

import msgspec
from crc32c import crc32c

from goqueue.model.compression import Buffer
from goqueue.model.decode_fields import (
    BEYOND_BATCH,
    BEYOND_RECORD,
    BYTES_LEFT,
    NOT_FILLED,
    OFFSET_DELTA,
    OUT_OF_RANGE,
    RECORD_BYTES_MIN,
    Headers,
    read_bytes,
    read_field,
    read_headers,
    read_int,
    read_varint,
    refusal,
    skip_field,
    skip_headers,
)
from goqueue.model.errors import CorruptBatch, InvalidTimestamp

WANTS_KEYS, WANTS_VALUES, WANTS_HEADERS = 1, 2, 4  # which columns of bytes are wanted
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

_encode_json = msgspec.json.Encoder().encode

Row = TypeVar("Row")
# Offsets, timestamps, ends, starts and ends of keys and of values, starts of headers.
Index = tuple[
    memoryview | None,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview | None,
]
# The bytes of a batch's records, and the other arguments of `index`.
Batch = tuple[Buffer, int, int, int, int | None]
# A column in Arrow's layout: 32-bit bounds of the rows, one more than there are rows; the bytes
# between them; and a validity bit for each row, or None if all are valid.
BinaryColumn = tuple[bytes, bytes, bytes | None]
# Lists, whose bounds count headers and which have no bytes of their own; names; contents.
HeaderColumns = tuple[BinaryColumn, BinaryColumn, BinaryColumn]
# Offsets, timestamps (64 bits), whether the time is the append time (32), keys, values, headers.
TableColumns = tuple[
    bytes, bytes, bytes, BinaryColumn | None, BinaryColumn | None, HeaderColumns | None
]
# Numbers, or bytes that are JSON already, or texts among the bytes of a batch.
TextColumn = tuple[bytes, memoryview, memoryview, Sequence[int]]
JsonColumn = list[int] | list[bytes] | Sequence[int] | TextColumn

STEP_BYTES = 256 << 10  # large records, and those with many headers, are decoded a few at a time


def records(
    data: bytes,
    position: int,
    count_max: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    row: Callable[..., Row],
) -> tuple[list[Row], int]:
    """Decode up to a number of records from a position on; fewer if large. Also return the end.

    A row has key, value, headers, timestamp and offset. Damage is raised by the call whose first
    record has it; a call that has decoded records before the damage returns those.
    """
    rows: list[Row] = []
    start = position
    while len(rows) < count_max and position - start < STEP_BYTES:
        try:
            delta, shift, end, key, value, found = _read_record(data, position)
            offset, timestamp = base_offset + delta, base_timestamp + shift
            _check_place(offset, timestamp)
        except (CorruptBatch, IndexError) as error:
            if rows:
                break
            raise refusal(error) from error
        if append_time is not None:
            timestamp = append_time
        rows.append(row(key, value, found, timestamp, offset))
        position = end
    return rows, position


def raw_records(
    data: bytes, position: int, count_max: int, row: Callable[..., Row]
) -> tuple[list[Row], int]:
    """The same records, decoded only up to their values; the rest is copied as bytes.

    A row has offset delta, timestamp delta, key, whether it is a tombstone, all its bytes, and the
    position of the offset delta in these.
    """
    rows: list[Row] = []
    while len(rows) < count_max:
        try:
            length, at = read_varint(data, position)
            end = at + length
            if length < RECORD_BYTES_MIN or end > len(data):
                raise CorruptBatch(BEYOND_BATCH)
            shift, rest = read_varint(data, at + 1)
            delta, at = read_varint(data, rest)
            key, at = read_bytes(data, at, end)
            start, _, at = read_field(data, at, end)
            if at > end:
                raise CorruptBatch(BEYOND_RECORD)
        except (CorruptBatch, IndexError) as error:
            if rows:
                break
            raise refusal(error) from error
        is_tombstone = key is not None and start < 0
        rows.append(row(delta, shift, key, is_tombstone, data[position:end], rest - position))
        position = end
    return rows, position


def index(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Index:
    """Index a batch of `count` records, as columns of numbers.

    They are the offsets (None if they have no gaps), the timestamps, the ends of the records after
    a zero, the starts and ends of keys and of values, and where headers begin (None if there are
    none at all). The position of an absent field is -1.
    """
    found = _Columns()
    try:
        position = found.fill(data, count)
    except IndexError as error:
        raise refusal(error) from error
    if position != len(data):
        raise CorruptBatch(BYTES_LEFT)
    try:
        has_gaps = found.deltas != list(range(len(found.deltas)))
        offsets = array("q", [base_offset + delta for delta in found.deltas])
        timestamps = array("q", [base_timestamp + shift for shift in found.shifts])
    except OverflowError:
        raise CorruptBatch(OUT_OF_RANGE) from None
    if append_time is not None:
        timestamps = array("q", (append_time,)) * len(timestamps)
    return (
        memoryview(offsets) if has_gaps else None,
        memoryview(timestamps),
        memoryview(array("i", found.ends)),
        memoryview(array("i", found.key_starts)),
        memoryview(array("i", found.key_ends)),
        memoryview(array("i", found.value_starts)),
        memoryview(array("i", found.value_ends)),
        memoryview(array("i", found.header_starts)) if found.has_headers else None,
    )


def check_records(
    data: Buffer, position: int, count: int, base_timestamp: int, has_gaps: bool
) -> tuple[int, int, int]:
    """Check all records of a batch: exactly its record count, up to its last byte.

    Return the index of the first record without a key and the oldest and newest timestamps, -1 for
    none. Offset deltas count up from zero by one, unless `has_gaps`: then some may be missing.
    Numbers must be as short as clients expect them: 32 bits in five bytes.
    """
    view = memoryview(data)
    if count > (len(view) - position) // (RECORD_BYTES_MIN + 1):
        raise CorruptBatch(BEYOND_BATCH)
    keyless, oldest, newest, expected = -1, None, -1, 0
    for index in range(count):
        try:
            position, delta, shift, has_key = _check_record(view, position)
        except IndexError as error:
            raise refusal(error) from error
        if delta < expected or (delta > expected and not has_gaps):
            raise CorruptBatch(OFFSET_DELTA)
        expected, timestamp = delta + 1, base_timestamp + shift
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise InvalidTimestamp(OUT_OF_RANGE)
        if timestamp != -1:
            oldest = timestamp if oldest is None else min(oldest, timestamp)
        newest = max(newest, timestamp)
        if not has_key and keyless < 0:
            keyless = index
    if position != len(view):
        raise CorruptBatch(BYTES_LEFT)
    return keyless, -1 if oldest is None else oldest, newest


def _check_record(data: memoryview, position: int) -> tuple[int, int, int, bool]:
    """The end of a record, its offset and timestamp deltas, and whether it has a key."""
    length, position = read_int(data, position)
    if not RECORD_BYTES_MIN <= length <= len(data) - position:
        raise CorruptBatch(BEYOND_BATCH)
    end = position + length
    record = data[:end]
    shift, position = read_varint(record, position + 1)
    delta, position = read_int(record, position)
    key_length, position = skip_field(record, position, end)
    _, position = skip_field(record, position, end)
    if skip_headers(record, position, end) != end:
        raise CorruptBatch(NOT_FILLED)
    return end, delta, shift, key_length >= 0


def columns(batches: Sequence[Batch], start: int, end: int, wanted: int) -> TableColumns:
    """The records of batches in an offset range, as columns for Arrow.

    `wanted` selects the columns of bytes; the others are None.
    """
    rows = []
    for data, count, base_offset, base_timestamp, append_time in batches:
        data = bytes(data)
        # The index refuses invalid bytes, whichever records are requested.
        index(data, count, base_offset, base_timestamp, append_time)
        place = (base_offset, base_timestamp, append_time)
        for row in records(data, 0, count, *place, lambda *row: row)[0]:
            if start <= row[4] < end:
                rows.append((*row, append_time is not None))
    lists = [row[2] for row in rows]
    entries = [header for one in lists for header in one]
    return (
        array("q", [row[4] for row in rows]).tobytes(),
        array("q", [row[3] for row in rows]).tobytes(),
        array("i", [row[5] for row in rows]).tobytes(),
        binary_column([row[0] for row in rows]) if wanted & WANTS_KEYS else None,
        binary_column([row[1] for row in rows]) if wanted & WANTS_VALUES else None,
        (
            (
                _bounds(map(len, lists)),
                b"",
                _presence([bool(one) for one in lists]),
            ),
            binary_column([name.encode() for name, _ in entries]),
            binary_column([content for _, content in entries]),
        )
        if wanted & WANTS_HEADERS
        else None,
    )


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """Encode values in Arrow's layout."""
    there = [value or b"" for value in values]
    return (
        _bounds(map(len, there)),
        b"".join(there),
        _presence([value is not None for value in values]),
    )


def _bounds(lengths: Iterable[int]) -> bytes:
    return array("i", accumulate(lengths, initial=0)).tobytes()


def _presence(are_there: Sequence[bool]) -> bytes | None:
    """A validity bit for each row, the lowest first; None if all are set."""
    if all(are_there):
        return None
    bits = sum(1 << row for row, is_there in enumerate(are_there) if is_there)
    return bits.to_bytes((len(are_there) + 7) // 8, "little")


def checksums(data: Buffer, bounds: memoryview) -> bytes:
    """The CRC-32C of the bytes between consecutive bounds, as 32-bit numbers."""
    view, places = memoryview(data), bounds.tolist()
    if not places or places[0] < 0 or places[-1] > len(view) or sorted(places) != places:
        raise ValueError("The bounds lie outside the bytes, or out of order.")
    return array("I", [crc32c(view[start:end]) for start, end in pairwise(places)]).tobytes()


def slices(
    data: bytes, starts: memoryview, ends: memoryview, places: Sequence[int]
) -> list[bytes | None]:
    """The bytes from start to end at each of these places; None if negative."""
    if isinstance(places, range) and places.step == 1:
        first, last = (column[places.start : places.stop].tolist() for column in (starts, ends))
    else:
        first, last = ([column[place] for place in places] for column in (starts, ends))
    return [data[start:end] if start >= 0 else None for start, end in zip(first, last, strict=True)]


def texts(
    data: bytes, starts: memoryview, ends: memoryview, places: Sequence[int]
) -> list[str | None]:
    """The same as text; `UnicodeDecodeError` if one of them is not UTF-8."""
    found = slices(data, starts, ends, places)
    return [None if content is None else content.decode() for content in found]


def headers(data: bytes, start: int, end: int) -> Headers:
    """The headers of a record, from their count to the record's end."""
    try:
        return read_headers(data, start, end)[0]
    except IndexError as error:
        raise refusal(error) from error


def json_rows(fragments: tuple[bytes, ...], columns: tuple[JsonColumn, ...], count: int) -> bytes:
    """Format rows of JSON with commas between them.

    A row is fragment, cell, fragment, cell and so on to the last fragment. A column is a sequence
    of numbers or of bytes that are JSON already, or the arguments of `texts` as a tuple.
    `ValueError` if a text is not UTF-8.
    """
    if len(fragments) != len(columns) + 1:
        raise ValueError("There must be one fragment more than columns.")
    cells = [_json_cells(column) for column in columns]
    if any(len(one) != count for one in cells):
        raise ValueError("A column has more or fewer rows than there are.")
    row = b"%b".join(fragment.replace(b"%", b"%%") for fragment in fragments)
    return b",".join(
        [row % given for given in zip(*cells, strict=True)] if cells else [row] * count
    )


def _json_cells(column: JsonColumn) -> list[bytes]:
    if isinstance(column, tuple):
        return list(map(_encode_json, texts(*column)))
    return [cell if isinstance(cell, bytes) else b"%d" % cell for cell in column]


class _Columns:
    """The columns of a batch while they are filled."""

    __slots__ = (
        "deltas",
        "ends",
        "has_headers",
        "header_starts",
        "key_ends",
        "key_starts",
        "shifts",
        "value_ends",
        "value_starts",
    )

    def __init__(self) -> None:
        self.deltas: list[int] = []
        self.shifts: list[int] = []
        self.ends = [0]
        self.key_starts: list[int] = []
        self.key_ends: list[int] = []
        self.value_starts: list[int] = []
        self.value_ends: list[int] = []
        self.header_starts: list[int] = []
        self.has_headers = False

    def fill(self, data: bytes, count: int) -> int:
        """Index `count` records, and return the end.

        Numbers of one or two bytes are decoded inline, others by a call. Such a number is
        `first & 0x7F | second << 7`; its lowest bit is the sign.
        """
        size, position = len(data), 0
        for _ in range(count):
            byte, second = data[position], data[position + 1]
            if byte >= 0x80 and second < 0x80 and not byte & 1:
                length = (byte & 0x7F | second << 7) >> 1
                position += 2
            else:
                length, position = read_varint(data, position)
            end = position + length
            if length < RECORD_BYTES_MIN or end > size:
                raise CorruptBatch(BEYOND_BATCH)
            position = self._read_deltas(data, position)
            position = self._read_fields(data, position, end)
            if position != end:
                raise CorruptBatch(NOT_FILLED)
            self.ends.append(end)
        return position

    def _read_deltas(self, data: bytes, position: int) -> int:
        """Read the timestamp and offset deltas."""
        byte = data[position + 1]
        if byte < 0x80:
            self.shifts.append((byte >> 1) ^ -(byte & 1))
            position += 2
        else:
            shift, position = read_varint(data, position + 1)
            self.shifts.append(shift)
        byte, second = data[position], data[position + 1]
        if byte < 0x80:
            self.deltas.append((byte >> 1) ^ -(byte & 1))
            return position + 1
        if second < 0x80 and not byte & 1:
            self.deltas.append((byte & 0x7F | second << 7) >> 1)
            return position + 2
        delta, position = read_varint(data, position)
        self.deltas.append(delta)
        return position

    def _read_fields(self, data: bytes, position: int, end: int) -> int:
        """Read key, value and headers."""
        if data[position] == 1:  # minus one
            start = stop = -1
            position += 1
        else:
            start, stop, position = read_field(data, position, end)
        self.key_starts.append(start)
        self.key_ends.append(stop)
        byte, second = data[position], data[position + 1]
        if byte >= 0x80 and second < 0x80 and not byte & 1:
            start = position + 2
            stop = position = start + ((byte & 0x7F | second << 7) >> 1)
        else:
            start, stop, position = read_field(data, position, end)
        self.value_starts.append(start)
        self.value_ends.append(stop)
        if position < end and data[position] == 0:
            self.header_starts.append(-1)
            return position + 1
        self.header_starts.append(position)
        self.has_headers = True
        return read_headers(data, position, end)[1]


def _read_record(
    data: bytes, position: int
) -> tuple[int, int, int, bytes | None, bytes | None, Headers]:
    """Offset delta, timestamp delta, end, key, value and headers of the record at a position."""
    length, position = read_varint(data, position)
    end = position + length
    if length < RECORD_BYTES_MIN or end > len(data):
        raise CorruptBatch(BEYOND_BATCH)
    shift, position = read_varint(data, position + 1)
    delta, position = read_varint(data, position)
    key, position = read_bytes(data, position, end)
    value, position = read_bytes(data, position, end)
    found, position = read_headers(data, position, end)
    if position != end:
        raise CorruptBatch(NOT_FILLED)
    return delta, shift, end, key, value, found


def _check_place(offset: int, timestamp: int) -> None:
    if not (_INT64_MIN <= offset <= _INT64_MAX and _INT64_MIN <= timestamp <= _INT64_MAX):
        raise CorruptBatch(OUT_OF_RANGE)
