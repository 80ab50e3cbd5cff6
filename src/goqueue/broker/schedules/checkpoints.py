"""Writes checkpoints of a schedule log from time to time, and finds the last one at a start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.delivery.schedules import (
    NO_EPOCH,
    Bucket,
    Checkpoint,
    DamagedBucket,
    read_checkpoint,
    write_checkpoint,
)
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.storage.disk import Disk

SYNC_POLL_MS = 100

_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one log. Threads write them, so the files may be in use after a close."""

    def __init__(self, clock: Clock, log: ScheduleLog, *, is_behind: Callable[[], bool]) -> None:
        """While `is_behind`, the log holds something that the agenda does not reflect yet."""
        self.clean_epoch = -1  # as in the checkpoint found at this start
        self._clock = clock
        self._schedule_log = log
        self._partition = log.partition
        self._is_behind = is_behind
        self._offset = log.partition.start_offset
        self._at_ms = clock.wall_ms()
        self._is_saving = False
        self._is_untrusted = False
        self._threads = 0  # that use the files now
        self._closed: Promise[None] = Promise()

    # Restoring

    def restore(self) -> int:
        """Restore the last checkpoint, if usable; return the offset where replay continues."""
        log = self._schedule_log
        self._at_ms = self._clock.wall_ms()
        found = read_checkpoint(log.disk, log.folder, topic_id=log.topic_id)
        if found is not None and self._is_of_this_log(found):
            try:
                log.agenda.restore(found)
                self.clean_epoch = found.clean_epoch
                self._offset = found.offset
                return found.offset
            except (DamagedBucket, OSError) as error:
                name = self._partition.name
                _log.error("the schedules of %s are replayed from the start: %s", name, error)
                log.agenda = log.new_agenda()
        log.agenda.timetable.restore([], serial_next=1)
        return self._partition.start_offset

    def _is_of_this_log(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint was taken of this log, which other leaders may have changed since.

        Two logs with a record of the same epoch at the same offset are identical up to there.
        """
        partition = self._partition
        if not partition.start_offset <= checkpoint.offset <= partition.end_offset:
            return False
        if checkpoint.leader_epoch == NO_EPOCH:
            return True  # Nothing had been written.
        epoch, end_offset = partition.replica.epoch_end(checkpoint.leader_epoch)
        return epoch == checkpoint.leader_epoch and checkpoint.offset <= end_offset

    # Saving

    def save_if_due(self, *, interval_ms: int, records_max: int) -> None:
        """Write a checkpoint if the last one is old, or much was written since."""
        news = self._partition.end_offset - self._offset
        age_ms = self._clock.wall_ms() - self._at_ms
        if news and (news >= records_max or not 0 <= age_ms < interval_ms):
            self.save(lambda: None)

    def save(self, done: Callable[[], None], *, clean_epoch: int = -1) -> None:
        """Write a checkpoint if possible now, then call `done`."""
        is_possible = not (self._is_saving or self._is_untrusted or self._schedule_log.is_closed)
        if not is_possible or self._partition.failure is not None or self._is_behind():
            done()
            return
        offset = self._partition.end_offset
        self._at_ms = self._clock.wall_ms()
        try:
            checkpoint, dirty = self._schedule_log.agenda.checkpoint(
                offset, clean_epoch=clean_epoch, leader_epoch=self._partition.epochs.latest
            )
        except OSError as error:
            _log.warning("schedules of %s were not saved: %s", self._partition.name, error)
            done()
            return
        self._is_saving = True
        self._save_when_synced(checkpoint, dirty, done)

    def _save_when_synced(
        self, checkpoint: Checkpoint, dirty: list[Bucket], done: Callable[[], None]
    ) -> None:
        """Wait for the sync: a checkpoint must not include records that a power cut could undo."""
        log = self._schedule_log
        if self._partition.failure is not None:
            self._saved(None, self._partition.failure, checkpoint, done)
        elif log.is_closed:
            self._is_saving = False
            done()
        elif self._partition.durability.synced_offset < checkpoint.offset:
            self._clock.call_later(
                SYNC_POLL_MS, partial(self._save_when_synced, checkpoint, dirty, done)
            )
        else:
            self._threads += 1
            self._clock.run_blocking(
                partial(_save, log.disk, log.folder, checkpoint, dirty),
                lambda result, error: self._saved_apart(result, error, checkpoint, done),
            )

    def _saved_apart(
        self,
        unsynced: str | None,
        error: Exception | None,
        checkpoint: Checkpoint,
        done: Callable[[], None],
    ) -> None:
        self._threads -= 1
        if not self._schedule_log.is_closed:
            self._saved(unsynced, error, checkpoint, done)
            return
        done()
        self._close_if_unused()

    def _saved(
        self,
        unsynced: str | None,
        error: Exception | None,
        checkpoint: Checkpoint,
        done: Callable[[], None],
    ) -> None:
        self._is_saving = False
        timetable = self._schedule_log.agenda.timetable
        if error is not None and not isinstance(error, (OSError, GoQueueError)):
            raise error
        if unsynced:
            # The content of that file is undefined from here on. The last checkpoint stays valid,
            # and the next start replays the log from there.
            self._is_untrusted = True
            _log.error("schedules are no longer saved: %s", unsynced)
        elif error is not None:
            _log.warning("schedules of %s were not saved: %s", self._partition.name, error)
            timetable.mark_dirty()
        else:
            self._offset = checkpoint.offset
            self._remove(timetable.take_dropped())
        done()

    def _remove(self, paths: list[str]) -> None:
        def removed(_: object, error: Exception | None) -> None:
            self._threads -= 1
            if error is not None:
                _log.warning("old schedule files could not be removed: %s", error)
            self._close_if_unused()

        if paths:
            self._threads += 1
            self._clock.run_blocking(partial(_remove, self._schedule_log.disk, paths), removed)

    # Closing

    def close(self) -> Promise[None]:
        """Close the files of a log that is closed; resolves when no thread uses them."""
        self._close_if_unused()
        return self._closed

    def _close_if_unused(self) -> None:
        if self._schedule_log.is_closed and not self._threads and not self._closed.is_done:
            self._schedule_log.agenda.timetable.close()
            self._closed.resolve(None)


def _save(disk: Disk, folder: str, checkpoint: Checkpoint, dirty: list[Bucket]) -> str | None:
    """Save in a thread. Return which file could not be synced; raise other errors."""
    for bucket in dirty:
        try:
            bucket.sync()
        except OSError as error:
            return f"{bucket.path} could not be synced: {error}"
    write_checkpoint(disk, folder, checkpoint)
    return None


def _remove(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        if disk.exists(path):
            disk.remove(path)
