"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from goqueue.broker.gate.areas.group_offsets import (
    CommitOffsets,
    CommittedOffset,
    FetchedOffsets,
    OffsetToCommit,
)
from goqueue.broker.gate.areas.groups import Partition, nest
from goqueue.loop.promise import Promise
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
from goqueue.wire.kafka.topic_ids import find_id, find_name

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_FIRST_COMMIT_VERSION_WITH_TOPIC_IDS = 10
_FIRST_FETCH_VERSION_WITH_TOPIC_IDS = 10
_FIRST_FETCH_VERSION_WITH_GROUP_ERROR = 2
_FIRST_FETCH_VERSION_WITH_GROUPS = 8
_RETENTION_MS_MAX = 1 << 62  # forever, without overflow when added to the current time
_NO_OFFSET = -1


async def offset_commit(
    front: FrontEnd, call: Call, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    uses_ids = call.version >= _FIRST_COMMIT_VERSION_WITH_TOPIC_IDS
    names = [
        find_name(front, call, one.topic_id) if uses_ids else one.name for one in request.topics
    ]
    offsets = [
        OffsetToCommit(
            topic=name,
            partition=one.partition_index,
            offset=one.committed_offset,
            leader_epoch=one.committed_leader_epoch,
            metadata=one.committed_metadata or "",
        )
        for name, wanted in zip(names, request.topics, strict=True)
        if name is not None
        for one in wanted.partitions
    ]
    errors: dict[Partition, GoQueueError] = {}
    failure: GoQueueError | None = None
    try:
        result = await front.gate.group_offsets.commit(
            call.session,
            call=CommitOffsets(
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
            ),
        )
        errors = result.errors
    except GoQueueError as error:
        failure = error
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=wanted.name,
                topic_id=wanted.topic_id,
                partitions=_commit_results(name, wanted, errors, failure),
            )
            for name, wanted in zip(names, request.topics, strict=True)
        ]
    )


def _commit_results(
    name: str | None,
    wanted: OffsetCommitRequestTopic,
    errors: Mapping[Partition, GoQueueError],
    failure: GoQueueError | None,
) -> list[OffsetCommitResponsePartition]:
    results = []
    for one in wanted.partitions:
        code = 0
        if failure is not None:
            code = code_of(failure)
        elif name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif (name, one.partition_index) in errors:
            code = code_of(errors[name, one.partition_index])
        results.append(
            OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
        )
    return results


async def offset_fetch(
    front: FrontEnd, call: Call, request: fetched.OffsetFetchRequest
) -> fetched.OffsetFetchResponse:
    if call.version >= _FIRST_FETCH_VERSION_WITH_GROUPS:
        # All are started before one is awaited, so that they share one confirmation.
        begun = [
            _begin_fetch(front, call, one, is_stable=request.require_stable)
            for one in request.groups
        ]
        return fetched.OffsetFetchResponse(groups=[await _finish_fetch(*one) for one in begun])
    wanted = (
        None
        if request.topics is None
        else {topic.name: topic.partition_indexes for topic in request.topics}
    )
    try:
        found = await front.gate.group_offsets.fetch(
            call.session,
            group=request.group_id,
            partitions=wanted,
            is_stable=request.require_stable,
        )
    except GoQueueError as error:
        if call.version >= _FIRST_FETCH_VERSION_WITH_GROUP_ERROR:
            return fetched.OffsetFetchResponse(error_code=code_of(error), topics=[])
        return _refused_partitions(wanted or {}, code_of(error))
    partition_kind = fetched.OffsetFetchResponsePartition
    return fetched.OffsetFetchResponse(
        topics=[
            fetched.OffsetFetchResponseTopic(
                name=name, partitions=_fetched(partition_kind, name, numbers, found)
            )
            for name, numbers in _selected(wanted, found).items()
        ]
    )


def _refused_partitions(
    wanted: Mapping[str, list[int]], code: ErrorCode
) -> fetched.OffsetFetchResponse:
    """Report an error of the whole group for each partition; the response has no other field."""
    return fetched.OffsetFetchResponse(
        topics=[
            fetched.OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    _refused(fetched.OffsetFetchResponsePartition, number, code)
                    for number in numbers
                ],
            )
            for name, numbers in wanted.items()
        ]
    )


class _Fetch(NamedTuple):
    """A group of a request whose offsets are being fetched."""

    front: FrontEnd
    call: Call
    wanted: fetched.OffsetFetchRequestGroup
    selection: dict[str, list[int]] | None
    unknown: list[fetched.OffsetFetchResponseTopics]
    promise: Promise[FetchedOffsets]


def _begin_fetch(
    front: FrontEnd, call: Call, wanted: fetched.OffsetFetchRequestGroup, *, is_stable: bool
) -> _Fetch:
    uses_ids = call.version >= _FIRST_FETCH_VERSION_WITH_TOPIC_IDS
    selection: dict[str, list[int]] | None = None
    unknown: list[fetched.OffsetFetchResponseTopics] = []
    if wanted.topics is not None:
        selection = {}
        for one in wanted.topics:
            name = find_name(front, call, one.topic_id) if uses_ids else one.name
            if name is None:
                unknown.append(_unknown_topic(one))
            else:
                selection.setdefault(name, []).extend(one.partition_indexes)
    promise = front.gate.group_offsets.fetch(
        call.session,
        group=wanted.group_id,
        partitions=selection,
        member_id=wanted.member_id or "",
        member_epoch=wanted.member_epoch,
        is_stable=is_stable,
    )
    return _Fetch(front, call, wanted, selection, unknown, promise)


async def _finish_fetch(
    front: FrontEnd,
    call: Call,
    wanted: fetched.OffsetFetchRequestGroup,
    selection: dict[str, list[int]] | None,
    unknown: list[fetched.OffsetFetchResponseTopics],
    promise: Promise[FetchedOffsets],
) -> fetched.OffsetFetchResponseGroup:
    try:
        found = await promise
    except GoQueueError as error:
        return fetched.OffsetFetchResponseGroup(
            group_id=wanted.group_id, error_code=code_of(error), topics=[]
        )
    answers = unknown
    for name, numbers in _selected(selection, found).items():
        answer = fetched.OffsetFetchResponseTopics(
            partitions=_fetched(fetched.OffsetFetchResponsePartitions, name, numbers, found)
        )
        if call.version >= _FIRST_FETCH_VERSION_WITH_TOPIC_IDS:
            topic_id = find_id(front, call, name)
            if topic_id is None:
                continue
            answer.topic_id = topic_id
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
    wanted: Mapping[str, list[int]] | None, found: FetchedOffsets
) -> Mapping[str, list[int]]:
    """The partitions of a response: those of the request, or all that exist."""
    if wanted is not None:
        return wanted
    places = {(name, number) for name, offsets in found.offsets.items() for number in offsets}
    return nest(places | found.unstable)


def _fetched(
    kind: type[Any], name: str, numbers: Iterable[int], found: FetchedOffsets
) -> list[Any]:
    """The committed offsets of a topic's partitions, in the format of a version."""
    if name in found.refused:
        code = code_of(found.refused[name])
        return [_refused(kind, number, code) for number in numbers]
    offsets = found.offsets.get(name, {})
    return [
        _refused(kind, number, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if (name, number) in found.unstable
        else _committed(kind, number, offsets.get(number))
        for number in numbers
    ]


def _committed(kind: type[Any], number: int, committed: CommittedOffset | None) -> Any:
    if committed is None:
        return kind(partition_index=number, committed_offset=_NO_OFFSET)
    return kind(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _refused(kind: type[Any], number: int, code: ErrorCode) -> Any:
    return kind(partition_index=number, committed_offset=_NO_OFFSET, error_code=code)


async def offset_delete(
    front: FrontEnd, call: Call, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    wanted = {
        topic.name: [one.partition_index for one in topic.partitions] for topic in request.topics
    }
    try:
        result = await front.gate.group_offsets.delete(
            call.session, group=request.group_id, partitions=wanted
        )
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
                        error_code=(
                            code_of(result.errors[name, number])
                            if (name, number) in result.errors
                            else 0
                        ),
                    )
                    for number in numbers
                ],
            )
            for name, numbers in wanted.items()
        ]
    )
