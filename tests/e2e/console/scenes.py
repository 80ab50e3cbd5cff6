"""What tests of the console put into a node: messages, and consumers that have some of them."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka

from tests.e2e.console.browser import Api
from tests.integration.process import Broker

# Markup, a character that reverses the text after it, one without width, and a control character.
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe\u200b\x07"
# The same as the console shows it: every character that is not seen has its number.
HOSTILE_SHOWN = "<img src=x onerror=alert(1)>U+202Egnp.exeU+200BU+0007"


def fill(api: Api, topic: str, count: int) -> None:
    """Publish JSON messages with ten keys."""
    messages = [{"key": f"key-{one % 10}", "json": {"number": one}} for one in range(count)]
    assert api.post(f"/v1/topics/{topic}/batch", {"messages": messages})["failed"] == 0


def receive(
    api: Api, group: str, topic: str, count: int = 1, consumer: str = "worker"
) -> list[dict[str, Any]]:
    """Receive messages as a consumer of a queue group, with leases of ten minutes."""
    body = {
        "topic": topic,
        "max_messages": count,
        "consumer": consumer,
        "visibility_ms": 600_000,
        "wait_ms": 5_000,
    }
    messages: list[dict[str, Any]] = api.post(f"/v1/groups/{group}/receive", body)["messages"]
    return messages


def reject(api: Api, group: str, messages: list[dict[str, Any]], reason: str) -> None:
    """Make dead letters of messages that a consumer has."""
    receipts = [one["receipt"] for one in messages]
    body = {"receipts": receipts, "reason": reason}
    assert api.post(f"/v1/groups/{group}/reject", body)["failed"] == 0


def queue_stats(api: Api, group: str, topic: str) -> Any:
    return api.get(f"/v1/groups/{group}/stats", topic=topic)


def produce(
    broker: Broker,
    topic: str,
    messages: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int, int]],
    in_batches_of: int = 1000,
) -> None:
    """Write (key, value, headers, time, partition) with a stock Kafka client."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for number, (key, value, headers, timestamp, partition) in enumerate(messages, 1):
        producer.produce(
            topic,
            key=key,
            value=value,
            headers=list(headers),
            timestamp=timestamp or int(time.time() * 1000),
            partition=partition,
        )
        if number % in_batches_of == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0
