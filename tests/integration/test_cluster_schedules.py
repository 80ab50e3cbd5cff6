"""Delayed messages and schemas on three real nodes, with stock clients and nodes that die."""

from __future__ import annotations

import json
import time
from collections import Counter

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from .cluster import Cluster
from .waiting import eventually

pytestmark = pytest.mark.timeout(240)

SERVICE_UNAVAILABLE = httpx.codes.SERVICE_UNAVAILABLE
SCHEMA = json.dumps({"type": "object", "properties": {"age": {"type": "integer"}}})


def create(cluster: Cluster, topic: str, **config: str) -> None:
    """A topic of which each node leads a partition."""
    wanted = NewTopic(
        topic,
        num_partitions=3,
        replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]],
        config={"min.insync.replicas": "2", **config},
    )
    for future in cluster.admin.create_topics([wanted]).values():
        future.result(timeout=30)
    cluster.until_in_sync(topic)


def until_in_sync(cluster: Cluster) -> None:
    """Wait until any node may die again without harm."""
    for topic in ("orders", "__scheduled", "__consumer_offsets"):
        cluster.until_in_sync(topic)


def send_delayed(cluster: Cluster, topic: str, delays_ms: list[int]) -> dict[bytes, int]:
    """Values that were acknowledged, with the times before which they must not appear."""
    due_ms: dict[bytes, int] = {}
    failures: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2}
    )

    def done(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    for number, delay_ms in enumerate(delays_ms):
        value = b"%d" % number
        due_ms[value] = time.time_ns() // 1_000_000 + delay_ms
        producer.produce(
            topic,
            value,
            key=value,
            headers=[("goqueue-delay-ms", b"%d" % delay_ms)],
            on_delivery=done,
        )
    assert producer.flush(60) == 0
    assert failures == []
    return due_ms


def read(cluster: Cluster, topic: str, count: int) -> list[Message]:
    """At least `count` messages of a topic, and whatever comes right after."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    found: list[Message] = []
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        some = [one for one in consumer.consume(1000, 1.0) if one.error() is None]
        found += some
        if not some and len(found) >= count:
            break
    consumer.close()
    return found


def released(cluster: Cluster, topic: str) -> int:
    """How many messages a topic has by now."""
    numbers = cluster.admin.list_topics(topic, timeout=20).topics[topic].partitions
    ends = cluster.admin.list_offsets(
        {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
    )
    return sum(future.result(timeout=20).offset for future in ends.values())


def check(found: list[Message], due_ms: dict[bytes, int]) -> None:
    counts = Counter(message.value() for message in found)
    lost = set(due_ms) - set(counts)
    assert not lost, f"{len(lost)} of {len(due_ms)} delayed messages are lost"
    assert set(counts.values()) == {1}, "a delayed message appeared twice"
    for message in found:
        assert message.timestamp()[1] >= due_ms[message.value() or b""], "a message was early"


def test_messages_outlive_the_nodes_that_keep_them(cluster: Cluster) -> None:
    create(cluster, "orders")
    until_in_sync(cluster)
    # From before the crash to long after it.
    due_ms = send_delayed(cluster, "orders", [500 + 20 * number for number in range(600)])
    owner = cluster.leader_of("__scheduled", 0)
    eventually(lambda: released(cluster, "orders") > 0, because="the first are released")
    cluster.nodes[owner].kill()
    eventually(
        lambda: cluster.leader_of("__scheduled", 0) not in (-1, owner),
        because="another node owns the messages",
    )
    before = released(cluster, "orders")
    eventually(lambda: released(cluster, "orders") > before, because="another node releases")
    cluster.nodes[owner].start()
    until_in_sync(cluster)
    second = cluster.leader_of("__scheduled", 1)
    cluster.nodes[second].kill()
    found = read(cluster, "orders", len(due_ms))
    check(found, due_ms)


def test_a_rolling_restart_releases_everything_once(cluster: Cluster) -> None:
    create(cluster, "orders")
    due_ms = send_delayed(cluster, "orders", [300 + 25 * number for number in range(500)])
    for node in cluster.nodes.values():
        node.restart()
        until_in_sync(cluster)
    check(read(cluster, "orders", len(due_ms)), due_ms)


def register(cluster: Cluster, node: int, subject: str) -> int:
    """Register the schema, again while too few copies are in sync; its id."""
    url = f"{cluster.nodes[node].registry}/subjects/{subject}/versions"

    def attempt() -> httpx.Response | None:
        answer = httpx.post(url, json={"schema": SCHEMA, "schemaType": "JSON"}, timeout=20)
        return None if answer.status_code == SERVICE_UNAVAILABLE else answer

    answer = eventually(attempt, because="the schema is registered")
    assert answer is not None
    assert answer.status_code == httpx.codes.OK, answer.text
    return int(answer.json()["id"])


def test_schemas_of_one_node_are_read_and_asked_for_by_all(cluster: Cluster) -> None:
    create(cluster, "users", **{"schema.validation": "value"})
    cluster.until_in_sync("__schemas")
    owner = cluster.leader_of("__schemas")
    schema_id = register(cluster, owner, "users-value")
    for node in cluster.nodes.values():
        answer = httpx.get(f"{node.registry}/schemas/ids/{schema_id}", timeout=20)
        assert answer.status_code == 200, answer.text
        assert json.loads(answer.json()["schema"]) == json.loads(SCHEMA)
    assert {cluster.leader_of("users", number) for number in range(3)} == {1, 2, 3}
    frame = b"\x00" + schema_id.to_bytes(4, "big")
    for number in range(3):
        assert _send(cluster, "users", number, frame + b'{"age": 7}') is None
        refusal = _send(cluster, "users", number, frame + b'{"age": "seven"}')
        assert refusal is not None
        unknown = _send(cluster, "users", number, b"\x00" + (999).to_bytes(4, "big") + b"{}")
        assert unknown is not None
        assert unknown.code() == refusal.code()
    cluster.nodes[owner].kill()
    eventually(
        lambda: cluster.leader_of("__schemas") not in (-1, owner),
        because="another node takes schemas",
    )
    another = register(cluster, cluster.leader_of("__schemas"), "other-value")
    assert another == schema_id  # It says the same, so it has the same id.


def _send(cluster: Cluster, topic: str, partition: int, value: bytes) -> KafkaError | None:
    """Produce one value with retries, as clients do; why it was refused, if it was."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    found: list[KafkaError | None] = []
    producer.produce(
        topic, value, partition=partition, on_delivery=lambda error, _: found.append(error)
    )
    assert producer.flush(30) == 0
    return found[0]
