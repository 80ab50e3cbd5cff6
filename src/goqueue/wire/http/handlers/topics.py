"""Topics: create, list, describe, configure, grow, compact, delete; delete their records."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from goqueue.broker.gate.areas.configs import Change, ChangeKind
from goqueue.broker.gate.areas.records import At, Position
from goqueue.broker.gate.areas.topics import BY_DEFAULT, PartitionState, TopicSummary, known_setting
from goqueue.model.errors import AccessDenied
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import topics as bodies
from goqueue.wire.http.bodies.topics import SettingValue
from goqueue.wire.http.moments import position_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def create(front: FrontEnd, call: Call, body: bodies.CreateTopic) -> bodies.TopicDescription:
    settings = {name: _text(value) for name, value in body.settings.items()}
    created = await front.gate.topics.create(
        call.session,
        name=body.name,
        partition_count=body.partitions,
        settings=settings,
        replication_factor=BY_DEFAULT if body.replication is None else body.replication,
    )
    try:
        return await _describe(front, call, body.name)
    except AccessDenied:
        # Who may create a topic, but not describe it, gets what it has created.
        return bodies.TopicDescription(
            name=body.name,
            id=(created.id or b"").hex(),
            partitions=created.partition_count,
            replication=created.replication_factor,
            internal=False,
            settings=typed(settings),
            effective_settings={},
            messages=0,
            bytes=0,
        )


def list_all(
    front: FrontEnd, call: Call, query: bodies.ListTopics
) -> bodies.Topics | Coroutine[Any, Any, bodies.Topics]:
    if query != bodies.ListTopics(prefix=query.prefix, internal=query.internal):
        from goqueue.wire.http.overviews import lists

        return lists.topics(front, call, query)
    found = front.gate.topics.summaries(
        call.session, prefix=query.prefix, with_internal=query.internal
    )
    return bodies.Topics(topics=[listed(one) for one in found])


async def describe(front: FrontEnd, call: Call, _: object) -> bodies.TopicDescription:
    return await _describe(front, call, call.text("topic"))


async def change(front: FrontEnd, call: Call, body: bodies.ChangeTopic) -> bodies.TopicDescription:
    """Merge the given settings into those of the topic."""
    topic = front.gate.topics.get(call.session, topic=call.text("topic")).name
    changes = [
        Change(name, ChangeKind.DELETE)
        if value is None
        else Change(name, ChangeKind.SET, _text(value))
        for name, value in body.settings.items()
    ]
    await front.gate.configs.change_topic(call.session, topic=topic, changes=changes)
    return await _describe(front, call, topic)


async def delete(front: FrontEnd, call: Call, _: object) -> None:
    await front.gate.topics.delete(call.session, topic=call.text("topic"))


async def partitions(
    front: FrontEnd, call: Call, query: bodies.ListTopicPartitions
) -> bodies.Partitions:
    topic = call.text("topic")
    if query.limit is None:
        return await _partitions(front, call, topic)
    count = front.gate.topics.get(call.session, topic=topic).partition_count
    first = int(query.cursor) if query.cursor else 0
    found = await front.gate.topics.partitions(
        call.session, topic=topic, first=first, limit=query.limit
    )
    end = first + len(found)
    return bodies.Partitions(
        topic=topic,
        partitions=[_partition(number, one) for number, one in enumerate(found, first)],
        cursor=str(end) if end < count else "",
        total=count,
    )


async def grow(front: FrontEnd, call: Call, body: bodies.Grow) -> bodies.Partitions:
    topic = call.text("topic")
    await front.gate.topics.grow(call.session, topic=topic, partition_count=body.partitions)
    return await _partitions(front, call, topic)


async def compact(front: FrontEnd, call: Call, _: object) -> bodies.Compaction:
    topic = call.text("topic")
    count = await front.gate.topics.compact(call.session, topic=topic)
    return bodies.Compaction(topic=topic, partitions=count)


async def delete_records(
    front: FrontEnd, call: Call, query: bodies.DeleteRecords
) -> bodies.DeletedRecords:
    topic = front.gate.topics.get(call.session, topic=call.text("topic")).name
    if query.before_offset is not None and query.partition is None:
        raise InvalidField("An offset needs a partition; give it too.", field="partition")
    if query.before_offset is not None and query.before is not None:
        raise InvalidField("Give either before_offset or before.", field="before")
    before = None
    if query.before_offset is not None:
        before = Position(At.OFFSET, query.before_offset)
    elif query.before is not None:
        before = position_of(query.before, now_ms=front.now_ms(), field="before")
    deleted = await front.gate.records.delete_before(
        call.session, topic=topic, partition=query.partition, before=before
    )
    return bodies.DeletedRecords(
        topic=topic,
        partitions=[
            bodies.Deleted(partition=number, start_offset=offset) for number, offset in deleted
        ],
    )


def listed(topic: TopicSummary, stats: bodies.TopicStats | UnsetType = UNSET) -> bodies.ListedTopic:
    return bodies.ListedTopic(
        stats=stats,
        name=topic.name,
        id=topic.id.hex(),
        partitions=topic.partition_count,
        replication=topic.replication_factor,
        internal=topic.is_internal,
        settings=typed(topic.settings),
    )


async def _describe(front: FrontEnd, call: Call, name: str) -> bodies.TopicDescription:
    found = await front.gate.topics.describe(call.session, topic=name)
    topic = found.summary
    return bodies.TopicDescription(
        name=topic.name,
        id=topic.id.hex(),
        partitions=topic.partition_count,
        replication=topic.replication_factor,
        internal=topic.is_internal,
        settings=typed(topic.settings),
        effective_settings=typed(found.effective_settings),
        messages=found.offsets_in_use,
        bytes=found.size,
    )


async def _partitions(front: FrontEnd, call: Call, topic: str) -> bodies.Partitions:
    found = await front.gate.topics.partitions(call.session, topic=topic)
    return bodies.Partitions(
        topic=topic, partitions=[_partition(number, one) for number, one in enumerate(found)]
    )


def _partition(number: int, state: PartitionState) -> bodies.Partition:
    placement, bounds = state
    return bodies.Partition(
        partition=number,
        leader=placement.leader,
        leader_epoch=placement.leader_epoch,
        replicas=list(placement.replicas),
        in_sync=list(placement.in_sync),
        start_offset=bounds.start_offset,
        end_offset=bounds.end_offset,
        high_watermark=bounds.high_watermark,
        bytes=bounds.log.size,
    )


def _text(value: SettingValue) -> str:
    """A setting in the form of the broker."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def typed(settings: Mapping[str, str]) -> dict[str, SettingValue]:
    """Settings in the form of JSON."""
    typed: dict[str, SettingValue] = {}
    for name, text in sorted(settings.items()):
        kind = known_setting(name).kind
        if kind in ("int", "long"):
            typed[name] = int(text)
        elif kind == "double":
            typed[name] = float(text)
        elif kind == "boolean":
            typed[name] = text == "true"
        else:
            typed[name] = text
    return typed
