"""Producers whose clocks are ahead of the broker's: what is refused, taken, and removed in time."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Producer

from .topics import watermarks
from .waiting import eventually

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def _write(bootstrap: str, topic: str, *, ahead_ms: int) -> KafkaError | None:
    reports: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 30_000})
    now_ms = time.time_ns() // 1_000_000
    producer.produce(
        topic,
        b"from the future",
        timestamp=now_ms + ahead_ms,
        on_delivery=lambda error, _: reports.append(error),
    )
    producer.flush(30)
    (error,) = reports
    return error


def test_an_hour_ahead_is_the_limit_unless_a_topic_says_otherwise(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """As in Apache Kafka, which the same test may be run against."""
    topic = new_topic()
    assert _write(bootstrap, topic, ahead_ms=HOUR_MS - MINUTE_MS) is None
    error = _write(bootstrap, topic, ahead_ms=HOUR_MS + MINUTE_MS)
    assert error is not None
    assert error.code() == KafkaError.INVALID_TIMESTAMP
    assert not error.retriable()
    patient = new_topic(**{"message.timestamp.after.max.ms": str(100 * HOUR_MS)})
    assert _write(bootstrap, patient, ahead_ms=50 * HOUR_MS) is None


def test_a_topic_with_append_time_takes_any_clock_and_forgets_in_time(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "1", "segment.ms": "1"}
    topic = new_topic(**config)
    assert _write(bootstrap, topic, ahead_ms=50 * HOUR_MS) is None
    eventually(lambda: watermarks(bootstrap, topic)[0] == 1, because="it is removed", within=60)
