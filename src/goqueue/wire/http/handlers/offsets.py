"""Committed offsets of stream groups: commit, show, delete, reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.group_offsets import CommitOffsets, OffsetErrors, OffsetToCommit
from goqueue.broker.gate.areas.records import At, Position
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, GroupNotEmpty, UnknownMember
from goqueue.wire.carrier.problems import InvalidField, Problem, problem_of
from goqueue.wire.http.bodies import groups as bodies
from goqueue.wire.http.fields import INT64_MAX
from goqueue.wire.http.moments import position_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

_NO_MEMBER = -1
_OFFSET_PREFIX = "offset:"


async def commit(front: FrontEnd, call: Call, body: bodies.Commit) -> bodies.Committed:
    group = call.name("group")
    result = front.gate.group_offsets.commit(call.session, call=to_commit(group, body))
    return await committed(group, body, result)


def to_commit(group: str, body: bodies.Commit) -> CommitOffsets:
    """The offsets of a body, to be committed now or in a transaction."""
    if (body.member_id is None) != (body.member_epoch is None):
        raise InvalidField(
            "A member commits with its member_id and its member_epoch.", field="member_epoch"
        )
    return CommitOffsets(
        group_id=group,
        member_id=body.member_id or "",
        generation=_NO_MEMBER if body.member_epoch is None else body.member_epoch,
        offsets=[
            OffsetToCommit(
                topic=one.topic, partition=one.partition, offset=one.offset, metadata=one.metadata
            )
            for one in body.offsets
        ],
    )


async def committed(
    group: str, body: bodies.Commit, result: Promise[OffsetErrors]
) -> bodies.Committed:
    """The result for each partition of a commit; an error if the member itself is refused."""
    try:
        refused = (await result).errors
    except UnknownMember as error:
        if body.member_id is None:
            # The request has no member id, but the group has members.
            raise GroupNotEmpty(group) from error
        raise
    results = [
        _result(one.topic, one.partition, refused.get((one.topic, one.partition)))
        for one in body.offsets
    ]
    return bodies.Committed(results=results, failed=sum(not _is_fine(one) for one in results))


async def show(front: FrontEnd, call: Call, _: object) -> bodies.Offsets:
    group = call.name("group")
    fetched = await front.gate.group_offsets.fetch(call.session, group=group, must_exist=True)
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
            for topic, found in sorted(fetched.offsets.items())
            for number, one in sorted(found.items())
        ],
    )


async def delete(front: FrontEnd, call: Call, body: bodies.DeleteOffsets) -> bodies.DeletedOffsets:
    group, offsets = call.name("group"), front.gate.group_offsets
    numbers = body.partitions
    if numbers is None:
        fetched = await offsets.fetch(call.session, group=group, must_exist=True)
        numbers = sorted(fetched.offsets.get(body.topic, ()))
    else:
        numbers = sorted(set(numbers))
    if not numbers:
        return bodies.DeletedOffsets(results=[], failed=0)
    refused = await offsets.delete(call.session, group=group, partitions={body.topic: numbers})
    results = [
        _result(body.topic, number, refused.errors.get((body.topic, number))) for number in numbers
    ]
    return bodies.DeletedOffsets(results=results, failed=sum(not _is_fine(one) for one in results))


async def reset(front: FrontEnd, call: Call, body: bodies.Reset) -> bodies.ResetDone:
    """Reset the offsets of a group, which must have no members."""
    numbers = body.partitions
    if numbers is not None and len(set(numbers)) != len(numbers):
        raise InvalidField("A partition is given twice.", field="partitions")
    offsets = await front.gate.group_offsets.reset(
        call.session,
        group=call.name("group"),
        topic=body.topic,
        partitions=numbers,
        target=_target(body.to, now_ms=front.now_ms()),
        is_dry_run=body.dry_run,
    )
    return bodies.ResetDone(
        topic=body.topic,
        dry_run=body.dry_run,
        offsets=[
            bodies.ResetOffset(
                partition=one.partition, offset_before=one.offset_before, offset=one.offset
            )
            for one in offsets
        ],
    )


def _target(to: str, *, now_ms: int) -> Position:
    if not to.startswith(_OFFSET_PREFIX):
        return position_of(to, now_ms=now_ms, field="to")
    text = to.removeprefix(_OFFSET_PREFIX)
    if not (text.isascii() and text.isdigit() and int(text) <= INT64_MAX):
        raise InvalidField(f"{to!r} is not an offset; write offset:42.", field="to")
    return Position(At.OFFSET, int(text))


def _result(topic: str, partition: int, error: GoQueueError | None) -> bodies.CommitResult:
    result = bodies.CommitResult(topic=topic, partition=partition)
    if error is not None:
        result.problem = problem_of(error)
    return result


def _is_fine(result: bodies.CommitResult) -> bool:
    return not isinstance(result.problem, Problem)
