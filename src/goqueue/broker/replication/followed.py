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

ClearJournal = Callable[[Callable[[bool], None]], None]

_log = logging.getLogger(__name__)


class FollowedPartitions:
    """Fetches from the leaders of all partitions that this node follows."""

    def __init__(self, incarnation: bytes, peers: Peers, clock: Clock) -> None:
        self._incarnation = incarnation
        self._peers = peers
        self._clock = clock
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._bucket: TokenBucket | None = None  # for replicas not in sync
        self._meters: dict[PartitionKey, Meter] = {}  # of replicas not in sync
        self._questions: dict[int, dict[PartitionKey, FollowedPartition]] = {}
        self._reports: dict[int, dict[PartitionKey, ReplicaReport]] = {}
        self._is_flush_due = False
        self._is_stopped = False
        peers.listen(PeerKind.LEADER, self._from_leader)

    def places(self) -> list[PartitionKey]:
        return list(self._followed)

    def get(self, place: PartitionKey) -> FollowedPartition | None:
        return self._followed.get(place)

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

    def begin(self, place: PartitionKey, followed: FollowedPartition) -> None:
        self._followed[place] = followed
        followed.start(self._clock.now_ms())
        self.question(place)

    def end(self, place: PartitionKey) -> None:
        """Stop following in a partition."""
        self._meters.pop(place, None)
        followed = self._followed.pop(place, None)
        if followed is not None:
            followed.stop()

    def stop(self) -> None:
        self._is_stopped = True
        for followed in self._followed.values():
            followed.stop()

    # Fetches

    def question(self, place: PartitionKey) -> None:
        """Schedule the next fetch for the end of this turn, if one is due."""
        followed = self._followed.get(place)
        if followed is not None:
            self._questions.setdefault(followed.leader, {})[place] = followed
            self._flush_soon()

    def report(self, place: PartitionKey, leader: int, report: ReplicaReport) -> None:
        self._reports.setdefault(leader, {})[place] = report
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._clock.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has accumulated in this turn."""
        self._is_flush_due = False
        if self._is_stopped:
            return
        now_ms = self._clock.now_ms()
        questions, self._questions = self._questions, {}
        reports, self._reports = self._reports, {}
        for leader in dict.fromkeys((*questions, *reports)):
            fetches = [
                fetch
                for one in questions.get(leader, {}).values()
                if self._may_ask(one, now_ms) and (fetch := one.fetch(now_ms)) is not None
            ]
            told = list(reports.get(leader, {}).values())
            if fetches or told:
                notice = FollowerNotice(self._incarnation, fetches, told)
                self._peers.notify(leader, PeerKind.FOLLOWER, encode_follower_notice(notice))

    def _may_ask(self, followed: FollowedPartition, now_ms: int) -> bool:
        """Return whether the rate limit allows a fetch; otherwise the next tick tries again."""
        bucket = self._bucket
        return bucket is None or followed.is_in_sync or bucket.is_open(now_ms)

    def tick(self) -> None:
        for place in self._followed:
            self.question(place)

    # Answers

    def _from_leader(self, node: int, head: bytes, body: memoryview) -> None:
        now_ms = self._clock.now_ms()
        for answer, batches in decode_answers(head, body):
            place = (answer.topic_id, answer.partition)
            followed = self._followed.get(place)
            if followed is not None and followed.leader == node:
                if batches:
                    self._measure(place, followed, len(batches), now_ms)
                followed.received(answer, batches, now_ms)
                self.question(place)

    def _measure(
        self, place: PartitionKey, followed: FollowedPartition, count: int, now_ms: int
    ) -> None:
        if followed.is_in_sync:
            self._meters.pop(place, None)
            return
        meter = self._meters.get(place)
        if meter is None:
            meter = self._meters[place] = Meter(now_ms)
        meter.add(count, now_ms)
        if self._bucket is not None:
            self._bucket.take(count)


class FollowedPartition:
    """A partition that this node follows: applies its leader's answers to the local replica.

    The partition must already be a follower. `clear_journal` clears the commit journal and reports
    whether it succeeded. `tell` sends a report; `resume` is called when there may be a fetch to
    send again.
    """

    def __init__(
        self,
        partition: Partition,
        following: Following,
        *,
        is_in_sync: bool,
        clear_journal: ClearJournal,
        tell: Callable[[ReplicaReport], None],
        resume: Callable[[], None],
    ) -> None:
        assert partition.is_following
        self.partition = partition
        self.following = following
        self.leader = following.leader
        self.is_in_sync = is_in_sync  # by this node's metadata
        self._clear_journal = clear_journal
        self._tell = tell
        self._resume = resume
        self._is_stopped = False
        self._cut_due: Truncate | Restart | None = None  # the journal is cleared for it
        partition.on_durable = self._durable

    def start(self, now_ms: int) -> None:
        """Before the first fetch, truncate at the first damage: the leader has the rest.

        Not while the replica is in sync: it could be the next leader. A replica that returns from a
        crash is not in sync, and one that is given up leaves the in-sync set.
        """
        if self.partition.replica.damaged_from is not None and not self.is_in_sync:
            self._cut(self.following.repair(self.partition.replica.damaged_from), now_ms)

    def changed(self, *, version: int, is_in_sync: bool) -> None:
        """Apply a decision of the controller after which the same node leads."""
        self.following.version = version
        self.is_in_sync = is_in_sync

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
