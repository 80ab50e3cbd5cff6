"""TopicService: create, show, list, change, grow, delete; delete records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.configs import Change, ChangeKind
from goqueue.broker.gate.areas.records import At, Position
from goqueue.broker.gate.areas.topics import BY_DEFAULT, PartitionState, TopicSummary
from goqueue.model.errors import AccessDenied
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.handlers.paging import page_of
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import topic_service_pb2 as bodies

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

_MASK_PREFIX = "settings."


async def create(
    front: FrontEnd, call: Call, request: bodies.CreateTopicRequest
) -> bodies.CreateTopicResponse:
    created = await front.gate.topics.create(
        call.session,
        name=request.name,
        partition_count=request.partitions if request.HasField("partitions") else None,
        settings=dict(request.settings),
        replication_factor=request.replication if request.HasField("replication") else BY_DEFAULT,
        dry_run=request.dry_run,
    )
    topic = bodies.Topic(
        name=request.name,
        id="" if created.id is None else created.id.hex(),
        partitions=created.partition_count,
        replication=created.replication_factor,
        settings=request.settings,
    )
    return bodies.CreateTopicResponse(topic=topic)


async def get(
    front: FrontEnd, call: Call, request: bodies.GetTopicRequest
) -> bodies.GetTopicResponse:
    found = await front.gate.topics.describe(call.session, topic=request.topic)
    return bodies.GetTopicResponse(
        topic=_topic(found.summary),
        effective_settings=found.effective_settings,
        messages=found.offsets_in_use,
        bytes=found.size,
    )


async def list_all(
    front: FrontEnd, call: Call, request: bodies.ListTopicsRequest
) -> bodies.ListTopicsResponse:
    found = front.gate.topics.summaries(
        call.session, prefix=request.prefix, with_internal=request.with_internal
    )
    page, token = page_of(found, lambda one: one.name, request.page_size, request.page_token)
    return bodies.ListTopicsResponse(topics=map(_topic, page), next_page_token=token)


async def update(
    front: FrontEnd, call: Call, request: bodies.UpdateTopicRequest
) -> bodies.UpdateTopicResponse:
    topic = front.gate.topics.get(call.session, topic=request.topic).name
    await front.gate.configs.change_topic(call.session, topic=topic, changes=_changes(request))
    return bodies.UpdateTopicResponse(topic=await _shown(front, call, topic))


async def grow(
    front: FrontEnd, call: Call, request: bodies.GrowTopicRequest
) -> bodies.GrowTopicResponse:
    await front.gate.topics.grow(
        call.session, topic=request.topic, partition_count=request.partitions
    )
    return bodies.GrowTopicResponse(topic=await _shown(front, call, request.topic))


async def delete(
    front: FrontEnd, call: Call, request: bodies.DeleteTopicRequest
) -> bodies.DeleteTopicResponse:
    await front.gate.topics.delete(call.session, topic=request.topic)
    return bodies.DeleteTopicResponse()


async def partitions(
    front: FrontEnd, call: Call, request: bodies.ListPartitionsRequest
) -> bodies.ListPartitionsResponse:
    found = await front.gate.topics.partitions(call.session, topic=request.topic)
    return bodies.ListPartitionsResponse(
        partitions=[_partition(number, one) for number, one in enumerate(found)]
    )


async def delete_records(
    front: FrontEnd, call: Call, request: bodies.DeleteRecordsRequest
) -> bodies.DeleteRecordsResponse:
    has = request.HasField
    before: Position | None = None
    if has("before_offset"):
        if not has("partition"):
            raise InvalidField("An offset needs a partition; give it too.", field="partition")
        if has("before_time_ms"):
            raise InvalidField("Give either an offset or a time.", field="before_time_ms")
        before = Position(At.OFFSET, request.before_offset)
    elif has("before_time_ms"):
        before = Position(At.TIME, request.before_time_ms)
    deleted = await front.gate.records.delete_before(
        call.session,
        topic=request.topic,
        partition=request.partition if has("partition") else None,
        before=before,
    )
    return bodies.DeleteRecordsResponse(
        start_offsets=[
            shared.PartitionOffset(partition=number, offset=offset) for number, offset in deleted
        ]
    )


def _changes(request: bodies.UpdateTopicRequest) -> list[Change]:
    """Return the changes of settings that a request asks for."""
    if not request.HasField("update_mask"):
        return [Change(name, ChangeKind.SET, value) for name, value in request.settings.items()]
    changes = []
    for path in request.update_mask.paths:
        name = path.removeprefix(_MASK_PREFIX)
        if name == path:
            raise InvalidField(
                f"{path!r} cannot be changed; write settings.NAME.", field="update_mask"
            )
        if name in request.settings:
            changes.append(Change(name, ChangeKind.SET, request.settings[name]))
        else:
            changes.append(Change(name, ChangeKind.DELETE))
    return changes


async def _shown(front: FrontEnd, call: Call, name: str) -> bodies.Topic:
    """Return a topic that was changed; its name only, to who may not describe it."""
    try:
        return _topic((await front.gate.topics.describe(call.session, topic=name)).summary)
    except AccessDenied:
        return bodies.Topic(name=name)


def _topic(one: TopicSummary) -> bodies.Topic:
    return bodies.Topic(
        name=one.name,
        id=one.id.hex(),
        partitions=one.partition_count,
        replication=one.replication_factor,
        internal=one.is_internal,
        settings=one.settings,
    )


def _partition(number: int, state: PartitionState) -> bodies.Partition:
    placement, bounds = state
    return bodies.Partition(
        partition=number,
        leader=placement.leader,
        leader_epoch=placement.leader_epoch,
        replicas=placement.replicas,
        in_sync=placement.in_sync,
        start_offset=bounds.start_offset,
        end_offset=bounds.end_offset,
        high_watermark=bounds.high_watermark,
        bytes=bounds.log.size,
    )
