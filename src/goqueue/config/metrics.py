"""Metrics: what clients report of themselves, and the export to a collector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from goqueue.config.export_kinds import (
    METRICS_PATH,
    CollectorAddress,
    Prefixes,
    RequestHeaders,
    ResourceAttributes,
)
from goqueue.config.fields import choice, duration, setting, size
from goqueue.config.kinds import (
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    File,
    KiB,
    Line,
    MiB,
    Optional,
    Switch,
)

GZIP, NO_COMPRESSION = "gzip", "none"
_OF_CLIENTS = "org.apache.kafka"
# Those that the standard asks every client for, and how far consumers are behind.
CLIENT_METRICS = (
    f"{_OF_CLIENTS}.producer.connection.creation.total",
    f"{_OF_CLIENTS}.producer.node.request.latency.",
    f"{_OF_CLIENTS}.producer.produce.throttle.time.",
    f"{_OF_CLIENTS}.producer.record.queue.time.",
    f"{_OF_CLIENTS}.consumer.connection.creation.total",
    f"{_OF_CLIENTS}.consumer.node.request.latency.",
    f"{_OF_CLIENTS}.consumer.poll.idle.ratio.avg",
    f"{_OF_CLIENTS}.consumer.coordinator.assigned.partitions",
    f"{_OF_CLIENTS}.consumer.coordinator.commit.latency.",
    f"{_OF_CLIENTS}.consumer.coordinator.rebalance.latency.",
    f"{_OF_CLIENTS}.consumer.fetch.manager.fetch.latency.",
    f"{_OF_CLIENTS}.consumer.fetch.manager.records.lag.max",
)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What a node counts, what Kafka clients report, and the export to a collector (OTLP)."""

    enabled: bool = setting(
        True,
        Switch(),
        "count what the node does; without it `/metrics` answers 404, `goqueue top` has no "
        "figures, nothing is exported and Kafka clients are not asked for their metrics",
    )
    client_telemetry: bool = setting(
        True,
        Switch(),
        "ask Kafka clients for their metrics (KIP-714), such as the latency that they see; stock "
        "clients send them unless `enable.metrics.push` is false",
    )
    client_interval_ms: int = duration(
        MINUTE_MS,
        "how often a client sends its metrics; an earlier one is refused",
        least=SECOND_MS,
        most=HOUR_MS,
    )
    client_metrics: tuple[str, ...] = setting(
        CLIENT_METRICS,
        Prefixes(),
        "the metrics that clients are asked for, by the beginnings of their names; none if empty; "
        "what goes beyond the default is not exported",
    )
    client_bytes_max: int = size(
        128 * KiB, "size of the metrics that a client sends at once", least=KiB, most=MiB
    )
    otlp_endpoint: str = setting(
        "",
        CollectorAddress(METRICS_PATH),
        "address of a collector of OpenTelemetry to which the metrics are sent (OTLP over HTTP, "
        "protobuf); the variables `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS` and "
        "their likes are read too, if nothing else gives the setting",
    )
    otlp_headers: tuple[tuple[str, str], ...] = setting(
        (), RequestHeaders(), "headers for the collector, such as those with credentials"
    )
    otlp_interval_ms: int = duration(
        MINUTE_MS, "how often the metrics are sent to the collector", least=SECOND_MS, most=HOUR_MS
    )
    otlp_timeout_ms: int = duration(
        10 * SECOND_MS, "how long the collector may take to answer", least=100, most=MINUTE_MS
    )
    otlp_compression: str = choice(
        GZIP, (GZIP, NO_COMPRESSION), "how what is sent to the collector is compressed"
    )
    otlp_authorities: Path | None = setting(
        None,
        Optional(File()),
        "certificates of the authorities that sign that of the collector, in PEM; if empty, those "
        "of the system",
    )
    otlp_service_name: str = setting(
        "goqueue", Line(length_max=200), "the attribute `service.name` of the exported metrics"
    )
    otlp_attributes: tuple[tuple[str, str], ...] = setting(
        (), ResourceAttributes(), "further attributes of the node that exports"
    )

    @property
    def asks_clients(self) -> bool:
        """Whether Kafka clients are asked for their metrics."""
        return self.enabled and self.client_telemetry

    @property
    def exports(self) -> bool:
        """Whether the metrics are sent to a collector."""
        return self.enabled and bool(self.otlp_endpoint)
