"""Transactions for operators and other nodes: list, describe, write markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.transactions import TransactionState
from goqueue.model.errors import AccessDenied, GoQueueError
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages import describe_transactions as described
from goqueue.wire.kafka.messages import list_transactions as listed
from goqueue.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from goqueue.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd


async def list_transactions(
    front: FrontEnd, call: Call, request: listed.ListTransactionsRequest
) -> listed.ListTransactionsResponse:
    known = {state.value: state for state in TransactionState}
    states = frozenset(known[name] for name in request.state_filters if name in known)
    unknown = [name for name in request.state_filters if name not in known]
    if request.state_filters and not states:
        return listed.ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        page = await front.gate.transactions.list(
            call.session,
            states=states,
            producer_ids=frozenset(request.producer_id_filters),
            older_than_ms=request.duration_filter,
            pattern=request.transactional_id_pattern or "",
        )
    except GoQueueError as error:
        return listed.ListTransactionsResponse(error_code=code_of(error))
    return listed.ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            listed.TransactionState(
                transactional_id=one.view.transactional_id,
                producer_id=one.view.identity.producer_id,
                transaction_state=one.view.state,
            )
            for one in page.transactions
        ],
    )


async def describe_transactions(
    front: FrontEnd, call: Call, request: described.DescribeTransactionsRequest
) -> described.DescribeTransactionsResponse:
    return described.DescribeTransactionsResponse(
        transaction_states=[await _describe(front, call, one) for one in request.transactional_ids]
    )


async def _describe(
    front: FrontEnd, call: Call, transactional_id: str
) -> described.TransactionState:
    if not transactional_id:
        return described.TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    try:
        found = await front.gate.transactions.describe(
            call.session, transactional_id=transactional_id
        )
    except GoQueueError as error:
        return described.TransactionState(
            error_code=code_of(error), transactional_id=transactional_id
        )
    topics: dict[str, list[int]] = {}
    for one in found.partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    return described.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.identity.producer_id,
        producer_epoch=found.identity.epoch,
        topics=[described.TopicData(topic=name, partitions=each) for name, each in topics.items()],
    )


async def write_txn_markers(
    front: FrontEnd, call: Call, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write the markers of transactions that another node or an operator has ended."""
    return WriteTxnMarkersResponse(
        markers=[await _mark(front, call, one) for one in request.markers]
    )


async def _mark(front: FrontEnd, call: Call, wanted: WritableTxnMarker) -> WritableTxnMarkerResult:
    partitions = [
        TopicPartition(topic.name, number)
        for topic in wanted.topics
        for number in topic.partition_indexes
    ]
    try:
        outcomes = await front.gate.transactions.write_markers(
            call.session,
            identity=ProducerIdentity(wanted.producer_id, wanted.producer_epoch),
            partitions=partitions,
            is_commit=wanted.transaction_result,
            coordinator_epoch=wanted.coordinator_epoch,
        )
    except AccessDenied as error:
        outcomes = [error] * len(partitions)
    errors = dict(zip(partitions, outcomes, strict=True))

    def code(topic: str, number: int) -> int:
        error = errors[TopicPartition(topic, number)]
        return 0 if error is None else code_of(error)

    return WritableTxnMarkerResult(
        producer_id=wanted.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=number, error_code=code(topic.name, number)
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in wanted.topics
        ],
    )


def describe_producers(
    front: FrontEnd, call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _producers(front, call, topic.name, number)
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _producers(front: FrontEnd, call: Call, topic: str, number: int) -> PartitionResponse:
    try:
        producers = front.gate.transactions.describe_producers(
            call.session, topic=topic, partition=number
        )
    except GoQueueError as error:
        return PartitionResponse(
            partition_index=number, error_code=code_of(error), error_message=str(error)
        )
    return PartitionResponse(
        partition_index=number,
        active_producers=[
            ProducerState(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.last_timestamp_ms,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.first_offset,
            )
            for one in producers
        ],
    )
