"""Which messages are out with a consumer, and until when.

There is one lease per receive call and partition, however many messages it covers, and one entry
in the heap of expiries. A message that is extended by itself gets a time of its own inside its
lease, so that the receipt it was handed out with stays good.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from goqueue.delivery.receipts import Receipt
from goqueue.model.errors import StaleReceipt


@dataclass(slots=True, eq=False)
class Lease:
    id: int
    nonce: int
    consumer: str
    partition: int
    offsets: array[int]
    attempts: array[int]
    lanes: bytes
    until_ms: int
    out: bytearray  # 1 while the message is with the consumer
    out_count: int
    wake_ms: int  # when the heap of expiries looks at this lease
    untils: array[int] | None = None  # where messages have times of their own

    def until_of(self, index: int) -> int:
        return self.until_ms if self.untils is None else self.untils[index]

    def outstanding(self) -> Iterator[int]:
        """The indexes of the messages that are still out."""
        at = self.out.find(1)
        while at >= 0:
            yield at
            at = self.out.find(1, at + 1)


@dataclass(slots=True)
class Unacked:
    """How many messages are out, in all and with each consumer; shared by a group's queues."""

    total: int = 0
    by_consumer: dict[str, int] = field(default_factory=dict)

    def add(self, consumer: str, count: int) -> None:
        self.total += count
        left = self.by_consumer.get(consumer, 0) + count
        if left:
            self.by_consumer[consumer] = left
        else:
            self.by_consumer.pop(consumer, None)

    def of(self, consumer: str) -> int:
        return self.by_consumer.get(consumer, 0)


class Leases:
    """The live leases of one queue."""

    __slots__ = ("_expiries", "_last_id", "_live", "_unacked", "count")

    def __init__(self, unacked: Unacked) -> None:
        self.count = 0  # messages that are out
        self._unacked = unacked
        self._live: dict[int, Lease] = {}
        self._expiries: list[tuple[int, int]] = []
        self._last_id = 0

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._live.values()))

    def grant(
        self,
        consumer: str,
        partition: int,
        offsets: Sequence[int],
        attempts: Sequence[int],
        lanes: bytes,
        *,
        until_ms: int,
        nonce: int,
    ) -> Lease:
        self._last_id += 1
        count = len(offsets)
        lease = Lease(
            self._last_id,
            nonce,
            consumer,
            partition,
            array("q", offsets),
            array("H", attempts),
            lanes,
            until_ms,
            bytearray(b"\x01") * count,
            count,
            until_ms,
        )
        self._live[lease.id] = lease
        heapq.heappush(self._expiries, (until_ms, lease.id))
        self.count += count
        self._unacked.add(consumer, count)
        return lease

    def find(self, receipt: Receipt, now_ms: int) -> tuple[Lease, int]:
        """The lease that a receipt speaks of; raise when it holds no longer, or never did."""
        lease = self._live.get(receipt.lease)
        index = receipt.place
        if (
            lease is None
            or lease.nonce != receipt.nonce
            or lease.partition != receipt.partition
            or index >= len(lease.offsets)
            or lease.offsets[index] != receipt.offset
            or not lease.out[index]
            or lease.until_of(index) <= now_ms
        ):
            raise StaleReceipt()
        return lease, index

    def give_back(self, lease: Lease, index: int) -> None:
        """The message is no longer with its consumer."""
        lease.out[index] = 0
        self.settle(lease, 1)

    def settle(self, lease: Lease, count: int) -> None:
        """So many messages of the lease have been marked as no longer out."""
        lease.out_count -= count
        self.count -= count
        self._unacked.add(lease.consumer, -count)
        if not lease.out_count:
            del self._live[lease.id]

    def extend(self, lease: Lease, indexes: Iterable[int], until_ms: int) -> None:
        """Let the consumer keep these messages until another time, sooner or later."""
        chosen = set(indexes)
        if len(chosen) == lease.out_count:
            lease.until_ms, lease.untils = until_ms, None
        else:
            if lease.untils is None:
                lease.untils = array("q", (lease.until_ms,)) * len(lease.offsets)
            for index in chosen:
                lease.untils[index] = until_ms
        # An entry that comes early finds nothing and looks further; only a sooner one is needed.
        if until_ms < lease.wake_ms:
            self._wake_at(lease, until_ms)

    def next_expiry_ms(self) -> int | None:
        """When the next message may come back; never later than it does."""
        expiries = self._expiries
        while expiries:
            wake_ms, lease_id = expiries[0]
            lease = self._live.get(lease_id)
            if lease is not None and lease.wake_ms == wake_ms:
                return wake_ms
            heapq.heappop(expiries)
        return None

    def expired(self, now_ms: int) -> list[tuple[Lease, list[int]]]:
        """The messages whose time is over, by lease. They are still to be given back."""
        expiries = self._expiries
        overdue: list[tuple[Lease, list[int]]] = []
        early: list[tuple[Lease, int]] = []
        while expiries and expiries[0][0] <= now_ms:
            wake_ms, lease_id = heapq.heappop(expiries)
            lease = self._live.get(lease_id)
            if lease is None or lease.wake_ms != wake_ms:
                continue
            due = [one for one in lease.outstanding() if lease.until_of(one) <= now_ms]
            if due:
                overdue.append((lease, due))
            if len(due) < lease.out_count:
                untils = [lease.until_of(one) for one in lease.outstanding()]
                early.append((lease, min(until for until in untils if until > now_ms)))
        for lease, until_ms in early:
            self._wake_at(lease, until_ms)
        return overdue

    def _wake_at(self, lease: Lease, wake_ms: int) -> None:
        lease.wake_ms = wake_ms
        heapq.heappush(self._expiries, (wake_ms, lease.id))
