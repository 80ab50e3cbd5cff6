"""grpc.health.v1: whether the node can take calls, for load balancers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from grpc_health.v1 import health_pb2

from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import UnknownRoute
from goqueue.wire.grpc.calls import decoded

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd
    from goqueue.wire.grpc.routes import Wire

NODE = ""  # the name that stands for the whole server


async def check(
    front: FrontEnd, call: Call, request: health_pb2.HealthCheckRequest
) -> health_pb2.HealthCheckResponse:
    if request.service not in front.services:
        raise UnknownRoute(request.service)
    return health_pb2.HealthCheckResponse(status=_status(front))


async def list_all(
    front: FrontEnd, call: Call, _: health_pb2.HealthListRequest
) -> health_pb2.HealthListResponse:
    status = health_pb2.HealthCheckResponse(status=_status(front))
    return health_pb2.HealthListResponse(statuses=dict.fromkeys(front.services, status))


async def watch(front: FrontEnd, call: Call, wire: Wire) -> None:
    """Send the status now and whenever it changes; of unknown services, that they are unknown."""
    changed = asyncio.Event()
    front.watches.enter(call, changed.set)
    try:
        data = await wire.read()
        if data is not None:
            request = decoded(health_pb2.HealthCheckRequest, data)
            await _send_changes(front, wire, request.service, changed)
    finally:
        front.watches.leave(call)


async def _send_changes(front: FrontEnd, wire: Wire, service: str, changed: asyncio.Event) -> None:
    sent: int | None = None
    is_known = service in front.services
    while True:
        changed.clear()
        status = _status(front) if is_known else health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        if status != sent:
            sent = status
            await wire.write(health_pb2.HealthCheckResponse(status=status).SerializeToString())
        await changed.wait()


def _status(front: FrontEnd) -> int:
    try:
        front.check_ready()
    except GoQueueError:
        return int(health_pb2.HealthCheckResponse.NOT_SERVING)
    return int(health_pb2.HealthCheckResponse.SERVING)
