"""Queue groups: who exists, which topics they read, and every call on them.

A group has one queue for each topic that it receives from, made by the first receive. In a cluster
every node knows which groups there are; the delivery state of a group is with one of them, its
owner, and whoever asks another is sent there. Calls that settle messages are answered when their
outcome is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec

from goqueue.broker.leaders import Leaders
from goqueue.broker.promise import Promise
from goqueue.broker.queue_host import HostedQueue, Received, Receiver
from goqueue.broker.queue_hosting import HostedGroup, QueueHosts
from goqueue.broker.queue_settling import Call, Outcomes, settle
from goqueue.broker.queue_transactions import TransactionalAcks
from goqueue.broker.scheduler import Scheduler
from goqueue.broker.topic_settings import lane_settings
from goqueue.broker.topics import DELIVERY_TOPIC, INTERNAL_TOPICS, Topic, Topics
from goqueue.cluster.metadata import QueueGroupFact
from goqueue.config import DeliverySettings
from goqueue.delivery import (
    DELAY_MS_MAX,
    LANE_NAMES,
    PEEK_MESSAGES_MAX,
    RECEIVE_MESSAGES_MAX,
    VISIBILITY_MS_MAX,
    LaneStats,
    MessageState,
    QueueSettings,
    QueueStats,
    check_queue_settings,
    peek,
    stats,
)
from goqueue.model.batch import Record
from goqueue.model.errors import (
    GoQueueError,
    GroupKindMismatch,
    InternalTopic,
    InvalidGroupId,
    InvalidGroupSettings,
    InvalidRequest,
    UnknownGroup,
)
from goqueue.model.names import ProducerIdentity, check_topic_name
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

GROUP_NAME_LENGTH_MAX = 249
CONSUMER_NAME_LENGTH_MAX = 249
REASON_LENGTH_MAX = 1000
RECEIPTS_MAX = 1000
WAIT_MS_MAX = 60_000
NO_OWNER = -1
PEEK_STRETCHES_MAX = 20  # in which a peek looks for messages that are not done


class QueueGroup(NamedTuple):
    """A queue group as it is described."""

    name: str
    settings: QueueSettings
    topics: list[str]


class PeekedMessage(NamedTuple):
    state: MessageState
    record: Record | None


class TopicLanes(NamedTuple):
    """The lanes of a topic: their rules, what the log holds, and each group's figures."""

    weights: Mapping[str, int]
    is_strict: bool
    starvation_ms: int
    stored: list[list[int]]  # records in each lane, by partition
    groups: Mapping[str, Sequence[LaneStats]]


class Queues:
    """All queue groups of the node."""

    def __init__(
        self,
        scheduler: Scheduler,
        disk: Disk,
        topics: Topics,
        settings: DeliverySettings,
        random: Random,
        *,
        new_id: Callable[[], bytes],
        is_stream_group: Callable[[str], bool],
        leaders: Leaders,
        is_alone: bool = True,
    ) -> None:
        """A node that is not alone owns what it is told to lead."""
        self._scheduler = scheduler
        self._topics = topics
        self._new_id = new_id
        self._is_stream_group = is_stream_group
        self._leaders = leaders
        self._is_alone = is_alone
        self._hosts = QueueHosts(
            scheduler, disk, topics, settings, random, None if is_alone else leaders
        )
        self.journal = self._hosts.journal
        self._transactional = TransactionalAcks(scheduler, self._hosts)

    def open(self) -> None:
        """Load what the journal knows; nothing is delivered before that."""
        self._hosts.open()

    def stop(self) -> None:
        """Answer those who wait, and write down what is known."""
        self._hosts.stop()

    def close(self) -> None:
        """Everything is durable; leave the lane indexes for the next start."""
        self._hosts.lanes.save_all()

    # Leading, in a cluster

    def lead(self, partition: Partition) -> None:
        """Own the groups of a partition of the journal, which this node leads now."""
        self._hosts.lead(partition)

    def resign(self, partition: Partition) -> None:
        """Another node leads a partition of the journal, or nobody."""
        self._hosts.resign(partition)

    def owner_of(self, name: str, topic_name: str | None = None) -> int:
        """The node that has a group's delivery state; -1 while nobody has, or there is no group.

        All queues of a group are with one node, whatever the topic.
        """
        group = self._hosts.groups.get(name)
        return NO_OWNER if group is None else self.owner_of_state(group.id)

    def owner_of_state(self, group_id: str) -> int:
        """The same for a group's id, or for the name of a keeper of the broker's own."""
        topic = self._topics.find(DELIVERY_TOPIC)
        if topic is None:
            return self._leaders.node_id if self._is_alone else NO_OWNER
        return self._leaders.node_of(topic, self.journal.number_of(group_id))

    def check_kept(self, topic: Topic) -> None:
        """Refuse a topic that cannot be read here, for want of a copy of all its partitions."""
        self._hosts.check_kept(topic)

    # Groups

    def is_known(self, name: str) -> bool:
        return name in self._hosts.groups

    def all(self) -> list[QueueGroup]:
        """All groups; the topics only of those that this node owns."""
        return [self._describe(group) for group in self._hosts.groups.values()]

    def describe(self, name: str) -> QueueGroup:
        return self._describe(self._owned(name))

    def create(self, name: str, settings: Mapping[str, Any] | None = None) -> Promise[None]:
        """Make a group, or give one that exists these settings; kept when it is durable.

        Without settings one that another node has made meanwhile stays as it is.
        """
        known = self._hosts.groups.get(name)
        if known is None:
            self._check_new(name)
        checked = check_queue_settings(dict(settings or {}))
        if checked.dead_letter_topic:
            check_topic_name(checked.dead_letter_topic)
            if checked.dead_letter_topic in INTERNAL_TOPICS:
                raise InvalidGroupSettings("dead_letter_topic must not be an internal topic.")
        group_id = self._new_id() if known is None else known.fact.id
        fact = QueueGroupFact(group_id, name, msgspec.to_builtins(checked))
        return self._topics.facts.record_queue_group(fact, keeps_known=settings is None)

    def delete(self, name: str) -> Promise[None]:
        """Forget a group and all its delivery state."""
        self._get(name)
        return self._topics.facts.forget_queue_group(name)

    def _check_new(self, name: str) -> None:
        if not name or len(name) > GROUP_NAME_LENGTH_MAX:
            raise InvalidGroupId(
                f"A group's name has 1 to {GROUP_NAME_LENGTH_MAX} characters, not {len(name)}."
            )
        if self._is_stream_group(name):
            raise GroupKindMismatch(name, is_queue=False)

    def _get(self, name: str) -> HostedGroup:
        group = self._hosts.groups.get(name)
        if group is None:
            raise UnknownGroup(name)
        return group

    def _owned(self, name: str) -> HostedGroup:
        group = self._get(name)
        self.journal.check_here(group.id)
        return group

    def _describe(self, group: HostedGroup) -> QueueGroup:
        topics = sorted(hosted.topic.name for hosted in group.queues.values())
        return QueueGroup(group.fact.name, group.settings, topics)

    # Receiving

    def receive(
        self,
        name: str,
        topic_name: str,
        *,
        consumer: str,
        messages_max: int = 10,
        wait_ms: int = 0,
        visibility_ms: int | None = None,
    ) -> Receiver:
        """Lease messages, now or when there are some; cancel the receiver when it is gone."""
        _check("messages_max", messages_max, 1, RECEIVE_MESSAGES_MAX)
        _check("wait_ms", wait_ms, 0, WAIT_MS_MAX)
        _check("the length of the consumer's name", len(consumer), 1, CONSUMER_NAME_LENGTH_MAX)
        if visibility_ms is not None:
            _check("visibility_ms", visibility_ms, 1, VISIBILITY_MS_MAX)
        topic = self._topics.get(topic_name)
        if topic.is_internal:
            raise InternalTopic(topic_name)
        self._hosts.lanes.catch_up()
        known = self._hosts.groups.get(name)
        made = self.create(name) if known is None else None
        group = self._hosts.groups.get(name)
        receiver = Receiver(consumer, messages_max, visibility_ms or 0)
        if group is None:
            assert made is not None
            self._receive_when_made(made, name, topic_name, receiver, wait_ms)
            return receiver
        self._hosts.check_served(group, topic)
        receiver.visibility_ms = receiver.visibility_ms or group.settings.visibility_ms
        hosted = group.queues.get(topic.id)
        if hosted is not None and made is None:
            hosted.receive(receiver, wait_ms)
            return receiver
        self._receive_first(hosted or self._hosts.start_queue(group, topic), receiver, wait_ms)
        return receiver

    def _receive_when_made(
        self, made: Promise[None], name: str, topic_name: str, receiver: Receiver, wait_ms: int
    ) -> None:
        """Where nodes have to agree that there is a group, its id tells who owns it."""

        def agreed(_: None, error: Exception | None) -> None:
            if receiver.promise.is_done:
                return
            try:
                if error is not None:
                    raise error
                again = self.receive(
                    name,
                    topic_name,
                    consumer=receiver.consumer,
                    messages_max=receiver.count_max,
                    wait_ms=wait_ms,
                    visibility_ms=receiver.visibility_ms or None,
                )
            except GoQueueError as refused:
                receiver.refuse(refused)
                return
            receiver.leave = partial(leave, again)
            again.promise.then(answered)

        is_left = False

        def leave(again: Receiver) -> None:
            nonlocal is_left
            is_left = True
            again.cancel()

        def answered(messages: Received | None, error: Exception | None) -> None:
            if not is_left:
                receiver.promise.settle(messages, error)

        made.then(agreed)

    @staticmethod
    def _receive_first(hosted: HostedQueue, receiver: Receiver, wait_ms: int) -> None:
        """A new queue must not be forgotten by a crash, for where it began is its promise."""

        def started(_: object, error: Exception | None) -> None:
            if receiver.promise.is_done:
                return
            if error is not None:
                receiver.promise.reject(error)
            else:
                hosted.receive(receiver, wait_ms)

        hosted.saved().then(started)

    # Settling

    def ack(self, name: str, receipts: Sequence[str]) -> Promise[Outcomes]:
        """These messages are done; the outcome of each receipt, in order."""
        now_ms = self._scheduler.now_ms()
        return self._settle(name, receipts, lambda queue, some: queue.ack(now_ms, some))

    def nack(
        self, name: str, receipts: Sequence[str], *, delay_ms: int | None = None
    ) -> Promise[Outcomes]:
        """These messages come again, after this delay or after the group's backoff."""
        if delay_ms is not None:
            _check("delay_ms", delay_ms, 0, DELAY_MS_MAX)
        now_ms = self._scheduler.now_ms()
        return self._settle(
            name, receipts, lambda queue, some: queue.nack(now_ms, some, delay_ms=delay_ms)
        )

    def reject(
        self, name: str, receipts: Sequence[str], *, reason: str = "rejected"
    ) -> Promise[Outcomes]:
        """These messages go to the dead-letter topic."""
        if len(reason) > REASON_LENGTH_MAX:
            raise InvalidRequest(f"A reason has at most {REASON_LENGTH_MAX} characters.")
        now_ms = self._scheduler.now_ms()
        return self._settle(
            name, receipts, lambda queue, some: queue.reject(now_ms, some, reason=reason)
        )

    def extend(
        self, name: str, receipts: Sequence[str], *, visibility_ms: int | None = None
    ) -> Promise[Outcomes]:
        """Keep these messages for so long from now on."""
        group = self._owned(name)
        if visibility_ms is None:
            visibility_ms = group.settings.visibility_ms
        _check("visibility_ms", visibility_ms, 1, VISIBILITY_MS_MAX)
        now_ms, until = self._scheduler.now_ms(), visibility_ms
        return self._settle(
            name,
            receipts,
            lambda queue, some: queue.extend(now_ms, some, visibility_ms=until),
            is_durable=False,
        )

    def _settle(
        self, name: str, receipts: Sequence[str], call: Call, *, is_durable: bool = True
    ) -> Promise[Outcomes]:
        group = self._owned(name)
        _check("the number of receipts", len(receipts), 1, RECEIPTS_MAX)
        if is_durable and group.queues:
            self.journal.check_writable(group.id)
        return settle(list(group.queues.values()), receipts, call, is_durable=is_durable)

    # Transactions

    def participant(self, name: str) -> Partition:
        """What must take part in a transaction that acknowledges messages of a group."""
        return self._transactional.participant(self._get(name))

    def prepare(
        self, name: str, receipts: Sequence[str], identity: ProducerIdentity
    ) -> Promise[Outcomes]:
        """Acknowledge messages in a transaction; the outcome of each receipt, when it is durable.

        They are done with its commit, and come again with its abort.
        """
        _check("the number of receipts", len(receipts), 1, RECEIPTS_MAX)
        return self._transactional.prepare(self._owned(name), receipts, identity)

    def transaction_ended(self, partition: Partition, producer_id: int, is_commit: bool) -> None:
        """A marker in a partition of the journal is committed."""
        self._transactional.ended(partition, producer_id, is_commit=is_commit)

    # Moving about and looking

    def rewind(
        self,
        name: str,
        topic_name: str,
        *,
        offsets: Mapping[int, int] | None = None,
        time_ms: int | None = None,
    ) -> Promise[dict[int, int]]:
        """Deliver again from these offsets, or from a time on; where each partition goes on."""
        if (offsets is None) == (time_ms is None):
            raise InvalidRequest("Rewind to offsets or to a time, not to both.")
        hosted = self._hosted(name, topic_name, may_start=True)
        self.journal.check_writable(hosted.group_id)
        targets = self._targets(hosted.topic, offsets, time_ms)
        for number, offset in targets.items():
            hosted.queue.rewind(number, offset, self._scheduler.now_ms())
        return self._moved(hosted, targets)

    def purge(self, name: str, topic_name: str) -> Promise[dict[int, int]]:
        """Finish everything that is there now; where each partition goes on."""
        hosted = self._hosted(name, topic_name)
        self.journal.check_writable(hosted.group_id)
        ends = [one.last_stable_offset for one in hosted.topic.partitions]
        hosted.queue.purge(ends)
        return self._moved(hosted, dict(enumerate(ends)))

    def peek(
        self,
        name: str,
        topic_name: str,
        number: int | None = None,
        *,
        offset: int | None = None,
        count: int = 10,
    ) -> list[PeekedMessage]:
        """Messages with what has become of them, of one partition or of all; nothing is changed.

        Without an offset those that are not done, the first ones of each partition.
        """
        _check("count", count, 1, PEEK_MESSAGES_MAX)
        hosted = self._hosted(name, topic_name)
        numbers = range(len(hosted.topic.partitions)) if number is None else [number]
        found: list[PeekedMessage] = []
        for each in numbers:
            room = count - len(found)
            if room and offset is not None:
                found += self._peek(hosted, each, offset, room)
            elif room:
                found += self._peek_open(hosted, each, room)
        return found

    def _peek_open(self, hosted: HostedQueue, number: int, count: int) -> list[PeekedMessage]:
        """The first messages that are not done; the search ends after a bounded stretch."""
        end = hosted.topic.partition(number).last_stable_offset
        at = hosted.queue.partitions[number].ledger.floor
        found: list[PeekedMessage] = []
        for _ in range(PEEK_STRETCHES_MAX):
            if at >= end or len(found) >= count:
                break
            seen = self._peek(hosted, number, at, PEEK_MESSAGES_MAX)
            found += [one for one in seen if one.state.state != "done"]
            at += PEEK_MESSAGES_MAX
        return found[:count]

    def _peek(
        self, hosted: HostedQueue, number: int, offset: int, count: int
    ) -> list[PeekedMessage]:
        partition = hosted.topic.partition(number)
        first = max(offset, partition.start_offset)
        wanted = range(first, min(first + count, partition.last_stable_offset))
        found = self._hosts.reader.read(partition, wanted)
        return [
            PeekedMessage(state, found.records.get(state.offset))
            for state in peek(hosted.queue, number, wanted)
            if state.offset in found.records
        ]

    def stats(self, name: str, topic_name: str) -> QueueStats:
        return stats(self._hosted(name, topic_name).queue, self._scheduler.now_ms())

    def lanes(self, topic_name: str) -> TopicLanes:
        """How the lanes of a topic are set, what they hold, and how each group fares."""
        topic = self._topics.get(topic_name)
        rules = lane_settings(self._hosts.values(topic))
        now_ms = self._scheduler.now_ms()
        hosted = self._hosts.by_topic.get(topic.id, [])
        indexes = (
            [] if topic.is_internal else [self._hosts.lanes.of(one) for one in topic.partitions]
        )
        self._hosts.lanes.catch_up()
        stored = [
            one.index.counts(one.partition.start_offset, one.partition.last_stable_offset)
            for one in indexes
        ]
        return TopicLanes(
            dict(zip(LANE_NAMES, rules.weights, strict=True)),
            rules.is_strict,
            rules.starvation_ms,
            stored,
            {one.group: stats(one.queue, now_ms).lanes for one in hosted},
        )

    def _targets(
        self, topic: Topic, offsets: Mapping[int, int] | None, time_ms: int | None
    ) -> dict[int, int]:
        targets: dict[int, int] = {}
        numbers = range(len(topic.partitions)) if offsets is None else offsets
        for number in numbers:
            partition = topic.partition(number)
            end = partition.last_stable_offset
            if time_ms is not None:
                record = partition.find_timestamp(time_ms, is_committed_only=True)
                offset = end if record is None else record.offset
            else:
                assert offsets is not None
                offset = offsets[number]
            targets[number] = max(partition.start_offset, min(offset, end))
        return targets

    def _moved(self, hosted: HostedQueue, targets: dict[int, int]) -> Promise[dict[int, int]]:
        promise: Promise[dict[int, int]] = Promise()
        saved = hosted.saved()
        hosted.settle()
        hosted.wake()
        saved.then(lambda _, error: promise.settle(None if error else targets, error))
        return promise

    def _hosted(self, name: str, topic_name: str, *, may_start: bool = False) -> HostedQueue:
        """The queue of a group for a topic; whoever only looks does not make the group begin."""
        group, topic = self._get(name), self._topics.get(topic_name)
        if topic.is_internal:
            raise InternalTopic(topic_name)
        self._hosts.check_served(group, topic)
        hosted = group.queues.get(topic.id)
        if hosted is None and not may_start:
            raise InvalidRequest(
                f"Group {name!r} has not received from topic {topic_name!r} yet; receive first."
            )
        return hosted or self._hosts.start_queue(group, topic)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(f"{name} must be from {least} to {most}, not {value}.")


__all__ = [
    "PeekedMessage",
    "QueueGroup",
    "Queues",
    "Received",
    "Receiver",
    "TopicLanes",
]
