"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: positions in the log."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from goqueue.broker.gate.areas.records import EARLIEST, LATEST, At, Position
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from goqueue.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from goqueue.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

# An extension: the offset after the last record, not counting markers and aborted records. Apache
# Kafka responds with UNSUPPORTED_VERSION, and numbers its own special values down from -1.
_RECORDS_END = -1000
_SPECIAL = {
    -1: LATEST,
    -2: EARLIEST,
    -3: Position(At.NEWEST),
    -4: EARLIEST,  # the earliest on local disks, which is the earliest here
    -5: Position(At.REMOTE_END),
    _RECORDS_END: Position(At.RECORDS_END),
}
_READ_COMMITTED = 1

_log = logging.getLogger(__name__)
_FIRST_LIST_VERSION_WITH_EPOCHS = 4


def list_offsets(
    front: FrontEnd, call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Promise[Any], None, ListOffsetsResponse]:
    if any(one.timestamp == _RECORDS_END for topic in request.topics for one in topic.partitions):
        return _list_after_search(front, call, request)
    return _list_all(front, call, request)


async def _list_after_search(
    front: FrontEnd, call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Search for the ends of records first, as that may take many turns of the event loop."""
    for topic in request.topics:
        wanted = [one for one in topic.partitions if one.timestamp == _RECORDS_END]
        led = [one.partition_index for one in wanted if _is_here(front, call, topic.name, one)]
        if led:
            try:
                await front.gate.records.bounds(
                    call.session, topic=topic.name, partitions=led, with_records_end=True
                )
            except GoQueueError as error:
                # It has changed meanwhile, or cannot be read; the list says what is wrong.
                _log.info("the ends of records of %s were not found: %s", topic.name, error)
    return _list_all(front, call, request)


def _is_here(front: FrontEnd, call: Call, topic: str, wanted: ListOffsetsPartition) -> bool:
    """Whether a partition is led here, and the client may ask for it."""
    try:
        front.gate.records.find_offset(
            call.session,
            topic=topic,
            partition=wanted.partition_index,
            position=LATEST,
            leader_epoch=wanted.current_leader_epoch,
        )
    except GoQueueError:
        return False  # The list says why.
    return True


def _list_all(front: FrontEnd, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    is_committed_only = request.isolation_level == _READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _list(front, call, topic.name, one, is_committed_only)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list(
    front: FrontEnd,
    call: Call,
    topic: str,
    wanted: ListOffsetsPartition,
    is_committed_only: bool,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    position = _position(wanted.timestamp)
    if position is None:
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    try:
        found = front.gate.records.find_offset(
            call.session,
            topic=topic,
            partition=wanted.partition_index,
            position=position,
            leader_epoch=wanted.current_leader_epoch,
            is_committed_only=is_committed_only,
        )
    except GoQueueError as error:
        answer.error_code = code_of(error)
        return answer
    if found is not None:
        answer.offset, answer.timestamp = found.offset, found.timestamp_ms
        if call.version >= _FIRST_LIST_VERSION_WITH_EPOCHS:
            answer.leader_epoch = found.leader_epoch
    return answer


def _position(timestamp: int) -> Position | None:
    """The position that a special timestamp stands for; None for an unknown value."""
    return Position(At.TIME, timestamp) if timestamp >= 0 else _SPECIAL.get(timestamp)


def offset_for_leader_epoch(
    front: FrontEnd, call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(front, call, topic.topic, one) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(
    front: FrontEnd, call: Call, topic: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        answer.leader_epoch, answer.end_offset = front.gate.records.epoch_end(
            call.session,
            topic=topic,
            partition=wanted.partition,
            epoch=wanted.leader_epoch,
            leader_epoch=wanted.current_leader_epoch,
        )
    except GoQueueError as error:
        answer.error_code = code_of(error)
    return answer


async def delete_records(
    front: FrontEnd, call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete in all partitions concurrently, then wait for their replicas."""
    begun = [
        (
            topic.name,
            [
                (one.partition_index, _delete(front, call, topic.name, one, request.timeout_ms))
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name, partitions=[await _deleted(number, one) for number, one in deletions]
            )
            for name, deletions in begun
        ]
    )


def _delete(
    front: FrontEnd, call: Call, topic: str, wanted: DeleteRecordsPartition, timeout_ms: int
) -> Promise[int]:
    return front.gate.records.delete(
        call.session,
        topic=topic,
        partition=wanted.partition_index,
        before_offset=wanted.offset,
        timeout_ms=max(0, timeout_ms),
    )


async def _deleted(number: int, begun: Promise[int]) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=number, low_watermark=-1)
    try:
        answer.low_watermark = await begun
    except GoQueueError as error:
        answer.error_code = code_of(error)
    return answer
