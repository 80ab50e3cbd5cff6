"""A node that stops ends all calls that may last, also those that are just beginning."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.wire.carrier.problems import NodeStopping
from goqueue.wire.grpc.front_end import LISTENER, Connection, FrontEnd, Limits
from goqueue.wire.grpc.routes import Streaming, Wire
from goqueue.wire.grpc.server import _handler_of
from tests.unit.broker.node import Node

PEER = "unix:client"


class Context:
    """The library's side of a call, which stops where the response begins."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.code: grpc.StatusCode | None = None

    def peer(self) -> str:
        return PEER

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def time_remaining(self) -> None:
        return None

    async def send_initial_metadata(self, _: object) -> None:
        self.has_begun.set()
        await self.may_go_on.wait()

    async def abort(self, code: grpc.StatusCode, _: str, __: object) -> None:
        self.code = code
        raise RuntimeError("the library ends the handler with an exception")


async def never_ends(_: FrontEnd, __: Any, ___: Wire) -> None:
    await asyncio.Event().wait()


def test_a_call_that_begins_while_the_node_stops_is_refused() -> None:
    front = FrontEnd(Node().broker.gate, Limits())
    client = ConnectedClient("10.0.0.1", ListenerRules(LISTENER))
    front.connections[PEER] = Connection(front, client)
    handler = _handler_of(front, Streaming("service", "Follow", never_ends)).stream_stream

    async def stopped() -> grpc.StatusCode | None:
        context = Context()
        serving = asyncio.create_task(handler(None, context))
        await context.has_begun.wait()
        front.is_stopping = True
        front.end_calls(NodeStopping())
        context.may_go_on.set()
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(serving, timeout=10)
        return context.code

    assert asyncio.run(stopped()) is grpc.StatusCode.UNAVAILABLE
    assert not front.calls
