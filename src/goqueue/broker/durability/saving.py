"""Background saves of the side files of logs, without waiting writers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.loop.clock import Clock
from goqueue.partition import Flush, Partition

_log = logging.getLogger(__name__)


class Saving:
    """Snapshots of partitions that have been written to, one at a time.

    They only avoid replaying a log, but replacing a file may take a disk a third of a second. So
    this is not part of a round. The log is synced along the way, which leaves less for a
    checkpoint.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Partition, None] = {}
        self._is_running = False
        self._idle: list[Callable[[], None]] = []

    def request(self, partition: Partition) -> None:
        """Save it when its turn comes."""
        self._due[partition] = None
        if not self._is_running:
            self._next()

    def when_idle(self, done: Callable[[], None]) -> None:
        """Call `done` as soon as nothing is being saved; dropped requests may be repeated."""
        self._due.clear()
        if self._is_running:
            self._idle.append(done)
        else:
            done()

    def _next(self) -> None:
        idle, self._idle = self._idle, []
        for done in idle:
            done()
        while self._due and not self._is_running:
            partition = next(iter(self._due))
            del self._due[partition]
            if partition.durability.may_be_saved:
                self._begin(partition, partition.durability.save())

    def _begin(self, partition: Partition, save: Flush) -> None:
        self._is_running = True
        self._clock.run_blocking(save.run, partial(self._done, partition, save))

    def _done(self, partition: Partition, save: Flush, _: object, error: Exception | None) -> None:
        self._is_running = False
        if error is None:
            partition.durability.saved(save)
        elif not isinstance(error, OSError):
            raise error
        elif not partition.is_gone:
            _log.error("syncing %s failed: %s", partition.name, error)
            partition.fail(error)
        # What could not be saved, or is due again already, is requested by the next round.
        if (
            partition.durability.may_be_saved
            and not partition.durability.is_save_due
            and not self._idle
        ):
            # Index entries become due by this sync; the next round need not wait for them.
            again = partition.durability.save()
            if again.point.index_files:
                self._begin(partition, again)
                return
        self._next()
