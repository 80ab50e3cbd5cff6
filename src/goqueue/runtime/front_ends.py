"""The front ends of a process other than Kafka, made from the settings."""

from __future__ import annotations

import asyncio

from goqueue.broker import Broker
from goqueue.config import Settings
from goqueue.runtime.clock import LoopClock
from goqueue.runtime.grpc_bridge import GrpcBridge
from goqueue.wire.carrier.application import Application
from goqueue.wire.carrier.calls import Dialect
from goqueue.wire.carrier.front_end import Limits as HttpLimits
from goqueue.wire.grpc.front_end import FrontEnd as GrpcFrontEnd
from goqueue.wire.grpc.front_end import Limits as GrpcLimits
from goqueue.wire.http.console.pages import CONSOLE_PREFIX, ConsoleDialect
from goqueue.wire.http.front_end import FrontEnd as HttpFrontEnd
from goqueue.wire.http.operations import OPERATIONS
from goqueue.wire.http.registry_operations import REGISTRY_PREFIX, registry_dialect
from goqueue.wire.kafka.front_end import Limits
from goqueue.wire.sqs.dialect import SqsApplication
from goqueue.wire.sqs.front_end import SqsFrontEnd, SqsRules
from goqueue.wire.sqs.names import Site
from goqueue.wire.sqs.operations import OPERATIONS as SQS_OPERATIONS


def limits(settings: Settings) -> Limits:
    return Limits(
        request_bytes_max=settings.listeners.request_bytes_max,
        requests_in_flight_max=settings.listeners.requests_in_flight_max,
        fetch_bytes_max=settings.fetch.bytes_max,
        fetch_sessions_max=settings.fetch.sessions_max,
        share_sessions_max=settings.fetch.share_sessions_max,
        session_ms_max=settings.security.connections_max_reauth_ms,
    )


def http_applications(settings: Settings, broker: Broker) -> tuple[Application, ...]:
    """The HTTP API, the schema registry, which the API includes too, and the SQS front end."""
    listeners = settings.listeners
    limits = HttpLimits(
        body_bytes_max=listeners.http_body_bytes_max,
        receiving_bytes_max=listeners.receive_buffer_bytes_total_max,
        receive_ms_max=listeners.http_receive_timeout_ms,
        answer_bytes_max=listeners.http_answer_bytes_max,
    )
    mounted: dict[str, Dialect] = {
        REGISTRY_PREFIX.strip("/"): registry_dialect(REGISTRY_PREFIX),
        CONSOLE_PREFIX.strip("/"): ConsoleDialect(),
    }
    gate = broker.gate
    http = Application(HttpFrontEnd(gate, limits, OPERATIONS), mounts=mounted)
    registry = Application(HttpFrontEnd(gate, limits, ()), registry_dialect())
    front = SqsFrontEnd(gate, limits, SQS_OPERATIONS, _sqs_rules(settings))
    return http, registry, SqsApplication(front)


def grpc_bridge(
    loop: asyncio.AbstractEventLoop, settings: Settings, broker: Broker, clock: LoopClock
) -> GrpcBridge:
    listeners = settings.listeners
    limits = GrpcLimits(
        message_bytes_max=listeners.grpc_message_bytes_max,
        streams_max=listeners.grpc_streams_max,
        keepalive_ms=listeners.grpc_keepalive_ms,
        handling_bytes_max=listeners.receive_buffer_bytes_total_max,
        unread_bytes_max=listeners.unsent_bytes_total_max,
    )
    front = GrpcFrontEnd(broker.gate, limits, is_health_open=settings.security.open_health)
    return GrpcBridge(loop, clock, front, settings.node.data_dir)


def _sqs_rules(settings: Settings) -> SqsRules:
    sqs = settings.sqs
    return SqsRules(
        Site(sqs.region, sqs.account_id),
        dict(sqs.access_keys),
        sqs.message_bytes_max,
        sqs.long_delays,
        sqs.names_rest,
    )
