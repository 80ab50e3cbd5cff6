"""Settling: how deliveries end, by receipt or by lease expiry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from random import Random
from typing import NamedTuple

import msgspec

from goqueue.delivery.fairness import Message, Tenants
from goqueue.delivery.grants import Extended, LeaseEvent
from goqueue.delivery.lanes import lane_counts
from goqueue.delivery.leases import Lease, Leases, Limits
from goqueue.delivery.ledger import DeadLetter, Finish, Retried, Retry, Return
from goqueue.delivery.partition_queue import PartitionQueue
from goqueue.delivery.ranges import ranges_of
from goqueue.delivery.settings import QueueSettings
from goqueue.model.errors import (
    DeadLettering,
    GoQueueError,
    InvalidReceipt,
    LeaseTooLong,
    StaleReceipt,
)

EXHAUSTED = "deliveries_exhausted"
LATE_RECEIPTS_MAX = 100_000  # the oldest are dropped; their messages are then redelivered
_DOUBLINGS_MAX = 64  # of the backoff; more would overflow, and its cap is reached long before


class Settled(NamedTuple):
    """The result for one receipt: an error, plain success, or a pending dead letter."""

    error: GoQueueError | None = None
    dead_letter: DeadLetter | None = None


SETTLED = Settled()


class Totals(msgspec.Struct):
    """Message counts since the queue was opened."""

    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    aborted: int = 0  # acknowledged in a transaction that was then aborted
    nacked: int = 0
    rejected: int = 0
    leases_expired: int = 0
    dead_lettered: int = 0
    ttl_expired: int = 0
    skipped: int = 0


class Settling:
    """Acks, nacks, rejects, dead letters, and leases that are extended or expire."""

    def __init__(
        self,
        partitions: Sequence[PartitionQueue],
        leases: Leases,
        tenants: Tenants,
        limits: Limits,
        *,
        settings: QueueSettings,
        totals: Totals,
        random: Random,
    ) -> None:
        self.settings = settings
        self.late = LateReceipts()
        self._partitions = partitions
        self._leases = leases
        self._tenants = tenants
        self._limits = limits
        self._totals = totals
        self._random = random

    def ack(self, now_ms: int, receipts: Sequence[str]) -> list[Settled]:
        """Acknowledge messages. Acknowledging one that is already done succeeds."""
        settled = [SETTLED] * len(receipts)
        taken, refused = self._leases.take_back(receipts, now_ms)
        self._totals.acked += len(receipts) - len(refused)
        done: dict[int, list[Sequence[int]]] = {}
        for lease, indexes in taken.items():
            done.setdefault(lease.partition, []).append(self._end_leases(lease, indexes, now_ms))
        for number, parts in done.items():
            offsets = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
            self._partitions[number].finish(offsets, Finish.ACKED, now_ms)
        for position in refused:
            settled[position] = self._ack_past(now_ms, receipts[position])
        return settled

    def _end_leases(self, lease: Lease, indexes: Sequence[int], now_ms: int) -> Sequence[int]:
        """Remove messages, often a whole lease, from those in flight; return their offsets."""
        self._leases.settle(lease, len(indexes))
        if self._tenants.known or self._tenants.idle:
            self._note_handled(lease, indexes, now_ms)
        in_flight, lanes = self._partitions[lease.partition].in_flight, lease.lanes
        offsets: Sequence[int] = lease.offsets
        if len(indexes) == 1:
            in_flight[lanes[indexes[0]]] -= 1
            return (offsets[indexes[0]],)
        if len(indexes) != len(offsets):
            lanes = bytes([lanes[index] for index in indexes])
            offsets = [offsets[index] for index in indexes]
        for lane, count in lane_counts(lanes):
            in_flight[lane] -= count
        return offsets

    def _note_handled(self, lease: Lease, indexes: Sequence[int], now_ms: int) -> None:
        of_lease = lease.tenants
        tenants = [None if of_lease is None else of_lease[index] for index in indexes]
        self._tenants.spend(tenants, now_ms - lease.granted_ms, now_ms)
        for tenant in tenants:
            if tenant is not None:
                self._tenants.give_back(tenant)

    def nack(
        self, now_ms: int, receipts: Sequence[str], *, delay_ms: int | None = None
    ) -> list[Settled]:
        """Fail these deliveries: retry the messages after a backoff, or dead-letter them."""
        settled: list[Settled] = []
        for receipt in receipts:
            found = self._leases.find(receipt, now_ms)
            if found is None:
                settled.append(self._nack_past(receipt))
                continue
            lease, index = found
            self._totals.nacked += 1
            rest_ms = delay_ms
            if rest_ms is None:
                rest_ms = backoff_ms(self.settings, lease.attempts[index], self._random)
            settled.append(Settled(None, self._fail(lease, index, now_ms + rest_ms, Return.NACKED)))
        return settled

    def reject(self, now_ms: int, receipts: Sequence[str], *, reason: str) -> list[Settled]:
        """Send messages that can never be processed to the dead-letter topic."""
        settled: list[Settled] = []
        for receipt in receipts:
            found = self._leases.find(receipt, now_ms)
            if found is None:
                settled.append(self._reject_past(receipt))
                continue
            lease, index = found
            self._totals.rejected += 1
            self.take_back(lease, index)
            settled.append(Settled(None, self._dead_letter(lease, index, reason, Return.REJECTED)))
        return settled

    def extend(
        self,
        now_ms: int,
        receipts: Sequence[str],
        *,
        visibility_ms: int,
        total_ms_max: int | None = None,
    ) -> list[Settled]:
        """Extend leases to `visibility_ms` from now; the receipts stay valid.

        With `total_ms_max`, a lease that would last longer than that since its delivery is
        refused. With late acks, an expired lease is renewed if its message waits to be delivered.
        """
        settled: list[Settled] = []
        chosen: dict[int, tuple[Lease, list[int]]] = {}
        until_ms = now_ms + visibility_ms
        for receipt in receipts:
            late: Late | None = None
            found = self._leases.find(receipt, now_ms)
            if found is None:
                found = late = self._find_revivable(receipt, now_ms)
            if found is None:
                settled.append(Settled(self._refusal(receipt)))
                continue
            lease, index = found
            if total_ms_max is not None and until_ms - lease.granted_ms > total_ms_max:
                settled.append(Settled(LeaseTooLong(total_ms_max)))
                continue
            if late is None:
                chosen.setdefault(lease.id, (lease, []))[1].append(index)
            else:
                self._revive(late, until_ms)
            settled.append(SETTLED)
        for lease, indexes in chosen.values():
            self.renew(lease, sorted(set(indexes)), until_ms)
        return settled

    # By position in a lease, for consumers that name messages by their offsets

    def end(self, lease: Lease, positions: range, why: Finish, now_ms: int) -> None:
        """Finish messages of a lease that are in flight."""
        lease.out[positions.start : positions.stop] = bytes(len(positions))
        offsets = self._end_leases(lease, positions, now_ms)
        if why is Finish.ACKED:
            self._totals.acked += len(positions)
        else:
            self._totals.skipped += len(positions)
        self._partitions[lease.partition].finish(offsets, why, now_ms)

    def release(self, lease: Lease, position: int, now_ms: int) -> None:
        """Return a message: at once, or after the backoff if the settings say so."""
        self._totals.nacked += 1
        rest_ms = 0
        if self.settings.release_backoff:
            rest_ms = backoff_ms(self.settings, lease.attempts[position], self._random)
        self._fail(lease, position, now_ms + rest_ms, Return.NACKED)

    def refuse(self, lease: Lease, position: int, reason: str) -> None:
        """Send a message that can never be processed to the dead-letter topic."""
        self._totals.rejected += 1
        self.take_back(lease, position)
        self._dead_letter(lease, position, reason, Return.REJECTED)

    def renew(self, lease: Lease, positions: Sequence[int], until_ms: int) -> None:
        """Extend the lease of these messages, which are in flight."""
        is_whole = len(positions) == lease.out_count
        self._leases.extend(lease, positions, until_ms)
        ranges = [] if is_whole else ranges_of(sorted(positions))
        self._note_lease(lease, Extended(lease.id, until_ms, ranges))

    def _note_lease(self, lease: Lease, *events: LeaseEvent) -> None:
        for event in events:
            self._partitions[lease.partition].note_lease(event)

    # Expiry and failure

    def take_expired(self, expired: Iterable[tuple[Lease, list[int]]], now_ms: int) -> int:
        """Take back these messages, whose leases have expired; return their number."""
        count = 0
        for lease, indexes in expired:
            for index in indexes:
                # The consumer had the whole visibility timeout; no backoff is added to it.
                self._fail(lease, index, now_ms, Return.LEASE_EXPIRED)
            count += len(indexes)
        self._totals.leases_expired += count
        return count

    def _expire(self, now_ms: int) -> int:
        """Take back every message whose lease has expired; return their number."""
        return self.take_expired(self._leases.expired(now_ms), now_ms)

    def take_back(self, lease: Lease, index: int) -> None:
        """End the lease of one message, which is then in no state until the caller decides."""
        self._leases.give_back(lease, index)
        self._partitions[lease.partition].in_flight[lease.lanes[index]] -= 1
        tenant = None if lease.tenants is None else lease.tenants[index]
        if tenant is not None:
            self._tenants.give_back(tenant)

    def _fail(self, lease: Lease, index: int, due_ms: int, why: Return) -> DeadLetter | None:
        """End a failed delivery: retry at `due_ms`, unless the delivery limit is reached."""
        self.take_back(lease, index)
        attempts = lease.attempts[index]
        if self.is_last(attempts):
            return self._dead_letter(lease, index, EXHAUSTED, why)
        partition, offset = self._partitions[lease.partition], lease.offsets[index]
        if partition.ledger.is_done(offset):  # removed by retention in the meantime
            partition.redeliver(offset, due_ms)
            return None
        key = partition.key_order.key_of(offset)
        partition.retry(offset, Retry(attempts, due_ms, key, lease.first_of(index)), why)
        if self.settings.late_acks and lease.tails:
            self.late.add(Late(lease, index))
        return None

    def is_last(self, attempts: int) -> bool:
        """Whether this was the last delivery that a message gets."""
        return 0 < self.settings.deliveries_max <= attempts

    def _dead_letter(self, lease: Lease, index: int, reason: str, why: Return) -> DeadLetter:
        partition, offset = self._partitions[lease.partition], lease.offsets[index]
        attempts = lease.attempts[index]
        if not partition.ledger.is_done(offset):
            # Until the dead-letter intent is written, a restart needs the number of deliveries.
            key = partition.key_order.key_of(offset)
            retry = Retry(attempts, 0, key, lease.first_of(index))
            partition.record(Retried([(offset, retry)], [(offset, why)]))
        return partition.dead_letter(offset, attempts, reason)

    # Dead letters

    def note_dead_lettered(
        self,
        letters: Sequence[DeadLetter],
        now_ms: int,
        *,
        topic_id: bytes,
        partition: int,
        end: int,
    ) -> None:
        """Mark these letters of one partition as durable: the last before `end` in a partition of
        a dead-letter topic.
        """
        self._totals.dead_lettered += len(letters)
        source = self._partitions[letters[0].partition]
        source.note_dead_lettered(letters, now_ms, topic_id=topic_id, partition=partition, end=end)

    def given_up(self, letters: Iterable[DeadLetter], now_ms: int) -> None:
        """Skip letters whose records no longer exist, so that nothing can be written."""
        for letter in letters:
            self._totals.skipped += 1
            self._partitions[letter.partition].give_up(letter, now_ms)

    # Receipts whose leases have expired, or do not exist here

    def find_message(self, receipt: str) -> tuple[PartitionQueue, int, int]:
        """Return the partition, offset and delivery attempt that a genuine receipt names."""
        read = self._leases.receipts.read(receipt)
        if read.partition >= len(self._partitions):
            raise StaleReceipt()
        return self._partitions[read.partition], read.offset, read.attempt

    def has_issued(self, receipt: str) -> bool:
        """Whether this is a receipt of this queue, live or not."""
        try:
            self._leases.receipts.read(receipt)
        except InvalidReceipt:
            return False
        return True

    def _refusal(self, receipt: str) -> GoQueueError:
        """Return the error for a receipt that belongs to no live lease."""
        try:
            self.find_message(receipt)
        except GoQueueError as error:
            return error
        return StaleReceipt()

    def _ack_past(self, now_ms: int, receipt: str) -> Settled:
        """Acknowledge a message whose lease has expired, where late acks are allowed."""
        try:
            partition, offset, attempt = self.find_message(receipt)
        except GoQueueError as error:
            return Settled(error)
        if self.settings.late_acks:
            self._expire(now_ms)  # The lease may have expired and not been processed yet.
        if partition.ledger.is_done(offset):
            return Settled(StaleReceipt()) if offset in partition.ledger.dead else SETTLED
        if offset in partition.pending_letters:
            return Settled(DeadLettering())
        if not self._may_end_late(partition, offset, attempt):
            return Settled(StaleReceipt())
        self.late.drop(((partition.number, offset),))
        # If another consumer holds it, that lease ends normally and finds the message done.
        partition.withdraw(offset)
        self._totals.acked += 1
        partition.finish((offset,), Finish.ACKED, now_ms)
        return SETTLED

    def _may_end_late(self, partition: PartitionQueue, offset: int, attempt: int) -> bool:
        """Whether a receipt whose lease has expired may still finish its message.

        Without key order, any receipt ever issued for the message may, even while it is leased
        again. With key order, only the last one, and only until the message is delivered again.
        """
        if not self.settings.late_acks or offset in partition.prepared:
            return False
        if offset >= partition.high_watermark:
            return False
        if not self.settings.key_order:
            return True
        return offset in partition.waiting and partition.attempts_of(offset) == attempt

    def _nack_past(self, receipt: str) -> Settled:
        """Answer a nack after the lease: what is already back or done needs nothing more."""
        try:
            partition, offset, _ = self.find_message(receipt)
        except GoQueueError as error:
            return Settled(error)
        if offset in partition.pending_letters:
            return Settled(DeadLettering())
        return Settled(StaleReceipt()) if offset in partition.prepared else SETTLED

    def _reject_past(self, receipt: str) -> Settled:
        try:
            partition, offset, _ = self.find_message(receipt)
        except GoQueueError as error:
            return Settled(error)
        if offset in partition.ledger.dead:
            return SETTLED
        return Settled(DeadLettering() if offset in partition.pending_letters else StaleReceipt())

    def _find_revivable(self, receipt: str, now_ms: int) -> Late | None:
        # With key order, a returned message may have others of its key before it.
        late = None if self.settings.key_order else self._find_late(receipt, now_ms)
        return late if late is not None and self._limits.room_for(late.lease.consumer) else None

    def _find_late(self, receipt: str, now_ms: int) -> Late | None:
        """Return the message of an expired lease, if it waits to be delivered again."""
        if not self.settings.late_acks:
            return None
        self._expire(now_ms)  # The lease may have expired and not been processed yet.
        late = self.late.find(receipt)
        if late is None:
            return None
        number, offset = late.message
        return late if offset in self._partitions[number].waiting else None

    def _revive(self, late: Late, until_ms: int) -> None:
        """Renew an expired lease whose message has not been delivered since."""
        lease, index = late
        number, offset = late.message
        self.late.drop((late.message,))
        partition = self._partitions[number]
        partition.take_waiting(offset)
        partition.in_flight[lease.lanes[index]] += 1
        self._leases.revive(lease, index, until_ms)
        # The last counted delivery continues, so it no longer counts as a failed attempt.
        retry = partition.ledger.retries[offset]
        partition.record(Retried([(offset, retry._replace(attempts=retry.attempts - 1))]))
        self._note_lease(lease, *lease.events(None))
        former = None if lease.tenants is None else lease.tenants[index]
        if lease.tenants is not None and former is not None:
            # The tenant may have been dropped and created anew in the meantime.
            tenant = lease.tenants[index] = self._tenants.of(former.key)
            self._tenants.hand_out(tenant, is_in_turn=False)


class Late(NamedTuple):
    """A returned message, as its position in its expired lease."""

    lease: Lease
    position: int

    @property
    def receipt(self) -> str:
        return self.lease.head + self.lease.tails[self.position]

    @property
    def message(self) -> Message:
        return self.lease.partition, self.lease.offsets[self.position]


class LateReceipts:
    """The last receipts of expired leases whose messages have not been delivered again since.

    A consumer that took a little longer than its lease has still done the work. Where a group
    allows late acks, such an ack counts, and the lease can be extended, as long as the message
    waits to be delivered again.
    """

    __slots__ = ("_by_receipt", "by_message")

    def __init__(self) -> None:
        self.by_message: dict[Message, str] = {}
        self._by_receipt: dict[str, Late] = {}

    def add(self, late: Late) -> None:
        message, receipt = late.message, late.receipt
        self.drop((message,))
        self._by_receipt[receipt] = late
        self.by_message[message] = receipt
        if len(self.by_message) > LATE_RECEIPTS_MAX:
            self.drop((next(iter(self.by_message)),))

    def find(self, receipt: str) -> Late | None:
        return self._by_receipt.get(receipt)

    def clear(self) -> None:
        """Forget all, because a rewind or purge made them meaningless."""
        self._by_receipt.clear()
        self.by_message.clear()

    def drop(self, messages: Iterable[Message]) -> None:
        """Forget messages that were delivered again, or are done."""
        for message in messages:
            receipt = self.by_message.pop(message, None)
            if receipt is not None:
                del self._by_receipt[receipt]


def backoff_ms(settings: QueueSettings, attempts: int, random: Random) -> int:
    """Return the delay after `attempts` deliveries: exponential, with jitter, and capped."""
    exponent = min(attempts - 1, _DOUBLINGS_MAX)
    rest_ms = min(settings.backoff_ms * settings.backoff_factor**exponent, settings.backoff_ms_max)
    spread = settings.backoff_jitter
    return min(round(rest_ms * random.uniform(1 - spread, 1 + spread)), settings.backoff_ms_max)
