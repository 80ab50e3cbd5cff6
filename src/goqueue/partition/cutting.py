"""Removal from a replica: truncation of its end, and retention at its beginning."""

from __future__ import annotations

from collections import deque

from goqueue.model.errors import GoQueueError, OffsetOutOfRange
from goqueue.partition.copy import NO_LIMIT
from goqueue.partition.history import (
    forget_history,
    forget_saved_producers,
    replayed,
    save_epochs,
    saved_producers,
    truncate_durably,
)
from goqueue.partition.producers import ProducersState
from goqueue.partition.reading import ReadableCopy
from goqueue.storage.segment import Segment


class CuttableCopy(ReadableCopy):
    """A replica that can drop records such that no crash brings them back."""

    __slots__ = ()

    # Truncation

    def begin_truncation(self) -> None:
        """Exclude this partition from rounds of syncing until `truncate` or `restart`.

        What such a round writes to the commit journal would come back after a crash. So truncation
        starts with this, then the journal is cleared, and only then the log is truncated.
        """
        self._is_truncating = True

    def truncate(self, offset: int, error: GoQueueError, *, now_ms: int) -> None:
        """Drop everything from `offset` on, as if it had never been written. Blocks.

        Effects on producers and transactions are undone: a transaction whose marker is dropped is
        open again. Waiters for dropped records get `error`. All of it is durable before anything
        else is written there: otherwise a log mixed from both histories would look intact.
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
        """Drop everything and start again at `offset`, the start of the leader's log. Blocks."""
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
        """Rebuild the states of producers and transactions from the remaining log."""
        end = self.log.end_offset
        self.high_watermark = min(self.high_watermark, end)
        self.synced_offset = min(self.synced_offset, end)
        self.epoch_start = min(self.epoch_start, end)
        if self._commit_limit != NO_LIMIT:
            self._commit_limit = self.high_watermark
        self.producers, self.transactions = replayed(self.log, saved, self.epochs, now_ms=now_ms)
        self.producers.is_partial = self.log.start_offset > 0
        self.transactions.advance(self.high_watermark)
        if self.damaged_from is not None and self.damaged_from >= end:
            self.damaged_from = None
        self._end_truncation()

    def _end_truncation(self) -> None:
        """End a truncation, done or abandoned; the log may have to be synced again."""
        self._is_truncating = False
        if self.is_dirty:
            self._mark_dirty(self)

    def _cancel_flush(self) -> None:
        for flush in (self._flush, self._saving):
            if flush is not None:
                flush.cancel()
        self._flush = self._saving = None

    def _save_epochs(self) -> None:
        entries = self.epochs.entries
        if entries != self._epochs_saved:
            save_epochs(self._disk, self.log.folder, entries)
            self._epochs_saved = entries

    # Retention

    def take_expired(self, *, now_ms: int) -> list[Segment]:
        """Take out expired segments; the caller removes their files.

        The leader decides what expires; a follower's log starts where the leader's does.
        """
        log, start_before = self.log, self.log.start_offset
        if not self.is_following:
            expired = log.take_expired(now_ms=now_ms, until_offset=self.high_watermark)
        else:
            ends = [segment.end_offset for segment in log.segments[:-1]]
            expired = log.take_segments(sum(end <= log.start_offset for end in ends))
        if expired:
            # A crash may bring back some of the files and not others, so the start offset must be
            # stored independently of them. `advance_start` stores it.
            start, log.start_offset = log.start_offset, start_before
            try:
                log.advance_start(start)
            except OSError as error:
                log.start_offset = start
                raise self._storage_error(error) from error
            self.start_advanced()
        return expired

    def start_advanced(self) -> None:
        """Drop state about records before the new start of the log."""
        self.epochs.advance_start(self.log.start_offset)
        self.producers.is_partial = True
        if self.transactions.forget_before(self.log.start_offset):
            self._tell_watchers()

    def delete_before(self, offset: int) -> int:
        """Make records before `offset` unreadable (-1: all committed); return the new start."""
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

    # Producers

    def expire_producers(self, *, before_ms: int, states_max: int) -> None:
        """Drop producers that are idle for long, and the oldest ones if there are too many."""
        still_open = {one.producer_id for one in self.transactions}
        self.producers.expire(before_ms=before_ms, states_max=states_max, kept=still_open)
