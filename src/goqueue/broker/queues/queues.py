"""Queue groups: their definitions and topics, and receiving and settling their messages.

A group has one queue for each topic that it receives from, started by the first receive. In a
cluster every node has the definitions of all groups; the delivery state of a group is on one node,
its owner, and calls to other nodes are refused with `NotCoordinator`. Calls that settle messages
return when their outcome is durable.
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
from goqueue.broker.queues.records import Received
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
    """The description of a queue group."""

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
        """Unless `is_alone`, this node owns the groups of the partitions that `lead` gets.

        `look` requests the start and end of partitions from their leaders.
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
        # Changes of settings in progress, by group; the next one of a group waits for them.
        self._changing: dict[str, Promise[None]] = {}
        self._beginnings = QueueBeginnings(topics, self._hosts, look, is_alone=is_alone)

    def open(self) -> None:
        """Replay the journal; nothing is delivered before that."""
        self._hosts.open()

    def stop(self) -> None:
        """Respond to waiting receivers, and journal everything."""
        self._hosts.stop()

    def close(self) -> None:
        """Save the lane indexes for the next start; everything is durable."""
        self._hosts.close()

    # Ownership, in a cluster

    def lead(self, partition: Partition) -> None:
        """Own the groups of a journal partition, which this node leads now."""
        self._hosts.lead(partition)

    def resign(self, partition: Partition) -> None:
        """Give up a journal partition that this node no longer leads."""
        self._hosts.resign(partition)

    def owner_of(self, name: str, topic_name: str | None = None) -> int:
        """Return the node that owns a group; -1 if there is none, or no such group.

        One node owns all queues of a group, whatever the topic.
        """
        group = self._hosts.groups.get(name)
        return NO_OWNER if group is None else self.owner_of_state(group.id)

    def owner_of_state(self, group_id: str) -> int:
        """Return the owner of a group id, or of a state name of the broker itself."""
        topic = self._topics.find(DELIVERY_TOPIC)
        if topic is None:
            return self._leaders.node_id if self._is_alone else NO_OWNER
        return self._leaders.node_of(topic, self.journal.number_of(group_id))

    # Groups

    def is_known(self, name: str) -> bool:
        return name in self._hosts.groups

    def is_stream_group(self, name: str) -> bool:
        """Whether a stream group has this name, by the metadata on this node."""
        return self._is_stream_group(name)

    def all(self) -> list[QueueGroup]:
        """Return all groups; with topics only for those that this node owns."""
        return [self._describe(group) for group in self._hosts.groups.values()]

    def describe(self, name: str) -> QueueGroup:
        return self._describe(self._owned(name))

    def create(self, name: str, settings: Mapping[str, Any] | None = None) -> Promise[None]:
        """Create a group, or change the settings of an existing one; resolves when durable.

        Without settings, a group that another node has created in the meantime is not changed.
        """
        known = self._hosts.groups.get(name)
        checked = self.check_settings(name, settings or {})
        group_id = self._new_id() if known is None else known.fact.id
        fact = QueueGroupFact(group_id, name, msgspec.to_builtins(checked))
        return self._topics.facts.record_queue_group(fact, keeps_known=settings is None)

    async def change(
        self, name: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]
    ) -> None:
        """Replace the settings of a group by what `change` returns for the current ones."""
        while (other := self._changing.get(name)) is not None:
            await other
        done = self._changing[name] = Promise()
        try:
            await self.create(name, change(dict(self._get(name).fact.settings)))
        finally:
            del self._changing[name]
            done.resolve(None)

    def check_settings(self, name: str, settings: Mapping[str, Any]) -> QueueSettings:
        """Raise if `create` would refuse these settings."""
        if name not in self._hosts.groups:
            self._check_new(name)
        checked = check_queue_settings(dict(settings))
        if checked.dead_letter_topic:
            check_topic_name(checked.dead_letter_topic)
            if checked.dead_letter_topic in INTERNAL_TOPICS:
                raise InvalidGroupSettings("dead_letter_topic must not be an internal topic.")
        return checked

    def place_of(self, name: str) -> int:
        """Return the journal partition that holds a group's delivery state."""
        return self.journal.number_of(self._get(name).id)

    def check_owned(self, name: str) -> None:
        """Raise unless this node owns the group."""
        self._owned(name)

    def delete(self, name: str) -> Promise[None]:
        """Delete a group and all its delivery state."""
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
        """Return the queue of a group for a topic, without starting it: inspection must not."""
        group, topic = self.served(name, topic_name)
        hosted = group.queues.get(topic.id)
        if hosted is None:
            raise InvalidRequest(
                f"Group {name!r} has not received from topic {topic_name!r} yet; receive first."
            )
        return hosted

    def served(self, name: str, topic_name: str) -> tuple[HostedGroup, Topic]:
        """Return a group and a topic, if this node can serve them."""
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
        """Lease messages, now or when some arrive; cancel the receiver if its client is gone."""
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
        """Whether this is a single node, so that every stored message is visible here."""
        return self._is_alone

    async def is_behind(self, name: str, topic_name: str) -> bool:
        """Whether leaders have committed messages of a topic that its queue has not seen yet."""
        hosted = self.queue_of(name, topic_name)
        bounds = await self._look(hosted.topic, range(len(hosted.queue.partitions)))
        return any(
            one.last_stable_offset > known.high_watermark
            for one, known in zip(bounds, hosted.queue.partitions, strict=False)
        )

    def begin(self, name: str, topic_name: str) -> Promise[None]:
        """Start the queue of a group for a topic, as the first receive would."""
        group, topic = self.served(name, topic_name)
        begun: Promise[None] = Promise()
        queue = self._beginnings.begun(group, topic)
        queue.then(lambda _, error: begun.settle(None, error))
        return begun

    def take_back(self, name: str, topic_name: str, consumer: str) -> None:
        """Return all messages of one of this node's own consumers, without counting a delivery."""
        group, topic = self.served(name, topic_name)
        hosted = group.queues.get(topic.id)
        if hosted is not None:
            hosted.take_back(consumer)

    # Settling

    def ack(self, name: str, receipts: Sequence[str]) -> Promise[Outcomes]:
        """Acknowledge messages; return the outcome of each receipt, in order."""
        now_ms = self._clock.now_ms()
        return self._settle(name, receipts, lambda queue, some: queue.ack(now_ms, some))

    def nack(
        self, name: str, receipts: Sequence[str], *, delay_ms: int | None = None
    ) -> Promise[Outcomes]:
        """Return messages for redelivery after this delay or after the group's backoff."""
        if delay_ms is not None:
            _check("delay_ms", delay_ms, 0, DELAY_MS_MAX)
        now_ms = self._clock.now_ms()
        return self._settle(
            name, receipts, lambda queue, some: queue.nack(now_ms, some, delay_ms=delay_ms)
        )

    def reject(
        self, name: str, receipts: Sequence[str], *, reason: str = "rejected"
    ) -> Promise[Outcomes]:
        """Move messages to the dead-letter topic."""
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
        """Extend leases to `visibility_ms` from now, and to `total_ms_max` in total."""
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
        """Return the partition that a transaction with acks of a group must include."""
        return self._transactional.participant(self._get(name))

    def prepare(
        self, name: str, receipts: Sequence[str], identity: ProducerIdentity
    ) -> Promise[Outcomes]:
        """Acknowledge messages in a transaction; return the outcomes when they are durable.

        The messages are done when it commits, and are redelivered when it aborts.
        """
        _check("the number of receipts", len(receipts), 1, RECEIPTS_MAX)
        group = self._owned(name)
        self._hosts.check_settled(group)
        return self._transactional.prepare(group, receipts, identity)

    def transaction_ended(self, partition: Partition, producer_id: int, is_commit: bool) -> None:
        """Apply a committed marker in a journal partition."""
        self._transactional.ended(partition, producer_id, is_commit=is_commit)

    # Rewinding and inspection

    def rewind(
        self,
        name: str,
        topic_name: str,
        *,
        offsets: Mapping[int, int] | None = None,
        time_ms: int | None = None,
    ) -> Promise[dict[int, int]]:
        """Deliver again from offsets, or from a time on; return where each partition continues."""
        if (offsets is None) == (time_ms is None):
            raise InvalidRequest("Rewind to offsets or to a time, not to both.")
        group, topic = self.served(name, topic_name)
        for number in offsets or ():
            topic.partition(number)  # Raises if it does not exist.
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
        """Finish everything stored so far; return where each partition continues."""
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
        """Return messages with their state, of one partition or of all, without changing them.

        Without an offset, the first unfinished ones of each partition.
        """
        _check("count", count, 1, PEEK_MESSAGES_MAX)
        hosted = self.queue_of(name, topic_name)
        reader = self._hosts.sources.reader
        return promised(peek_at(reader, self._clock, hosted, number, offset, count))

    def stats(self, name: str, topic_name: str) -> QueueStats:
        return stats(self.queue_of(name, topic_name).queue, self._clock.now_ms())

    def lanes(self, topic_name: str) -> TopicLanes:
        """Return the lane settings of a topic, what local replicas hold, and group statistics."""
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
