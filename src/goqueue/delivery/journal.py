"""The delivery journal: the events that a queue wants written, and their encoding.

A record's key names the ledger (group, topic, partition), its value holds one or more events. All
numbers are variable-length, and offsets are delta-encoded, so that acknowledging a thousand
consecutive messages takes a few bytes.

    key:   version int8 · length of the group's name uint16 · the name · topic id, 16 bytes ·
           partition int32
    value: version int8 · events, each: kind int8 · its numbers
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from goqueue.delivery.grants import Extended, Granted, Shifted, Voided
from goqueue.delivery.ledger import (
    ATTEMPTS_MAX,
    Dead,
    DeadLetter,
    DeadLettered,
    DeadLetterIntent,
    Done,
    Event,
    Finish,
    Forgotten,
    Moved,
    PendingLetter,
    Prepared,
    Retried,
    Retry,
    Rewound,
    Sealed,
    Snapshot,
)
from goqueue.delivery.ranges import Range
from goqueue.delivery.settings import LEASE_MESSAGES_MAX
from goqueue.model.batch import varint
from goqueue.model.errors import CorruptDeliveryState, UnsupportedVersion

_VERSION = 1
_KEY_START = struct.Struct(">BH")
_KEY_END = struct.Struct(">16si")
_KEY_HASH = struct.Struct(">Q")
_TOPIC_ID = struct.Struct(">16s")
# A lease: flags, serial number, when it was granted, and its duration.
_GRANT_START = struct.Struct(">BQQI")

_RETRIED, _MOVED, _REWOUND, _SNAPSHOT, _FORGOTTEN, _DEAD_LETTERED, _PREPARED = (
    16,
    17,
    18,
    19,
    20,
    21,
    22,
)
_LETTER_INTENT = 23
# The same with the time of the first delivery of each retry.
_RETRIED_SINCE, _PREPARED_SINCE, _SNAPSHOT_SINCE = 24, 25, 26
# Leases, the secret of receipts, and the dead letters next to a snapshot.
_GRANTED, _EXTENDED, _VOIDED, _SHIFTED, _SEALED, _DEAD = 27, 28, 29, 30, 31, 32
_ALL_FIRST, _HAS_KEYS = 1, 2  # flags of a grant: all are first deliveries; keys are given
_FINISHES = frozenset(Finish)
_VARINT_BYTES_MAX = 10


class Outbox:
    """What the owner of a queue has to write: events for the journal, and dead letters."""

    __slots__ = ("dead_letters", "events")

    def __init__(self) -> None:
        self.events: dict[int, list[Event]] = {}  # by partition, in order
        self.dead_letters: list[DeadLetter] = []

    def take_events(self) -> list[tuple[int, list[Event]]]:
        """Return the events of each partition since the last call, in order."""
        events, self.events = self.events, {}
        return list(events.items())

    def take_dead_letters(self) -> list[DeadLetter]:
        """Return the messages that became dead letters since the last call."""
        letters, self.dead_letters = self.dead_letters, []
        return letters


class LedgerKey(NamedTuple):
    group: str
    topic_id: bytes
    partition: int


def encode_key(key: LedgerKey) -> bytes:
    name = key.group.encode()
    return _KEY_START.pack(_VERSION, len(name)) + name + _KEY_END.pack(key.topic_id, key.partition)


def decode_key(data: bytes) -> LedgerKey:
    try:
        version, length = _KEY_START.unpack_from(data)
        _check_version("A key of the delivery journal", version)
        end = _KEY_START.size + length
        topic_id, partition = _KEY_END.unpack(data[end:])
        return LedgerKey(data[_KEY_START.size : end].decode(), topic_id, partition)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptDeliveryState(f"A key of the delivery journal is damaged: {error}.") from error


def encode_events(events: Iterable[Event]) -> bytes:
    parts = [bytes((_VERSION,))]
    for event in events:
        _encode(event, parts)
    return b"".join(parts)


def _encode(event: Event, parts: list[bytes]) -> None:
    if isinstance(event, Done):
        parts.append(bytes((event.why,)))
        _encode_ranges(event.ranges, parts)
    elif isinstance(event, DeadLettered):
        parts.append(bytes((_DEAD_LETTERED,)))
        _encode_ranges(event.ranges, parts)
        parts += (_TOPIC_ID.pack(event.topic_id), varint(event.end))
    elif isinstance(event, DeadLetterIntent):
        parts += (bytes((_LETTER_INTENT,)), _TOPIC_ID.pack(event.topic_id), varint(event.partition))
        parts += (varint(event.producer_id), varint(event.sequence), varint(len(event.letters)))
        for letter in event.letters:
            reason = letter.reason.encode()
            parts += (varint(letter.offset), varint(letter.attempts), varint(len(reason)), reason)
    elif isinstance(event, Retried):
        has_first = _has_first(event.retries)
        parts.append(bytes((_RETRIED_SINCE if has_first else _RETRIED,)))
        _encode_retries(event.retries, parts, has_first=has_first)
    elif isinstance(event, Prepared):
        has_first = _has_first(event.retries)
        parts.append(bytes((_PREPARED_SINCE if has_first else _PREPARED,)))
        parts.append(varint(event.producer_id))
        _encode_retries(event.retries, parts, has_first=has_first)
    elif isinstance(event, Moved):
        parts += (bytes((_MOVED,)), varint(event.floor))
    elif isinstance(event, Rewound):
        parts += (bytes((_REWOUND,)), varint(event.offset))
        _encode_ranges(event.still_open, parts)
    elif isinstance(event, Snapshot):
        has_first = _has_first(event.retries)
        parts.append(bytes((_SNAPSHOT_SINCE if has_first else _SNAPSHOT,)))
        parts += (varint(event.part), varint(event.part_count), varint(event.floor))
        _encode_ranges(event.ranges, parts)
        _encode_retries(event.retries, parts, has_first=has_first)
        parts.append(varint(len(event.letter_ends)))
        for topic_id, end in event.letter_ends:
            parts += (_TOPIC_ID.pack(topic_id), varint(end))
    elif isinstance(event, Granted):
        _encode_granted(event, parts)
    elif isinstance(event, Extended):
        parts += (bytes((_EXTENDED,)), varint(event.serial), varint(event.until_ms))
        _encode_ranges(event.positions, parts)
    elif isinstance(event, Voided):
        parts += (bytes((_VOIDED,)), varint(event.serial))
        _encode_ranges(event.positions, parts)
    elif isinstance(event, Shifted):
        parts += (bytes((_SHIFTED,)), varint(event.shift_ms))
    elif isinstance(event, Dead):
        parts.append(bytes((_DEAD,)))
        _encode_ranges(event.ranges, parts)
    elif isinstance(event, Sealed):
        parts += (bytes((_SEALED,)), varint(len(event.secret)), event.secret)
    else:
        assert isinstance(event, Forgotten), "the end of a transaction is a marker, not a record"
        parts.append(bytes((_FORGOTTEN,)))


def _encode_granted(event: Granted, parts: list[bytes]) -> None:
    offsets, attempts, consumer = event.offsets, event.attempts, event.consumer.encode()
    is_first = attempts.count(1) == len(attempts)
    flags = _ALL_FIRST * is_first | _HAS_KEYS * (event.keys is not None)
    length_ms = max(0, event.until_ms - event.granted_ms)
    parts.append(bytes((_GRANTED,)))
    parts.append(_GRANT_START.pack(flags, event.serial, event.granted_ms, length_ms))
    parts += (varint(len(consumer)), consumer)
    if isinstance(offsets, range):
        parts += (b"\x02", varint(offsets[0]), varint(len(offsets)))  # one run, as a varint
    else:
        _encode_ranges(_in_runs(offsets), parts)
    if not is_first:
        parts += [varint(one) for one in attempts]
    if event.keys is not None:
        parts += [_KEY_HASH.pack(one) for one in event.keys]


def _in_runs(offsets: Sequence[int]) -> list[Range]:
    """Return offsets in any order as ascending contiguous runs."""
    runs: list[Range] = []
    first = end = offsets[0]
    for offset in offsets:
        if offset != end:
            runs.append((first, end))
            first = offset
        end = offset + 1
    return [*runs, (first, end)]


def _encode_ranges(ranges: list[Range], parts: list[bytes]) -> None:
    parts.append(varint(len(ranges)))
    before = 0
    for first, end in ranges:
        parts += (varint(first - before), varint(end - first))
        before = end


def _has_first(retries: list[tuple[int, Retry]]) -> bool:
    return any(retry.first_ms for _, retry in retries)


def _encode_retries(
    retries: list[tuple[int, Retry]], parts: list[bytes], *, has_first: bool
) -> None:
    parts.append(varint(len(retries)))
    before = before_ms = 0
    for offset, (attempts, due_ms, key, first_ms) in retries:
        parts += (varint(offset - before), varint(attempts), varint(due_ms - before_ms))
        parts.append(_KEY_HASH.pack(key))
        if has_first:
            parts.append(varint(first_ms))
        before, before_ms = offset, due_ms


def _check_version(what: str, version: int) -> None:
    if version > _VERSION:
        raise UnsupportedVersion.of_record(what, version=version, known=_VERSION)
    if version != _VERSION:
        raise CorruptDeliveryState(f"{what} has version {version}.")


def decode_events(data: bytes) -> list[Event]:
    """Decode the events of one record; raise `CorruptDeliveryState` if they are not valid."""
    if not data:
        raise CorruptDeliveryState("A record of the delivery journal is empty.")
    _check_version("A record of the delivery journal", data[0])
    reader = _Reader(data, 1)
    events: list[Event] = []
    while reader.position < len(data):
        events.append(_decode(reader))
    return events


def _decode(reader: _Reader) -> Event:
    kind = reader.byte()
    if kind in _FINISHES:
        return Done(Finish(kind), reader.ranges())
    if kind == _DEAD_LETTERED:
        return DeadLettered(reader.ranges(), reader.topic_id(), reader.count())
    if kind == _LETTER_INTENT:
        topic_id, partition = reader.topic_id(), reader.count()
        producer_id, sequence = reader.count(), reader.count()
        return DeadLetterIntent(
            reader.pending_letters(), topic_id, partition, producer_id, sequence
        )
    has_first = kind in (_RETRIED_SINCE, _PREPARED_SINCE, _SNAPSHOT_SINCE)
    if kind in (_RETRIED, _RETRIED_SINCE):
        return Retried(reader.retries(has_first=has_first))
    if kind in (_PREPARED, _PREPARED_SINCE):
        return Prepared(reader.count(), reader.retries(has_first=has_first))
    if kind == _MOVED:
        return Moved(reader.count())
    if kind == _REWOUND:
        return Rewound(reader.count(), reader.ranges())
    if kind in (_SNAPSHOT, _SNAPSHOT_SINCE):
        return Snapshot(
            reader.count(),
            reader.count(),
            reader.count(),
            reader.ranges(),
            reader.retries(has_first=has_first),
            reader.letter_ends(),
        )
    if kind == _FORGOTTEN:
        return Forgotten()
    return _decode_of_leases(kind, reader)


def _decode_of_leases(kind: int, reader: _Reader) -> Event:
    if kind == _GRANTED:
        return reader.granted()
    if kind == _EXTENDED:
        return Extended(reader.count(), reader.number(), reader.ranges())
    if kind == _VOIDED:
        return Voided(reader.count(), reader.ranges())
    if kind == _SHIFTED:
        return Shifted(reader.number())
    if kind == _DEAD:
        return Dead(reader.ranges())
    if kind == _SEALED:
        return Sealed(reader.raw(reader.length()))
    # Kinds are added by later releases, and none is ever removed.
    raise UnsupportedVersion(
        f"An event of the delivery journal has the kind {kind}, which this node does not know; "
        "upgrade this node."
    )


class _Reader:
    """Reads values in sequence; raises `CorruptDeliveryState` for anything invalid."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def byte(self) -> int:
        if self.position >= len(self._data):
            raise CorruptDeliveryState("An event of the delivery journal ends too early.")
        self.position += 1
        return self._data[self.position - 1]

    def number(self) -> int:
        value = 0
        for position in range(_VARINT_BYTES_MAX):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise CorruptDeliveryState("A number in the delivery journal is longer than 64 bits.")

    def count(self) -> int:
        value = self.number()
        if not 0 <= value < 1 << 63:
            raise CorruptDeliveryState(f"The delivery journal has an invalid count: {value}.")
        return value

    def length(self) -> int:
        """Read a number of entries, bounded by the bytes left, as each takes at least one byte."""
        value = self.count()
        if value > len(self._data) - self.position:
            raise CorruptDeliveryState(f"The delivery journal announces {value} entries but ends.")
        return value

    def ranges(self) -> list[Range]:
        ranges: list[Range] = []
        end = 0
        for _ in range(self.length()):
            first = end + self.number()
            end = first + self.count()
            if first < 0 or end <= first or end >= 1 << 63:
                raise CorruptDeliveryState("A range of offsets in the delivery journal is invalid.")
            ranges.append((first, end))
        return ranges

    def retries(self, *, has_first: bool) -> list[tuple[int, Retry]]:
        retries: list[tuple[int, Retry]] = []
        offset = due_ms = 0
        for _ in range(self.length()):
            offset += self.number()
            attempts = self.count()
            due_ms += self.number()
            if offset < 0 or offset >= 1 << 63:
                raise CorruptDeliveryState("A retry in the delivery journal has an invalid offset.")
            key = self._key()
            first_ms = self.count() if has_first else 0
            retries.append((offset, Retry(attempts, due_ms, key, first_ms)))
        return retries

    def granted(self) -> Granted:
        flags, serial, granted_ms, length_ms = self._unpack(_GRANT_START)
        consumer = self._text(self.length())
        runs = self.ranges()
        count = sum(end - first for first, end in runs)
        if not 0 < count <= LEASE_MESSAGES_MAX:
            raise CorruptDeliveryState(f"A lease in the delivery journal has {count} messages.")
        offsets: Sequence[int] = range(*runs[0])
        if len(runs) > 1:
            offsets = array("q", chain.from_iterable(range(*one) for one in runs))
        attempts: Sequence[int] = b"\x01" * count
        if not flags & _ALL_FIRST:
            attempts = array("H", (min(self.count(), ATTEMPTS_MAX) for _ in range(count)))
        keys = [self._key() for _ in range(count)] if flags & _HAS_KEYS else None
        until_ms = granted_ms + length_ms
        return Granted(serial, consumer, granted_ms, until_ms, offsets, attempts, keys)

    def raw(self, length: int) -> bytes:
        start, self.position = self.position, self.position + length
        return self._data[start : self.position]

    def pending_letters(self) -> list[PendingLetter]:
        return [
            PendingLetter(self.count(), self.count(), self._text(self.length()))
            for _ in range(self.length())
        ]

    def letter_ends(self) -> list[tuple[bytes, int]]:
        return [(self.topic_id(), self.count()) for _ in range(self.length())]

    def topic_id(self) -> bytes:
        (topic_id,) = self._unpack(_TOPIC_ID)
        return bytes(topic_id)

    def _text(self, length: int) -> str:
        start, self.position = self.position, self.position + length
        try:
            return self._data[start : self.position].decode()
        except UnicodeDecodeError as error:
            raise CorruptDeliveryState(f"A text in the delivery journal: {error}.") from error

    def _key(self) -> int:
        (key,) = self._unpack(_KEY_HASH)
        return int(key)

    def _unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        start, self.position = self.position, self.position + layout.size
        if self.position > len(self._data):
            raise CorruptDeliveryState("An event of the delivery journal ends too early.")
        return layout.unpack_from(self._data, start)
