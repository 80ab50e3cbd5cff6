"""One copy of a partition: its log, what of it is durable, and who waits for that."""

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

# The high watermark of a partition that nobody else has a copy of follows its own disk alone.
NO_LIMIT = 1 << 63
NO_LEADER = -1

# How much log may have to be read again to know the producers after a crash.
_SNAPSHOT_BYTES = 1 << 20

Committed = Callable[[GoQueueError | None], None]


class Watcher(Protocol):
    """Somebody who waits for records."""

    def partition_advanced(self, partition: Any) -> None:
        """Of the `Partition` that it is told there is more, or something else to be known."""


class Copy:
    """The part of a partition that is the same whether it leads or follows.

    Rounds of syncing make it durable, and whoever waits for a record is told. Roles, reading and
    cutting are added by those who extend it, up to `Partition`; nobody makes a mere `Copy`.
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
        # Where the first batch is that could not be read, as far as the log does not say it itself.
        self.damaged_from: int | None = None
        # Whether this copy may have lost what it had reported as durable. It is in doubt until
        # there is a leader, by which time it does not count as in sync any more.
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
        # What the last search for the end of the records has found; see `records_end`.
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
        """Call `durable` once this node has the record at `last_offset` as durably as promised.

        Whoever is content with that may lose the record together with this node.
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
        """Whether a thread is at the files just now."""
        is_saving = self._saving is not None and self._saving.is_running
        return is_saving or self._flush_lock.locked()

    @property
    def durable_offset(self) -> int:
        """The offset below which records are as durable as promised here, on this node."""
        return self.synced_offset if self.waits_for_sync else self.log.end_offset

    def flush(self, *, is_brief: bool = False) -> Flush:
        """What is to be made durable now; a brief one leaves the snapshot to `save`."""
        self._flush = self._new_flush(self._flush_lock, has_snapshot=not is_brief)
        return self._flush

    def flushed(self, flush: Flush) -> None:
        """Take note that `flush.run()` has succeeded."""
        if flush.is_cancelled:
            self._flush_again()
            return
        self._note_saved(flush)
        self.log.synced(flush.point)
        self._note_durable(flush.point.end_offset)

    @property
    def is_save_due(self) -> bool:
        """Whether much has been written since the last snapshot."""
        return self._snapshot_due <= 0

    @property
    def may_be_saved(self) -> bool:
        """Whether `save` may be called; epochs are saved by rounds, and before any snapshot."""
        is_ending = self.is_gone or self._is_truncating or self.failure is not None
        return not is_ending and self._epochs_to_save is None

    def save(self) -> Flush:
        """What brings the log and all that is beside it up to date, when it is run; see `saved`.

        It has a lock of its own, so that no round waits while a snapshot is replaced.
        """
        self._saving = self._new_flush(threading.Lock(), has_snapshot=True)
        return self._saving

    def saved(self, save: Flush) -> None:
        """Take note that `save.run()` has succeeded; for the rest it is a settlement."""
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
        # A log of the first epoch alone needs no file to say so.
        is_saved = entries == self._epochs_saved or entries == [FIRST_EPOCH]
        return None if is_saved else entries

    def _note_saved(self, flush: Flush) -> None:
        if not flush.has_saved:
            self._snapshot_due = 0
        elif flush.epochs is not None:
            self._epochs_saved = flush.epochs

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

    # Ends and errors

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
        self._tell_watchers()
        for segment in self.log.segments:
            segment.close()

    def _end(self, error: GoQueueError) -> None:
        self.failure = self._refusal = error
        if self._saving is not None:
            self._saving.give_up()
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
            return StorageFull(f"No room on the disk for {self.name}; retry when there is.")
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
