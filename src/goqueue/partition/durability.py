"""Durability of a partition: rounds of syncing its log, and snapshots of its history."""

from __future__ import annotations

import errno
import logging
import threading
from typing import TYPE_CHECKING

from goqueue.model.errors import GoQueueError, StorageFailed, StorageFull
from goqueue.model.names import TopicPartition
from goqueue.partition.epochs import Entries
from goqueue.partition.history import save_epochs, save_producers
from goqueue.partition.producers import ProducersState
from goqueue.storage.commit_journal import Tail
from goqueue.storage.log import Log, SyncPoint

if TYPE_CHECKING:
    from goqueue.partition.partition import Partition

# How much log may have to be replayed after a crash to restore the producer states.
_SNAPSHOT_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class Flush:
    """One round of making a partition durable; `run` blocks and touches only files.

    It may run in a thread. Code that changes these files meanwhile must cancel it first.
    """

    __slots__ = ("_lock", "_log", "_producers", "epochs", "has_saved", "is_cancelled", "point")

    def __init__(
        self,
        log: Log,
        producers: ProducersState | None,
        epochs: Entries | None,
        lock: threading.Lock,
    ) -> None:
        self.point: SyncPoint = log.sync_point()
        self.epochs = epochs
        self.has_saved = False
        self.is_cancelled = False
        self._lock = lock
        self._log = log
        self._producers = producers

    @property
    def tail_bytes(self) -> int | None:
        """Return how much the commit journal would have to store instead; None if it cannot."""
        if self.epochs is not None or self._producers is not None:
            return None
        return self.point.tail_bytes

    def run(self) -> None:
        with self._lock:
            if self.is_cancelled:
                return
            self.point.sync()
            try:
                self.has_saved = self._save()
            except OSError as error:
                # The files only avoid replaying the log, so they can wait.
                folder = self._log.folder
                _log.warning("%s: producers and epochs were not saved: %s", folder, error)

    @property
    def is_running(self) -> bool:
        """Return whether a thread is using the files."""
        return self._lock.locked()

    def give_up(self) -> None:
        """Write no more side files: their content may be obsolete. Does not wait."""
        self.is_cancelled = True

    def cancel(self) -> None:
        """Cancel because its content is about to be undone. Waits for a running `run`."""
        with self._lock:
            self.is_cancelled = True

    def _save(self) -> bool:
        """Write the epochs first: with a producer snapshot, recovery does not replay them."""
        if self.is_cancelled:
            return False
        if self.epochs is not None:
            save_epochs(self._log, self.epochs)
        if self._producers is not None:
            save_producers(self._log, self._producers)
        return True


class Durability:
    """What of a partition is on this node's disk.

    Everything before `synced_offset` is. While `is_suspended`, rounds leave the partition out,
    because its log is about to be truncated.
    """

    __slots__ = (
        "_flush",
        "_flush_lock",
        "_partition",
        "_saving",
        "_snapshot_at",
        "is_suspended",
        "synced_offset",
    )

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.synced_offset = partition.log.end_offset
        self.is_suspended = False
        self._flush: Flush | None = None
        self._saving: Flush | None = None
        self._flush_lock = threading.Lock()
        # A snapshot is due when so many bytes have been written to the partition.
        self._snapshot_at = _SNAPSHOT_BYTES

    @property
    def durable_offset(self) -> int:
        """Return the offset below which records are as durable as promised on this node."""
        partition = self._partition
        return self.synced_offset if partition.waits_for_sync else partition.log.end_offset

    @property
    def is_dirty(self) -> bool:
        """Return whether a round has something to do here."""
        partition = self._partition
        log = partition.log
        has_news = self.synced_offset < log.end_offset or log.has_unsealed
        return has_news and partition.failure is None and not self.is_suspended

    @property
    def is_flushing(self) -> bool:
        """Return whether a thread is using the files."""
        is_saving = self._saving is not None and self._saving.is_running
        return is_saving or self._flush_lock.locked()

    # Rounds

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
        self._partition.log.synced(flush.point)
        self._note_synced(flush.point.end_offset)

    def tail(self, flush: Flush) -> Tail:
        """Return what the commit journal may hold instead of `flush.run()`."""
        return flush.point.tail(self._partition.key)

    def journaled(self, flush: Flush) -> None:
        """Note that the tail is durable in the commit journal."""
        if flush.is_cancelled:
            self._flush_again()
            return
        self._partition.log.journaled(flush.point)
        self._note_synced(flush.point.end_offset)

    def checkpoint(self) -> SyncPoint:
        """Return what makes the partition's commit journal entries obsolete, once synced."""
        return self._partition.log.sync_point()

    def checkpointed(self, point: SyncPoint) -> None:
        """Note that a checkpoint is synced.

        Records written after the last round are durable now too, but not yet committed: they may
        depend on records in another partition.
        """
        self._partition.log.synced(point)

    def _note_synced(self, offset: int) -> None:
        if offset > self.synced_offset:
            self.synced_offset = offset
        if self._partition.waits_for_sync:
            self._partition.note_durable(self.synced_offset)

    def _flush_again(self) -> None:
        """Flush again: a round was for a part of the log that has been replaced."""
        self._request_snapshot()
        self.mark_if_dirty()

    def mark_if_dirty(self) -> None:
        """Request a round if there is something to do."""
        if self.is_dirty:
            self._partition.mark_dirty(self._partition)

    # Snapshots

    @property
    def is_save_due(self) -> bool:
        """Return whether much has been written since the last snapshot."""
        return self._partition.bytes_in >= self._snapshot_at

    @property
    def may_be_saved(self) -> bool:
        """Return whether `save` may be called; rounds save epochs, before any snapshot."""
        partition = self._partition
        is_ending = partition.is_gone or self.is_suspended or partition.failure is not None
        return not is_ending and partition.epochs.unsaved is None

    def save(self) -> Flush:
        """Return a flush that brings the log and its side files up to date; see `saved`.

        It has its own lock, so that no round waits while a snapshot is replaced.
        """
        self._saving = self._new_flush(threading.Lock(), has_snapshot=True)
        return self._saving

    def saved(self, save: Flush) -> None:
        """Note that `save.run()` has succeeded; apart from the side files it is a checkpoint."""
        if save.is_cancelled:
            self._request_snapshot()
            return
        self._note_saved(save)
        self.checkpointed(save.point)

    def _new_flush(self, lock: threading.Lock, *, has_snapshot: bool) -> Flush:
        partition, producers = self._partition, None
        if has_snapshot and self.is_save_due:
            self._snapshot_at = partition.bytes_in + _SNAPSHOT_BYTES
            producers = partition.history.state(high_watermark=partition.high_watermark)
        return Flush(partition.log, producers, partition.epochs.unsaved, lock)

    def _note_saved(self, flush: Flush) -> None:
        if not flush.has_saved:
            self._request_snapshot()
        elif flush.epochs is not None:
            self._partition.epochs.set_saved(flush.epochs)

    def _request_snapshot(self) -> None:
        self._snapshot_at = self._partition.bytes_in

    # Truncation

    def cancel(self) -> None:
        """Cancel running flushes: what they are for is about to be undone. Blocks."""
        for flush in (self._flush, self._saving):
            if flush is not None:
                flush.cancel()
        self._flush = self._saving = None

    def give_up(self) -> None:
        """Write no more snapshots. Does not wait."""
        if self._saving is not None:
            self._saving.give_up()

    def truncated(self, end_offset: int) -> None:
        """Note that the log ends earlier now, durably."""
        self.synced_offset = min(self.synced_offset, end_offset)

    def resume(self) -> None:
        """End a truncation, done or abandoned; the log may have to be synced again."""
        self.is_suspended = False
        self.mark_if_dirty()


def write_error(name: TopicPartition, error: OSError) -> GoQueueError:
    """Return the error for a write that failed on disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"The disk of {name} is full; free space, then retry.")
    return StorageFailed(f"Writing to {name} failed: {error.strerror}; retry.")
