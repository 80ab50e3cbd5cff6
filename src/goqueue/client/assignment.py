"""The embedded protocol of classic consumers: their subscriptions and assignments as bytes.

Brokers do not interpret these bytes. They contain a version, topics (in an assignment with their
partitions), and data of the client's assignor.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from goqueue.model.errors import MalformedRequest
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.primitives import (
    READ_ERRORS,
    Buffer,
    read_array,
    read_integers,
    read_string,
)

_VERSION: Final = Struct(">h")
_NAME_BYTES_MIN: Final = 2
_TOPIC_BYTES_MIN: Final = 6  # an empty name and no partitions


def read_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions of an assignment; empty bytes contain none."""
    if not data:
        return []
    try:
        topics, _ = read_array(data, _VERSION.size, _TOPIC_BYTES_MIN, _read_topic)
    except READ_ERRORS as error:
        raise MalformedRequest("The assignment of a group member cannot be read.") from error
    return [TopicPartition(name, index) for name, indexes in topics for index in indexes]


def read_subscription(data: bytes) -> tuple[str, ...]:
    """The topics of a member's subscription; none if the bytes have another format."""
    try:
        topics, _ = read_array(data, _VERSION.size, _NAME_BYTES_MIN, read_string)
    except READ_ERRORS:
        return ()
    return tuple(topics)


def _read_topic(data: Buffer, position: int) -> tuple[tuple[str, list[int]], int]:
    name, position = read_string(data, position)
    indexes, position = read_integers(data, position, 4, "i")
    return (name, indexes), position
