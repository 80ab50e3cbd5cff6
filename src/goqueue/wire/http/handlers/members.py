"""Members of stream groups: join, heartbeat, revoke, leave, and their assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.groups import Partitions, flatten
from goqueue.broker.gate.areas.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
)
from goqueue.model.errors import UnknownMember
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.handlers.groups import member_of, topic_partitions
from goqueue.wire.http.overviews.slices import slice_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

CLIENT_ID = "http"


async def join(front: FrontEnd, call: Call, body: bodies.Join) -> bodies.Member:
    group = call.name("group")
    if not body.topics and not body.topic_pattern:
        raise InvalidField("Give at least one topic, or a topic_pattern.", field="topics")
    beat = ConsumerHeartbeat(
        group_id=group,
        member_id=body.member_id or "",
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
    return _member(await front.gate.polling.join(call.session, call=beat))


async def heartbeat(front: FrontEnd, call: Call, body: bodies.Heartbeat) -> bodies.Member:
    beat = ConsumerHeartbeat(
        group_id=call.name("group"),
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        subscribed_topics=None if body.topics is None else tuple(body.topics),
        owned=None if body.owned is None else _owned(body.owned),
    )
    return _member(await front.gate.polling.heartbeat(call.session, call=beat))


async def revoke(front: FrontEnd, call: Call, body: bodies.Revoke) -> bodies.Member:
    beat = ConsumerHeartbeat(
        group_id=call.name("group"),
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        owned=_owned(body.owned),
    )
    return _member(await front.gate.polling.heartbeat(call.session, call=beat))


async def leave(front: FrontEnd, call: Call, body: bodies.Leave) -> bodies.Left:
    group = call.name("group")
    if body.restarts and body.instance_id is None:
        raise InvalidField("Only a member with an instance_id can return.", field="instance_id")
    beat = ConsumerHeartbeat(
        group_id=group,
        member_id=body.member_id,
        member_epoch=STATIC_LEAVE_EPOCH if body.restarts else LEAVE_EPOCH,
        instance_id=body.instance_id,
    )
    await front.gate.polling.leave(call.session, call=beat)
    return bodies.Left(member_id=body.member_id)


async def assignment(front: FrontEnd, call: Call, query: bodies.GroupOfMember) -> bodies.Assignment:
    group = await front.gate.groups.describe_stream(call.session, group=call.name("group"))
    members = [
        one for one in group.members if query.member_id is None or one.member_id == query.member_id
    ]
    if query.member_id is not None and not members:
        raise UnknownMember(group.group_id, query.member_id)
    page, place = slice_of(members, query.limit, query.cursor)
    return bodies.Assignment(
        group=group.group_id,
        state=group.state,
        epoch=group.epoch,
        members=[member_of(one) for one in page],
        cursor=place.cursor,
        total=place.total,
    )


async def rebalances(front: FrontEnd, call: Call, _: object) -> bodies.Rebalances:
    name = call.name("group")
    report = await front.gate.groups.rebalances(call.session, group=name)
    return bodies.Rebalances(
        group=name,
        under_way=report.is_under_way,
        count=report.count,
        timeouts=report.timeouts,
        partitions_moved=report.partitions_moved,
        duration_ms_last=report.duration_ms_last,
        duration_ms_max=report.duration_ms_max,
        duration_ms_total=report.duration_ms_total,
        reasons={str(reason): count for reason, count in report.reasons.items()},
        history=[
            bodies.Rebalance(
                started_at=one.started_at_ms,
                duration_ms=one.duration_ms,
                reason=one.reason,
                partitions_moved=one.partitions_moved,
            )
            for one in report.history
        ],
    )


def _owned(owned: list[bodies.TopicPartitions]) -> Partitions:
    return flatten({one.topic: one.partitions for one in owned})


def _member(result: ConsumerHeartbeatResult) -> bodies.Member:
    assigned = result.assignment
    return bodies.Member(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if assigned is None else topic_partitions(assigned),
    )
