"""Clients that keep their own time while nodes of a cluster come and go."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from bench.clusters import Cluster
from bench.processes import LoadFailed
from bench.topics import Topic

WHOLE_SECONDS_MAX = 120
POLL_SECONDS = 0.05
PACE_SECONDS = 0.005
DELIVERY_MS_MAX = 60_000

# How members of a group agree on who reads what: among themselves, or by the broker.
COOPERATIVE: dict[str, str | int] = {
    "partition.assignment.strategy": "cooperative-sticky",
    # Members hear of a rebalance by their heartbeats; seldom ones would be measured.
    "heartbeat.interval.ms": 100,
}
BROKER_ASSIGNED: dict[str, str | int] = {"group.protocol": "consumer"}


class PacedWriter:
    """Writes a little all the time, with acks=all, and notes when each message was acknowledged."""

    def __init__(self, cluster: Cluster, topic: Topic) -> None:
        self.acks: list[tuple[float, float]] = []  # when, and after how long
        self.acked: set[bytes] = set()
        self.errors: list[str] = []
        self._topic = topic
        self._sent: dict[bytes, float] = {}
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": DELIVERY_MS_MAX,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._producer.flush(DELIVERY_MS_MAX / 1000):
            self.errors.append("messages without an answer")

    def gap_s(self, since: float) -> float:
        """The longest time without an acknowledgement, from the last one before `since` on."""
        times = [when for when, _ in list(self.acks)]
        first = max((one for one in times if one <= since), default=since)
        later = [first, *(one for one in times if one > since)]
        return max((b - a for a, b in itertools.pairwise(later)), default=float("inf"))

    def p99_ms(self, since: float) -> float:
        """Of the messages that were sent from `since` on."""
        times = [took for when, took in self.acks if when - took >= since]
        return statistics.quantiles(times, n=100)[98] * 1000

    def wait_for_acks(self, count: int) -> None:
        target, deadline = len(self.acks) + count, time.monotonic() + DELIVERY_MS_MAX / 1000
        while len(self.acks) < target:
            if time.monotonic() > deadline or self.errors:
                raise LoadFailed(f"nothing is acknowledged any more: {self.errors[:1]}")
            time.sleep(POLL_SECONDS)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d" % number
            self._sent[value] = time.monotonic()
            self._producer.produce(
                self._topic.name,
                value,
                partition=number % self._topic.partitions,
                on_delivery=self._done,
            )
            number += 1
            self._producer.poll(PACE_SECONDS)

    def _done(self, error: KafkaError | None, message: Message) -> None:
        now, value = time.monotonic(), message.value()
        assert isinstance(value, bytes)
        if error is not None:
            self.errors.append(error.str())
        else:
            self.acks.append((now, now - self._sent.pop(value)))
            self.acked.add(value)


@dataclass(slots=True)
class Receipt:
    when: float
    partition: int
    member: int


class Members:
    """Consumers of one group, each in a thread of its own, and when they got what."""

    def __init__(
        self, cluster: Cluster, topic: Topic, group: str, protocol: Mapping[str, str | int]
    ) -> None:
        self.receipts: list[Receipt] = []
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._protocol = protocol
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self) -> int:
        """One more member; returns its number."""
        number = len(self._threads)
        thread = threading.Thread(target=self._run, args=(number,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return number

    def wait_until(self, owners: int) -> None:
        """Until each of so many members gets messages, and all partitions are read."""
        deadline = time.monotonic() + WHOLE_SECONDS_MAX
        while time.monotonic() < deadline:
            recent = [one for one in list(self.receipts) if one.when > time.monotonic() - 1]
            members = {one.member for one in recent}
            partitions = {one.partition for one in recent}
            if len(members) == owners and len(partitions) == self._topic.partitions:
                return
            time.sleep(POLL_SECONDS)
        raise LoadFailed("the group has not settled")

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": self._group,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 20,
                "log_level": 0,
                **self._protocol,
            }
        )
        consumer.subscribe([self._topic.name])
        while not self._stop.is_set():
            for message in consumer.consume(100, 0.02):
                partition = message.partition()
                if message.error() is None and partition is not None:
                    self.receipts.append(Receipt(time.monotonic(), partition, number))
        consumer.close()


def leader_of(cluster: Cluster, topic: Topic) -> int:
    """Who leads the first partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    found = admin.list_topics(topic.name, timeout=30).topics[topic.name].partitions[0]
    return int(found.leader)


def wait_until_whole(cluster: Cluster, topic: Topic) -> None:
    """Until all copies of a topic are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    deadline = time.monotonic() + WHOLE_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            partitions = admin.list_topics(topic.name, timeout=5).topics[topic.name].partitions
        except KafkaException:
            partitions = {}
        in_sync = [len(one.isrs) == len(cluster.nodes) for one in partitions.values()]
        if len(in_sync) == topic.partitions and all(in_sync):
            return
        time.sleep(POLL_SECONDS)
    raise LoadFailed("the copies are not in sync again")


def stored(cluster: Cluster, topic: Topic) -> set[bytes]:
    """All that a topic of few messages holds."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "bench-check", "log_level": 0}
    )
    values: set[bytes] = set()
    for partition in range(topic.partitions):
        place = TopicPartition(topic.name, partition, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        position, deadline = 0, time.monotonic() + WHOLE_SECONDS_MAX
        while position < end and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                value, offset = message.value(), message.offset()
                if message.error() is None and isinstance(value, bytes) and offset is not None:
                    values.add(value)
                    position = offset + 1
    consumer.close()
    return values
