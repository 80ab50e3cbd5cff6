"""Operations on share groups: queue groups whose members fetch from the leaders of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from goqueue.broker.gate.areas.share_groups.fetching import ShareFetched, ShareFetching
from goqueue.broker.gate.forwarding import coordinator, coordinator_of_call, owner_of_group
from goqueue.broker.gate.operation import (
    Area,
    Arguments,
    group,
    named_by_owner,
    operation,
)
from goqueue.loop.promise import Cancellation
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.model.errors import GoQueueError, GroupKindMismatch
from goqueue.model.session import Session
from goqueue.model.share_groups import (
    PartitionOutcome,
    ShareAcknowledge,
    ShareAcks,
    ShareExchange,
    ShareFetch,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResult,
    ShareOffset,
    ShareUnsent,
    ShareWanted,
)
from goqueue.model.tenants import GroupName, Text, TopicName

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = ["ShareGroupsArea"]


# Inside the area, `list` is an operation.
Descriptions = list[ShareGroupDescription]
Outcomes = list[PartitionOutcome]
Offsets = list[ShareOffset]


def owner_of_call(broker: Broker, arguments: Arguments) -> int:
    """Return the owner for an operation whose argument `call` names the group."""
    return broker.queues.groups.owner_of(arguments["call"].group_id)


owner_of_call.__name__ = owner_of_group.__name__  # as the page of all operations shows it


def owner_of_queue_group(broker: Broker, arguments: Arguments) -> int:
    """Return the owner of a queue group."""
    return broker.queues.groups.owner_of(arguments["group"])


owner_of_queue_group.__name__ = owner_of_group.__name__


class ShareGroupsArea(Area):
    """Share groups: membership, records under leases, acknowledgements, offsets."""

    # Members

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def heartbeat(self, session: Session, *, call: ShareHeartbeat) -> ShareHeartbeatResult:
        """Join, stay in or leave a group; the first member of a missing group creates it."""
        for name in call.subscribed_topics or ():
            self._check(session, Action.DESCRIBE, Resource(ResourceKind.TOPIC, name))
        return await self._broker.share_members.heartbeat(call)

    @operation(Action.DESCRIBE, group(), owner=coordinator, is_reading=True)
    async def describe(self, session: Session, *, group: GroupName) -> ShareGroupDescription:
        """Return a group and its members, with the topics that the session may describe."""
        found = self._broker.share_members.describe(group)
        if self._authoriser.is_open(session):
            return found
        members = tuple(
            msgspec.structs.replace(
                one,
                subscribed_topics=tuple(
                    name for name in one.subscribed_topics if self._sees_topic(session, name)
                ),
                assigned=frozenset(
                    each for each in one.assigned if self._sees_topic(session, each[0])
                ),
            )
            for one in found.members
        )
        return msgspec.structs.replace(found, members=members)

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def list(self, session: Session) -> Descriptions:
        """Return the groups that this node coordinates, without their members."""
        sees_all = self._may(session, Action.DESCRIBE, CLUSTER)
        return [
            msgspec.structs.replace(one, members=())
            for one in self._broker.share_members.all()
            if sees_all
            or self._may(session, Action.DESCRIBE, Resource(ResourceKind.GROUP, one.group_id))
        ]

    @operation(Action.DELETE, group(), owner=coordinator)
    async def delete(self, session: Session, *, group: GroupName) -> None:
        """Delete a group without members, and its state."""
        self._broker.share_members.check_empty(group)
        await self._broker.queues.groups.delete(group)

    # Records

    @operation(Action.READ, group("call.group_id"))
    async def fetch(
        self, session: Session, *, call: ShareFetch, cancellation: Cancellation
    ) -> ShareFetched:
        """Acknowledge records, then lease others of partitions that this node leads, and read them.

        The owner of the group decides which; what does not fit, or cannot be read, is given back.
        """
        self._check_kind(call.group_id)
        broker = self._broker
        fetching = ShareFetching(
            broker.gate.share_groups,
            broker.share_serving,
            session,
            call,
            now_ms=broker.share_leases.now_ms,
            check_again=partial(self._check_again, session, self._authoriser.epoch),
        )
        for one in call.wanted:
            try:
                self._check(session, Action.READ, Resource(ResourceKind.TOPIC, one.topic))
                fetching.want(one)
            except GoQueueError as error:
                fetching.refuse(one, error)
        return await fetching.fetch(cancellation)

    @operation(Action.READ, group("call.group_id"), owner=owner_of_call, is_always_routed=True)
    async def exchange(
        self,
        session: Session,
        *,
        call: ShareFetch,
        aligned_ends: tuple[int, ...],
        wait_ms: int,
        cancellation: Cancellation,
    ) -> ShareExchange:
        """Acknowledge records and lease others, which their leader reads; `fetch` calls it."""
        quotas = self._broker.quotas
        if quotas.is_active and call.wanted:
            try:
                quotas.check_consume(session)
                records_max = quotas.lease_room(call.group_id, call.records_max)
                call = msgspec.structs.replace(call, records_max=records_max)
            except GoQueueError:
                if not call.acks:
                    raise
                # Acknowledging costs no quota, and may be what makes room.
                call, aligned_ends = msgspec.structs.replace(call, wanted=()), ()
        allowed, denied = self._divided(session, call.acks)
        exchanged = await self._broker.share_leases.exchange(
            msgspec.structs.replace(call, acks=tuple(allowed)), aligned_ends, cancellation
        )
        if quotas.is_active:
            count = sum(each.count for one in exchanged.leased for each in one.ranges)
            quotas.leased(call.group_id, count)
        if not denied:
            return exchanged
        acked = _in_order(call.acks, exchanged.acked, denied)
        return msgspec.structs.replace(exchanged, acked=tuple(acked))

    @operation(Action.READ, group("call.group_id"), owner=owner_of_call, is_always_routed=True)
    async def acknowledge(self, session: Session, *, call: ShareAcknowledge) -> Outcomes:
        """Acknowledge records; return the outcome of each partition, in order."""
        allowed, denied = self._divided(session, call.acks)
        outcomes = await self._broker.share_leases.acknowledge(
            call.group_id, call.member_id, allowed
        )
        return _in_order(call.acks, outcomes, denied) if denied else outcomes

    @operation(Action.READ, group(), owner=owner_of_queue_group, is_always_routed=True)
    async def release(
        self,
        session: Session,
        *,
        group: GroupName,
        member_id: Text,
        partitions: tuple[ShareWanted, ...],
        session_id: int,
        is_counted: bool,
    ) -> None:
        """Return what a session of a member holds in partitions, counted as a delivery or not."""
        await self._broker.share_leases.release(
            group, member_id, partitions, session_id=session_id, is_counted=is_counted
        )

    @operation(Action.READ, group(), owner=owner_of_queue_group, is_always_routed=True)
    async def give_back(
        self,
        session: Session,
        *,
        group: GroupName,
        member_id: Text,
        unsent: tuple[ShareUnsent, ...],
    ) -> None:
        """Return records that were leased to a member and not sent to it; `fetch` calls it."""
        await self._broker.share_leases.give_back(group, member_id, unsent)

    # Offsets

    @operation(
        Action.DESCRIBE,
        group(),
        owner=owner_of_queue_group,
        is_reading=True,
        is_always_routed=True,
    )
    async def offsets(
        self,
        session: Session,
        *,
        group: GroupName,
        partitions: tuple[ShareWanted, ...] | None = None,
    ) -> Offsets:
        """Return where a group is in these partitions, or in all that it has read."""
        found = self._broker.share_offsets.describe(group, partitions)
        if self._authoriser.is_open(session):
            return found
        kept: Offsets = []
        for one in found:
            resource = Resource(ResourceKind.TOPIC, one.topic)
            if self._may(session, Action.DESCRIBE, resource):
                kept.append(one)
            elif partitions is not None:
                error = self._denial(session, Action.DESCRIBE, resource)
                kept.append(ShareOffset(one.topic, one.partition, error=error))
        return kept

    @operation(Action.READ, group(), owner=coordinator, is_change=True)
    async def alter_offsets(
        self,
        session: Session,
        *,
        group: GroupName,
        offsets: tuple[ShareOffset, ...],
    ) -> Offsets:
        """Continue a group without members at other start offsets; return where it continues."""
        self._broker.share_members.check_empty(group)
        moved: Offsets = []
        for topic in dict.fromkeys(one.topic for one in offsets):
            wanted = {one.partition: one.start_offset for one in offsets if one.topic == topic}
            try:
                self._check(session, Action.READ, Resource(ResourceKind.TOPIC, topic))
                found = await self._broker.gate.queues.rewind(
                    session, group=group, topic=topic, offsets=wanted
                )
                moved += [ShareOffset(topic, number, found[number]) for number in wanted]
            except GoQueueError as error:
                moved += [ShareOffset(topic, number, error=error) for number in wanted]
        return moved

    @operation(Action.DELETE, group(), owner=coordinator)
    async def delete_offsets(
        self, session: Session, *, group: GroupName, topics: tuple[TopicName, ...]
    ) -> dict[TopicName, GoQueueError | None]:
        """Forget where a group without members is in topics; return the errors by topic."""
        self._broker.share_members.check_empty(group)
        forget = partial(self._broker.gate.share_groups.forget, session, group=group)
        outcomes: dict[str, GoQueueError | None] = {}
        for topic in topics:
            try:
                self._check(session, Action.READ, Resource(ResourceKind.TOPIC, topic))
                await forget(topic=topic)
                outcomes[topic] = None
            except GoQueueError as error:
                outcomes[topic] = error
        return outcomes

    @operation(Action.DELETE, group(), owner=owner_of_queue_group, is_always_routed=True)
    async def forget(self, session: Session, *, group: GroupName, topic: TopicName) -> None:
        """Forget where a group is in a topic, with its leases; `delete_offsets` calls it."""
        await self._broker.share_offsets.forget(group, topic)

    def _check_again(self, session: Session, epoch: int, topic: str) -> None:
        """Raise if a session that could read a topic may not any more, because rules changed."""
        if self._authoriser.epoch != epoch:
            self._check(session, Action.READ, Resource(ResourceKind.TOPIC, topic))

    def _check_kind(self, name: str) -> None:
        """Raise if a stream group has the name, as far as this node can tell."""
        groups = self._broker.queues.groups
        if not groups.is_known(name) and groups.is_stream_group(name):
            raise GroupKindMismatch(name, is_queue=False)

    def _divided(
        self, session: Session, acks: Sequence[ShareAcks]
    ) -> tuple[Sequence[ShareAcks], dict[str, GoQueueError]]:
        """Return the acknowledgements in topics that the session may read, and other topics."""
        if self._authoriser.is_open(session):
            return acks, {}
        denied: dict[str, GoQueueError] = {}
        for name in dict.fromkeys(one.topic for one in acks):
            resource = Resource(ResourceKind.TOPIC, name)
            if not self._may(session, Action.READ, resource):
                denied[name] = self._denial(session, Action.READ, resource)
        return [one for one in acks if one.topic not in denied], denied


def _in_order(
    acks: Sequence[ShareAcks],
    outcomes: Sequence[PartitionOutcome],
    denied: dict[str, GoQueueError],
) -> list[PartitionOutcome]:
    """Return the outcomes of all acknowledgements, with those of topics that are denied."""
    allowed = iter(outcomes)
    return [
        PartitionOutcome(one.topic, one.partition, denied[one.topic])
        if one.topic in denied
        else next(allowed)
        for one in acks
    ]
