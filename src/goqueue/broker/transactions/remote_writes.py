"""Writes of a transaction to partitions that other nodes lead.

The transaction's node numbers the batches, so that a batch retried for lack of a response is stored
once. A transaction has its own producer epoch, in which each partition counts from zero. Writes
after its end are fenced by that epoch, because the end bumps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topics
from goqueue.broker.transactions.ids import Transaction
from goqueue.loop.promise import Promise, start
from goqueue.model.batch import Record, add_sequence, encode_batch
from goqueue.model.errors import TransactionAbortable
from goqueue.model.names import TopicPartition
from goqueue.partition import Appended

WRITE_TIMEOUT_MS = 15_000  # long enough to elect another leader
LINES_MAX = 50_000  # (transaction, partition) pairs remembered; the oldest is forgotten first


@dataclass(slots=True)
class _Line:
    """The batches of one transaction for one partition, in sequence."""

    sequence: int
    last: Promise[Appended] | None = None


class TransactionLines:
    def __init__(self, topics: Topics, leaders: Leaders) -> None:
        self._topics = topics
        self._leaders = leaders
        self._lines: dict[tuple[Transaction, TopicPartition], _Line] = {}

    def begin(self, transaction: Transaction, name: TopicPartition) -> None:
        """Add a partition that has nothing of the transaction yet."""
        if (transaction, name) not in self._lines:
            self.note(transaction, name, sequence=0)

    def note(self, transaction: Transaction, name: TopicPartition, *, sequence: int) -> None:
        """Set the sequence number of the next batch for a partition."""
        line = self._lines.get((transaction, name))
        if line is not None:
            line.sequence = sequence
            return
        self._lines[transaction, name] = _Line(sequence)
        if len(self._lines) > LINES_MAX:
            del self._lines[next(iter(self._lines))]

    def append(
        self, transaction: Transaction, name: TopicPartition, records: Sequence[Record]
    ) -> Promise[Appended]:
        """Append records at the leader of a partition; resolves when they are committed."""
        line = self._lines.get((transaction, name))
        if line is None:
            # A guess could make new records look like duplicates of stored ones.
            raise TransactionAbortable(
                f"Another node has written to {name} in this transaction, and the next sequence "
                "number is unknown; abort it and begin another."
            )
        topic = self._topics.get(name.topic)
        batch = encode_batch(
            records,
            producer_id=transaction.identity.producer_id,
            producer_epoch=transaction.identity.epoch,
            base_sequence=line.sequence,
            is_transactional=True,
        )
        line.sequence = add_sequence(line.sequence, len(records))
        earlier, stored = line.last, Promise[Appended]()
        line.last = stored

        async def run() -> Appended:
            if earlier is not None:
                await earlier
            return await self._leaders.append(
                topic, name.partition, bytes(batch), timeout_ms=WRITE_TIMEOUT_MS
            )

        start(run(), stored.settle)
        return stored
