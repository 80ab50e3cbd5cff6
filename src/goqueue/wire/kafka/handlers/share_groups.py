"""Members of share groups, and what tools ask about these groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.groups import Partition, nest
from goqueue.model.errors import GoQueueError, GroupKindMismatch, InvalidRequest
from goqueue.model.share_groups import (
    JOIN_EPOCH,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareMemberDescription,
)
from goqueue.wire.kafka import authorized
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages import share_group_describe as described
from goqueue.wire.kafka.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from goqueue.wire.kafka.topic_ids import find_id

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd


def share_code(error: GoQueueError) -> int:
    """The code for clients of share groups: to them, a group of another kind does not exist."""
    if isinstance(error, GroupKindMismatch):
        return ErrorCode.GROUP_ID_NOT_FOUND
    return code_of(error)


async def share_group_heartbeat(
    front: FrontEnd, call: Call, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    topics = request.subscribed_topic_names
    try:
        _check(request)
        result = await front.gate.share_groups.heartbeat(
            call.session,
            call=ShareHeartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                rack_id=request.rack_id,
                subscribed_topics=None if topics is None else tuple(topics),
                client_id=call.client_id,
                client_host=call.client_host,
            ),
        )
    except GoQueueError as error:
        return ShareGroupHeartbeatResponse(error_code=share_code(error), error_message=str(error))
    return ShareGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_ms,
        assignment=(
            None if result.assignment is None else _assignment(front, call, result.assignment)
        ),
    )


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise if names are empty, or if a member joins for no topic."""
    for name, value in (("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value == "":
            raise InvalidRequest(f"{name} cannot be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise InvalidRequest("A member that joins names the topics that it reads.")


def _assignment(front: FrontEnd, call: Call, partitions: Iterable[Partition]) -> Assignment:
    return Assignment(
        [
            TopicPartitions(topic_id, sorted(numbers))
            for name, numbers in nest(partitions).items()
            if (topic_id := find_id(front, call, name)) is not None
        ]
    )


async def share_group_describe(
    front: FrontEnd, call: Call, request: described.ShareGroupDescribeRequest
) -> described.ShareGroupDescribeResponse:
    groups = [await _describe(front, call, group) for group in request.group_ids]
    if request.include_authorized_operations:
        for one in groups:
            if one.error_code == ErrorCode.NONE:
                one.authorized_operations = authorized.on_group(
                    front.gate, call.session, one.group_id
                )
    return described.ShareGroupDescribeResponse(groups=groups)


async def _describe(front: FrontEnd, call: Call, group_id: str) -> described.DescribedGroup:
    try:
        group = await front.gate.share_groups.describe(call.session, group=group_id)
    except GoQueueError as error:
        return described.DescribedGroup(
            error_code=share_code(error), error_message=str(error), group_id=group_id
        )
    return _described(front, call, group)


def _described(
    front: FrontEnd, call: Call, group: ShareGroupDescription
) -> described.DescribedGroup:
    return described.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=group.assignor,
        members=[_member(front, call, one) for one in group.members],
    )


def _member(front: FrontEnd, call: Call, member: ShareMemberDescription) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        assignment=described.Assignment(
            [
                described.TopicPartitions(topic_id, name, sorted(numbers))
                for name, numbers in nest(member.assigned).items()
                if (topic_id := find_id(front, call, name)) is not None
            ]
        ),
    )
