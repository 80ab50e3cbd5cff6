"""One replica of a partition: its log, its durability, and the waiters for it."""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from goqueue.model.errors import GoQueueError, NotLeader, StorageFailed, StorageFull
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Observer
from goqueue.partition.epochs import LeaderEpochs
from goqueue.partition.history import FIRST_EPOCH, Flush
from goqueue.partition.producers import Producers, ProducersState
from goqueue.partition.records_end import NoRecords
from goqueue.partition.rules import PartitionSettings
from goqueue.partition.transactions import Transactions
from goqueue.storage.commit_journal import Tail
from goqueue.storage.disk import Disk
from goqueue.storage.log import Log, SyncPoint

# The high watermark of a partition with a single replica depends only on the local disk.
NO_LIMIT = 1 << 63
NO_LEADER = -1

# How much log may have to be replayed after a crash to restore the producer states.
_SNAPSHOT_BYTES = 1 << 20

Committed = Callable[[GoQueueError | None], None]


class Watcher(Protocol):
    """A waiter for records."""

    def partition_advanced(self, partition: Any) -> None:
        """Notify that the `Partition` has more records, or has changed otherwise."""


class Copy:
    """The part of a partition that is the same for leaders and followers.

    Rounds of syncing make it durable, and waiters for a record are notified. Subclasses add
    reading, truncation and roles, up to `Partition`; `Copy` itself is never instantiated.
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
        "_saving",
        "_snapshot_due",
        "bytes_in",
        "damaged_from",
        "epoch_start",
        "epochs",
        "failure",
        "high_watermark",
        "is_following",
        "is_gone",
        "is_suspect",
        "key",
        "leader_epoch",
        "log",
        "name",
        "observer",
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
        "without_records",
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
        mark_dirty: Callable[[Any], None],
        replica_mark: int | None = None,
    ) -> None:
        """`replica_mark` is the high watermark that a replica has saved."""
        self.name = name
        self.key = key
        self.log = log
        self.settings = settings
        self.producers = producers
        producers.is_partial = log.start_offset > 0
        self.transactions = transactions
        self.epochs = epochs
        self.leader_epoch = leader_epoch
        # A node that was down may have stale metadata about the leader; its log has the epochs so
        # far.
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
        # Why writes are refused, if so: a failure, or another node leads.
        self._refusal: GoQueueError | None = None
        if self.is_following:
            self._refusal = NotLeader(name, NO_LEADER)
        # Why nothing can be committed, if so: too few replicas are in sync.
        self.shortage: GoQueueError | None = None
        self.epoch_start = log.end_offset
        # The first unreadable batch, as far as the log itself does not report it.
        self.damaged_from: int | None = None
        # Whether this replica may have lost records it had reported as durable. It is suspect until
        # there is a leader; by then it no longer counts as in sync.
        self.is_suspect = False
        self.observer: Observer | None = None
        self.on_durable: Callable[[], None] | None = None
        self.on_written: Callable[[], None] | None = None
        self._commit_limit = self.high_watermark if self.is_following else NO_LIMIT
        self._keeping: deque[tuple[int, Committed]] = deque()
        self._flush: Flush | None = None
        self._saving: Flush | None = None
        self._flush_lock = threading.Lock()
        self._is_truncating = False
        self.watchers: dict[Watcher, None] = {}
        # The result of the last search for the end of the records; see `records_end`.
        self.without_records = NoRecords(0, 0)
        self.bytes_in = 0
        self.records_in = 0
        self._disk = disk
        self._mark_dirty = mark_dirty
        self._committing: deque[tuple[int, Committed]] = deque()
        self._snapshot_due = _SNAPSHOT_BYTES
        self._epochs_saved = epochs.entries

    def when_committed(self, last_offset: int, committed: Committed) -> None:
        """Call `committed` once the record at `last_offset` is as durable as promised."""
        if last_offset < self.high_watermark:
            committed(None)
        elif self._refusal is not None or self.shortage is not None:
            committed(self._refusal or self.shortage)
        else:
            self._committing.append((last_offset, committed))

    def when_durable(self, last_offset: int, durable: Committed) -> None:
        """Call `durable` once the record at `last_offset` is as durable as promised on this node.

        A record that is not more than that may be lost together with this node.
        """
        if self._commit_limit == NO_LIMIT:
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
        """Return whether a thread is using the files."""
        is_saving = self._saving is not None and self._saving.is_running
        return is_saving or self._flush_lock.locked()

    @property
    def durable_offset(self) -> int:
        """Return the offset below which records are as durable as promised on this node."""
        return self.synced_offset if self.waits_for_sync else self.log.end_offset

    def flush(self, *, is_brief: bool = False) -> Flush:
        """Return what to make durable now; a brief flush leaves the snapshot to `save`."""
        self._flush = self._new_flush(self._flush_lock, has_snapshot=not is_brief)
        return self._flush

    def flushed(self, flush: Flush) -> None:
        """Note that `flush.run()` has succeeded."""
        if flush.is_cancelled:
            self._flush_again()
            return
        self._note_saved(flush)
        self.log.synced(flush.point)
        self._note_durable(flush.point.end_offset)

    @property
    def is_save_due(self) -> bool:
        """Return whether much has been written since the last snapshot."""
        return self._snapshot_due <= 0

    @property
    def may_be_saved(self) -> bool:
        """Return whether `save` may be called; rounds save epochs, before any snapshot."""
        is_ending = self.is_gone or self._is_truncating or self.failure is not None
        return not is_ending and self._epochs_to_save is None

    def save(self) -> Flush:
        """Return a flush that brings the log and its side files up to date; see `saved`.

        It has its own lock, so that no round waits while a snapshot is replaced.
        """
        self._saving = self._new_flush(threading.Lock(), has_snapshot=True)
        return self._saving

    def saved(self, save: Flush) -> None:
        """Note that `save.run()` has succeeded; otherwise it is a settlement."""
        if save.is_cancelled:
            self._snapshot_due = 0
            return
        self._note_saved(save)
        self.settled(save.point)

    def _new_flush(self, lock: threading.Lock, *, has_snapshot: bool) -> Flush:
        producers = None
        if has_snapshot and self._snapshot_due <= 0:
            self._snapshot_due = _SNAPSHOT_BYTES
            producers = self._producers_state()
        epochs, point = self._epochs_to_save, self.log.sync_point()
        return Flush(self._disk, self.log.folder, point, producers, epochs, lock)

    @property
    def _epochs_to_save(self) -> list[tuple[int, int]] | None:
        entries = self.epochs.entries
        # A log of the first epoch only needs no file for it.
        is_saved = entries == self._epochs_saved or entries == [FIRST_EPOCH]
        return None if is_saved else entries

    def _note_saved(self, flush: Flush) -> None:
        if not flush.has_saved:
            self._snapshot_due = 0
        elif flush.epochs is not None:
            self._epochs_saved = flush.epochs

    def tail(self, flush: Flush) -> Tail:
        """Return what the commit journal may hold instead of `flush.run()`."""
        return flush.point.tail(self.key)

    def journaled(self, flush: Flush) -> None:
        """Note that the tail is durable in the commit journal."""
        if flush.is_cancelled:
            self._flush_again()
            return
        self.log.journaled(flush.point)
        self._note_durable(flush.point.end_offset)

    def settlement(self) -> SyncPoint:
        """Return what makes the partition's commit journal entries obsolete, once synced."""
        return self.log.sync_point()

    def settled(self, point: SyncPoint) -> None:
        """Note that a settlement is synced.

        Records written after the last round are durable now too, but not yet committed: they may
        depend on records in another partition.
        """
        self.log.synced(point)

    def _note_durable(self, offset: int) -> None:
        self.synced_offset = max(self.synced_offset, offset)
        if self.waits_for_sync:
            self._keep(self.synced_offset)

    def _keep(self, offset: int) -> None:
        """Note that records before `offset` are as durable here as promised."""
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
        """Flush again: a round was for a part of the log that has been replaced."""
        self._snapshot_due = 0
        if self.is_dirty:
            self._mark_dirty(self)

    # Failure and deletion

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
        self._tell_watchers()
        for segment in self.log.segments:
            segment.close()

    def _end(self, error: GoQueueError) -> None:
        self.failure = self._refusal = error
        if self._saving is not None:
            self._saving.give_up()
        self._disappoint(error)

    def _disappoint(self, error: GoQueueError) -> None:
        """Fail all waiters for commits and durability."""
        waiting = [*self._committing, *self._keeping]
        self._committing, self._keeping = deque(), deque()
        for _, told in waiting:
            told(error)

    def _advance(self, offset: int) -> None:
        """Raise the high watermark, up to the commit limit, and notify its waiters."""
        if offset > self._commit_limit:
            offset = self._commit_limit
        if offset <= self.high_watermark:
            return
        if self.observer is not None and not self.is_following:
            self.observer.replicated(self.name, (self.high_watermark, offset))
        self.high_watermark = offset
        self.transactions.advance(offset)
        committing = self._committing
        while committing and committing[0][0] < offset:
            committing.popleft()[1](None)
        if self.watchers:
            self._tell_watchers()

    def _tell_watchers(self) -> None:
        for watcher in list(self.watchers):
            watcher.partition_advanced(self)

    def _storage_error(self, error: OSError) -> GoQueueError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull(f"The disk of {self.name} is full; free space, then retry.")
        return StorageFailed(f"Writing to {self.name} failed: {error.strerror}; retry.")

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
