"""Encodes records from columns: the reference for `_encode.c`, and its replacement.

Both modules have the same functions, results and refusals. Columns have Arrow's layout, so that
the buffers of Arrow arrays can be passed as they are; nothing here needs Arrow.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from goqueue.model.batch import Header, Record, encode_records
from goqueue.model.compression import Buffer
from goqueue.model.key_hash import partition_of_key

EXTRAS_MAX = 8
_BODY_BYTES_MAX = 0x7FFF_FFFF

OUTSIDE_COLUMN = "A place lies outside its column."
OUTSIDE_DATA = "A value lies outside the bytes of its column."
OUT_OF_RANGE = "The times of two records do not fit one batch."
NO_NAME = "A record header has no name."
TOO_LARGE = "A record is too large for a batch."

# Values: their contiguous bytes, the bounds between them, a validity bit for each (None: all are
# valid), and the number of the first value's bit. None for a column without any value.
Column = tuple[Buffer, memoryview, Buffer | None, int] | None
# Lists of headers: bounds, bits and first bit as above, and the columns of names and contents.
HeaderLists = tuple[memoryview, Buffer | None, int, Column, Column] | None
# Headers that a record has if the column has a value for it.
Extras = tuple[tuple[bytes, Column], ...]
# Keys, values, headers, extras and timestamps in milliseconds.
Columns = tuple[Column, Column, HeaderLists, Extras, memoryview]


def append(
    batch: bytearray,
    count: int,
    base_timestamp: int,
    columns: Columns,
    places: memoryview,
    first: int,
    bytes_max: int,
    records_max: int,
) -> tuple[int, int]:
    """Append records to the bytes of a batch that has `count` of them.

    They are taken from these places of the columns, from the `first` place on, as many as fit
    `bytes_max` and `records_max`; into an empty batch at least one, however large it is. Return how
    many were appended, and their newest timestamp.
    """
    if count < 0 or not 0 <= first <= len(places) or count > records_max:
        raise ValueError(OUTSIDE_COLUMN)
    if len(columns[3]) > EXTRAS_MAX:
        raise ValueError("Extra headers are a tuple of few columns.")
    parts: list[bytes] = []
    size = len(batch)
    for place in places[first : first + records_max - count]:
        delta = count + len(parts)
        part = _encoded(columns, place, delta, base_timestamp)
        if size + len(part) > bytes_max and delta > 0:
            break
        parts.append(part)
        size += len(part)
    batch += b"".join(parts)
    added = places[first : first + len(parts)]
    return len(parts), max((columns[4][place] for place in added), default=base_timestamp)


def partitions(keys: Column, partition_count: int) -> memoryview:
    """The partition of each key, as 32-bit numbers; -1 for no key."""
    if partition_count < 1:
        raise ValueError("A topic has at least one partition.")
    count = 0 if keys is None else max(len(keys[1]) - 1, 0)
    found = [_value(keys, place) for place in range(count)]
    numbers = (-1 if key is None else partition_of_key(key, partition_count) for key in found)
    return memoryview(array("i", numbers))


def _encoded(columns: Columns, place: int, delta: int, base_timestamp: int) -> bytes:
    keys, values, lists, extras, times = columns
    if not 0 <= place < len(times):
        raise ValueError(OUTSIDE_COLUMN)
    if not -(1 << 63) <= times[place] - base_timestamp < 1 << 63:
        raise ValueError(OUT_OF_RANGE)
    key, value = _value(keys, place), _value(values, place)
    headers = (*_headers(lists, place), *_extra_headers(extras, place))
    record = Record(key, value, headers, times[place])
    encoded = encode_records([(delta, record)], base_timestamp=base_timestamp)
    if len(encoded) > _BODY_BYTES_MAX:
        raise ValueError(TOO_LARGE)
    return encoded


def _headers(lists: HeaderLists, place: int) -> Sequence[Header]:
    if lists is None:
        return ()
    bounds, validity, bit, names, contents = lists
    if not 0 <= place < len(bounds) - 1:
        raise ValueError(OUTSIDE_COLUMN)
    if not _is_there(validity, bit + place):
        return ()
    start, end = bounds[place], bounds[place + 1]
    if not 0 <= start <= end <= (0 if names is None else len(names[1]) - 1):
        raise ValueError(OUTSIDE_DATA)
    return [(_name(names, one), _value(contents, one)) for one in range(start, end)]


def _name(names: Column, place: int) -> str:
    name = _value(names, place)
    if name is None:
        raise ValueError(NO_NAME)
    return name.decode()


def _extra_headers(extras: Extras, place: int) -> list[Header]:
    found = [(name.decode(), _value(contents, place)) for name, contents in extras]
    return [(name, content) for name, content in found if content is not None]


def _value(column: Column, place: int) -> bytes | None:
    if column is None:
        return None
    data, bounds, validity, bit = column
    if not 0 <= place < len(bounds) - 1:
        raise ValueError(OUTSIDE_COLUMN)
    if not _is_there(validity, bit + place):
        return None
    start, end = bounds[place], bounds[place + 1]
    if not 0 <= start <= end <= len(data):
        raise ValueError(OUTSIDE_DATA)
    return bytes(data[start:end])


def _is_there(validity: Buffer | None, bit: int) -> bool:
    return validity is None or bool(validity[bit >> 3] >> (bit & 7) & 1)
