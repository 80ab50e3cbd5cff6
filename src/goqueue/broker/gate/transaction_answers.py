"""The results of operations on transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from goqueue.broker.publishing.publisher import Published, PublishResult, Scheduled
from goqueue.broker.queues.queues import Outcomes
from goqueue.model.errors import GoQueueError
from goqueue.model.names import ProducerIdentity
from goqueue.model.tenants import TransactionalId, TransactionHandle
from goqueue.transactions import TransactionView

NO_TRANSACTION = -1


class Begun(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that has begun, and the id that its client uses."""

    id: TransactionHandle
    transactional_id: TransactionalId
    identity: ProducerIdentity


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """The newest transaction of a transactional id, with its own id."""

    id: TransactionHandle
    view: TransactionView


class TransactionPage(msgspec.Struct, frozen=True, array_like=True):
    """The first matching transactions, by transactional id; `total` counts all matches."""

    transactions: list[Listed]
    total: int


class ShownTransaction(msgspec.Struct, frozen=True, array_like=True):
    """The newest transaction of a transactional id, and whether it replaced the named one."""

    view: TransactionView
    is_superseded: bool


class Joined(msgspec.Struct, frozen=True, array_like=True):
    """An error for each partition that cannot take part.

    If a partition does not exist, or the client may not write to it, nothing is attempted.
    """

    outcomes: Outcomes
    is_attempted: bool = True


class ProducerView(NamedTuple):
    """A producer that writes to a partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    first_offset: int  # of its open transaction; -1 if there is none


class PublishResults:
    """The result of each message of a call."""

    __slots__ = ("results",)

    # Exactly one of the three: msgspec cannot distinguish two kinds of tuples.
    PACKED = list[tuple[Published | None, Scheduled | None, GoQueueError | None]]

    def __init__(self, results: Sequence[PublishResult]) -> None:
        self.results = results

    def pack(self) -> list[Any]:
        return [
            (
                one if isinstance(one, Published) else None,
                one if isinstance(one, Scheduled) else None,
                one if isinstance(one, GoQueueError) else None,
            )
            for one in self.results
        ]

    @classmethod
    def unpack(cls, packed: Any) -> PublishResults:
        found = [published or scheduled or error for published, scheduled, error in packed]
        return cls([one for one in found if one is not None])
