"""Apache Kafka in the place of GoQueue, so that the tests can be tested.

Settings are translated by name. One that Kafka does not have skips the test that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

KAFKA_NAMES = {
    "topics.partitions": "num.partitions",
    "topics.auto_create": "auto.create.topics.enable",
    "storage.segment_bytes": "log.segment.bytes",
    "storage.retention_check_ms": "log.retention.check.interval.ms",
    "compaction.check_ms": "log.cleaner.backoff.ms",
    "groups.session_ms_min": "group.min.session.timeout.ms",
    "groups.consumer_heartbeat_ms": "group.consumer.heartbeat.interval.ms",
    "groups.consumer_session_ms": "group.consumer.session.timeout.ms",
    "groups.initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "storage.fsync": None,  # Kafka relies on the page cache, which outlives a killed process
    "listeners.http_hosts": None,  # Kafka has no HTTP
}

# Kafka keeps a lower bound of its own under each of these.
KAFKA_BOUNDS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
}


class KafkaPeer:
    """The same face as `process.Broker`, with Apache Kafka behind it."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        from bench.peers.kafka import Kafka

        unknown = settings.keys() - KAFKA_NAMES.keys()
        if unknown:
            pytest.skip(f"Apache Kafka has no {', '.join(sorted(unknown))}")
        named = {KAFKA_NAMES[name]: str(value).lower() for name, value in settings.items()}
        properties = {name: value for name, value in named.items() if name is not None}
        self._kafka = Kafka(properties=KAFKA_BOUNDS | properties, directory=directory)

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def log_text(self) -> str:
        return self._kafka.log_text()

    @property
    def rss_bytes(self) -> int:
        pytest.skip("the memory of a JVM says nothing about its clients")

    def start(self) -> None:
        self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self._kafka.close()
