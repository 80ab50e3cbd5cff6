"""Leases: which messages are in flight, with which consumer, and until when.

There is one lease per receive call and partition, whatever its number of messages, with one entry
in the expiry heap. A message that is extended individually gets its own expiry time inside its
lease, so that its receipt stays valid.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.delivery.fairness import Tenant
from goqueue.delivery.grants import Grant, Granted, LeaseEvent, lease_events
from goqueue.delivery.receipts import HEAD_LENGTH, SERIAL_MAX, TAIL_BYTES, Receipts, place_in


class Delivery(NamedTuple):
    """A message delivered to a consumer."""

    partition: int
    offset: int
    lane: int
    attempt: int
    receipt: str
    until_ms: int
    first_ms: int  # when the message was first delivered, as far as recorded


@dataclass(slots=True, eq=False)
class Lease:
    id: int  # serial number, unique among the queue's leases on all nodes
    head: str  # common prefix of its receipts
    tails: Sequence[str]  # suffix of each receipt
    consumer: str
    partition: int
    offsets: Sequence[int]
    attempts: Sequence[int]
    lanes: bytes
    until_ms: int
    out: bytearray  # 1 while the message is with the consumer
    out_count: int
    wake_ms: int  # when the expiry heap examines this lease
    granted_ms: int
    firsts_ms: Sequence[int] | None  # first delivery times, if any message was delivered before
    untils: array[int] | None = None  # expiry per message, if they differ
    tenants: list[Tenant | None] | None = None  # with fair shares between tenants

    def delivery(self, index: int) -> Delivery:
        """Return one of its messages as the consumer sees it."""
        return Delivery(
            self.partition,
            self.offsets[index],
            self.lanes[index],
            self.attempts[index],
            self.head + self.tails[index],
            self.until_of(index),
            self.first_of(index),
        )

    def tails_at(self, places: slice) -> list[bytes]:
        """Return the suffixes of these receipts as bytes; nearly all leases share one table."""
        if len(self.tails[0]) == len(TAIL_BYTES[0]):
            return TAIL_BYTES[places]
        return [tail.encode() for tail in self.tails[places]]

    def first_of(self, index: int) -> int:
        return self.granted_ms if self.firsts_ms is None else self.firsts_ms[index]

    def until_of(self, index: int) -> int:
        return self.until_ms if self.untils is None else self.untils[index]

    def granted(self, keys: Sequence[int] | None) -> Granted:
        """Return the event that created it; `keys` are its messages' keys, with key order."""
        return Granted(
            self.id,
            self.consumer,
            self.granted_ms,
            self.until_ms,
            self.offsets,
            self.attempts,
            keys,
        )

    def events(self, keys: Sequence[int] | None) -> list[LeaseEvent]:
        """Return the events that describe its whole state."""
        return lease_events(
            self.granted(keys), self.granted_ms, self.out, self.until_ms, self.untils
        )

    def outstanding(self) -> Iterator[int]:
        """Yield the indexes of the messages that are still in flight."""
        at = self.out.find(1)
        while at >= 0:
            yield at
            at = self.out.find(1, at + 1)


@dataclass(slots=True)
class Unacked:
    """The number of messages in flight, total and per consumer; shared by a group's queues."""

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

    __slots__ = ("_by_head", "_expiries", "_last_id", "_live", "_receipts", "_unacked", "count")

    def __init__(self, receipts: Receipts, unacked: Unacked) -> None:
        self.count = 0  # messages in flight
        self._receipts = receipts
        self._unacked = unacked
        self._live: dict[int, Lease] = {}
        self._by_head: dict[str, Lease] = {}
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
        now_ms: int,
        firsts_ms: Sequence[int] | None,
        until_ms: int,
    ) -> Lease:
        # Serials continue from the clock, so that one lost in a power failure is not reused.
        self._last_id = min(max(self._last_id + 1, now_ms), SERIAL_MAX)
        offsets = _as_run(offsets)
        if not isinstance(offsets, range):
            offsets = array("q", offsets)
        if not isinstance(attempts, bytes):
            attempts = array("H", attempts)
        head, tails = self._receipts.write(partition, self._last_id, offsets, attempts)
        count = len(offsets)
        lease = Lease(
            self._last_id,
            head,
            tails,
            consumer,
            partition,
            offsets,
            attempts,
            lanes,
            until_ms,
            bytearray(b"\x01") * count,
            count,
            until_ms,
            now_ms,
            firsts_ms,
        )
        self._hold(lease)
        return lease

    def resume(
        self, grant: Grant, partition: int, lanes: bytes, firsts_ms: Sequence[int] | None
    ) -> Lease:
        """Restore a lease that a previous owner of the queue granted."""
        event = grant.event
        self.go_on_from(event.serial)
        head, tails = self._receipts.write(partition, event.serial, event.offsets, event.attempts)
        lease = Lease(
            event.serial,
            head,
            tails,
            event.consumer,
            partition,
            event.offsets,
            event.attempts,
            lanes,
            grant.until_ms,
            grant.out,
            grant.out.count(1),
            grant.until_ms,
            grant.granted_ms,
            firsts_ms,
            grant.untils,
        )
        if lease.untils is not None:
            lease.wake_ms = min(lease.untils[one] for one in lease.outstanding())
        self._hold(lease)
        return lease

    def go_on_from(self, serial: int) -> None:
        """Never assign this serial or a lower one again."""
        self._last_id = max(self._last_id, serial)

    def _hold(self, lease: Lease) -> None:
        self._live[lease.id] = lease
        self._by_head[lease.head] = lease
        heapq.heappush(self._expiries, (lease.wake_ms, lease.id))
        self.count += lease.out_count
        self._unacked.add(lease.consumer, lease.out_count)

    def find(self, receipt: str, now_ms: int) -> tuple[Lease, int] | None:
        """Return the lease of a receipt and the index in it, if the receipt is still valid."""
        lease = self._by_head.get(receipt[:HEAD_LENGTH])
        if lease is None:
            return None
        tail = receipt[HEAD_LENGTH:]
        index = place_in(tail)
        if not 0 <= index < len(lease.out) or not lease.out[index] or lease.tails[index] != tail:
            return None
        until_ms = lease.until_ms if lease.untils is None else lease.untils[index]
        return None if until_ms <= now_ms else (lease, index)

    def take_back(
        self, receipts: Sequence[str], now_ms: int
    ) -> tuple[dict[Lease, Sequence[int]], list[int]]:
        """Mark the messages of these receipts as no longer in flight; `settle` must follow.

        Return their indexes by lease, and the positions of the receipts that are not valid.
        """
        taken: dict[Lease, Sequence[int]] = {}
        refused: list[int] = []
        at, end = 0, len(receipts)
        while at < end:
            found = self.find(receipts[at], now_ms)
            if found is None:
                refused.append(at)
                at += 1
                continue
            lease, index = found
            count = _run_length(lease, index, receipts, at)
            at += count
            lease.out[index : index + count] = bytes(count)
            of_lease, of_run = taken.get(lease), range(index, index + count)
            if of_lease is None:
                taken[lease] = of_run
            elif isinstance(of_lease, list):
                of_lease += of_run
            else:
                taken[lease] = [*of_lease, *of_run]
        return taken, refused

    def give_back(self, lease: Lease, index: int) -> None:
        """Mark one message as no longer in flight, and settle it."""
        lease.out[index] = 0
        self.settle(lease, 1)

    def settle(self, lease: Lease, count: int) -> None:
        """Account for `count` messages of the lease that were marked as no longer in flight."""
        lease.out_count -= count
        self.count -= count
        self._unacked.add(lease.consumer, -count)
        if not lease.out_count:
            del self._live[lease.id]
            del self._by_head[lease.head]

    def extend(self, lease: Lease, indexes: Iterable[int], until_ms: int) -> None:
        """Set the expiry of these messages, to an earlier or a later time."""
        chosen = set(indexes)
        if len(chosen) == lease.out_count:
            lease.until_ms, lease.untils = until_ms, None
        else:
            if lease.untils is None:
                lease.untils = array("q", (lease.until_ms,)) * len(lease.offsets)
            for index in chosen:
                lease.untils[index] = until_ms
        # An early heap entry finds nothing and is pushed again; only an earlier one must be added.
        if until_ms < lease.wake_ms:
            self._wake_at(lease, until_ms)

    def revive(self, lease: Lease, index: int, until_ms: int) -> None:
        """Put a returned message back in flight with the consumer, under its former receipt."""
        if lease.untils is None:
            lease.untils = array("q", (lease.until_ms,)) * len(lease.offsets)
        lease.untils[index] = until_ms
        lease.out[index] = 1
        lease.out_count += 1
        self.count += 1
        self._unacked.add(lease.consumer, 1)
        if lease.out_count == 1 or until_ms < lease.wake_ms:
            self._live[lease.id] = lease
            self._by_head[lease.head] = lease
            self._wake_at(lease, until_ms)

    def next_expiry_ms(self) -> int | None:
        """A lower bound of the next expiry time."""
        expiries = self._expiries
        while expiries:
            wake_ms, lease_id = expiries[0]
            lease = self._live.get(lease_id)
            if lease is not None and lease.wake_ms == wake_ms:
                return wake_ms
            heapq.heappop(expiries)
        return None

    def expired(self, now_ms: int) -> list[tuple[Lease, list[int]]]:
        """Return the expired messages by lease. The caller must give them back."""
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


def _run_length(lease: Lease, index: int, receipts: Sequence[str], at: int) -> int:
    """Count the receipts from `at` on that match the lease from `index` on and are valid.

    Consumers mostly settle messages in the order received, and comparing is cheaper than lookup.
    """
    count_max = min(len(lease.out) - index, len(receipts) - at)
    head, tails = lease.head, lease.tails
    if count_max == 1 or receipts[at + 1] != head + tails[index + 1] or lease.untils is not None:
        return 1
    first_back = lease.out.find(0, index, index + count_max)
    if first_back >= 0:
        count_max = first_back - index
    # Compare all at once: receipts contain no spaces, so the joined texts are equal only if
    # all their parts are.
    tails = tails[index : index + count_max]
    if " ".join(receipts[at : at + count_max]) == head + f" {head}".join(tails):
        return count_max
    for count in range(2, count_max):
        if receipts[at + count] != head + tails[count]:
            return count
    return count_max


def _as_run(offsets: Sequence[int]) -> Sequence[int]:
    """Return the offsets as a range if they are contiguous."""
    first, last = offsets[0], offsets[-1]
    if isinstance(offsets, range) or last - first != len(offsets) - 1:
        return offsets
    run = range(first, last + 1)
    return run if all(map(int.__eq__, offsets, run)) else offsets
