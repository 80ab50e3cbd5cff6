"""The bytes that classic consumers exchange through the group: subscriptions and assignments.

A classic group passes these bytes through uninterpreted. They are decoded where the server must
understand a classic member: to detect a changed subscription, to count moves, and to assign for it
in a group it shares with members of the consumer protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import msgspec

from goqueue.groups.assignment.partitions import NO_PARTITIONS, Partition, Partitions, nest
from goqueue.groups.binary import FieldReader, pack_bytes, pack_string
from goqueue.model.errors import MalformedRequest
from goqueue.model.tenants import name_beside, prefix_of

PROTOCOL_TYPE = "consumer"
ASSIGNMENT_VERSION = 0  # the oldest layout, which every client supports


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    topics: tuple[str, ...]
    owned: Partitions = NO_PARTITIONS
    generation: int = -1
    rack_id: str | None = None


def decode_subscription(data: bytes, *, group_id: str = "") -> Subscription:
    """Decode a subscription of version 0 to 3; later versions only append fields.

    Clients write topics as they see them, and the result has them as topics of the group's tenant.
    """
    reader = FieldReader(data)
    version = reader.int16()
    if version < 0:
        raise MalformedRequest(f"Subscription version {version} is not valid.")
    names = [reader.string() for _ in range(reader.count(2))]
    reader.optional_bytes()  # private data of the client's assignor
    return Subscription(
        topics=tuple(
            one for one in (name_beside(group_id, name) for name in names) if one is not None
        ),
        owned=_read_partitions(reader, group_id) if version >= 1 else NO_PARTITIONS,
        generation=reader.int32() if version >= 2 else -1,
        rack_id=reader.optional_string() if version >= 3 else None,
    )


def encode_subscription(
    topics: Sequence[str], *, owned: Partitions = NO_PARTITIONS, version: int = 1
) -> bytes:
    parts = [struct.pack(">hi", version, len(topics)), *map(pack_string, topics), pack_bytes(b"")]
    if version >= 1:
        parts.append(_pack_partitions(nest(owned)))
    if version >= 2:
        parts.append(struct.pack(">i", -1))
    if version >= 3:
        parts.append(struct.pack(">h", -1))
    return b"".join(parts)


def decode_assignment(data: bytes, *, group_id: str = "") -> Partitions:
    """Decode an assignment; empty bytes are an empty one, as a leader may leave a member out."""
    if not data:
        return NO_PARTITIONS
    reader = FieldReader(data)
    reader.int16()
    return _read_partitions(reader, group_id)


def encode_assignment(partitions: Partitions, *, group_id: str = "") -> bytes:
    """Encode an assignment, with topics as the clients of the group's tenant see them."""
    version = struct.pack(">h", ASSIGNMENT_VERSION)
    prefix = prefix_of(group_id)
    plain = {topic.removeprefix(prefix): numbers for topic, numbers in nest(partitions).items()}
    return version + _pack_partitions(plain) + pack_bytes(b"")


def _read_partitions(reader: FieldReader, group_id: str) -> Partitions:
    partitions: set[Partition] = set()
    for _ in range(reader.count(6)):
        topic = name_beside(group_id, reader.string())
        numbers = [reader.int32() for _ in range(reader.count(4))]
        if topic is not None:
            partitions.update((topic, number) for number in numbers)
    return frozenset(partitions)


def _pack_partitions(nested: Mapping[str, Sequence[int]]) -> bytes:
    parts = [struct.pack(">i", len(nested))]
    for topic, partitions in nested.items():
        parts.append(pack_string(topic))
        parts.append(struct.pack(f">i{len(partitions)}i", len(partitions), *partitions))
    return b"".join(parts)
