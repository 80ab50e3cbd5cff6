"""Queue groups over three real nodes, whose owner is killed again and again.

Nothing that was answered is lost: a message whose publish was answered ends acknowledged or dead,
an ack that was answered is final, and a dead letter is there once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import NewTopic

from .cluster import Cluster
from .waiting import eventually

TOPIC = "work"
GRAVE = "work.dlq"
GROUP = "workers"
PARTITIONS = 3
CONSUMERS = 3
MESSAGES = 1_500
KILLS = 2
VISIBILITY_MS = 2_000

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    # With one partition of delivery state its leader owns every group.
    cluster = Cluster(tmp_path, settings={"delivery.partitions": 1})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def create(cluster: Cluster, topic: str, partitions: int) -> None:
    wanted = NewTopic(topic, partitions, replication_factor=3, config={"min.insync.replicas": "2"})
    for future in cluster.admin.create_topics([wanted]).values():
        future.result(timeout=30)
    cluster.until_in_sync(topic)


def until_everywhere(cluster: Cluster) -> None:
    """Wait until every node has delivery state: a cluster forms with those who come first."""

    def is_everywhere() -> bool:
        found = cluster.admin.list_topics("__delivery", timeout=20).topics["__delivery"]
        return all(len(one.isrs) == len(cluster.nodes) for one in found.partitions.values())

    eventually(is_everywhere, because="delivery state is on every node")


class Caller:
    """Asks one node after the other until one has an answer."""

    def __init__(self, cluster: Cluster, first: int) -> None:
        self._cluster = cluster
        self._at = first
        self.refused = ""
        self._client = httpx.Client(timeout=10)

    def call(self, method: str, path: str, **arguments: Any) -> httpx.Response | None:
        """The answer, unless the node has none: then it is another one's turn."""
        nodes = list(self._cluster.nodes.values())
        node = nodes[self._at % len(nodes)]
        try:
            answer = self._client.request(method, node.http + path, **arguments)
        except (httpx.TransportError, OSError):
            answer = None
        if answer is None or answer.status_code >= 400:
            self.refused = "" if answer is None else answer.text
            self._at += 1
            return None
        return answer

    def until_answered(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            answer = eventually(lambda: self.call(method, path, **arguments), because=path)
        except AssertionError as error:
            raise AssertionError(f"the last refusal was {self.refused}") from error
        assert answer is not None
        return answer


class Workers:
    """Consumers that acknowledge most messages and reject some, whatever becomes of the nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.lock = threading.Lock()
        self.acked: set[str] = set()
        self.deliveries: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._cluster = cluster
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._consume, args=(number,)) for number in range(CONSUMERS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _consume(self, number: int) -> None:
        chance, caller = random.Random(number), Caller(self._cluster, number)
        body = {
            "topic": TOPIC,
            "max_messages": 20,
            "wait_ms": 300,
            "visibility_ms": VISIBILITY_MS,
            "consumer": f"consumer-{number}",
        }
        while not self._over.is_set():
            answer = caller.call("POST", f"/v1/groups/{GROUP}/receive", json=body)
            if answer is None:
                self._over.wait(0.05)
                continue
            messages = answer.json()["messages"]
            self._note(messages)
            if messages:
                how = "reject" if chance.random() < 0.1 else "ack"
                self._settle(caller, how, messages)

    def _note(self, messages: list[dict[str, Any]]) -> None:
        with self.lock:
            for message in messages:
                value = message["value"]
                self.deliveries[value] += 1
                if value in self.acked:
                    self.wrong.append(f"{value} came again after its ack was answered")

    def _settle(self, caller: Caller, how: str, messages: list[dict[str, Any]]) -> None:
        receipts = {"receipts": [message["receipt"] for message in messages]}
        answer = caller.call("POST", f"/v1/groups/{GROUP}/{how}", json=receipts)
        if answer is None or how != "ack":
            return  # It may have been done or not: both are right.
        with self.lock:
            for message, result in zip(messages, answer.json()["results"], strict=True):
                if "problem" not in result:
                    self.acked.add(message["value"])


def publish(cluster: Cluster, acked: set[str], over: threading.Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "log_level": 2,
        }
    )

    def done(error: KafkaError | None, message: Any) -> None:
        if error is None:
            acked.add(message.value().decode())

    for number in range(MESSAGES):
        value = str(number).encode()
        producer.produce(TOPIC, value, key=value, on_delivery=done)
        producer.poll(0)
        if number % 20 == 0:
            over.wait(0.1)
    producer.flush(60)


def read_all(cluster: Cluster, topic: str) -> list[str]:
    """Every value in a topic, as a Kafka client reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"reader-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    ended: set[int] = set()
    try:
        for _ in range(MESSAGES * 3):
            message = consumer.poll(10)
            if message is None or len(ended) == PARTITIONS:
                break
            error, value, number = message.error(), message.value(), message.partition()
            if error is None:
                values.append((value or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF and number is not None:
                ended.add(number)
    finally:
        consumer.close()
    return values


def test_nothing_that_was_answered_is_lost_when_the_owner_is_killed(cluster: Cluster) -> None:
    create(cluster, TOPIC, PARTITIONS)
    caller = Caller(cluster, 0)
    caller.until_answered(
        "PUT",
        f"/v1/groups/{GROUP}",
        json={"kind": "queue", "settings": {"deliveries_max": 1000, "backoff_ms": 100}},
    )
    until_everywhere(cluster)
    published: set[str] = set()
    over = threading.Event()
    publisher = threading.Thread(target=publish, args=(cluster, published, over))
    workers = Workers(cluster)
    try:
        publisher.start()
        for _ in range(KILLS):
            count = len(workers.acked)
            eventually(lambda count=count: len(workers.acked) > count + 50, because="work goes on")  # type: ignore[misc]
            owner = cluster.leader_of("__delivery")
            cluster.nodes[owner].kill()
            count = len(workers.acked)
            eventually(
                lambda count=count: len(workers.acked) > count + 50,  # type: ignore[misc]
                because="another node owns the group and goes on",
            )
            cluster.nodes[owner].start()
            until_everywhere(cluster)
        publisher.join(90)
        assert len(published) == MESSAGES
        eventually(lambda: _is_drained(caller), because="the queue is empty")
    finally:
        over.set()
        workers.stop()
    assert not workers.wrong, workers.wrong[:5]
    letters = read_all(cluster, GRAVE)
    assert letters
    assert len(letters) == len(set(letters)), "a message has died twice"
    missing = published - set(workers.deliveries)
    assert not missing, f"{len(missing)} messages were never delivered"
    assert not workers.acked & set(letters), "a message was acknowledged and died"


def _is_drained(caller: Caller) -> bool:
    answer = caller.call("GET", f"/v1/groups/{GROUP}/stats", params={"topic": TOPIC})
    if answer is None:
        return False
    stats = answer.json()
    return bool(stats["ready"] + stats["in_flight"] + stats["retrying"] == 0)
