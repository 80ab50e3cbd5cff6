"""Operations on the messages of queue groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from goqueue.broker.gate.charges import messages_with_records
from goqueue.broker.gate.forwarding import owner_of_group
from goqueue.broker.gate.operation import Area, Arguments, group, operation, topic
from goqueue.broker.queues.inspection import PeekedMessage, TopicLanes
from goqueue.broker.queues.records import Received, ReceivedRun
from goqueue.delivery import (
    LANE_NAMES,
    LaneStats,
    Lease,
    PartitionStats,
    QueueSettings,
    QueueStats,
    Totals,
)
from goqueue.loop.promise import Cancellation, Promise, promised
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import GoQueueError, UnknownTopic
from goqueue.model.session import Session
from goqueue.model.tenants import GroupName, Text, TopicName

__all__ = [
    "LANE_NAMES",
    "AckedAndReceived",
    "Edge",
    "LaneStats",
    "Lease",
    "Outcomes",
    "PartitionStats",
    "PeekedMessage",
    "QueueSettings",
    "QueueStats",
    "QueuesArea",
    "Received",
    "ReceivedRun",
    "TopicLanes",
    "Totals",
]

Outcomes = list[GoQueueError | None]  # one for each receipt, in order
Edge = Literal["earliest", "latest"]


class AckedAndReceived(NamedTuple):
    """Messages, and the outcomes of the receipts that were acknowledged first."""

    outcomes: Outcomes
    received: Received


def _merge_lanes(_: Arguments, answers: Sequence[TopicLanes]) -> TopicLanes:
    """Merge lanes: every node counts its own replicas, and has the groups that it owns."""
    whole = answers[-1]
    stored = whole.stored
    for answer in answers[:-1]:
        stored = [
            [max(pair) for pair in zip(mine, other, strict=True)]
            for mine, other in zip(stored, answer.stored, strict=False)
        ]
    groups = {name: lanes for answer in answers for name, lanes in answer.groups.items()}
    return whole._replace(stored=stored, groups=groups)


class QueuesArea(Area):
    """Queue groups: receive, settle, inspect, rewind, purge."""

    # Receiving

    @operation(Action.READ, group(), topic(), owner=owner_of_group)
    def receive(
        self,
        session: Session,
        *,
        group: GroupName,
        topic: TopicName,
        consumer: Text,
        messages_max: int,
        wait_ms: int,
        visibility_ms: int | None,
        cancellation: Cancellation,
    ) -> Promise[Received]:
        """Lease messages, now or when some arrive. A missing group is created.

        The coordinator of its name creates it, because it can check for a stream group of that
        name. That node then refuses unless it also owns the new group, and the entry node finds
        the owner.
        """
        receive = partial(
            self._receive,
            session,
            group,
            topic,
            consumer=consumer,
            messages_max=messages_max,
            wait_ms=wait_ms,
            visibility_ms=visibility_ms,
            cancellation=cancellation,
        )
        try:
            return receive()
        except UnknownTopic:
            return promised(self._receive_from_new(session, topic, receive))

    async def _receive_from_new(
        self, session: Session, topic: str, receive: Callable[[], Promise[Received]]
    ) -> Received:
        """Create the topic first, so that no group is created if that fails."""
        await self._create_topic(session, topic)
        return await receive()

    def _receive(
        self,
        session: Session,
        group: str,
        topic: str,
        *,
        consumer: str,
        messages_max: int,
        wait_ms: int,
        visibility_ms: int | None,
        cancellation: Cancellation,
    ) -> Promise[Received]:
        quotas = self._broker.quotas
        if quotas.is_active:
            quotas.check_consume(session)
            messages_max = quotas.lease_room(group, messages_max)
        receiver = self._broker.queues.receive(
            group,
            topic,
            consumer=consumer,
            messages_max=messages_max,
            wait_ms=wait_ms,
            visibility_ms=visibility_ms,
        )
        cancellation.on_cancel(receiver.cancel)
        if quotas.is_active:
            receiver.promise.then(partial(quotas.received, session, group))
        return receiver.promise

    @operation(Action.READ, group(), topic(), owner=owner_of_group)
    async def ack_and_receive(
        self,
        session: Session,
        *,
        group: GroupName,
        topic: TopicName,
        receipts: Sequence[Text],
        consumer: Text,
        messages_max: int,
        wait_ms: int,
        visibility_ms: int | None,
        cancellation: Cancellation,
    ) -> AckedAndReceived:
        """Acknowledge earlier messages, then receive. Messages are returned even if acks fail."""
        if self._broker.topics.find(topic) is None:
            await self._create_topic(session, topic)
        self._broker.queues.groups.served(group, topic)  # Raise before anything is acknowledged.
        acked = self._broker.queues.ack(group, receipts)
        received = await self._receive(
            session,
            group,
            topic,
            consumer=consumer,
            messages_max=messages_max,
            wait_ms=wait_ms,
            visibility_ms=visibility_ms,
            cancellation=cancellation,
        )
        try:
            outcomes = await acked
        except GoQueueError as error:
            outcomes = [error] * len(receipts)
        return AckedAndReceived(outcomes, received)

    # Settling

    @operation(Action.READ, group(), owner=owner_of_group)
    def ack(
        self, session: Session, *, group: GroupName, receipts: Sequence[Text]
    ) -> Promise[Outcomes]:
        """Acknowledge messages."""
        return self._broker.queues.ack(group, receipts)

    @operation(Action.READ, group(), owner=owner_of_group)
    def nack(
        self, session: Session, *, group: GroupName, receipts: Sequence[Text], delay_ms: int | None
    ) -> Promise[Outcomes]:
        """Return messages for redelivery after a delay or after the group's backoff."""
        return self._broker.queues.nack(group, receipts, delay_ms=delay_ms)

    @operation(Action.READ, group(), owner=owner_of_group)
    def give_back(
        self, session: Session, *, group: GroupName, receipts: Sequence[Text]
    ) -> Promise[Outcomes]:
        """Return messages that never reached their consumer; no delivery is counted."""
        return self._broker.queues.give_back(group, receipts)

    @operation(Action.READ, group(), owner=owner_of_group)
    def reject(
        self, session: Session, *, group: GroupName, receipts: Sequence[Text], reason: Text
    ) -> Promise[Outcomes]:
        """Move messages to the dead-letter topic."""
        return self._broker.queues.reject(group, receipts, reason=reason)

    @operation(Action.READ, group(), owner=owner_of_group)
    def extend(
        self,
        session: Session,
        *,
        group: GroupName,
        receipts: Sequence[Text],
        visibility_ms: int | None,
    ) -> Promise[Outcomes]:
        """Extend leases, counted from now."""
        return self._broker.queues.extend(group, receipts, visibility_ms=visibility_ms)

    # Position

    @operation(Action.READ, group(), topic(), owner=owner_of_group, is_change=True)
    async def rewind(
        self,
        session: Session,
        *,
        group: GroupName,
        topic: TopicName,
        to: Edge | None = None,
        offsets: Mapping[int, int] | None = None,
        time_ms: int | None = None,
        is_dry_run: bool = False,
    ) -> dict[int, int]:
        """Deliver again from an edge, offsets or a time on; return each partition's position."""
        if to is not None:
            offsets = await self._edge(topic, to)
        return await self._broker.queues.positions.rewind(
            group, topic, offsets=offsets, time_ms=time_ms, is_dry_run=is_dry_run
        )

    async def _edge(self, name: str, edge: Edge) -> dict[int, int]:
        topic = self._broker.topics.get(name)
        bounds = await self._broker.reads.look(topic, range(len(topic.partitions)))
        return {
            number: one.start_offset if edge == "earliest" else one.high_watermark
            for number, one in enumerate(bounds)
        }

    @operation(Action.READ, group(), topic(), owner=owner_of_group, is_change=True)
    def purge(
        self, session: Session, *, group: GroupName, topic: TopicName
    ) -> Promise[dict[int, int]]:
        """Finish everything stored so far; return where each partition continues."""
        return self._broker.queues.positions.purge(group, topic)

    # Inspection

    @operation(
        Action.READ,
        group(),
        topic(),
        owner=owner_of_group,
        is_reading=True,
        charges=messages_with_records,
    )
    def peek(
        self,
        session: Session,
        *,
        group: GroupName,
        topic: TopicName,
        partition: int | None,
        offset: int | None,
        limit: int,
    ) -> Promise[list[PeekedMessage]]:
        """Return messages with their state, of one partition or of all, without changing them."""
        return self._broker.queues.inspection.peek(
            group, topic, partition, offset=offset, count=limit
        )

    @operation(Action.DESCRIBE, group(), topic(), owner=owner_of_group, is_reading=True)
    async def stats(self, session: Session, *, group: GroupName, topic: TopicName) -> QueueStats:
        """Return the number of messages that are ready, in flight and waiting."""
        return self._broker.queues.inspection.stats(group, topic)

    @operation(Action.DESCRIBE, topic(), merge=_merge_lanes, is_reading=True)
    async def lanes(self, session: Session, *, topic: TopicName) -> TopicLanes:
        """Return the lane settings of a topic, their contents, and the statistics of each group."""
        found = self._broker.queues.inspection.lanes(topic)
        if self._authoriser.is_open(session):
            return found
        groups = {
            name: lanes
            for name, lanes in found.groups.items()
            if self._may(session, Action.DESCRIBE, Resource(ResourceKind.GROUP, name))
        }
        return found._replace(groups=groups)
