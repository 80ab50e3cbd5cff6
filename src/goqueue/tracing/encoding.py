"""The records of the journal of journeys.

A record of events has those of one partition from one flush. Its key names the partition and the
offsets that the events lie between, so that a reader skips records by their keys. Its value has the
span of the source's log that the events were derived from, a table of texts, a table of details,
and the events, each of which refers to its details and holds differences to the event before it.

A record of cursors says how far the journal has the events of some sources. The first record of a
snapshot replaces all cursors, others add to them. Records of cursors are for the owner of the
journal partition; `is_events` tells them apart by their keys.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from goqueue.model.batch import varint
from goqueue.model.errors import CorruptJourney, UnsupportedVersion
from goqueue.tracing.events import Cursor, Details, Event, Kind, Link, Place, Source, Span

_VERSION = 1
_MAGIC = 0x4A  # "J", the first byte of each value
_EVENTS, _CURSORS = 1, 2  # types of records
_KEY = struct.Struct(">BB16sIQQ")  # version, type, topic id, partition, offsets
_CURSOR_KEY = bytes((_VERSION, _CURSORS))
_TYPES = (bytes((_EVENTS,)), bytes((_CURSORS,)))
_TOPIC_ID_BYTES = 16
_PARTITION_MAX = (1 << 31) - 1

# Flags of the value of a record of events.
_IS_OWN, _IS_RESET = 1, 2  # the source is the partition of the key; the span is a reset
# Flags of an event: which fields it has.
HAS_LAST, HAS_SIZE, HAS_DUE, HAS_LINK = 1, 2, 4, 8
FLAG_BITS = 4
_IS_SNAPSHOT = 1  # flag of the value of a record of cursors
_VARINT_BYTES_MAX = 10
_TABLES_MAX = 256  # that are remembered
_LIMIT = 1 << 62  # of offsets and times
_KINDS: dict[int, Kind] = {int(kind): kind for kind in Kind}


class Head(NamedTuple):
    """What the value of a record of events has before its events."""

    span: Span
    texts: Sequence[str]
    details: Sequence[Details]
    length: int  # number of events
    position: int  # where they begin


class JourneyKey(NamedTuple):
    """What the events of a record are about, and between which offsets they lie."""

    place: Place
    first: int
    end: int


# Keys


def is_events(key: bytes | None) -> bool:
    """Whether a record with this key has events."""
    return key is not None and key[:2] == bytes((_VERSION, _EVENTS))


def is_cursors(key: bytes | None) -> bool:
    """Whether a record with this key has cursors."""
    return key == _CURSOR_KEY


def check_known(key: bytes) -> None:
    """Raise if a key is one that only a later release has: its record must not be skipped."""
    if key[:1] > _CURSOR_KEY[:1] or (key[:1] == _CURSOR_KEY[:1] and key[1:2] not in _TYPES):
        raise UnsupportedVersion(
            f"A key of the journal of journeys begins with {key[:2]!r}, which this node does not "
            "know; upgrade this node."
        )


def decode_key(key: bytes) -> JourneyKey:
    """Decode the key of a record of events; raise `CorruptJourney` if it is not valid."""
    try:
        version, kind, topic_id, partition, first, end = _KEY.unpack_from(key)
        topic = key[_KEY.size :].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptJourney(f"A key of the journal of journeys is damaged: {error}.") from error
    if (version, kind) != (_VERSION, _EVENTS):
        raise CorruptJourney(f"A key of the journal of journeys begins with {key[:2]!r}.")
    if partition > _PARTITION_MAX or not first < end <= _LIMIT:
        raise CorruptJourney("A key of the journal of journeys has an invalid range.")
    return JourneyKey(Place(topic, topic_id, partition), first, end)


# Events


def encode_events(place: Place, span: Span, events: Sequence[Event]) -> tuple[bytes, bytes]:
    """Encode events about one partition as the key and the value of a record."""
    first, end = min([one.first for one in events]), max([one.end for one in events])
    key = _KEY.pack(_VERSION, _EVENTS, place.topic_id, place.partition, first, end)
    tables = _tables(
        tuple(dict.fromkeys([one.details for one in events])),
        tuple(dict.fromkeys([one.link.topic for one in events if one.link is not None])),
    )
    body = _encode_each(events, tables)
    parts = (_encode_span(place, span), tables.encoded, varint(len(events)), *body)
    return key + place.topic.encode(), b"".join(parts)


def decode_span(place: Place, value: bytes) -> Span:
    """Return only the span of the source's log that a record's events were derived from."""
    return _Reader(value).span(place)


def decode_head(place: Place, value: bytes) -> Head:
    """Decode what precedes the events, for those who decode the events of many records at once.

    An event is a sequence of varints: the number of its details and flags, its first offset as a
    difference to the end of the event before it, its length, its time as a difference to that of
    the event before it, and what the flags announce, in their order. A link is a text, a partition
    and an offset.
    """
    return _Reader(value).events_head(place)


def decode_events(place: Place, value: bytes) -> tuple[Span, list[Event]]:
    """Decode the value of a record of events; raise `CorruptJourney` if it is not valid.

    `place` is that of the record's key.
    """
    reader = _Reader(value)
    head = reader.events_head(place)
    events: list[Event] = []
    end = time_ms = 0
    for _ in range(head.length):
        event = reader.event(head.details, head.texts, end, time_ms)
        end, time_ms = event.end, event.time_ms
        events.append(event)
    reader.expect_end()
    return head.span, events


# Cursors


def encode_cursors(cursors: Iterable[Cursor], *, is_snapshot: bool) -> tuple[bytes, bytes]:
    """Encode cursors as the key and the value of a record, which may begin a snapshot."""
    entries = [
        b"".join((one.source.topic_id, *map(varint, (one.source.partition, *one[1:]))))
        for one in cursors
    ]
    head = bytes((_MAGIC, _VERSION, is_snapshot))
    return _CURSOR_KEY, b"".join((head, varint(len(entries)), *entries))


def decode_cursors(value: bytes) -> tuple[bool, list[Cursor]]:
    """Return whether a record begins a snapshot, and its cursors; raise `CorruptJourney`.

    Raise `UnsupportedVersion` for a record of a later release, as all that decode values do.
    """
    reader = _Reader(value)
    is_snapshot = reader.head(_IS_SNAPSHOT)
    cursors = [reader.cursor() for _ in range(reader.length())]
    reader.expect_end()
    return bool(is_snapshot), cursors


class _Tables(NamedTuple):
    """The tables of texts and of details of a record; text 0 is the empty one, not in the table."""

    texts: dict[str, int]
    rows: dict[Details, int]
    encoded: bytes


@lru_cache(maxsize=_TABLES_MAX)
def _tables(rows: tuple[Details, ...], topics: tuple[str, ...]) -> _Tables:
    """Number details, and the topics of links. Most flushes of a partition have the same ones."""
    texts = {"": 0}
    for text in (*chain.from_iterable(_texts_of(one) for one in rows), *topics):
        texts.setdefault(text, len(texts))
    encoded = [text.encode() for text in texts][1:]
    parts = [varint(len(encoded))]
    for one in encoded:
        parts += (varint(len(one)), one)
    parts.append(varint(len(rows)))
    parts += [_encode_details(details, texts) for details in rows]
    return _Tables(texts, {one: row for row, one in enumerate(rows)}, b"".join(parts))


def _texts_of(details: Details) -> tuple[str, ...]:
    who = (details.group, details.consumer, details.principal, details.client_id)
    return (*who, details.listener, details.reason)


def _encode_span(place: Place, span: Span) -> bytes:
    is_own = span.source == (place.topic_id, place.partition)
    parts = [bytes((_MAGIC, _VERSION, is_own * _IS_OWN | span.is_reset * _IS_RESET))]
    if not is_own:
        parts += (span.source.topic_id, varint(span.source.partition))
    parts += (varint(span.epoch), varint(span.first), varint(span.end - span.first))
    return b"".join(parts)


def _encode_details(details: Details, texts: Mapping[str, int]) -> bytes:
    numbers = (details.node, *[texts[one] for one in _texts_of(details)])
    numbers += (details.attempt, details.replicas)
    return bytes((details.kind, details.is_recovered)) + b"".join(map(varint, numbers))


def _encode_each(events: Sequence[Event], tables: _Tables) -> list[bytes]:
    rows, texts = tables.rows, tables.texts
    parts: list[bytes] = []
    before = before_ms = 0
    for details, first, end, time_ms, last_ms, size, due_ms, link in events:
        row = rows[details]
        flags = (
            HAS_LAST * (last_ms != time_ms)
            | HAS_SIZE * (size != 0)
            | HAS_DUE * (due_ms != 0)
            | HAS_LINK * (link is not None)
        )
        parts += (varint(row << FLAG_BITS | flags), varint(first - before), varint(end - first))
        parts.append(varint(time_ms - before_ms))
        if last_ms != time_ms:
            parts.append(varint(last_ms - time_ms))
        if size:
            parts.append(varint(size))
        if due_ms:
            parts.append(varint(due_ms - time_ms))
        if link is not None:
            parts += (varint(texts[link.topic]), varint(link.partition), varint(link.offset))
        before, before_ms = end, time_ms
    return parts


class _Reader:
    """Reads values in sequence; raises `CorruptJourney` for anything invalid."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def expect_end(self) -> None:
        if self._position != len(self._data):
            raise CorruptJourney("A record of journeys has bytes after its end.")

    def head(self, known: int) -> int:
        """Read the start of a value; return its flags, which may be those in `known`."""
        magic, version = self.raw(2)
        if magic == _MAGIC and version > _VERSION:
            what = "A record of journeys"
            raise UnsupportedVersion.of_record(what, version=version, known=_VERSION)
        if (magic, version) != (_MAGIC, _VERSION):
            raise CorruptJourney(f"A record of journeys begins with {self._data[:2]!r}.")
        flags = self.byte()
        if flags & ~known:
            raise CorruptJourney(f"A record of journeys has the unknown flags {flags}.")
        return flags

    def raw(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise CorruptJourney("A record of journeys ends too early.")
        start, self._position = self._position, end
        return self._data[start:end]

    def byte(self) -> int:
        return self.raw(1)[0]

    def number(self) -> int:
        position = self._position
        if position < len(self._data) and (byte := self._data[position]) < 0x80:
            self._position = position + 1  # Most numbers take one byte.
            return (byte >> 1) ^ -(byte & 1)
        value = 0
        for position in range(_VARINT_BYTES_MAX):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                break
        if byte >= 0x80 or value >> 64:
            raise CorruptJourney("A number in a record of journeys is longer than 64 bits.")
        return (value >> 1) ^ -(value & 1)

    def count(self) -> int:
        return _checked(self.number(), 0)

    def length(self) -> int:
        """Read a number of entries, bounded by the bytes left, as each takes at least one byte."""
        value = self.count()
        if value > len(self._data) - self._position:
            raise CorruptJourney(f"A record of journeys announces {value} entries but ends.")
        return value

    def text(self) -> str:
        try:
            return self.raw(self.length()).decode()
        except UnicodeDecodeError as error:
            raise CorruptJourney(f"A text in a record of journeys: {error}.") from error

    def source(self) -> Source:
        return Source(self.raw(_TOPIC_ID_BYTES), _checked(self.number(), 0, _PARTITION_MAX))

    def cursor(self) -> Cursor:
        return Cursor(self.source(), self.epoch(), self.offset())

    def epoch(self) -> int:
        return _checked(self.number(), -1, _PARTITION_MAX)

    def offset(self) -> int:
        return _checked(self.number(), 0)

    def span(self, place: Place) -> Span:
        flags = self.head(_IS_OWN | _IS_RESET)
        is_own = flags & _IS_OWN
        source = Source(place.topic_id, place.partition) if is_own else self.source()
        epoch, first = self.epoch(), self.offset()
        end = _checked(first + self.count(), first)
        return Span(source, epoch, first, end, bool(flags & _IS_RESET))

    def details(self, texts: Sequence[str]) -> Details:
        kind, is_recovered = _KINDS.get(self.byte()), self.byte()
        if kind is None or is_recovered > 1:
            raise CorruptJourney("An event of a journey has an unknown kind or flag.")
        node = _checked(self.number(), -1)
        entry = self._entry
        who = entry(texts), entry(texts), entry(texts), entry(texts)
        listener, reason = entry(texts), entry(texts)
        attempt, replicas = self.count(), self.count()
        return Details(kind, node, *who, listener, reason, attempt, replicas, bool(is_recovered))

    def events_head(self, place: Place) -> Head:
        span = self.span(place)
        texts = ["", *(self.text() for _ in range(self.length()))]
        details = [self.details(texts) for _ in range(self.length())]
        count = self.length()
        return Head(span, texts, details, count, self._position)

    def event(
        self, details: Sequence[Details], texts: Sequence[str], before: int, before_ms: int
    ) -> Event:
        """Read an event; `before` is the end of the one before it, and `before_ms` its time."""
        head = self.count()
        flags, row = head & (1 << FLAG_BITS) - 1, head >> FLAG_BITS
        if row >= len(details):
            raise CorruptJourney(f"An event of a journey refers to missing details {row}.")
        first = _checked(before + self.number(), 0)
        end = _checked(first + self.number(), first + 1)
        time_ms = _checked(before_ms + self.number())
        last_ms = _checked(time_ms + self.number()) if flags & HAS_LAST else time_ms
        size = self.count() if flags & HAS_SIZE else 0
        due_ms = _checked(time_ms + self.number()) if flags & HAS_DUE else 0
        link = self._link(texts) if flags & HAS_LINK else None
        return Event(details[row], first, end, time_ms, last_ms, size, due_ms, link)

    def _link(self, texts: Sequence[str]) -> Link:
        topic = self._entry(texts)
        partition = _checked(self.number(), -1, _PARTITION_MAX)
        return Link(topic, partition, _checked(self.number(), -1))

    def _entry(self, texts: Sequence[str]) -> str:
        number = self.count()
        if number >= len(texts):
            raise CorruptJourney(f"A record of journeys refers to the missing text {number}.")
        return texts[number]


def _checked(value: int, low: int = -_LIMIT, high: int = _LIMIT - 1) -> int:
    if not low <= value <= high:
        raise CorruptJourney(f"A record of journeys has the invalid number {value}.")
    return value
