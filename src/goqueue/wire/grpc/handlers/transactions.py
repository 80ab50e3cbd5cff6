"""TransactionService: begin, publish, commit offsets, acknowledge, commit, abort, show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.transactions import (
    Addressed,
    TransactionState,
    TransactionView,
)
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.handlers.fields import group_of, receipts_of
from goqueue.wire.grpc.handlers.offsets import refused, to_commit
from goqueue.wire.grpc.handlers.paging import page_size_of
from goqueue.wire.grpc.handlers.settling import errors_of
from goqueue.wire.grpc.measuring import trace_of
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import transaction_service_pb2 as bodies
from goqueue.wire.grpc.records import check_messages, report_of, to_record, valid_trace_parent

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

TIMEOUT_MS_DEFAULT = 60_000
INT32_MAX = (1 << 31) - 1

_STATES = {one.name.lower(): one for one in TransactionState}


async def begin(
    front: FrontEnd, call: Call, request: bodies.BeginTransactionRequest
) -> bodies.BeginTransactionResponse:
    timeout_ms = request.timeout_ms or TIMEOUT_MS_DEFAULT
    if not 1 <= timeout_ms <= INT32_MAX:
        raise InvalidField(f"A transaction takes 1 to {INT32_MAX} ms.", field="timeout_ms")
    begun = await front.gate.transactions.begin(
        call.session, transactional_id=request.transactional_id or None, timeout_ms=timeout_ms
    )
    return bodies.BeginTransactionResponse(
        transaction_id=begun.id, transactional_id=begun.transactional_id, timeout_ms=timeout_ms
    )


async def get(
    front: FrontEnd, call: Call, request: bodies.GetTransactionRequest
) -> bodies.GetTransactionResponse:
    found = await front.gate.transactions.show(call.session, transaction_id=request.transaction_id)
    return bodies.GetTransactionResponse(
        transaction=_transaction(request.transaction_id, found.view), superseded=found.is_superseded
    )


async def list_all(
    front: FrontEnd, call: Call, request: bodies.ListTransactionsRequest
) -> bodies.ListTransactionsResponse:
    state = _STATES.get(request.state)
    if state is None and request.state:
        raise InvalidField(f"There is no state {request.state[:60]!r}.", field="state")
    page = await front.gate.transactions.list(
        call.session,
        states=frozenset(() if state is None else (state,)),
        prefix=request.prefix,
        limit=page_size_of(request.page_size),
    )
    return bodies.ListTransactionsResponse(
        transactions=[_transaction(one.id, one.view) for one in page.transactions],
        total=page.total,
    )


async def publish(
    front: FrontEnd, call: Call, request: bodies.PublishInTransactionRequest
) -> bodies.PublishInTransactionResponse:
    outgoing = [one.message for one in request.messages]
    check_messages(outgoing)
    call.trace = call.trace or trace_of(outgoing)
    now_ms, trace = front.now_ms(), valid_trace_parent(call.trace_parent)
    messages: list[Addressed] = []
    unreadable: dict[int, GoQueueError] = {}
    for place, (addressed, one) in enumerate(zip(request.messages, outgoing, strict=True)):
        try:
            record = to_record(one, now_ms=now_ms, trace=trace)
        except GoQueueError as error:
            unreadable[place] = error
            continue
        partition = one.partition if one.HasField("partition") else None
        messages.append(Addressed(addressed.topic, record, partition))
    published = await front.gate.transactions.publish(
        call.session,
        transaction_id=request.transaction_id,
        messages=messages,
        unreadable={place: str(error) for place, error in unreadable.items()},
        now_ms=now_ms,
    )
    # The errors found here name the field that is wrong.
    results = [unreadable.get(place, one) for place, one in enumerate(published.results)]
    return bodies.PublishInTransactionResponse(report=report_of(results))


async def commit_offsets(
    front: FrontEnd, call: Call, request: bodies.CommitOffsetsInTransactionRequest
) -> bodies.CommitOffsetsInTransactionResponse:
    result = front.gate.transactions.commit_offsets(
        call.session, transaction_id=request.transaction_id, call=to_commit(request)
    )
    return bodies.CommitOffsetsInTransactionResponse(errors=await refused(request, result))


async def ack(
    front: FrontEnd, call: Call, request: bodies.AckInTransactionRequest
) -> bodies.AckInTransactionResponse:
    receipts = receipts_of(request.receipts)
    outcomes = await front.gate.transactions.ack(
        call.session,
        transaction_id=request.transaction_id,
        group=group_of(request.group),
        receipts=receipts,
    )
    return bodies.AckInTransactionResponse(errors=errors_of(receipts, outcomes))


async def commit(
    front: FrontEnd, call: Call, request: bodies.CommitTransactionRequest
) -> bodies.CommitTransactionResponse:
    await front.gate.transactions.commit(call.session, transaction_id=request.transaction_id)
    return bodies.CommitTransactionResponse()


async def abort(
    front: FrontEnd, call: Call, request: bodies.AbortTransactionRequest
) -> bodies.AbortTransactionResponse:
    await front.gate.transactions.abort(call.session, transaction_id=request.transaction_id)
    return bodies.AbortTransactionResponse()


def _transaction(transaction_id: str, view: TransactionView) -> bodies.Transaction:
    return bodies.Transaction(
        transaction_id=transaction_id,
        transactional_id=view.transactional_id,
        state=view.state.name.lower(),
        producer_id=view.identity.producer_id,
        producer_epoch=view.identity.epoch,
        timeout_ms=view.timeout_ms,
        started_at_ms=view.started_ms if view.started_ms >= 0 else None,
        updated_at_ms=view.updated_ms,
        participants=[
            shared.TopicPartition(topic=one.topic, partition=one.partition)
            for one in view.partitions
        ],
    )
