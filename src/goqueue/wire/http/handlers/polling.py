"""Polling: a member of a stream group reads on in the partitions it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.reading.records import Place
from goqueue.groups import ConsumerHeartbeat, OffsetToCommit
from goqueue.groups import Partition as GroupPartition
from goqueue.groups.limits import HEARTBEAT_MS_MIN
from goqueue.model.errors import StaleMemberEpoch, UnknownMember
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.handlers.groups import (
    commit_all,
    describe_stream,
    group_of,
    topic_partitions,
)
from goqueue.wire.http.handlers.members import beat
from goqueue.wire.http.handlers.reading import damages_of, messages_of

if TYPE_CHECKING:
    from goqueue.broker.reading.remote import Bounds
    from goqueue.broker.streams.rebalance_watch import Watch
    from goqueue.partition import Partition
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.fields import Start
    from goqueue.wire.http.front_end import FrontEnd
    from goqueue.wire.http.member_positions import Positions

PARTITIONS_PER_POLL_MAX = 1000  # the others have their turn at the next poll


async def poll(front: FrontEnd, call: Call, query: bodies.Poll) -> bodies.Polled:
    group = group_of(call)
    if query.after is not None:
        front.positions.of(group, query.member_id).check_answered(query.after)
    if query.auto_commit:
        await _commit_handed_out(front, group, query)
    watches = front.broker.groups.rebalance_watch
    watch = watches.add(group)
    try:
        return await _poll(front, call, query, watch)
    finally:
        watches.remove(group, watch)


async def _poll(front: FrontEnd, call: Call, query: bodies.Poll, watch: Watch) -> bodies.Polled:
    """A rebalance that begins meanwhile ends the wait, and the answer tells of it."""
    group = group_of(call)
    told = await _beat(front, group, query, query.member_epoch)
    positions = front.positions.of(group, query.member_id)
    if positions.assigned is None:
        positions.assign(_assigned(front, group, query.member_id))
    resets: list[bodies.PartitionReset] = []
    places = await _places(front, group, positions, query.start, resets)
    reading = front.broker.read(
        places,
        records_max=query.limit,
        bytes_max=front.limits.answer_bytes_max,
        wait_ms=0 if watch.is_rung else min(query.wait_ms, _patience_ms(front, told)),
    )
    call.on_cancel(reading.cancel)
    watch.ring = reading.finish
    page = await reading.promise
    positions.begin_poll()
    for place in page.places:
        positions.next[_key(place.partition)] = place.offset
    for partition, record in page.records:
        positions.hand_out(_key(partition), record.offset + 1)
    assignment = told.assignment
    if watch.is_rung and page.is_empty:
        told = await _beat(front, group, query, told.member_epoch)
        assignment = assignment if told.assignment is None else told.assignment
    return bodies.Polled(
        poll=positions.poll,
        messages=messages_of(page, query.encoding),
        member_epoch=told.member_epoch,
        assignment=assignment,
        resets=resets,
        damaged=damages_of(page),
    )


def _key(partition: Partition) -> GroupPartition:
    return partition.name.topic, partition.name.partition


def _patience_ms(front: FrontEnd, told: bodies.Member) -> int:
    """A member that waits for longer would be taken for dead, or not hear what to give up.

    Heartbeats of a small group are frequent so that it hears early. That is not worth a request
    each; but whoever waits for partitions that change hands should ask again soon.
    """
    is_rebalancing = told.heartbeat_interval_ms < HEARTBEAT_MS_MIN
    return (
        told.heartbeat_interval_ms
        if is_rebalancing
        else front.broker.settings.groups.consumer_heartbeat_ms
    )


async def _commit_handed_out(front: FrontEnd, group: str, query: bodies.Poll) -> None:
    """Who polls again has finished with what the last poll brought."""
    positions = front.positions.of(group, query.member_id)
    if not positions.handed_out:
        return
    offsets = [
        OffsetToCommit(topic=topic, partition=number, offset=offset)
        for (topic, number), offset in positions.handed_out.items()
    ]
    try:
        await commit_all(
            front, group, offsets, member_id=query.member_id, member_epoch=query.member_epoch
        )
    except StaleMemberEpoch:
        # The answer that raised the epoch was lost. The heartbeat tells it again, and the next
        # poll commits.
        return
    for one in offsets:
        if positions.handed_out.get((one.topic, one.partition)) == one.offset:
            del positions.handed_out[one.topic, one.partition]


async def _beat(
    front: FrontEnd, group: str, query: bodies.Poll, member_epoch: int
) -> bodies.Member:
    """With automatic commits a poll also confirms that revoked partitions were given up."""
    positions = front.positions.of(group, query.member_id)
    return await beat(
        front,
        group,
        ConsumerHeartbeat(
            group_id=group,
            member_id=query.member_id,
            member_epoch=member_epoch,
            owned=positions.assigned if query.auto_commit else None,
        ),
    )


def _assigned(front: FrontEnd, group: str, member_id: str) -> frozenset[GroupPartition]:
    """What a member holds that joined before this node was started."""
    for member in describe_stream(front, group).members:
        if member.member_id == member_id:
            return member.assigned
    raise UnknownMember(group, member_id)


async def _places(
    front: FrontEnd,
    group: str,
    positions: Positions,
    start: Start,
    resets: list[bodies.PartitionReset],
) -> list[Place]:
    """Where the member goes on: after what it was given, else where its group has committed."""
    assigned = sorted(positions.assigned or ())
    if len(assigned) > PARTITIONS_PER_POLL_MAX:
        first = positions.turn % len(assigned)
        positions.turn = first + PARTITIONS_PER_POLL_MAX
        assigned = (assigned[first:] + assigned[:first])[:PARTITIONS_PER_POLL_MAX]
    wanted = [one for one in assigned if one not in positions.next]
    if wanted:
        await front.broker.groups.confirm(group)
    committed = front.broker.groups.fetch_offsets(
        group, {one.topic: one.partitions for one in topic_partitions(wanted)}
    )
    bounds = await _bounds(front, assigned)
    places = []
    for topic, number in assigned:
        one = bounds.get((topic, number))
        if one is None:
            continue  # deleted; the group will be told at its next heartbeat
        begin = one.start_offset if start == "earliest" else one.last_stable_offset
        offset = positions.next.get((topic, number))
        if offset is None:
            found = committed.get(topic, {}).get(number)
            offset = begin if found is None else found.offset
        if not one.start_offset <= offset <= one.high_watermark:
            resets.append(
                bodies.PartitionReset(
                    topic=topic, partition=number, offset_before=offset, offset=begin
                )
            )
            offset = begin
        positions.next[topic, number] = offset
        places.append(Place(front.broker.topics.get(topic).partition(number), offset))
    return places


async def _bounds(
    front: FrontEnd, assigned: Sequence[GroupPartition]
) -> dict[GroupPartition, Bounds]:
    """Where the partitions that exist begin and end."""
    found: dict[GroupPartition, Bounds] = {}
    for one in topic_partitions(assigned):
        topic = front.broker.topics.find(one.topic)
        if topic is not None:
            there = [number for number in one.partitions if number < len(topic.partitions)]
            for bounds in await front.broker.look(topic, there):
                found[one.topic, bounds.name.partition] = bounds
    return found
