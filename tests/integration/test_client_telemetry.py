"""Stock clients report what they measure, without being told to."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from .conftest import StartBroker
from .otlp_receiver import Received, Receiver
from .process import Broker
from .waiting import eventually

pytestmark = pytest.mark.single_node("counts what one node did")
SETTINGS = {
    "metrics.client_interval_ms": "1s",
    "metrics.otlp_interval_ms": "1s",
    "groups.initial_rebalance_delay_ms": 0,
}
SOFTWARE = {"software": "confluent-kafka-python"}
MESSAGES = 20
PRODUCER_LATENCY = "goqueue_client_producer_request_latency_seconds"
PRODUCER_LATENCY_MAX = "goqueue_client_producer_request_latency_max_seconds"


def produced(broker: Broker, **settings: object) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for _ in range(MESSAGES):
        producer.produce("orders", b"hello")
    assert producer.flush(10) == 0
    return producer


def observed(export: Received, name: str) -> tuple[int, float]:
    """How often clients have reported an average, and the sum of these averages."""
    found = export.metrics.get(name)
    if found is None:
        return 0, 0.0
    [point] = found.histogram.data_points
    return int(point.count), float(point.sum)


def test_a_producer_and_a_consumer_report_what_they_see(start_broker: StartBroker) -> None:
    with Receiver() as receiver:
        broker = start_broker({**SETTINGS, "metrics.otlp_endpoint": receiver.address})
        producers = [produced(broker)]
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "shop",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])

        def reports() -> Received | None:
            """The last export, once both clients have reported all that is looked at below."""
            producers[0].produce("orders", b"more")
            producers[0].flush(10)
            consumer.poll(0.1)
            if not receiver.received:
                return None
            last = receiver.received[-1]
            is_whole = (
                last.number("goqueue_client_instances", **SOFTWARE) == 2
                and observed(last, PRODUCER_LATENCY)[0] >= 2
                and observed(last, "goqueue_client_consumer_request_latency_seconds")[0] >= 2
                and last.number("goqueue_client_consumer_assigned_partitions", **SOFTWARE)
                is not None
                and (last.number(PRODUCER_LATENCY_MAX, **SOFTWARE) or 0) > 0
                and (last.number("goqueue_client_reports_total", outcome="accepted") or 0) >= 4
            )
            return last if is_whole else None

        last = eventually(reports)
        assert last is not None
        count, total = observed(last, PRODUCER_LATENCY)
        assert 0 < total / count < 10
        # Not `too_early`: a node that was busy when one push arrived finds the next one early.
        for outcome in ("invalid", "too_large", "unsupported_compression"):
            assert last.number("goqueue_client_reports_total", outcome=outcome) is None
        consumer.close()
        producers.clear()  # A producer ends when nobody refers to it.
        eventually(
            lambda: receiver.received[-1].number("goqueue_client_instances", **SOFTWARE) is None
        )


def test_a_client_may_decline_and_so_may_a_node(start_broker: StartBroker) -> None:
    with Receiver() as receiver:
        broker = start_broker({**SETTINGS, "metrics.otlp_endpoint": receiver.address})
        quiet = produced(broker, **{"enable.metrics.push": False})
        eventually(lambda: len(receiver.received) >= 4)
        assert "goqueue_client_instances" not in receiver.received[-1].metrics
        del quiet
    broker = start_broker({"metrics.client_telemetry": "off"})
    produced(broker)
    assert "failed" not in broker.log_text
