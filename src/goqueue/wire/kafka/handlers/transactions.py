"""Transactions for producers: begin, add participants, commit offsets, end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.transactions import CommitOffsets, OffsetToCommit
from goqueue.model.errors import GoQueueError, InternalTopic, StaleMemberEpoch
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.wire.kafka.errors import ErrorCode, transaction_code
from goqueue.wire.kafka.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from goqueue.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from goqueue.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from goqueue.wire.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from goqueue.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from goqueue.wire.kafka.topic_ids import find_name

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_NO_PRODUCER_ID = -1
_NO_EPOCH = -1
# The versions from which on a client knows the error "fenced" (before: an old epoch), and the one
# that requires an abort.
_INIT_WITH_FENCED, _INIT_WITH_ABORTABLE = 4, 5
_ADD_WITH_FENCED, _ADD_WITH_ABORTABLE = 2, 5
_ADD_OFFSETS_WITH_FENCED, _ADD_OFFSETS_WITH_ABORTABLE = 2, 4
_END_WITH_FENCED, _END_WITH_ABORTABLE = 2, 4
_COMMIT_WITH_LOADING, _COMMIT_WITH_ABORTABLE = 2, 4

_FIRST_ADD_VERSION_WITH_SEVERAL = 4
_FIRST_COMMIT_VERSION_THAT_JOINS = 5
_FIRST_COMMIT_VERSION_WITH_TOPIC_IDS = 6
_FIRST_END_VERSION_THAT_BUMPS = 5


async def init_producer_id(
    front: FrontEnd, call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a producer id, for a transactional id or for an idempotent producer."""
    if (request.producer_id == _NO_PRODUCER_ID) != (request.producer_epoch == _NO_EPOCH):
        return _no_producer(ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        return _no_producer(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            # A producer without transactions gets a new id, whatever it had before.
            found = await front.gate.transactions.new_producer(call.session)
        else:
            found = await front.gate.transactions.initialise(
                call.session,
                transactional_id=request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
            )
    except GoQueueError as error:
        return _no_producer(
            transaction_code(
                error,
                knows_fenced=call.version >= _INIT_WITH_FENCED,
                knows_abortable=call.version >= _INIT_WITH_ABORTABLE,
            )
        )
    return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)


def _no_producer(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=_NO_PRODUCER_ID, producer_epoch=_NO_EPOCH
    )


async def add_partitions_to_txn(
    front: FrontEnd, call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if call.version >= _FIRST_ADD_VERSION_WITH_SEVERAL:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=await _add_partitions(front, call, one),
                )
                for one in request.transactions
            ]
        )
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=await _add_partitions(front, call, only)
    )


async def _add_partitions(
    front: FrontEnd, call: Call, wanted: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    """Add all partitions or none; return a result for each."""
    partitions = [
        TopicPartition(topic.name, number) for topic in wanted.topics for number in topic.partitions
    ]
    transactions = front.gate.transactions
    add = transactions.verify_partitions if wanted.verify_only else transactions.add_partitions
    try:
        joined = await add(
            call.session,
            transactional_id=wanted.transactional_id,
            identity=ProducerIdentity(wanted.producer_id, wanted.producer_epoch),
            partitions=partitions,
            is_from_node=call.version >= _FIRST_ADD_VERSION_WITH_SEVERAL,
        )
    except GoQueueError as error:
        return _add_results(wanted, {}, otherwise=_add_code(error, call.version))
    codes = {
        partition: _add_code(error, call.version, is_verified=wanted.verify_only)
        for partition, error in zip(partitions, joined.outcomes, strict=True)
        if error is not None
    }
    otherwise = ErrorCode.NONE if joined.is_attempted else ErrorCode.OPERATION_NOT_ATTEMPTED
    return _add_results(wanted, codes, otherwise=otherwise)


def _add_code(error: GoQueueError, version: int, *, is_verified: bool = False) -> ErrorCode:
    if isinstance(error, InternalTopic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    knows_abortable = version >= _ADD_WITH_ABORTABLE
    code = transaction_code(
        error, knows_fenced=version >= _ADD_WITH_FENCED, knows_abortable=knows_abortable
    )
    if code is ErrorCode.INVALID_TXN_STATE and is_verified and knows_abortable:
        return ErrorCode.TRANSACTION_ABORTABLE
    return code


def _add_results(
    wanted: AddPartitionsToTxnTransaction,
    codes: Mapping[TopicPartition, ErrorCode],
    *,
    otherwise: ErrorCode,
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number,
                    partition_error_code=codes.get(TopicPartition(topic.name, number), otherwise),
                )
                for number in topic.partitions
            ],
        )
        for topic in wanted.topics
    ]


async def add_offsets_to_txn(
    front: FrontEnd, call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        await front.gate.transactions.add_group(
            call.session,
            transactional_id=request.transactional_id,
            identity=identity,
            group=request.group_id,
        )
    except GoQueueError as error:
        code = transaction_code(
            error,
            knows_fenced=call.version >= _ADD_OFFSETS_WITH_FENCED,
            knows_abortable=call.version >= _ADD_OFFSETS_WITH_ABORTABLE,
        )
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse()


async def end_txn(front: FrontEnd, call: Call, request: EndTxnRequest) -> EndTxnResponse:
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    bumps_epoch = call.version >= _FIRST_END_VERSION_THAT_BUMPS
    try:
        found = await front.gate.transactions.end(
            call.session,
            transactional_id=request.transactional_id,
            identity=identity,
            is_commit=request.committed,
            bumps_epoch=bumps_epoch,
        )
    except GoQueueError as error:
        code = transaction_code(
            error,
            knows_fenced=call.version >= _END_WITH_FENCED,
            knows_abortable=call.version >= _END_WITH_ABORTABLE,
        )
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)


async def txn_offset_commit(
    front: FrontEnd, call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    names = [_topic_name(front, call, one) for one in request.topics]
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
    errors: Mapping[tuple[str, int], GoQueueError] = {}
    try:
        if offsets:
            errors = await _commit_offsets(front, call, request, offsets)
    except GoQueueError as error:
        errors = {(one.topic, one.partition): error for one in offsets}
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=wanted.name,
                topic_id=wanted.topic_id,
                partitions=_commit_results(call, name, wanted, errors),
            )
            for name, wanted in zip(names, request.topics, strict=True)
        ]
    )


def _topic_name(front: FrontEnd, call: Call, wanted: TxnOffsetCommitRequestTopic) -> str | None:
    """The name of a topic given by name or by id; None if no topic has the id."""
    if call.version < _FIRST_COMMIT_VERSION_WITH_TOPIC_IDS:
        return wanted.name
    return find_name(front, call, wanted.topic_id)


async def _commit_offsets(
    front: FrontEnd, call: Call, request: TxnOffsetCommitRequest, offsets: list[OffsetToCommit]
) -> Mapping[tuple[str, int], GoQueueError]:
    result = await front.gate.transactions.commit_group_offsets(
        call.session,
        transactional_id=request.transactional_id,
        identity=ProducerIdentity(request.producer_id, request.producer_epoch),
        call=CommitOffsets(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
            offsets=offsets,
        ),
        joins_transaction=call.version >= _FIRST_COMMIT_VERSION_THAT_JOINS,
    )
    return result.errors


def _commit_results(
    call: Call,
    topic: str | None,
    wanted: TxnOffsetCommitRequestTopic,
    errors: Mapping[tuple[str, int], GoQueueError],
) -> list[TxnOffsetCommitResponsePartition]:
    results = []
    for one in wanted.partitions:
        number = one.partition_index
        code = ErrorCode.NONE
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif (topic, number) in errors:
            code = _commit_code(errors[topic, number], call.version)
        results.append(TxnOffsetCommitResponsePartition(partition_index=number, error_code=code))
    return results


def _commit_code(error: GoQueueError, version: int) -> ErrorCode:
    if isinstance(error, StaleMemberEpoch):
        # Producers know only the error of classic groups for a consumer with an old epoch.
        return ErrorCode.ILLEGAL_GENERATION
    # In this API a fenced producer has always had the error code of an old epoch.
    code = transaction_code(
        error, knows_fenced=False, knows_abortable=version >= _COMMIT_WITH_ABORTABLE
    )
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _COMMIT_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
