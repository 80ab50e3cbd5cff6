"""Client telemetry (KIP-714): which metrics clients should report, and their reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.client_telemetry import COMPRESSIONS, Verdict
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from goqueue.wire.kafka.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

CODES = {
    Verdict.ACCEPTED: ErrorCode.NONE,
    Verdict.TOO_EARLY: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    Verdict.UNKNOWN_SUBSCRIPTION: ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    Verdict.UNSUPPORTED_COMPRESSION: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    Verdict.TOO_LARGE: ErrorCode.TELEMETRY_TOO_LARGE,
    Verdict.ENDED: ErrorCode.INVALID_REQUEST,
    Verdict.INVALID: ErrorCode.INVALID_RECORD,
}


def get_telemetry_subscriptions(
    front: FrontEnd, call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = front.gate.client_telemetry
    assert telemetry is not None  # Otherwise this API is not served.
    instance_id, verdict = telemetry.subscribe(request.client_instance_id, call.connection.software)
    if verdict is not Verdict.ACCEPTED:
        return GetTelemetrySubscriptionsResponse(error_code=CODES[verdict])
    subscription = telemetry.subscription
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=subscription.bytes_max,
        delta_temporality=True,  # Counters need no memory of the previous report then.
        requested_metrics=list(subscription.prefixes),
    )


def push_telemetry(
    front: FrontEnd, call: Call, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    telemetry = front.gate.client_telemetry
    assert telemetry is not None
    verdict = telemetry.push(
        request.client_instance_id,
        call.connection.software,
        subscription_id=request.subscription_id,
        compression=request.compression_type,
        data=request.metrics,
        is_last=request.terminating,
    )
    return PushTelemetryResponse(error_code=CODES[verdict])
