"""Committed offsets of stream groups: commit, show, reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.groups import OffsetToCommit
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.model.names import TopicPartition
from goqueue.wire.carrier.problems import InvalidField, Problem, problem_of
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.fields import INT64_MAX
from goqueue.wire.http.handlers.groups import NO_MEMBER, commit_all, describe_stream, group_of
from goqueue.wire.http.moments import offset_at, times_of

if TYPE_CHECKING:
    from goqueue.broker.reading.remote import Bounds
    from goqueue.broker.topics.topics import Topic
    from goqueue.broker.transactions.ids import Transaction
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

_OFFSET_PREFIX = "offset:"


async def commit(front: FrontEnd, call: Call, body: bodies.Commit) -> bodies.Committed:
    return await commit_in(front, group_of(call), body, None)


async def commit_in(
    front: FrontEnd, group: str, body: bodies.Commit, transaction: Transaction | None
) -> bodies.Committed:
    """Commit what may be committed, now or with a transaction; the outcome for each partition."""
    if (body.member_id is None) != (body.member_epoch is None):
        raise InvalidField(
            "A member commits with its member_id and its member_epoch.", field="member_epoch"
        )
    refused: dict[tuple[str, int], GoQueueError] = {}
    offsets = []
    for one in body.offsets:
        problem = _missing(front, one.topic, one.partition)
        if problem is not None:
            refused[one.topic, one.partition] = problem
        else:
            offsets.append(
                OffsetToCommit(
                    topic=one.topic,
                    partition=one.partition,
                    offset=one.offset,
                    metadata=one.metadata,
                )
            )
    if offsets:
        await front.broker.groups.ensure_topic()
        refused |= await commit_all(
            front,
            group,
            offsets,
            member_id=body.member_id or "",
            member_epoch=NO_MEMBER if body.member_epoch is None else body.member_epoch,
            transaction=transaction,
        )
    results = [_result(one, refused.get((one.topic, one.partition))) for one in body.offsets]
    return bodies.Committed(results=results, failed=sum(not _is_fine(one) for one in results))


async def show(front: FrontEnd, call: Call, _: object) -> bodies.Offsets:
    group = group_of(call)
    await front.broker.groups.confirm(group)
    describe_stream(front, group)
    committed = front.broker.groups.fetch_offsets(group)
    return bodies.Offsets(
        group=group,
        offsets=[
            bodies.CommittedOffset(
                topic=topic,
                partition=number,
                offset=one.offset,
                metadata=one.metadata,
                committed_at=one.committed_at_ms,
            )
            for topic, found in sorted(committed.items())
            for number, one in sorted(found.items())
        ],
    )


async def reset(front: FrontEnd, call: Call, body: bodies.Reset) -> bodies.ResetDone:
    """Say where the group begins next time; possible while it has no members."""
    group = group_of(call)
    topic = front.broker.topics.get(body.topic)
    numbers = body.partitions or list(range(len(topic.partitions)))
    if len(set(numbers)) != len(numbers):
        raise InvalidField("A partition stands twice.", field="partitions")
    await front.broker.groups.confirm(group)
    committed = front.broker.groups.fetch_offsets(group, {topic.name: numbers})
    before = committed.get(topic.name, {})
    is_offset = body.to.startswith(_OFFSET_PREFIX)
    now_ms = front.now_ms()
    times_ms = times_of(None if is_offset else body.to, now_ms=now_ms, field="to")
    bounds = await front.broker.look(topic, numbers, times_ms=times_ms)
    targets = {one.name.partition: _target(one, body.to, now_ms=now_ms) for one in bounds}
    if not body.dry_run:
        await front.broker.groups.ensure_topic()
        await _move(front, group, topic, targets)
    return bodies.ResetDone(
        topic=topic.name,
        dry_run=body.dry_run,
        offsets=[
            bodies.ResetOffset(
                partition=number,
                offset_before=before[number].offset if number in before else None,
                offset=offset,
            )
            for number, offset in targets.items()
        ],
    )


async def _move(front: FrontEnd, group: str, topic: Topic, targets: dict[int, int]) -> None:
    offsets = [
        OffsetToCommit(topic=topic.name, partition=number, offset=offset)
        for number, offset in targets.items()
    ]
    for error in (await commit_all(front, group, offsets)).values():
        raise error


def _target(partition: Bounds, to: str, *, now_ms: int) -> int:
    if not to.startswith(_OFFSET_PREFIX):
        return offset_at(partition, to, now_ms=now_ms, field="to")
    text = to.removeprefix(_OFFSET_PREFIX)
    if not (text.isascii() and text.isdigit() and int(text) <= INT64_MAX):
        raise InvalidField(f"{to!r} is no offset; write offset:42.", field="to")
    offset, start, end = int(text), partition.start_offset, partition.high_watermark
    if not start <= offset <= end:
        raise InvalidRequest(
            f"Offset {offset} is not in {partition.name}; choose one from {start} to {end}."
        )
    return offset


def _missing(front: FrontEnd, topic: str, partition: int) -> GoQueueError | None:
    found = front.broker.topics.find(topic)
    if found is None:
        return UnknownTopic(topic)
    if partition >= len(found.partitions):
        return UnknownPartition(TopicPartition(topic, partition))
    return None


def _result(one: bodies.OffsetToCommit, error: GoQueueError | None) -> bodies.CommitResult:
    result = bodies.CommitResult(topic=one.topic, partition=one.partition)
    if error is not None:
        result.problem = problem_of(error)
    return result


def _is_fine(result: bodies.CommitResult) -> bool:
    return not isinstance(result.problem, Problem)
