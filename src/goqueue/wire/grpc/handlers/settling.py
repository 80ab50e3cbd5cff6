"""AckService: acknowledge, return, reject messages, extend their leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.queues import Outcomes
from goqueue.wire.grpc.handlers.fields import (
    delay_of,
    group_of,
    reason_of,
    receipts_of,
    visibility_of,
)
from goqueue.wire.grpc.messages import ack_service_pb2 as bodies
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.statuses import error_of

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd


async def ack(front: FrontEnd, call: Call, request: bodies.AckRequest) -> bodies.AckResponse:
    receipts = receipts_of(request.receipts)
    outcomes = await front.gate.queues.ack(
        call.session, group=group_of(request.group), receipts=receipts
    )
    return bodies.AckResponse(errors=errors_of(receipts, outcomes))


async def nack(front: FrontEnd, call: Call, request: bodies.NackRequest) -> bodies.NackResponse:
    receipts = receipts_of(request.receipts)
    outcomes = await front.gate.queues.nack(
        call.session,
        group=group_of(request.group),
        receipts=receipts,
        delay_ms=delay_of(request),
    )
    return bodies.NackResponse(errors=errors_of(receipts, outcomes))


async def reject(
    front: FrontEnd, call: Call, request: bodies.RejectRequest
) -> bodies.RejectResponse:
    receipts = receipts_of(request.receipts)
    outcomes = await front.gate.queues.reject(
        call.session,
        group=group_of(request.group),
        receipts=receipts,
        reason=reason_of(request.reason),
    )
    return bodies.RejectResponse(errors=errors_of(receipts, outcomes))


async def extend(
    front: FrontEnd, call: Call, request: bodies.ExtendRequest
) -> bodies.ExtendResponse:
    receipts = receipts_of(request.receipts)
    outcomes = await front.gate.queues.extend(
        call.session,
        group=group_of(request.group),
        receipts=receipts,
        visibility_ms=visibility_of(request),
    )
    return bodies.ExtendResponse(errors=errors_of(receipts, outcomes))


def errors_of(receipts: Sequence[str], outcomes: Outcomes) -> list[shared.ReceiptError]:
    """Return the receipts that were not accepted, with the reasons."""
    if not any(outcomes):
        return []
    return [
        shared.ReceiptError(receipt=receipt, error=error_of(error))
        for receipt, error in zip(receipts, outcomes, strict=True)
        if error is not None
    ]
