"""Collects records into batches: when a batch is full or due, and its sequence numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from goqueue.client.settings import ProducerSettings
from goqueue.model.batch import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Record,
    add_sequence,
    encode_batch,
)
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.model.packing import PackedRecords

UNKNOWN_OFFSET = -1
# Upper bound of what a record adds to its key, value and headers: lengths and deltas.
_RECORD_OVERHEAD_BYTES = 24


@dataclass(slots=True)
class ProducerSequence:
    """A producer's identity in one partition, and the sequence number of its next record."""

    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_EPOCH
    sequence_next: int = 0
    is_transactional: bool = False

    def take(self, count: int) -> int:
        """Reserve sequence numbers for `count` records; return the first."""
        first = self.sequence_next
        self.sequence_next = add_sequence(first, count)
        return first


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that are sent together, and their outcome."""

    partition: TopicPartition
    opened_at: float
    records: list[Record] = field(default_factory=list)
    packed: PackedRecords | None = None  # records encoded by the caller, instead of `records`
    size: int = 0
    encoded: bytearray | None = None
    is_uncertain: bool = False  # it was sent and got no response: it may be stored
    is_renamed: bool = False  # it was the first batch when the broker lost the producer's state
    is_done: bool = False
    base_offset: int = UNKNOWN_OFFSET
    append_time_ms: int = NO_TIMESTAMP
    error: GoQueueError | None = None

    def add(self, record: Record) -> int:
        """Append a record and return its index in the batch."""
        self.records.append(record)
        self.size += record_size(record)
        return len(self.records) - 1

    @property
    def count(self) -> int:
        return len(self.records) if self.packed is None else self.packed.count

    def encode(self, settings: ProducerSettings, lane: ProducerSequence | None) -> bytearray:
        """The bytes to send. Sequence numbers are assigned at the first call and then stay."""
        if self.encoded is None:
            first = lane.take(self.count) if lane else NO_SEQUENCE
            encode = self.packed.encode if self.packed else partial(encode_batch, self.records)
            self.encoded = encode(
                codec=settings.compression,
                producer_id=lane.producer_id if lane else NO_PRODUCER,
                producer_epoch=lane.producer_epoch if lane else NO_EPOCH,
                base_sequence=first,
                is_transactional=lane is not None and lane.is_transactional,
            )
        return self.encoded

    def rename(self) -> None:
        """Assign a new identity and new sequence numbers at the next attempt."""
        self.encoded = None

    def store(self, base_offset: int, append_time_ms: int) -> None:
        self.base_offset, self.append_time_ms = base_offset, append_time_ms
        self._finish()

    def fail(self, error: GoQueueError) -> None:
        self.error = error
        self._finish()

    def _finish(self) -> None:
        self.is_done, self.encoded = True, None


class Accumulator:
    """The open batches, oldest first. It has no network and no clock."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._open: dict[TopicPartition, Batch] = {}

    def add(
        self, partition: TopicPartition, record: Record, *, now: float
    ) -> tuple[Batch, int, list[Batch]]:
        """Add a record to a batch. Return its batch, its index, and the batches to send now."""
        closed = []
        batch = self._open.get(partition)
        if batch is not None and batch.size + record_size(record) > self._settings.batch_bytes_max:
            closed.append(self._open.pop(partition))
            batch = None
        if batch is None:
            batch = self._open[partition] = Batch(partition, now)
        index = batch.add(record)
        if self._is_full(batch):
            closed.append(self._open.pop(partition))
        return batch, index, closed + self.take_due(now=now)

    def add_all(
        self, partition: TopicPartition, records: Sequence[Record], *, now: float
    ) -> list[Batch]:
        """Add many records of one partition to batches. Return the batches to send now."""
        closed = []
        bytes_max, records_max = self._settings.batch_bytes_max, self._settings.batch_records_max
        batch = self._open.get(partition)
        for record in records:
            size = record_size(record)
            if batch is not None and (
                batch.size + size > bytes_max or len(batch.records) >= records_max
            ):
                closed.append(self._open.pop(partition))
                batch = None
            if batch is None:
                batch = self._open[partition] = Batch(partition, now)
            batch.records.append(record)
            batch.size += size
        if batch is not None and self._is_full(batch):
            closed.append(self._open.pop(partition))
        return closed + self.take_due(now=now)

    def take(self, partition: TopicPartition) -> list[Batch]:
        """Close the batch of a partition, if one is open."""
        batch = self._open.pop(partition, None)
        return [] if batch is None else [batch]

    def take_due(self, *, now: float) -> list[Batch]:
        """Close the batches whose linger time has passed."""
        due = []
        # The oldest come first, so the search ends at the first that is not due.
        while self._open:
            oldest = next(iter(self._open.values()))
            if (now - oldest.opened_at) * 1000 < self._settings.linger_ms:
                break
            due.append(self._open.pop(oldest.partition))
        return due

    def take_all(self) -> list[Batch]:
        """Close every batch."""
        batches = list(self._open.values())
        self._open.clear()
        return batches

    def _is_full(self, batch: Batch) -> bool:
        return (
            batch.size >= self._settings.batch_bytes_max
            or len(batch.records) >= self._settings.batch_records_max
        )


def record_size(record: Record) -> int:
    """Estimate the bytes of a record before compression; never too low."""
    headers = sum(
        len(name) * 4 + len(content or b"") + _RECORD_OVERHEAD_BYTES
        for name, content in record.headers
    )
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_OVERHEAD_BYTES


def by_partition(batches: Iterable[Batch]) -> dict[TopicPartition, list[Batch]]:
    """The batches of each partition, in the given order."""
    found: dict[TopicPartition, list[Batch]] = {}
    for batch in batches:
        found.setdefault(batch.partition, []).append(batch)
    return found
