"""Health streams: they send changes when these happen, and strangers have a limited number."""

from __future__ import annotations

import asyncio

import pytest
from grpc_health.v1 import health_pb2

from goqueue.model.session import ANONYMOUS, ConnectedClient, ListenerRules, Session
from goqueue.wire.grpc.calls import Call
from goqueue.wire.grpc.front_end import LISTENER, Connection, FrontEnd, Limits
from goqueue.wire.grpc.streams import health
from goqueue.wire.grpc.watches import CONNECTION_WATCHES_MAX, WATCHES_MAX, TooManyWatches, Watches
from tests.unit.broker.node import Node


class Host:
    """A connection from an address."""

    def __init__(self, host: str) -> None:
        self.host = host


class Watch:
    """A call, as far as it is limited."""

    def __init__(self, connection: Host, principal: str = ANONYMOUS) -> None:
        self.session = Session("grpc", principal=principal)
        self.connection = connection
        self.error: TooManyWatches | None = None

    def end(self, error: TooManyWatches) -> None:
        self.error = error


def watch(watches: Watches, connection: Host, principal: str = ANONYMOUS) -> Watch:
    made = Watch(connection, principal)
    watches.enter(made, lambda: None)
    return made


def test_a_connection_without_credentials_has_a_limited_number_and_others_are_not_concerned() -> (
    None
):
    watches, connection = Watches(), Host("10.0.0.1")
    held = [watch(watches, connection) for _ in range(CONNECTION_WATCHES_MAX)]
    with pytest.raises(TooManyWatches):
        watch(watches, connection)
    watch(watches, Host("10.0.0.1"))
    for _ in range(100):
        watch(watches, connection, "User:prober")
    watches.leave(held[0])
    watch(watches, connection)
    assert all(one.error is None for one in held)


def test_an_address_that_takes_all_room_gives_way_to_others_and_gets_no_more() -> None:
    watches = Watches()
    flood = [watch(watches, Host("10.0.0.1")) for _ in range(WATCHES_MAX)]
    with pytest.raises(TooManyWatches):
        watch(watches, Host("10.0.0.1"))
    prober = watch(watches, Host("10.0.0.2"))
    assert [one for one in flood if one.error is not None] == flood[:1]
    with pytest.raises(TooManyWatches):
        watch(watches, Host("10.0.0.1"))
    for one in flood:
        watches.leave(one)
    assert prober.error is None
    assert [watch(watches, Host("10.0.0.3")).error for _ in range(WATCHES_MAX - 1)] == [None] * (
        WATCHES_MAX - 1
    )


class Client:
    """The client of one health stream."""

    def __init__(self, service: str = "") -> None:
        self._requests = [health_pb2.HealthCheckRequest(service=service).SerializeToString()]
        self.statuses: asyncio.Queue[int] = asyncio.Queue()

    async def read(self) -> bytes | None:
        return self._requests.pop()

    async def write(self, data: bytes) -> None:
        self.statuses.put_nowait(health_pb2.HealthCheckResponse.FromString(data).status)


def test_changes_are_sent_when_they_happen() -> None:
    """Nothing here takes time, so a stream that looked at a clock would send nothing."""
    front = FrontEnd(Node().broker.gate, Limits())
    front.services = ("",)
    rules = ListenerRules(LISTENER, must_authenticate=True)
    connection = Connection(front, ConnectedClient("10.0.0.1", rules))

    async def watched() -> list[int]:
        front.is_ready = False
        known, unknown = Client(), Client("nothing")
        calls = [Call(Session(LISTENER), connection) for _ in range(2)]
        tasks = [
            asyncio.create_task(health.watch(front, call, client))
            for call, client in zip(calls, (known, unknown), strict=True)
        ]
        statuses = [await known.statuses.get(), await unknown.statuses.get()]
        front.is_ready = True
        statuses.append(await known.statuses.get())
        front.is_ready = True  # no change
        front.refuse_calls()
        statuses.append(await known.statuses.get())
        assert known.statuses.empty()
        assert unknown.statuses.empty()
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return statuses

    kind = health_pb2.HealthCheckResponse
    assert asyncio.run(asyncio.wait_for(watched(), timeout=10)) == [
        kind.NOT_SERVING,
        kind.SERVICE_UNKNOWN,
        kind.SERVING,
        kind.NOT_SERVING,
    ]
    assert front.watches._wakes == {}
