"""The records of scheduled messages in the internal topic.

A waiting message is one record whose key is its number: the offset of that record, eight bytes. A
tombstone with the same key ends it. A changed due time is a small record of its own, under the
number followed by `r`, so that moving a message does not rewrite it. Compaction therefore keeps
exactly the waiting messages and their newest due times.
"""

from __future__ import annotations

import struct

import msgspec

from goqueue.model.batch import Header, Record
from goqueue.model.errors import CorruptBatch

PARTITION_OPEN = -1  # the partition is chosen when the message is released
VERSION = b"\x01"
MOVE_SUFFIX = b"r"
RELEASED_HEADER = "released"

_NUMBER = struct.Struct(">q")
_MOVE = struct.Struct(">cq")
_RELEASED: tuple[Header, ...] = ((RELEASED_HEADER, b""),)


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """The batch of an idempotent producer that a message came in, to recognise retries."""

    producer_id: int
    epoch: int
    base_sequence: int
    last_sequence: int = -1  # unknown if an earlier version has written it


class ScheduledMessage(msgspec.Struct, frozen=True, array_like=True):
    """A waiting message, with everything needed to release it."""

    due_ms: int
    topic_id: bytes
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = -1
    origin: Origin | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ScheduledMessage).decode


def number_key(number: int) -> bytes:
    return _NUMBER.pack(number)


def message_record(number: int, message: ScheduledMessage, now_ms: int) -> Record:
    return Record(_NUMBER.pack(number), VERSION + _encode(message), (), now_ms)


def move_record(number: int, due_ms: int, now_ms: int) -> Record:
    return Record(_NUMBER.pack(number) + MOVE_SUFFIX, _MOVE.pack(VERSION, due_ms), (), now_ms)


def end_record(number: int, now_ms: int, *, is_released: bool) -> Record:
    """Return the tombstone of a message, which was released or cancelled."""
    return Record(_NUMBER.pack(number), None, _RELEASED if is_released else (), now_ms)


def end_move_record(number: int, now_ms: int) -> Record:
    """Return the tombstone of the changed due time of a message that has ended."""
    return Record(_NUMBER.pack(number) + MOVE_SUFFIX, None, (), now_ms)


def read_key(key: bytes | None) -> tuple[int, bool] | None:
    """Return the number in a record's key and whether it is a due time change, or None."""
    if key is None or not _NUMBER.size <= len(key) <= _NUMBER.size + 1:
        return None
    is_move = len(key) > _NUMBER.size
    if is_move and not key.endswith(MOVE_SUFFIX):
        return None
    return _NUMBER.unpack_from(key)[0], is_move


def read_message(value: bytes) -> ScheduledMessage:
    if value[:1] != VERSION:
        raise CorruptBatch(f"A scheduled message has the unknown version {value[:1].hex()}.")
    try:
        return _decode(value[1:])
    except msgspec.DecodeError as error:
        raise CorruptBatch(f"A scheduled message cannot be decoded: {error}.") from error


def read_move(value: bytes) -> int:
    """Return the new due time in a record."""
    if len(value) != _MOVE.size or value[:1] != VERSION:
        raise CorruptBatch("The new due time of a scheduled message cannot be decoded.")
    due_ms: int = _MOVE.unpack(value)[1]
    return due_ms


def is_release(record: Record) -> bool:
    """Whether a tombstone ends a message because it was released."""
    return record.headers == _RELEASED
