"""Ordered writes of Raft's state to disk; what arrives during a write makes the next one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.cluster.raft.ready import Ready
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError, StorageFull

RETRY_MS = 100  # until a full disk has space again

_log = logging.getLogger(__name__)


class QuorumSaves:
    """One write at a time, in a thread."""

    def __init__(
        self,
        storage: RaftStorage,
        clock: Clock,
        *,
        saved: Callable[[list[Ready]], None],
        failed: Callable[[GoQueueError], None],
    ) -> None:
        """`failed` is called once; after it nothing is written any more."""
        self._storage = storage
        self._clock = clock
        self._on_saved = saved
        self._on_failed = failed
        self._unsaved: list[Ready] = []
        self._is_saving = False
        self._is_over = False

    def add(self, ready: Ready) -> None:
        self._unsaved.append(ready)

    def stop(self) -> None:
        """Write nothing more, and report no completion of a write in progress."""
        self._is_over = True

    def begin(self) -> None:
        """Write what has accumulated, unless a write is in progress."""
        if self._is_saving or not self._unsaved or self._is_over:
            return
        self._is_saving = True
        readies, self._unsaved = self._unsaved, []
        self._clock.run_blocking(partial(self._storage.save, readies), partial(self._done, readies))

    def _done(self, readies: list[Ready], _: object, error: Exception | None) -> None:
        self._is_saving = False
        if self._is_over:
            return
        if isinstance(error, StorageFull):
            _log.error("the quorum's log cannot be written, retrying: %s", error)
            self._unsaved[:0] = readies
            self._clock.call_later(RETRY_MS, self.begin)
        elif isinstance(error, GoQueueError):
            # The content of the disk is unknown, so no promise can be made until the next start.
            _log.error("this node has stopped taking part in the quorum: %s", error)
            self._is_over = True
            self._on_failed(error)
        elif error is not None:
            raise error
        else:
            self._on_saved(readies)
