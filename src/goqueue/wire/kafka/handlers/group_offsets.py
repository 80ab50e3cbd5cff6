"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from goqueue.groups import CommitOffsets, CommittedOffset, OffsetToCommit, nest
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, UnknownGroup
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages import offset_fetch as fetched
from goqueue.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from goqueue.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from goqueue.broker.topics.topics import Topic
    from goqueue.groups import Partition
    from goqueue.loop.promise import Promise
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_FIRST_COMMIT_VERSION_WITH_TOPIC_IDS = 10
_FIRST_FETCH_VERSION_WITH_TOPIC_IDS = 10
_FIRST_FETCH_VERSION_WITH_GROUP_ERROR = 2
_FIRST_FETCH_VERSION_WITH_GROUPS = 8
_RETENTION_MS_MAX = 1 << 62  # for ever, with room for the time of day
_NO_OFFSET = -1


async def offset_commit(
    front: FrontEnd, call: Call, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    uses_ids = call.version >= _FIRST_COMMIT_VERSION_WITH_TOPIC_IDS
    found = [_find_topic(front, one, uses_ids) for one in request.topics]
    offsets = [
        OffsetToCommit(
            topic=topic.name,
            partition=one.partition_index,
            offset=one.committed_offset,
            leader_epoch=one.committed_leader_epoch,
            metadata=one.committed_metadata or "",
        )
        for topic, wanted in zip(found, request.topics, strict=True)
        if topic is not None
        for one in wanted.partitions
        if 0 <= one.partition_index < len(topic.partitions)
    ]
    errors: dict[Partition, GoQueueError] = {}
    failure: GoQueueError | None = None
    try:
        await front.broker.groups.ensure_topic()
        result = await front.broker.groups.commit_offsets(
            CommitOffsets(
                group_id=request.group_id,
                member_id=request.member_id,
                generation=request.generation_id_or_member_epoch,
                instance_id=request.group_instance_id,
                offsets=offsets,
                retention_ms=(
                    min(request.retention_time_ms, _RETENTION_MS_MAX)
                    if request.retention_time_ms >= 0
                    else None
                ),
            )
        )
        errors = result.errors
    except GoQueueError as error:
        failure = error
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=wanted.name,
                topic_id=wanted.topic_id,
                partitions=_commit_results(topic, wanted, errors, failure, uses_ids),
            )
            for topic, wanted in zip(found, request.topics, strict=True)
        ]
    )


def _find_topic(front: FrontEnd, wanted: OffsetCommitRequestTopic, uses_ids: bool) -> Topic | None:
    topics = front.broker.topics
    return topics.find_by_id(wanted.topic_id) if uses_ids else topics.find(wanted.name)


def _commit_results(
    topic: Topic | None,
    wanted: OffsetCommitRequestTopic,
    errors: Mapping[Partition, GoQueueError],
    failure: GoQueueError | None,
    uses_ids: bool,
) -> list[OffsetCommitResponsePartition]:
    results = []
    for one in wanted.partitions:
        number = one.partition_index
        code = 0
        if failure is not None:
            code = code_of(failure)
        elif topic is None and uses_ids:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif topic is None or not 0 <= number < len(topic.partitions):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif (topic.name, number) in errors:
            code = code_of(errors[topic.name, number])
        results.append(OffsetCommitResponsePartition(partition_index=number, error_code=code))
    return results


async def offset_fetch(
    front: FrontEnd, call: Call, request: fetched.OffsetFetchRequest
) -> fetched.OffsetFetchResponse:
    if call.version >= _FIRST_FETCH_VERSION_WITH_GROUPS:
        uses_ids = call.version >= _FIRST_FETCH_VERSION_WITH_TOPIC_IDS
        # All are asked for before any is waited for, so that one confirmation serves them.
        asked = [front.broker.groups.confirm(one.group_id) for one in request.groups]
        return fetched.OffsetFetchResponse(
            groups=[
                await _fetch_group(
                    front, one, uses_ids, is_stable=request.require_stable, confirmed=confirmed
                )
                for one, confirmed in zip(request.groups, asked, strict=True)
            ]
        )
    wanted = (
        None
        if request.topics is None
        else {topic.name: topic.partition_indexes for topic in request.topics}
    )
    try:
        await front.broker.groups.confirm(request.group_id)
        offsets = front.broker.groups.fetch_offsets(request.group_id, wanted)
        unstable = _unstable(front, request.group_id, wanted, is_stable=request.require_stable)
    except GoQueueError as error:
        if call.version >= _FIRST_FETCH_VERSION_WITH_GROUP_ERROR:
            return fetched.OffsetFetchResponse(error_code=code_of(error), topics=[])
        return _refused_partitions(wanted or {}, code_of(error))
    return fetched.OffsetFetchResponse(
        topics=[
            fetched.OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    _unsettled(fetched.OffsetFetchResponsePartition, number)
                    if (name, number) in unstable
                    else _committed(fetched.OffsetFetchResponsePartition, number, found.get(number))
                    for number in numbers
                ],
            )
            for name, numbers, found in _selected(wanted, offsets, unstable)
        ]
    )


def _unstable(
    front: FrontEnd, group_id: str, wanted: Mapping[str, list[int]] | None, *, is_stable: bool
) -> frozenset[Partition]:
    """Partitions whose offsets a transaction may be about to change, if that matters."""
    if not is_stable:
        return frozenset()
    return front.broker.groups.unstable_offsets(group_id, wanted)


def _refused_partitions(
    wanted: Mapping[str, list[int]], code: ErrorCode
) -> fetched.OffsetFetchResponse:
    """An error of the whole group, where an answer has room only for those of partitions."""
    return fetched.OffsetFetchResponse(
        topics=[
            fetched.OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    fetched.OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=_NO_OFFSET, error_code=code
                    )
                    for number in numbers
                ],
            )
            for name, numbers in wanted.items()
        ]
    )


async def _fetch_group(
    front: FrontEnd,
    wanted: fetched.OffsetFetchRequestGroup,
    uses_ids: bool,
    *,
    is_stable: bool,
    confirmed: Promise[None],
) -> fetched.OffsetFetchResponseGroup:
    topics = front.broker.topics
    selection: dict[str, list[int]] | None = None
    answers: list[fetched.OffsetFetchResponseTopics] = []
    if wanted.topics is not None:
        selection = {}
        for one in wanted.topics:
            topic = topics.find_by_id(one.topic_id) if uses_ids else None
            if uses_ids and topic is None:
                answers.append(_unknown_topic(one))
            else:
                name = topic.name if topic is not None else one.name
                selection.setdefault(name, []).extend(one.partition_indexes)
    try:
        await confirmed
        offsets = front.broker.groups.fetch_offsets(
            wanted.group_id,
            selection,
            member_id=wanted.member_id or "",
            member_epoch=wanted.member_epoch,
        )
        unstable = _unstable(front, wanted.group_id, selection, is_stable=is_stable)
    except GoQueueError as error:
        return fetched.OffsetFetchResponseGroup(
            group_id=wanted.group_id, error_code=code_of(error), topics=[]
        )
    for name, numbers, found in _selected(selection, offsets, unstable):
        answer = fetched.OffsetFetchResponseTopics(
            partitions=[
                _unsettled(fetched.OffsetFetchResponsePartitions, number)
                if (name, number) in unstable
                else _committed(fetched.OffsetFetchResponsePartitions, number, found.get(number))
                for number in numbers
            ]
        )
        if uses_ids:
            topic = topics.find(name)
            if topic is None:
                continue
            answer.topic_id = topic.id
        else:
            answer.name = name
        answers.append(answer)
    return fetched.OffsetFetchResponseGroup(group_id=wanted.group_id, topics=answers)


def _unknown_topic(
    wanted: fetched.OffsetFetchRequestTopics,
) -> fetched.OffsetFetchResponseTopics:
    return fetched.OffsetFetchResponseTopics(
        topic_id=wanted.topic_id,
        partitions=[
            fetched.OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=_NO_OFFSET,
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for number in wanted.partition_indexes
        ],
    )


def _selected(
    wanted: Mapping[str, list[int]] | None,
    offsets: dict[str, dict[int, CommittedOffset]],
    unstable: frozenset[Partition],
) -> list[tuple[str, list[int], dict[int, CommittedOffset]]]:
    if wanted is None:
        places = {(name, number) for name, found in offsets.items() for number in found} | unstable
        wanted = {name: sorted(numbers) for name, numbers in sorted(nest(places).items())}
    return [(name, numbers, offsets.get(name, {})) for name, numbers in wanted.items()]


def _committed(kind: type[Any], number: int, committed: CommittedOffset | None) -> Any:
    if committed is None:
        return kind(partition_index=number, committed_offset=_NO_OFFSET)
    return kind(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unsettled(kind: type[Any], number: int) -> Any:
    return kind(
        partition_index=number,
        committed_offset=_NO_OFFSET,
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )


async def offset_delete(
    front: FrontEnd, call: Call, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    wanted = {
        topic.name: [one.partition_index for one in topic.partitions] for topic in request.topics
    }
    try:
        result = await front.broker.groups.delete_offsets(request.group_id, wanted)
    except CoordinatorNotAvailable:
        return OffsetDeleteResponse(error_code=code_of(UnknownGroup(request.group_id)))
    except GoQueueError as error:
        return OffsetDeleteResponse(error_code=code_of(error))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=number,
                        error_code=_delete_code(front, name, number, result.errors),
                    )
                    for number in numbers
                ],
            )
            for name, numbers in wanted.items()
        ]
    )


def _delete_code(
    front: FrontEnd, name: str, number: int, errors: Mapping[Partition, GoQueueError]
) -> int:
    if (name, number) in errors:
        return code_of(errors[name, number])
    topic = front.broker.topics.find(name)
    if topic is None or not 0 <= number < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return 0
