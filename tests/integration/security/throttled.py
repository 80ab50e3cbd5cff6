"""Clients that write and read as fast as a node lets them, and the rate they reach."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from goqueue.client.http import Client

QUEUED_KIB = 4 << 10


def set_quota(http: str, entity: dict[str, str | None], **limits: float | None) -> None:
    with Client(http) as client:
        client.quotas.set(entity, limits)


class Throttle:
    """The longest throttle time that librdkafka reports in its statistics."""

    def __init__(self) -> None:
        self.ms_max = 0

    def __call__(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.ms_max = max(self.ms_max, *(one["throttle"]["max"] for one in brokers), 0)


def rate_of(count: Callable[[], int], *, skipped: float, seconds: float) -> float:
    """The bytes per second that a counter gains, after the time in which the burst is used up.

    `count` lets the client work, for a short time, and returns the bytes so far.
    """
    until = time.monotonic() + skipped
    while time.monotonic() < until:
        count()
    began, before = time.monotonic(), count()
    while time.monotonic() - began < seconds:
        count()
    return (count() - before) / (time.monotonic() - began)


class Flood:
    """A producer that always has messages waiting."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        client_id: str,
        *,
        value_bytes: int = 10_000,
        **config: Any,
    ) -> None:
        self.acked_bytes = 0
        self.errors: list[str] = []
        self.throttle = Throttle()
        self._topic = topic
        self._value = b"x" * value_bytes
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "compression.type": "none",
                "batch.size": 100_000,
                "linger.ms": 5,
                "queue.buffering.max.kbytes": QUEUED_KIB,
                "statistics.interval.ms": 200,
                "stats_cb": self.throttle,
                "log_level": 2,
                **config,
            }
        )

    def work(self) -> int:
        try:
            while True:
                self._producer.produce(self._topic, self._value, on_delivery=self._delivered)
        except BufferError:
            self._producer.poll(0.005)
        return self.acked_bytes

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(5)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked_bytes += len(self._value)
        elif error.name() not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            self.errors.append(str(error))


class Reader:
    """A consumer of one partition from its start."""

    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        self.bytes = 0
        self.throttle = Throttle()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "group.id": client_id,
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 1 << 10,
                "fetch.message.max.bytes": 100_000,
                "statistics.interval.ms": 200,
                "stats_cb": self.throttle,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def work(self) -> int:
        for message in self._consumer.consume(500, 0.01):
            assert message.error() is None, message.error()
            self.bytes += len(message.value() or b"")
        return self.bytes

    def close(self) -> None:
        self._consumer.close()
