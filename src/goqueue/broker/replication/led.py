"""The partitions that this node leads, and the answers that their followers get.

A follower in sync is answered at once, because writers wait for it; a question that has no answer
yet is kept until there is one. One at which somebody waits for messages is told of each that is
committed as well. Copies that are behind are answered after those, at their own pace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from goqueue.cluster.facts import NO_LEADER, PartitionKey
from goqueue.cluster.replication import (
    EXEMPT,
    NO_THROTTLE,
    FetchStatus,
    Leading,
    ReplicaFetch,
    ReplicaFetched,
    Stragglers,
    decode_follower_notice,
    encode_answers,
)
from goqueue.config import ReplicationSettings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotLeader, RequestTimedOut
from goqueue.partition import Partition

ANSWER_BYTES_MAX = 4 << 20  # of one notice; the next one takes the rest
CATCH_UP_BYTES_MAX = 1 << 20  # of one turn; whatever else there is to do comes in between
DELETION_TIMEOUT_MS = 30_000  # long enough for a silent copy to lose its place among those in sync
PARKED_MS_MAX = 5_000  # a question at the end of an idle log waits so long, or less
UNTOLD_MS_MAX = 100  # or so long, if the follower does not know the high watermark yet


@dataclass(frozen=True, slots=True)
class _Question:
    """What a follower wants to know, in one of its lives."""

    incarnation: bytes
    fetch: ReplicaFetch


@dataclass(slots=True)
class _Parked:
    """A question that cannot be answered yet."""

    question: _Question
    since_ms: int
    mark: int  # the high watermark that the follower was told last


@dataclass(slots=True)
class _Deletion:
    """Somebody waits until no copy that could lead has the records before `offset`."""

    offset: int
    deadline_ms: int
    done: Promise[int]


@dataclass(slots=True)
class Led:
    """A partition that this node leads, and the followers that wait for news of it."""

    place: PartitionKey
    leading: Leading
    adding: tuple[int, ...] = ()  # nodes to which the partition is being moved
    throttle: int = NO_THROTTLE  # of their copies
    parked: dict[int, _Parked] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)  # node: the last high watermark it was told
    deletions: list[_Deletion] = field(default_factory=list)
    has_news: bool = False


class _Answers:
    """What one follower is to be told at the end of this turn."""

    __slots__ = ("batches", "bytes", "heads")

    def __init__(self) -> None:
        self.heads: list[ReplicaFetched] = []
        self.batches: list[bytes] = []
        self.bytes = 0


class LedReplicas:
    """Answers followers. `flush_soon` has `flush` called at the end of this turn."""

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
        # A follower that waits for news must be heard of several times before it counts as lagging.
        self.parked_ms = min(PARKED_MS_MAX, settings.lag_ms // 4)
        self._led: dict[PartitionKey, Led] = {}
        self._answers: dict[int, _Answers] = {}
        self._news: list[Led] = []
        self._marks: dict[Partition, Led] = {}  # those whose followers want to know of each message
        self._risen: dict[Partition, None] = {}  # of those, the ones that have more committed
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
        """What copies that are behind get all together; nothing leaves that to the settings."""
        rate = bytes_per_second or self._settings.catch_up_bytes_per_second
        self._stragglers.limit(rate, now_ms=self._clock.now_ms())

    # Roles

    def begin(self, led: Led) -> None:
        self._led[led.place] = led
        led.leading.partition.on_written = lambda: self._note_news(led)

    def end(self, place: PartitionKey) -> Led | None:
        """Lead a partition no longer."""
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
        """Others may be in sync than before: whoever is waited for must not be kept waiting."""
        now_ms = self._clock.now_ms()
        if (adding, throttle) != (led.adding, led.throttle):
            led.adding, led.throttle = adding, throttle
            self._line_up_again(led)
        for node in led.leading.replicas.counting:
            self._hurry(led, node, now_ms)
        self._look_at_deletions(led, now_ms)

    def _line_up_again(self, led: Led) -> None:
        """Those who wait for their turn do so under another throttle from now on."""
        for node in led.leading.replicas.replicas:
            question = self._stragglers.withdraw(node, led.place)
            if question is not None:
                self._line_up(led, node, question)

    def _line_up(self, led: Led, node: int, question: _Question) -> None:
        """Have a copy that is behind answered when it has its turn."""
        throttle = led.throttle if node in led.adding else NO_THROTTLE
        if led.leading.replicas.is_short:
            # Too few are in sync for anybody to write, so that this one is what all wait for.
            throttle = EXEMPT
        self._stragglers.ask(node, led.place, question, throttle=throttle)
        self._flush_soon()

    # Questions

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
        """A copy that was behind counts now, so it has waited long enough."""
        if self._stragglers.has_waiting and _counts(led.leading, node):
            question = self._stragglers.withdraw(node, led.place)
            if question is not None:
                self._serve(led, node, question, now_ms)

    def _serve(self, led: Led, node: int, question: _Question, now_ms: int) -> int:
        """Answer a question, or keep it until there is an answer; how many bytes it took."""
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
        """Answer copies that are behind; what this turn has no room for, the next one takes."""
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

    # News

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
        """Messages are committed that followers may wait for."""
        self._risen[partition] = None
        self._flush_soon()

    def _tell_marks(self, now_ms: int) -> None:
        """Tell the high watermark to followers that want to know it at once."""
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
        """Answer those who have waited long enough, if only to tell the high watermark."""
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
        """Resolves when no copy in sync has records before `offset`: they cannot come back then.

        The answer is where the copy begins that begins first.
        """
        now_ms = self._clock.now_ms()
        done: Promise[int] = Promise()
        led.deletions.append(_Deletion(offset, now_ms + timeout_ms, done))
        # Whoever waits for news is told at once where the log begins, and repeats it when it asks.
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
                        "but not every copy has said so; retry to find out."
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
        """Send what has gathered in this turn, that for copies in sync first."""
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
    """Whether records are committed only when a node has them, so that it must not be held up."""
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
