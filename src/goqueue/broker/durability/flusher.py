"""Group commit: one round of syncing covers everything written before it began.

Rounds of small writes go to the commit journal. Checkpoints sync its content to the logs, so that
its space can be reused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Literal

from goqueue.broker.durability.saving import Saving
from goqueue.loop.clock import Clock
from goqueue.metrics import Histogram
from goqueue.partition import Flush, Partition
from goqueue.storage.commit_journal import CommitJournal
from goqueue.storage.log import SyncPoint

FsyncMode = Literal["every", "interval", "none"]

# Concurrent syncs of several files share one commit of the file system's journal.
THREADS_MAX = 4
# Few, because rounds with waiting writers are more urgent.
CHECKPOINT_THREADS_MAX = 2
# In modes without synced acknowledgements the log is still synced, so that recovery stays short.
BACKGROUND_INTERVAL_MS = 60_000
# Writers that share a round cost less each. So if the last round had several, the next one waits
# these turns of the event loop for writers whose requests have already arrived.
GATHER_TURNS = 10
# Larger rounds are synced in place: the journal would write them twice, and the sync is a small
# part of their cost.
ROUND_BYTES_MAX = 512 << 10

_log = logging.getLogger(__name__)

Cleared = Callable[[bool], None]

_Flushes = list[tuple[Partition, Flush]]
_Outcome = tuple[Partition, Flush, OSError | None, bool]  # the last: by the commit journal
_Checkpoint = tuple[Partition, SyncPoint, OSError | None]


class Flusher:
    """Makes written partitions durable, one round at a time.

    Partitions with waiting writers are synced at once, the others at the end of an interval. A
    round of small writes goes to the commit journal, if there is one; a large round, and what the
    journal cannot take, is synced in place.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        mode: FsyncMode,
        interval_ms: int,
        journal: CommitJournal | None = None,
    ) -> None:
        self._clock = clock
        self._interval_ms = interval_ms if mode == "interval" else BACKGROUND_INTERVAL_MS
        self._saving = Saving(clock)
        self._journal = None if journal is None else CheckpointedJournal(clock, journal)
        self._urgent: dict[Partition, None] = {}
        self._later: dict[Partition, None] = {}
        self._is_round_due = False
        self._writes = 0
        self._writes_before = 0
        self._is_interval_running = False
        self._running = 0
        self._round: list[_Outcome] = []
        self._idle: list[Callable[[], None]] = []
        self._durations: Histogram | None = None  # of rounds
        self._stopwatch: Callable[[], float] = lambda: 0.0
        self._began = 0.0
        self.rounds = 0
        self.rounds_journaled = 0
        self.files_synced = 0

    def measure(self, durations: Histogram, stopwatch: Callable[[], float]) -> None:
        """Measure how long rounds take, with a clock that shows seconds."""
        self._durations, self._stopwatch = durations, stopwatch

    def mark(self, partition: Partition) -> None:
        """Note that a partition has been written to."""
        if partition.waits_for_sync:
            self._urgent[partition] = None
            self._writes += 1
            if not self._is_round_due and not self._running:
                self._begin_soon()
        else:
            self._later[partition] = None
            if not self._is_interval_running:
                self._is_interval_running = True
                self._clock.call_later(self._interval_ms, self._interval_ended)

    def flush_now(self, done: Callable[[], None]) -> None:
        """Sync everything that is written, whatever the mode, then call `done`."""
        self._idle.append(done)
        self._make_urgent()

    def clear_journal(self, done: Cleared) -> None:
        """Sync what the commit journal holds to the logs, and drop it from the journal.

        Files may be rewritten only afterwards: after a crash the journal is replayed over them.
        `done` gets False if the journal has failed and keeps its content.
        """
        if self._journal is None:
            done(True)
        else:
            self._journal.clear(done)

    def _interval_ended(self) -> None:
        self._is_interval_running = False
        self._make_urgent()

    def _make_urgent(self) -> None:
        self._urgent.update(self._later)
        self._later.clear()
        if not self._running:
            self._begin()

    def _begin_soon(self) -> None:
        self._is_round_due = True
        self._gather(GATHER_TURNS if self._writes_before > 1 else 1)

    def _gather(self, turns: int) -> None:
        """Begin after some turns of the event loop: the rest of this one may write more."""
        if turns > 1:
            self._clock.call_soon(partial(self._gather, turns - 1))
        else:
            self._clock.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_round_due = False
        if self._running:
            return
        self._writes_before, self._writes = self._writes, 0
        dirty, self._urgent = self._urgent, {}
        is_brief = not self._idle
        flushes = [
            (one, one.durability.flush(is_brief=is_brief))
            for one in dirty
            if one.durability.is_dirty
        ]
        if not flushes:
            self._finish_idle()
            return
        self.rounds += 1
        self._began = self._stopwatch()
        self._round = []
        journaled, direct = self._divide(flushes)
        threads = min(THREADS_MAX, len(direct))
        self._running = threads + bool(journaled)
        self.files_synced += len(direct)
        if journaled:
            self._write_journal(journaled)
        for number in range(threads):
            share = direct[number::threads]
            self._clock.run_blocking(partial(_run, share), self._share_done)

    def _divide(self, flushes: _Flushes) -> tuple[_Flushes, _Flushes]:
        """Return what goes to the commit journal, and what is synced in place."""
        if self._journal is None or self._idle:
            return [], flushes
        sizes = [flush.tail_bytes for _, flush in flushes]
        small = [size for size in sizes if size is not None]
        data_bytes = sum(small)
        if not small or data_bytes > ROUND_BYTES_MAX:
            return [], flushes
        if not self._journal.begin_round(tail_count=len(small), data_bytes=data_bytes):
            return [], flushes
        return (
            [one for one, size in zip(flushes, sizes, strict=True) if size is not None],
            [one for one, size in zip(flushes, sizes, strict=True) if size is None],
        )

    def _write_journal(self, flushes: _Flushes) -> None:
        assert self._journal is not None
        self.rounds_journaled += 1
        journal = self._journal.journal
        frame = journal.frame([partition.durability.tail(flush) for partition, flush in flushes])

        def done(_: object, error: Exception | None) -> None:
            self._journal_written(flushes, error)

        self._clock.run_blocking(partial(journal.write, frame), done)

    def _journal_written(self, flushes: _Flushes, error: Exception | None) -> None:
        assert self._journal is not None
        if error is None:
            self._journal.end_round([partition for partition, _ in flushes])
            self._round += [(partition, flush, None, True) for partition, flush in flushes]
        elif isinstance(error, OSError):
            # The logs themselves may be intact: sync those.
            self._journal.fail(error)
            self._journal.end_round([])
            self._urgent.update(dict.fromkeys(partition for partition, _ in flushes))
        else:
            raise error
        self._job_done()

    def _share_done(self, results: list[_Outcome], error: Exception | None) -> None:
        if error is not None:
            raise error
        self._round += results
        self._job_done()

    def _job_done(self) -> None:
        self._running -= 1
        if self._running:
            return
        if self._durations is not None:
            self._durations.observe(self._stopwatch() - self._began)
        # No writer is answered before the whole round is durable: records of one partition may
        # depend on another (on their topic, for example).
        for partition, flush, failure, is_journaled in self._round:
            if partition.is_gone:
                continue  # It was deleted meanwhile, and its waiters have been notified.
            if failure is not None:
                _log.error("syncing %s failed: %s", partition.name, failure)
                partition.fail(failure)
            elif is_journaled:
                partition.durability.journaled(flush)
            else:
                partition.durability.flushed(flush)
            if partition.durability.is_save_due:
                self._saving.request(partition)
        if self._idle:
            self._make_urgent()
        elif self._urgent:
            self._begin_soon()

    def _finish_idle(self) -> None:
        idle, self._idle = self._idle, []
        for done in idle:
            self._saving.when_idle(partial(self._clear_then, done))

    def _clear_then(self, done: Callable[[], None]) -> None:
        # Cleared or not: a journal that has failed is replayed at the next start.
        self.clear_journal(partial(_call, done))


class CheckpointedJournal:
    """The commit journal, with the partitions that have entries in each of its files.

    A file is reused after a checkpoint of its partitions.
    """

    def __init__(self, clock: Clock, journal: CommitJournal) -> None:
        self.journal = journal
        self.is_failed = False
        self._clock = clock
        self._uncheckpointed: tuple[dict[Partition, None], ...] = ({}, {})
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
        self._uncheckpointed[self.journal.current].update(dict.fromkeys(partitions))
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

    # Checkpoints

    def _switch(self) -> bool:
        """Switch to the other file, if it is free, and checkpoint this one."""
        journal = self.journal
        if self._running or not journal.is_empty(1 - journal.current):
            return False
        partitions = [one for one in self._uncheckpointed[journal.current] if not one.is_gone]
        if any(one.failure is not None for one in partitions):
            self._keep()
            return False
        left = journal.switch()
        self._uncheckpointed[left].clear()
        self._has_failures = False
        checkpoints = [(one, one.durability.checkpoint()) for one in partitions]
        threads = max(1, min(CHECKPOINT_THREADS_MAX, len(checkpoints)))
        self._running = threads
        for number in range(threads):
            share = checkpoints[number::threads]
            self._clock.run_blocking(partial(_sync, share), partial(self._share_done, left))
        return True

    def _share_done(self, left: int, results: list[_Checkpoint], error: Exception | None) -> None:
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
                partition.durability.checkpointed(point)
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


def _call(done: Callable[[], None], _: bool) -> None:
    done()


def _run(share: _Flushes) -> list[_Outcome]:
    results: list[_Outcome] = []
    for partition, flush in share:
        try:
            flush.run()
            results.append((partition, flush, None, False))
        except OSError as error:
            results.append((partition, flush, error, False))
    return results


def _sync(share: list[tuple[Partition, SyncPoint]]) -> list[_Checkpoint]:
    results: list[_Checkpoint] = []
    for partition, point in share:
        try:
            point.sync()
            results.append((partition, point, None))
        except OSError as error:
            results.append((partition, point, error))
    return results
