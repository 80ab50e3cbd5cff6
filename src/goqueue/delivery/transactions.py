"""Acks inside transactions: whose end decides whether the messages are done or redelivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.delivery.leases import Lease, Leases
from goqueue.delivery.ledger import Prepared, Retry
from goqueue.delivery.partition_queue import PartitionQueue
from goqueue.delivery.settling import EXHAUSTED, SETTLED, Settled, Settling, Totals
from goqueue.model.errors import GoQueueError, StaleReceipt


class Preparation(NamedTuple):
    """What a transaction may acknowledge: write the events first, then pass it to `prepare`."""

    settled: list[Settled]
    taken: dict[Lease, list[int]]
    events: list[tuple[int, Prepared]]  # for each partition concerned


class PreparedAcks:
    """The messages of a queue that transactions acknowledge."""

    def __init__(
        self,
        partitions: Sequence[PartitionQueue],
        leases: Leases,
        settling: Settling,
        totals: Totals,
    ) -> None:
        self._partitions = partitions
        self._leases = leases
        self._settling = settling
        self._totals = totals

    def plan(self, now_ms: int, receipts: Sequence[str], producer_id: int) -> Preparation:
        """Determine which messages a transaction may acknowledge, without changing anything."""
        settled = [SETTLED] * len(receipts)
        taken: dict[Lease, list[int]] = {}
        retries: dict[int, list[tuple[int, Retry]]] = {}
        seen: set[str] = set()
        for position, receipt in enumerate(receipts):
            if receipt in seen:
                continue
            found = self._leases.find(receipt, now_ms)
            if found is None:
                settled[position] = self._prepare_again(receipt, producer_id)
                continue
            lease, index = found
            seen.add(receipt)
            partition, offset = self._partitions[lease.partition], lease.offsets[index]
            key = partition.key_order.key_of(offset)
            retry = Retry(lease.attempts[index], now_ms, key, lease.first_of(index))
            taken.setdefault(lease, []).append(index)
            retries.setdefault(partition.number, []).append((offset, retry))
        events = [(number, Prepared(producer_id, sorted(some))) for number, some in retries.items()]
        return Preparation(settled, taken, events)

    def _prepare_again(self, receipt: str, producer_id: int) -> Settled:
        """Check whether the transaction has already acknowledged this, so that a retry succeeds."""
        try:
            partition, offset, _ = self._settling.find_message(receipt)
        except GoQueueError as error:
            return Settled(error)
        is_ours = offset in partition.ledger.prepared.get(producer_id, ())
        return SETTLED if is_ours else Settled(StaleReceipt())

    def prepare(self, preparation: Preparation) -> None:
        """Apply a plan that is journaled: the messages belong to the transaction until it ends."""
        lanes: dict[tuple[int, int], int] = {}
        for lease, indexes in preparation.taken.items():
            for index in indexes:
                lanes[lease.partition, lease.offsets[index]] = lease.lanes[index]
                self._settling.take_back(lease, index)
        for number, event in preparation.events:
            of_event = bytes(lanes[number, offset] for offset, _ in event.retries)
            self._partitions[number].prepare(event, of_event)

    def end(self, producer_id: int, now_ms: int, *, is_commit: bool) -> None:
        """Finish what the transaction acknowledged, or make it deliverable again at once.

        An abort counts as a failed delivery, like a nack, so that a message that makes every
        transaction fail reaches the dead-letter topic.
        """
        for partition in self._partitions:
            if producer_id not in partition.ledger.prepared:
                continue
            if is_commit:
                self._totals.acked += partition.commit(producer_id, now_ms)
            else:
                retries = partition.abort(producer_id)
                self._totals.aborted += len(retries)
                self._retry_all(partition, retries)
            partition.refresh()

    def _retry_all(self, partition: PartitionQueue, retries: dict[int, Retry]) -> None:
        for offset, retry in retries.items():
            if self._settling.is_last(retry.attempts):
                partition.dead_letter(offset, retry.attempts, EXHAUSTED)
            elif offset in partition.ledger.retries:
                partition.redeliver(offset, 0)
