"""Polling: a member of a stream group reads its assigned partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.polling import Poll
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.bodies.messages import Damage
from goqueue.wire.http.handlers.groups import topic_partitions
from goqueue.wire.http.messages import to_message

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def poll(front: FrontEnd, call: Call, query: bodies.Poll) -> bodies.Polled:
    polled = await front.gate.polling.poll(
        call.session,
        call=Poll(
            group_id=call.name("group"),
            member_id=query.member_id,
            member_epoch=query.member_epoch,
            records_max=query.limit,
            bytes_max=front.limits.answer_bytes_max,
            is_committing=query.auto_commit,
            start=query.start,
            after=query.after,
        ),
        wait_ms=query.wait_ms,
        cancellation=call.cancellation,
    )
    assigned = polled.assignment
    return bodies.Polled(
        poll=polled.number,
        messages=[
            to_message(topic, partition, record, query.encoding)
            for topic, partition, record in polled.records
        ],
        member_epoch=polled.member_epoch,
        assignment=None if assigned is None else topic_partitions(assigned),
        resets=[
            bodies.PartitionReset(
                topic=one.topic,
                partition=one.partition,
                offset_before=one.offset_before,
                offset=one.offset,
            )
            for one in polled.resets
        ],
        damaged=[
            Damage(
                partition=one.partition,
                offset=one.offset,
                next_offset=one.next_offset,
                detail=one.detail,
            )
            for one in polled.damaged
        ],
    )
