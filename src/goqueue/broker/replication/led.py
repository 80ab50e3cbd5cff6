"""The partitions that this node leads, and the answers to their followers.

In-sync followers are answered at once, because producers wait for them; a fetch at the end of the
log is parked until there is something new. Followers with waiting consumers also get every advance
of the high watermark. Replicas that are behind are answered after those, at their own pace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from goqueue.broker.replication import deletions
from goqueue.broker.replication.deletions import Deletion
from goqueue.cluster.facts import PartitionFact, PartitionKey
from goqueue.cluster.replication import (
    EXEMPT,
    NO_THROTTLE,
    AdvanceHighWatermark,
    FetchStatus,
    ProposeInSync,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
    ReplicaSet,
    Served,
    SetShortage,
    Stragglers,
    decode_follower_notice,
    encode_answers,
    parked_ms,
)
from goqueue.cluster.replication.replica_set import Effect
from goqueue.config import ReplicationSettings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import CorruptBatch, NotEnoughReplicas, StorageFailed
from goqueue.partition import Partition

ANSWER_BYTES_MAX = 4 << 20  # per notice; the next one takes the rest
CATCH_UP_BYTES_MAX = 1 << 20  # per turn; other work comes in between
UNTOLD_MS_MAX = 100  # longest time that a fetch is parked without the current high watermark

Propose = Callable[[ProposeInSync], None]

_log = logging.getLogger(__name__)


class LedPartitions:
    """Answers the followers of all partitions that this node leads."""

    def __init__(self, peers: Peers, clock: Clock, settings: ReplicationSettings) -> None:
        # How many replicas have left and joined the in-sync sets of partitions led here.
        self.shrunk = self.expanded = 0
        self._peers = peers
        self._clock = clock
        self._settings = settings
        self._parked_ms = parked_ms(settings)
        self._led: dict[PartitionKey, LedPartition] = {}
        self._answers: dict[int, _Answers] = {}
        self._news: list[LedPartition] = []
        self._marks: dict[Partition, LedPartition] = {}  # their followers want every advance
        self._risen: dict[Partition, None] = {}  # of those, the ones that have advanced
        self._stragglers: Stragglers[_Question] = Stragglers(
            settings.catch_up_bytes_per_second, now_ms=clock.now_ms()
        )
        self._is_flush_due = False
        self._is_flushing = False
        self._is_stopped = False
        peers.listen(PeerKind.FOLLOWER, self._from_follower)

    def __iter__(self) -> Iterator[LedPartition]:
        return iter(list(self._led.values()))

    def get(self, place: PartitionKey) -> LedPartition | None:
        return self._led.get(place)

    def limit(self, bytes_per_second: int) -> None:
        """Limit what replicas not in sync get all together; 0 means the limit of the settings."""
        rate = bytes_per_second or self._settings.catch_up_bytes_per_second
        self._stragglers.limit(rate, now_ms=self._clock.now_ms())

    # Roles

    def begin(self, led: LedPartition) -> None:
        self._led[led.place] = led
        led.partition.on_written = lambda: self._note_news(led)

    def end(self, place: PartitionKey) -> LedPartition | None:
        """Stop leading a partition."""
        led = self._led.pop(place, None)
        if led is None:
            return None
        led.stop()
        led.partition.on_written = None
        self._watch_no_longer(led.partition)
        self._stragglers.forget(place, led.replicas.replicas)
        return led

    def stop(self) -> None:
        self._is_stopped = True
        for led in self._led.values():
            led.stop()

    def changed(self, led: LedPartition, fact: PartitionFact) -> None:
        """Apply a decision, and answer at once the followers that the in-sync set now waits for."""
        now_ms = self._clock.now_ms()
        before = led.replicas.in_sync
        has_new_throttle = led.changed(fact, now_ms=now_ms)
        self.shrunk += len(before - led.replicas.in_sync)
        self.expanded += len(led.replicas.in_sync - before)
        if has_new_throttle:
            self._line_up_again(led)
        for node in led.replicas.counting:
            self._hurry(led, node, now_ms)
        if led.deletions:
            led.settle_deletions(now_ms)

    def _line_up_again(self, led: LedPartition) -> None:
        """Queue waiting fetches again under the changed throttle."""
        for node in led.replicas.replicas:
            question = self._stragglers.withdraw(node, led.place)
            if question is not None:
                self._line_up(led, node, question)

    def _line_up(self, led: LedPartition, node: int, question: _Question) -> None:
        """Queue the fetch of a replica that is behind."""
        self._stragglers.ask(node, led.place, question, throttle=led.throttle_of(node))
        self._flush_soon()

    # Fetches

    def _from_follower(self, node: int, head: bytes, _: memoryview) -> None:
        notice = decode_follower_notice(head)
        now_ms = self._clock.now_ms()
        for report in notice.reports:
            led = self._led.get((report.topic_id, report.partition))
            if led is not None:
                led.reported(node, notice.incarnation, report, now_ms)
                self._hurry(led, node, now_ms)
        for fetch in notice.fetches:
            self._asked(node, _Question(notice.incarnation, fetch), now_ms)

    def _asked(self, node: int, question: _Question, now_ms: int) -> None:
        fetch = question.fetch
        place = (fetch.topic_id, fetch.partition)
        led = self._led.get(place)
        if led is None:
            self._answer(node, fetch.answered(FetchStatus.NOT_LEADER), b"")
            return
        is_behind = fetch.offset < led.partition.end_offset
        if is_behind and not led.counts(node):
            self._line_up(led, node, question)
            return
        self._stragglers.heard(node, place)
        self._serve(led, node, question, now_ms)

    def _hurry(self, led: LedPartition, node: int, now_ms: int) -> None:
        """Answer the queued fetch of a replica that counts as in sync now."""
        if self._stragglers.has_waiting and led.counts(node):
            question = self._stragglers.withdraw(node, led.place)
            if question is not None:
                self._serve(led, node, question, now_ms)

    def _serve(self, led: LedPartition, node: int, question: _Question, now_ms: int) -> int:
        """Answer a fetch, or park it; return how many bytes were sent."""
        answer, batches = led.serve(node, question.incarnation, question.fetch, now_ms)
        if led.deletions:
            led.settle_deletions(now_ms)
        mark = led.told.get(node, -1)
        is_untold = question.fetch.is_eager and mark < answer.high_watermark
        if answer.status is FetchStatus.OK and not batches and not is_untold:
            led.parked[node] = _Parked(question, now_ms, mark)
            if question.fetch.is_eager:
                self._marks[led.partition] = led
                led.partition.watchers[self] = None
            return 0
        led.parked.pop(node, None)
        led.told[node] = answer.high_watermark
        self._answer(node, answer, batches)
        return len(batches)

    def _serve_behind(self, now_ms: int) -> None:
        """Answer replicas that are behind, as many as this turn allows."""
        left = CATCH_UP_BYTES_MAX
        while left > 0:
            turn = self._stragglers.take(now_ms)
            if turn is None:
                return
            fetch = turn.question.fetch
            led = self._led.get((fetch.topic_id, fetch.partition))
            if led is None:
                self._answer(turn.node, fetch.answered(FetchStatus.NOT_LEADER), b"")
                continue
            bytes_max = min(fetch.bytes_max, turn.bytes_max)
            piece = msgspec.structs.replace(fetch, bytes_max=bytes_max)
            question = _Question(turn.question.incarnation, piece)
            count = self._serve(led, turn.node, question, now_ms)
            self._stragglers.sent(turn, count, now_ms)
            left -= count
        self._flush_soon()

    # New records

    def _note_news(self, led: LedPartition) -> None:
        if led.parked and not led.has_news:
            led.has_news = True
            self._news.append(led)
            self._flush_soon()

    def _serve_news(self, now_ms: int) -> None:
        news, self._news = self._news, []
        for led in news:
            led.has_news = False
            parked, led.parked = led.parked, {}
            for node, one in parked.items():
                self._asked(node, one.question, now_ms)

    def partition_advanced(self, partition: Partition) -> None:
        """Note that messages are committed that followers may wait for."""
        self._risen[partition] = None
        self._flush_soon()

    def _tell_marks(self, now_ms: int) -> None:
        """Send the high watermark to followers that want every advance."""
        risen, self._risen = self._risen, {}
        for partition in risen:
            led = self._marks.get(partition)
            parked = {} if led is None else led.parked
            eager = [(node, one) for node, one in parked.items() if one.question.fetch.is_eager]
            if led is None or not eager:
                self._watch_no_longer(partition)
                continue
            for node, one in eager:
                if one.mark < partition.high_watermark:
                    self._end_wait(led, node, now_ms)

    def _watch_no_longer(self, partition: Partition) -> None:
        self._marks.pop(partition, None)
        partition.watchers.pop(self, None)

    def _end_waits(self, led: LedPartition, now_ms: int) -> None:
        """Answer fetches that have been parked long enough, at least with the high watermark."""
        for node, parked in list(led.parked.items()):
            is_told = parked.mark >= led.partition.high_watermark
            if now_ms - parked.since_ms >= (self._parked_ms if is_told else UNTOLD_MS_MAX):
                self._end_wait(led, node, now_ms)

    def _end_wait(self, led: LedPartition, node: int, now_ms: int) -> None:
        question = led.parked.pop(node).question
        answer, batches = led.serve(node, question.incarnation, question.fetch, now_ms)
        led.told[node] = answer.high_watermark
        self._answer(node, answer, batches)

    def when_deleted(self, led: LedPartition, offset: int, *, timeout_ms: int) -> Promise[int]:
        """Resolve when no in-sync replica has records before `offset`: they cannot come back then.

        The result is the lowest start offset of these replicas.
        """
        now_ms = self._clock.now_ms()
        deletion = Deletion(offset, now_ms + timeout_ms)
        led.deletions.append(deletion)
        # Parked followers are sent the new start offset at once, and confirm it with their next
        # fetch.
        for node in list(led.parked):
            self._end_wait(led, node, now_ms)
        led.settle_deletions(now_ms)
        return deletion.done

    # Answers

    def _answer(self, node: int, answer: ReplicaFetched, batches: bytes) -> None:
        answers = self._answers.get(node)
        if answers is None:
            answers = self._answers[node] = _Answers()
        answers.heads.append(answer)
        if batches:
            answers.batches.append(batches)
            answers.bytes += len(batches)
        if answers.bytes >= ANSWER_BYTES_MAX:
            self._send(node, self._answers.pop(node))
        if not self._is_flushing:
            self._flush_soon()

    def _send(self, node: int, answers: _Answers) -> None:
        self._peers.notify(node, PeerKind.LEADER, encode_answers(answers.heads), answers.batches)

    # Turns

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._clock.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has accumulated in this turn, for in-sync replicas first."""
        self._is_flush_due = False
        if self._is_stopped:
            return
        now_ms = self._clock.now_ms()
        self._is_flushing = True
        self._serve_news(now_ms)
        if self._risen:
            self._tell_marks(now_ms)
        self._send_all()
        if self._stragglers.has_waiting:
            self._serve_behind(now_ms)
            self._send_all()
        self._is_flushing = False

    def _send_all(self) -> None:
        answers, self._answers = self._answers, {}
        for node, one in answers.items():
            self._send(node, one)

    def tick(self, now_ms: int) -> None:
        self._stragglers.tick(now_ms)
        if self._stragglers.has_waiting:
            self._flush_soon()
        for led in list(self._led.values()):
            led.tick(now_ms)
            if led.parked:
                self._end_waits(led, now_ms)


@dataclass(frozen=True, slots=True)
class _Question:
    """A follower's fetch, with its incarnation."""

    incarnation: bytes
    fetch: ReplicaFetch


@dataclass(slots=True)
class _Parked:
    """A fetch that cannot be answered yet."""

    question: _Question
    since_ms: int
    mark: int  # the high watermark last sent to the follower


class _Answers:
    """The answers to one follower at the end of this turn."""

    __slots__ = ("batches", "bytes", "heads")

    def __init__(self) -> None:
        self.heads: list[ReplicaFetched] = []
        self.batches: list[bytes] = []
        self.bytes = 0


class LedPartition:
    """A partition that this node leads: answers fetches, and performs what the replica set decides.

    The partition must already lead. `propose` sends a proposal to the controller.
    """

    def __init__(
        self, fact: PartitionFact, partition: Partition, replicas: ReplicaSet, propose: Propose
    ) -> None:
        assert not partition.is_following
        assert partition.leader_epoch == replicas.leader_epoch
        self.place = fact.place
        self.partition = partition
        self.replicas = replicas
        self.parked: dict[int, _Parked] = {}  # by node
        self.told: dict[int, int] = {}  # by node: the last high watermark sent
        self.deletions: list[Deletion] = []
        self.has_news = False
        # A follower has fetched what cannot be read here, and that has been reported.
        self.is_damaged = False
        self._adding = fact.adding  # nodes to which the partition is being moved
        self._throttle = fact.throttle_bytes_per_second  # of their replicas
        self._served: dict[int, int] = {}  # by node: the offset of the last non-empty answer
        self._propose = propose
        partition.on_durable = self._durable
        self._perform(replicas.begin())

    def stop(self) -> None:
        """Stop: another node leads now, or none."""
        if self.partition.on_durable == self._durable:
            self.partition.on_durable = None
        waiting, self.deletions = self.deletions, []
        deletions.abandon(waiting, self.partition)

    def counts(self, node: int) -> bool:
        """Return whether commits wait for a node, so that it must not be delayed."""
        return node in self.replicas.in_sync or node in self.replicas.counting

    def throttle_of(self, node: int) -> int:
        """Return the throttle of a replica that is behind."""
        if self.replicas.is_short:
            # Too few replicas are in sync for acks=all writes, so producers wait for this one.
            return EXEMPT
        return self._throttle if node in self._adding else NO_THROTTLE

    # Followers

    def serve(self, node: int, incarnation: bytes, fetch: ReplicaFetch, now_ms: int) -> Served:
        """Return the answer to a follower, with batches unless it is at the end."""
        partition = self.partition
        status = self._standing(node, incarnation, fetch)
        if status is not FetchStatus.OK:
            return Served(self._answer(fetch, status))
        if fetch.last_epoch >= 0 or fetch.offset > partition.end_offset:
            epoch, end = partition.replica.epoch_end(fetch.last_epoch)
            if epoch != fetch.last_epoch or end < fetch.offset:
                return self._diverging(fetch, epoch, end)
        if fetch.offset < partition.start_offset and fetch.offset != self._first_offset():
            return self._cut_off(fetch, FetchStatus.BELOW_START)
        return self._read(node, incarnation, fetch, now_ms)

    def reported(self, node: int, incarnation: bytes, report: ReplicaReport, now_ms: int) -> None:
        """Process a report that a follower has made more durable."""
        is_meant = report.leader_epoch == self.partition.leader_epoch
        if is_meant and self.replicas.is_about_this(node, report.version):
            effects = self.replicas.follower_durable(
                node,
                incarnation,
                durable_offset=report.durable_offset,
                end_offset=self.partition.end_offset,
                now_ms=now_ms,
            )
            self._perform(effects)

    def _standing(self, node: int, incarnation: bytes, fetch: ReplicaFetch) -> FetchStatus:
        epoch = self.partition.leader_epoch
        if self.partition.is_following or self.partition.is_gone:
            return FetchStatus.NOT_LEADER
        if fetch.leader_epoch != epoch:
            is_old = fetch.leader_epoch < epoch
            return FetchStatus.FENCED_EPOCH if is_old else FetchStatus.UNKNOWN_EPOCH
        if not self.replicas.knows(node, incarnation):
            return FetchStatus.UNKNOWN_REPLICA
        if not self.replicas.is_about_this(node, fetch.version):
            return FetchStatus.UNKNOWN_REPLICA
        return FetchStatus.OK

    def _read(self, node: int, incarnation: bytes, fetch: ReplicaFetch, now_ms: int) -> Served:
        partition, data = self.partition, b""
        if self._served.get(node) == fetch.offset:
            # The answer was lost, or the bytes sent without verification differ from what was
            # written.
            partition.log.distrust(fetch.offset)
        try:
            batches = partition.replica.read(fetch.offset, bytes_max=fetch.bytes_max)
            if batches is not None and batches.offset < fetch.offset:
                # Compaction has merged several batches. A follower in the middle of them was not in
                # sync, so it can drop its own version of the beginning and fetch this instead.
                return self._diverging(fetch, fetch.last_epoch, batches.offset)
            data = b"" if batches is None else batches.read()
        except (CorruptBatch, StorageFailed, OSError) as error:
            self._note_damage(node, fetch.offset, error)
        if data:
            self._served[node] = fetch.offset
        if not data and fetch.offset < partition.end_offset:
            return Served(self._answer(fetch, FetchStatus.DAMAGED))
        effects = self.replicas.follower_fetched(
            node,
            incarnation,
            offset=fetch.offset,
            durable_offset=fetch.durable_offset,
            start_offset=fetch.start_offset,
            end_offset=partition.end_offset,
            now_ms=now_ms,
        )
        self._perform(effects)
        return Served(
            fetch.answered(
                FetchStatus.OK,
                high_watermark=partition.high_watermark,
                start_offset=partition.start_offset,
                batches_bytes=len(data),
            ),
            data,
        )

    def _note_damage(self, node: int, offset: int, error: Exception) -> None:
        """Record what prevents a follower from continuing, and log it once.

        The log itself records wrong checksums.
        """
        if isinstance(error, OSError):
            self.partition.replica.note_failed_read(error, offset)
        if not self.is_damaged:
            self.is_damaged = True
            _log.error(
                "%s: follower %d needs records that are unreadable: %s Another in-sync replica "
                "will lead; if there is none, start its node, or delete records up to there.",
                self.partition.name,
                node,
                error,
            )

    def _diverging(self, fetch: ReplicaFetch, epoch: int, end: int) -> Served:
        return self._cut_off(fetch, FetchStatus.DIVERGING, diverging_epoch=epoch, diverging_end=end)

    def _cut_off(self, fetch: ReplicaFetch, status: FetchStatus, **diverging: int) -> Served:
        restart_offset = self._first_offset()
        if restart_offset is not None:
            diverging["restart_offset"] = restart_offset
        elif status is not FetchStatus.DIVERGING:
            return Served(self._answer(fetch, FetchStatus.DAMAGED))
        # A follower that only truncates its end needs no readable start. It may be the one replica
        # that can take over, once it is in sync.
        return Served(self._answer(fetch, status, **diverging))

    def _first_offset(self) -> int | None:
        """Return the start of the batch that contains the log's start offset; None if damaged.

        Records can be deleted up to the middle of a batch, but only whole batches can be
        replicated.
        """
        partition = self.partition
        try:
            first = partition.replica.read(partition.start_offset, bytes_max=1)
        except (CorruptBatch, StorageFailed):
            return None
        return partition.end_offset if first is None else first.offset

    def _answer(self, fetch: ReplicaFetch, status: FetchStatus, **offsets: int) -> ReplicaFetched:
        return fetch.answered(
            status,
            high_watermark=self.partition.high_watermark,
            start_offset=self.partition.start_offset,
            **offsets,
        )

    # The controller

    def tick(self, now_ms: int) -> None:
        self._perform(self.replicas.tick(now_ms))
        if self.deletions:
            self.settle_deletions(now_ms)

    def changed(self, fact: PartitionFact, *, now_ms: int) -> bool:
        """Apply a decision of the controller; return whether it has changed a throttle."""
        self._perform(self.replicas.in_sync_changed(fact, now_ms=now_ms))
        before = self._adding, self._throttle
        self._adding, self._throttle = fact.adding, fact.throttle_bytes_per_second
        return before != (self._adding, self._throttle)

    def in_sync_min_changed(self, in_sync_min: int) -> None:
        self._perform(self.replicas.in_sync_min_changed(in_sync_min))

    def settle_deletions(self, now_ms: int) -> None:
        """Answer those who wait until deleted records are deleted on all in-sync replicas."""
        waiting, self.deletions = self.deletions, []
        left = deletions.settle(waiting, self.partition, self.replicas, now_ms)
        self.deletions += left

    # Effects

    def _durable(self) -> None:
        self._perform(self.replicas.local_durable(self.partition.replica.durable_offset))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceHighWatermark):
                self.partition.replica.set_commit_limit(effect.offset)
            elif isinstance(effect, ProposeInSync):
                self._propose(effect)
            else:
                self.partition.replica.set_shortage(self._shortage(effect))

    def _shortage(self, effect: SetShortage) -> NotEnoughReplicas | None:
        if not effect.is_short:
            return None
        return NotEnoughReplicas(
            f"{self.partition.name} has {effect.in_sync_count} replicas in sync but needs "
            f"{effect.in_sync_min}; retry when more replicas are in sync."
        )
