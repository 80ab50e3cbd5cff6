"""The server of grpcio, and the steps of each call. Loaded when the first client connects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter, perf_counter_ns
from typing import Any, TypeVar

import grpc
from grpc import aio

from goqueue.broker.gate.request_metrics import UNKNOWN_API
from goqueue.loop.promise import promised
from goqueue.model.errors import AuthenticationFailed, AuthenticationRequired, GoQueueError
from goqueue.model.session import Session
from goqueue.wire.carrier.problems import InternalError, UnknownRoute, shown
from goqueue.wire.carrier.session_watch import SessionWatch
from goqueue.wire.grpc.calls import TRACE_PARENT, Asked, Call, asked, decoded, value_of
from goqueue.wire.grpc.front_end import Connection, FrontEnd
from goqueue.wire.grpc.routes import Streaming, Unary
from goqueue.wire.grpc.statuses import DETAILS_KEY, failure_of, field_of
from goqueue.wire.grpc.streams.health import NODE
from goqueue.wire.grpc.table import CALLS, SERVICES

T = TypeVar("T")

KEEPALIVE_TIMEOUT_MS_MAX = 20_000
PING_MS_MIN = 10_000  # clients that ping more often, without data, are disconnected
STOP_SECONDS_MAX = 2.0
_IDENTITY_ONLY = 1  # no compression: it would hide the size of requests
_CODES = {one.value[0]: one for one in grpc.StatusCode}

_log = logging.getLogger(__name__)

Context = aio.ServicerContext[bytes, bytes]


class GrpcServer:
    """Serves the API at a socket that only this process connects to."""

    def __init__(self, front: FrontEnd, address: str) -> None:
        front.services = (NODE, *SERVICES)
        limits = front.limits
        timeout_ms = min(limits.keepalive_ms, KEEPALIVE_TIMEOUT_MS_MAX)
        self._server = aio.server(
            options=[
                # Otherwise a second process could take a share of the connections.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", limits.message_bytes_max),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", limits.streams_max),
                ("grpc.max_metadata_size", 32 << 10),
                ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
                # Windows that grow with the link would let each connection hold megabytes.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.keepalive_time_ms", limits.keepalive_ms),
                ("grpc.keepalive_timeout_ms", timeout_ms),
                # A ping is waited for by the longer of the two.
                ("grpc.http2.ping_timeout_ms", timeout_ms),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", PING_MS_MIN),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_MS_MIN),
            ]
        )
        self._server.add_generic_rpc_handlers((_Router(front),))
        self._server.add_insecure_port(address)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(STOP_SECONDS_MAX)


class _Router(grpc.GenericRpcHandler):
    """Finds the handler of a call by its path."""

    def __init__(self, front: FrontEnd) -> None:
        self._handlers = {one.path: _handler_of(front, one) for one in CALLS}
        self._unknown = _handler_of_unknown(front)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._handlers.get(handler_call_details.method, self._unknown)


def _handler_of_unknown(front: FrontEnd) -> grpc.RpcMethodHandler[bytes, bytes]:
    """Return what counts and refuses calls that do not exist, as the library would."""

    async def refuse(_: Any, context: Context) -> None:
        connection = front.connections.get(context.peer())
        if connection is not None:
            api = connection.measured.apis[UNKNOWN_API]
            api.answered(0.0, asked(context.invocation_metadata()).headers.get(TRACE_PARENT, b""))
            api.failed(UnknownRoute.code)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    return grpc.stream_stream_rpc_method_handler(refuse)


def _handler_of(front: FrontEnd, one: Unary | Streaming) -> grpc.RpcMethodHandler[bytes, bytes]:
    if isinstance(one, Streaming):

        async def stream(_: Any, context: Context) -> None:
            wire = _Wire(context)
            await _serve(front, one, context, lambda call: one.handler(front, call, wire))

        # On the wire, a stream in one direction is one in both of which one side sends one message.
        return grpc.stream_stream_rpc_method_handler(stream)

    async def answer(data: bytes, context: Context) -> bytes:
        return await _serve(front, one, context, lambda call: _answer(front, one, call, data))

    return grpc.unary_unary_rpc_method_handler(answer)


class _Wire:
    """A stream of the library; the end of the messages is None."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def read(self) -> bytes | None:
        data: Any = await self._context.read()
        return None if data is aio.EOF else data

    async def write(self, data: bytes) -> None:
        await self._context.write(data)


async def _answer(front: FrontEnd, one: Unary, call: Call, data: bytes) -> bytes:
    """Perform a call with one request."""
    started_ns = perf_counter_ns()
    # Whoever floods health must not take it from those who probe under the same quota.
    meter = None if one.is_open else front.gate.client_limits.meter(call.session)
    if meter is not None:
        meter.admit_request()
    front.intake.take(len(data))
    try:
        request = decoded(one.request, data)
        promise = promised(one.handler(front, call, request))
        if meter is not None and meter.measures_time:
            meter.worked((perf_counter_ns() - started_ns) // 1_000)
            meter.take_wait()
        waits_since = perf_counter()
        try:
            response = await value_of(promise)
        finally:
            if getattr(request, "wait_ms", 0):
                call.leave_out(perf_counter() - waits_since)
    finally:
        front.intake.give(len(data))
    call.failed_in_part(response)
    return response.SerializeToString()


# The steps of a call


async def _serve(
    front: FrontEnd,
    one: Unary | Streaming,
    context: Context,
    work: Callable[[Call], Awaitable[T]],
) -> T:
    """Perform a call for its caller; what it raises becomes the status of the call."""
    connection = front.connections.get(context.peer())
    if connection is None:  # another process of this machine, which did not come by a listener
        raise await _fail(context, AuthenticationRequired())
    api = connection.measured.apis[one.name]
    asking, started = asked(context.invocation_metadata()), perf_counter()
    error: GoQueueError
    call: Call | None = None
    watch: SessionWatch | None = None
    is_done = False
    is_stream = isinstance(one, Streaming)
    connection.call_count += 1
    front.open_streams += is_stream
    try:
        call = await _begin(front, connection, one, context, asking)
        call.api, call.started = api, started
        if isinstance(one, Streaming):
            # Otherwise it goes with the first response, and the library cannot send an error while
            # that one waits for its client.
            await context.send_initial_metadata(())
            if not one.has_requests:
                api.answered(perf_counter() - started, call.trace)
        if one.is_waiting:
            front.begin(call)
            watch = _watched(front, call)
        answer = await work(call)
        is_done = True
        return answer
    except GoQueueError as raised:
        error = raised
    except asyncio.CancelledError:
        if call is None or call.error is None:
            raise  # The client has gone, or its deadline has passed.
        error = call.error
        _resume()
    except Exception:
        _log.exception("%s of %s failed", one.path, connection.host)
        error = InternalError()
    finally:
        connection.call_count -= 1
        front.open_streams -= is_stream
        if watch is not None:
            watch.cancel()
        if call is None:
            api.answered(perf_counter() - started, asking.headers.get(TRACE_PARENT, b""))
        else:
            front.calls.discard(call)
            front.unread.forget(call)
            if isinstance(one, Unary):
                api.answered(perf_counter() - call.started, call.trace)
            if not is_done:
                call.cancellation.cancel()
    api.failed(shown(error).code)
    request = one.request if isinstance(one, Unary) else None
    raise await _fail(context, error, field_of(error, request, one.refused_field))


async def _begin(
    front: FrontEnd,
    connection: Connection,
    one: Unary | Streaming,
    context: Context,
    asking: Asked,
) -> Call:
    """Find out who makes a call, and whether it can be served now."""
    session = connection.authenticator.session_of(asking, one)
    if not isinstance(session, Session):
        session = await value_of(session)
    if not one.is_open:
        connection.seat.take(session)
        front.check_ready()
    return Call(
        session,
        connection,
        asyncio.current_task(),
        trace_parent=asking.headers.get(TRACE_PARENT, b""),
        remaining_seconds=context.time_remaining(),
    )


def _watched(front: FrontEnd, call: Call) -> SessionWatch | None:
    """End a call that lasts with the session that it was begun in."""
    if not call.session.is_authenticated:
        return None
    error = AuthenticationFailed("The session has ended; authenticate again.")
    gate = front.gate
    return SessionWatch(gate.clock, gate.authentication, call.session, lambda: call.end(error))


def _resume() -> None:
    """Go on in a task that was cancelled to end its call."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


async def _fail(context: Context, error: GoQueueError, field: str = "") -> BaseException:
    """End a call with an error. What the library raises for that is returned, to be raised."""
    code, message, details = failure_of(error, field)
    try:
        await context.abort(_CODES[code], message, ((DETAILS_KEY, details),))
    except BaseException as aborted:
        return aborted
    raise AssertionError("abort raises")
