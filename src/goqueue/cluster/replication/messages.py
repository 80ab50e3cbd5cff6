"""What a follower and its leader say to each other about one partition.

The bytes of batches travel beside these messages, not inside. So do the follower's node and
incarnation, which are the same for all partitions of a connection.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from goqueue.model.errors import MalformedRequest

VERSION = 1
_OFFSET_MAX = (1 << 63) - 1
_EPOCH_MAX = (1 << 31) - 1


class FetchStatus(IntEnum):
    """Why an answer has batches or has none."""

    OK = 0
    DIVERGING = 1  # The follower has what the leader has not; `diverging_*` say up to where.
    BELOW_START = 2  # The leader's log begins later than the follower's ends.
    FENCED_EPOCH = 3  # The follower believes in an earlier leader.
    UNKNOWN_EPOCH = 4  # The follower knows of a later leader.
    NOT_LEADER = 5
    UNKNOWN_REPLICA = 6  # Not a replica, or in another incarnation than the leader knows of.
    DAMAGED = 7  # The leader cannot read its own log there.


class ReplicaFetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch", kw_only=True):
    """A follower asks for what comes after the end of its log, and says how far it has come."""

    topic_id: bytes
    partition: int
    request: int  # the answer repeats it
    leader_epoch: int
    last_epoch: int  # of the last batch before `offset`; -1 when there is none
    offset: int
    durable_offset: int
    start_offset: int
    bytes_max: int


class ReplicaFetched(msgspec.Struct, frozen=True, array_like=True, tag="fetched", kw_only=True):
    """The leader's answer. `request`, `last_epoch` and `offset` are those of the question."""

    topic_id: bytes
    partition: int
    request: int
    leader_epoch: int
    last_epoch: int
    offset: int
    status: FetchStatus
    high_watermark: int
    start_offset: int
    diverging_epoch: int = -1
    diverging_end: int = -1
    restart_offset: int = (
        -1
    )  # where a follower that shares nothing begins: the leader's first batch
    batches_bytes: int = 0


class ReplicaReport(msgspec.Struct, frozen=True, array_like=True, tag="report", kw_only=True):
    """A follower has made durable what it was sent; said when its next question is already out."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    durable_offset: int


Message = ReplicaFetch | ReplicaFetched | ReplicaReport

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    return bytes((VERSION,)) + _encoder.encode(message)


def decode_message(data: bytes) -> Message:
    """The message in `data`; whatever is not one raises `MalformedRequest`."""
    if data[:1] != bytes((VERSION,)):
        raise MalformedRequest("A message between replicas is of a version that is not known here.")
    try:
        message = _decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"A message between replicas cannot be read: {error}") from error
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, int) and not -1 <= value <= _OFFSET_MAX:
            raise MalformedRequest(f"{name} of a message between replicas is {value}.")
    if message.leader_epoch > _EPOCH_MAX:
        raise MalformedRequest(f"No leader has the epoch {message.leader_epoch}.")
    return message
