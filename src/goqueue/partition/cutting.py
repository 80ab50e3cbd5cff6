"""What goes from a copy: its end when another history takes its place, its beginning with time."""

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
    """A copy that can forget, so that no crash brings back what is forgotten."""

    __slots__ = ()

    # The end

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
        if self._commit_limit != NO_LIMIT:
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
        for flush in (self._flush, self._saving):
            if flush is not None:
                flush.cancel()
        self._flush = self._saving = None

    def _save_epochs(self) -> None:
        entries = self.epochs.entries
        if entries != self._epochs_saved:
            save_epochs(self._disk, self.log.folder, entries)
            self._epochs_saved = entries

    # The beginning

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
            self._tell_watchers()

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

    # Producers

    def expire_producers(self, *, before_ms: int, states_max: int) -> None:
        """Forget producers that have been silent for long, and those that are too many."""
        still_open = {one.producer_id for one in self.transactions}
        self.producers.expire(before_ms=before_ms, states_max=states_max, kept=still_open)
