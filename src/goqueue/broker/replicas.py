"""The copies that this node keeps, in the roles that the cluster has decided for them.

A follower's questions and a leader's answers about many partitions travel together; each of them
stands for itself, so that one may be lost, late or doubled without harm. A question that has no
answer yet is kept by the leader until there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from goqueue.broker.facts import FactLog
from goqueue.broker.flusher import Flusher
from goqueue.broker.peers import PeerKind, Peers
from goqueue.broker.promise import Promise
from goqueue.broker.scheduler import Scheduler
from goqueue.broker.topics import Topic, Topics
from goqueue.cluster.commands import ChangeInSync
from goqueue.cluster.facts import (
    NO_LEADER,
    Decision,
    NodeFact,
    PartitionFact,
    PartitionKey,
    TopicFact,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.replication import (
    Copying,
    FetchStatus,
    Following,
    Leading,
    ProposeInSync,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
    ReplicaSet,
)
from goqueue.config import ReplicationSettings
from goqueue.model.errors import GoQueueError, StalePartitionVersion
from goqueue.partition import Partition

TICK_MS = 100
ANSWER_BYTES_MAX = 4 << 20  # of one notice; the next one takes the rest
PARKED_MS_MAX = 5_000  # a question at the end of an idle log waits so long, or less
UNTOLD_MS_MAX = 100  # or so long, if the follower does not know the high watermark yet

_log = logging.getLogger(__name__)


class _FromFollower(msgspec.Struct, frozen=True, array_like=True):
    """What a follower has to say to one leader at one time."""

    incarnation: bytes
    fetches: list[ReplicaFetch]
    reports: list[ReplicaReport]


_encoder = msgspec.msgpack.Encoder()
_follower_decoder = msgspec.msgpack.Decoder(_FromFollower)
_leader_decoder = msgspec.msgpack.Decoder(list[ReplicaFetched])


@dataclass(slots=True)
class _Parked:
    """A question that cannot be answered yet."""

    incarnation: bytes
    fetch: ReplicaFetch
    since_ms: int
    mark: int  # the high watermark that the follower was told last


@dataclass(slots=True)
class _Led:
    """A partition that this node leads, and the followers that wait for news of it."""

    leading: Leading
    parked: dict[int, _Parked] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)  # node: the last high watermark it was told
    has_news: bool = False


class _Answers:
    """What one follower is to be told at the end of this turn."""

    __slots__ = ("batches", "bytes", "heads")

    def __init__(self) -> None:
        self.heads: list[ReplicaFetched] = []
        self.batches: list[bytes] = []
        self.bytes = 0


RoleChanged = Callable[[Topic, Partition, bool], None]


class Replicas:
    """Leads and follows."""

    def __init__(
        self,
        node_id: int,
        incarnation: bytes,
        log: FactLog,
        peers: Peers,
        scheduler: Scheduler,
        topics: Topics,
        flusher: Flusher,
        settings: ReplicationSettings,
        *,
        ask: Callable[[ChangeInSync], Promise[None]],
    ) -> None:
        """`ask` hands a proposal to the controller, once."""
        self.node_id = node_id
        self._incarnation = incarnation
        self._log = log
        self._peers = peers
        self._scheduler = scheduler
        self._topics = topics
        self._flusher = flusher
        self._settings = settings
        self._ask = ask
        # A follower that waits for news must be heard of several times before it counts as lagging.
        self._parked_ms = min(PARKED_MS_MAX, settings.lag_ms // 4)
        self._led: dict[PartitionKey, _Led] = {}
        self._copied: dict[PartitionKey, Copying] = {}
        self._unkept: dict[PartitionKey, None] = {}  # for lack of room
        self._role_changed: list[RoleChanged] = []
        self._questions: dict[int, dict[PartitionKey, Copying]] = {}
        self._reports: dict[int, dict[PartitionKey, ReplicaReport]] = {}
        self._answers: dict[int, _Answers] = {}
        self._news: list[_Led] = []
        self._is_flushing = False
        self._is_registered = False
        self._is_stopped = False
        self._first_request = 0
        log.on_applied(self._apply)
        peers.listen(PeerKind.FOLLOWER, self._from_follower)
        peers.listen(PeerKind.LEADER, self._from_leader)

    def on_role(self, changed: RoleChanged) -> None:
        """Have `changed` called when this node begins or ceases to lead a partition."""
        self._role_changed.append(changed)

    def start(self) -> None:
        # Answers to an earlier life of this node must not be taken for answers to this one.
        self._first_request = int.from_bytes(self._incarnation[:5], "big") << 20
        for fact in self._metadata.partitions.of_node(self.node_id):
            self._assign(fact)
        self._tick()

    def stop(self) -> None:
        """Lead and follow no more; the partitions are about to be closed."""
        self._is_stopped = True
        for led in self._led.values():
            led.leading.stop()
        for copying in self._copied.values():
            copying.stop()

    def leads(self, topic_id: bytes, number: int) -> bool:
        return (topic_id, number) in self._led

    def has_failed(self) -> bool:
        """Whether a partition that this node leads can be written no more: its disk has failed."""
        return any(led.leading.partition.failure is not None for led in self._led.values())

    # What the cluster decides

    @property
    def _metadata(self) -> Metadata:
        return self._log.metadata

    def _apply(self, decision: Decision) -> None:
        if self._is_stopped:
            return
        changed_nodes = [one for one in decision if isinstance(one, NodeFact)]
        if any(one.id == self.node_id for one in changed_nodes):
            self._note_registration()
        if changed_nodes and self._is_registered:
            alive, now_ms = self._alive(), self._scheduler.now_ms()
            for led in list(self._led.values()):
                led.leading.nodes_changed(alive, now_ms=now_ms)
        for change in decision:
            if isinstance(change, PartitionFact):
                self._assign(change)
            elif isinstance(change, TopicFact):
                self._configure(change)
        self._forget_gone()

    def _note_registration(self) -> None:
        """What was decided about an earlier life of this node is not for this one to act on."""
        fact = self._metadata.nodes.get(self.node_id)
        is_registered = fact is not None and fact.incarnation == self._incarnation
        if is_registered and not self._is_registered:
            self._is_registered = True
            for kept in self._metadata.partitions.of_node(self.node_id):
                self._assign(kept)

    def _alive(self) -> dict[int, bytes]:
        nodes = self._metadata.nodes.values()
        return {node.id: node.incarnation for node in nodes if not node.is_fenced}

    def _assign(self, fact: PartitionFact) -> None:
        topic = self._topics.find_by_id(fact.topic_id)
        if topic is None:
            return
        is_mine = self.node_id in fact.members
        if not is_mine:
            self._leave(fact.place, topic)
            self._topics.release(topic, fact)
            return
        try:
            partition = self._topics.keep(topic, fact.number)
        except OSError as error:
            # A disk that is full, say. Nobody else reminds this node of what it has to keep.
            if fact.place not in self._unkept:
                _log.error("%s/%d cannot be kept, trying again: %s", topic.name, fact.number, error)
            self._unkept[fact.place] = None
            return
        self._unkept.pop(fact.place, None)
        if not self._is_registered:
            return
        if fact.leader == self.node_id:
            self._lead(fact, topic, partition)
        else:
            self._follow(fact, topic, partition)

    def _lead(self, fact: PartitionFact, topic: Topic, partition: Partition) -> None:
        now_ms = self._scheduler.now_ms()
        known = self._led.get(fact.place)
        if known is not None and partition.leader_epoch == fact.leader_epoch:
            known.leading.in_sync_changed(
                replicas=fact.members, in_sync=fact.in_sync, version=fact.version, now_ms=now_ms
            )
            return
        self._leave(fact.place, topic)
        partition.become_leader(fact.leader_epoch)
        replicas = ReplicaSet(
            self.node_id,
            replicas=fact.members,
            in_sync=fact.in_sync,
            in_sync_min=self._in_sync_min(topic),
            alive=self._alive(),
            leader_epoch=fact.leader_epoch,
            version=fact.version,
            epoch_start=partition.epoch_start,
            high_watermark=partition.high_watermark,
            durable_offset=partition.durable_offset,
            lag_ms=self._settings.lag_ms,
            retry_ms=self._settings.retry_ms,
            now_ms=now_ms,
        )
        led = _Led(Leading(partition, replicas, partial(self._propose, fact.place)))
        partition.on_written = partial(self._note_written, led)
        self._led[fact.place] = led
        _log.info("%s: leading in epoch %d", partition.name, fact.leader_epoch)
        for changed in self._role_changed:
            changed(topic, partition, True)

    def _follow(self, fact: PartitionFact, topic: Topic, partition: Partition) -> None:
        known = self._copied.get(fact.place)
        is_same = known is not None and (known.leader, partition.leader_epoch) == (
            fact.leader,
            fact.leader_epoch,
        )
        if is_same:
            return
        self._leave(fact.place, topic)
        partition.become_follower(fact.leader_epoch, leader=fact.leader)
        if fact.leader == NO_LEADER:
            return
        following = Following(
            partition,
            topic_id=fact.topic_id,
            partition=fact.number,
            leader_epoch=fact.leader_epoch,
            bytes_max=self._settings.fetch_bytes_max,
            timeout_ms=self._parked_ms + 2 * self._settings.retry_ms,
            retry_ms=self._settings.retry_ms,
            first_request=self._first_request,
        )
        copying = Copying(
            partition,
            following,
            leader=fact.leader,
            clear_journal=self._flusher.clear_journal,
            tell=partial(self._report, fact.place, fact.leader),
            resume=partial(self._resume, fact.place),
        )
        self._copied[fact.place] = copying
        copying.start(self._scheduler.now_ms())
        self._question(fact.place, copying)

    def _leave(self, place: PartitionKey, topic: Topic | None) -> None:
        """End whatever role this node has in a partition."""
        copying = self._copied.pop(place, None)
        if copying is not None:
            copying.stop()
        led = self._led.pop(place, None)
        if led is not None:
            led.leading.stop()
            led.leading.partition.on_written = None
            if topic is not None:
                for changed in self._role_changed:
                    changed(topic, led.leading.partition, False)

    def _keep_again(self) -> None:
        """Try again to keep what there was no room for."""
        for place in list(self._unkept):
            fact = self._metadata.partitions.get(*place)
            if fact is None or self.node_id not in fact.members:
                del self._unkept[place]
            else:
                self._assign(fact)

    def _forget_gone(self) -> None:
        """Topics that were deleted have no roles left."""
        for place in [one for one in (*self._led, *self._copied) if self._is_gone(one)]:
            self._leave(place, None)

    def _is_gone(self, place: PartitionKey) -> bool:
        return self._topics.find_by_id(place[0]) is None

    def _configure(self, fact: TopicFact) -> None:
        topic = self._topics.find_by_id(fact.id)
        if topic is None:
            return
        for number in range(fact.partition_count):
            led = self._led.get((fact.id, number))
            if led is not None:
                led.leading.in_sync_min_changed(self._in_sync_min(topic))

    def _in_sync_min(self, topic: Topic) -> int:
        return self._topics.defaults.in_sync_min(topic.fact.settings)

    # Proposals

    def _propose(self, place: PartitionKey, proposal: ProposeInSync) -> None:
        topic_id, number = place
        command = ChangeInSync(
            self.node_id,
            topic_id,
            number,
            proposal.in_sync,
            dict(proposal.incarnations),
            proposal.leader_epoch,
            proposal.version,
        )

        def answered(_: None, error: Exception | None) -> None:
            led = self._led.get(place)
            # A proposal that got lost is repeated; one that is outdated has been overtaken.
            if led is None or error is None or getattr(error, "retryable", False):
                return
            if not isinstance(error, GoQueueError):
                raise error
            if not isinstance(error, StalePartitionVersion):
                now_ms = self._scheduler.now_ms()
                led.leading.proposal_refused(version=proposal.version, now_ms=now_ms)

        self._ask(command).then(answered)

    # Leading

    def _note_written(self, led: _Led) -> None:
        if led.parked and not led.has_news:
            led.has_news = True
            self._news.append(led)
            self._flush_soon()

    def _from_follower(self, node: int, head: bytes, _: memoryview) -> None:
        message = _follower_decoder.decode(head)
        now_ms = self._scheduler.now_ms()
        for report in message.reports:
            led = self._led.get((report.topic_id, report.partition))
            if led is not None:
                led.leading.reported(node, message.incarnation, report, now_ms)
        for fetch in message.fetches:
            self._serve(node, message.incarnation, fetch, now_ms)

    def _serve(self, node: int, incarnation: bytes, fetch: ReplicaFetch, now_ms: int) -> None:
        led = self._led.get((fetch.topic_id, fetch.partition))
        if led is None:
            self._answer(node, _not_leader(fetch), b"")
            return
        answer, batches = led.leading.serve(node, incarnation, fetch, now_ms)
        if answer.status is FetchStatus.OK and not batches:
            mark = led.told.get(node, -1)
            led.parked[node] = _Parked(incarnation, fetch, now_ms, mark)
            return
        led.parked.pop(node, None)
        led.told[node] = answer.high_watermark
        self._answer(node, answer, batches)

    def _serve_news(self) -> None:
        news, self._news = self._news, []
        now_ms = self._scheduler.now_ms()
        for led in news:
            led.has_news = False
            for node, parked in list(led.parked.items()):
                del led.parked[node]
                self._serve(node, parked.incarnation, parked.fetch, now_ms)

    def _end_waits(self, led: _Led, now_ms: int) -> None:
        """Answer those who have waited long enough, if only to tell the high watermark."""
        for node, parked in list(led.parked.items()):
            is_told = parked.mark >= led.leading.partition.high_watermark
            if now_ms - parked.since_ms >= (self._parked_ms if is_told else UNTOLD_MS_MAX):
                del led.parked[node]
                answer, batches = led.leading.serve(node, parked.incarnation, parked.fetch, now_ms)
                led.told[node] = answer.high_watermark
                self._answer(node, answer, batches)

    def _answer(self, node: int, answer: ReplicaFetched, batches: bytes) -> None:
        answers = self._answers.get(node)
        if answers is None:
            answers = self._answers[node] = _Answers()
        answers.heads.append(answer)
        if batches:
            answers.batches.append(batches)
            answers.bytes += len(batches)
        if answers.bytes >= ANSWER_BYTES_MAX:
            self._send_answers(node, self._answers.pop(node))
        self._flush_soon()

    def _send_answers(self, node: int, answers: _Answers) -> None:
        self._peers.notify(node, PeerKind.LEADER, _encoder.encode(answers.heads), answers.batches)

    # Following

    def _question(self, place: PartitionKey, copying: Copying) -> None:
        """Have the next question asked at the end of this turn, if it is time for one."""
        self._questions.setdefault(copying.leader, {})[place] = copying
        self._flush_soon()

    def _resume(self, place: PartitionKey) -> None:
        copying = self._copied.get(place)
        if copying is not None:
            self._question(place, copying)

    def _report(self, place: PartitionKey, leader: int, report: ReplicaReport) -> None:
        self._reports.setdefault(leader, {})[place] = report
        self._flush_soon()

    def _from_leader(self, node: int, head: bytes, body: memoryview) -> None:
        now_ms = self._scheduler.now_ms()
        at = 0
        for answer in _leader_decoder.decode(head):
            batches = bytes(body[at : at + answer.batches_bytes])
            at += answer.batches_bytes
            place = (answer.topic_id, answer.partition)
            copying = self._copied.get(place)
            if copying is not None and copying.leader == node:
                copying.received(answer, batches, now_ms)
                self._question(place, copying)

    # Turns

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._scheduler.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has gathered in this turn."""
        self._is_flushing = False
        if self._is_stopped:
            return
        self._serve_news()
        self._is_flushing = False  # What was served above is sent below.
        answers, self._answers = self._answers, {}
        for node, one in answers.items():
            self._send_answers(node, one)
        questions, self._questions = self._questions, {}
        reports, self._reports = self._reports, {}
        now_ms = self._scheduler.now_ms()
        for leader in questions.keys() | reports.keys():
            asked = [one.fetch(now_ms) for one in questions.get(leader, {}).values()]
            fetches = [one for one in asked if one is not None]
            told = list(reports.get(leader, {}).values())
            if fetches or told:
                message = _FromFollower(self._incarnation, fetches, told)
                self._peers.notify(leader, PeerKind.FOLLOWER, _encoder.encode(message))

    def _tick(self) -> None:
        if self._is_stopped:
            return
        self._scheduler.call_later(TICK_MS, self._tick)
        self._keep_again()
        now_ms = self._scheduler.now_ms()
        for led in list(self._led.values()):
            led.leading.tick(now_ms)
            if led.parked:
                self._end_waits(led, now_ms)
        for place, copying in self._copied.items():
            self._question(place, copying)


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
