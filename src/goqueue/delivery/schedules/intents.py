"""What is about to be released, written down before it is.

In a cluster the node that releases messages may be gone before it can say that it has, and the
topic they went to may be led elsewhere. So a batch is named here first: who writes it, with which
sequence number, and what is in it. Whoever takes over sends the very same batch once more, and the
leader of the topic knows whether it has it. For each partition of a topic there is one intent, the
newest; it is over when its messages are.
"""

from __future__ import annotations

import struct

import msgspec

from goqueue.model.batch import Record
from goqueue.model.errors import CorruptBatch

LaneKey = tuple[bytes, int]  # the topic's id, and the number of its partition

_PREFIX = b"lane"
_VERSION = b"\x01"
_KEY = struct.Struct(">4s16si")


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """One batch of released messages, and where it goes."""

    topic_id: bytes
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    numbers: list[int]
    reasons: list[str] = []  # for each why it is a dead letter; left out if none is one

    @property
    def lane(self) -> LaneKey:
        return self.topic_id, self.partition

    def reason(self, index: int) -> str:
        return self.reasons[index] if self.reasons else ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Intent).decode


def intent_record(intent: Intent, now_ms: int) -> Record:
    return Record(_lane_key(intent.lane), _VERSION + _encode(intent), (), now_ms)


def no_intent_record(lane: LaneKey, now_ms: int) -> Record:
    """Says that the newest intent for a partition is not to be carried out."""
    return Record(_lane_key(lane), None, (), now_ms)


def read_lane(key: bytes | None) -> LaneKey | None:
    """The partition of which a record's key speaks; None if it is no key of an intent."""
    if key is None or len(key) != _KEY.size or not key.startswith(_PREFIX):
        return None
    _, topic_id, number = _KEY.unpack(key)
    return topic_id, number


def read_intent(value: bytes) -> Intent:
    if value[:1] != _VERSION:
        raise CorruptBatch(f"An intended release has the unknown version {value[:1].hex()}.")
    try:
        return _decode(value[1:])
    except msgspec.DecodeError as error:
        raise CorruptBatch(f"An intended release cannot be decoded: {error}.") from error


def _lane_key(lane: LaneKey) -> bytes:
    return _KEY.pack(_PREFIX, *lane)
