"""Metrics that clients report of themselves (KIP-714): what they are asked for, and their reports.

No permission is needed, as in Kafka: a client says nothing that it is not asked for, and what it
says is only added up. Names of clients are not exported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from goqueue.config import MetricsSettings
from goqueue.loop.clock import Clock
from goqueue.metrics import Registry, Samples
from goqueue.metrics import catalogue_of_clients as metrics
from goqueue.metrics.otlp.reading import read_points
from goqueue.metrics.telemetry.instances import Instances, Subscription, Verdict
from goqueue.metrics.telemetry.reports import GAUGES, RULES, How, Report, report_of
from goqueue.model.compression import Compression, codec_of, decompress
from goqueue.model.errors import (
    CorruptBatch,
    MalformedRequest,
    UnpacksTooLarge,
    UnsupportedCompression,
)

__all__ = ["ClientTelemetry", "Subscription", "Verdict"]

UNPACKED_BYTES_MAX = 1 << 20  # of a report
SOFTWARE_MAX = 50  # names of client libraries; all others are counted together
# Most preferred first; a client may also send without compression.
COMPRESSIONS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)

_OTHER = "(other)"
_UNKNOWN = "unknown"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")  # KIP-511
_COMPRESSION_BITS = 7


class ClientTelemetry:
    """The clients that report metrics to this node."""

    def __init__(
        self, clock: Clock, random: Random, registry: Registry, settings: MetricsSettings
    ) -> None:
        self.subscription = Subscription(
            settings.client_interval_ms, settings.client_bytes_max, settings.client_metrics
        )
        self._clock = clock
        self._registry = registry
        self._instances = Instances(self.subscription, random)
        self._software: set[str] = set()
        registry.collect(self.collect)

    def subscribe(self, instance_id: bytes, software: str) -> tuple[bytes, Verdict]:
        """A client asks what it should report; return its id, a new one if it has none."""
        return self._instances.ask(instance_id, self._known(software), self._clock.now_ms())

    def push(
        self,
        instance_id: bytes,
        software: str,
        *,
        subscription_id: int,
        compression: int,
        data: bytes,
        is_last: bool,
    ) -> Verdict:
        """Take a report of a client."""
        software = self._known(software)
        verdict = self._instances.admit(
            instance_id,
            software,
            subscription_id=subscription_id,
            size=len(data),
            is_last=is_last,
            now_ms=self._clock.now_ms(),
        )
        if verdict is Verdict.ACCEPTED and data:
            verdict, report = self._read(data, compression)
            self._instances.note(instance_id, verdict, report.values)
            self._count(report, software)
            self._registry.counter(metrics.CLIENT_REPORT_BYTES).value += len(data)
        self._registry.counter(metrics.CLIENT_REPORTS, verdict).value += 1
        return verdict

    def collect(self, samples: Samples) -> Iterator[None]:
        """Put together what clients have reported last."""
        for instance in self._instances.alive(self._clock.now_ms()):
            software = instance.software
            samples.add(metrics.CLIENT_INSTANCES, 1, software)
            for metric, value in instance.values.items():
                how = GAUGES[metric]
                if how is How.ADDED:
                    samples.add(metric, value, software)
                elif how is How.SMALLEST:
                    samples.minimum(metric, value, software)
                else:
                    samples.maximum(metric, value, software)
            yield

    def _read(self, data: bytes, compression: int) -> tuple[Verdict, Report]:
        try:
            if compression & ~_COMPRESSION_BITS:
                raise UnsupportedCompression(f"There is no compression {compression}.")
            plain = decompress(codec_of(compression), data, bytes_max=UNPACKED_BYTES_MAX)
            return Verdict.ACCEPTED, report_of(read_points(plain, RULES.__contains__))
        except UnsupportedCompression:
            verdict = Verdict.UNSUPPORTED_COMPRESSION
        except UnpacksTooLarge:
            verdict = Verdict.TOO_LARGE
        except (CorruptBatch, MalformedRequest):
            verdict = Verdict.INVALID
        return verdict, report_of(())

    def _count(self, report: Report, software: str) -> None:
        for metric, value in report.observed:
            self._registry.histogram(metric, software).observe(value)
        for metric, value in report.counted:
            self._registry.counter(metric, software).value += value

    def _known(self, software: str) -> str:
        """The name of a client library for metrics, which clients choose and could make up."""
        if not _NAME.fullmatch(software):
            return _UNKNOWN
        if software not in self._software:
            if len(self._software) >= SOFTWARE_MAX:
                return _OTHER
            self._software.add(software)
        return software
