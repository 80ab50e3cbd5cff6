"""GroupService: groups of both kinds, and the position of queue groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from goqueue.broker.gate.areas.groups import (
    GroupDescription,
    GroupKind,
    MemberDescription,
    Partition,
    QueueGroup,
    nest,
)
from goqueue.broker.gate.areas.queues import LANE_NAMES, Edge, PeekedMessage
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.handlers.fields import group_of
from goqueue.wire.grpc.handlers.paging import messages_max_of, page_of
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import group_service_pb2 as bodies
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.records import priority_of, to_stored

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

PEEKED_MAX = 100
PEEKED_DEFAULT = 10
INT64_MAX = (1 << 63) - 1

_KINDS: dict[int, GroupKind] = {
    bodies.GROUP_KIND_STREAM: "stream",
    bodies.GROUP_KIND_QUEUE: "queue",
}
_KIND_VALUES = {
    "stream": bodies.GROUP_KIND_STREAM,
    "queue": bodies.GROUP_KIND_QUEUE,
}


async def list_all(
    front: FrontEnd, call: Call, request: bodies.ListGroupsRequest
) -> bodies.ListGroupsResponse:
    found = await front.gate.groups.list(
        call.session, kind=_KINDS.get(request.kind), prefix=request.prefix
    )
    page, token = page_of(found, lambda one: one.name, request.page_size, request.page_token)
    return bodies.ListGroupsResponse(
        groups=[
            bodies.Group(name=one.name, kind=_KIND_VALUES[one.kind], state=one.state)
            for one in page
        ],
        next_page_token=token,
    )


async def get(
    front: FrontEnd, call: Call, request: bodies.GetGroupRequest
) -> bodies.GetGroupResponse:
    found = await front.gate.groups.describe(call.session, group=group_of(request.group))
    if isinstance(found, QueueGroup):
        return bodies.GetGroupResponse(
            group=_queue_group(found.name), topics=found.topics, settings=_settings_of(found)
        )
    return _stream_group(found)


async def put_queue(
    front: FrontEnd, call: Call, request: bodies.PutQueueGroupRequest
) -> bodies.PutQueueGroupResponse:
    """Create a group unless it exists; then change the settings that are given."""
    name, changes = group_of(request.group), _changes(request.settings)
    made = await front.gate.groups.put_queue(call.session, group=name, settings=None)
    if changes:
        made = await front.gate.groups.change_queue(call.session, group=name, changes=changes)
    return bodies.PutQueueGroupResponse(group=_queue_group(name), settings=_settings_of(made))


async def delete(
    front: FrontEnd, call: Call, request: bodies.DeleteGroupRequest
) -> bodies.DeleteGroupResponse:
    await front.gate.groups.delete(call.session, group=group_of(request.group))
    return bodies.DeleteGroupResponse()


async def lag(front: FrontEnd, call: Call, request: bodies.GetLagRequest) -> bodies.GetLagResponse:
    found = await front.gate.groups.lag(call.session, group=group_of(request.group))
    return bodies.GetLagResponse(
        kind=_KIND_VALUES[found.kind],
        lag=sum(one.lag for one in found.partitions),
        partitions=[
            bodies.PartitionLag(
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
                end_offset=one.end_offset,
                lag=one.lag,
            )
            for one in found.partitions
        ],
    )


async def stats(
    front: FrontEnd, call: Call, request: bodies.GetQueueStatsRequest
) -> bodies.GetQueueStatsResponse:
    found = await front.gate.queues.stats(
        call.session, group=group_of(request.group), topic=request.topic
    )
    return bodies.GetQueueStatsResponse(
        ready=found.ready,
        in_flight=found.in_flight,
        retrying=found.retrying,
        parked=found.parked,
        dead_lettering=found.dead_lettering,
    )


async def peek(front: FrontEnd, call: Call, request: bodies.PeekRequest) -> bodies.PeekResponse:
    has = request.HasField
    if has("offset") and not has("partition"):
        raise InvalidField("An offset needs a partition; give it too.", field="partition")
    found = await front.gate.queues.peek(
        call.session,
        group=group_of(request.group),
        topic=request.topic,
        partition=request.partition if has("partition") else None,
        offset=request.offset if has("offset") else None,
        limit=messages_max_of(request.messages_max, PEEKED_DEFAULT, PEEKED_MAX),
    )
    return bodies.PeekResponse(
        messages=[_peeked(request.topic, one) for one in found if one.record is not None]
    )


async def rewind(
    front: FrontEnd, call: Call, request: bodies.RewindRequest
) -> bodies.RewindResponse:
    edge, offsets, time_ms = _target(request)
    moved = await front.gate.queues.rewind(
        call.session,
        group=group_of(request.group),
        topic=request.topic,
        to=edge,
        offsets=offsets,
        time_ms=time_ms,
    )
    return bodies.RewindResponse(positions=_positions(moved))


async def purge(front: FrontEnd, call: Call, request: bodies.PurgeRequest) -> bodies.PurgeResponse:
    moved = await front.gate.queues.purge(
        call.session, group=group_of(request.group), topic=request.topic
    )
    return bodies.PurgeResponse(positions=_positions(moved))


def _target(request: bodies.RewindRequest) -> tuple[Edge | None, dict[int, int] | None, int | None]:
    """Return where to rewind to: an edge, offsets by partition, or a time."""
    kind = request.to.WhichOneof("position")
    if (kind is None) == (not request.offsets):
        raise InvalidField("Give either `to` or `offsets`.", field="to")
    if kind is None:
        offsets = {one.partition: one.offset for one in request.offsets}
        if len(offsets) != len(request.offsets):
            raise InvalidField("A partition is given twice.", field="offsets")
        return None, offsets, None
    if kind == "offset":
        raise InvalidField("Give the offset of each partition in `offsets`.", field="to")
    if kind == "time_ms":
        return None, None, request.to.time_ms
    is_latest = request.to.start == consuming.START_LATEST
    return "latest" if is_latest else "earliest", None, None


def _changes(settings: Mapping[str, str]) -> dict[str, str | bool | int | float | None]:
    """Return settings that a request gives as JSON values."""
    changes: dict[str, str | bool | int | float | None] = {}
    for name, text in settings.items():
        try:
            value = msgspec.json.decode(text, type=str | bool | int | float | None)
        except msgspec.MsgspecError:
            raise InvalidField(
                f'{text[:100]!r} is not a JSON value, such as 60000 or "text".',
                field=f"settings.{name}",
            ) from None
        # No setting has more than 64 bits, the limit of integers in the peer protocol.
        is_number = isinstance(value, int) and not isinstance(value, bool)
        changes[name] = max(-INT64_MAX, min(value, INT64_MAX)) if is_number else value
    return changes


def _settings_of(group: QueueGroup) -> dict[str, str]:
    values: dict[str, Any] = msgspec.to_builtins(group.settings)
    return {name: msgspec.json.encode(value).decode() for name, value in values.items()}


def _queue_group(name: str) -> bodies.Group:
    return bodies.Group(name=name, kind=bodies.GROUP_KIND_QUEUE, state="Stable")


def _stream_group(found: GroupDescription) -> bodies.GetGroupResponse:
    return bodies.GetGroupResponse(
        group=bodies.Group(name=found.group_id, kind=bodies.GROUP_KIND_STREAM, state=found.state),
        members=map(_member, found.members),
        epoch=found.epoch,
        assignor=found.protocol_name,
    )


def _member(one: MemberDescription) -> bodies.GroupMember:
    return bodies.GroupMember(
        member_id=one.member_id,
        instance_id=one.instance_id or "",
        client_host=one.client_host,
        member_epoch=one.epoch,
        subscribed_topics=one.subscribed_topics,
        topic_pattern=one.subscribed_regex,
        assigned=topic_partitions(one.assigned),
    )


def topic_partitions(partitions: Iterable[Partition]) -> list[shared.TopicPartitions]:
    return [
        shared.TopicPartitions(topic=topic, partitions=sorted(numbers))
        for topic, numbers in sorted(nest(partitions).items())
    ]


def _peeked(topic: str, one: PeekedMessage) -> bodies.PeekedMessage:
    state, record = one
    assert record is not None
    return bodies.PeekedMessage(
        message=to_stored(topic, state.partition, record),
        priority=priority_of(LANE_NAMES.index(state.lane)),
        state=state.state,
        attempts=state.attempts,
        consumer=state.consumer or "",
        leased_until_ms=state.until_ms,
        due_at_ms=state.due_ms,
    )


def _positions(moved: Mapping[int, int]) -> list[shared.PartitionOffset]:
    return [
        shared.PartitionOffset(partition=number, offset=offset)
        for number, offset in sorted(moved.items())
    ]
