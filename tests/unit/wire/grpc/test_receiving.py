"""Receive streams of clients over their quota."""

from __future__ import annotations

import asyncio

from goqueue.model.session import ConnectedClient, ListenerRules, Session
from goqueue.wire.grpc.calls import Call
from goqueue.wire.grpc.front_end import LISTENER, Connection, FrontEnd, Limits
from goqueue.wire.grpc.messages import consume_service_pb2 as bodies
from goqueue.wire.grpc.streams import receiving
from tests.unit.wire.kafka.client import Client
from tests.unit.wire.kafka.test_quotas import limit

GROUP = "workers"


class Requests:
    """The requests of one stream, which then stays open."""

    def __init__(self, *requests: bodies.ReceiveRequest) -> None:
        self._left = [one.SerializeToString() for one in requests]
        self.all_read = asyncio.Event()

    async def read(self) -> bytes | None:
        if self._left:
            return self._left.pop(0)
        self.all_read.set()
        await asyncio.Event().wait()
        return None

    async def write(self, data: bytes) -> None:
        """Take a response, as a client does that reads all of them."""


def test_a_request_that_waits_for_a_quota_counts_against_the_memory_of_requests() -> None:
    client = Client()
    node = client.node
    node.host_groups()
    node.wait(node.broker.queues.groups.create(GROUP, {}))
    front = FrontEnd(node.broker.gate, Limits())
    connection = Connection(front, ConnectedClient("10.0.0.1", ListenerRules(LISTENER)))
    start = bodies.ReceiveStart(group=GROUP, topic=client.subject.topic)
    large = bodies.ReceiveRequest(number=1, ack=["r" * 200] * 1_000)

    async def streamed() -> tuple[int, int]:
        wire = Requests(bodies.ReceiveRequest(start=start), *[large] * 100)
        call = Call(Session(LISTENER), connection)
        stream = asyncio.create_task(receiving.receive(front, call, wire))
        for _ in range(100):
            await asyncio.sleep(0)  # all that can happen without waiting
        assert not stream.done(), stream.exception()
        assert not wire.all_read.is_set(), "it does not wait"
        waiting = front.intake.bytes_total
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        return waiting, front.intake.bytes_total

    limit(client, {"user": None}, request_rate=1)
    waiting, left = asyncio.run(asyncio.wait_for(streamed(), timeout=10))
    assert waiting >= large.ByteSize()
    assert left == 0
