"""The effects that a coordinator requests from the broker."""

from __future__ import annotations

import msgspec

from goqueue.model.names import ProducerIdentity, TopicPartition

Token = object
"""Identifies a waiting call. The coordinator only passes it back; it is never `None`."""


class Persist(msgspec.Struct, frozen=True):
    """Append this record to the coordinator's partition of the internal topic.

    Report the outcome with `persisted` or `persist_failed`. A transactional id has one write in
    flight at a time, so writes of different ids may complete in any order.
    """

    write_id: int
    key: bytes
    value: bytes | None


class WriteMarkers(msgspec.Struct, frozen=True):
    """End the transaction in these partitions, and report those that are done with `marked`.

    Retry until each has accepted its marker; one that no longer exists counts as done.
    """

    transactional_id: str
    identity: ProducerIdentity
    is_commit: bool
    partitions: tuple[TopicPartition, ...]


class Reply(msgspec.Struct, frozen=True):
    """Complete the waiting call with a result or a GoQueueError."""

    token: Token
    result: object


Effect = Persist | WriteMarkers | Reply
