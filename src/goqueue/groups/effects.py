"""The effects that a coordinator requests from the broker."""

from __future__ import annotations

import msgspec

from goqueue.model.names import ProducerIdentity

Token = object
"""Identifies a waiting call. The coordinator only passes it back; it is never `None`."""

KeyedRecord = tuple[bytes, bytes | None]


class Persist(msgspec.Struct, frozen=True):
    """Append these records, as one batch, to the coordinator's partition of the internal topic.

    Report the outcome with `persisted` or `persist_failed`. A group has one write in flight at a
    time, so writes of different groups may complete in any order.

    With an identity the batch is part of that producer's open transaction. It must be appended at
    once, before the transaction can end, and its outcome must be reported in log order.
    """

    write_id: int
    group_id: str
    records: list[KeyedRecord]
    identity: ProducerIdentity | None = None


class Reply(msgspec.Struct, frozen=True):
    """Complete the waiting call with a result or a GoQueueError."""

    token: Token
    result: object


class Progress(msgspec.Struct, frozen=True):
    """A group has committed an offset, `end`, that is after the one before, `first`."""

    group_id: str
    topic: str
    partition: int
    first: int
    end: int
    member_id: str  # who has last committed one; empty if that is not known
    topic_id: bytes = b""  # empty if it is not known


Effect = Persist | Reply | Progress
