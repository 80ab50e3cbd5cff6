"""The records of `__consumer_offsets`, from which a coordinator is rebuilt.

Committed offsets follow Kafka's public layout, so that any tool that reads the topic understands
them. The id of the topic follows after the last field, which readers of that layout do not look
at. Membership has keys that no Kafka version uses, so the same tools skip it. The topic is
compacted: the last value of a key is the state, a missing value deletes it.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from goqueue.groups.binary import FieldReader, pack_string
from goqueue.groups.results import CommittedOffset, GroupType
from goqueue.model.errors import MalformedRequest, UnsupportedVersion

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 1_001
MEMBER_KEY_VERSION = 1_002
MEMBERSHIP_VALUE_VERSION = 1

_OFFSET_VALUE_VERSION = 3
_EXPIRING_OFFSET_VALUE_VERSION = 1  # the only version with an expiry time, and without leader epoch
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_HEAD = struct.Struct(">hqi")
_EXPIRING_OFFSET_HEAD = struct.Struct(">hq")
_TIMES = struct.Struct(">qq")


class OffsetKey(msgspec.Struct, frozen=True):
    group_id: str
    topic: str
    partition: int


class GroupKey(msgspec.Struct, frozen=True):
    group_id: str


class MemberKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group without its members; `epoch` is the generation of a classic group."""

    type: GroupType
    epoch: int
    target_epoch: int = 0
    protocol_type: str = ""
    protocol_name: str = ""
    leader_id: str = ""
    topics: dict[str, int] = {}  # the partition counts on which the target assignment is based
    emptied_at_ms: int = -1


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member of either kind; each kind leaves the other's fields at their defaults."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int

    protocols: tuple[tuple[str, bytes], ...] = ()  # none: a member of the consumer protocol
    assignment: bytes = b""

    topics: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    assigned: dict[str, list[int]] = {}
    revoking: dict[str, list[int]] = {}
    target: dict[str, list[int]] = {}


_Record = TypeVar("_Record")

_encoder = msgspec.msgpack.Encoder()
_group_decoder = msgspec.msgpack.Decoder(GroupRecord)
_member_decoder = msgspec.msgpack.Decoder(MemberRecord)


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_offset_key_prefix(group_id, topic) + encode_partition(partition)


def encode_offset_key_prefix(group_id: str, topic: str) -> bytes:
    """The key without the partition: the same for every partition of a commit."""
    return b"\x00\x01" + pack_string(group_id) + pack_string(topic)


encode_partition = _INT32.pack


def encode_group_key(group_id: str) -> bytes:
    return _INT16.pack(GROUP_KEY_VERSION) + pack_string(group_id)


def encode_member_key(group_id: str, member_id: str) -> bytes:
    return _INT16.pack(MEMBER_KEY_VERSION) + pack_string(group_id) + pack_string(member_id)


def decode_key(key: bytes) -> OffsetKey | GroupKey | MemberKey | None:
    """Decode a key; `None` for keys of other versions, which this broker did not write."""
    try:
        reader = FieldReader(key)
        version = reader.int16()
        if version in OFFSET_KEY_VERSIONS:
            return OffsetKey(reader.string(), reader.string(), reader.int32())
        if version == GROUP_KEY_VERSION:
            return GroupKey(reader.string())
        if version == MEMBER_KEY_VERSION:
            return MemberKey(reader.string(), reader.string())
    except MalformedRequest:
        return None
    return None


def encode_offset(committed: CommittedOffset) -> bytes:
    metadata = pack_string(committed.metadata)
    if committed.expires_at_ms >= 0:
        head = _EXPIRING_OFFSET_HEAD.pack(_EXPIRING_OFFSET_VALUE_VERSION, committed.offset)
        times = _TIMES.pack(committed.committed_at_ms, committed.expires_at_ms)
    else:
        head = _OFFSET_HEAD.pack(_OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch)
        times = _INT64.pack(committed.committed_at_ms)
    return head + metadata + times + committed.topic_id


def decode_offset(value: bytes) -> CommittedOffset | None:
    """Decode versions 0 to 3; `None` if the value is damaged.

    Raise UnsupportedVersion for a later version: taken for a deletion, it would lose the offset.
    """
    try:
        reader = FieldReader(value)
        version = reader.int16()
        if version > _OFFSET_VALUE_VERSION:
            raise UnsupportedVersion.of_record(
                "A committed offset", version=version, known=_OFFSET_VALUE_VERSION
            )
        if version < 0:
            return None
        return CommittedOffset(
            offset=reader.int64(),
            leader_epoch=reader.int32() if version >= 3 else -1,
            metadata=reader.string(),
            committed_at_ms=reader.int64(),
            expires_at_ms=reader.int64() if version == _EXPIRING_OFFSET_VALUE_VERSION else -1,
            topic_id=reader.rest(),
        )
    except MalformedRequest:
        return None


def encode_membership(record: GroupRecord | MemberRecord) -> bytes:
    return bytes((MEMBERSHIP_VALUE_VERSION,)) + _encoder.encode(record)


def decode_group(value: bytes) -> GroupRecord | None:
    return _decode(value, _group_decoder)


def decode_member(value: bytes) -> MemberRecord | None:
    return _decode(value, _member_decoder)


def _decode(value: bytes, decoder: msgspec.msgpack.Decoder[_Record]) -> _Record | None:
    if value and value[0] > MEMBERSHIP_VALUE_VERSION:
        raise UnsupportedVersion.of_record(
            "A record of a group", version=value[0], known=MEMBERSHIP_VALUE_VERSION
        )
    if not value or value[0] != MEMBERSHIP_VALUE_VERSION:
        return None
    try:
        return decoder.decode(memoryview(value)[1:])
    except msgspec.DecodeError:
        return None
