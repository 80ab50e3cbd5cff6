"""Groups of both kinds: list, describe, delete, lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from goqueue.delivery import QueueSettings
from goqueue.groups import (
    CommitOffsets,
    GroupDescription,
    MemberDescription,
    OffsetToCommit,
    nest,
)
from goqueue.groups import Partition as GroupPartition
from goqueue.groups.classic_roster import read_topics
from goqueue.groups.consumer_protocol import PROTOCOL_TYPE
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    GroupKindMismatch,
    GroupNotEmpty,
    UnknownGroup,
    UnknownMember,
)
from goqueue.wire.carrier.calls import Request
from goqueue.wire.carrier.decoding import BodyDecoder
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.bodies import queues as queue_bodies

if TYPE_CHECKING:
    from goqueue.broker.transactions.ids import Transaction
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

GROUP_NAME_LENGTH_MAX = 249
NO_MEMBER = -1
_SETTINGS = BodyDecoder(queue_bodies.PutGroup)
_QUEUE_STATE = "Stable"  # a queue group has no members that could come and go


def group_of(call: Call) -> str:
    name = call.text("group")
    if len(name) > GROUP_NAME_LENGTH_MAX:
        raise InvalidField(
            f"A group's name has at most {GROUP_NAME_LENGTH_MAX} characters.", field="group"
        )
    return name


def list_all(front: FrontEnd, call: Call, query: bodies.ListGroups) -> bodies.Groups:
    groups = [
        bodies.Group(name=one.group_id, kind="stream", state=one.state)
        for one in front.broker.groups.all()
    ]
    groups += [
        bodies.Group(name=one.name, kind="queue", state=_QUEUE_STATE)
        for one in front.broker.queues.all()
    ]
    wanted = [
        one
        for one in groups
        if query.kind in (None, one.kind) and one.name.startswith(query.prefix)
    ]
    return bodies.Groups(groups=sorted(wanted, key=lambda group: group.name))


async def put(
    front: FrontEnd, call: Call, body: queue_bodies.PutGroup
) -> queue_bodies.StreamGroup | queue_bodies.QueueGroup:
    name = group_of(call)
    if body.kind == "queue":
        if body.topics:
            raise InvalidField("A queue group receives from any topic.", field="topics")
        settings = None if body.settings is None else msgspec.to_builtins(body.settings)
        await front.broker.queues.create(name, settings)
        return await _describe_made(front, name)
    if body.settings is not None:
        raise InvalidField("A stream group has no settings.", field="settings")
    if not body.topics:
        raise InvalidField("Name the topics that the group shall read.", field="topics")
    await _begin(front, name, body)
    return describe(front, call, None)


async def change(
    front: FrontEnd, call: Call, body: queue_bodies.ChangeGroup
) -> queue_bodies.QueueGroup:
    """Change some settings of a queue group; the result is checked as a whole before it counts."""
    name = group_of(call)
    if not front.broker.queues.is_known(name):
        describe_stream(front, name)
        raise GroupKindMismatch(name, is_queue=False)

    def changed(settings: dict[str, Any]) -> Mapping[str, Any]:
        fields = QueueSettings.__struct_fields__
        kept = {
            one: value
            for one, value in {**settings, **body.settings}.items()
            if value is not None or one not in fields
        }
        whole: queue_bodies.PutGroup = _SETTINGS(msgspec.json.encode({"settings": kept}))
        checked: Mapping[str, Any] = msgspec.to_builtins(whole.settings)
        return checked

    await front.broker.queues.change(name, changed)
    return await _describe_made(front, name)


async def _describe_made(front: FrontEnd, name: str) -> queue_bodies.QueueGroup:
    """A queue group that was just made or changed, with the topics that its owner knows of."""
    [group] = [one for one in front.broker.queues.all() if one.name == name]
    topics = group.topics
    owner = front.broker.queues.owner_of(name)
    if front.forwarder is not None and owner != front.broker.node_id:
        request = Request("GET", f"/v1/groups/{quote(name, safe='')}")
        try:
            topics = (await front.forwarder.ask(owner, request, queue_bodies.QueueGroup)).topics
        except UnknownGroup:
            topics = []  # It is so new that its owner has not heard of it.
    return queue_bodies.QueueGroup(name=name, settings=group.settings, topics=topics)


async def _begin(front: FrontEnd, group: str, body: queue_bodies.PutGroup) -> None:
    """Commit where a stream group begins, in partitions where it has committed nothing."""
    await front.broker.groups.confirm(group)
    committed = front.broker.groups.fetch_offsets(group)
    topics = [front.broker.topics.get(name) for name in dict.fromkeys(body.topics)]
    offsets = []
    for topic in topics:
        known = committed.get(topic.name, {})
        numbers = [number for number in range(len(topic.partitions)) if number not in known]
        offsets += [
            OffsetToCommit(
                topic=topic.name,
                partition=one.name.partition,
                offset=one.start_offset if body.start == "earliest" else one.last_stable_offset,
            )
            for one in await front.broker.look(topic, numbers)
        ]
    if offsets:
        await front.broker.groups.ensure_topic()
        await commit_all(front, group, offsets)


def describe(
    front: FrontEnd, call: Call, _: object
) -> queue_bodies.StreamGroup | queue_bodies.QueueGroup:
    name = group_of(call)
    if front.broker.queues.is_known(name):
        queue = front.broker.queues.describe(name)
        return queue_bodies.QueueGroup(
            name=queue.name, settings=queue.settings, topics=queue.topics
        )
    group = describe_stream(front, name)
    return queue_bodies.StreamGroup(
        name=group.group_id,
        state=group.state,
        epoch=group.epoch,
        assignor=group.protocol_name,
        members=[member_of(one) for one in group.members],
    )


async def delete(front: FrontEnd, call: Call, _: object) -> None:
    name = group_of(call)
    if front.broker.queues.is_known(name):
        await front.broker.queues.delete(name)
        return
    describe_stream(front, name)
    await front.broker.groups.delete(name)


async def lag(front: FrontEnd, call: Call, _: object) -> bodies.Lag:
    """The lag of a group in every partition of the topics it reads."""
    name = group_of(call)
    if front.broker.queues.is_known(name):
        return _queue_lag(front, name)
    await front.broker.groups.confirm(name)
    group = describe_stream(front, name)
    committed = front.broker.groups.fetch_offsets(name)
    partitions = []
    for topic in sorted({*committed, *_topics_read(group)}):
        known = front.broker.topics.find(topic)
        if known is None:
            continue  # deleted since
        numbers = range(len(known.partitions))
        for partition in await front.broker.look(
            known, numbers, may_guess=True, with_records_end=True
        ):
            number = partition.name.partition
            offset = committed.get(topic, {}).get(number)
            begin = partition.start_offset if offset is None else offset.offset
            partitions.append(
                bodies.PartitionLag(
                    topic=topic,
                    partition=number,
                    offset=None if offset is None else offset.offset,
                    end_offset=partition.high_watermark,
                    lag=max(0, partition.records_end() - max(begin, partition.start_offset)),
                )
            )
    total = sum(one.lag for one in partitions)
    return bodies.Lag(group=name, kind="stream", lag=total, partitions=partitions)


def _topics_read(group: GroupDescription) -> set[str]:
    """The topics that members subscribe to by name or have partitions of."""
    topics = {topic for member in group.members for topic, _ in member.assigned}
    for member in group.members:
        topics.update(member.subscribed_topics)
        if member.is_classic and group.protocol_type == PROTOCOL_TYPE:
            topics |= read_topics(member.metadata) or frozenset()
    return topics


def _queue_lag(front: FrontEnd, name: str) -> bodies.Lag:
    """For a queue, whatever is not done yet, wherever it is."""
    partitions = [
        bodies.PartitionLag(
            topic=topic,
            partition=one.partition,
            offset=one.done_before,
            end_offset=one.high_watermark,
            lag=one.ready + one.in_flight + one.retrying + one.parked + one.dead_lettering,
        )
        for topic in front.broker.queues.describe(name).topics
        for one in front.broker.queues.stats(name, topic).partitions
    ]
    total = sum(one.lag for one in partitions)
    return bodies.Lag(group=name, kind="queue", lag=total, partitions=partitions)


async def commit_all(
    front: FrontEnd,
    group: str,
    offsets: list[OffsetToCommit],
    *,
    member_id: str = "",
    member_epoch: int = NO_MEMBER,
    transaction: Transaction | None = None,
) -> dict[tuple[str, int], GoQueueError]:
    """Commit, and return what was refused; raise when the member itself is."""
    call = CommitOffsets(
        group_id=group, member_id=member_id, generation=member_epoch, offsets=offsets
    )
    try:
        if transaction is None:
            result = await front.broker.groups.commit_offsets(call)
        else:
            result = await front.broker.transacting.commit_offsets(transaction, call)
    except UnknownMember as error:
        if not member_id:
            # The engine looks for a member without a name, because the group has others.
            raise GroupNotEmpty(group) from error
        raise
    return result.errors


def describe_stream(front: FrontEnd, name: str) -> GroupDescription:
    try:
        return front.broker.groups.describe(name)
    except CoordinatorNotAvailable:
        # Nobody has had a group yet, so this one does not exist either.
        raise UnknownGroup(name) from None


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


def topic_partitions(partitions: Iterable[GroupPartition]) -> list[bodies.TopicPartitions]:
    return [
        bodies.TopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in nest(partitions).items()
    ]
