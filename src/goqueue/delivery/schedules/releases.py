"""What is written when messages are released: their ids, records and intents, and how late it was.

A schedule id is short, URL-safe, and direct: it contains where the message is stored. Sixteen
characters encode the partition, the number and a checksum. The checksum is salted with the id of
the internal topic, so that an id of another cluster or one with a typing error is not taken for
another message.

In a cluster, the node that releases messages may fail before it has recorded the release, and the
target partition may be led elsewhere. So a batch is described first, as an intent: its producer,
sequence number and contents. The next owner sends exactly the same batch again, and the leader of
the target partition recognises a duplicate. There is one intent per partition, the newest; it is
completed when its messages have ended.
"""

from __future__ import annotations

import binascii
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import repeat
from zlib import crc32

import msgspec

from goqueue.delivery.schedules.records import VERSION, check_version
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import Header, Record, varint
from goqueue.model.errors import CorruptBatch, UnknownSchedule

ID_CHARACTERS = 16
NUMBER_MAX = (1 << 48) - 1

_LAYOUT = struct.Struct(">QI")
_POSITION = struct.Struct(">Q")
_CHECK = struct.Struct(">I")
_NUMBER_BITS = 48
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")

_START = b"\x00\x00"  # no attributes, and the timestamp of the batch
_NULL = b"\x01"
_ID_NAME = varint(len(SCHEDULE_ID_HEADER)) + SCHEDULE_ID_HEADER.encode() + varint(ID_CHARACTERS)

_INTENT_PREFIX = b"lane"
_INTENT_KEY = struct.Struct(">4s16si")

# Lateness: each millisecond has its own bin up to a quarter of a second; beyond that every doubling
# has 128 bins, so that the error of a percentile is below one percent.
_EXACT_BITS = 8
_EXACT_MS = 1 << _EXACT_BITS
_STEPS_BITS = _EXACT_BITS - 1
_STEPS = 1 << _STEPS_BITS
_DOUBLINGS = 34  # half a century; anything later is counted as that

Released = tuple[bytes | None, bytes | None, tuple[Header, ...]]  # key, value and headers
TargetKey = tuple[bytes, int]  # the topic's id, and the number of its partition


class ScheduleIds:
    """Writes and reads the ids of one cluster."""

    __slots__ = ("_salt",)

    def __init__(self, topic_id: bytes) -> None:
        self._salt = crc32(topic_id)

    def write(self, partition: int, number: int) -> str:
        position = partition << _NUMBER_BITS | number
        data = _LAYOUT.pack(position, crc32(_POSITION.pack(position), self._salt))
        return binascii.b2a_base64(data, newline=False).translate(_TO_URL).decode()

    def write_many(self, positions: Iterable[tuple[int, int]]) -> bytes:
        """Return the ids of many (partition, number) pairs, concatenated."""
        salt, pack = self._salt, _POSITION.pack
        parts: list[bytes] = []
        for partition, number in positions:
            position = pack(partition << _NUMBER_BITS | number)
            parts.append(position)
            parts.append(_CHECK.pack(crc32(position, salt)))
        return binascii.b2a_base64(b"".join(parts), newline=False).translate(_TO_URL)

    def write_all(self, partition: int, numbers: Iterable[int]) -> list[str]:
        """Return the ids of many numbers of one partition."""
        text = self.write_many(zip(repeat(partition), numbers, strict=False)).decode()
        return [text[at : at + ID_CHARACTERS] for at in range(0, len(text), ID_CHARACTERS)]

    def read(self, text: str) -> tuple[int, int]:
        """Return partition and number; raise `UnknownSchedule` if `text` is not an id."""
        try:
            data = binascii.a2b_base64(text.encode().translate(_FROM_URL), strict_mode=True)
            position, check = _LAYOUT.unpack(data)
        except (ValueError, struct.error):
            raise UnknownSchedule(text) from None
        if check != crc32(_POSITION.pack(position), self._salt) or len(text) != ID_CHARACTERS:
            raise UnknownSchedule(text)
        return position >> _NUMBER_BITS, position & NUMBER_MAX


def released_records(messages: Iterable[Released], ids: bytes) -> bytes:
    """Encode released messages, each with its schedule id as its last header.

    `ids` holds the ids, concatenated.
    """
    parts: list[bytes] = []
    join = b"".join
    start = 0
    for delta, (key, value, headers) in enumerate(messages):
        stop = start + ID_CHARACTERS
        body = join(
            (
                _START,
                varint(delta),
                _NULL if key is None else varint(len(key)) + key,
                _NULL if value is None else varint(len(value)) + value,
                varint(len(headers) + 1),
                _encode_headers(headers) if headers else b"",
                _ID_NAME,
                ids[start:stop],
            )
        )
        parts.append(varint(len(body)))
        parts.append(body)
        start = stop
    return join(parts)


def _encode_headers(headers: tuple[Header, ...]) -> bytes:
    parts: list[bytes] = []
    for name, content in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts.append(_NULL if content is None else varint(len(content)) + content)
    return b"".join(parts)


# Intents


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """One batch of released messages, and its target partition."""

    topic_id: bytes
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    numbers: list[int]
    reasons: list[str] = []  # per message why it is a dead letter; empty if none is

    @property
    def target(self) -> TargetKey:
        return self.topic_id, self.partition

    def reason(self, index: int) -> str:
        return self.reasons[index] if self.reasons else ""


_encode = msgspec.msgpack.Encoder().encode
_decode_intent = msgspec.msgpack.Decoder(Intent).decode


def intent_record(intent: Intent, now_ms: int) -> Record:
    return Record(_intent_key(intent.target), VERSION + _encode(intent), (), now_ms)


def no_intent_record(target: TargetKey, now_ms: int) -> Record:
    """Return a record that withdraws the newest intent of a partition."""
    return Record(_intent_key(target), None, (), now_ms)


def read_target(key: bytes | None) -> TargetKey | None:
    """Return the partition that a record's key names; None if it is not the key of an intent."""
    if key is None or len(key) != _INTENT_KEY.size or not key.startswith(_INTENT_PREFIX):
        return None
    _, topic_id, number = _INTENT_KEY.unpack(key)
    return topic_id, number


def read_intent(value: bytes) -> Intent:
    check_version(value, "A release intent")
    try:
        return _decode_intent(value[1:])
    except msgspec.DecodeError as error:
        raise CorruptBatch(f"A release intent cannot be decoded: {error}.") from error


def _intent_key(target: TargetKey) -> bytes:
    return _INTENT_KEY.pack(_INTENT_PREFIX, *target)


# Lateness


class Lateness:
    """A histogram of release delays since the node started, of constant size."""

    __slots__ = ("_counts", "max_ms", "sum_ms", "total")

    def __init__(self) -> None:
        self.sum_ms = 0
        self._counts = [0] * (_EXACT_MS + _DOUBLINGS * _STEPS)
        self.total = 0
        self.max_ms = 0

    def note(self, latenesses_ms: Iterable[int]) -> None:
        """Count messages; one that appears early, because the clock was set back, was on time."""
        counts, max_ms = self._counts, self.max_ms
        for late_ms in latenesses_ms:
            if late_ms > max_ms:
                max_ms = late_ms
            counts[late_ms if 0 <= late_ms < _EXACT_MS else _step(late_ms)] += 1
            self.total += 1
            self.sum_ms += late_ms if late_ms > 0 else 0
        self.max_ms = max_ms

    def buckets(self, bounds_ms: Sequence[float]) -> list[int]:
        """Return the counts between these bounds, and beyond the last, as exact as the bins."""
        found = [0] * (len(bounds_ms) + 1)
        for step, count in enumerate(self._counts):
            if count:
                found[bisect_left(bounds_ms, _step_end_ms(step))] += count
        return found

    def percentile_ms(self, percent: float) -> int:
        """The lateness that `percent` of the messages did not exceed; 0 if there are none."""
        wanted = self.total * percent / 100
        seen = 0
        for step, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_step_end_ms(step), self.max_ms)
        return 0


def _step(late_ms: int) -> int:
    if late_ms < 0:
        return 0
    doubling = min(late_ms.bit_length() - _EXACT_BITS, _DOUBLINGS)
    within = min(late_ms >> doubling, _EXACT_MS - 1) - _STEPS
    return _EXACT_MS + (doubling - 1) * _STEPS + within


def _step_end_ms(step: int) -> int:
    """Return the largest lateness that is counted in a bin."""
    if step < _EXACT_MS:
        return step
    doubling, within = divmod(step - _EXACT_MS, _STEPS)
    return ((_STEPS + within + 1) << (doubling + 1)) - 1
