"""Members of stream groups: join, heartbeat, revoke, leave, and what each holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Partitions,
    flatten,
)
from goqueue.model.errors import CoordinatorNotAvailable, FencedMemberEpoch, UnknownMember
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.handlers.groups import (
    describe_stream,
    group_of,
    member_of,
    topic_partitions,
)

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

CLIENT_ID = "http"


async def join(front: FrontEnd, call: Call, body: bodies.Join) -> bodies.Member:
    group = group_of(call)
    if not body.topics and not body.topic_pattern:
        raise InvalidField("Name at least one topic, or a topic_pattern.", field="topics")
    await front.broker.groups.ensure_topic()
    result = await front.broker.groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group_id=group,
            member_id=body.member_id or front.broker.new_id().hex(),
            member_epoch=JOIN_EPOCH,
            instance_id=body.instance_id,
            client_id=CLIENT_ID,
            client_host=call.client_host,
            rebalance_timeout_ms=body.rebalance_timeout_ms,
            subscribed_topics=tuple(body.topics),
            subscribed_regex=body.topic_pattern or None,
            server_assignor=body.assignor,
            owned=frozenset(),
        )
    )
    front.positions.forget(group, result.member_id)
    return _told(front, group, result)


async def heartbeat(front: FrontEnd, call: Call, body: bodies.Heartbeat) -> bodies.Member:
    group = group_of(call)
    return await beat(
        front,
        group,
        ConsumerHeartbeat(
            group_id=group,
            member_id=body.member_id,
            member_epoch=body.member_epoch,
            instance_id=body.instance_id,
            subscribed_topics=None if body.topics is None else tuple(body.topics),
            owned=None if body.owned is None else owned_of(body.owned),
        ),
    )


async def revoke(front: FrontEnd, call: Call, body: bodies.Revoke) -> bodies.Member:
    group = group_of(call)
    return await beat(
        front,
        group,
        ConsumerHeartbeat(
            group_id=group,
            member_id=body.member_id,
            member_epoch=body.member_epoch,
            instance_id=body.instance_id,
            owned=owned_of(body.owned),
        ),
    )


async def leave(front: FrontEnd, call: Call, body: bodies.Leave) -> bodies.Left:
    group = group_of(call)
    if body.restarts and body.instance_id is None:
        raise InvalidField("Only a member with an instance_id can come back.", field="instance_id")
    try:
        await front.broker.groups.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=group,
                member_id=body.member_id,
                member_epoch=STATIC_LEAVE_EPOCH if body.restarts else LEAVE_EPOCH,
                instance_id=body.instance_id,
            )
        )
    except CoordinatorNotAvailable:
        raise UnknownMember(group, body.member_id) from None
    front.positions.forget(group, body.member_id)
    return bodies.Left(member_id=body.member_id)


def assignment(front: FrontEnd, call: Call, query: bodies.GroupOfMember) -> bodies.Assignment:
    group = describe_stream(front, group_of(call))
    members = [
        member_of(one)
        for one in group.members
        if query.member_id is None or one.member_id == query.member_id
    ]
    if query.member_id is not None and not members:
        raise UnknownMember(group.group_id, query.member_id)
    return bodies.Assignment(
        group=group.group_id, state=group.state, epoch=group.epoch, members=members
    )


def rebalances(front: FrontEnd, call: Call, _: object) -> bodies.Rebalances:
    name = group_of(call)
    describe_stream(front, name)
    log = front.broker.groups.rebalances(name)
    return bodies.Rebalances(
        group=name,
        under_way=log.is_under_way,
        count=log.count,
        timeouts=log.timeouts,
        partitions_moved=log.partitions_moved,
        duration_ms_last=log.duration_ms_last,
        duration_ms_max=log.duration_ms_max,
        duration_ms_total=log.duration_ms_total,
        reasons={str(reason): count for reason, count in log.reasons.items()},
        history=[
            bodies.Rebalance(
                started_at=one.started_at_ms,
                duration_ms=one.duration_ms,
                reason=one.reason,
                partitions_moved=one.partitions_moved,
            )
            for one in log.history
        ],
    )


async def beat(front: FrontEnd, group: str, call: ConsumerHeartbeat) -> bodies.Member:
    """Send a heartbeat, and remember what the member is told to hold."""
    try:
        result = await front.broker.groups.consumer_heartbeat(call)
    except CoordinatorNotAvailable:
        raise UnknownMember(group, call.member_id) from None
    except (UnknownMember, FencedMemberEpoch):
        front.positions.forget(group, call.member_id)
        raise
    return _told(front, group, result)


def owned_of(owned: list[bodies.TopicPartitions]) -> Partitions:
    return flatten({one.topic: one.partitions for one in owned})


def _told(front: FrontEnd, group: str, result: ConsumerHeartbeatResult) -> bodies.Member:
    assigned = result.assignment
    if assigned is not None:
        front.positions.of(group, result.member_id).assign(assigned)
    return bodies.Member(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if assigned is None else topic_partitions(assigned),
    )
