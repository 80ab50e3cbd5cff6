"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: places in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
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
    from goqueue.partition import Partition
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
# An extension: the offset after the last record, where markers and aborted records do not count.
# Apache Kafka answers UNSUPPORTED_VERSION to it, and the numbers of its own go down from -1.
_RECORDS_END = -1000
_READ_COMMITTED = 1
_FIRST_LIST_VERSION_WITH_EPOCHS = 4


def list_offsets(front: FrontEnd, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
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
    try:
        partition = front.broker.topics.get(topic).partition(wanted.partition_index)
        partition.check_leading()
        partition.check_epoch(wanted.current_leader_epoch)
        _find(partition, wanted.timestamp, is_committed_only, answer)
    except GoQueueError as error:
        answer.error_code = code_of(error)
    if call.version < _FIRST_LIST_VERSION_WITH_EPOCHS:
        answer.leader_epoch = -1
    return answer


def _find(
    partition: Partition,
    timestamp: int,
    is_committed_only: bool,
    answer: ListOffsetsPartitionResponse,
) -> None:
    record: Record | None = None
    if timestamp == _LATEST:
        is_stable = is_committed_only
        answer.offset = partition.last_stable_offset if is_stable else partition.high_watermark
        answer.leader_epoch = partition.leader_epoch
    elif timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        answer.offset = partition.start_offset
        answer.leader_epoch = partition.epochs.epoch_of(partition.start_offset)
    elif timestamp == _MAX_TIMESTAMP:
        record = partition.find_newest(is_committed_only=is_committed_only)
    elif timestamp == _LATEST_TIERED:
        answer.leader_epoch = -1  # Nothing is kept anywhere but here.
    elif timestamp == _RECORDS_END:
        answer.offset = partition.records_end()
        answer.leader_epoch = partition.leader_epoch
    elif timestamp < 0:
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
    else:
        record = partition.find_timestamp(timestamp, is_committed_only=is_committed_only)
    if record is not None:
        answer.offset, answer.timestamp = record.offset, record.timestamp_ms
        answer.leader_epoch = partition.epochs.epoch_of(record.offset)


def offset_for_leader_epoch(
    front: FrontEnd, call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(front, topic.topic, one) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(front: FrontEnd, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        partition = front.broker.topics.get(topic).partition(wanted.partition)
        partition.check_leading()
        partition.check_epoch(wanted.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.epoch_end(wanted.leader_epoch)
    except GoQueueError as error:
        answer.error_code = code_of(error)
    return answer


async def delete_records(
    front: FrontEnd, call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete in all partitions at once, then wait for their copies."""
    begun = [
        (
            topic.name,
            [
                (one.partition_index, _delete(front, topic.name, one, request.timeout_ms))
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
    front: FrontEnd, topic: str, wanted: DeleteRecordsPartition, timeout_ms: int
) -> Promise[int] | GoQueueError:
    try:
        return front.broker.delete_records(
            topic,
            wanted.partition_index,
            before_offset=wanted.offset,
            timeout_ms=max(0, timeout_ms),
        )
    except GoQueueError as error:
        return error


async def _deleted(number: int, begun: Promise[int] | GoQueueError) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=number, low_watermark=-1)
    try:
        if isinstance(begun, GoQueueError):
            raise begun
        answer.low_watermark = await begun
    except GoQueueError as error:
        answer.error_code = code_of(error)
    return answer
