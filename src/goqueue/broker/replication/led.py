"""The partitions that this node leads, and the answers to their followers.

In-sync followers are answered at once, because producers wait for them; a fetch at the end of the
log is parked until there is something new. Followers with waiting consumers also get every advance
of the high watermark. Replicas that are behind are answered after those, at their own pace.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from goqueue.cluster.facts import NO_LEADER, PartitionKey
from goqueue.cluster.replication import (
    EXEMPT,
    NO_THROTTLE,
    FetchStatus,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
    Served,
    Stragglers,
    decode_follower_notice,
    encode_answers,
)
from goqueue.cluster.replication.replica_set import (
    AdvanceHighWatermark,
    Effect,
    ProposeInSync,
    ReplicaSet,
    SetShortage,
)
from goqueue.config import ReplicationSettings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    CorruptBatch,
    NotEnoughReplicas,
    NotLeader,
    RequestTimedOut,
    StorageFailed,
)
from goqueue.partition import Partition

ANSWER_BYTES_MAX = 4 << 20  # per notice; the next one takes the rest
CATCH_UP_BYTES_MAX = 1 << 20  # per turn; other work comes in between
DELETION_TIMEOUT_MS = 30_000  # long enough for an unresponsive replica to leave the in-sync set
PARKED_MS_MAX = 5_000  # longest time that a fetch at the end of an idle log is parked
UNTOLD_MS_MAX = 100  # the same, if the follower does not have the high watermark yet


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


@dataclass(slots=True)
class _Deletion:
    """A wait until no in-sync replica has the records before `offset`."""

    offset: int
    deadline_ms: int
    done: Promise[int]


@dataclass(slots=True)
class Led:
    """A partition that this node leads, and its parked fetches."""

    place: PartitionKey
    leading: Leading
    adding: tuple[int, ...] = ()  # nodes to which the partition is being moved
    throttle: int = NO_THROTTLE  # of their replicas
    parked: dict[int, _Parked] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)  # by node: the last high watermark sent
    deletions: list[_Deletion] = field(default_factory=list)
    has_news: bool = False


class _Answers:
    """The answers to one follower at the end of this turn."""

    __slots__ = ("batches", "bytes", "heads")

    def __init__(self) -> None:
        self.heads: list[ReplicaFetched] = []
        self.batches: list[bytes] = []
        self.bytes = 0


class LedReplicas:
    """Answers followers. `flush_soon` schedules `flush` at the end of this turn."""

    def __init__(
        self,
        peers: Peers,
        clock: Clock,
        settings: ReplicationSettings,
        *,
        flush_soon: Callable[[], None],
    ) -> None:
        self._peers = peers
        self._clock = clock
        self._settings = settings
        self._flush_soon = flush_soon
        # A follower with a parked fetch must answer several times before it counts as lagging.
        self.parked_ms = min(PARKED_MS_MAX, settings.lag_ms // 4)
        self._led: dict[PartitionKey, Led] = {}
        self._answers: dict[int, _Answers] = {}
        self._news: list[Led] = []
        self._marks: dict[Partition, Led] = {}  # those whose followers want every advance
        self._risen: dict[Partition, None] = {}  # of those, the ones that have advanced
        self._is_flushing = False
        self._stragglers: Stragglers[_Question] = Stragglers(
            settings.catch_up_bytes_per_second, now_ms=clock.now_ms()
        )
        peers.listen(PeerKind.FOLLOWER, self._from_follower)

    def __iter__(self) -> Iterator[Led]:
        return iter(list(self._led.values()))

    def get(self, place: PartitionKey) -> Led | None:
        return self._led.get(place)

    def limit(self, bytes_per_second: int) -> None:
        """Limit what replicas not in sync get all together; 0 means the limit of the settings."""
        rate = bytes_per_second or self._settings.catch_up_bytes_per_second
        self._stragglers.limit(rate, now_ms=self._clock.now_ms())

    # Roles

    def begin(self, led: Led) -> None:
        self._led[led.place] = led
        led.leading.partition.on_written = lambda: self._note_news(led)

    def end(self, place: PartitionKey) -> Led | None:
        """Stop leading a partition."""
        led = self._led.pop(place, None)
        if led is None:
            return None
        self._stop(led)
        led.leading.partition.on_written = None
        self._watch_no_longer(led.leading.partition)
        self._stragglers.forget(place, led.leading.replicas.replicas)
        return led

    def stop(self) -> None:
        for led in self._led.values():
            self._stop(led)

    def _stop(self, led: Led) -> None:
        led.leading.stop()
        deletions, led.deletions = led.deletions, []
        for one in deletions:
            one.done.reject(NotLeader(led.leading.partition.name, NO_LEADER))

    def changed(self, led: Led, *, adding: tuple[int, ...], throttle: int) -> None:
        """Answer at once the followers that the in-sync set now waits for."""
        now_ms = self._clock.now_ms()
        if (adding, throttle) != (led.adding, led.throttle):
            led.adding, led.throttle = adding, throttle
            self._line_up_again(led)
        for node in led.leading.replicas.counting:
            self._hurry(led, node, now_ms)
        self._look_at_deletions(led, now_ms)

    def _line_up_again(self, led: Led) -> None:
        """Queue waiting fetches again under the changed throttle."""
        for node in led.leading.replicas.replicas:
            question = self._stragglers.withdraw(node, led.place)
            if question is not None:
                self._line_up(led, node, question)

    def _line_up(self, led: Led, node: int, question: _Question) -> None:
        """Queue the fetch of a replica that is behind."""
        throttle = led.throttle if node in led.adding else NO_THROTTLE
        if led.leading.replicas.is_short:
            # Too few replicas are in sync for acks=all writes, so producers wait for this one.
            throttle = EXEMPT
        self._stragglers.ask(node, led.place, question, throttle=throttle)
        self._flush_soon()

    # Fetches

    def _from_follower(self, node: int, head: bytes, _: memoryview) -> None:
        notice = decode_follower_notice(head)
        now_ms = self._clock.now_ms()
        for report in notice.reports:
            led = self._led.get((report.topic_id, report.partition))
            if led is not None:
                led.leading.reported(node, notice.incarnation, report, now_ms)
                self._hurry(led, node, now_ms)
        for fetch in notice.fetches:
            self._asked(node, _Question(notice.incarnation, fetch), now_ms)

    def _asked(self, node: int, question: _Question, now_ms: int) -> None:
        fetch = question.fetch
        place = (fetch.topic_id, fetch.partition)
        led = self._led.get(place)
        if led is None:
            self._answer(node, _not_leader(fetch), b"")
            return
        leading = led.leading
        is_behind = fetch.offset < leading.partition.end_offset
        if is_behind and not _counts(leading, node):
            self._line_up(led, node, question)
            return
        self._stragglers.heard(node, place)
        self._serve(led, node, question, now_ms)

    def _hurry(self, led: Led, node: int, now_ms: int) -> None:
        """Answer the queued fetch of a replica that counts as in sync now."""
        if self._stragglers.has_waiting and _counts(led.leading, node):
            question = self._stragglers.withdraw(node, led.place)
            if question is not None:
                self._serve(led, node, question, now_ms)

    def _serve(self, led: Led, node: int, question: _Question, now_ms: int) -> int:
        """Answer a fetch, or park it; return how many bytes were sent."""
        leading = led.leading
        answer, batches = leading.serve(node, question.incarnation, question.fetch, now_ms)
        if led.deletions:
            self._look_at_deletions(led, now_ms)
        mark = led.told.get(node, -1)
        is_untold = question.fetch.is_eager and mark < answer.high_watermark
        if answer.status is FetchStatus.OK and not batches and not is_untold:
            led.parked[node] = _Parked(question, now_ms, mark)
            if question.fetch.is_eager:
                self._marks[leading.partition] = led
                leading.partition.watchers[self] = None
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
                self._answer(turn.node, _not_leader(fetch), b"")
                continue
            bytes_max = min(fetch.bytes_max, turn.bytes_max)
            piece = msgspec.structs.replace(fetch, bytes_max=bytes_max)
            question = _Question(turn.question.incarnation, piece)
            count = self._serve(led, turn.node, question, now_ms)
            self._stragglers.sent(turn, count, now_ms)
            left -= count
        self._flush_soon()

    # New records

    def _note_news(self, led: Led) -> None:
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
            eager = [] if led is None else _eager(led)
            if led is None or not eager:
                self._watch_no_longer(partition)
                continue
            for node, parked in eager:
                if parked.mark < partition.high_watermark:
                    self._end_wait(led, node, now_ms)

    def _watch_no_longer(self, partition: Partition) -> None:
        self._marks.pop(partition, None)
        partition.watchers.pop(self, None)

    def _end_waits(self, led: Led, now_ms: int) -> None:
        """Answer fetches that have been parked long enough, at least with the high watermark."""
        for node, parked in list(led.parked.items()):
            is_told = parked.mark >= led.leading.partition.high_watermark
            if now_ms - parked.since_ms >= (self.parked_ms if is_told else UNTOLD_MS_MAX):
                self._end_wait(led, node, now_ms)

    def _end_wait(self, led: Led, node: int, now_ms: int) -> None:
        question = led.parked.pop(node).question
        answer, batches = led.leading.serve(node, question.incarnation, question.fetch, now_ms)
        led.told[node] = answer.high_watermark
        self._answer(node, answer, batches)

    # Deleting records

    def when_deleted(self, led: Led, offset: int, *, timeout_ms: int) -> Promise[int]:
        """Resolve when no in-sync replica has records before `offset`: they cannot come back then.

        The result is the lowest start offset of these replicas.
        """
        now_ms = self._clock.now_ms()
        done: Promise[int] = Promise()
        led.deletions.append(_Deletion(offset, now_ms + timeout_ms, done))
        # Parked followers are sent the new start offset at once, and confirm it with their next
        # fetch.
        for node in list(led.parked):
            self._end_wait(led, node, now_ms)
        self._look_at_deletions(led, now_ms)
        return done

    def _look_at_deletions(self, led: Led, now_ms: int) -> None:
        if not led.deletions:
            return
        start = led.leading.partition.start_offset
        followers_start = led.leading.replicas.low_watermark
        if followers_start is not None:
            start = min(start, followers_start)
        waiting, led.deletions = led.deletions, []
        for one in waiting:
            if start >= one.offset:
                one.done.resolve(start)
            elif now_ms >= one.deadline_ms:
                one.done.reject(
                    RequestTimedOut(
                        f"Records of {led.leading.partition.name} before {one.offset} are deleted, "
                        "but not every replica has confirmed it; retry to find out."
                    )
                )
            else:
                led.deletions.append(one)

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

    def flush(self, now_ms: int) -> None:
        """Send what has accumulated in this turn, for in-sync replicas first."""
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
            led.leading.tick(now_ms)
            if led.parked:
                self._end_waits(led, now_ms)
            self._look_at_deletions(led, now_ms)


def _eager(led: Led) -> list[tuple[int, _Parked]]:
    return [(node, one) for node, one in led.parked.items() if one.question.fetch.is_eager]


def _counts(leading: Leading, node: int) -> bool:
    """Return whether commits wait for a node, so that it must not be delayed."""
    replicas = leading.replicas
    return node in replicas.in_sync or node in replicas.counting


def _not_leader(fetch: ReplicaFetch) -> ReplicaFetched:
    return ReplicaFetched(
        topic_id=fetch.topic_id,
        partition=fetch.partition,
        request=fetch.request,
        leader_epoch=fetch.leader_epoch,
        last_epoch=fetch.last_epoch,
        offset=fetch.offset,
        status=FetchStatus.NOT_LEADER,
        high_watermark=-1,
        start_offset=-1,
    )


Propose = Callable[[ProposeInSync], None]

_log = logging.getLogger(__name__)


class Leading:
    """Answers followers, and performs what the replica set decides.

    The partition must already lead. `propose` sends a proposal to the controller.
    """

    def __init__(self, partition: Partition, replicas: ReplicaSet, propose: Propose) -> None:
        assert not partition.is_following
        assert partition.leader_epoch == replicas.leader_epoch
        self.partition = partition
        self.replicas = replicas
        # A follower has fetched what cannot be read here, and that has been reported.
        self.is_damaged = False
        self._served: dict[int, int] = {}  # by node: the offset of the last non-empty answer
        self._propose = propose
        partition.on_durable = self._durable
        self._perform(replicas.begin())

    def stop(self) -> None:
        """Stop: another node leads now, or none."""
        if self.partition.on_durable == self._durable:
            self.partition.on_durable = None

    # Followers

    def serve(self, node: int, incarnation: bytes, fetch: ReplicaFetch, now_ms: int) -> Served:
        """Return the answer to a follower, with batches unless it is at the end."""
        partition = self.partition
        status = self._standing(node, incarnation, fetch)
        if status is not FetchStatus.OK:
            return Served(self._answer(fetch, status))
        if fetch.last_epoch >= 0 or fetch.offset > partition.end_offset:
            epoch, end = partition.epoch_end(fetch.last_epoch)
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
            batches = partition.read_uncommitted(fetch.offset, bytes_max=fetch.bytes_max)
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
        return Served(self._answer(fetch, FetchStatus.OK, batches_bytes=len(data)), data)

    def _note_damage(self, node: int, offset: int, error: Exception) -> None:
        """Record what prevents a follower from continuing, and log it once.

        The log itself records wrong checksums. Other errors may be transient, except for EIO.
        """
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EIO:
            self.partition.note_damage(offset)
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
        if restart_offset is None:
            return Served(self._answer(fetch, FetchStatus.DAMAGED))
        return Served(self._answer(fetch, status, restart_offset=restart_offset, **diverging))

    def _first_offset(self) -> int | None:
        """Return the start of the batch that contains the log's start offset; None if damaged.

        Records can be deleted up to the middle of a batch, but only whole batches can be
        replicated.
        """
        partition = self.partition
        try:
            first = partition.read_uncommitted(partition.start_offset, bytes_max=1)
        except (CorruptBatch, StorageFailed):
            return None
        return partition.end_offset if first is None else first.offset

    def _answer(
        self,
        fetch: ReplicaFetch,
        status: FetchStatus,
        *,
        diverging_epoch: int = -1,
        diverging_end: int = -1,
        restart_offset: int = -1,
        batches_bytes: int = 0,
    ) -> ReplicaFetched:
        return ReplicaFetched(
            topic_id=fetch.topic_id,
            partition=fetch.partition,
            request=fetch.request,
            leader_epoch=fetch.leader_epoch,
            last_epoch=fetch.last_epoch,
            offset=fetch.offset,
            status=status,
            high_watermark=self.partition.high_watermark,
            start_offset=self.partition.start_offset,
            diverging_epoch=diverging_epoch,
            diverging_end=diverging_end,
            restart_offset=restart_offset,
            batches_bytes=batches_bytes,
        )

    # The controller

    def tick(self, now_ms: int) -> None:
        self._perform(self.replicas.tick(now_ms))

    def in_sync_changed(
        self, *, replicas: Iterable[int], in_sync: Iterable[int], version: int, now_ms: int
    ) -> None:
        effects = self.replicas.in_sync_changed(
            replicas=replicas, in_sync=in_sync, version=version, now_ms=now_ms
        )
        self._perform(effects)

    def nodes_changed(self, alive: Mapping[int, bytes], *, now_ms: int) -> None:
        self._perform(self.replicas.nodes_changed(alive, now_ms=now_ms))

    def proposal_refused(self, *, version: int, now_ms: int) -> None:
        self._perform(self.replicas.proposal_refused(version=version, now_ms=now_ms))

    def in_sync_min_changed(self, in_sync_min: int) -> None:
        self._perform(self.replicas.in_sync_min_changed(in_sync_min))

    # Effects

    def _durable(self) -> None:
        self._perform(self.replicas.local_durable(self.partition.durable_offset))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceHighWatermark):
                self.partition.set_commit_limit(effect.offset)
            elif isinstance(effect, ProposeInSync):
                self._propose(effect)
            else:
                self.partition.set_shortage(self._shortage(effect))

    def _shortage(self, effect: SetShortage) -> NotEnoughReplicas | None:
        if not effect.is_short:
            return None
        return NotEnoughReplicas(
            f"{self.partition.name} has {effect.in_sync_count} replicas in sync but needs "
            f"{effect.in_sync_min}; retry when more replicas are in sync."
        )
