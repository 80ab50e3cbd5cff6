"""Topics: create, list, describe, configure, grow, compact, delete; delete their records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from goqueue.broker.topic_settings import known_setting
from goqueue.model.errors import (
    InternalTopic,
    InvalidReplicationFactor,
    RecordsKept,
    TopicDeletionDisabled,
)
from goqueue.wire.http.bodies import topics as bodies
from goqueue.wire.http.bodies.topics import SettingValue
from goqueue.wire.http.moments import offset_at
from goqueue.wire.http.problems import InvalidField

if TYPE_CHECKING:
    from goqueue.broker.topics import Topic
    from goqueue.wire.http.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def create(front: FrontEnd, call: Call, body: bodies.CreateTopic) -> bodies.TopicDescription:
    if body.replication not in (None, 1):
        raise InvalidReplicationFactor(
            f"Replication {body.replication} is not possible with 1 node; use 1."
        )
    count = body.partitions or front.broker.settings.topics.partitions
    settings = {name: _text(value) for name, value in body.settings.items()}
    topic = await front.broker.topics.create(body.name, partition_count=count, settings=settings)
    return _describe(front, topic)


def list_all(front: FrontEnd, call: Call, query: bodies.ListTopics) -> bodies.Topics:
    topics = [
        topic
        for topic in front.broker.topics
        if topic.name.startswith(query.prefix) and (query.internal or not topic.is_internal)
    ]
    topics.sort(key=lambda topic: topic.name)
    return bodies.Topics(topics=[_summary(topic) for topic in topics])


def describe(front: FrontEnd, call: Call, _: object) -> bodies.TopicDescription:
    return _describe(front, front.broker.topics.get(call.text("topic")))


async def change(front: FrontEnd, call: Call, body: bodies.ChangeTopic) -> bodies.TopicDescription:
    """Merge the named settings into those the topic has."""
    topic = front.broker.topics.get(call.text("topic"))
    if topic.is_internal:
        raise InternalTopic(topic.name)
    settings = dict(topic.fact.settings)
    for name, value in body.settings.items():
        known_setting(name)
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = _text(value)
    await front.broker.topics.configure(topic.name, settings)
    return _describe(front, topic)


async def delete(front: FrontEnd, call: Call, _: object) -> None:
    if not front.broker.settings.topics.delete_enabled:
        raise TopicDeletionDisabled
    await front.broker.topics.delete(call.text("topic"))


def partitions(front: FrontEnd, call: Call, _: object) -> bodies.Partitions:
    return _partitions(front, front.broker.topics.get(call.text("topic")))


async def grow(front: FrontEnd, call: Call, body: bodies.Grow) -> bodies.Partitions:
    topic = front.broker.topics.get(call.text("topic"))
    await front.broker.topics.grow(topic.name, body.partitions)
    return _partitions(front, topic)


def compact(front: FrontEnd, call: Call, _: object) -> bodies.Compaction:
    topic = call.text("topic")
    return bodies.Compaction(topic=topic, partitions=front.broker.compact(topic))


def delete_records(
    front: FrontEnd, call: Call, query: bodies.DeleteRecords
) -> bodies.DeletedRecords:
    topic = front.broker.topics.get(call.text("topic"))
    if query.before_offset is not None and query.partition is None:
        raise InvalidField("An offset is one of a partition; name it too.", field="partition")
    if query.before_offset is not None and query.before is not None:
        raise InvalidField("Give before_offset or before, not both.", field="before")
    if not topic.settings.log.is_deleting:
        raise RecordsKept(topic.name)
    numbers = range(len(topic.partitions)) if query.partition is None else [query.partition]
    now_ms = front.now_ms()
    # All places are found before anything is deleted, so that a bad moment deletes nothing.
    before = [_delete_before(topic, number, query, now_ms=now_ms) for number in numbers]
    return bodies.DeletedRecords(
        topic=topic.name,
        partitions=[
            bodies.Deleted(
                partition=number,
                start_offset=front.broker.delete_records(topic.name, number, before_offset=offset),
            )
            for number, offset in zip(numbers, before, strict=True)
        ],
    )


def _delete_before(topic: Topic, number: int, query: bodies.DeleteRecords, *, now_ms: int) -> int:
    partition = topic.partition(number)
    if query.before_offset is not None:
        return query.before_offset
    if query.before is None:
        return partition.high_watermark
    return offset_at(partition, query.before, now_ms=now_ms, field="before")


def _summary(topic: Topic) -> bodies.Topic:
    return bodies.Topic(
        name=topic.name,
        id=topic.id.hex(),
        partitions=len(topic.partitions),
        replication=1,
        internal=topic.is_internal,
        settings=_typed(topic.fact.settings),
    )


def _describe(front: FrontEnd, topic: Topic) -> bodies.TopicDescription:
    effective = {**front.broker.topics.defaults.values, **topic.fact.settings}
    partitions = topic.partitions
    return bodies.TopicDescription(
        name=topic.name,
        id=topic.id.hex(),
        partitions=len(partitions),
        replication=1,
        internal=topic.is_internal,
        settings=_typed(topic.fact.settings),
        effective_settings=_typed(effective),
        messages=sum(one.high_watermark - one.start_offset for one in partitions),
        bytes=sum(one.log.size for one in partitions),
    )


def _partitions(front: FrontEnd, topic: Topic) -> bodies.Partitions:
    node = front.broker.node_id
    return bodies.Partitions(
        topic=topic.name,
        partitions=[
            bodies.Partition(
                partition=number,
                leader=node,
                leader_epoch=one.leader_epoch,
                replicas=[node],
                in_sync=[node],
                start_offset=one.start_offset,
                end_offset=one.end_offset,
                high_watermark=one.high_watermark,
                bytes=one.log.size,
            )
            for number, one in enumerate(topic.partitions)
        ],
    )


def _text(value: SettingValue) -> str:
    """A setting as the broker keeps it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _typed(settings: Mapping[str, str]) -> dict[str, SettingValue]:
    """Settings as JSON has them."""
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
