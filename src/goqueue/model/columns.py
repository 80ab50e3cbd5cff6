"""The records of a batch as columns, for readers of many records and few of their fields.

An object per record costs more than finding its fields. So one pass over a batch records where
everything is, as columns of plain numbers; a key, a value or a record is created only on request.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from goqueue.model.attributes import contains_prefix
from goqueue.model.batch import LOG_APPEND_TIME, RECORDS_MAX, BatchHeader, Header, Record
from goqueue.model.compression import Buffer
from goqueue.model.decode_reference import TextColumn
from goqueue.model.decoding import decoder
from goqueue.model.errors import CorruptBatch

T = TypeVar("T")

# A header of two bytes becomes forty in a response.
HEADER_WEIGHT = 16
_NONE = memoryview(array("i"))


class PackedColumns(NamedTuple):
    """Some records of a batch as bytes, for another node; their deltas are those of the batch."""

    data: bytes
    record_count: int
    base_offset: int
    base_timestamp: int
    append_time: int | None


class Columns:
    """The fields of a batch's records; a record's place is its index in the batch."""

    __slots__ = (
        "_append_time",
        "_base_offset",
        "_base_timestamp",
        "_data",
        "_has_keys",
        "_header_starts",
        "_key_ends",
        "_key_starts",
        "_may_have_attributes",
        "_places",
        "_value_ends",
        "_value_starts",
        "ends",
        "offsets",
        "timestamps",
    )

    def __init__(self) -> None:
        self.offsets: Sequence[int] = range(0)  # a range, unless compaction left gaps
        self.timestamps: Sequence[int] = ()
        self.ends: Sequence[int] = (0,)  # total size of the records before each place, and of all
        self._base_offset = self._base_timestamp = 0
        self._append_time: int | None = None
        self._data = b""
        self._key_starts = self._key_ends = _NONE
        self._value_starts = self._value_ends = _NONE
        self._header_starts: memoryview | None = None
        self._places: dict[int, int] | None = None
        self._has_keys: bool | None = None
        self._may_have_attributes: bool | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def has_headers(self) -> bool:
        """Whether any of the records has a header."""
        return self._header_starts is not None

    @property
    def has_keys(self) -> bool:
        """Whether any of the records has a key; the position of a missing one is -1."""
        if self._has_keys is None:
            self._has_keys = bool(self._key_starts.tobytes().strip(b"\xff"))
        return self._has_keys

    @property
    def may_have_attributes(self) -> bool:
        """Whether any record may have a header of GoQueue's; most batches have none."""
        if self._may_have_attributes is None:
            self._may_have_attributes = self.has_headers and contains_prefix(self._data, 0)
        return self._may_have_attributes

    def places(self, wanted: Sequence[int]) -> Sequence[int]:
        """The places of those offsets that are in the batch; `wanted` is sorted, without
        duplicates.
        """
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
            self.keys((place,))[0],
            self.values((place,))[0],
            self.headers(place),
            self.timestamps[place],
            self.offsets[place],
        )

    def keys(self, places: Sequence[int]) -> list[bytes | None]:
        return decoder.slices(self._data, self._key_starts, self._key_ends, places)

    def values(self, places: Sequence[int]) -> list[bytes | None]:
        return decoder.slices(self._data, self._value_starts, self._value_ends, places)

    def key_column(self, places: Sequence[int]) -> TextColumn:
        """The keys for `decoder.json_rows`, which refuses them if one is not UTF-8."""
        return self._data, self._key_starts, self._key_ends, places

    def value_column(self, places: Sequence[int]) -> TextColumn:
        """The values, likewise."""
        return self._data, self._value_starts, self._value_ends, places

    def headers(self, place: int) -> tuple[Header, ...]:
        if self._header_starts is None or (start := self._header_starts[place]) < 0:
            return ()
        return decoder.headers(self._data, start, self.ends[place + 1])

    def bytes_at(self, places: Sequence[int]) -> int:
        """The size of these records as stored."""
        ends = self.ends
        if isinstance(places, range):
            return ends[places.stop] - ends[places.start]
        return sum(ends[place + 1] - ends[place] for place in places)

    def weight_of(self, places: Sequence[int]) -> int:
        """The size of these records, with headers weighted by their size in a response."""
        if self._header_starts is None:
            return self.bytes_at(places)
        return sum(self._weight(place) for place in places)

    def _weight(self, place: int) -> int:
        starts, end = self._header_starts, self.ends[place + 1]
        size = end - self.ends[place]
        if starts is None or starts[place] < 0:
            return size
        return size + (HEADER_WEIGHT - 1) * (end - starts[place])

    def pack(self, places: Sequence[int]) -> PackedColumns:
        """Pack these records as bytes, in this order; `unpack_columns` decodes them."""
        data, ends = self._data, self.ends
        if isinstance(places, range):
            chosen = data[ends[places.start] : ends[places.stop]]
        else:
            chosen = b"".join([data[ends[place] : ends[place + 1]] for place in places])
        return PackedColumns(
            chosen, len(places), self._base_offset, self._base_timestamp, self._append_time
        )

    def fitting(self, places: Sequence[int], bytes_max: int) -> Sequence[int]:
        """The longest prefix of these places that weighs at most `bytes_max`."""
        if self._header_starts is None and isinstance(places, range):
            bytes_end = self.ends[places.start] + bytes_max
            stop = bisect_right(self.ends, bytes_end, places.start, places.stop + 1) - 1
            return range(places.start, max(places.start, stop))
        for count, place in enumerate(places):
            bytes_max -= self._weight(place)
            if bytes_max < 0:
                return places[:count]
        return places


def at_places(column: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """The entries of a column at these places."""
    if isinstance(places, range):
        return column[places.start : places.stop]
    return [column[place] for place in places]


def decode_columns(header: BatchHeader, payload: Buffer) -> Columns:
    """Index all records; raise `CorruptBatch` if the bytes are invalid."""
    if header.record_count > RECORDS_MAX:
        raise CorruptBatch(
            f"A batch of {header.record_count} records is too large to be decoded here."
        )
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    packed = PackedColumns(
        bytes(payload),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        append_time,
    )
    del payload
    return unpack_columns(packed)


def unpack_columns(packed: PackedColumns) -> Columns:
    """Index the records packed by `Columns.pack`, or all of a batch."""
    columns = Columns()
    columns._data, _, first, columns._base_timestamp, columns._append_time = packed
    columns._base_offset = first
    (
        offsets,
        columns.timestamps,
        columns.ends,
        columns._key_starts,
        columns._key_ends,
        columns._value_starts,
        columns._value_ends,
        columns._header_starts,
    ) = decoder.index(*packed)
    columns.offsets = range(first, first + len(columns)) if offsets is None else offsets
    return columns
