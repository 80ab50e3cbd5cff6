"""A node exports its metrics to a collector, and says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.certificates import Authority

from .conftest import StartBroker
from .otlp_receiver import Receiver
from .waiting import eventually

pytestmark = pytest.mark.single_node("counts what one node did")
INTERVAL = {"metrics.otlp_interval_ms": "1s"}
BATCHES = 7


def test_what_clients_did_arrives(start_broker: StartBroker) -> None:
    with Receiver() as receiver:
        settings = {
            **INTERVAL,
            "metrics.otlp_endpoint": receiver.address,
            "metrics.otlp_headers": "authorization=Bearer%20secret,x-scope=one",
            "metrics.otlp_attributes": "deployment.environment=test",
        }
        broker = start_broker(settings)
        for _ in range(BATCHES):
            producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
            producer.produce("orders", b"hello")
            assert producer.flush(10) == 0

        def requests() -> int:
            if not receiver.received:
                return 0
            found = receiver.received[-1].metrics.get("goqueue_request_duration_seconds")
            points = [] if found is None else found.histogram.data_points
            for point in points:
                labels = {one.key: one.value.string_value for one in point.attributes}
                if labels == {"listener": "kafka", "api": "Produce"}:
                    return int(point.count)
            return 0

        eventually(lambda: requests() == BATCHES)
        last = receiver.received[-1]
        assert last.path == "/v1/metrics"
        assert last.headers["content-type"] == "application/x-protobuf"
        assert last.headers["content-encoding"] == "gzip"
        assert last.headers["authorization"] == "Bearer secret"
        assert last.headers["x-scope"] == "one"
        assert last.attributes["service.name"] == "goqueue"
        assert last.attributes["deployment.environment"] == "test"
        assert last.attributes["service.instance.id"].endswith("/1")
        opened = last.number("goqueue_listener_connections_opened_total", listener="kafka")
        assert opened is not None
        assert opened >= BATCHES
        assert (last.number("process_resident_memory_bytes") or 0) > 20 << 20
        assert (last.number("goqueue_storage_free_bytes") or 0) > 0
        syncs = last.metrics["goqueue_storage_sync_duration_seconds"].histogram.data_points[0]
        assert syncs.count >= 1
        assert 0 < syncs.sum < 60
        assert last.metrics["goqueue_loop_lag_seconds"].histogram.data_points[0].count >= 1
        broker.stop()
        assert "secret" not in broker.log_text


def test_a_collector_that_is_busy_is_asked_again_when_it_says(start_broker: StartBroker) -> None:
    busy = (503, {"retry-after": "1"})
    with Receiver(busy, (400, {}), busy) as receiver:
        receiver.rejected_points = 3
        broker = start_broker({**INTERVAL, "metrics.otlp_endpoint": f"{receiver.address}/custom"})

        def rejected() -> float:
            last = receiver.received[-1:]
            name = "goqueue_metrics_export_rejected_points_total"
            return last[0].number(name) or 0 if last else 0

        eventually(lambda: rejected() >= 3)
        assert receiver.refused == 3
        last = receiver.received[-1]
        assert last.path == "/custom"
        assert last.number("goqueue_metrics_exports_total", outcome="failed") == 3
        assert last.number("goqueue_metrics_exports_total", outcome="dropped") == 1
        broker.stop()
    assert broker.log_text.count("metrics cannot be exported") == 1
    assert broker.log_text.count("metrics are exported to") == 1
    assert "503 come back later" in broker.log_text


def test_a_collector_that_is_away_does_not_disturb_the_node(start_broker: StartBroker) -> None:
    with Receiver() as receiver:
        address = receiver.address
    broker = start_broker({**INTERVAL, "metrics.otlp_endpoint": address})
    eventually(lambda: "metrics cannot be exported" in broker.log_text)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"hello")
    assert producer.flush(10) == 0
    broker.stop()


def test_the_last_metrics_are_exported_when_a_node_stops(start_broker: StartBroker) -> None:
    with Receiver() as receiver:
        broker = start_broker(
            {"metrics.otlp_endpoint": receiver.address, "metrics.otlp_compression": "none"}
        )
        assert receiver.received == []
        broker.stop()
        [last] = receiver.received
        assert "content-encoding" not in last.headers
        assert last.number("process_threads") is not None


@pytest.mark.parametrize("is_trusted", [True, False])
def test_the_certificate_of_the_collector_is_checked(
    start_broker: StartBroker, tmp_path: Path, is_trusted: bool
) -> None:
    files = Authority(tmp_path / "one").sign("collector", "127.0.0.1")
    other = Authority(tmp_path / "other", "others").sign("collector", "127.0.0.1")
    receiver = Receiver()
    receiver.encrypt(files.certificate, files.key)
    with receiver:
        trusted = files if is_trusted else other
        broker = start_broker(
            {
                **INTERVAL,
                "metrics.otlp_endpoint": receiver.address,
                "metrics.otlp_authorities": trusted.authorities,
            }
        )
        if is_trusted:
            eventually(lambda: bool(receiver.received))
        else:
            eventually(lambda: "certificate verify failed" in broker.log_text)
            assert receiver.received == []
        broker.stop()
