"""Queue groups: peek, rewind, purge and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from goqueue.broker.gate.areas.queues import LANE_NAMES, Edge, PeekedMessage
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import queues as bodies
from goqueue.wire.http.fields import Priority
from goqueue.wire.http.messages import message_fields
from goqueue.wire.http.moments import EARLIEST, LATEST, time_ms

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def peek(front: FrontEnd, call: Call, query: bodies.Peek) -> bodies.Peeked:
    if query.offset is not None and query.partition is None:
        raise InvalidField("An offset needs a partition; give it too.", field="partition")
    found = await front.gate.queues.peek(
        call.session,
        group=call.name("group"),
        topic=query.topic,
        partition=query.partition,
        offset=query.offset,
        limit=query.limit,
    )
    return bodies.Peeked(messages=[_peeked(query, one) for one in found if one.record is not None])


async def rewind(front: FrontEnd, call: Call, body: bodies.Rewind) -> bodies.Moved:
    if (body.to is None) == (body.offsets is None):
        raise InvalidField("Give either `to` or `offsets`.", field="to")
    edge: Edge | None = None
    offsets = moment = None
    if body.offsets is not None:
        offsets = {one.partition: one.offset for one in body.offsets}
        if len(offsets) != len(body.offsets):
            raise InvalidField("A partition is given twice.", field="offsets")
    elif body.to in (EARLIEST, LATEST):
        edge = cast(Edge, body.to)
    else:
        moment = time_ms(body.to or "", now_ms=front.now_ms(), field="to")
    moved = await front.gate.queues.rewind(
        call.session,
        group=call.name("group"),
        topic=body.topic,
        to=edge,
        offsets=offsets,
        time_ms=moment,
        is_dry_run=body.dry_run,
    )
    return _moved(body.topic, moved)


async def purge(front: FrontEnd, call: Call, body: bodies.Purge) -> bodies.Moved:
    moved = await front.gate.queues.purge(call.session, group=call.name("group"), topic=body.topic)
    return _moved(body.topic, moved)


async def stats(front: FrontEnd, call: Call, query: bodies.QueueOfTopic) -> bodies.Stats:
    group = call.name("group")
    found = await front.gate.queues.stats(call.session, group=group, topic=query.topic)
    return bodies.Stats(
        group=group,
        topic=query.topic,
        ready=found.ready,
        in_flight=found.in_flight,
        retrying=found.retrying,
        parked=found.parked,
        dead_lettering=found.dead_lettering,
        prepared=found.prepared,
        delayed=found.delayed,
        totals=found.totals,
        lanes=list(found.lanes),
        partitions=list(found.partitions),
    )


async def lanes(front: FrontEnd, call: Call, _: object) -> bodies.Lanes:
    topic = call.text("topic")
    found = await front.gate.queues.lanes(call.session, topic=topic)
    return bodies.Lanes(
        topic=topic,
        strict=found.is_strict,
        starvation_ms=found.starvation_ms,
        lanes=[
            bodies.LaneOfTopic(
                lane=cast(Priority, name),
                weight=found.weights[name],
                stored=sum(one[number] for one in found.stored),
                stored_by_partition=[one[number] for one in found.stored],
            )
            for number, name in enumerate(LANE_NAMES)
        ],
        groups=[
            bodies.LanesOfGroup(group=group, lanes=list(figures))
            for group, figures in sorted(found.groups.items())
        ],
    )


def _peeked(query: bodies.Peek, one: PeekedMessage) -> bodies.PeekedMessage:
    state, record = one
    assert record is not None
    return bodies.PeekedMessage(
        **message_fields(query.topic, state.partition, record, query.encoding),
        priority=cast(Priority, state.lane),
        state=state.state,
        attempts=state.attempts,
        consumer=state.consumer,
        leased_until=state.until_ms,
        due_at=state.due_ms,
    )


def _moved(topic: str, offsets: Mapping[int, int]) -> bodies.Moved:
    return bodies.Moved(
        topic=topic,
        offsets=[
            bodies.PartitionOffset(partition=number, offset=offset)
            for number, offset in sorted(offsets.items())
        ],
    )
