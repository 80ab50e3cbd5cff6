"""A partition: a log with a high watermark, epochs and producers; append, fetch, wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from goqueue.model.batch import (
    HEADER_BYTES,
    NO_EPOCH,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    decode_marker,
    encode_marker,
    read_header,
    stamp,
    stamp_append_time,
)
from goqueue.model.compression import Buffer
from goqueue.model.errors import (
    CorruptBatch,
    FencedLeaderEpoch,
    GoQueueError,
    InvalidTransactionState,
    NotLeader,
    OffsetOutOfRange,
    StorageFailed,
    UnknownLeaderEpoch,
)
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Observer
from goqueue.model.runs import Piece, gather_run
from goqueue.model.session import Senders, Session
from goqueue.partition.durability import Durability, write_error
from goqueue.partition.history import History
from goqueue.partition.producers import ProducersState
from goqueue.partition.records_end import SLICE_BATCHES, NoRecords, search_back
from goqueue.partition.replica import NO_LEADER, NO_LIMIT, Replica
from goqueue.partition.retention import Retention
from goqueue.partition.rules import PartitionSettings, RunLimits, check_produced, recompress
from goqueue.partition.run_reports import report_batch, report_run
from goqueue.storage.aborted import find_aborted
from goqueue.storage.histogram import offset_at_time
from goqueue.storage.index import AbortedTransaction
from goqueue.storage.log import LogState, Slice
from goqueue.storage.timestamps import find_newest, find_timestamp

Committed = Callable[[GoQueueError | None], None]

_TIME_MIN, _TIME_MAX = -(1 << 63), (1 << 63) - 1


class Appended(NamedTuple):
    """Where a batch was stored. `timestamp_ms` is -1 unless the broker set the time."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class PartitionState(msgspec.Struct, array_like=True):
    """State of a cleanly closed partition, from which it opens without reading its files."""

    log: LogState
    producers: ProducersState
    epochs: list[tuple[int, int]]


class Watcher(Protocol):
    """A waiter for records."""

    def partition_advanced(self, partition: Any) -> None:
        """Notify that the `Partition` has more records, or has changed otherwise."""


class Waiters(deque[tuple[int, Committed]]):
    """Callbacks with the offsets of the records that they wait for, in order."""

    __slots__ = ()

    def resolve(self, offset: int) -> None:
        """Call those that wait for records before `offset`."""
        while self and self[0][0] < offset:
            self.popleft()[1](None)

    def fail(self, error: GoQueueError, *, since: int = 0) -> None:
        """Call those that wait for records at `since` or later, with an error."""
        failed = [one for one in self if one[0] >= since]
        kept = [one for one in self if one[0] < since]
        self.clear()
        self.extend(kept)
        for _, committed in failed:
            committed(error)


class Partition:
    """A partition on this node: the only replica, the leader's or a follower's.

    Records up to `high_watermark` are committed: as durable as promised, and visible. With
    `waits_for_sync` that means synced; otherwise it means written. With followers it means so on
    all in-sync replicas, which are tracked elsewhere (`Replica.set_commit_limit`).

    It has parts: `durability` syncs it, `replica` is how replication sees it, `retention` removes
    old records, and `history` has the states of producers and transactions.
    """

    __slots__ = (
        "bytes_in",
        "commit_limit",
        "committing",
        "durability",
        "epochs",
        "failure",
        "high_watermark",
        "history",
        "is_following",
        "is_gone",
        "keeping",
        "key",
        "leader_epoch",
        "log",
        "mark_dirty",
        "name",
        "observer",
        "on_durable",
        "on_written",
        "producers",
        "records_in",
        "refusal",
        "replica",
        "retention",
        "settings",
        "shortage",
        "transactions",
        "waits_for_sync",
        "watchers",
        "without_records",
    )

    def __init__(
        self,
        name: TopicPartition,
        history: History,
        settings: PartitionSettings,
        *,
        key: bytes,
        leader_epoch: int,
        waits_for_sync: bool,
        mark_dirty: Callable[[Partition], None],
        replica_mark: int | None = None,
    ) -> None:
        """`replica_mark` is the high watermark that a replica has saved."""
        log = history.log
        self.name = name
        self.key = key
        self.settings = settings
        self.log = log
        self.history = history
        # For appends, which use them all the time.
        self.producers = history.producers
        self.transactions = history.transactions
        self.epochs = history.epochs
        self.leader_epoch = leader_epoch
        self.waits_for_sync = waits_for_sync
        self.mark_dirty = mark_dirty
        self.high_watermark = log.end_offset
        self.failure: GoQueueError | None = None
        # Why writes are refused, if so: a failure, or another node leads.
        self.refusal: GoQueueError | None = None
        # Why nothing can be committed, if so: too few replicas are in sync.
        self.shortage: GoQueueError | None = None
        self.is_following = replica_mark is not None
        self.is_gone = False
        self.commit_limit = NO_LIMIT
        log.epoch_max = leader_epoch
        if replica_mark is not None:
            self.refusal = NotLeader(name, NO_LEADER)
            self.high_watermark = max(log.start_offset, min(replica_mark, log.end_offset))
            self.commit_limit = self.high_watermark
            # A node that was down may have stale metadata about the leader; its log has the epochs
            # so far.
            log.epoch_max = max(leader_epoch, self.epochs.latest)
        self.transactions.advance(self.high_watermark)
        self.durability = Durability(self)
        self.replica = Replica(self)
        self.retention = Retention(self)
        self.committing = Waiters()  # for the high watermark
        self.keeping = Waiters()  # for durability on this node
        self.watchers: dict[Watcher, None] = {}
        self.observer: Observer | None = None
        self.on_durable: Callable[[], None] | None = None
        self.on_written: Callable[[], None] | None = None
        # The result of the last search for the end of the records; see `records_end`.
        self.without_records = NoRecords(0, 0)
        self.bytes_in = 0
        self.records_in = 0

    # Writes

    def append(
        self,
        batch: memoryview,
        *,
        now_ms: int,
        payload: Buffer | None = None,
        session: Session | None = None,
        senders: Senders = (),
    ) -> Appended:
        """Append a producer's batch, given as writable bytes; it is stamped in place.

        `payload` is its records, decompressed, if the caller has them. Who sent it is its
        `session`, or several `senders`.
        """
        if self.refusal is not None:
            raise self.refusal
        settings = self.settings
        header = check_produced(batch, settings, now_ms=now_ms, payload=payload)
        if header.producer_id >= 0:
            earlier = self.producers.check(header)
            if earlier is not None:
                if self.observer is not None:
                    offsets = (earlier.base_offset, earlier.last_offset + 1)
                    self.observer.deduplicated(self.name, offsets)
                timestamp_ms = earlier.timestamp_ms if settings.is_append_time else -1
                return Appended(earlier.base_offset, earlier.last_offset, timestamp_ms)
            self.check_transaction(header)
        if settings.compression is not None and header.codec != settings.compression:
            batch = memoryview(recompress(batch, header, settings.compression))
        is_append_time = settings.is_append_time
        return self.write(
            batch, now_ms=now_ms, is_append_time=is_append_time, session=session, senders=senders
        )

    def check_transaction(self, header: BatchHeader) -> None:
        """Refuse a batch that does not fit the transactions open in this partition."""
        transactions, producer_id = self.transactions, header.producer_id
        if header.attributes & TRANSACTIONAL:
            transactions.check_room(producer_id)
        elif transactions.first_unstable is not None and transactions.get(producer_id) is not None:
            raise InvalidTransactionState(
                f"Producer {producer_id} has a transaction open in {self.name}; end it "
                "before writing outside of it."
            )

    def write(
        self,
        batch: memoryview,
        *,
        now_ms: int,
        is_append_time: bool = False,
        session: Session | None = None,
        senders: Senders = (),
    ) -> Appended:
        """Append a batch that is already checked."""
        if self.is_following:
            raise self.refusal or NotLeader(self.name, NO_LEADER)
        stamp(batch, base_offset=self.log.end_offset, leader_epoch=self.leader_epoch)
        before = bytes(batch[:HEADER_BYTES]) if is_append_time else None
        if is_append_time:
            stamp_append_time(batch, now_ms)
        header = read_header(batch)
        try:
            self.store(batch, header, now_ms=now_ms)
        except GoQueueError:
            # Restore the batch as its producer sent it, for a retry.
            if before is not None:
                batch[:HEADER_BYTES] = before
            stamp(batch, base_offset=0, leader_epoch=NO_EPOCH)
            raise
        if self.observer is not None and header.record_count and not header.is_control:
            offsets = (header.base_offset, header.next_offset)
            if senders:
                report_batch(self.observer, self.name, offsets, senders, size=len(batch))
            else:
                self.observer.stored(self.name, offsets, size=len(batch), session=session)
        return Appended(header.base_offset, header.last_offset, now_ms if is_append_time else -1)

    def run_limits(self, *, now_ms: int) -> RunLimits | None:
        """Return the limits of batches for `append_run`; None if each needs `append`."""
        settings = self.settings
        if self.refusal is not None or self.shortage is not None or not settings.takes_runs:
            return None
        return (
            settings.message_bytes_max,
            max(now_ms - settings.timestamp_before_ms_max, _TIME_MIN),
            min(now_ms + settings.timestamp_after_ms_max, _TIME_MAX),
        )

    def append_run(
        self,
        data: Buffer,
        pieces: list[Piece],
        *,
        now_ms: int,
        senders: Sequence[Session] = (),
    ) -> bytes:
        """Append producers' batches that fit the `run_limits` with one write.

        The result is their offsets as packed by `gather_run`. `senders` are the sessions of the
        pieces.
        """
        if self.refusal is not None:
            raise self.refusal
        end_offset, epoch = self.log.end_offset, self.leader_epoch
        run, offsets, next_offset = gather_run(data, pieces, end_offset, epoch)
        try:
            self.log.append_run(run, next_offset, now_ms=now_ms)
        except OSError as error:
            raise write_error(self.name, error) from error
        records = next_offset - end_offset
        self._note_written(epoch, end_offset, next_offset, size=len(run), records=records)
        if self.observer is not None:
            whole = (end_offset, next_offset)
            report_run(self.observer, self.name, whole, offsets, pieces, senders, size=len(run))
        return offsets

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        is_commit: bool,
        coordinator_epoch: int,
        now_ms: int,
    ) -> Appended:
        """End a producer's transaction here, permanently once the marker is committed.

        Producers with a lower epoch are fenced from now on. A marker that is already here, because
        a coordinator crashed before it could record that, is not written again.
        """
        if self.refusal is not None:
            raise self.refusal
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        known = self.producers.get(producer_id)
        is_repeated = (
            known is not None
            and known.marker_offset >= 0
            and (known.epoch, known.coordinator_epoch) == (producer_epoch, coordinator_epoch)
            and self.transactions.get(producer_id) is None
        )
        if known is not None and is_repeated:
            return Appended(known.marker_offset, known.marker_offset, -1)
        marker = encode_marker(
            is_commit=is_commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        return self.write(memoryview(marker), now_ms=now_ms)

    def store(self, batch: memoryview, header: BatchHeader, *, now_ms: int) -> None:
        """Append a stamped batch to the log, and update the state after it."""
        try:
            self.log.append(batch, header, now_ms=now_ms)
        except OSError as error:
            raise write_error(self.name, error) from error
        # Compaction may leave nothing of a marker but its sequence number.
        if header.attributes & TRANSACTIONAL and header.record_count:
            self._note_transactional(header, batch, now_ms=now_ms)
        if header.producer_id >= 0:
            self.producers.note(header, now_ms=now_ms)
        self._note_written(
            header.leader_epoch,
            header.base_offset,
            header.next_offset,
            size=len(batch),
            records=header.record_count,
        )

    def _note_transactional(self, header: BatchHeader, batch: memoryview, *, now_ms: int) -> None:
        if not header.is_control:
            self.transactions.note(header)
            return
        self.records_in -= header.record_count  # A marker is not a record of a producer.
        marker = decode_marker(batch)
        self.history.end_transaction(header, marker, self.log.active, now_ms=now_ms)

    def _note_written(
        self, epoch: int, base_offset: int, end_offset: int, *, size: int, records: int
    ) -> None:
        """Update the state after a write at the end of the log."""
        if self.epochs.latest != epoch:
            self.epochs.note(epoch, base_offset)
        self.bytes_in += size
        self.records_in += records
        if not self.waits_for_sync:
            self.note_durable(end_offset)
        self.mark_dirty(self)
        if self.on_written is not None:
            self.on_written()

    # Waiters

    def when_committed(self, last_offset: int, committed: Committed) -> None:
        """Call `committed` once the record at `last_offset` is as durable as promised."""
        if last_offset < self.high_watermark:
            committed(None)
        elif self.refusal is not None or self.shortage is not None:
            committed(self.refusal or self.shortage)
        else:
            self.committing.append((last_offset, committed))

    def when_durable(self, last_offset: int, durable: Committed) -> None:
        """Call `durable` once the record at `last_offset` is as durable as promised on this node.

        A record that is not more than that may be lost together with this node.
        """
        if self.commit_limit == NO_LIMIT:
            self.when_committed(last_offset, durable)
        elif last_offset < self.durability.durable_offset:
            durable(None)
        elif self.refusal is not None:
            durable(self.refusal)
        else:
            self.keeping.append((last_offset, durable))

    def note_durable(self, offset: int) -> None:
        """Note that records before `offset` are as durable as promised on this node."""
        if self.keeping:
            self.keeping.resolve(offset)
        self.advance(offset)
        if self.on_durable is not None:
            self.on_durable()

    def advance(self, offset: int) -> None:
        """Raise the high watermark, up to the commit limit, and notify its waiters."""
        if offset > self.commit_limit:
            offset = self.commit_limit
        if offset <= self.high_watermark:
            return
        if self.observer is not None and not self.is_following:
            self.observer.replicated(self.name, (self.high_watermark, offset))
        self.high_watermark = offset
        if self.transactions.first_unstable is not None:
            self.transactions.advance(offset)
        if self.committing:
            self.committing.resolve(offset)
        if self.watchers:
            self.notify_watchers()

    def notify_watchers(self) -> None:
        for watcher in list(self.watchers):
            watcher.partition_advanced(self)

    # Reads

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which no open transaction can change what a reader sees."""
        unstable, end = self.transactions.first_unstable, self.high_watermark
        if unstable is None or unstable >= end:
            return end
        return min(end, max(unstable, self.log.start_offset))

    def check_leading(self) -> None:
        """Raise unless this replica leads."""
        if self.is_following and self.refusal is not None:
            raise self.refusal

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client whose metadata has an older or a newer leader epoch."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"Epoch {epoch} of {self.name} is over; {self.leader_epoch} is current."
            )
        raise UnknownLeaderEpoch(f"Epoch {epoch} of {self.name} is not yet known here; retry.")

    def read(
        self,
        offset: int,
        *,
        bytes_max: int,
        is_committed_only: bool = False,
        until_offset: int | None = None,
    ) -> Slice | None:
        """Return committed batches from `offset` on, before `until_offset`; None if there are none.

        With `is_committed_only` their transactions are ended too, but maybe aborted: `aborted_in`
        returns which.
        """
        if self.is_gone and self.failure is not None:
            raise self.failure
        log, until = self.log, self.high_watermark
        if offset < log.start_offset or (offset > until and offset > log.end_offset):
            raise OffsetOutOfRange(self.name, offset, start=log.start_offset, end=until)
        if is_committed_only and self.transactions.first_unstable is not None:
            until = self.last_stable_offset
        until = until if until_offset is None else min(until, until_offset)
        if offset >= until:
            return None
        try:
            return log.read(offset, bytes_max=bytes_max, until_offset=until)
        except OSError as error:
            raise self.unreadable(error, offset) from error

    def aborted_in(self, batches: Slice) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions with records in these batches."""
        log = self.log
        if not log.has_aborted(batches.offset):
            return ()
        try:
            return find_aborted(log, batches.offset, batches.end_offset)
        except OSError as error:
            raise self.unreadable(error, batches.offset) from error

    def find_timestamp(self, timestamp: int, *, is_committed_only: bool = False) -> Record | None:
        until = self.last_stable_offset if is_committed_only else self.high_watermark
        try:
            return find_timestamp(self.log, timestamp, until_offset=until)
        except OSError as error:
            raise self.unreadable(error) from error

    def offset_at_time(self, timestamp: int) -> int:
        """Return the offset of the first batch with a record at least as new, or the end."""
        try:
            return offset_at_time(self.log, timestamp, until_offset=self.high_watermark)
        except OSError as error:
            raise self.unreadable(error) from error

    def find_newest(self, *, is_committed_only: bool = False) -> Record | None:
        until = self.last_stable_offset if is_committed_only else self.high_watermark
        try:
            return find_newest(self.log, until_offset=until)
        except OSError as error:
            raise self.unreadable(error) from error

    def records_end(self, *, batches_max: int = SLICE_BATCHES) -> int:
        """Return the offset after the last record below the high watermark.

        Markers and records of aborted transactions do not count; those of open transactions do. A
        group that has committed this offset, or a later one, has nothing left to read. The result
        may be too large until `without_records` is whole.
        """
        try:
            self.without_records = search_back(
                self.log, self.high_watermark, self.without_records, batches_max=batches_max
            )
        except OSError as error:
            raise self.unreadable(error) from error
        return self.without_records.since

    def unreadable(self, error: OSError | CorruptBatch, offset: int | None = None) -> GoQueueError:
        """Return the error for a read that failed, on disk or because of a damaged batch.

        What the disk cannot read from `offset` on counts as damage of this replica, so that an
        intact one can take its place.
        """
        if isinstance(error, OSError):
            if offset is not None:
                self.replica.note_failed_read(error, offset)
            return StorageFailed(f"Reading from {self.name} failed: {error.strerror}; retry.")
        # Another replica may have the batch intact.
        return NotLeader(self.name, NO_LEADER) if self.is_following else error

    # The end

    def close(self) -> PartitionState:
        """Write what is in memory and close the files; everything must be synced before."""
        state = self.log.close()
        producers = self.history.state(high_watermark=self.high_watermark)
        return PartitionState(state, producers, self.epochs.entries)

    def fail(self, error: OSError) -> None:
        """End writing: after a failed sync the content of the disk is unknown."""
        self._end(
            StorageFailed(
                f"Partition {self.name} cannot be written: {error.strerror}. Restart the node "
                "when the disk is repaired."
            )
        )

    def retire(self, error: GoQueueError) -> None:
        """Mark the partition as deleted, and notify all waiters."""
        self.is_gone = True
        self._end(error)
        self.notify_watchers()
        for segment in self.log.segments:
            segment.close()

    def _end(self, error: GoQueueError) -> None:
        self.failure = self.refusal = error
        self.durability.give_up()
        self.committing.fail(error)
        self.keeping.fail(error)
