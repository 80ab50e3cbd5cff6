"""Release intents, written before the messages are released.

In a cluster, the node that releases messages may fail before it has recorded the release, and the
target partition may be led elsewhere. So a batch is described here first: its producer, sequence
number and contents. The next owner sends exactly the same batch again, and the leader of the target
partition recognises a duplicate. There is one intent per partition, the newest; it is completed
when its messages have ended.
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
    """One batch of released messages, and its target partition."""

    topic_id: bytes
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    numbers: list[int]
    reasons: list[str] = []  # per message why it is a dead letter; empty if none is

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
    """Return a record that withdraws the newest intent of a partition."""
    return Record(_lane_key(lane), None, (), now_ms)


def read_lane(key: bytes | None) -> LaneKey | None:
    """Return the partition that a record's key names; None if it is not the key of an intent."""
    if key is None or len(key) != _KEY.size or not key.startswith(_PREFIX):
        return None
    _, topic_id, number = _KEY.unpack(key)
    return topic_id, number


def read_intent(value: bytes) -> Intent:
    if value[:1] != _VERSION:
        raise CorruptBatch(f"A release intent has the unknown version {value[:1].hex()}.")
    try:
        return _decode(value[1:])
    except msgspec.DecodeError as error:
        raise CorruptBatch(f"A release intent cannot be decoded: {error}.") from error


def _lane_key(lane: LaneKey) -> bytes:
    return _KEY.pack(_PREFIX, *lane)
