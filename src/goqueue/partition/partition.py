"""A partition: a log with a high watermark, epochs and producers; append, fetch, wait."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from goqueue.model.batch import (
    TRANSACTIONAL,
    BatchHeader,
    Record,
    decode_marker,
    encode_marker,
    read_header,
    stamp,
    stamp_append_time,
)
from goqueue.model.errors import (
    FencedLeaderEpoch,
    GoQueueError,
    InvalidTransactionState,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
    UnknownLeaderEpoch,
)
from goqueue.model.names import TopicPartition
from goqueue.partition.epochs import LeaderEpochs
from goqueue.partition.history import (
    FIRST_EPOCH,
    Flush,
    forget_saved_producers,
    replayed,
    saved_epochs,
    saved_producers,
)
from goqueue.partition.producers import Producers, ProducersState
from goqueue.partition.rules import PartitionSettings, check_produced, recompress
from goqueue.partition.transactions import AbortedTransaction, OpenTransaction, Transactions
from goqueue.storage.aborted import find_aborted, has_aborted
from goqueue.storage.commit_journal import Tail
from goqueue.storage.disk import Disk
from goqueue.storage.log import Log, LogState, Slice, SyncPoint

# How much log may have to be read again to know the producers after a crash.
_SNAPSHOT_BYTES = 1 << 20

Committed = Callable[[GoQueueError | None], None]


class Appended(NamedTuple):
    """Where a batch went. `timestamp_ms` is -1 unless the broker set the time."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class Watcher(Protocol):
    """Somebody who waits for records."""

    def partition_advanced(self, partition: Partition) -> None: ...


class PartitionState(msgspec.Struct, array_like=True):
    """A closed partition, kept so that opening it again needs no look at its files."""

    log: LogState
    producers: ProducersState
    epochs: list[tuple[int, int]]


class Partition:
    """The leader's copy of one partition.

    Records up to `high_watermark` are committed: as durable as promised, and visible. With
    `waits_for_sync` that means synced; otherwise it means written.
    """

    __slots__ = (
        "_committing",
        "_disk",
        "_epochs_saved",
        "_mark_dirty",
        "_snapshot_due",
        "bytes_in",
        "epochs",
        "failure",
        "high_watermark",
        "is_gone",
        "key",
        "leader_epoch",
        "log",
        "name",
        "producers",
        "records_in",
        "settings",
        "synced_offset",
        "transactions",
        "waits_for_sync",
        "watchers",
    )

    def __init__(
        self,
        name: TopicPartition,
        disk: Disk,
        log: Log,
        settings: PartitionSettings,
        *,
        key: bytes,
        producers: Producers,
        transactions: Transactions,
        epochs: LeaderEpochs,
        leader_epoch: int,
        waits_for_sync: bool,
        mark_dirty: Callable[[Partition], None],
    ) -> None:
        self.name = name
        self.key = key
        self.log = log
        self.settings = settings
        self.producers = producers
        self.transactions = transactions
        self.epochs = epochs
        self.leader_epoch = leader_epoch
        log.epoch_max = leader_epoch
        self.waits_for_sync = waits_for_sync
        self.high_watermark = log.end_offset
        transactions.advance(log.end_offset)
        self.synced_offset = log.end_offset
        self.failure: GoQueueError | None = None
        self.is_gone = False
        self.watchers: dict[Watcher, None] = {}
        self.bytes_in = 0
        self.records_in = 0
        self._disk = disk
        self._mark_dirty = mark_dirty
        self._committing: deque[tuple[int, Committed]] = deque()
        self._snapshot_due = _SNAPSHOT_BYTES
        self._epochs_saved = epochs.entries

    # Opening and closing

    @classmethod
    def recover(
        cls,
        name: TopicPartition,
        disk: Disk,
        folder: str,
        settings: PartitionSettings,
        *,
        key: bytes,
        leader_epoch: int,
        waits_for_sync: bool,
        mark_dirty: Callable[[Partition], None],
        now_ms: int,
    ) -> tuple[Partition, list[str]]:
        """Open a partition after a crash, or for the first time; also say what was damaged."""
        log, reports = Log.recover(disk, folder, settings.log, now_ms=now_ms)
        saved = saved_producers(disk, log)
        epochs_saved = saved_epochs(disk, log, saved)
        epochs = LeaderEpochs(epochs_saved)
        epochs.truncate(log.end_offset)
        producers, transactions = replayed(log, saved, epochs, now_ms=now_ms)
        partition = cls(
            name,
            disk,
            log,
            settings,
            key=key,
            producers=producers,
            transactions=transactions,
            epochs=epochs,
            leader_epoch=leader_epoch,
            waits_for_sync=waits_for_sync,
            mark_dirty=mark_dirty,
        )
        partition._epochs_saved = epochs_saved
        return partition, reports

    @classmethod
    def reopen(
        cls,
        name: TopicPartition,
        disk: Disk,
        folder: str,
        settings: PartitionSettings,
        state: PartitionState,
        *,
        key: bytes,
        leader_epoch: int,
        waits_for_sync: bool,
        mark_dirty: Callable[[Partition], None],
    ) -> Partition:
        """Open a partition that was closed, without touching its files."""
        return cls(
            name,
            disk,
            Log.reopen(disk, folder, settings.log, state.log),
            settings,
            key=key,
            producers=Producers(state.producers.producers),
            transactions=Transactions(state.producers.transactions),
            epochs=LeaderEpochs(state.epochs),
            leader_epoch=leader_epoch,
            waits_for_sync=waits_for_sync,
            mark_dirty=mark_dirty,
        )

    def close(self) -> PartitionState:
        """Write what is in memory and give the descriptors back; all must be synced before."""
        state = self.log.close()
        return PartitionState(state, self._producers_state(), self.epochs.entries)

    # Writing

    def append(self, batch: memoryview, *, now_ms: int) -> Appended:
        """Store a producer's batch, given as writable bytes; it is stamped in place."""
        if self.failure is not None:
            raise self.failure
        settings = self.settings
        header = check_produced(batch, settings, now_ms=now_ms)
        if header.producer_id >= 0:
            earlier = self.producers.check(header)
            if earlier is not None:
                timestamp_ms = earlier.timestamp_ms if settings.is_append_time else -1
                return Appended(earlier.base_offset, earlier.last_offset, timestamp_ms)
            self.check_transaction(header)
        if settings.compression is not None and header.codec != settings.compression:
            batch = memoryview(recompress(batch, header, settings.compression))
        return self.write(batch, now_ms=now_ms, is_append_time=settings.is_append_time)

    def check_transaction(self, header: BatchHeader) -> None:
        """Refuse a producer's batch that does not go with the transactions that are open here."""
        if header.attributes & TRANSACTIONAL:
            self.transactions.check_room(header.producer_id)
        elif len(self.transactions) and self.transactions.get(header.producer_id) is not None:
            raise InvalidTransactionState(
                f"Producer {header.producer_id} has a transaction open in {self.name}; end it "
                "before writing outside of it."
            )

    def write(self, batch: memoryview, *, now_ms: int, is_append_time: bool = False) -> Appended:
        """Put a batch that is known to be good at the end of the log."""
        log = self.log
        stamp(batch, base_offset=log.end_offset, leader_epoch=self.leader_epoch)
        if is_append_time:
            stamp_append_time(batch, now_ms)
        header = read_header(batch)
        try:
            log.append(batch, header, now_ms=now_ms)
        except OSError as error:
            raise self._storage_error(error) from error
        if header.attributes & TRANSACTIONAL:
            self._note_transactional(header, batch, now_ms=now_ms)
        self._note_written(header, len(batch), now_ms=now_ms)
        return Appended(header.base_offset, header.last_offset, now_ms if is_append_time else -1)

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        is_commit: bool,
        coordinator_epoch: int,
        now_ms: int,
    ) -> Appended:
        """End a producer's transaction here, for good once the marker is committed.

        Whoever writes with a lower epoch is turned away from now on. A marker that is here
        already, because a coordinator that crashed could not know, is not written again.
        """
        if self.failure is not None:
            raise self.failure
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

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        """What a producer has written here and not decided yet."""
        return self.transactions.get(producer_id)

    def _note_transactional(self, header: BatchHeader, batch: memoryview, *, now_ms: int) -> None:
        if not header.is_control:
            self.transactions.note(header)
            return
        marker = decode_marker(batch)
        self.records_in -= header.record_count  # Nobody sent it.
        self.producers.note_marker(header, marker, now_ms=now_ms)
        aborted = self.transactions.end(header, is_commit=marker.is_commit)
        if aborted is not None:
            self.log.active.note_aborted(aborted)

    def _note_written(self, header: BatchHeader, size: int, *, now_ms: int) -> None:
        if header.producer_id >= 0:
            self.producers.note(header, now_ms=now_ms)
        if self.epochs.latest != header.leader_epoch:
            self.epochs.note(header.leader_epoch, header.base_offset)
        self.bytes_in += size
        self.records_in += header.record_count
        self._snapshot_due -= size
        if not self.waits_for_sync:
            self._advance(header.next_offset)
        self._mark_dirty(self)

    def when_committed(self, last_offset: int, committed: Committed) -> None:
        """Call `committed` once the record at `last_offset` is as durable as promised."""
        if last_offset < self.high_watermark:
            committed(None)
        elif self.failure is not None:
            committed(self.failure)
        else:
            self._committing.append((last_offset, committed))

    # Durability

    @property
    def is_dirty(self) -> bool:
        has_news = self.synced_offset < self.log.end_offset or self.log.has_unsealed
        return has_news and self.failure is None

    def flush(self) -> Flush:
        """What is to be made durable now."""
        producers = epochs = None
        if self._snapshot_due <= 0:
            self._snapshot_due = _SNAPSHOT_BYTES
            producers = self._producers_state()
        entries = self.epochs.entries
        # A log of the first epoch alone needs no file to say so.
        if entries != self._epochs_saved and entries != [FIRST_EPOCH]:
            epochs = entries
        return Flush(self._disk, self.log.folder, self.log.sync_point(), producers, epochs)

    def flushed(self, flush: Flush) -> None:
        """Take note that `flush.run()` has succeeded."""
        if not flush.has_saved:
            self._snapshot_due = 0
        elif flush.epochs is not None:
            self._epochs_saved = flush.epochs
        self.log.synced(flush.point)
        self._note_durable(flush.point.end_offset)

    def tail(self, flush: Flush) -> Tail:
        """What the commit journal may hold instead of `flush.run()`."""
        return flush.point.tail(self.key)

    def journaled(self, flush: Flush) -> None:
        """Take note that the tail is durable in the commit journal."""
        self.log.journaled(flush.point)
        self._note_durable(flush.point.end_offset)

    def settlement(self) -> SyncPoint:
        """What makes the commit journal's entries for this partition superfluous, once synced."""
        return self.log.sync_point()

    def settled(self, point: SyncPoint) -> None:
        """Take note that a settlement is synced.

        Records that came after the last round are durable now too, but not yet committed: what
        they rely on may be in another partition.
        """
        self.log.synced(point)

    def _note_durable(self, offset: int) -> None:
        self.synced_offset = max(self.synced_offset, offset)
        if self.waits_for_sync:
            self._advance(self.synced_offset)

    def fail(self, error: OSError) -> None:
        """The disk could not sync. What it holds is unknown from here on, so writing ends."""
        self._end(
            StorageFailed(
                f"Partition {self.name} cannot be written: {error.strerror}. Restart the node "
                "when the disk is sound again."
            )
        )

    def retire(self, error: GoQueueError) -> None:
        """The partition was deleted: whoever waits for it, or asks for it, is told so."""
        self.is_gone = True
        self._end(error)
        for watcher in list(self.watchers):
            watcher.partition_advanced(self)
        for segment in self.log.segments:
            segment.close()

    def _end(self, error: GoQueueError) -> None:
        self.failure = error
        waiting, self._committing = self._committing, deque()
        for _, committed in waiting:
            committed(error)

    def _advance(self, offset: int) -> None:
        """Raise the high watermark and tell everyone who waits for it."""
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self.transactions.advance(offset)
        committing = self._committing
        while committing and committing[0][0] < offset:
            committing.popleft()[1](None)
        if self.watchers:
            for watcher in list(self.watchers):
                watcher.partition_advanced(self)

    def _storage_error(self, error: OSError) -> GoQueueError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull(f"No room on the disk for {self.name}; retry when there is.")
        return StorageFailed(f"Writing to {self.name} failed: {error.strerror}; retry.")

    # Reading

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where no transaction that is not decided can change what a reader sees."""
        unstable, end = self.transactions.first_unstable, self.high_watermark
        if unstable is None or unstable >= end:
            return end
        return min(end, max(unstable, self.log.start_offset))

    def aborted(self, first_offset: int, until_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `first_offset` up to `until_offset`."""
        try:
            return find_aborted(self.log, first_offset, until_offset)
        except OSError as error:
            raise self.unreadable(error) from error

    def aborted_in(self, batches: Slice) -> Sequence[AbortedTransaction]:
        """The aborted transactions that have a part in these batches."""
        try:
            if not has_aborted(self.log, batches.offset):
                return ()
            return find_aborted(self.log, batches.offset, batches.end_offset)
        except OSError as error:
            raise self.unreadable(error) from error

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows an older leader, or a newer one, than this."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"Epoch {epoch} of {self.name} is over; {self.leader_epoch} is current."
            )
        raise UnknownLeaderEpoch(f"Epoch {epoch} of {self.name} is not known here yet; retry.")

    def read(self, offset: int, *, bytes_max: int, is_committed_only: bool = False) -> Slice | None:
        """Batches that are safe from `offset` on; None when there are none yet.

        With `is_committed_only` these are decided too, but not all of them need be committed:
        `aborted` tells which are not.
        """
        if self.is_gone and self.failure is not None:
            raise self.failure
        if offset < self.log.start_offset or offset > self.log.end_offset:
            raise OffsetOutOfRange(
                self.name, offset, start=self.log.start_offset, end=self.high_watermark
            )
        until = self.last_stable_offset if is_committed_only else self.high_watermark
        if offset >= until:
            return None
        try:
            return self.log.read(offset, bytes_max=bytes_max, until_offset=until)
        except OSError as error:
            raise self.unreadable(error) from error

    def find_timestamp(self, timestamp: int, *, is_committed_only: bool = False) -> Record | None:
        until = self.last_stable_offset if is_committed_only else self.high_watermark
        try:
            return self.log.find_timestamp(timestamp, until_offset=until)
        except OSError as error:
            raise self.unreadable(error) from error

    def find_newest(self, *, is_committed_only: bool = False) -> Record | None:
        until = self.last_stable_offset if is_committed_only else self.high_watermark
        try:
            return self.log.find_newest(until_offset=until)
        except OSError as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: OSError) -> GoQueueError:
        """What to tell a reader whom the disk has failed."""
        return StorageFailed(f"Reading from {self.name} failed: {error.strerror}; retry.")

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest epoch not after `epoch` and where it ended; for clients that lost a leader."""
        return self.epochs.end_offset(epoch, log_end=self.log.end_offset)

    # Upkeep

    def expire_producers(self, *, before_ms: int, states_max: int) -> None:
        """Forget producers that have been silent for long, and those that are too many."""
        still_open = {one.producer_id for one in self.transactions}
        self.producers.expire(before_ms=before_ms, states_max=states_max, kept=still_open)

    def truncate(self, offset: int, error: GoQueueError, *, now_ms: int) -> None:
        """Drop everything from `offset` on, as if it had never been written. Blocks.

        What producers and transactions had done there is undone: a transaction whose marker goes
        is open again. Whoever waits for a record that goes is told `error`.
        """
        forget_saved_producers(self._disk, self.log, after_offset=offset)
        self.log.truncate(offset)
        end = self.log.end_offset
        self.high_watermark = min(self.high_watermark, end)
        self.synced_offset = min(self.synced_offset, end)
        self.epochs.truncate(end)
        saved = saved_producers(self._disk, self.log)
        self.producers, self.transactions = replayed(self.log, saved, self.epochs, now_ms=now_ms)
        self.transactions.advance(self.high_watermark)
        while self._committing and self._committing[-1][0] >= end:
            self._committing.pop()[1](error)

    def start_advanced(self) -> None:
        """The log begins later than before: what is known of the records before is forgotten."""
        self.epochs.advance_start(self.log.start_offset)
        if self.transactions.forget_before(self.log.start_offset):
            for watcher in list(self.watchers):
                watcher.partition_advanced(self)

    def _producers_state(self) -> ProducersState:
        active = self.log.active
        return ProducersState(
            self.log.end_offset,
            self.producers.state(),
            self.transactions.state(),
            active.base_offset,
            active.aborted_count,
        )

    def delete_before(self, offset: int) -> int:
        """Make records before `offset` unreadable (-1: all committed ones); the new start."""
        target = self.high_watermark if offset == -1 else offset
        if target > self.high_watermark or target < 0:
            raise OffsetOutOfRange(
                self.name, target, start=self.log.start_offset, end=self.high_watermark
            )
        try:
            self.log.advance_start(target)
        except OSError as error:
            raise self._storage_error(error) from error
        self.start_advanced()
        return self.log.start_offset
