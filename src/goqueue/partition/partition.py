"""A partition: a log with a high watermark, epochs and producers; append, fetch, wait."""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from goqueue.model.batch import (
    BatchHeader,
    Record,
    read_header,
    stamp,
    stamp_append_time,
)
from goqueue.model.errors import (
    FencedLeaderEpoch,
    GoQueueError,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
    UnknownLeaderEpoch,
)
from goqueue.model.names import TopicPartition
from goqueue.partition.epochs import LeaderEpochs
from goqueue.partition.producers import Producers, ProducersState
from goqueue.partition.rules import PartitionSettings, check_produced, recompress
from goqueue.storage.commit_journal import Tail
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.log import Log, LogState, Slice, SyncPoint

_PRODUCERS_FILE = "producers"
_PRODUCERS_MAGIC = b"GQPR"
_EPOCHS_FILE = "leader-epochs"
_EPOCHS_MAGIC = b"GQLE"
_VERSION = 1
_FIRST_EPOCH = (0, 0)
# How much log may have to be read again to know the producers after a crash.
_SNAPSHOT_BYTES = 1 << 20

_log = logging.getLogger(__name__)

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


class Flush:
    """One round of making a partition durable; `run` blocks and touches only files."""

    __slots__ = ("_disk", "_folder", "_producers", "epochs", "has_saved", "point")

    def __init__(
        self,
        disk: Disk,
        folder: str,
        point: SyncPoint,
        producers: ProducersState | None,
        epochs: list[tuple[int, int]] | None,
    ) -> None:
        self.point = point
        self.epochs = epochs
        self.has_saved = False
        self._disk = disk
        self._folder = folder
        self._producers = producers

    @property
    def tail_bytes(self) -> int | None:
        """How much the commit journal would have to take instead; None when that would not do."""
        if self.epochs is not None or self._producers is not None:
            return None
        return self.point.tail_bytes

    def run(self) -> None:
        self.point.sync()
        try:
            self._save()
            self.has_saved = True
        except OSError as error:
            # The log says the same. These files only spare reading it again, so they can wait.
            _log.warning("%s: producers and epochs were not saved: %s", self._folder, error)

    def _save(self) -> None:
        """Write the epochs first: with a snapshot of the producers nobody looks for them."""
        if self.epochs is not None:
            path = f"{self._folder}/{_EPOCHS_FILE}"
            write_framed(self._disk, path, magic=_EPOCHS_MAGIC, version=_VERSION, body=self.epochs)
        if self._producers is not None:
            path = f"{self._folder}/{_PRODUCERS_FILE}"
            write_framed(
                self._disk,
                path,
                magic=_PRODUCERS_MAGIC,
                version=_VERSION,
                body=self._producers,
                is_durable=False,
            )


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
        self.epochs = epochs
        self.leader_epoch = leader_epoch
        log.epoch_max = leader_epoch
        self.waits_for_sync = waits_for_sync
        self.high_watermark = log.end_offset
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
        epochs_saved = read_framed(
            disk,
            f"{folder}/{_EPOCHS_FILE}",
            magic=_EPOCHS_MAGIC,
            version=_VERSION,
            body=list[tuple[int, int]],
        )
        saved = read_framed(
            disk,
            f"{folder}/{_PRODUCERS_FILE}",
            magic=_PRODUCERS_MAGIC,
            version=_VERSION,
            body=ProducersState,
        )
        if saved is None or saved.offset > log.end_offset:
            saved = ProducersState(log.start_offset, [])
        producers = Producers(saved.producers)
        if epochs_saved is None:
            epochs_saved = [] if saved.offset <= log.start_offset else [_FIRST_EPOCH]
        epochs = LeaderEpochs(epochs_saved)
        epochs.truncate(log.end_offset)
        for header in log.headers(saved.offset):
            epochs.note(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0 and header.base_offset >= saved.offset:
                producers.note(header, now_ms=now_ms)
        partition = cls(
            name,
            disk,
            log,
            settings,
            key=key,
            producers=producers,
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
            epochs=LeaderEpochs(state.epochs),
            leader_epoch=leader_epoch,
            waits_for_sync=waits_for_sync,
            mark_dirty=mark_dirty,
        )

    def close(self) -> PartitionState:
        """Write what is in memory and give the descriptors back; all must be synced before."""
        state = self.log.close()
        return PartitionState(state, self.producers.state(self.log.end_offset), self.epochs.entries)

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
        if settings.compression is not None and header.codec != settings.compression:
            batch = memoryview(recompress(batch, header, settings.compression))
        return self.write(batch, now_ms=now_ms, is_append_time=settings.is_append_time)

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
        self._note_written(header, len(batch), now_ms=now_ms)
        return Appended(header.base_offset, header.last_offset, now_ms if is_append_time else -1)

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
            producers = self.producers.state(self.log.end_offset)
        entries = self.epochs.entries
        # A log of the first epoch alone needs no file to say so.
        if entries != self._epochs_saved and entries != [_FIRST_EPOCH]:
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
        """Up to where no open transaction can change what a reader sees."""
        return self.high_watermark

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows an older leader, or a newer one, than this."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"Epoch {epoch} of {self.name} is over; {self.leader_epoch} is current."
            )
        raise UnknownLeaderEpoch(f"Epoch {epoch} of {self.name} is not known here yet; retry.")

    def read(self, offset: int, *, bytes_max: int) -> Slice | None:
        """Committed batches from `offset` on; None when there are none yet."""
        if self.is_gone and self.failure is not None:
            raise self.failure
        if offset < self.log.start_offset or offset > self.log.end_offset:
            raise OffsetOutOfRange(
                self.name, offset, start=self.log.start_offset, end=self.high_watermark
            )
        if offset >= self.high_watermark:
            return None
        try:
            return self.log.read(offset, bytes_max=bytes_max, until_offset=self.high_watermark)
        except OSError as error:
            raise self.unreadable(error) from error

    def find_timestamp(self, timestamp: int) -> Record | None:
        try:
            return self.log.find_timestamp(timestamp, until_offset=self.high_watermark)
        except OSError as error:
            raise self.unreadable(error) from error

    def find_newest(self) -> Record | None:
        try:
            return self.log.find_newest(until_offset=self.high_watermark)
        except OSError as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: OSError) -> GoQueueError:
        """What to tell a reader whom the disk has failed."""
        return StorageFailed(f"Reading from {self.name} failed: {error.strerror}; retry.")

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest epoch not after `epoch` and where it ended; for clients that lost a leader."""
        return self.epochs.end_offset(epoch, log_end=self.log.end_offset)

    # Upkeep

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
        self.epochs.advance_start(self.log.start_offset)
        return self.log.start_offset
