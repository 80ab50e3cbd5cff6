"""A request for every call of the gRPC API, and for every stream, without the library itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from goqueue.broker import Broker
from goqueue.loop.promise import promised
from goqueue.model.errors import GoQueueError
from goqueue.model.session import ConnectedClient, ListenerRules, Session
from goqueue.wire.carrier.problems import shown, status_of
from goqueue.wire.grpc.calls import Asked, Call
from goqueue.wire.grpc.front_end import LISTENER, Connection, FrontEnd, Limits
from goqueue.wire.grpc.measuring import codes_in
from goqueue.wire.grpc.messages import consume_service_pb2 as consume_bodies
from goqueue.wire.grpc.messages import publish_service_pb2 as publish_bodies
from goqueue.wire.grpc.routes import Streaming, Unary
from goqueue.wire.grpc.table import CALLS, SERVICES
from tests.simulation.access.scene import Scene
from tests.unit.wire.grpc.known_errors import BY_CODE, instance_of

HOST = "192.0.2.1"
UNARY = {one.name: one for one in CALLS if isinstance(one, Unary)}
STREAMING = {one.name: one for one in CALLS if isinstance(one, Streaming)}
NO_CONTENT = 204  # of a stream that sent less than its client waited for
STREAM_MS_MAX = 10_000  # of one that has nothing to send

_GROUP = {"group": "billing"}
_ORDERS = {"topic": "orders"}
_QUEUE = {**_GROUP, **_ORDERS}
_OFFSETS = [{"topic": "orders", "partition": 0, "offset": 1}]
_REDRIVE = {**_ORDERS, "id": "{redrive_id}"}
_TRANSACTION = {"transactionId": "{transaction_id}"}
_SCHEDULE = {"id": "{schedule_id}"}
_MESSAGE = {"value": "dg=="}
REQUESTS: Mapping[str, Any] = {
    "CreateTopic": {"name": "new-topic"},
    "GetTopic": _ORDERS,
    "ListTopics": {},
    "UpdateTopic": {**_ORDERS, "settings": {"retention_ms": "86400000"}},
    "GrowTopic": {**_ORDERS, "partitions": 2},
    "DeleteTopic": _ORDERS,
    "ListPartitions": _ORDERS,
    "DeleteRecords": {**_ORDERS, "partition": 0, "beforeOffset": 1},
    "Publish": {**_ORDERS, "messages": [_MESSAGE]},
    "Pull": {**_QUEUE, "messagesMax": 1},
    "Read": {**_ORDERS, "from": {"start": "START_EARLIEST"}},
    "Ack": {**_GROUP, "receipts": ["{receipt}"]},
    "Nack": {**_GROUP, "receipts": ["{other_receipt}"]},
    "Reject": {**_GROUP, "receipts": ["{receipt}"]},
    "Extend": {**_GROUP, "receipts": ["{other_receipt}"]},
    "CommitOffsets": {"group": "shop", "offsets": _OFFSETS},
    "FetchOffsets": {"group": "shop"},
    "ResetOffsets": {"group": "shop", **_ORDERS, "to": {"start": "START_EARLIEST"}},
    "ListGroups": {},
    "GetGroup": _GROUP,
    "PutQueueGroup": {**_GROUP, "settings": {"deliveries_max": "5"}},
    "DeleteGroup": _GROUP,
    "GetLag": _GROUP,
    "GetQueueStats": _QUEUE,
    "Peek": _QUEUE,
    "Rewind": {**_QUEUE, "to": {"start": "START_EARLIEST"}},
    "Purge": _QUEUE,
    "ListSchedules": {},
    "CountSchedules": {},
    "GetSchedule": _SCHEDULE,
    "MoveSchedule": {**_SCHEDULE, "delayMs": "7200000"},
    "CancelSchedules": {"ids": ["{schedule_id}", "{hidden_schedule_id}"]},
    "ListDeadLetters": _ORDERS,
    "StartRedrive": _ORDERS,
    "PreviewRedrive": _ORDERS,
    "ListRedrives": _ORDERS,
    "GetRedrive": _REDRIVE,
    "PauseRedrive": _REDRIVE,
    "ResumeRedrive": _REDRIVE,
    "CancelRedrive": _REDRIVE,
    "BeginTransaction": {"transactionalId": "another-till", "timeoutMs": "30000"},
    "GetTransaction": _TRANSACTION,
    "ListTransactions": {},
    "PublishInTransaction": {
        **_TRANSACTION,
        "messages": [{"topic": "orders", "message": _MESSAGE}],
    },
    "CommitOffsetsInTransaction": {**_TRANSACTION, "group": "shop", "offsets": _OFFSETS},
    "AckInTransaction": {**_TRANSACTION, **_GROUP, "receipts": ["{other_receipt}"]},
    "CommitTransaction": _TRANSACTION,
    "AbortTransaction": _TRANSACTION,
    "GetCluster": {},
    "GetSession": {},
    "Check": {},
    "List": {},
}
# What ends something comes after what needs it.
LAST = (
    "CancelSchedules",
    "CommitTransaction",
    "CancelRedrive",
    "AbortTransaction",
    "DeleteGroup",
    "DeleteRecords",
    "DeleteTopic",
)


class Talk(NamedTuple):
    """What a client says on a stream: each request but the first after one more response."""

    requests: tuple[Any, ...]
    request: type[Message]
    response: type[Message]
    # The response of which it takes nothing any more, before it leaves; without one, it sends no
    # more and reads to the end.
    is_last: Callable[[Any], bool] | None = None


def _has_messages(response: Any) -> bool:
    return bool(response.messages)


STREAMS: Mapping[str, Talk] = {
    "PublishStream": Talk(
        ({"number": "1", **_ORDERS, "messages": [_MESSAGE]},),
        publish_bodies.PublishStreamRequest,
        publish_bodies.PublishStreamResponse,
    ),
    "Receive": Talk(
        ({"start": _QUEUE, "number": "1", "ack": ["{other_receipt}"]}, {"credit": 1}),
        consume_bodies.ReceiveRequest,
        consume_bodies.ReceiveResponse,
        _has_messages,
    ),
    "Subscribe": Talk(
        ({"group": "subscribers", "topics": ["orders"]},),
        consume_bodies.SubscribeRequest,
        consume_bodies.SubscribeResponse,
        _has_messages,
    ),
    "Follow": Talk(
        ({**_ORDERS, "from": {"start": "START_EARLIEST"}},),
        consume_bodies.FollowRequest,
        consume_bodies.FollowResponse,
        _has_messages,
    ),
    "Watch": Talk(
        ({},), health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse, lambda _: True
    ),
    "ServerReflectionInfo": Talk(
        ({"listServices": "*"},),
        reflection_pb2.ServerReflectionRequest,
        reflection_pb2.ServerReflectionResponse,
    ),
}
NAMES = [one for one in REQUESTS if one not in LAST] + list(STREAMS) + list(LAST)

Filled = Callable[[Any, Mapping[str, str]], Any]


class Outcome(NamedTuple):
    """The status that the same error has over HTTP, and all bytes of the response."""

    status: int
    data: bytes


def send(
    name: str, scene: Scene, broker: Broker, filled: Filled, *, must_authenticate: bool
) -> Outcome:
    """Make a call as a client of a new connection."""
    one = UNARY.get(name) or STREAMING[name]
    front = FrontEnd(broker.gate, Limits())
    front.services = SERVICES
    rules = ListenerRules(LISTENER, must_authenticate=must_authenticate)
    connection = Connection(front, ConnectedClient(HOST, rules))
    try:
        session = connection.authenticator.session_of(Asked({}), one)
        assert isinstance(session, Session)
        call = Call(session, connection)
        if isinstance(one, Streaming):
            return _talk(one, front, call, scene, broker, filled)
        request = json_format.ParseDict(filled(REQUESTS[name], scene.ids), one.request())
        answer = promised(one.handler(front, call, request))
        response: Message = scene.world.wait(answer)
    except GoQueueError as error:
        error = shown(error)
        return Outcome(status_of(error), str(error).encode())
    finally:
        connection.close()
    return Outcome(200, response.SerializeToString())


# Streams


class _Client:
    """The client of a stream."""

    def __init__(self, talk: Talk, requests: Any) -> None:
        self.responses: list[bytes] = []
        self.has_left = False
        self.codes: set[str] = set()
        self._talk = talk
        self._requests = [json_format.ParseDict(one, talk.request()) for one in requests]
        self._sent_count = 0
        self._changed = asyncio.Event()

    async def read(self) -> bytes | None:
        if self._sent_count == len(self._requests):
            if self._talk.is_last is None:
                return None
            await asyncio.Event().wait()
        while len(self.responses) < self._sent_count:
            self._changed.clear()
            await self._changed.wait()
        self._sent_count += 1
        return self._requests[self._sent_count - 1].SerializeToString()

    async def write(self, data: bytes) -> None:
        response = self._talk.response.FromString(data)
        self.responses.append(data)
        self.codes |= codes_in(response)
        self._changed.set()
        if self._talk.is_last is not None and self._talk.is_last(response):
            self.has_left = True
            await asyncio.Event().wait()


def _talk(
    one: Streaming, front: FrontEnd, call: Call, scene: Scene, broker: Broker, filled: Filled
) -> Outcome:
    """Talk over a stream until it ends, its client leaves, or it has had enough time."""
    talk = STREAMS[one.name]
    now_ms = broker.clock.now_ms
    until_ms = now_ms() + STREAM_MS_MAX
    loop = asyncio.new_event_loop()
    loop.time = lambda: now_ms() / 1_000  # type: ignore[method-assign]
    client = _Client(talk, filled(list(talk.requests), scene.ids))

    async def run() -> None:
        await one.handler(front, call, client)

    task = loop.create_task(run())

    def is_over() -> bool:
        for _ in range(5):
            loop.run_until_complete(asyncio.sleep(0))
        return task.done() or client.has_left or now_ms() >= until_ms

    try:
        scene.world.run_until(is_over)
        task.cancel()
        call.cancellation.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        error = None if task.cancelled() else task.exception()
    finally:
        loop.close()
    data = b"".join(client.responses)
    if error is not None:
        assert isinstance(error, GoQueueError), error
        error = shown(error)
        return Outcome(status_of(error), data + str(error).encode())
    statuses = [status_of(instance_of(BY_CODE[one])) for one in client.codes]
    is_whole = client.has_left if talk.is_last else client.responses
    return Outcome(max(statuses, default=200 if is_whole else NO_CONTENT), data)
