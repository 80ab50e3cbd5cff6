"""Queue groups: who exists, which topics they read, and receiving and settling their messages.

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

from goqueue.broker.queues.host import HostedQueue, Receiver
from goqueue.broker.queues.hosting import HostedGroup, QueueHosts
from goqueue.broker.queues.initial_position import (
    QueueBeginnings,
    receive_when_begun,
    receive_when_made,
)
from goqueue.broker.queues.inspection import PeekedMessage, TopicLanes, lanes_of, peek_at
from goqueue.broker.queues.received import Received
from goqueue.broker.queues.rewind import Look, purge, rewind_to, rewind_to_time
from goqueue.broker.queues.settling import Call, Outcomes, settle
from goqueue.broker.queues.transactions import TransactionalAcks
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import QueueGroupFact
from goqueue.config import DeliverySettings
from goqueue.delivery import (
    DELAY_MS_MAX,
    PEEK_MESSAGES_MAX,
    RECEIVE_MESSAGES_MAX,
    VISIBILITY_MS_MAX,
    QueueSettings,
    QueueStats,
    check_queue_settings,
    stats,
)
from goqueue.loop.clock import Clock, MonotonicClock
from goqueue.loop.promise import Promise, promised
from goqueue.model.errors import (
    GroupKindMismatch,
    InternalTopic,
    InvalidGroupId,
    InvalidGroupSettings,
    InvalidRequest,
    UnknownGroup,
)
from goqueue.model.names import DELIVERY_TOPIC, INTERNAL_TOPICS, ProducerIdentity, check_topic_name
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

GROUP_NAME_LENGTH_MAX = 249
CONSUMER_NAME_LENGTH_MAX = 249
REASON_LENGTH_MAX = 1000
RECEIPTS_MAX = 1000
WAIT_MS_MAX = 60_000
NO_OWNER = -1


class QueueGroup(NamedTuple):
    """A queue group as it is described."""

    name: str
    settings: QueueSettings
    topics: list[str]


class Queues:
    """All queue groups of the node."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        settings: DeliverySettings,
        random: Random,
        *,
        new_id: Callable[[], bytes],
        is_stream_group: Callable[[str], bool],
        leaders: Leaders,
        look: Look,
        is_alone: bool = True,
    ) -> None:
        """A node that is not alone owns what it is told to lead.

        `look` tells where partitions begin and end, whoever leads them.
        """
        clock = MonotonicClock(clock)
        self._clock = clock
        self._topics = topics
        self._new_id = new_id
        self._is_stream_group = is_stream_group
        self._leaders = leaders
        self._is_alone = is_alone
        self._hosts = QueueHosts(
            clock, disk, topics, settings, random, None if is_alone else leaders
        )
        self.journal = self._hosts.journal
        self._transactional = TransactionalAcks(clock, self._hosts)
        self._look = look
        # Changes of settings under way, by group; the next one of a group waits for them.
        self._changing: dict[str, Promise[None]] = {}
        self._beginnings = QueueBeginnings(topics, self._hosts, look, is_alone=is_alone)

    def open(self) -> None:
        """Load what the journal knows; nothing is delivered before that."""
        self._hosts.open()

    def stop(self) -> None:
        """Answer those who wait, and write down what is known."""
        self._hosts.stop()

    def close(self) -> None:
        """Everything is durable; leave the lane indexes for the next start."""
        self._hosts.close()

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

    # Groups

    def is_known(self, name: str) -> bool:
        return name in self._hosts.groups

    def is_stream_group(self, name: str) -> bool:
        """Whether a stream group has this name, as far as this node knows."""
        return self._is_stream_group(name)

    def all(self) -> list[QueueGroup]:
        """All groups; the topics only of those that this node owns."""
        return [self._describe(group) for group in self._hosts.groups.values()]

    def describe(self, name: str) -> QueueGroup:
        return self._describe(self._owned(name))

    def create(self, name: str, settings: Mapping[str, Any] | None = None) -> Promise[None]:
        """Make a group, or give one that exists these settings; resolves when it is durable.

        Without settings one that another node has made meanwhile stays as it is.
        """
        known = self._hosts.groups.get(name)
        checked = self.check_settings(name, settings or {})
        group_id = self._new_id() if known is None else known.fact.id
        fact = QueueGroupFact(group_id, name, msgspec.to_builtins(checked))
        return self._topics.facts.record_queue_group(fact, keeps_known=settings is None)

    async def change(
        self, name: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]
    ) -> None:
        """Give a group the settings that `change` makes of those it has."""
        while (other := self._changing.get(name)) is not None:
            await other
        done = self._changing[name] = Promise()
        try:
            await self.create(name, change(dict(self._get(name).fact.settings)))
        finally:
            del self._changing[name]
            done.resolve(None)

    def check_settings(self, name: str, settings: Mapping[str, Any]) -> QueueSettings:
        """Raise when `create` with these would be refused."""
        if name not in self._hosts.groups:
            self._check_new(name)
        checked = check_queue_settings(dict(settings))
        if checked.dead_letter_topic:
            check_topic_name(checked.dead_letter_topic)
            if checked.dead_letter_topic in INTERNAL_TOPICS:
                raise InvalidGroupSettings("dead_letter_topic must not be an internal topic.")
        return checked

    def place_of(self, name: str) -> int:
        """The partition of the journal that a group's delivery state is in."""
        return self.journal.number_of(self._get(name).id)

    def check_owned(self, name: str) -> None:
        """Raise unless this node has a group's delivery state."""
        self._owned(name)

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

    def queue_of(self, name: str, topic_name: str) -> HostedQueue:
        """The queue of a group for a topic; whoever only looks does not make the group begin."""
        group, topic = self.served(name, topic_name)
        hosted = group.queues.get(topic.id)
        if hosted is None:
            raise InvalidRequest(
                f"Group {name!r} has not received from topic {topic_name!r} yet; receive first."
            )
        return hosted

    def served(self, name: str, topic_name: str) -> tuple[HostedGroup, Topic]:
        """A group and a topic that this node can serve it with."""
        group, topic = self._get(name), self._topics.get(topic_name)
        if topic.is_internal:
            raise InternalTopic(topic_name)
        self._hosts.check_served(group, topic)
        return group, topic

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
        self._hosts.sources.lanes.catch_up()
        known = self._hosts.groups.get(name)
        made = self.create(name) if known is None else None
        group = self._hosts.groups.get(name)
        receiver = Receiver(consumer, messages_max, visibility_ms or 0)
        if group is None:
            assert made is not None
            again = partial(
                self.receive,
                name,
                topic_name,
                consumer=consumer,
                messages_max=messages_max,
                wait_ms=wait_ms,
                visibility_ms=visibility_ms,
            )
            receive_when_made(made, receiver, again)
            return receiver
        self._hosts.check_served(group, topic)
        receiver.visibility_ms = receiver.visibility_ms or group.settings.visibility_ms
        hosted = group.queues.get(topic.id)
        if hosted is not None and made is None:
            hosted.receive(receiver, wait_ms)
            return receiver
        receive_when_begun(self._beginnings.begun(group, topic), receiver, wait_ms)
        return receiver

    @property
    def is_alone(self) -> bool:
        """Whether there are no other nodes, so that everything stored is known here."""
        return self._is_alone

    async def is_behind(self, name: str, topic_name: str) -> bool:
        """Whether leaders of a topic have committed messages that its queue does not know yet."""
        hosted = self.queue_of(name, topic_name)
        bounds = await self._look(hosted.topic, range(len(hosted.queue.partitions)))
        return any(
            one.last_stable_offset > known.high_watermark
            for one, known in zip(bounds, hosted.queue.partitions, strict=False)
        )

    def begin(self, name: str, topic_name: str) -> Promise[None]:
        """Have the queue of a group for a topic, as the first receive would make it begin."""
        group, topic = self.served(name, topic_name)
        begun: Promise[None] = Promise()
        queue = self._beginnings.begun(group, topic)
        queue.then(lambda _, error: begun.settle(None, error))
        return begun

    def take_back(self, name: str, topic_name: str, consumer: str) -> None:
        """Let everything be received again, uncounted, that a consumer of this node's own has."""
        group, topic = self.served(name, topic_name)
        hosted = group.queues.get(topic.id)
        if hosted is not None:
            hosted.take_back(consumer)

    # Settling

    def ack(self, name: str, receipts: Sequence[str]) -> Promise[Outcomes]:
        """These messages are done; the outcome of each receipt, in order."""
        now_ms = self._clock.now_ms()
        return self._settle(name, receipts, lambda queue, some: queue.ack(now_ms, some))

    def nack(
        self, name: str, receipts: Sequence[str], *, delay_ms: int | None = None
    ) -> Promise[Outcomes]:
        """These messages come again, after this delay or after the group's backoff."""
        if delay_ms is not None:
            _check("delay_ms", delay_ms, 0, DELAY_MS_MAX)
        now_ms = self._clock.now_ms()
        return self._settle(
            name, receipts, lambda queue, some: queue.nack(now_ms, some, delay_ms=delay_ms)
        )

    def reject(
        self, name: str, receipts: Sequence[str], *, reason: str = "rejected"
    ) -> Promise[Outcomes]:
        """These messages go to the dead-letter topic."""
        if len(reason) > REASON_LENGTH_MAX:
            raise InvalidRequest(f"A reason has at most {REASON_LENGTH_MAX} characters.")
        now_ms = self._clock.now_ms()
        return self._settle(
            name, receipts, lambda queue, some: queue.reject(now_ms, some, reason=reason)
        )

    def extend(
        self,
        name: str,
        receipts: Sequence[str],
        *,
        visibility_ms: int | None = None,
        total_ms_max: int | None = None,
    ) -> Promise[Outcomes]:
        """Keep these messages for so long from now on, and in all for no more than a time."""
        group = self._owned(name)
        if visibility_ms is None:
            visibility_ms = group.settings.visibility_ms
        _check("visibility_ms", visibility_ms, 1, VISIBILITY_MS_MAX)
        now_ms, until = self._clock.now_ms(), visibility_ms
        return self._settle(
            name,
            receipts,
            lambda queue, some: queue.extend(
                now_ms, some, visibility_ms=until, total_ms_max=total_ms_max
            ),
        )

    def _settle(self, name: str, receipts: Sequence[str], call: Call) -> Promise[Outcomes]:
        group = self._owned(name)
        _check("the number of receipts", len(receipts), 1, RECEIPTS_MAX)
        self._hosts.check_settled(group)
        if group.queues:
            self.journal.check_writable(group.id)
        return settle(list(group.queues.values()), receipts, call)

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
        group = self._owned(name)
        self._hosts.check_settled(group)
        return self._transactional.prepare(group, receipts, identity)

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
        group, topic = self.served(name, topic_name)
        for number in offsets or ():
            topic.partition(number)  # There must be one.
        return promised(self._rewind(self._beginnings.begun(group, topic), offsets, time_ms))

    async def _rewind(
        self,
        begun: Promise[HostedQueue],
        offsets: Mapping[int, int] | None,
        time_ms: int | None,
    ) -> dict[int, int]:
        hosted, now_ms = await begun, self._clock.now_ms
        if offsets is not None:
            return await rewind_to(self._look, hosted, offsets, now_ms=now_ms)
        assert time_ms is not None
        return await rewind_to_time(self._look, hosted, time_ms, now_ms=now_ms)

    def purge(self, name: str, topic_name: str) -> Promise[dict[int, int]]:
        """Finish everything that is there now; where each partition goes on."""
        return promised(purge(self._look, self.queue_of(name, topic_name)))

    def peek(
        self,
        name: str,
        topic_name: str,
        number: int | None = None,
        *,
        offset: int | None = None,
        count: int = 10,
    ) -> Promise[list[PeekedMessage]]:
        """Messages with what has become of them, of one partition or of all; nothing is changed.

        Without an offset those that are not done, the first ones of each partition.
        """
        _check("count", count, 1, PEEK_MESSAGES_MAX)
        hosted = self.queue_of(name, topic_name)
        reader = self._hosts.sources.reader
        return promised(peek_at(reader, self._clock, hosted, number, offset, count))

    def stats(self, name: str, topic_name: str) -> QueueStats:
        return stats(self.queue_of(name, topic_name).queue, self._clock.now_ms())

    def lanes(self, topic_name: str) -> TopicLanes:
        """How the lanes of a topic are set, what the copies here hold, and how each group fares."""
        topic = self._topics.get(topic_name)
        return lanes_of(self._hosts, self._topics, topic, now_ms=self._clock.now_ms())


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
