"""Checkpoints of the commit journal: sync its content to the logs, and reuse its space."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.loop.clock import Clock
from goqueue.partition import Partition
from goqueue.storage.commit_journal import CommitJournal
from goqueue.storage.log import SyncPoint

# Few, because rounds with waiting writers are more urgent.
THREADS_MAX = 2

_log = logging.getLogger(__name__)

Cleared = Callable[[bool], None]

_Settlement = tuple[Partition, SyncPoint, OSError | None]


class Settling:
    """Tracks which partitions have entries in which journal file, and checkpoints them."""

    def __init__(self, clock: Clock, journal: CommitJournal) -> None:
        self.journal = journal
        self.is_failed = False
        self._clock = clock
        self._unsettled: tuple[dict[Partition, None], ...] = ({}, {})
        self._running = 0
        self._has_failures = False
        self._is_round_running = False
        # Waiters for the removal of what the journal held when they came, with the number of files
        # that must be freed before.
        self._clearing: list[tuple[int, Cleared]] = []
        self._files_freed = 0

    # Rounds

    def begin_round(self, *, tail_count: int, data_bytes: int) -> bool:
        """Return whether the journal takes a round of this size; if so, `end_round` must follow."""
        journal = self.journal
        if self.is_failed:
            return False
        has_room = journal.has_room(tail_count, data_bytes)
        if not has_room and self._switch():
            has_room = journal.has_room(tail_count, data_bytes)
        self._is_round_running = has_room
        return has_room

    def end_round(self, partitions: list[Partition]) -> None:
        """Note that these partitions have entries in the current file."""
        self._is_round_running = False
        self._unsettled[self.journal.current].update(dict.fromkeys(partitions))
        self._grow_if_due()
        self._go_on_clearing()

    def fail(self, error: Exception) -> None:
        """Stop using the journal, which cannot be written. Its content stays there."""
        if self.is_failed:
            return
        self.is_failed = True
        _log.error("the commit journal is disabled until the next start: %s", error)
        waiting, self._clearing = self._clearing, []
        for _, done in waiting:
            done(False)

    # Growth

    def _grow_if_due(self) -> None:
        if self.is_failed:
            return
        number = self.journal.begin_growth()
        if number is not None:
            work = partial(self.journal.grow, number)
            self._clock.run_blocking(work, partial(self._grown, number))

    def _grown(self, number: int, _: object, error: Exception | None) -> None:
        self.journal.end_growth(number)
        if isinstance(error, OSError):
            self.fail(error)
        elif error is not None:
            raise error

    # Clearing

    def clear(self, done: Cleared) -> None:
        """Call `done` when nothing that the journal holds now is in it any longer.

        It gets False if that is not possible before the next start.
        """
        files = sum(not self.journal.is_empty(number) for number in (0, 1))
        if self._is_round_running and self.journal.is_empty(self.journal.current):
            files += 1
        if not files or self.is_failed:
            done(not files)
            return
        self._clearing.append((self._files_freed + files, done))
        self._go_on_clearing()

    def _go_on_clearing(self) -> None:
        ready = [done for files, done in self._clearing if files <= self._files_freed]
        if ready:
            self._clearing = [one for one in self._clearing if one[0] > self._files_freed]
            for done in ready:
                done(True)
        if self._clearing and not self._is_round_running:
            self._switch()

    # Settling

    def _switch(self) -> bool:
        """Switch to the other file, if it is free, and checkpoint this one."""
        journal = self.journal
        if self._running or not journal.is_empty(1 - journal.current):
            return False
        partitions = [one for one in self._unsettled[journal.current] if not one.is_gone]
        if any(one.failure is not None for one in partitions):
            self._keep()
            return False
        left = journal.switch()
        self._unsettled[left].clear()
        self._has_failures = False
        settlements = [(one, one.settlement()) for one in partitions]
        threads = max(1, min(THREADS_MAX, len(settlements)))
        self._running = threads
        for number in range(threads):
            share = settlements[number::threads]
            self._clock.run_blocking(partial(_sync, share), partial(self._share_done, left))
        return True

    def _share_done(self, left: int, results: list[_Settlement], error: Exception | None) -> None:
        if error is not None:
            raise error
        for partition, point, failure in results:
            if partition.is_gone:
                continue
            if failure is not None:
                self._has_failures = True
                _log.error("syncing %s failed: %s", partition.name, failure)
                partition.fail(failure)
            elif partition.failure is not None:
                # A disk reports a failure once: a round has received it, and this sync has not.
                self._has_failures = True
            else:
                partition.settled(point)
        self._running -= 1
        if self._running:
            return
        if self._has_failures:
            self._keep()
            return
        self._running = 1
        self._clock.run_blocking(partial(self.journal.free, left), self._freed)

    def _keep(self) -> None:
        """Keep the journal: only it has some records, and the next start needs them."""
        self.fail(OSError("logs that it serves could not be synced"))

    def _freed(self, _: object, error: Exception | None) -> None:
        self._running = 0
        if error is not None:
            if not isinstance(error, OSError):
                raise error
            self.fail(error)
            return
        self._files_freed += 1
        self._go_on_clearing()


def _sync(share: list[tuple[Partition, SyncPoint]]) -> list[_Settlement]:
    results: list[_Settlement] = []
    for partition, point in share:
        try:
            point.sync()
            results.append((partition, point, None))
        except OSError as error:
            results.append((partition, point, error))
    return results
