"""OffsetService: commit, fetch and reset the offsets of stream groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.group_offsets import CommitOffsets, OffsetErrors, OffsetToCommit
from goqueue.broker.gate.areas.records import EARLIEST
from goqueue.loop.promise import Promise
from goqueue.model.errors import GroupNotEmpty, UnknownMember
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.handlers.consuming import position_of
from goqueue.wire.grpc.handlers.fields import group_of
from goqueue.wire.grpc.messages import offset_service_pb2 as bodies
from goqueue.wire.grpc.messages import transaction_service_pb2 as transactions
from goqueue.wire.grpc.statuses import error_of

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

OFFSETS_MAX = 10_000
METADATA_LENGTH_MAX = 4096
_NO_MEMBER = -1

Committing = bodies.CommitOffsetsRequest | transactions.CommitOffsetsInTransactionRequest


async def commit(
    front: FrontEnd, call: Call, request: bodies.CommitOffsetsRequest
) -> bodies.CommitOffsetsResponse:
    result = front.gate.group_offsets.commit(call.session, call=to_commit(request))
    return bodies.CommitOffsetsResponse(errors=await refused(request, result))


def to_commit(request: Committing) -> CommitOffsets:
    """The offsets of a request, to be committed now or in a transaction."""
    if not 1 <= len(request.offsets) <= OFFSETS_MAX:
        raise InvalidField(f"Give 1 to {OFFSETS_MAX} offsets.", field="offsets")
    return CommitOffsets(
        group_id=group_of(request.group),
        member_id=request.member_id,
        generation=request.member_epoch if request.member_id else _NO_MEMBER,
        offsets=[_offset(one) for one in request.offsets],
    )


def _offset(one: bodies.OffsetToCommit) -> OffsetToCommit:
    if one.offset < 0 or one.partition < 0:
        raise InvalidField("Offsets and partitions are not negative.", field="offsets")
    if len(one.metadata) > METADATA_LENGTH_MAX:
        raise InvalidField(
            f"Metadata has {METADATA_LENGTH_MAX} characters at most.", field="offsets.metadata"
        )
    return OffsetToCommit(
        topic=one.topic, partition=one.partition, offset=one.offset, metadata=one.metadata
    )


async def refused(
    request: Committing, result: Promise[OffsetErrors]
) -> Iterable[bodies.OffsetError]:
    """Return the offsets that were not committed; raise if the member itself is refused."""
    try:
        errors = (await result).errors
    except UnknownMember as error:
        if request.member_id:
            raise
        # The request has no member id, but the group has members.
        raise GroupNotEmpty(request.group) from error
    return [
        bodies.OffsetError(topic=topic, partition=number, error=error_of(error))
        for (topic, number), error in errors.items()
    ]


async def fetch(
    front: FrontEnd, call: Call, request: bodies.FetchOffsetsRequest
) -> bodies.FetchOffsetsResponse:
    group = group_of(request.group)
    fetched = await front.gate.group_offsets.fetch(call.session, group=group, must_exist=True)
    return bodies.FetchOffsetsResponse(
        offsets=[
            bodies.CommittedOffset(
                topic=topic,
                partition=number,
                offset=one.offset,
                metadata=one.metadata,
                committed_at_ms=one.committed_at_ms,
            )
            for topic, found in sorted(fetched.offsets.items())
            for number, one in sorted(found.items())
        ]
    )


async def reset(
    front: FrontEnd, call: Call, request: bodies.ResetOffsetsRequest
) -> bodies.ResetOffsetsResponse:
    numbers = list(request.partitions) or None
    if numbers is not None and len(set(numbers)) != len(numbers):
        raise InvalidField("A partition is given twice.", field="partitions")
    if request.to.WhichOneof("position") is None:
        raise InvalidField("Give the position to move to.", field="to")
    offsets = await front.gate.group_offsets.reset(
        call.session,
        group=group_of(request.group),
        topic=request.topic,
        partitions=numbers,
        target=position_of(request.to, EARLIEST, "to"),
        is_dry_run=request.dry_run,
    )
    return bodies.ResetOffsetsResponse(
        offsets=[
            bodies.ResetOffset(
                partition=one.partition, offset_before=one.offset_before, offset=one.offset
            )
            for one in offsets
        ]
    )
