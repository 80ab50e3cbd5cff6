"""Requests over gRPC are counted by call, as those of other front ends are by operation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import grpc
import pytest

from goqueue.client.http import Client, Sample
from goqueue.wire.grpc.messages import ack_service_pb2 as acking
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from tests.integration.process import Broker
from tests.integration.waiting import eventually

from .calls import LISTENER, SECONDS, Rpc, messages

DURATION, ERRORS = "goqueue_request_duration_seconds", "goqueue_request_errors_total"
TRACE, OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Broker]:
    """A node of its own, because its counters are compared."""
    node = Broker(tmp_path, {"groups.initial_rebalance_delay_ms": 0, **LISTENER})
    try:
        node.start()
        yield node
    finally:
        node.close()


def samples(node: Broker, name: str) -> list[tuple[dict[str, str], float]]:
    """The samples of a metric at the gRPC listener, with their labels."""
    with Client(node.http) as client:
        found: list[Sample] = client.node.metrics()
    labelled = [(dict(one.labels), one.value) for one in found if one.name == name]
    return [(labels, value) for labels, value in labelled if labels["listener"] == "grpc"]


def requests_of(node: Broker) -> dict[str, float]:
    return {labels["api"]: value for labels, value in samples(node, f"{DURATION}_count") if value}


def errors_of(node: Broker) -> dict[tuple[str, str], float]:
    return {(labels["api"], labels["code"]): value for labels, value in samples(node, ERRORS)}


def traces_of(node: Broker, api: str) -> set[str]:
    """The traces that the durations of a call lead to, in OpenMetrics."""
    accepting = {"accept": "application/openmetrics-text; version=1.0.0"}
    with urlopen(Request(f"{node.http}/metrics", headers=accepting), timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{DURATION}_bucket\{{.*api="{api}".*trace_id="(\w+)"', text, re.MULTILINE)
    return set(found)


def parent(trace: str, *, sampled: bool = True) -> str:
    return f"00-{trace}-b7ad6b7169203331-0{int(sampled)}"


def test_calls_are_counted_with_the_codes_of_their_errors(
    node: Broker, rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    rpc.publish(name, b"one")
    bad = [shared.OutgoingMessage(value=b"x", partition=77), *messages(b"two")]
    rpc.call(rpc.publishing.Publish, publishing.PublishRequest(topic=name, messages=bad))
    receipts = [one.receipt for one in rpc.pull("g", name)]
    refused = rpc.call(rpc.acks.Ack, acking.AckRequest(group="g", receipts=[*receipts, "nonsense"]))
    [error] = refused.errors
    with pytest.raises(grpc.RpcError):
        rpc.call(rpc.consuming.Read, consuming.ReadRequest(topic="nowhere"))
    with pytest.raises(grpc.RpcError):
        rpc.channel.unary_unary("/goqueue.v1.PublishService/Nothing")(b"", timeout=SECONDS)
    assert requests_of(node) == {
        "CreateTopic": 1,
        "Publish": 2,
        "Pull": 1,
        "Ack": 1,
        "Read": 1,
        "unknown": 1,
    }
    assert errors_of(node) == {
        ("Publish", "unknown_partition"): 1,
        ("Ack", error.error.reason): 1,
        ("Read", "unknown_topic"): 1,
        ("unknown", "unknown_route"): 1,
    }


def test_streams_are_counted_when_they_begin_or_by_their_requests(
    node: Broker, rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    stream = rpc.stream(rpc.publishing.PublishStream)
    bad = [shared.OutgoingMessage(value=b"x", partition=77)]
    stream.send(
        publishing.PublishStreamRequest(number=1, topic=name, messages=messages(b"a", b"b"))
    )
    stream.send(publishing.PublishStreamRequest(number=2, topic=name, messages=bad))
    assert {stream.next().number for _ in range(2)} == {1, 2}
    stream.close()
    follow = rpc.consuming.Follow(
        consuming.FollowRequest(topic=name, **{"from": consuming.Position(offset=0)}, partition=0),
        timeout=SECONDS,
    )
    next(follow)
    assert requests_of(node) == {"CreateTopic": 1, "PublishStream": 2, "Follow": 1}
    follow.cancel()
    assert errors_of(node) == {("PublishStream", "unknown_partition"): 1}
    first = consuming.ReceiveRequest(start=consuming.ReceiveStart(group="g", topic=name), credit=10)
    receiving = rpc.stream(rpc.consuming.Receive, first)
    receipts = [one.receipt for one in receiving.next().messages]
    receiving.send(consuming.ReceiveRequest(number=1, ack=[*receipts, "nonsense"]))
    settled = eventually(lambda: receiving.next().settlements, because="messages are settled")
    receiving.close()
    [error] = settled[0].errors
    assert requests_of(node)["Receive"] == 1
    assert errors_of(node)["Receive", error.error.reason] == 1


def test_the_duration_leads_to_the_trace_of_the_call_or_its_first_message(
    node: Broker, rpc: Rpc, name: str
) -> None:
    rpc.create(name)
    rpc.metadata = (("traceparent", parent(TRACE, sampled=False)),)
    rpc.publish(name, b"not sampled")
    assert not traces_of(node, "Publish")
    rpc.metadata = (("traceparent", parent(TRACE)),)
    rpc.publish(name, b"sampled")
    assert traces_of(node, "Publish") == {TRACE}
    rpc.metadata = ()
    header = shared.Header(name="traceparent", value=parent(OTHER_TRACE).encode())
    traced = [shared.OutgoingMessage(value=b"x", headers=[header])]
    stream = rpc.stream(rpc.publishing.PublishStream)
    stream.send(publishing.PublishStreamRequest(number=1, topic=name, messages=traced))
    stream.next()
    stream.close()
    assert traces_of(node, "PublishStream") == {OTHER_TRACE}


def test_the_wait_for_messages_is_left_out(node: Broker, rpc: Rpc, name: str) -> None:
    rpc.create(name)
    assert rpc.pull("g", name, wait_ms=3000) == []
    rpc.call(rpc.consuming.Read, consuming.ReadRequest(topic=name, wait_ms=3000))
    sums = {labels["api"]: value for labels, value in samples(node, f"{DURATION}_sum")}
    assert sums["Pull"] < 3
    assert sums["Read"] < 3
