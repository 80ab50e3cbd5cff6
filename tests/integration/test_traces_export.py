"""Nodes export journeys as traces: every wanted span arrives, whatever fails meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from goqueue import Client

from .cluster import Cluster
from .conftest import StartBroker
from .process import Broker
from .traces_receiver import TracesReceiver, value_of
from .waiting import eventually

pytestmark = pytest.mark.single_node("restarts one node")
TRACE = "0af7651916cd43dd8448eb211c80319c"
COUNT = 60


def parent(number: int, flags: str = "01") -> bytes:
    return f"00-{TRACE}-{number + 1:016x}-{flags}".encode()


def produce(broker: Broker, numbers: Iterable[int]) -> None:
    """Produce messages, of which every third one is sampled, and every third has no context."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        kind = number % 3
        headers = [("traceparent", parent(number, ("01", "00")[kind]))] if kind < 2 else []
        producer.produce("orders", f"{number}".encode(), partition=0, headers=headers)
    assert producer.flush(20) == 0


def settle(broker: Broker, count: int) -> None:
    """Acknowledge messages of a queue group; reject the one whose value is 1."""
    with Client(broker.http) as client:
        queue = client.queue("orders", group="billing")
        done = 0
        while done < count:
            for message in queue.receive(20, wait=5):
                queue.reject(message) if message.value == b"1" else queue.ack(message)
                done += 1


def stages(spans: Iterable[Span]) -> Counter[str]:
    return Counter(
        f"{one.name} {value_of(one, 'messaging.kafka.offset')}"
        for one in {span.span_id: span for span in spans}.values()
    )


def wanted(numbers: Iterable[int]) -> set[str]:
    expected: set[str] = set()
    for number in numbers:
        if number % 3 == 0 or number == 1:
            expected |= {f"{one} orders {number}" for one in ("persist", "wait", "hold")}
    return expected


def test_spans_of_sampled_messages_arrive_through_failures_and_restarts(
    start_broker: StartBroker,
) -> None:
    with TracesReceiver() as receiver:
        settings = {
            "journeys.otlp_endpoint": receiver.address,
            "journeys.otlp_headers": "authorization=Bearer%20secret",
        }
        broker = start_broker(settings)
        with Client(broker.http) as client:
            client.topics.create("orders", partitions=1)
        produce(broker, range(COUNT))
        settle(broker, COUNT)
        expected = wanted(range(COUNT)) | {"dead_letter orders 1"}
        _arrive(receiver, expected)

        receiver.status = 503
        produce(broker, range(COUNT, 2 * COUNT))
        settle(broker, COUNT)
        eventually(lambda: receiver.refused > 0)
        broker.kill()
        broker.start()
        produce(broker, range(2 * COUNT, 3 * COUNT))
        eventually(lambda: receiver.refused > 1)
        receiver.status = 200
        settle(broker, COUNT)
        expected |= wanted(range(3 * COUNT))
        _arrive(receiver, expected)
        found = stages(receiver.spans)
        assert set(found) == expected
        assert set(found.values()) == {1}, "ids follow from what spans are about"
        _check_contents(receiver)
        broker.stop()
        seen = len(receiver.spans)
        broker.start()
        produce(broker, [0])
        eventually(lambda: len(receiver.spans) > seen)
        assert len(receiver.spans) == seen + 1, "what was committed is not sent again"
        broker.stop()


def _arrive(receiver: TracesReceiver, expected: set[str]) -> None:
    try:
        eventually(lambda: expected <= set(stages(receiver.spans)), within=15)
    except AssertionError:
        assert set(stages(receiver.spans)) == expected
        raise


def _check_contents(receiver: TracesReceiver) -> None:
    assert set(receiver.paths) == {"/v1/traces"}
    assert {one["content-encoding"] for one in receiver.headers} == {"gzip"}
    assert {one["authorization"] for one in receiver.headers} == {"Bearer secret"}
    [resource] = receiver.requests[0].resource_spans
    attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert attributes["service.name"] == "goqueue"
    for span in receiver.spans:
        offset = value_of(span, "messaging.kafka.offset")
        assert isinstance(offset, int)
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if span.name.endswith(" orders") and offset % 3 < 2:
            context = span.links[0]
            assert context.trace_id.hex() == TRACE
            assert context.span_id.hex() == f"{offset + 1:016x}"
    [rejected] = [one for one in receiver.spans if one.name == "dead_letter orders"]
    assert rejected.status.code == Status.STATUS_CODE_ERROR


def test_a_ratio_of_messages_is_sent_as_children_of_nobody(start_broker: StartBroker) -> None:
    with TracesReceiver() as receiver:
        broker = start_broker(
            {
                "journeys.otlp_endpoint": receiver.address,
                "journeys.otlp_ratio": "0.1",
                "journeys.otlp_parent": "child",
            }
        )
        with Client(broker.http) as client:
            client.topics.create("orders", partitions=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(100):
            producer.produce("orders", b"x")
        producer.produce("orders", b"y", headers=[("traceparent", parent(4))])
        assert producer.flush(20) == 0
        eventually(lambda: len(receiver.spans) >= 11)
        children = [one for one in receiver.spans if one.trace_id.hex() == TRACE]
        assert [one.parent_span_id.hex() for one in children] == [f"{5:016x}"]
        assert len(receiver.spans) - len(children) == 10
        broker.stop()


def test_messages_of_open_transactions_and_schedules_are_exported(
    start_broker: StartBroker,
) -> None:
    with TracesReceiver() as receiver:
        broker = start_broker({"journeys.otlp_endpoint": receiver.address})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "one"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("orders", b"x", headers=[("traceparent", parent(0))])
        assert producer.flush(20) == 0
        eventually(lambda: receiver.spans, within=20)
        producer.commit_transaction(20)
        [persist] = receiver.spans
        assert persist.links[0].span_id == (1).to_bytes(8, "big")
        with Client(broker.http) as client:
            context = {"traceparent": parent(1).decode()}
            client.publish("orders", "later", delay=0.5, headers=context)
        eventually(lambda: len(receiver.spans) == 3, within=20)
        schedule, released = sorted(receiver.spans[1:], key=lambda one: one.start_time_unix_nano)
        assert (schedule.name, released.name) == ("schedule orders", "persist orders")
        assert [one.links[0].span_id for one in (schedule, released)] == [
            (2).to_bytes(8, "big")
        ] * 2
        assert released.span_id in [one.span_id for one in schedule.links]
        broker.stop()


@pytest.mark.timeout(240)
def test_nodes_of_a_cluster_share_the_export(tmp_path: Path) -> None:
    with TracesReceiver() as receiver:
        settings = {
            "journeys.otlp_endpoint": receiver.address,
            "journeys.partitions": 4,
            "cluster.replication_factor": 3,
        }
        cluster = Cluster(tmp_path, settings=settings)
        try:
            cluster.start()
            first, *_, last = cluster.nodes.values()
            with Client(first.http) as client:
                client.topics.create("orders", partitions=6)
            _produce_to_all(cluster.bootstrap, range(COUNT))
            eventually(lambda: len(_producers(receiver)) == COUNT, within=60)
            spans = receiver.spans
            assert len(spans) == len({one.span_id for one in spans}) == COUNT
            last.kill()
            _produce_to_all(cluster.bootstrap, range(COUNT, 2 * COUNT))
            eventually(lambda: len(_producers(receiver)) == 2 * COUNT, within=60)
            assert len({one.span_id for one in receiver.spans}) == 2 * COUNT
            exporters = {
                one.value.string_value
                for request in receiver.requests
                for one in request.resource_spans[0].resource.attributes
                if one.key == "goqueue.node.id"
            }
            assert len(exporters) > 1
        finally:
            cluster.close()


def _produce_to_all(bootstrap: str, numbers: Iterable[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in numbers:
        headers = [("traceparent", parent(number))]
        producer.produce("orders", b"x", partition=number % 6, headers=headers)
    assert producer.flush(60) == 0


def _producers(receiver: TracesReceiver) -> set[bytes]:
    """The spans of producers that persisted messages are linked to."""
    return {
        one.links[0].span_id for one in receiver.spans if one.name == "persist orders" and one.links
    }
