"""Stores records published in one event-loop turn together.

Many clients publish one record each at about the same time. A batch costs far more than a record,
so the records of one turn for a partition and a lane become one batch. One invalid record does not
fail the others: a batch refused because of one record is retried record by record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from goqueue.loop.clock import Clock
from goqueue.model.batch import HEADER_BYTES, Record, encode_batch
from goqueue.model.errors import (
    GoQueueError,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
)
from goqueue.model.session import Session
from goqueue.partition import Partition

BATCH_RECORDS_MAX = 5000
# Errors that one record can cause for its batch. A retry by record would not help with others.
OF_ONE_RECORD = (InvalidRecord, InvalidTimestamp, RecordTooLarge)

_Lane = tuple[Partition, int]


class Share(Protocol):
    """The records of one caller in a batch, and the caller."""

    @property
    def records(self) -> Sequence[Record]: ...

    @property
    def size(self) -> int:
        """The upper bound of the records' size in a batch, in bytes."""

    @property
    def session(self) -> Session | None:
        """Who sent the records, if that is known."""

    @property
    def waits(self) -> bool:
        """Whether the caller waits until the records are committed."""

    def stored(self, base_offset: int, timestamp_ms: int) -> None: ...

    def refused(self, error: GoQueueError) -> None: ...

    def committed(self, error: GoQueueError | None) -> None: ...

    def split(self) -> Sequence[Share]:
        """The same records as shares of one record each."""


class Gatherer:
    """Stores shares at the end of the event-loop turn in which they were added."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shares: dict[_Lane, list[Share]] = {}
        self.batches = 0
        self.turns = 0  # in which something was stored

    def add(self, partition: Partition, lane: int, share: Share) -> None:
        """Add a share; it is stored or refused before the turn ends."""
        if not self._shares:
            self._clock.call_soon(self._store_all)
        self._shares.setdefault((partition, lane), []).append(share)

    def _store_all(self) -> None:
        gathered, self._shares = self._shares, {}
        self.turns += 1
        for (partition, _), shares in gathered.items():
            for fitting in _fitting(shares, partition.settings.message_bytes_max - HEADER_BYTES):
                self._store(partition, fitting)

    def _store(self, partition: Partition, shares: Sequence[Share]) -> None:
        records = shares[0].records
        if len(shares) > 1:
            records = [record for share in shares for record in share.records]
        try:
            batch = memoryview(encode_batch(records))
            senders = senders_of(shares)
            appended = partition.append(batch, now_ms=self._clock.wall_ms(), senders=senders)
        except GoQueueError as error:
            self._refuse(partition, shares, error)
            return
        self.batches += 1
        base_offset = appended.base_offset
        for share in shares:
            share.stored(base_offset, appended.timestamp_ms)
            base_offset += len(share.records)
        waiting = [share for share in shares if share.waits]
        if waiting:

            def committed(error: GoQueueError | None) -> None:
                for share in waiting:
                    share.committed(error)

            partition.when_committed(appended.last_offset, committed)

    def _refuse(self, partition: Partition, shares: Sequence[Share], error: GoQueueError) -> None:
        is_alone = len(shares) == 1 and len(shares[0].records) == 1
        if is_alone or not isinstance(error, OF_ONE_RECORD):
            for share in shares:
                share.refused(error)
            return
        for share in shares:
            for part in share.split():
                self._store(partition, [part])


def senders_of(shares: Sequence[Share]) -> list[tuple[int, Session | None]]:
    """Return how many records are whose; the shares of one sender that follow count together."""
    first = shares[0]
    senders, count, sender = [], len(first.records), first.session
    for share in shares[1:]:
        if share.session is not sender and share.session != sender:
            senders.append((count, sender))
            count, sender = 0, share.session
        count += len(share.records)
    senders.append((count, sender))
    return senders


def _fitting(shares: list[Share], bytes_max: int) -> Iterator[list[Share]]:
    """Group shares to fit a batch; one too large for any batch is its own group."""
    group: list[Share] = []
    size = count = 0
    for share in shares:
        is_over = size + share.size > bytes_max or count + len(share.records) > BATCH_RECORDS_MAX
        if group and is_over:
            yield group
            group, size, count = [], 0, 0
        group.append(share)
        size += share.size
        count += len(share.records)
    yield group
