"""Clients ask which metrics are wanted, and push them (KIP-714)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)

from goqueue.metrics import Samples
from goqueue.metrics import catalogue_of_clients as metrics
from goqueue.model.compression import Compression, compress
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.api_versions import ApiVersionsRequest
from goqueue.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from goqueue.wire.kafka.messages.push_telemetry import PushTelemetryRequest
from tests.unit.wire.kafka.client import Client

INTERVAL_MS = 60_000
PRODUCER = "org.apache.kafka.producer"
CONSUMER = "org.apache.kafka.consumer"


def report(gauges: Mapping[str, float], counts: Mapping[str, int] | None = None) -> bytes:
    """What a client pushes, as the official classes write it."""
    found = [
        Metric(name=name, gauge=Gauge(data_points=[NumberDataPoint(as_double=value)]))
        for name, value in gauges.items()
    ]
    found += [
        Metric(
            name=name,
            sum=Sum(
                data_points=[NumberDataPoint(as_int=value)],
                aggregation_temporality=AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
                is_monotonic=True,
            ),
        )
        for name, value in (counts or {}).items()
    ]
    scope = ScopeMetrics(metrics=found)
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[scope])])
    return bytes(data.SerializeToString())


class Reporter:
    """A client that reports metrics."""

    def __init__(self, client: Client, software: str = "librdkafka") -> None:
        self.client = client
        self.id = bytes(16)
        self.subscription = 0
        request = ApiVersionsRequest(client_software_name=software, client_software_version="2")
        client.call("ApiVersions", request, 3)

    def ask(self) -> GetTelemetrySubscriptionsResponse:
        answer: GetTelemetrySubscriptionsResponse = self.client.call(
            "GetTelemetrySubscriptions", GetTelemetrySubscriptionsRequest(self.id)
        )
        if not answer.error_code:
            self.id, self.subscription = answer.client_instance_id, answer.subscription_id
        return answer

    def push(
        self,
        data: bytes = b"",
        *,
        compression: int = 0,
        is_last: bool = False,
        subscription: int | None = None,
    ) -> int:
        request = PushTelemetryRequest(
            self.id,
            self.subscription if subscription is None else subscription,
            is_last,
            compression,
            data,
        )
        return int(self.client.call("PushTelemetry", request).error_code)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def reporter(client: Client) -> Reporter:
    return Reporter(client)


def gauges(client: Client) -> dict[str, dict[tuple[str, ...], float]]:
    telemetry = client.node.broker.measuring.client_telemetry
    assert telemetry is not None
    samples = Samples(series_max=1_000)
    for _ in telemetry.collect(samples):
        pass
    return {metric.name: dict(values) for metric, values in samples.by_metric.items()}


def test_a_client_is_told_what_to_report(reporter: Reporter) -> None:
    answer = reporter.ask()
    assert answer.error_code == 0
    assert UUID(bytes=answer.client_instance_id).int != 0
    assert answer.push_interval_ms == INTERVAL_MS
    assert answer.delta_temporality
    assert f"{PRODUCER}.node.request.latency." in answer.requested_metrics
    assert answer.accepted_compression_types == [4, 3, 1, 2]


def test_settings_say_what_is_asked_for() -> None:
    client = Client(
        metrics__client_metrics="a.b,c",
        metrics__client_interval_ms="5s",
        metrics__client_bytes_max="2KiB",
    )
    answer = Reporter(client).ask()
    assert answer.requested_metrics == ["a.b", "c"]
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (5_000, 2_048)


def test_it_can_be_switched_off() -> None:
    client = Client(metrics__client_telemetry="off")
    assert not {71, 72} & set(client.node.front.served)
    assert client.node.broker.measuring.client_telemetry is None


def test_reports_become_metrics_by_the_software_of_the_client(
    client: Client, reporter: Reporter
) -> None:
    reporter.ask()
    data = report(
        {
            f"{PRODUCER}.node.request.latency.avg": 20.0,
            f"{PRODUCER}.node.request.latency.max": 80.0,
            f"{CONSUMER}.poll.idle.ratio.avg": 0.25,
        },
        {f"{PRODUCER}.connection.creation.total": 3},
    )
    assert reporter.push(data) == 0
    registry = client.node.broker.metrics
    latency = registry.histogram(metrics.CLIENT_PRODUCER_LATENCY, "librdkafka")
    assert (latency.count, latency.sum) == (1, pytest.approx(0.02))
    assert registry.counter(metrics.CLIENT_CONNECTIONS, "librdkafka").value == 3
    found = gauges(client)
    labels = ("librdkafka",)
    assert found["goqueue_client_instances"] == {labels: 1}
    assert found["goqueue_client_producer_request_latency_max_seconds"] == {
        labels: pytest.approx(0.08)
    }
    assert found["goqueue_client_consumer_poll_idle_min_ratio"] == {labels: 0.25}


def test_the_largest_of_all_clients_is_shown_and_partitions_are_added_up(client: Client) -> None:
    for latency, partitions in ((10.0, 3.0), (30.0, 4.0), (20.0, 5.0)):
        reporter = Reporter(client)
        reporter.ask()
        names = {
            f"{CONSUMER}.node.request.latency.max": latency,
            f"{CONSUMER}.coordinator.assigned.partitions": partitions,
        }
        assert reporter.push(report(names)) == 0
    found = gauges(client)
    labels = ("librdkafka",)
    assert found["goqueue_client_consumer_request_latency_max_seconds"][labels] == 0.03
    assert found["goqueue_client_consumer_assigned_partitions"][labels] == 12


@pytest.mark.parametrize("codec", list(Compression))
def test_reports_may_be_compressed(client: Client, reporter: Reporter, codec: Compression) -> None:
    reporter.ask()
    data = compress(codec, report({}, {f"{CONSUMER}.connection.creation.total": 5}))
    assert reporter.push(data, compression=codec) == 0
    registry = client.node.broker.metrics
    assert registry.counter(metrics.CLIENT_CONNECTIONS, "librdkafka").value == 5


@pytest.mark.parametrize(
    ("data", "compression", "code"),
    [
        (b"\xff" * 100, 0, ErrorCode.INVALID_RECORD),
        (b"garbage", 1, ErrorCode.INVALID_RECORD),
        (b"x" * (128 << 10) + b"x", 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(Compression.ZSTD, bytes(8 << 20)), 4, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(Compression.GZIP, bytes(8 << 20)), 1, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"x", 7, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"x", 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
    ids=["garbage", "bad_gzip", "large", "zstd_bomb", "gzip_bomb", "codec_7", "codec_9"],
)
def test_a_bad_report_is_refused_with_its_reason(
    client: Client, reporter: Reporter, data: bytes, compression: int, code: ErrorCode
) -> None:
    reporter.ask()
    assert reporter.push(data, compression=compression) == code
    assert gauges(client).get("goqueue_client_instances", {}) == {("librdkafka",): 1}
    client.node.run_for(INTERVAL_MS)
    assert reporter.push(report({})) == 0


def test_a_client_that_hurries_is_told_to_wait(client: Client, reporter: Reporter) -> None:
    reporter.ask()
    assert reporter.ask().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert reporter.push(report({})) == 0
    client.node.run_for(INTERVAL_MS // 2)
    assert reporter.push(report({})) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    client.node.run_for(INTERVAL_MS // 2)
    assert reporter.push(report({})) == 0


def test_a_client_with_another_subscription_asks_again_at_once(reporter: Reporter) -> None:
    reporter.ask()
    assert reporter.push(report({}), subscription=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert reporter.ask().error_code == 0
    assert reporter.push(report({})) == 0


def test_the_last_push_is_taken_at_any_time_and_ends_the_instance(
    client: Client, reporter: Reporter
) -> None:
    reporter.ask()
    assert reporter.push(report({})) == 0
    assert reporter.push(report({}), is_last=True) == 0
    assert gauges(client) == {}
    assert reporter.push(report({}), is_last=True) == ErrorCode.INVALID_REQUEST


def test_a_silent_client_is_forgotten(client: Client, reporter: Reporter) -> None:
    reporter.ask()
    reporter.push(report({f"{CONSUMER}.coordinator.assigned.partitions": 3}))
    client.node.run_for(2 * INTERVAL_MS)
    assert "goqueue_client_consumer_assigned_partitions" in gauges(client)
    client.node.run_for(INTERVAL_MS)
    assert gauges(client) == {}


def test_made_up_names_of_software_are_counted_together(client: Client) -> None:
    for number in range(60):
        reporter = Reporter(client, f"software-{number}")
        reporter.ask()
        reporter.push(report({}))
    reporter = Reporter(client, "no such: name")
    reporter.ask()
    reporter.push(report({}))
    found = gauges(client)["goqueue_client_instances"]
    assert len(found) == 52
    assert (found["(other)",], found["unknown",]) == (10, 1)


def test_pushes_are_counted_by_what_became_of_them(client: Client, reporter: Reporter) -> None:
    reporter.ask()
    reporter.push(report({}))
    reporter.push(report({}))
    registry = client.node.broker.metrics
    outcomes = {
        labels[0]: one.value
        for labels, one in registry.counters(metrics.CLIENT_REPORTS).children.items()
    }
    assert outcomes == {"accepted": 1, "too_early": 1}
