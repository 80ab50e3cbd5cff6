"""A partition: a log with a high watermark, epochs and producers; append, fetch, wait."""

from __future__ import annotations

import errno
import threading
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
    NotLeader,
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
    cut_unsynced,
    first_damage,
    forget_history,
    forget_saved_producers,
    replayed,
    save_epochs,
    saved_epochs,
    saved_producers,
    truncate_durably,
)
from goqueue.partition.producers import Producers, ProducersState
from goqueue.partition.replicated import replicated_batches
from goqueue.partition.rules import PartitionSettings, check_produced, recompress
from goqueue.partition.transactions import AbortedTransaction, OpenTransaction, Transactions
from goqueue.storage.aborted import find_aborted, has_aborted
from goqueue.storage.commit_journal import Tail
from goqueue.storage.disk import Disk
from goqueue.storage.log import Log, LogState, Slice, SyncPoint
from goqueue.storage.segment import Segment

# How much log may have to be read again to know the producers after a crash.
_SNAPSHOT_BYTES = 1 << 20
# The high watermark of a partition that nobody else has a copy of follows its own disk alone.
_NO_LIMIT = 1 << 63
NO_LEADER = -1

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
    """One copy of a partition: the only one, the leader's or a follower's.

    Records up to `high_watermark` are committed: as durable as promised, and visible. With
    `waits_for_sync` that means synced; otherwise it means written. Where there are followers it
    means so on all of the copies that are in sync, of which others keep count (`set_commit_limit`).
    A copy that is opened as a replica is a follower until it is told otherwise.
    """

    __slots__ = (
        "_commit_limit",
        "_committing",
        "_disk",
        "_epochs_saved",
        "_flush",
        "_flush_lock",
        "_is_truncating",
        "_keeping",
        "_mark_dirty",
        "_refusal",
        "_snapshot_due",
        "bytes_in",
        "damaged_from",
        "epoch_start",
        "epochs",
        "failure",
        "high_watermark",
        "is_following",
        "is_gone",
        "key",
        "leader_epoch",
        "log",
        "name",
        "on_durable",
        "on_written",
        "producers",
        "records_in",
        "settings",
        "shortage",
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
        replica_mark: int | None = None,
    ) -> None:
        """`replica_mark` is the high watermark as far as a replica knows it."""
        self.name = name
        self.key = key
        self.log = log
        self.settings = settings
        self.producers = producers
        producers.is_partial = log.start_offset > 0
        self.transactions = transactions
        self.epochs = epochs
        self.leader_epoch = leader_epoch
        # A node that was down may not know yet who leads now; its log knows who has led.
        log.epoch_max = (
            max(leader_epoch, epochs.latest) if replica_mark is not None else leader_epoch
        )
        self.waits_for_sync = waits_for_sync
        self.high_watermark = log.end_offset
        if replica_mark is not None:
            self.high_watermark = max(log.start_offset, min(replica_mark, log.end_offset))
        transactions.advance(self.high_watermark)
        self.synced_offset = log.end_offset
        self.failure: GoQueueError | None = None
        self.is_gone = False
        self.is_following = replica_mark is not None
        # Why nobody may write here, if so: a failure, or another node leads.
        self._refusal: GoQueueError | None = None
        if self.is_following:
            self._refusal = NotLeader(name, NO_LEADER)
        # Why nothing can be committed now, if so: too few replicas are in sync.
        self.shortage: GoQueueError | None = None
        self.epoch_start = log.end_offset
        # Where recovery has found the first batch that it could neither read nor cut off.
        self.damaged_from: int | None = None
        self.on_durable: Callable[[], None] | None = None
        self.on_written: Callable[[], None] | None = None
        self._commit_limit = self.high_watermark if self.is_following else _NO_LIMIT
        self._keeping: deque[tuple[int, Committed]] = deque()
        self._flush: Flush | None = None
        self._flush_lock = threading.Lock()
        self._is_truncating = False
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
        is_replica: bool = False,
    ) -> tuple[Partition, list[str]]:
        """Open a partition after a crash, or for the first time; also say what was damaged."""
        log, reports = Log.recover(disk, folder, settings.log, now_ms=now_ms)
        saved = saved_producers(disk, log)
        if is_replica:
            reports += cut_unsynced(log, saved)
        epochs_saved = saved_epochs(disk, log, saved)
        epochs = LeaderEpochs(epochs_saved)
        epochs.truncate(log.end_offset)
        producers, transactions = replayed(log, saved, epochs, now_ms=now_ms)
        replica_mark = saved.high_watermark if is_replica else None
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
            replica_mark=replica_mark,
        )
        partition._epochs_saved = epochs_saved
        partition.damaged_from = first_damage(log)
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
        is_replica: bool = False,
    ) -> Partition:
        """Open a partition that was closed, without touching its files."""
        return cls(
            name,
            disk,
            Log.reopen(disk, folder, settings.log, state.log),
            settings,
            key=key,
            producers=Producers(state.producers.producers),
            transactions=Transactions(state.producers.transactions, state.producers.ended),
            epochs=LeaderEpochs(state.epochs),
            leader_epoch=leader_epoch,
            waits_for_sync=waits_for_sync,
            mark_dirty=mark_dirty,
            replica_mark=state.producers.high_watermark if is_replica else None,
        )

    def close(self) -> PartitionState:
        """Write what is in memory and give the descriptors back; all must be synced before."""
        state = self.log.close()
        return PartitionState(state, self._producers_state(), self.epochs.entries)

    # Writing

    def append(self, batch: memoryview, *, now_ms: int) -> Appended:
        """Store a producer's batch, given as writable bytes; it is stamped in place."""
        if self._refusal is not None:
            raise self._refusal
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
        if self.is_following:
            raise self._refusal or NotLeader(self.name, NO_LEADER)
        stamp(batch, base_offset=self.log.end_offset, leader_epoch=self.leader_epoch)
        if is_append_time:
            stamp_append_time(batch, now_ms)
        header = read_header(batch)
        self._store(batch, header, now_ms=now_ms)
        return Appended(header.base_offset, header.last_offset, now_ms if is_append_time else -1)

    def append_replicated(self, batches: memoryview, *, now_ms: int) -> None:
        """Store batches of the leader as they are; raise when they do not fit the end of the log.

        Those before the one that does not fit, or for which there is no room, stay.
        """
        if self.failure is not None:
            raise self.failure
        assert self.is_following, "a leader's log has no other source"
        assert not self._is_truncating, "where the log will end is not known yet"
        for header, batch in replicated_batches(
            batches,
            offset=self.log.end_offset,
            epoch_min=self.epochs.latest,
            epoch_max=self.leader_epoch,
        ):
            self._store(batch, header, now_ms=now_ms)

    def _store(self, batch: memoryview, header: BatchHeader, *, now_ms: int) -> None:
        try:
            self.log.append(batch, header, now_ms=now_ms)
        except OSError as error:
            raise self._storage_error(error) from error
        # Compaction may leave nothing of a marker but its sequence number.
        if header.attributes & TRANSACTIONAL and header.record_count:
            self._note_transactional(header, batch, now_ms=now_ms)
        self._note_written(header, len(batch), now_ms=now_ms)

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
        if self._refusal is not None:
            raise self._refusal
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
            self._keep(header.next_offset)
        self._mark_dirty(self)
        if self.on_written is not None:
            self.on_written()

    def when_committed(self, last_offset: int, committed: Committed) -> None:
        """Call `committed` once the record at `last_offset` is as durable as promised."""
        if last_offset < self.high_watermark:
            committed(None)
        elif self._refusal is not None or self.shortage is not None:
            committed(self._refusal or self.shortage)
        else:
            self._committing.append((last_offset, committed))

    def when_durable(self, last_offset: int, durable: Committed) -> None:
        """Call `durable` once this node has the record at `last_offset` as durably as promised.

        Whoever is content with that may lose the record together with this node.
        """
        if self._commit_limit == _NO_LIMIT:
            self.when_committed(last_offset, durable)
        elif last_offset < self.durable_offset:
            durable(None)
        elif self._refusal is not None:
            durable(self._refusal)
        else:
            self._keeping.append((last_offset, durable))

    # Durability

    @property
    def is_dirty(self) -> bool:
        has_news = self.synced_offset < self.log.end_offset or self.log.has_unsealed
        return has_news and self.failure is None and not self._is_truncating

    @property
    def is_flushing(self) -> bool:
        """Whether a thread is at the files just now."""
        return self._flush_lock.locked()

    @property
    def durable_offset(self) -> int:
        """The offset below which records are as durable as promised here, on this node."""
        return self.synced_offset if self.waits_for_sync else self.log.end_offset

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
        point, lock = self.log.sync_point(), self._flush_lock
        self._flush = Flush(self._disk, self.log.folder, point, producers, epochs, lock)
        return self._flush

    def flushed(self, flush: Flush) -> None:
        """Take note that `flush.run()` has succeeded."""
        if flush.is_cancelled:
            self._flush_again()
            return
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
        if flush.is_cancelled:
            self._flush_again()
            return
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
            self._keep(self.synced_offset)

    def _keep(self, offset: int) -> None:
        """Records before `offset` are as durable here as promised."""
        if self._keeping:
            self._tell_kept(offset)
        self._advance(offset)
        if self.on_durable is not None:
            self.on_durable()

    def _tell_kept(self, offset: int) -> None:
        keeping = self._keeping
        while keeping and keeping[0][0] < offset:
            keeping.popleft()[1](None)

    def _flush_again(self) -> None:
        """A round was for a part of the log that has been replaced; its successor needs another."""
        self._snapshot_due = 0
        if self.is_dirty:
            self._mark_dirty(self)

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
        self.failure = self._refusal = error
        self._disappoint(error)

    def _disappoint(self, error: GoQueueError) -> None:
        """Tell everyone who waits for a record to be safe that nobody can say when it will be."""
        waiting = [*self._committing, *self._keeping]
        self._committing, self._keeping = deque(), deque()
        for _, told in waiting:
            told(error)

    def _advance(self, offset: int) -> None:
        """Raise the high watermark, as far as it may, and tell everyone who waits for it."""
        if offset > self._commit_limit:
            offset = self._commit_limit
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

    # Roles

    def become_leader(self, leader_epoch: int) -> None:
        """Take writes from now on, in an epoch that nobody else has written in.

        Nothing more is committed before `set_commit_limit` says so.
        """
        if leader_epoch <= self.epochs.latest:
            raise FencedLeaderEpoch(
                f"{self.name} has records of epoch {self.epochs.latest}; a leader of epoch "
                f"{leader_epoch} cannot go on from there."
            )
        self._begin_epoch(leader_epoch)
        self.is_following, self._refusal = False, self.failure

    def become_follower(self, leader_epoch: int, *, leader: int) -> None:
        """Take only what the leader sends. Whoever waits here is told to go there."""
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"{self.name} has reached epoch {self.leader_epoch}; a leader of epoch "
                f"{leader_epoch} is not followed any more."
            )
        self._begin_epoch(leader_epoch)
        refusal = self.failure or NotLeader(self.name, leader)
        self.is_following, self._refusal = True, refusal
        self._disappoint(refusal)
        for watcher in list(self.watchers):
            watcher.partition_advanced(self)

    def _begin_epoch(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.log.epoch_max = max(leader_epoch, self.epochs.latest)
        self.epoch_start = self.log.end_offset
        self.shortage = self.on_durable = self.on_written = None
        self._commit_limit = self.high_watermark
        self._end_truncation()

    def set_commit_limit(self, offset: int) -> None:
        """On the leader: all replicas that are in sync have what is before `offset`."""
        self._commit_limit = max(self._commit_limit, offset)
        self._advance(self.durable_offset)

    def set_shortage(self, shortage: GoQueueError | None) -> None:
        """On the leader: too few replicas are in sync for anything to be committed, or no more.

        Whoever waits is told; the records stay, and are committed when there are enough again.
        """
        self.shortage = shortage
        if shortage is not None:
            waiting, self._committing = self._committing, deque()
            for _, committed in waiting:
                committed(shortage)

    def follow(self, *, high_watermark: int, start_offset: int) -> None:
        """On a follower whose log is a part of the leader's: what the leader says of it."""
        mark = min(max(high_watermark, start_offset), self.log.end_offset)
        self._commit_limit = max(self._commit_limit, mark)
        self._advance(mark)
        if self.log.start_offset < start_offset <= self.log.end_offset:
            try:
                self.log.advance_start(start_offset)
            except OSError as error:
                raise self._storage_error(error) from error
            self.start_advanced()

    # Reading

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch; -1 when there has never been one."""
        return self.epochs.latest

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

    def check_leading(self) -> None:
        """Refuse whoever may only be served by the leader, unless that is here."""
        if self.is_following and self._refusal is not None:
            raise self._refusal

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

    def read_uncommitted(self, offset: int, *, bytes_max: int) -> Slice | None:
        """Batches from `offset` to the end, for replicas alone; None at the end."""
        try:
            return self.log.read(offset, bytes_max=bytes_max, until_offset=self.log.end_offset)
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

    def begin_truncation(self) -> None:
        """Let no round of syncing take this partition in until `truncate` or `restart`.

        What such a round puts into the commit journal would come back after a crash. So whoever
        truncates begins with this, then has the journal cleared, and only then truncates.
        """
        self._is_truncating = True

    def truncate(self, offset: int, error: GoQueueError, *, now_ms: int) -> None:
        """Drop everything from `offset` on, as if it had never been written. Blocks.

        What producers and transactions had done there is undone: a transaction whose marker goes
        is open again. Whoever waits for a record that goes is told `error`. All of it is durable
        before anything else is written there: a log of both histories would pass for whole.
        """
        self._cancel_flush()
        forget_saved_producers(self._disk, self.log, after_offset=offset)
        truncate_durably(self.log, offset)
        end = self.log.end_offset
        self.epochs.truncate(end)
        self._save_epochs()
        saved = saved_producers(self._disk, self.log)
        self._replace_history(saved, now_ms=now_ms)
        waiting = [one for one in self._committing if one[0] >= end]
        self._committing = deque(one for one in self._committing if one[0] < end)
        for _, committed in waiting:
            committed(error)

    def restart(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and begin anew at `offset`, where the leader's log begins. Blocks."""
        assert self.is_following, "only a copy can be had again from elsewhere"
        self._cancel_flush()
        forget_history(self._disk, self.log.folder)
        self.log.restart(offset, now_ms=now_ms)
        self.log.active.file.sync()
        self.epochs.truncate(0)
        self._save_epochs()
        self.high_watermark = self.synced_offset = offset
        saved = saved_producers(self._disk, self.log)
        self._replace_history(saved, now_ms=now_ms)

    def _replace_history(self, saved: ProducersState, *, now_ms: int) -> None:
        """Learn from the log that is left what producers and transactions have done."""
        end = self.log.end_offset
        self.high_watermark = min(self.high_watermark, end)
        self.synced_offset = min(self.synced_offset, end)
        self.epoch_start = min(self.epoch_start, end)
        if self._commit_limit != _NO_LIMIT:
            self._commit_limit = self.high_watermark
        self.producers, self.transactions = replayed(self.log, saved, self.epochs, now_ms=now_ms)
        self.producers.is_partial = self.log.start_offset > 0
        self.transactions.advance(self.high_watermark)
        if self.damaged_from is not None and self.damaged_from >= end:
            self.damaged_from = None
        self._end_truncation()

    def _end_truncation(self) -> None:
        """Whether it was done or given up: what is here is to be synced again."""
        self._is_truncating = False
        if self.is_dirty:
            self._mark_dirty(self)

    def _cancel_flush(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None

    def _save_epochs(self) -> None:
        entries = self.epochs.entries
        if entries != self._epochs_saved:
            save_epochs(self._disk, self.log.folder, entries)
            self._epochs_saved = entries

    def take_expired(self, *, now_ms: int) -> list[Segment]:
        """Take out the segments that are no longer wanted; the caller removes their files.

        What that is the leader decides; a follower's log begins where the leader's does.
        """
        log, start_before = self.log, self.log.start_offset
        if not self.is_following:
            expired = log.take_expired(now_ms=now_ms, until_offset=self.high_watermark)
        else:
            ends = [segment.end_offset for segment in log.segments[:-1]]
            expired = log.take_segments(sum(end <= log.start_offset for end in ends))
        if expired:
            # A crash may bring back some of the files and not others, so the log must know without
            # them where it begins. It writes that down where the beginning is moved by hand.
            start, log.start_offset = log.start_offset, start_before
            try:
                log.advance_start(start)
            except OSError as error:
                log.start_offset = start
                raise self._storage_error(error) from error
            self.start_advanced()
        return expired

    def start_advanced(self) -> None:
        """The log begins later than before: what is known of the records before is forgotten."""
        self.epochs.advance_start(self.log.start_offset)
        self.producers.is_partial = True
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
            self.high_watermark,
            self.transactions.ended(),
        )

    def delete_before(self, offset: int) -> int:
        """Make records before `offset` unreadable (-1: all committed ones); the new start."""
        if self.is_following and self._refusal is not None:
            raise self._refusal
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
