"""Group commit: one round of syncing serves everything that was written before it began."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Literal

from goqueue.broker.scheduler import Scheduler
from goqueue.partition import Flush, Partition

FsyncMode = Literal["every", "interval", "none"]

# Syncs of several files at once share one commit of the file system's journal.
THREADS_MAX = 4
# Without promised syncs the log is still synced now and then, so that recovery stays short.
BACKGROUND_INTERVAL_MS = 60_000

_log = logging.getLogger(__name__)


class Flusher:
    """Makes written partitions durable, one round at a time.

    Partitions whose writers wait are synced at once, the others at the end of an interval.
    """

    def __init__(self, scheduler: Scheduler, *, mode: FsyncMode, interval_ms: int) -> None:
        self._scheduler = scheduler
        self._interval_ms = interval_ms if mode == "interval" else BACKGROUND_INTERVAL_MS
        self._urgent: dict[Partition, None] = {}
        self._later: dict[Partition, None] = {}
        self._is_round_due = False
        self._is_interval_running = False
        self._running = 0
        self._round: list[tuple[Partition, Flush, Exception | None]] = []
        self._idle: list[Callable[[], None]] = []
        self.rounds = 0
        self.files_synced = 0

    def mark(self, partition: Partition) -> None:
        """A partition has been written to."""
        if partition.waits_for_sync:
            self._urgent[partition] = None
            if not self._is_round_due and not self._running:
                # The rest of this turn of the event loop may write more; take it along.
                self._is_round_due = True
                self._scheduler.call_soon(self._begin)
        else:
            self._later[partition] = None
            if not self._is_interval_running:
                self._is_interval_running = True
                self._scheduler.call_later(self._interval_ms, self._interval_ended)

    def flush_now(self, done: Callable[[], None]) -> None:
        """Sync all that is written, whatever the mode, then call `done`."""
        self._idle.append(done)
        self._make_urgent()

    def _interval_ended(self) -> None:
        self._is_interval_running = False
        self._make_urgent()

    def _make_urgent(self) -> None:
        self._urgent.update(self._later)
        self._later.clear()
        if not self._running:
            self._begin()

    def _begin(self) -> None:
        self._is_round_due = False
        if self._running:
            return
        dirty, self._urgent = self._urgent, {}
        flushes = [(partition, partition.flush()) for partition in dirty if partition.is_dirty]
        if not flushes:
            self._finish_idle()
            return
        self.rounds += 1
        self.files_synced += len(flushes)
        threads = min(THREADS_MAX, len(flushes))
        self._running = threads
        self._round = []
        for number in range(threads):
            share = flushes[number::threads]
            self._scheduler.run_blocking(partial(_run, share), self._share_done)

    def _share_done(
        self, results: list[tuple[Partition, Flush, Exception | None]], error: Exception | None
    ) -> None:
        if error is not None:
            raise error
        self._round += results
        self._running -= 1
        if self._running:
            return
        # Nobody is answered before all of the round is durable: what one partition's records
        # rely on (their topic, say) may be in another.
        for partition, flush, failure in self._round:
            if partition.is_gone:
                continue  # It was deleted meanwhile, and everyone has been told.
            if failure is None:
                partition.flushed(flush)
            elif isinstance(failure, OSError):
                _log.error("syncing %s failed: %s", partition.name, failure)
                partition.fail(failure)
            else:
                raise failure
        if self._idle:
            self._make_urgent()
        else:
            self._begin()

    def _finish_idle(self) -> None:
        idle, self._idle = self._idle, []
        for done in idle:
            done()


def _run(share: list[tuple[Partition, Flush]]) -> list[tuple[Partition, Flush, Exception | None]]:
    results: list[tuple[Partition, Flush, Exception | None]] = []
    for partition, flush in share:
        try:
            flush.run()
            results.append((partition, flush, None))
        except Exception as error:
            results.append((partition, flush, error))
    return results
