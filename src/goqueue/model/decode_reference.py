"""Records out of the bytes of a batch, in plain Python: what `_decode.c` must do, and its stand-in.

Both modules have the same functions, answers and refusals. They know nothing but bytes: headers of
batches, compression and checksums are seen to before. Bytes that make no sense are refused with
`CorruptBatch`, whatever they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from goqueue.model.errors import CorruptBatch

RECORD_BYTES_MIN = 6  # attributes, two deltas, two lengths and the number of headers
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

_encode_json = msgspec.json.Encoder().encode

Row = TypeVar("Row")
Headers = tuple[tuple[str, bytes | None], ...]
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
# Numbers, or bytes that are JSON already, or texts among the bytes of a batch.
TextColumn = tuple[bytes, memoryview, memoryview, Sequence[int]]
JsonColumn = list[int] | list[bytes] | Sequence[int] | TextColumn

BEYOND_BATCH = "A record claims more bytes than its batch has."
BEYOND_RECORD = "A field of a record reaches beyond the record."
NUMBER_TOO_LONG = "A number in a record is longer than 64 bits."
HEADER_COUNT = "A record claims more headers than it has bytes, or less than none."
HEADER_NAME = "A record header has no name, or one that is not UTF-8."
NOT_FILLED = "A record's fields do not fill its length."
OUT_OF_RANGE = "A record's time or offset does not fit 64 bits."


def records(
    data: bytes,
    position: int,
    count_max: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    row: Callable[..., Row],
) -> tuple[list[Row], int]:
    """Up to so many records from a position on, and the position after them.

    A row has key, value, headers, timestamp and offset. Damage is met by the call whose first
    record it is in; one that has read something gives that out.
    """
    rows: list[Row] = []
    while len(rows) < count_max:
        try:
            delta, shift, end, key, value, found = _read_record(data, position)
            offset, timestamp = base_offset + delta, base_timestamp + shift
            _check_place(offset, timestamp)
        except (CorruptBatch, IndexError) as error:
            if rows:
                break
            raise _refusal(error) from error
        if append_time is not None:
            timestamp = append_time
        rows.append(row(key, value, found, timestamp, offset))
        position = end
    return rows, position


def raw_records(
    data: bytes, position: int, count_max: int, row: Callable[..., Row]
) -> tuple[list[Row], int]:
    """The same records, unpacked no further than their values; what is behind is carried along.

    A row has offset delta, timestamp delta, key, whether it is a tombstone, all its bytes, and
    where in these the offset delta begins.
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
            start, _, at = _read_field(data, at, end)
            if at > end:
                raise CorruptBatch(BEYOND_RECORD)
        except (CorruptBatch, IndexError) as error:
            if rows:
                break
            raise _refusal(error) from error
        is_tombstone = key is not None and start < 0
        rows.append(row(delta, shift, key, is_tombstone, data[position:end], rest - position))
        position = end
    return rows, position


def index(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Index:
    """Where everything is in a batch of so many records, as columns of numbers.

    They are the offsets (None if they have no gaps), the timestamps, the ends of the records after
    a zero, the starts and ends of keys and of values, and where headers begin (None if there are
    none at all). What a record does not have is at -1.
    """
    columns = _Columns()
    try:
        position = _fill(columns, data, count)
    except IndexError as error:
        raise _refusal(error) from error
    if position != len(data):
        raise CorruptBatch("A batch has bytes left after its last record.")
    try:
        has_gaps = columns.deltas != list(range(len(columns.deltas)))
        offsets = array("q", [base_offset + delta for delta in columns.deltas])
        timestamps = array("q", [base_timestamp + shift for shift in columns.shifts])
    except OverflowError:
        raise CorruptBatch(OUT_OF_RANGE) from None
    if append_time is not None:
        timestamps = array("q", (append_time,)) * len(timestamps)
    return (
        memoryview(offsets) if has_gaps else None,
        memoryview(timestamps),
        memoryview(array("i", columns.ends)),
        memoryview(array("i", columns.key_starts)),
        memoryview(array("i", columns.key_ends)),
        memoryview(array("i", columns.value_starts)),
        memoryview(array("i", columns.value_ends)),
        memoryview(array("i", columns.header_starts)) if columns.has_headers else None,
    )


def slices(
    data: bytes, starts: memoryview, ends: memoryview, places: Sequence[int]
) -> list[bytes | None]:
    """The bytes from start to end at each of these places; None below zero."""
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
    """The headers of a record, from their number on up to the record's end."""
    try:
        return _read_headers(data, start, end)[0]
    except IndexError as error:
        raise _refusal(error) from error


def json_rows(fragments: tuple[bytes, ...], columns: tuple[JsonColumn, ...], count: int) -> bytes:
    """Rows of JSON with commas between them.

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
    """What is known of the records of a batch while they are read."""

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


def _fill(columns: _Columns, data: bytes, count: int) -> int:
    """Read so many records. Numbers of one or two bytes are read here, the others by a call.

    Such a number is `first & 0x7F | second << 7`; its lowest bit is the sign.
    """
    size, position = len(data), 0
    add_delta, add_shift, add_end = (
        columns.deltas.append,
        columns.shifts.append,
        columns.ends.append,
    )
    add_key, add_key_end = columns.key_starts.append, columns.key_ends.append
    add_value, add_value_end = columns.value_starts.append, columns.value_ends.append
    add_headers = columns.header_starts.append
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

        byte = data[position + 1]
        if byte < 0x80:
            add_shift((byte >> 1) ^ -(byte & 1))
            position += 2
        else:
            shift, position = read_varint(data, position + 1)
            add_shift(shift)

        byte, second = data[position], data[position + 1]
        if byte < 0x80:
            add_delta((byte >> 1) ^ -(byte & 1))
            position += 1
        elif second < 0x80 and not byte & 1:
            add_delta((byte & 0x7F | second << 7) >> 1)
            position += 2
        else:
            delta, position = read_varint(data, position)
            add_delta(delta)

        if data[position] == 1:  # minus one
            add_key(-1)
            add_key_end(-1)
            position += 1
        else:
            start, stop, position = _read_field(data, position, end)
            add_key(start)
            add_key_end(stop)

        byte, second = data[position], data[position + 1]
        if byte >= 0x80 and second < 0x80 and not byte & 1:
            add_value(position + 2)
            position += 2 + ((byte & 0x7F | second << 7) >> 1)
            add_value_end(position)
        else:
            start, stop, position = _read_field(data, position, end)
            add_value(start)
            add_value_end(stop)

        if position < end and data[position] == 0:
            add_headers(-1)
            position += 1
        else:
            add_headers(position)
            columns.has_headers = True
            position = _read_headers(data, position, end)[1]
        if position != end:
            raise CorruptBatch(NOT_FILLED)
        add_end(end)
    return position


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
    found, position = _read_headers(data, position, end)
    if position != end:
        raise CorruptBatch(NOT_FILLED)
    return delta, shift, end, key, value, found


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptBatch(HEADER_COUNT)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = read_bytes(data, position, end)
        content, position = read_bytes(data, position, end)
        try:
            if name is None:
                raise CorruptBatch(HEADER_NAME)
            found.append((name.decode(), content))
        except UnicodeDecodeError as error:
            raise CorruptBatch(HEADER_NAME) from error
    return tuple(found), position


def read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """A length and so many bytes, which lie before `end`; and where they end."""
    start, stop, position = _read_field(data, position, end)
    return (data[start:stop] if start >= 0 else None), position


def _read_field(data: bytes, position: int, end: int) -> tuple[int, int, int]:
    """The same as start and stop, which are -1 for what is not there."""
    length, position = read_varint(data, position)
    if length < 0:
        return -1, -1, position
    stop = position + length
    if stop > end:
        raise CorruptBatch(BEYOND_RECORD)
    return position, stop, stop


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag variable-length integer, and where it ends."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise CorruptBatch(NUMBER_TOO_LONG)
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch(NUMBER_TOO_LONG)


def _check_place(offset: int, timestamp: int) -> None:
    if not (_INT64_MIN <= offset <= _INT64_MAX and _INT64_MIN <= timestamp <= _INT64_MAX):
        raise CorruptBatch(OUT_OF_RANGE)


def _refusal(error: CorruptBatch | IndexError) -> CorruptBatch:
    """What is said of bytes; they may also end too soon."""
    return error if isinstance(error, CorruptBatch) else CorruptBatch(BEYOND_RECORD)
