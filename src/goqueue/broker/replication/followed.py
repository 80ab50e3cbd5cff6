"""The partitions that this node follows, and its fetches and reports to their leaders."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from goqueue.cluster.facts import PartitionKey
from goqueue.cluster.replication import (
    FollowerNotice,
    Meter,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
    TokenBucket,
    decode_answers,
    encode_follower_notice,
)
from goqueue.cluster.replication.following import (
    Append,
    Effect,
    Follow,
    Following,
    Restart,
    Truncate,
)
from goqueue.loop.clock import Clock
from goqueue.loop.peers import PeerKind, Peers
from goqueue.model.errors import GoQueueError, NotLeader
from goqueue.partition import Partition


class CopiedReplicas:
    """Fetches from leaders. `flush_soon` schedules `flush` at the end of this turn.

    `is_behind` returns whether this node's replica is not in sync.
    """

    def __init__(
        self,
        incarnation: bytes,
        peers: Peers,
        clock: Clock,
        *,
        is_behind: Callable[[PartitionKey], bool],
        flush_soon: Callable[[], None],
    ) -> None:
        self._incarnation = incarnation
        self._peers = peers
        self._clock = clock
        self._is_behind = is_behind
        self._flush_soon = flush_soon
        self._copied: dict[PartitionKey, Copying] = {}
        self._bucket: TokenBucket | None = None  # for replicas not in sync
        self._meters: dict[PartitionKey, Meter] = {}  # of replicas not in sync
        self._questions: dict[int, dict[PartitionKey, Copying]] = {}
        self._reports: dict[int, dict[PartitionKey, ReplicaReport]] = {}
        peers.listen(PeerKind.LEADER, self._from_leader)

    def places(self) -> list[PartitionKey]:
        return list(self._copied)

    def get(self, place: PartitionKey) -> Copying | None:
        return self._copied.get(place)

    def limit(self, bytes_per_second: int) -> None:
        """Limit what replicas not in sync fetch all together; 0 is unlimited."""
        if bytes_per_second <= 0:
            self._bucket = None
        elif self._bucket is None or self._bucket.bytes_per_second != bytes_per_second:
            self._bucket = TokenBucket(bytes_per_second, now_ms=self._clock.now_ms())

    def bytes_per_second(self, place: PartitionKey) -> int:
        """Return the recent fetch rate of a replica that is not in sync."""
        meter = self._meters.get(place)
        return 0 if meter is None else meter.per_second(self._clock.now_ms())

    # Roles

    def begin(self, place: PartitionKey, copying: Copying) -> None:
        self._copied[place] = copying
        copying.start(self._clock.now_ms())
        self.question(place)

    def end(self, place: PartitionKey) -> None:
        """Stop following in a partition."""
        self._meters.pop(place, None)
        copying = self._copied.pop(place, None)
        if copying is not None:
            copying.stop()

    def stop(self) -> None:
        for copying in self._copied.values():
            copying.stop()

    # Fetches

    def question(self, place: PartitionKey) -> None:
        """Schedule the next fetch for the end of this turn, if one is due."""
        copying = self._copied.get(place)
        if copying is not None:
            self._questions.setdefault(copying.leader, {})[place] = copying
            self._flush_soon()

    def report(self, place: PartitionKey, leader: int, report: ReplicaReport) -> None:
        self._reports.setdefault(leader, {})[place] = report
        self._flush_soon()

    def flush(self, now_ms: int) -> None:
        """Send what has accumulated in this turn."""
        questions, self._questions = self._questions, {}
        reports, self._reports = self._reports, {}
        for leader in dict.fromkeys((*questions, *reports)):
            asked = questions.get(leader, {}).items()
            fetches = [
                fetch
                for place, one in asked
                if self._may_ask(place, now_ms) and (fetch := one.fetch(now_ms)) is not None
            ]
            told = list(reports.get(leader, {}).values())
            if fetches or told:
                notice = FollowerNotice(self._incarnation, fetches, told)
                self._peers.notify(leader, PeerKind.FOLLOWER, encode_follower_notice(notice))

    def _may_ask(self, place: PartitionKey, now_ms: int) -> bool:
        """Return whether the rate limit allows a fetch; otherwise the next tick tries again."""
        bucket = self._bucket
        return bucket is None or bucket.is_open(now_ms) or not self._is_behind(place)

    # Answers

    def _from_leader(self, node: int, head: bytes, body: memoryview) -> None:
        now_ms = self._clock.now_ms()
        for answer, batches in decode_answers(head, body):
            place = (answer.topic_id, answer.partition)
            copying = self._copied.get(place)
            if copying is not None and copying.leader == node:
                if batches:
                    self._measure(place, len(batches), now_ms)
                copying.received(answer, batches, now_ms)
                self.question(place)

    def _measure(self, place: PartitionKey, count: int, now_ms: int) -> None:
        if not self._is_behind(place):
            self._meters.pop(place, None)
            return
        meter = self._meters.get(place)
        if meter is None:
            meter = self._meters[place] = Meter(now_ms)
        meter.add(count, now_ms)
        if self._bucket is not None:
            self._bucket.take(count)

    # Turns

    def tick(self) -> None:
        for place in self._copied:
            self.question(place)


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
        if self.partition.damaged_from is not None and not self._is_in_sync:
            self._cut(self.following.repair(self.partition.damaged_from), now_ms)

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
        """Clear the journal first: after a crash its content would be replayed."""
        partition = self.partition
        partition.begin_truncation()

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
        if effect is None or partition.is_flushing:
            return
        self._cut_due = None
        if effect.offset < partition.high_watermark and partition.damaged_from is None:
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
                partition.truncate(effect.offset, error, now_ms=now_ms)
            else:
                partition.restart(effect.offset, now_ms=now_ms)
        except OSError as error:
            # It may be half done. The next start finds out what the disk holds.
            partition.fail(error)
            return
        self.following.truncated()
        self._resume()
