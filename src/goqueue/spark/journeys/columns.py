"""Records of the journal as Arrow columns.

What a record has before its events, texts and details, is decoded as such: it is short, and shared
by many events. The events of all records of a chunk are decoded together, as columns of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from goqueue.model.errors import CorruptJourney
from goqueue.model.tenants import plain_name, tenant_of
from goqueue.spark.columns import record_batches
from goqueue.spark.journeys.options import EventSelection, kind_name
from goqueue.tracing.encoding import (
    FLAG_BITS,
    HAS_DUE,
    HAS_LAST,
    HAS_LINK,
    HAS_SIZE,
    Head,
    decode_events,
    decode_head,
    decode_key,
    is_events,
)
from goqueue.tracing.events import Details, Place

if TYPE_CHECKING:
    from goqueue.client import RawBatch
    from goqueue.spark.planning import OffsetRange

Numbers = np.ndarray[Any, np.dtype[Any]]

_PLAIN = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
    ]
)
_VARINT_BYTES_MAX = 10
_LEAST = 4  # numbers of an event without flags
_FIELDS = ((HAS_LAST, 1), (HAS_SIZE, 1), (HAS_DUE, 1), (HAS_LINK, 3))  # in their order
# How many numbers an event has, by its flags.
_LENGTHS = np.array(
    [
        _LEAST + sum(length for flag, length in _FIELDS if flags & flag)
        for flags in range(1 << FLAG_BITS)
    ]
)


def journey_batches(
    batches: Iterable[RawBatch],
    wanted: OffsetRange,
    schema: pa.Schema,
    selection: EventSelection,
) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of the selected events of a partition of the journal."""
    for records in record_batches(batches, wanted, _PLAIN):
        chunk = _Chunk(wanted.partition.partition, selection)
        columns = (records.column(name).to_pylist() for name in ("key", "value", "offset"))
        for key, value, offset in zip(*columns, strict=True):
            if value is not None and is_events(key):
                chunk.add(key, value, offset)
        if chunk.heads:
            yield _selected(chunk, schema)


def _selected(chunk: _Chunk, schema: pa.Schema) -> pa.RecordBatch:
    rows = _Rows(chunk)
    if schema.names:
        arrays = [_MAKERS[field.name](rows).cast(field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    empty = pa.Array.from_buffers(pa.struct([]), len(rows.first), [None])  # Only a count is wanted.
    return pa.RecordBatch.from_struct_array(empty)


class _Chunk:
    """Records of the journal, each as its head and the bytes of its events."""

    def __init__(self, partition: int, selection: EventSelection) -> None:
        self.partition = partition
        self.selection = selection
        # Details repeat from record to record, so each is numbered once.
        self.details: dict[Details, int] = {}
        self.places: list[Place] = []
        self.heads: list[Head] = []
        self.offsets: list[int] = []
        self.values: list[bytes] = []
        self.bodies: list[bytes] = []

    def add(self, key: bytes, value: bytes, offset: int) -> None:
        try:
            place = decode_key(key).place
            if self.selection.topics and plain_name(place.topic) not in self.selection.topics:
                return
            head = decode_head(place, value)
        except CorruptJourney as error:
            raise self._damaged(offset, str(error)) from error
        if not any(map(self._may_select, head.details)):
            return
        for one in head.details:
            self.details.setdefault(one, len(self.details))
        self.places.append(place)
        self.heads.append(head)
        self.offsets.append(offset)
        self.values.append(value)
        self.bodies.append(value[head.position :])

    def _may_select(self, details: Details) -> bool:
        wanted = self.selection
        return (not wanted.kinds or details.kind in wanted.kinds) and (
            not wanted.groups or plain_name(details.group) in wanted.groups
        )

    def detail_numbers(self) -> Numbers:
        """Return the numbers of the details of all records, one record after the other."""
        return np.array([self.details[one] for head in self.heads for one in head.details])

    def selected_details(self) -> Numbers:
        return np.fromiter(map(self._may_select, self.details), bool)

    def damage(self) -> CorruptJourney:
        """Return the error of the first damaged record: there is one."""
        for place, value, offset in zip(self.places, self.values, self.offsets, strict=True):
            try:
                decode_events(place, value)
            except CorruptJourney as error:
                return self._damaged(offset, str(error))
        return self._damaged(self.offsets[0], "a record from here on has invalid numbers.")

    def _damaged(self, offset: int, why: str) -> CorruptJourney:
        return CorruptJourney(f"Partition {self.partition} of the journal, offset {offset}: {why}")


class _Rows:
    """The selected events of a chunk, as columns of numbers."""

    def __init__(self, chunk: _Chunk) -> None:
        self.chunk = chunk
        numbers, bounds = _varints(chunk)
        counts = np.array([head.length for head in chunk.heads])
        at = _heads(chunk, numbers, bounds, counts)
        record = np.repeat(np.arange(len(counts)), counts)
        head = numbers[at]
        flags = head & (1 << FLAG_BITS) - 1
        begin = np.cumsum(counts) - counts  # the first event of each record
        first, end = _offsets(numbers, at, record, begin)
        time = _restarting(numbers[at + 3], record, begin)
        place = at + _LEAST

        def optional(flag: int, length: int) -> list[Numbers]:
            """Return the numbers that events with this flag have, and 0 for the others."""
            nonlocal place
            has = (flags & flag) != 0
            found = [
                np.where(has, numbers[np.minimum(place + number, len(numbers) - 1)], 0)
                for number in range(length)
            ]
            place = place + has * length
            return found

        (late,), (size,), (due,), link = (optional(*field) for field in _FIELDS)
        last = time + late
        has_due, has_link = (flags & HAS_DUE) != 0, (flags & HAS_LINK) != 0
        details = _shifted(head >> FLAG_BITS, record, [len(one.details) for one in chunk.heads])
        texts = _shifted(link[0], record, [len(one.texts) for one in chunk.heads])
        if any(map(_is_any, (first < 0, end <= first, last < time, details < 0, texts < 0))):
            raise chunk.damage()
        details = chunk.detail_numbers()[details]
        kept = _kept(chunk.selection, chunk.selected_details()[details], time, last)
        self.record, self.details = record[kept], details[kept]
        self.first, self.end = first[kept], end[kept]
        self.time, self.last = time[kept], last[kept]
        self.size = size[kept]
        self.due, self.has_due = (time + due)[kept], has_due[kept]
        self.link_text, self.link_partition, self.link_offset = (
            one[kept] for one in (texts, link[1], link[2])
        )
        self.has_link = has_link[kept]

    def of_records(self, values: Iterable[Any], kind: pa.DataType) -> pa.Array:
        return _taken(values, self.record, kind)

    def of_details(self, values: Iterable[Any], kind: pa.DataType) -> pa.Array:
        return _taken(values, self.details, kind)


def _is_any(mask: Numbers) -> bool:
    return bool(mask.any())


def _kept(selection: EventSelection, is_wanted: Numbers, time: Numbers, last: Numbers) -> Numbers:
    if selection.from_ms is not None:
        is_wanted = is_wanted & (last >= selection.from_ms)
    if selection.until_ms is not None:
        is_wanted = is_wanted & (time < selection.until_ms)
    return np.flatnonzero(is_wanted)


# Numbers


def _varints(chunk: _Chunk) -> tuple[Numbers, Numbers]:
    """Decode the numbers of all bodies; also return how many precede each body, and the total."""
    data = np.frombuffer(b"".join(chunk.bodies), np.uint8)
    ends = np.flatnonzero(data < 0x80)
    sizes = np.cumsum([0, *map(len, chunk.bodies)])
    bounds = np.searchsorted(ends, sizes)
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    lengths = ends - starts + 1
    is_cut = len(ends) == 0 or ends[-1] != len(data) - 1
    # A body that ends within a number would continue in the next one.
    if is_cut or _is_any(data[sizes[1:] - 1] >= 0x80) or lengths.max() > _VARINT_BYTES_MAX:
        raise chunk.damage()
    values = np.zeros(len(ends), np.uint64)
    for number in range(int(lengths.max())):
        has = np.flatnonzero(lengths > number) if number else slice(None)
        septet = data[starts[has] + number].astype(np.uint64) & np.uint64(0x7F)
        values[has] |= septet << np.uint64(7 * number)
    signed = (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)
    return signed, bounds


def _heads(chunk: _Chunk, numbers: Numbers, bounds: Numbers, counts: Numbers) -> Numbers:
    """Return where the numbers of each event begin."""
    lengths = _LENGTHS[numbers & (1 << FLAG_BITS) - 1].tolist()
    found: list[int] = []
    for place, end, count in zip(
        bounds[:-1].tolist(), bounds[1:].tolist(), counts.tolist(), strict=True
    ):
        for _ in range(count):
            if place >= end:
                break
            found.append(place)
            place += lengths[place]
        if place != end:
            raise chunk.damage()
    return np.array(found, np.int64)


def _offsets(
    numbers: Numbers, at: Numbers, record: Numbers, begin: Numbers
) -> tuple[Numbers, Numbers]:
    end = _restarting(numbers[at + 1] + numbers[at + 2], record, begin)
    return end - numbers[at + 2], end


def _restarting(steps: Numbers, record: Numbers, begin: Numbers) -> Numbers:
    """Return the running sums of differences, which begin anew in each record."""
    sums = np.cumsum(steps)
    before = sums[begin] - steps[begin]
    return np.asarray(sums - before[record])


def _shifted(numbers: Numbers, record: Numbers, lengths: list[int]) -> Numbers:
    """Make numbers within tables of records those within the joined table; -1 if invalid."""
    sizes = np.array(lengths)
    bases = np.cumsum(sizes) - sizes
    is_valid = (numbers >= 0) & (numbers < sizes[record])
    return np.where(is_valid, numbers + bases[record], -1)


# Columns


def _taken(values: Iterable[Any], places: Numbers, kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind).take(pa.array(places))


def _optional(values: Numbers, is_there: Numbers) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~is_there)


def _times(values: Numbers) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))


def _text(name: str) -> Callable[[_Rows], pa.Array]:
    def make(rows: _Rows) -> pa.Array:
        values = (getattr(one, name) or None for one in rows.chunk.details)
        return rows.of_details(values, pa.string())

    return make


def _number(name: str, missing: int) -> Callable[[_Rows], pa.Array]:
    def make(rows: _Rows) -> pa.Array:
        values = (getattr(one, name) for one in rows.chunk.details)
        present = (None if value == missing else value for value in values)
        return rows.of_details(present, pa.int64())

    return make


def _group(rows: _Rows) -> pa.Array:
    values = (plain_name(one.group) or None for one in rows.chunk.details)
    return rows.of_details(values, pa.string())


def _of_place(value: Callable[[Place], Any], kind: pa.DataType) -> Callable[[_Rows], pa.Array]:
    return lambda rows: rows.of_records(map(value, rows.chunk.places), kind)


def _due(rows: _Rows) -> pa.Array:
    return _optional(rows.due, rows.has_due).cast(pa.timestamp("ms", tz="UTC"))


def _of_link(value: Callable[[str], str]) -> Callable[[_Rows], pa.Array]:
    def make(rows: _Rows) -> pa.Array:
        texts = [value(text) or None for head in rows.chunk.heads for text in head.texts]
        return pa.array(texts, pa.string()).take(pa.array(rows.link_text, mask=~rows.has_link))

    return make


_MAKERS: dict[str, Callable[[_Rows], pa.Array]] = {
    "tenant": _of_place(lambda place: tenant_of(place.topic) or None, pa.string()),
    "topic": _of_place(lambda place: plain_name(place.topic), pa.string()),
    "topicId": _of_place(lambda place: place.topic_id.hex(), pa.string()),
    "partition": _of_place(lambda place: place.partition, pa.int32()),
    "firstOffset": lambda rows: pa.array(rows.first),
    "endOffset": lambda rows: pa.array(rows.end),
    "count": lambda rows: pa.array(rows.end - rows.first),
    "kind": lambda rows: rows.of_details(
        (kind_name(one.kind) for one in rows.chunk.details), pa.string()
    ),
    "time": lambda rows: _times(rows.time),
    "lastTime": lambda rows: _times(rows.last),
    "node": _number("node", -1),
    "group": _group,
    "consumer": _text("consumer"),
    "principal": _text("principal"),
    "clientId": _text("client_id"),
    "listener": _text("listener"),
    "reason": _text("reason"),
    "attempt": _number("attempt", 0),
    "replicas": _number("replicas", 0),
    "bytes": lambda rows: _optional(rows.size, rows.size != 0),
    "dueTime": _due,
    "linkTenant": _of_link(tenant_of),
    "linkTopic": _of_link(plain_name),
    "linkPartition": lambda rows: _optional(
        rows.link_partition, rows.has_link & (rows.link_partition >= 0)
    ),
    "linkOffset": lambda rows: _optional(rows.link_offset, rows.has_link & (rows.link_offset >= 0)),
    "isRecovered": lambda rows: rows.of_details(
        (one.is_recovered for one in rows.chunk.details), pa.bool_()
    ),
    "journalPartition": lambda rows: pa.array(np.full(len(rows.first), rows.chunk.partition)),
    "journalOffset": lambda rows: rows.of_records(rows.chunk.offsets, pa.int64()),
}
