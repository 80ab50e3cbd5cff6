"""Journeys of messages that come and go over gRPC, and the trace that they belong to."""

from __future__ import annotations

from goqueue.client.http import Client as HttpClient
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from tests.integration.process import Broker
from tests.integration.waiting import eventually

from .calls import Rpc, Stream, messages

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def settled(stream: Stream, request: consuming.ReceiveRequest) -> list[consuming.ReceivedMessage]:
    """Send a request that settles; return the messages that come before its outcome."""
    stream.send(request)
    found: list[consuming.ReceivedMessage] = []
    while not (response := stream.next()).settlements:
        found += response.messages
    assert not response.settlements[0].errors
    return found


def test_a_journey_over_streams_is_recorded_with_its_trace(
    node: Broker, rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    rpc.metadata = (("traceparent", PARENT),)
    publisher = rpc.stream(rpc.publishing.PublishStream)
    publisher.send(
        publishing.PublishStreamRequest(number=1, topic=name, messages=messages(b"one", b"two"))
    )
    assert list(publisher.next().report.offsets) == [0, 1]
    publisher.half_close()
    start = consuming.ReceiveStart(group=name, topic=name, consumer="worker-7")
    receiver = rpc.stream(rpc.consuming.Receive, consuming.ReceiveRequest(start=start, credit=2))
    first, second = receiver.next().messages
    assert {header.name: header.value for header in first.headers} == {
        "traceparent": PARENT.encode()
    }
    request = consuming.ReceiveRequest(number=1, credit=1)
    request.nack.add(receipts=[first.receipt], delay_ms=0)
    again = settled(receiver, request) or receiver.next().messages
    assert [(one.value, one.attempt) for one in again] == [(b"one", 2)]
    request = consuming.ReceiveRequest(number=2, ack=[again[0].receipt])
    request.reject.add(receipts=[second.receipt], reason="bad")
    settled(receiver, request)
    receiver.close()
    with HttpClient(node.http) as api:

        def kinds(offset: int) -> list[str]:
            return [one.kind for one in api.journeys.get(f"{name}:0:{offset}").entries]

        whole = ["received", "stored", "delivered", "nacked", "delivered", "acked"]
        eventually(lambda: kinds(0)[-1:] == ["acked"], because="the journey has reached its end")
        assert kinds(0) == whole
        eventually(lambda: "dead_lettered" in kinds(1), because="the other was rejected")
        found = api.journeys.get(f"{name}:0:0")
        assert [one.consumer for one in found.entries if one.kind == "delivered"] == [
            "worker-7",
            "worker-7",
        ]
        listed = api.journeys.list_page(trace_id=TRACE, topic=name)
        assert len(listed.journeys) == 2


def test_a_trace_that_is_none_is_ignored(rpc: Rpc, name: str) -> None:
    rpc.create(name)
    rpc.metadata = (("traceparent", "00-nonsense"),)
    rpc.publish(name, b"one")
    [message] = rpc.pull(name, name)
    assert not message.headers
