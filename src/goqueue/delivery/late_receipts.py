"""Receipts of expired leases whose messages have not been delivered again since.

A consumer that took a little longer than its lease has still done the work. Where a group allows
late acks, such an ack counts, and the lease can be extended, as long as the message waits to be
delivered again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from goqueue.delivery.leases import Lease

LATE_RECEIPTS_MAX = 100_000  # the oldest are dropped; their messages are then redelivered

Message = tuple[int, int]  # partition and offset


class Late(NamedTuple):
    """A returned message, as its position in its expired lease."""

    lease: Lease
    place: int

    @property
    def receipt(self) -> str:
        return self.lease.head + self.lease.tails[self.place]

    @property
    def message(self) -> Message:
        return self.lease.partition, self.lease.offsets[self.place]


class LateReceipts:
    """The last receipt of each returned message."""

    __slots__ = ("_by_message", "_by_receipt")

    def __init__(self) -> None:
        self._by_receipt: dict[str, Late] = {}
        self._by_message: dict[Message, str] = {}

    def __len__(self) -> int:
        return len(self._by_message)

    def add(self, late: Late) -> None:
        message, receipt = late.message, late.receipt
        self.drop((message,))
        self._by_receipt[receipt] = late
        self._by_message[message] = receipt
        if len(self._by_message) > LATE_RECEIPTS_MAX:
            self.drop((next(iter(self._by_message)),))

    def find(self, receipt: str) -> Late | None:
        return self._by_receipt.get(receipt)

    def clear(self) -> None:
        """Forget all, because a rewind or purge made them meaningless."""
        self._by_receipt.clear()
        self._by_message.clear()

    def drop(self, messages: Iterable[Message]) -> None:
        """Forget messages that were delivered again, or are done."""
        for message in messages:
            receipt = self._by_message.pop(message, None)
            if receipt is not None:
                del self._by_receipt[receipt]
