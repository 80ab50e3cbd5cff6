"""Delayed messages and schemas on three real nodes, with stock clients and nodes that die."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

import httpx
import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from .cluster import Cluster
from .process import Broker
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


class Pipeline:
    """A stock idempotent producer with several batches in flight; many of its records are delayed.

    All go to one partition, and each is a batch of its own.
    """

    FLUSH_SECONDS = 100

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self.acked: list[bytes] = []
        self.failures: list[KafkaError] = []
        self._topic, self._partition = topic, partition
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "socket.timeout.ms": 5_000,  # so that nobody waits long for a node that is stopped
                "log_level": 2,
            }
        )

    def send(self, start: int, stop: int) -> None:
        for number in range(start, stop):
            self._producer.produce(
                self._topic,
                b"%d" % number,
                partition=self._partition,
                headers=[("goqueue-delay-ms", b"1000")] if number % 3 != 1 else [],
                on_delivery=self._done,
            )
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(self.FLUSH_SECONDS) == 0
        assert self.failures == []

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked.append(message.value() or b"")
        else:
            self.failures.append(error)


def apart(cluster: Cluster, topic: str) -> tuple[int, int]:
    """A partition whose leader keeps no delayed records, and that leader."""
    owners = {cluster.leader_of("__scheduled", number) for number in range(2)}
    for partition in range(3):
        leader = cluster.leader_of(topic, partition)
        if leader not in owners:
            return partition, leader
    raise AssertionError(f"node {owners} owns schedules and all partitions")


def _leaders(node: Broker, topic: str) -> set[int]:
    """Who leads the partitions of a topic, as this node says; others may not answer."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    found = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
    return {int(one.leader) for one in found}


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_acknowledged_delayed_records_appear_once_while_their_owner_is_away(
    cluster: Cluster, is_killed: bool
) -> None:
    create(cluster, "orders")
    until_in_sync(cluster)
    partition, leader = apart(cluster, "orders")
    owners = sorted({cluster.leader_of("__scheduled", number) for number in range(2)} - {leader})
    pipeline = Pipeline(cluster, "orders", partition)
    pipeline.send(0, 5)
    for turn, owner in enumerate(owners):
        node = cluster.nodes[owner]
        if is_killed:
            node.kill()
        else:
            node.pause()
        pipeline.send(5 + 40 * turn, 25 + 40 * turn)
        witness = cluster.nodes[leader]
        eventually(
            lambda: not _leaders(witness, "__scheduled") & {-1, owner},  # noqa: B023
            because="another node keeps delayed records",
        )
        pipeline.send(25 + 40 * turn, 45 + 40 * turn)
        if is_killed:
            node.start()
        else:
            node.resume()
        until_in_sync(cluster)
    pipeline.flush()
    count = 5 + 40 * len(owners)
    assert sorted(pipeline.acked) == sorted(b"%d" % number for number in range(count))
    found = [message.value() or b"" for message in read(cluster, "orders", count)]
    assert sorted(found) == sorted(pipeline.acked)
    plain = [int(value) for value in found if int(value) % 3 == 1]
    assert plain == sorted(plain)


def _transact(producer: Producer, partition: int, name: str, stop: Callable[[], None]) -> bool:
    """One transaction in the middle of which something happens; whether it was committed."""
    producer.begin_transaction()
    for number in range(12):
        producer.produce(
            "orders",
            f"{name}-{number}",
            partition=partition,
            headers=[("goqueue-delay-ms", b"500")] if number % 3 != 1 else [],
        )
        if number == 5:
            stop()
    try:
        producer.commit_transaction(60)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(60)
        return False
    return True


def test_transactions_keep_their_delayed_records_when_the_owner_is_stopped(
    cluster: Cluster,
) -> None:
    create(cluster, "orders")
    until_in_sync(cluster)
    partition, leader = apart(cluster, "orders")
    owners = sorted({cluster.leader_of("__scheduled", number) for number in range(2)} - {leader})
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "till",
            "batch.num.messages": 1,
            "linger.ms": 0,
            "socket.timeout.ms": 5_000,
            "log_level": 2,
        }
    )
    producer.init_transactions(60)
    committed: list[str] = []
    for owner in owners:
        node = cluster.nodes[owner]
        for turn, deed in enumerate((lambda: None, node.pause, lambda: None)):
            if _transact(producer, partition, f"{owner}.{turn}", deed):
                committed.append(f"{owner}.{turn}")
        node.resume()
        until_in_sync(cluster)
    expected = sorted(f"{name}-{number}" for name in committed for number in range(12))
    found = [
        (message.value() or b"").decode() for message in read(cluster, "orders", len(expected))
    ]
    assert sorted(found) == expected
    assert len(committed) >= 2 * len(owners)


def test_a_leader_that_was_stopped_stores_no_delayed_record_again(cluster: Cluster) -> None:
    create(cluster, "orders")
    until_in_sync(cluster)
    partition, leader = apart(cluster, "orders")
    pipeline = Pipeline(cluster, "orders", partition)
    pipeline.send(0, 5)
    pipeline.flush()
    cluster.nodes[leader].pause()
    pipeline.send(5, 35)  # The first of these are in its sockets' buffers.
    witness = cluster.nodes[min(set(cluster.nodes) - {leader})]
    eventually(lambda: not _leaders(witness, "orders") & {-1, leader}, because="another node leads")
    pipeline.flush()
    cluster.nodes[leader].resume()
    pipeline.send(35, 45)
    pipeline.flush()
    found = [message.value() or b"" for message in read(cluster, "orders", 45)]
    assert sorted(found) == sorted(b"%d" % number for number in range(45))


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
