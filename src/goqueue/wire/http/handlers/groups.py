"""Groups of both kinds: list, describe, delete, lag."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.groups import (
    GroupDescription,
    MemberDescription,
    Partition,
    QueueGroup,
    nest,
)
from goqueue.model.errors import InvalidGroupSettings
from goqueue.wire.carrier.explaining import explain
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.bodies import queues as queue_bodies
from goqueue.wire.http.fields import INT64_MAX
from goqueue.wire.http.overviews.slices import slice_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

ShownGroup = queue_bodies.StreamGroup | queue_bodies.QueueGroup


async def list_all(front: FrontEnd, call: Call, query: bodies.ListGroups) -> bodies.Groups:
    if query != bodies.ListGroups(kind=query.kind, prefix=query.prefix):
        from goqueue.wire.http.overviews import lists

        return await lists.groups(front, call, query)
    found = await front.gate.groups.list(call.session, kind=query.kind, prefix=query.prefix)
    return bodies.Groups(
        groups=[bodies.Group(name=one.name, kind=one.kind, state=one.state) for one in found],
    )


async def put(front: FrontEnd, call: Call, body: queue_bodies.PutGroup) -> ShownGroup:
    name = call.name("group")
    if body.kind == "queue":
        if body.topics:
            raise InvalidField("A queue group receives from any topic.", field="topics")
        return _shown(
            await front.gate.groups.put_queue(call.session, group=name, settings=body.settings)
        )
    if body.settings is not None:
        raise InvalidField("A stream group has no settings.", field="settings")
    if not body.topics:
        raise InvalidField("Give the topics that the group reads.", field="topics")
    return _shown(
        await front.gate.groups.put_stream(
            call.session, group=name, topics=body.topics, start=body.start
        )
    )


async def change(front: FrontEnd, call: Call, body: queue_bodies.ChangeGroup) -> ShownGroup:
    """Change some settings of a queue group, after checking the result as a whole."""
    # No setting has more than 64 bits, the limit of integers in the peer protocol.
    changes = {
        name: max(-INT64_MAX, min(value, INT64_MAX)) if isinstance(value, int) else value
        for name, value in body.settings.items()
    }
    try:
        changed = await front.gate.groups.change_queue(
            call.session, group=call.name("group"), changes=changes
        )
    except InvalidGroupSettings as error:
        raise _of_field(error) from None
    return _shown(changed)


def _of_field(error: InvalidGroupSettings) -> InvalidField | InvalidGroupSettings:
    """The error of a body with these settings, one of which cannot be decoded."""
    if not error.problem:
        return error
    text, _, path = error.problem.partition(" - at `$")
    return explain(f"{text} - at `$.settings{path or '`'}", queue_bodies.PutGroup)


async def describe(front: FrontEnd, call: Call, query: bodies.ShowGroup) -> ShownGroup:
    found = await front.gate.groups.describe(call.session, group=call.name("group"))
    return _shown(found, with_members=query.members)


def _shown(group: GroupDescription | QueueGroup, *, with_members: bool = True) -> ShownGroup:
    if isinstance(group, QueueGroup):
        return queue_bodies.QueueGroup(
            name=group.name, settings=group.settings, topics=group.topics
        )
    return queue_bodies.StreamGroup(
        name=group.group_id,
        state=group.state,
        epoch=group.epoch,
        assignor=group.protocol_name,
        members=[member_of(one) for one in group.members] if with_members else [],
        member_count=len(group.members),
    )


async def share_members(
    front: FrontEnd, call: Call, query: bodies.ListShareMembers
) -> bodies.ShareMembers:
    found = await front.gate.share_groups.describe(call.session, group=call.name("group"))
    members, place = slice_of(found.members, query.limit, query.cursor)
    return bodies.ShareMembers(
        group=found.group_id,
        state=found.state,
        epoch=found.epoch,
        assignor=found.assignor,
        members=[
            bodies.ShareMember(
                member_id=one.member_id,
                client_id=one.client_id,
                client_host=one.client_host,
                rack=one.rack_id,
                member_epoch=one.member_epoch,
                subscribed_topics=sorted(one.subscribed_topics),
                assigned=topic_partitions(one.assigned),
            )
            for one in members
        ],
        cursor=place.cursor,
        total=place.total,
    )


async def delete(front: FrontEnd, call: Call, _: object) -> None:
    await front.gate.groups.delete(call.session, group=call.name("group"))


async def lag(front: FrontEnd, call: Call, query: bodies.ShowLag) -> bodies.Lag:
    name = call.name("group")
    found = await front.gate.groups.lag(call.session, group=name)
    ages_ms = [one.age_ms for one in found.partitions if one.age_ms is not None]
    wanted = [one for one in found.partitions if query.topic in (None, one.topic)]
    if query.sort == "lag":
        wanted.sort(key=lambda one: (-one.lag, one.topic, one.partition))
    page, place = slice_of(wanted, query.limit, query.cursor)
    return bodies.Lag(
        group=name,
        kind=found.kind,
        lag=sum(one.lag for one in found.partitions),
        lag_ms=max(ages_ms, default=None),
        topics=sorted({one.topic for one in found.partitions}),
        partitions=[
            bodies.PartitionLag(
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
                end_offset=one.end_offset,
                lag=one.lag,
                lag_ms=one.age_ms,
            )
            for one in page
        ],
        cursor=place.cursor,
        total=place.total,
    )


def member_of(member: MemberDescription) -> bodies.GroupMember:
    return bodies.GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_host=member.client_host,
        member_epoch=member.epoch,
        subscribed_topics=list(member.subscribed_topics),
        topic_pattern=member.subscribed_regex,
        assigned=topic_partitions(member.assigned),
        target=topic_partitions(member.target),
    )


def topic_partitions(partitions: Iterable[Partition]) -> list[bodies.TopicPartitions]:
    return [
        bodies.TopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in nest(partitions).items()
    ]
