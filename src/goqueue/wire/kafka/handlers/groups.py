"""Group membership, classic and of the consumer protocol, and administration of groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.groups import (
    GroupDescription,
    GroupState,
    GroupType,
    Partition,
    nest,
)
from goqueue.broker.gate.areas.members import (
    ConsumerHeartbeat,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    LeavingMember,
    Sync,
)
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    GroupKindMismatch,
    MemberIdRequired,
    UnknownGroup,
)
from goqueue.wire.kafka import authorized
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages import consumer_group_describe as described
from goqueue.wire.kafka.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from goqueue.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from goqueue.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from goqueue.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from goqueue.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from goqueue.wire.kafka.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from goqueue.wire.kafka.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from goqueue.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from goqueue.wire.kafka.topic_ids import find_id, find_name

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

SHARE_TYPE = "share"  # both the type and the protocol of these groups
_FIRST_JOIN_VERSION_WITH_ID_REQUIRED = 4
_FIRST_JOIN_VERSION_WITH_SKIPPED_ASSIGNMENT = 9
_FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL = 7
_FIRST_LEAVE_VERSION_WITH_SEVERAL = 3
_FIRST_DESCRIBE_VERSION_WITH_NOT_FOUND = 6


async def join_group(front: FrontEnd, call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        joined = await front.gate.members.join(
            call.session,
            call=Join(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                client_id=call.client_id,
                client_host=call.client_host,
                session_timeout_ms=request.session_timeout_ms,
                # Before version 1 one timeout served both purposes.
                rebalance_timeout_ms=(
                    request.session_timeout_ms
                    if request.rebalance_timeout_ms < 0
                    else request.rebalance_timeout_ms
                ),
                protocol_type=request.protocol_type,
                protocols=tuple((one.name, one.metadata) for one in request.protocols),
                is_member_id_required=call.version >= _FIRST_JOIN_VERSION_WITH_ID_REQUIRED,
                can_skip_assignment=call.version >= _FIRST_JOIN_VERSION_WITH_SKIPPED_ASSIGNMENT,
            ),
        )
    except GoQueueError as error:
        has_null = call.version >= _FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL
        return JoinGroupResponse(
            error_code=code_of(error),
            protocol_name=None if has_null else "",
            member_id=error.member_id if isinstance(error, MemberIdRequired) else request.member_id,
        )
    return _joined(joined)


def _joined(joined: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader_id,
        skip_assignment=joined.is_assignment_skipped,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.metadata,
            )
            for one in joined.members
        ],
    )


async def sync_group(front: FrontEnd, call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    try:
        synced = await front.gate.members.sync(
            call.session,
            call=Sync(
                group_id=request.group_id,
                member_id=request.member_id,
                generation=request.generation_id,
                instance_id=request.group_instance_id,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignments={one.member_id: one.assignment for one in request.assignments},
            ),
        )
    except GoQueueError as error:
        return SyncGroupResponse(error_code=code_of(error))
    return SyncGroupResponse(
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


async def heartbeat(front: FrontEnd, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        await front.gate.members.heartbeat(
            call.session,
            call=Heartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                generation=request.generation_id,
                instance_id=request.group_instance_id,
            ),
        )
    except GoQueueError as error:
        return HeartbeatResponse(error_code=code_of(error))
    return HeartbeatResponse()


async def leave_group(
    front: FrontEnd, call: Call, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    is_one = call.version < _FIRST_LEAVE_VERSION_WITH_SEVERAL
    leaving = [MemberIdentity(member_id=request.member_id)] if is_one else request.members
    try:
        left = await front.gate.members.leave(
            call.session,
            call=Leave(
                group_id=request.group_id,
                members=tuple(
                    LeavingMember(member_id=one.member_id, instance_id=one.group_instance_id)
                    for one in leaving
                ),
            ),
        )
    except GoQueueError as error:
        return LeaveGroupResponse(error_code=code_of(error))
    members = [
        MemberResponse(
            member_id=one.member_id,
            group_instance_id=one.instance_id,
            error_code=0 if one.error is None else code_of(one.error),
        )
        for one in left.members
    ]
    if is_one:
        return LeaveGroupResponse(error_code=members[0].error_code if members else 0)
    return LeaveGroupResponse(members=members)


async def consumer_group_heartbeat(
    front: FrontEnd, call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    try:
        result = await front.gate.members.consumer_heartbeat(
            call.session,
            call=ConsumerHeartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                instance_id=request.instance_id,
                rack_id=request.rack_id,
                client_id=call.client_id,
                client_host=call.client_host,
                rebalance_timeout_ms=(
                    None if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
                ),
                subscribed_topics=(
                    None
                    if request.subscribed_topic_names is None
                    else tuple(request.subscribed_topic_names)
                ),
                subscribed_regex=request.subscribed_topic_regex,
                server_assignor=request.server_assignor,
                owned=_owned(front, call, request),
            ),
        )
    except GoQueueError as error:
        return ConsumerGroupHeartbeatResponse(error_code=code_of(error), error_message=str(error))
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=(
            None if result.assignment is None else _assignment(front, call, result.assignment)
        ),
    )


def _owned(
    front: FrontEnd, call: Call, request: ConsumerGroupHeartbeatRequest
) -> frozenset[Partition] | None:
    if request.topic_partitions is None:
        return None
    owned = set()
    for one in request.topic_partitions:
        name = find_name(front, call, one.topic_id)
        # A topic deleted in the meantime is not part of an assignment.
        if name is not None:
            owned |= {(name, number) for number in one.partitions}
    return frozenset(owned)


def _assignment(front: FrontEnd, call: Call, partitions: Iterable[Partition]) -> Assignment:
    return Assignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for name, numbers in nest(partitions).items()
            if (topic_id := find_id(front, call, name)) is not None
        ]
    )


async def list_groups(
    front: FrontEnd, call: Call, request: ListGroupsRequest
) -> ListGroupsResponse:
    states, types = _lowered(request.states_filter), _lowered(request.types_filter)
    listed = await _list_streams(front, call, states, types)
    if not types or SHARE_TYPE in types:
        listed += await _list_shares(front, call, states)
    return ListGroupsResponse(groups=listed)


async def _list_streams(
    front: FrontEnd, call: Call, states: set[str], types: set[str]
) -> list[ListedGroup]:
    wanted_states = frozenset(one for one in GroupState if one.lower() in states)
    wanted_types = frozenset(one for one in GroupType if one.lower() in types)
    if (states and not wanted_states) or (types and not wanted_types):
        return []
    found = await front.gate.groups.list(
        call.session, kind="stream", states=wanted_states, types=wanted_types
    )
    return [
        ListedGroup(
            group_id=one.name,
            protocol_type=one.protocol_type,
            group_state=one.state,
            group_type=one.type,
        )
        for one in found
    ]


async def _list_shares(front: FrontEnd, call: Call, states: set[str]) -> list[ListedGroup]:
    return [
        ListedGroup(
            group_id=one.group_id,
            protocol_type=SHARE_TYPE,
            group_state=one.state,
            group_type=SHARE_TYPE,
        )
        for one in await front.gate.share_groups.list(call.session)
        if not states or one.state.lower() in states
    ]


def _lowered(words: list[str]) -> set[str]:
    return {word.lower() for word in words}


async def describe_groups(
    front: FrontEnd, call: Call, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    groups = [await _describe_classic(front, call, group) for group in request.groups]
    if request.include_authorized_operations:
        _authorize(front, call, groups)
    return DescribeGroupsResponse(groups=groups)


async def _describe_classic(front: FrontEnd, call: Call, group_id: str) -> DescribedGroup:
    try:
        group = await front.gate.groups.describe_stream(call.session, group=group_id)
        if group.type is not GroupType.CLASSIC:
            raise UnknownGroup(group_id)
    except UnknownGroup as error:
        # To older clients a group that does not exist is in the state Dead.
        is_told = call.version >= _FIRST_DESCRIBE_VERSION_WITH_NOT_FOUND
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_told else 0,
            error_message=str(error) if is_told else None,
            group_id=group_id,
            group_state=GroupState.DEAD,
        )
    except GoQueueError as error:
        return DescribedGroup(error_code=code_of(error), group_id=group_id)
    is_settled = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name if is_settled else "",
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in group.members
        ],
    )


async def consumer_group_describe(
    front: FrontEnd, call: Call, request: described.ConsumerGroupDescribeRequest
) -> described.ConsumerGroupDescribeResponse:
    groups = [await _describe_consumer(front, call, group) for group in request.group_ids]
    if request.include_authorized_operations:
        _authorize(front, call, groups)
    return described.ConsumerGroupDescribeResponse(groups=groups)


def _authorize(
    front: FrontEnd, call: Call, groups: Iterable[DescribedGroup | described.DescribedGroup]
) -> None:
    """Fill in the authorized operations of the groups."""
    for one in groups:
        if one.error_code == ErrorCode.NONE:
            one.authorized_operations = authorized.on_group(front.gate, call.session, one.group_id)


async def _describe_consumer(
    front: FrontEnd, call: Call, group_id: str
) -> described.DescribedGroup:
    try:
        group = await front.gate.groups.describe_stream(call.session, group=group_id)
        if group.type is not GroupType.CONSUMER:
            raise UnknownGroup(group_id)
    except GoQueueError as error:
        return _not_found(error, group_id)
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.protocol_name,
        members=_consumer_members(front, call, group),
    )


def _not_found(error: GoQueueError, group_id: str) -> described.DescribedGroup:
    return described.DescribedGroup(
        error_code=code_of(error), error_message=str(error), group_id=group_id
    )


def _consumer_members(
    front: FrontEnd, call: Call, group: GroupDescription
) -> list[described.Member]:
    return [
        described.Member(
            member_id=one.member_id,
            instance_id=one.instance_id,
            rack_id=one.rack_id,
            member_epoch=one.epoch,
            client_id=one.client_id,
            client_host=one.client_host,
            subscribed_topic_names=list(one.subscribed_topics),
            subscribed_topic_regex=one.subscribed_regex or None,
            assignment=_described_assignment(front, call, one.assigned),
            target_assignment=_described_assignment(front, call, one.target),
            member_type=0 if one.is_classic else 1,
        )
        for one in group.members
    ]


def _described_assignment(
    front: FrontEnd, call: Call, partitions: Iterable[Partition]
) -> described.Assignment:
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=sorted(numbers)
            )
            for name, numbers in nest(partitions).items()
            if (topic_id := find_id(front, call, name)) is not None
        ]
    )


async def delete_groups(
    front: FrontEnd, call: Call, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    results = []
    for group_id in request.groups_names:
        code, message = 0, None
        try:
            await _delete(front, call, group_id)
        except CoordinatorNotAvailable:
            code, message = ErrorCode.GROUP_ID_NOT_FOUND, str(UnknownGroup(group_id))
        except GoQueueError as error:
            code, message = code_of(error), str(error)
        results.append(
            DeletableGroupResult(group_id=group_id, error_code=code, error_message=message)
        )
    return DeleteGroupsResponse(results=results)


async def _delete(front: FrontEnd, call: Call, group_id: str) -> None:
    try:
        await front.gate.groups.delete_stream(call.session, group=group_id)
    except (GroupKindMismatch, UnknownGroup):
        await front.gate.share_groups.delete(call.session, group=group_id)
