"""The partitions that this node follows, and its fetches and reports to their leaders."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.cluster.facts import PartitionKey
from goqueue.cluster.replication import (
    Copying,
    FollowerNotice,
    Meter,
    ReplicaReport,
    TokenBucket,
    decode_answers,
    encode_follower_notice,
)
from goqueue.loop.clock import Clock
from goqueue.loop.peers import PeerKind, Peers


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
