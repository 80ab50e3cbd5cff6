"""Three real nodes, stock Kafka clients, and nodes that die: what was acknowledged is there."""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import NewTopic

from .cluster import Cluster
from .waiting import eventually

pytestmark = pytest.mark.timeout(240)


def create(cluster: Cluster, topic: str, *, partitions: int = 3) -> None:
    wanted = NewTopic(
        topic,
        num_partitions=partitions,
        replication_factor=3,
        config={"min.insync.replicas": "2"},
    )
    for future in cluster.admin.create_topics([wanted]).values():
        future.result(timeout=30)
    cluster.until_in_sync(topic)


class Writer:
    """Sends numbers with acks=all, idempotently, until told to stop."""

    def __init__(self, cluster: Cluster, topic: str, **settings: object) -> None:
        """Further settings of the producer are given as `request_timeout_ms=3000`."""
        self.acked: list[bytes] = []
        self.errors: list[KafkaError] = []
        self.sent = 0
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "log_level": 2,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(20):
                value = str(self.sent).encode()
                try:
                    self._producer.produce(self._topic, value, key=value, on_delivery=self._done)
                except BufferError:
                    break  # The nodes are slower; what is queued is sent first.
                self.sent += 1
            self._producer.poll(0.01)

    def _done(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acked.append(message.value())  # type: ignore[attr-defined]

    def until_acked(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        target = len(self.acked) + count
        eventually(lambda: len(self.acked) >= target, because=f"{count} more are acknowledged")

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


def read_all(cluster: Cluster, topic: str, count: int, *, group: str = "reader") -> list[bytes]:
    """At least `count` values of a topic, and whatever comes right after."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = [one for one in consumer.consume(1000, 1.0) if one.error() is None]
        values += [one.value() for one in found]
        if not found and len(values) >= count:
            break
    consumer.close()
    return values


def check(cluster: Cluster, topic: str, writer: Writer) -> None:
    """Every acknowledged value is there, and nothing is there twice."""
    values = Counter(read_all(cluster, topic, len(writer.acked)))
    lost = set(writer.acked) - set(values)
    assert not lost, f"{len(lost)} of {len(writer.acked)} acknowledged values are lost"
    twice = [value for value, count in values.items() if count > 1]
    assert not twice, f"{len(twice)} values are there twice"


def test_a_topic_has_its_copies_on_all_nodes(cluster: Cluster) -> None:
    create(cluster, "orders")
    metadata = cluster.admin.list_topics(timeout=20)
    assert set(metadata.brokers) == {1, 2, 3}
    assert metadata.controller_id in {1, 2, 3}
    for partition in metadata.topics["orders"].partitions.values():
        assert sorted(partition.replicas) == sorted(partition.isrs) == [1, 2, 3]


def test_a_killed_leader_costs_nothing_that_was_acknowledged(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster, "orders")
    writer.until_acked(500)
    leader = cluster.leader_of("orders")
    cluster.nodes[leader].kill()
    writer.until_acked(1_000)
    cluster.nodes[leader].start()
    cluster.until_in_sync("orders")
    writer.until_acked(500)
    writer.finish()
    assert writer.errors == []
    assert len(writer.acked) == writer.sent
    check(cluster, "orders", writer)


def test_a_rolling_restart_fails_no_call(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster, "orders")
    writer.until_acked(200)
    for node in cluster.nodes.values():
        node.restart()
        cluster.until_in_sync("orders")
        writer.until_acked(200)
    writer.finish()
    assert writer.errors == []
    check(cluster, "orders", writer)


def test_a_node_with_an_empty_disk_gets_everything_again(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster, "orders")
    writer.until_acked(500)
    victim = cluster.nodes[2]
    victim.kill()
    victim.lose_disk()
    writer.until_acked(500)
    writer.finish()
    victim.start()
    cluster.until_in_sync("orders")
    others = [node for node in cluster.nodes.values() if node is not victim]
    others[0].kill()  # Two are left, one of them with what it was given anew.
    check(cluster, "orders", writer)


def test_a_group_goes_on_where_it_was_when_its_coordinator_dies(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster, "orders")
    writer.until_acked(300)
    writer.finish()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "workers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "log_level": 2,
        }
    )
    consumer.subscribe(["orders"])
    first: list[bytes] = []
    while len(first) < 100:
        first += [one.value() for one in consumer.consume(20, 1.0) if one.error() is None]
    consumer.commit(asynchronous=False)
    coordinator = cluster.leader_of("__consumer_offsets", _partition_of(cluster, "workers"))
    cluster.nodes[coordinator].kill()
    consumer.close()
    rest = read_all(cluster, "orders", len(writer.acked) - len(first), group="workers")
    assert Counter(first + rest) == Counter(writer.acked)


def _partition_of(cluster: Cluster, group: str) -> int:
    """Which partition of the offsets a group's state is in, the way every node computes it."""

    count = len(
        cluster.admin.list_topics("__consumer_offsets").topics["__consumer_offsets"].partitions
    )
    return zlib.crc32(group.encode()) % count
