"""Clients of a cluster that is backed up, beside those of queues: what each was told, and when."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from goqueue.client.http import Client, NewAcl

from .cluster import Cluster
from .waiting import eventually

ORDERS, LEDGER, REMINDERS = "orders", "ledger", "reminders"
READERS = "readers"
DELAY_SECONDS_MAX = 4
SECONDS_MAX = 60.0


def now_ms() -> float:
    return time.time_ns() / 1e6


def before(times: dict[str, float], moment_ms: float) -> set[str]:
    return {value for value, told_ms in times.items() if told_ms < moment_ms}


def create_topics(cluster: Cluster, *names: str) -> None:
    made = cluster.admin.create_topics([NewTopic(name, 3, 3) for name in names])
    for name in names:
        made[name].result(30)
        cluster.until_in_sync(name)


class Readers:
    """A consumer group, whose member commits what it has read."""

    def __init__(self, cluster: Cluster) -> None:
        self._bootstrap = cluster.bootstrap
        self._consumer = self._join()
        self._committed: list[tuple[float, int, int]] = []

    def _join(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": READERS,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # a lost offset must not go unnoticed
            }
        )
        consumer.commit(offsets=[TopicPartition(ORDERS, one, 0) for one in range(3)])
        consumer.subscribe([ORDERS])
        return consumer

    def read(self, _: int) -> None:
        if self._consumer.poll(0.1) is None:
            return
        for one in self._consumer.commit(asynchronous=False) or ():
            self._committed.append((now_ms(), one.partition, one.offset))

    def has_worked(self) -> bool:
        return bool(self._committed)

    def check(self, cut_ms: float, new: str) -> None:
        """What was committed before the cut is, or something later; the group goes on there."""
        self._consumer.close()
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": READERS,
                "auto.offset.reset": "error",
            }
        )
        places = [TopicPartition(ORDERS, one) for one in range(3)]
        restored = {one.partition: one.offset for one in consumer.committed(places, 30)}
        for told_ms, partition, offset in self._committed:
            if told_ms < cut_ms:
                assert restored[partition] >= offset, f"an offset of {partition} was lost"
        for partition, offset in restored.items():
            _, end = consumer.get_watermark_offsets(TopicPartition(ORDERS, partition), 30)
            assert offset <= end, "nothing that was committed lies behind what was restored"
        consumer.subscribe([ORDERS])
        seen: list[Message] = []

        def reads_new() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.append(message)
            return any(one.value() == new.encode() for one in seen)

        try:
            eventually(reads_new, because="the group reads what is new")
        finally:
            consumer.close()
        for one in seen:
            partition, offset = one.partition(), one.offset()
            assert partition is not None
            assert offset is not None
            assert offset >= restored[partition], "nothing comes again that was committed"


class Ledger:
    """Transactions that write a value to each of two partitions, or to none."""

    def __init__(self, cluster: Cluster) -> None:
        self._bootstrap = cluster.bootstrap
        self.committed: dict[str, float] = {}
        self._producer = self._begin()

    def _begin(self) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": "bookkeeper"}
        )
        producer.init_transactions(SECONDS_MAX)
        return producer

    def write(self, number: int) -> None:
        self._write(self._producer, f"entry-{number}")

    def _write(self, producer: Producer, value: str) -> None:
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(LEDGER, value, partition=partition)
        while True:
            try:
                producer.commit_transaction(SECONDS_MAX)
            except KafkaException as refused:
                if not refused.args[0].retriable():
                    raise
            else:
                break
        self.committed[value] = now_ms()

    def check(self, cut_ms: float) -> None:
        """All committed transactions are there as a whole, and new ones can be written."""
        expected = before(self.committed, cut_ms)
        self._write(self._begin(), "new")
        one, other = (self._read(partition) for partition in (0, 1))
        assert len(one) == len(set(one)), "nothing is there twice"
        assert one == other, "no half of a transaction"
        assert expected | {"new"} <= set(one)

    def _read(self, partition: int) -> list[str]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "none",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(LEDGER, partition, 0)])
        values: list[str] = []

        def reads_new() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append((message.value() or b"").decode())
            return values[-1:] == ["new"]

        try:
            eventually(reads_new, because="the last transaction is read")
        finally:
            consumer.close()
        return values


class Reminders:
    """Delayed messages, some of which are released while the backup is made."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = Client(cluster.nodes[3].http.removeprefix("http://"))
        self.scheduled: dict[str, float] = {}
        self.cancelled: dict[str, float] = {}
        self._far: dict[str, float] = {}  # the ids of those that come much later

    def schedule(self, number: int) -> None:
        value = f"reminder-{number}"
        self._client.publish(REMINDERS, value, delay=1 + number % DELAY_SECONDS_MAX)
        self.scheduled[value] = now_ms()
        if number % 5 == 0:
            made = self._client.publish(REMINDERS, f"far-{number}", delay=3600)
            self._far[str(made.schedule_id)] = now_ms()
            cancelled = self._client.publish(REMINDERS, f"cancelled-{number}", delay=600)
            self._client.schedules.cancel(str(cancelled.schedule_id))
            self.cancelled[str(cancelled.schedule_id)] = now_ms()

    def check(self, cut_ms: float) -> None:
        """Every message comes once at its time; those that were cancelled do not."""
        expected = before(self.scheduled, cut_ms)
        assert expected
        got: list[str] = []

        def have_come() -> bool:
            got[:] = [one.text for one in self._client.read(REMINDERS)]
            return expected <= set(got)

        eventually(have_come, because="what was due has come")
        assert len(got) == len(set(got)), "nothing comes twice"
        waiting = {one.id for one in self._client.schedules.list_all(topic=REMINDERS)}
        assert before(self._far, cut_ms) <= waiting
        assert not before(self.cancelled, cut_ms) & waiting


def define(cluster: Cluster) -> None:
    """Set up what is not a message: settings, schemas, users, rules, quotas."""
    with Client(cluster.nodes[1].http.removeprefix("http://")) as client:
        client.topics.configure(ORDERS, {"retention_ms": 123_456_789})
        client.groups.put_queue("workers", {"deliveries_max": 7})
        client.schemas.register("orders-value", '{"type": "string"}', kind="JSON")
        client.schemas.register("orders-value", '{"type": "string", "title": "x"}', kind="JSON")
        client.schemas.configure("orders-value", level="FULL")
        client.users.create("alice", "a long password")
        rule = NewAcl(kind="TOPIC", name=ORDERS, principal="User:alice", action="READ")
        client.acls.create([rule])
        client.quotas.set({"user": "alice"}, {"producer_byte_rate": 1_000_000})
    entry = ConfigEntry("log.retention.ms", "7777777", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([resource])[resource].result(30)


def definitions(cluster: Cluster) -> str:
    """All that was set up, as a text."""
    node = cluster.nodes[1]
    words: Sequence[str] = (sys.executable, "-m", "goqueue", "definitions", "export")
    done = subprocess.run(
        [*words, "--http", node.http.removeprefix("http://")],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    resource = ConfigResource(ResourceType.BROKER, "1")
    settings = cluster.admin.describe_configs([resource])[resource].result(30)
    kept = settings["log.retention.ms"].value
    with Client(node.http.removeprefix("http://")) as client:
        schemas = [client.schemas.get("orders-value", version=one) for one in (1, 2)]
        quotas = client.quotas.list_all()
    return f"{done.stdout}\nlog.retention.ms: {kept}\n{schemas}\n{quotas}"
