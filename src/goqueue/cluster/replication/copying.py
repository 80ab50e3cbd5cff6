"""A follower's replica of a partition, and the execution of what following its leader requires."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from goqueue.cluster.replication.following import (
    Append,
    Effect,
    Follow,
    Following,
    Restart,
    Truncate,
)
from goqueue.cluster.replication.messages import ReplicaFetch, ReplicaFetched, ReplicaReport
from goqueue.model.errors import GoQueueError, NotLeader
from goqueue.partition import Partition

ClearJournal = Callable[[Callable[[bool], None]], None]

_log = logging.getLogger(__name__)


class Copying:
    """Applies a leader's answers to the local replica. The partition must already be a follower.

    `clear_journal` clears the commit journal and reports whether it succeeded. `tell` sends a
    report; `resume` is called when there may be a fetch to send again.
    """

    def __init__(
        self,
        partition: Partition,
        following: Following,
        *,
        leader: int,
        clear_journal: ClearJournal,
        tell: Callable[[ReplicaReport], None],
        resume: Callable[[], None],
        is_in_sync: bool = False,
    ) -> None:
        """`is_in_sync` is whether the replica counts as in sync at the start."""
        assert partition.is_following
        self.partition = partition
        self.following = following
        self.leader = leader
        self._clear_journal = clear_journal
        self._tell = tell
        self._resume = resume
        self._is_in_sync = is_in_sync
        self._is_stopped = False
        self._cut_due: Truncate | Restart | None = None  # the journal is cleared for it
        partition.on_durable = self._durable

    def start(self, now_ms: int) -> None:
        """Before the first fetch, truncate at the first damage: the leader has the rest.

        Not while the replica is in sync: it could be the next leader. A replica that returns from a
        crash is not in sync, and one that is given up leaves the in-sync set.
        """
        damaged_from = self.partition.replica.damaged_from
        if damaged_from is not None and not self._is_in_sync:
            self._cut(self.following.repair(damaged_from), now_ms)

    def stop(self) -> None:
        """Stop because the leader changes; pending operations no longer touch the partition."""
        self._is_stopped = True
        if self.partition.on_durable == self._durable:
            self.partition.on_durable = None

    def fetch(self, now_ms: int) -> ReplicaFetch | None:
        """Return the next fetch for the leader, if one is due. Call this periodically."""
        if self._is_stopped or self.partition.failure is not None:
            return None
        self._cut_if_due(now_ms)
        fetch = self.following.fetch(now_ms)
        if fetch is not None and self.partition.watchers:
            fetch = msgspec.structs.replace(fetch, is_eager=True)
        return fetch

    def received(self, answer: ReplicaFetched, batches: bytes, now_ms: int) -> None:
        """Apply an answer of the leader."""
        if self._is_stopped:
            return
        for effect in self.following.received(answer, batches, now_ms):
            try:
                self._perform(effect, now_ms)
            except GoQueueError as error:
                _log.warning(
                    "%s: cannot follow node %d: %s", self.partition.name, self.leader, error
                )
                self.following.failed(now_ms)
                return

    def _perform(self, effect: Effect, now_ms: int) -> None:
        if isinstance(effect, Append):
            self.partition.replica.append(memoryview(effect.batches), now_ms=now_ms)
        elif isinstance(effect, Follow):
            self.partition.replica.follow(
                high_watermark=effect.high_watermark, start_offset=effect.start_offset
            )
        else:
            self._cut(effect, now_ms)

    def _durable(self) -> None:
        report = self.following.report()
        if report is not None:
            self._tell(report)

    def _cut(self, effect: Truncate | Restart, now_ms: int) -> None:
        """Clear the journal first: after a crash its content would be replayed."""
        partition = self.partition
        partition.replica.begin_truncation()

        def cleared(is_clear: bool) -> None:
            if self._is_stopped or partition.is_gone:
                return
            if not is_clear:
                partition.fail(OSError(0, "the commit journal failed and still holds old records"))
                return
            self._cut_due = effect
            self._cut_if_due(now_ms)

        self._clear_journal(cleared)

    def _cut_if_due(self, now_ms: int) -> None:
        """Truncate when no thread uses the files, which can take long with a slow disk."""
        partition, effect = self.partition, self._cut_due
        if effect is None or partition.durability.is_flushing:
            return
        self._cut_due = None
        if effect.offset < partition.high_watermark and partition.replica.damaged_from is None:
            _log.warning(
                "%s: node %d, the new leader, lacks committed records from offset %d on; "
                "they are truncated here as well",
                partition.name,
                self.leader,
                effect.offset,
            )
        try:
            if isinstance(effect, Truncate):
                error = NotLeader(partition.name, self.leader)
                partition.replica.truncate(effect.offset, error, now_ms=now_ms)
            else:
                partition.replica.restart(effect.offset, now_ms=now_ms)
        except OSError as error:
            # It may be half done. The next start finds out what the disk holds.
            partition.fail(error)
            return
        self.following.truncated()
        self._resume()
