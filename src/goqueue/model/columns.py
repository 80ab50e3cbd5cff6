"""The records of a batch as columns, for those who want many records and few of their fields.

An object for every record costs more than finding its fields. So a batch is unpacked in one loop
into a list per field, and a record is put together only for whoever asks for that one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeVar

from goqueue.model.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    Header,
    Record,
    read_bytes,
    read_varint,
)
from goqueue.model.compression import Buffer
from goqueue.model.errors import CorruptBatch

T = TypeVar("T")

RECORD_BYTES_MIN = 6  # attributes, two deltas, two lengths and the number of headers


class Columns:
    """The fields of a batch's records; a record's place is its number in the batch."""

    __slots__ = ("_places", "ends", "headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.offsets: Sequence[int] = range(0)  # a range, unless compaction left gaps
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, tuple[Header, ...]] = {}  # by place, of those that have any
        self.ends: list[int] = [0]  # the bytes of all records before each place, and of all
        self._places: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def places(self, wanted: Sequence[int]) -> Sequence[int]:
        """The places of those of the offsets, sorted and each there once, that are here."""
        offsets = self.offsets
        if isinstance(offsets, range):
            first = offsets.start
            if isinstance(wanted, range):
                return range(max(0, wanted.start - first), min(len(offsets), wanted.stop - first))
            return [offset - first for offset in wanted if offset in offsets]
        if self._places is None:
            self._places = {offset: place for place, offset in enumerate(offsets)}
        known = self._places
        return [known[offset] for offset in wanted if offset in known]

    def record(self, place: int) -> Record:
        return Record(
            self.keys[place],
            self.values[place],
            self.headers.get(place, ()),
            self.timestamps[place],
            self.offsets[place],
        )

    def bytes_at(self, places: Sequence[int]) -> int:
        """The bytes of these records as they are stored."""
        ends = self.ends
        if isinstance(places, range):
            return ends[places.stop] - ends[places.start]
        return sum(ends[place + 1] - ends[place] for place in places)

    def fitting(self, places: Sequence[int], bytes_max: int) -> Sequence[int]:
        """As many of these places, from the first on, as fit so many bytes."""
        if isinstance(places, range):
            bytes_end = self.ends[places.start] + bytes_max
            stop = bisect_right(self.ends, bytes_end, places.start, places.stop + 1) - 1
            return range(places.start, max(places.start, stop))
        for count, place in enumerate(places):
            bytes_max -= self.ends[place + 1] - self.ends[place]
            if bytes_max < 0:
                return places[:count]
        return places


def at_places(column: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """What a column has at these places."""
    if isinstance(places, range):
        return column[places.start : places.stop]
    return [column[place] for place in places]


def decode_columns(header: BatchHeader, payload: Buffer) -> Columns:
    """Decode all records; raise `CorruptBatch` where the bytes make no sense."""
    columns = Columns()
    data = bytes(payload)
    try:
        position = _decode(header, data, columns)
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch(f"The records of a batch cannot be decoded: {error}.") from error
    if position != len(data):
        raise CorruptBatch("A batch has bytes left after its last record.")
    if header.attributes & LOG_APPEND_TIME:
        columns.timestamps = [header.max_timestamp] * len(columns)
    return columns


def _decode(header: BatchHeader, data: bytes, columns: Columns) -> int:
    """Fill the columns. This runs for every record, so numbers of one or two bytes are read here.

    Such a number is `first & 0x7F | second << 7`; its lowest bit is the sign.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    deltas: list[int] = []
    size, position = len(data), 0
    add_delta, add_timestamp = deltas.append, columns.timestamps.append
    add_key, add_value, add_end = columns.keys.append, columns.values.append, columns.ends.append
    for place in range(header.record_count):
        byte, second = data[position], data[position + 1]
        if byte >= 0x80 and second < 0x80 and not byte & 1:
            length = (byte & 0x7F | second << 7) >> 1
            position += 2
        else:
            length, position = read_varint(data, position)
        end = position + length
        if length < RECORD_BYTES_MIN or end > size:
            raise CorruptBatch("A record claims more bytes than its batch has.")

        byte = data[position + 1]
        if byte < 0x80:
            add_timestamp(base_timestamp + ((byte >> 1) ^ -(byte & 1)))
            position += 2
        else:
            delta, position = read_varint(data, position + 1)
            add_timestamp(base_timestamp + delta)

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
            add_key(None)
            position += 1
        else:
            key, position = read_bytes(data, position, end)
            add_key(key)

        byte, second = data[position], data[position + 1]
        if byte >= 0x80 and second < 0x80 and not byte & 1:
            start = position + 2
            position = start + ((byte & 0x7F | second << 7) >> 1)
            add_value(data[start:position])
        else:
            value, position = read_bytes(data, position, end)
            add_value(value)

        if position < end and data[position] == 0:
            position += 1
        else:
            columns.headers[place], position = _read_headers(data, position, end)
        if position != end:
            raise CorruptBatch("A record's fields do not fill its length.")
        add_end(end)
    columns.offsets = _offsets(base_offset, deltas)
    return position


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptBatch(f"A record claims {count} headers.")
    headers: list[Header] = []
    for _ in range(count):
        name, position = read_bytes(data, position, end)
        content, position = read_bytes(data, position, end)
        if name is None:
            raise CorruptBatch("A record header has no name.")
        headers.append((name.decode(), content))
    return tuple(headers), position


def _offsets(base_offset: int, deltas: list[int]) -> Sequence[int]:
    count = len(deltas)
    if deltas == list(range(count)):
        return range(base_offset, base_offset + count)
    return [base_offset + delta for delta in deltas]
