"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets, for tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from goqueue.model.errors import GoQueueError
from goqueue.model.share_groups import ShareOffset, ShareWanted
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.handlers.share_groups import share_code
from goqueue.wire.kafka.messages import alter_share_group_offsets as altered
from goqueue.wire.kafka.messages import delete_share_group_offsets as deleted
from goqueue.wire.kafka.messages import describe_share_group_offsets as described
from goqueue.wire.kafka.primitives import UUID_ZERO
from goqueue.wire.kafka.topic_ids import find_id

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd


async def describe_share_group_offsets(
    front: FrontEnd, call: Call, request: described.DescribeShareGroupOffsetsRequest
) -> described.DescribeShareGroupOffsetsResponse:
    return described.DescribeShareGroupOffsetsResponse(
        groups=[await _describe(front, call, one) for one in request.groups]
    )


async def _describe(
    front: FrontEnd, call: Call, group: described.DescribeShareGroupOffsetsRequestGroup
) -> described.DescribeShareGroupOffsetsResponseGroup:
    wanted = None if group.topics is None else _wanted(group.topics)
    try:
        offsets = await front.gate.share_groups.offsets(
            call.session, group=group.group_id, partitions=wanted
        )
    except GoQueueError as error:
        return described.DescribeShareGroupOffsetsResponseGroup(
            group.group_id, [], share_code(error), str(error)
        )
    return described.DescribeShareGroupOffsetsResponseGroup(
        group.group_id,
        [
            described.DescribeShareGroupOffsetsResponseTopic(
                name, _topic_id(front, call, name), [_described(one) for one in some]
            )
            for name, some in _by_topic(offsets).items()
        ],
    )


def _wanted(
    topics: Iterable[described.DescribeShareGroupOffsetsRequestTopic],
) -> tuple[ShareWanted, ...]:
    return tuple(
        ShareWanted(topic.topic_name, number) for topic in topics for number in topic.partitions
    )


def _described(one: ShareOffset) -> described.DescribeShareGroupOffsetsResponsePartition:
    return described.DescribeShareGroupOffsetsResponsePartition(
        partition_index=one.partition,
        start_offset=one.start_offset,
        lag=one.lag,
        error_code=0 if one.error is None else code_of(one.error),
        error_message=None if one.error is None else str(one.error),
    )


async def alter_share_group_offsets(
    front: FrontEnd, call: Call, request: altered.AlterShareGroupOffsetsRequest
) -> altered.AlterShareGroupOffsetsResponse:
    try:
        offsets = await front.gate.share_groups.alter_offsets(
            call.session,
            group=request.group_id,
            offsets=tuple(
                ShareOffset(topic.topic_name, one.partition_index, one.start_offset)
                for topic in request.topics
                for one in topic.partitions
            ),
        )
    except GoQueueError as error:
        return altered.AlterShareGroupOffsetsResponse(
            error_code=share_code(error), error_message=str(error)
        )
    return altered.AlterShareGroupOffsetsResponse(
        responses=[
            altered.AlterShareGroupOffsetsResponseTopic(
                name, _topic_id(front, call, name), [_altered(one) for one in some]
            )
            for name, some in _by_topic(offsets).items()
        ]
    )


def _altered(one: ShareOffset) -> altered.AlterShareGroupOffsetsResponsePartition:
    if one.error is None:
        return altered.AlterShareGroupOffsetsResponsePartition(one.partition)
    return altered.AlterShareGroupOffsetsResponsePartition(
        one.partition, code_of(one.error), str(one.error)
    )


async def delete_share_group_offsets(
    front: FrontEnd, call: Call, request: deleted.DeleteShareGroupOffsetsRequest
) -> deleted.DeleteShareGroupOffsetsResponse:
    try:
        outcomes = await front.gate.share_groups.delete_offsets(
            call.session,
            group=request.group_id,
            topics=tuple(one.topic_name for one in request.topics),
        )
    except GoQueueError as error:
        return deleted.DeleteShareGroupOffsetsResponse(
            error_code=share_code(error), error_message=str(error)
        )
    return deleted.DeleteShareGroupOffsetsResponse(
        responses=[
            deleted.DeleteShareGroupOffsetsResponseTopic(
                name,
                _topic_id(front, call, name),
                0 if error is None else code_of(error),
                None if error is None else str(error),
            )
            for name, error in outcomes.items()
        ]
    )


def _by_topic(offsets: Iterable[ShareOffset]) -> dict[str, list[ShareOffset]]:
    topics: dict[str, list[ShareOffset]] = {}
    for one in offsets:
        topics.setdefault(one.topic, []).append(one)
    return topics


def _topic_id(front: FrontEnd, call: Call, name: str) -> bytes:
    """The id of a topic; zero for one that does not exist, or that the client may not see."""
    return find_id(front, call, name) or UUID_ZERO
