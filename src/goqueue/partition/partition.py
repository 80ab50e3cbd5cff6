"""A partition: a log with a high watermark, epochs and producers; append, fetch, wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from goqueue.model.batch import (
    HEADER_BYTES,
    NO_EPOCH,
    TRANSACTIONAL,
    BatchHeader,
    decode_marker,
    encode_marker,
    read_header,
    stamp,
    stamp_append_time,
)
from goqueue.model.compression import Buffer
from goqueue.model.errors import (
    FencedLeaderEpoch,
    GoQueueError,
    InvalidTransactionState,
    NotLeader,
)
from goqueue.model.names import TopicPartition
from goqueue.model.runs import Piece, gather_run
from goqueue.model.session import Session
from goqueue.partition.copy import NO_LEADER as NO_LEADER
from goqueue.partition.cutting import CuttableCopy
from goqueue.partition.epochs import LeaderEpochs
from goqueue.partition.history import cut_unsynced, replayed, saved_history
from goqueue.partition.producers import Producers, ProducersState
from goqueue.partition.records_end import NoRecords
from goqueue.partition.replicated import replicated_batches
from goqueue.partition.rules import (
    PartitionSettings,
    RunLimits,
    check_produced,
    recompress,
    run_limits,
)
from goqueue.partition.transactions import OpenTransaction, Transactions
from goqueue.storage.disk import Disk
from goqueue.storage.log import Log, LogState


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


class Partition(CuttableCopy):
    """One replica of a partition: the only one, the leader's or a follower's.

    Records up to `high_watermark` are committed: as durable as promised, and visible. With
    `waits_for_sync` that means synced; otherwise it means written. With followers it means so on
    all in-sync replicas, which are tracked elsewhere (`set_commit_limit`). A partition that is
    opened as a replica is a follower until its role is set.
    """

    __slots__ = ()

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
        is_sole: bool = False,
        before_cut: Callable[[], None] = lambda: None,
    ) -> tuple[Partition, list[str]]:
        """Open a partition after a crash, or for the first time; also report what was damaged.

        `is_sole` means that no other node has a replica. `before_cut` is called before something is
        truncated that may have been acknowledged and corrupted since.
        """
        is_cut = False

        def cutting() -> None:
            nonlocal is_cut
            before_cut()
            is_cut = True

        log, reports = Log.recover(disk, folder, settings.log, now_ms=now_ms, before_cut=cutting)
        saved, epochs_saved = saved_history(disk, log)
        if is_replica and not is_sole:
            reports += cut_unsynced(log, saved, cutting)
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
        partition.damaged_from = log.damaged_from
        partition.is_suspect = is_replica and is_cut
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
        """Open a cleanly closed partition without reading its files."""
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
        """Write what is in memory and close the files; everything must be synced before."""
        state = self.log.close()
        return PartitionState(state, self._producers_state(), self.epochs.entries)

    # Writes

    def append(
        self,
        batch: memoryview,
        *,
        now_ms: int,
        payload: Buffer | None = None,
        session: Session | None = None,
    ) -> Appended:
        """Append a producer's batch, given as writable bytes; it is stamped in place.

        `payload` is its records, decompressed, if the caller has them.
        """
        if self._refusal is not None:
            raise self._refusal
        settings = self.settings
        header = check_produced(batch, settings, now_ms=now_ms, payload=payload)
        if header.producer_id >= 0:
            earlier = self.producers.check(header)
            if earlier is not None:
                timestamp_ms = earlier.timestamp_ms if settings.is_append_time else -1
                return Appended(earlier.base_offset, earlier.last_offset, timestamp_ms)
            self.check_transaction(header)
        if settings.compression is not None and header.codec != settings.compression:
            batch = memoryview(recompress(batch, header, settings.compression))
        is_append_time = settings.is_append_time
        return self.write(batch, now_ms=now_ms, is_append_time=is_append_time, session=session)

    def check_transaction(self, header: BatchHeader) -> None:
        """Refuse a batch that does not fit the transactions open in this partition."""
        if header.attributes & TRANSACTIONAL:
            self.transactions.check_room(header.producer_id)
        elif len(self.transactions) and self.transactions.get(header.producer_id) is not None:
            raise InvalidTransactionState(
                f"Producer {header.producer_id} has a transaction open in {self.name}; end it "
                "before writing outside of it."
            )

    def write(
        self,
        batch: memoryview,
        *,
        now_ms: int,
        is_append_time: bool = False,
        session: Session | None = None,
    ) -> Appended:
        """Append a batch that is already checked."""
        if self.is_following:
            raise self._refusal or NotLeader(self.name, NO_LEADER)
        stamp(batch, base_offset=self.log.end_offset, leader_epoch=self.leader_epoch)
        before = bytes(batch[:HEADER_BYTES]) if is_append_time else None
        if is_append_time:
            stamp_append_time(batch, now_ms)
        header = read_header(batch)
        try:
            self._store(batch, header, now_ms=now_ms)
        except GoQueueError:
            # Restore the batch as its producer sent it, for a retry.
            if before is not None:
                batch[:HEADER_BYTES] = before
            stamp(batch, base_offset=0, leader_epoch=NO_EPOCH)
            raise
        if self.observer is not None and header.record_count and not header.is_control:
            offsets = (header.base_offset, header.next_offset)
            self.observer.stored(self.name, offsets, size=len(batch), session=session)
        return Appended(header.base_offset, header.last_offset, now_ms if is_append_time else -1)

    def run_limits(self, *, now_ms: int) -> RunLimits | None:
        """Return the limits of batches for `append_run`; None if each needs `append`."""
        if self._refusal is not None or self.shortage is not None:
            return None
        return run_limits(self.settings, now_ms=now_ms)

    def append_run(
        self,
        data: Buffer,
        pieces: list[Piece],
        *,
        now_ms: int,
        session: Session | None = None,
    ) -> bytes:
        """Append producers' batches that fit the `run_limits` with one write.

        The result is their offsets as packed by `gather_run`.
        """
        if self._refusal is not None:
            raise self._refusal
        end_offset, epoch = self.log.end_offset, self.leader_epoch
        run, offsets, next_offset = gather_run(data, pieces, end_offset, epoch)
        try:
            self.log.append_run(run, next_offset, now_ms=now_ms)
        except OSError as error:
            raise self._storage_error(error) from error
        records = next_offset - end_offset
        self._note_written(epoch, end_offset, next_offset, size=len(run), records=records)
        if self.observer is not None:
            self.observer.stored(
                self.name, (end_offset, next_offset), size=len(run), session=session
            )
        return offsets

    def append_replicated(self, batches: memoryview, *, now_ms: int) -> None:
        """Append batches of the leader unchanged; raise if they do not fit the end of the log.

        Batches before the one that does not fit, or for which there is no space, stay.
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
        """Return what a producer has written in a transaction that is still open here."""
        return self.transactions.get(producer_id)

    def _store(self, batch: memoryview, header: BatchHeader, *, now_ms: int) -> None:
        try:
            self.log.append(batch, header, now_ms=now_ms)
        except OSError as error:
            raise self._storage_error(error) from error
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
        marker = decode_marker(batch)
        self.records_in -= header.record_count  # A marker is not a record of a producer.
        self.producers.note_marker(header, marker, now_ms=now_ms)
        aborted = self.transactions.end(header, is_commit=marker.is_commit)
        if aborted is not None:
            self.log.active.note_aborted(aborted)

    def _note_written(
        self, epoch: int, base_offset: int, end_offset: int, *, size: int, records: int
    ) -> None:
        """Update the state after a write at the end of the log."""
        if self.epochs.latest != epoch:
            self.epochs.note(epoch, base_offset)
        self.bytes_in += size
        self.records_in += records
        self._snapshot_due -= size
        if not self.waits_for_sync:
            self._keep(end_offset)
        self._mark_dirty(self)
        if self.on_written is not None:
            self.on_written()

    # Roles

    def become_leader(self, leader_epoch: int) -> None:
        """Accept writes from now on, in an epoch that no other leader has written in.

        Nothing more is committed until `set_commit_limit` is called.
        """
        if leader_epoch <= self.epochs.latest:
            raise FencedLeaderEpoch(
                f"{self.name} has records of epoch {self.epochs.latest}; a leader of epoch "
                f"{leader_epoch} cannot continue from there."
            )
        self._begin_epoch(leader_epoch)
        self.is_following, self._refusal = False, self.failure
        self.is_suspect = False

    def become_follower(self, leader_epoch: int, *, leader: int) -> None:
        """Accept only batches of the leader. Waiters are failed with the new leader."""
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"{self.name} has reached epoch {self.leader_epoch}; a leader of epoch "
                f"{leader_epoch} is fenced."
            )
        self._begin_epoch(leader_epoch)
        refusal = self.failure or NotLeader(self.name, leader)
        self.is_following, self._refusal = True, refusal
        self.damaged_from = self.first_damage
        if leader != NO_LEADER:
            self.is_suspect = False
        self._disappoint(refusal)
        self._tell_watchers()

    def _begin_epoch(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.log.epoch_max = max(leader_epoch, self.epochs.latest)
        self.epoch_start = self.log.end_offset
        self.shortage = self.on_durable = self.on_written = None
        self.without_records = NoRecords(0, 0)
        self._commit_limit = self.high_watermark
        self._end_truncation()

    def set_commit_limit(self, offset: int) -> None:
        """On the leader: note that all in-sync replicas have what is before `offset`."""
        self._commit_limit = max(self._commit_limit, offset)
        self._advance(self.durable_offset)

    def set_shortage(self, shortage: GoQueueError | None) -> None:
        """On the leader: set or clear the error that too few replicas are in sync to commit.

        Waiters are failed; the records stay, and are committed when enough are in sync again.
        """
        self.shortage = shortage
        if shortage is not None:
            waiting, self._committing = self._committing, deque()
            for _, committed in waiting:
                committed(shortage)

    def follow(self, *, high_watermark: int, start_offset: int) -> None:
        """On a follower with a prefix of the leader's log: apply the leader's offsets."""
        mark = min(max(high_watermark, start_offset), self.log.end_offset)
        self._commit_limit = max(self._commit_limit, mark)
        self._advance(mark)
        if self.log.start_offset < start_offset <= self.log.end_offset:
            try:
                self.log.advance_start(start_offset)
            except OSError as error:
                raise self._storage_error(error) from error
            self.start_advanced()
