"""A follower's copy of a partition, and the carrying out of what following its leader takes."""

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
    """Applies a leader's answers to the own copy. The partition must be a follower already.

    `clear_journal` has the commit journal forget what it holds, and says whether it has. `tell`
    sends a report; `resume` is called when there may be a question to ask again.
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
        """`is_in_sync` says that the copy counts as one that has everything, as it begins."""
        assert partition.is_following
        self.partition = partition
        self.following = following
        self.leader = leader
        self._clear_journal = clear_journal
        self._tell = tell
        self._resume = resume
        self._is_in_sync = is_in_sync
        self._is_stopped = False
        self._cut_due: Truncate | Restart | None = None  # the journal is clear for it
        partition.on_durable = self._durable

    def start(self, now_ms: int) -> None:
        """Before the first question, drop what is damaged and all after it: the leader has it.

        Not so while others rely on this copy: it could be the next to lead. Whoever comes back from
        a crash is not in sync, and whoever gives its copy up ceases to be.
        """
        if self.partition.damaged_from is not None and not self._is_in_sync:
            self._cut(self.following.repair(self.partition.damaged_from), now_ms)

    def stop(self) -> None:
        """The partition gets another leader; what is under way here must not touch it any more."""
        self._is_stopped = True
        if self.partition.on_durable == self._durable:
            self.partition.on_durable = None

    def fetch(self, now_ms: int) -> ReplicaFetch | None:
        """The next question to the leader, if it is time for one. Ask this now and then."""
        if self._is_stopped or self.partition.failure is not None:
            return None
        self._cut_if_due(now_ms)
        fetch = self.following.fetch(now_ms)
        if fetch is not None and self.partition.watchers:
            fetch = msgspec.structs.replace(fetch, is_eager=True)
        return fetch

    def received(self, answer: ReplicaFetched, batches: bytes, now_ms: int) -> None:
        """Carry out what an answer means."""
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
            self.partition.append_replicated(memoryview(effect.batches), now_ms=now_ms)
        elif isinstance(effect, Follow):
            self.partition.follow(
                high_watermark=effect.high_watermark, start_offset=effect.start_offset
            )
        else:
            self._cut(effect, now_ms)

    def _durable(self) -> None:
        report = self.following.report()
        if report is not None:
            self._tell(report)

    def _cut(self, effect: Truncate | Restart, now_ms: int) -> None:
        """Have the journal cleared first: a crash would bring back what it holds."""
        partition = self.partition
        partition.begin_truncation()

        def cleared(is_clear: bool) -> None:
            if self._is_stopped or partition.is_gone:
                return
            if not is_clear:
                partition.fail(OSError(0, "the commit journal has failed and holds old records"))
                return
            self._cut_due = effect
            self._cut_if_due(now_ms)

        self._clear_journal(cleared)

    def _cut_if_due(self, now_ms: int) -> None:
        """Do it when no thread is at the files, which may take long with a slow disk."""
        partition, effect = self.partition, self._cut_due
        if effect is None or partition.is_flushing:
            return
        self._cut_due = None
        if effect.offset < partition.high_watermark and partition.damaged_from is None:
            _log.warning(
                "%s: node %d, which leads now, does not have records from offset %d on that were "
                "committed; they are dropped here as well",
                partition.name,
                self.leader,
                effect.offset,
            )
        try:
            if isinstance(effect, Truncate):
                error = NotLeader(partition.name, self.leader)
                partition.truncate(effect.offset, error, now_ms=now_ms)
            else:
                partition.restart(effect.offset, now_ms=now_ms)
        except OSError as error:
            # Half of it may be done. What the disk holds is found out at the next start.
            partition.fail(error)
            return
        self.following.truncated()
        self._resume()
