"""Topics: create, list, describe, configure, grow, compact, delete; delete their records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from goqueue.broker.topics.settings import known_setting
from goqueue.model.errors import (
    InternalTopic,
    InvalidReplicationFactor,
    RecordsKept,
    TopicDeletionDisabled,
)
from goqueue.wire.carrier.calls import Request
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import topics as bodies
from goqueue.wire.http.bodies.topics import SettingValue
from goqueue.wire.http.moments import offset_at, times_of

if TYPE_CHECKING:
    from goqueue.broker.broker import Placement
    from goqueue.broker.reading.remote import Bounds
    from goqueue.broker.topics.topics import Topic
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def create(front: FrontEnd, call: Call, body: bodies.CreateTopic) -> bodies.TopicDescription:
    if body.replication not in (None, 1) and front.broker.cluster is None:
        raise InvalidReplicationFactor(
            f"Replication {body.replication} is not possible with 1 node; use 1."
        )
    count = body.partitions or front.broker.settings.topics.partitions
    settings = {name: _text(value) for name, value in body.settings.items()}
    topic = await front.broker.topics.create(
        body.name,
        partition_count=count,
        settings=settings,
        replication_factor=-1 if body.replication is None else body.replication,
    )
    return await _describe(front, topic)


def list_all(front: FrontEnd, call: Call, query: bodies.ListTopics) -> bodies.Topics:
    topics = [
        topic
        for topic in front.broker.topics
        if topic.name.startswith(query.prefix) and (query.internal or not topic.is_internal)
    ]
    topics.sort(key=lambda topic: topic.name)
    return bodies.Topics(topics=[_summary(front, topic) for topic in topics])


async def describe(front: FrontEnd, call: Call, _: object) -> bodies.TopicDescription:
    return await _describe(front, front.broker.topics.get(call.text("topic")))


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
    return await _describe(front, topic)


async def delete(front: FrontEnd, call: Call, _: object) -> None:
    if not front.broker.settings.topics.delete_enabled:
        raise TopicDeletionDisabled
    await front.broker.topics.delete(call.text("topic"))


async def partitions(front: FrontEnd, call: Call, _: object) -> bodies.Partitions:
    return await _partitions(front, front.broker.topics.get(call.text("topic")))


async def grow(front: FrontEnd, call: Call, body: bodies.Grow) -> bodies.Partitions:
    topic = front.broker.topics.get(call.text("topic"))
    await front.broker.topics.grow(topic.name, body.partitions)
    return await _partitions(front, topic)


def compact(front: FrontEnd, call: Call, _: object) -> bodies.Compaction:
    topic = call.text("topic")
    return bodies.Compaction(topic=topic, partitions=front.broker.compact(topic))


async def delete_records(
    front: FrontEnd, call: Call, query: bodies.DeleteRecords
) -> bodies.DeletedRecords:
    topic = front.broker.topics.get(call.text("topic"))
    if query.before_offset is not None and query.partition is None:
        raise InvalidField("An offset is one of a partition; name it too.", field="partition")
    if query.before_offset is not None and query.before is not None:
        raise InvalidField("Give before_offset or before, not both.", field="before")
    policy = topic.settings.log
    if policy.is_compacting and not policy.is_deleting:
        raise RecordsKept(topic.name)
    numbers = range(len(topic.partitions)) if query.partition is None else [query.partition]
    now_ms = front.now_ms()
    times_ms = times_of(query.before, now_ms=now_ms, field="before")
    # All places are found before anything is deleted, so that a bad moment deletes nothing.
    bounds = await front.broker.look(topic, numbers, times_ms=times_ms)
    before = [_delete_before(one, query, now_ms=now_ms) for one in bounds]
    return bodies.DeletedRecords(
        topic=topic.name,
        partitions=[
            bodies.Deleted(
                partition=number,
                start_offset=await _delete_in(front, topic, number, offset),
            )
            for number, offset in zip(numbers, before, strict=True)
        ],
    )


def _delete_before(bounds: Bounds, query: bodies.DeleteRecords, *, now_ms: int) -> int:
    if query.before_offset is not None:
        return query.before_offset
    if query.before is None:
        return bounds.high_watermark
    return offset_at(bounds, query.before, now_ms=now_ms, field="before")


async def _delete_in(front: FrontEnd, topic: Topic, number: int, offset: int) -> int:
    """Delete in a partition, on the node that leads it; the first offset that is left."""
    broker = front.broker
    if front.forwarder is None or broker.leaders.is_here(topic, number):
        return await broker.delete_records(topic.name, number, before_offset=offset)
    request = Request(
        "DELETE",
        f"/v1/topics/{topic.name}/records",
        b"partition=%d&before_offset=%d" % (number, offset),
    )
    owner = broker.leaders.node_of(topic, number)
    answer = await front.forwarder.ask(owner, request, bodies.DeletedRecords)
    return answer.partitions[0].start_offset


def _summary(front: FrontEnd, topic: Topic) -> bodies.Topic:
    return bodies.Topic(
        name=topic.name,
        id=topic.id.hex(),
        partitions=len(topic.partitions),
        replication=_replication(front, topic),
        internal=topic.is_internal,
        settings=_typed(topic.fact.settings),
    )


def _replication(front: FrontEnd, topic: Topic) -> int:
    """On how many nodes a partition is meant to be kept."""
    return len(front.broker.placement(topic, 0).replicas)


async def _describe(front: FrontEnd, topic: Topic) -> bodies.TopicDescription:
    effective = {**front.broker.topics.defaults.values, **topic.fact.settings}
    numbers = range(len(topic.partitions))
    partitions = await front.broker.look(topic, numbers, may_guess=True)
    return bodies.TopicDescription(
        name=topic.name,
        id=topic.id.hex(),
        partitions=len(partitions),
        replication=_replication(front, topic),
        internal=topic.is_internal,
        settings=_typed(topic.fact.settings),
        effective_settings=_typed(effective),
        messages=sum(one.high_watermark - one.start_offset for one in partitions),
        bytes=sum(one.log.size for one in partitions),
    )


async def _partitions(front: FrontEnd, topic: Topic) -> bodies.Partitions:
    numbers = range(len(topic.partitions))
    bounds = await front.broker.look(topic, numbers, may_guess=True)
    return bodies.Partitions(
        topic=topic.name,
        partitions=[
            _partition(front.broker.placement(topic, number), number, one)
            for number, one in enumerate(bounds)
        ],
    )


def _partition(placement: Placement, number: int, bounds: Bounds) -> bodies.Partition:
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
