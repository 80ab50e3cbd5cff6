"""What a coordinator asks of the broker."""

from __future__ import annotations

import msgspec

from goqueue.model.names import ProducerIdentity

Token = object
"""Names a waiting call. The coordinator only hands it back; it is never `None`."""

KeyedRecord = tuple[bytes, bytes | None]


class Persist(msgspec.Struct, frozen=True):
    """Append these records, as one batch, to the coordinator's partition of the internal topic.

    Report the outcome with `persisted` or `persist_failed`. A group has one write under way at a
    time, so writes of different groups may be settled in any order.

    With an identity the batch is part of that producer's open transaction. It must be appended at
    once, before the transaction can end, and its outcome be reported in the order of the log.
    """

    write_id: int
    group_id: str
    records: list[KeyedRecord]
    identity: ProducerIdentity | None = None


class Reply(msgspec.Struct, frozen=True):
    """Answer the waiting call: a result, or a GoQueueError."""

    token: Token
    result: object


Effect = Persist | Reply
