"""The restore drill: a cluster is backed up under load and lost, and its clients go on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from goqueue.client.http import Client

from .backup_load import (
    LEDGER,
    REMINDERS,
    Ledger,
    Readers,
    Reminders,
    before,
    create_topics,
    define,
    definitions,
    now_ms,
)
from .backups import run
from .cluster import Cluster
from .sqs import ATTEMPTS_AFTER_CRASH, Queue, connect
from .waiting import eventually

pytestmark = pytest.mark.timeout(300)

TOPIC, TASKS, QUEUE = "orders", "tasks", "jobs"
LOAD_SECONDS = 2.0
PAUSE_SECONDS = 0.01  # between two messages of a client, on a machine that others use too


class Load:
    """What clients have done, with the times at which they were told."""

    def __init__(self, cluster: Cluster) -> None:
        self.stored: dict[str, dict[str, float]] = {TOPIC: {}, TASKS: {}, QUEUE: {}}
        self.settled: dict[str, dict[str, float]] = {TASKS: {}, QUEUE: {}}
        self.readers, self.ledger = Readers(cluster), Ledger(cluster)
        self.reminders = Reminders(cluster)
        self._stopping = threading.Event()
        self._failures: list[Exception] = []
        self.kafka = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        self.http = Client(cluster.nodes[1].http.removeprefix("http://"))
        self.tasks = self.http.queue(TASKS, group="workers")
        sqs = connect(cluster.nodes[2].sqs, attempts_max=ATTEMPTS_AFTER_CRASH)
        self.jobs = Queue(sqs, sqs.create_queue(QueueName=QUEUE)["QueueUrl"])

    @contextmanager
    def running(self) -> Iterator[None]:
        """All clients work at the same time, until a node refuses them or this ends."""
        work = (
            *(self._produce, self._publish, self._settle, self._send, self._delete),
            *(self.readers.read, self.ledger.write, self.reminders.schedule),
        )
        threads = [threading.Thread(target=self._repeat, args=(one,)) for one in work]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            self._stopping.set()
            for one in threads:
                one.join(60)
        assert self._failures == []

    def _repeat(self, step: Callable[[int], None]) -> None:
        number = 0
        try:
            while not self._stopping.wait(PAUSE_SECONDS):
                step(number)
                number += 1
        except Exception as failure:
            self._failures.append(failure)

    def has_begun(self) -> bool:
        """Every kind of client has been answered."""
        told = (*self.settled.values(), self.ledger.committed, self.reminders.cancelled)
        return bool(self._failures) or (all(told) and self.readers.has_worked())

    def _produce(self, number: int) -> None:
        value = f"kafka-{number}"

        def told(error: object, _: object) -> None:
            if error is None:
                self.stored[TOPIC][value] = now_ms()

        self.kafka.produce(TOPIC, value, on_delivery=told)
        self.kafka.poll(0)

    def _publish(self, number: int) -> None:
        value = f"http-{number}"
        self.http.publish(TASKS, value)
        self.stored[TASKS][value] = now_ms()

    def _settle(self, _: int) -> None:
        for one in self.tasks.receive(2, visibility=3600):
            self.tasks.ack(one)
            self.settled[TASKS][one.text] = now_ms()

    def _send(self, number: int) -> None:
        value = f"sqs-{number}"
        self.jobs.send(value)
        self.stored[QUEUE][value] = now_ms()

    def _delete(self, _: int) -> None:
        for one in self.jobs.receive(2):
            self.jobs.delete(one)
            self.settled[QUEUE][one["Body"]] = now_ms()


def spread(cluster: Cluster, topics: Sequence[str]) -> None:
    """Give all partitions a replica on every node again, as the guide says."""
    moved = cluster.cli("cluster", "reassign", "--all", "--replicas", "1,2,3")
    assert {one["topic"] for one in moved} >= set(topics)
    for topic in topics:
        cluster.until_in_sync(topic)


def test_a_lost_cluster_is_restored_and_its_clients_go_on(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    create_topics(cluster, TOPIC, TASKS, LEDGER, REMINDERS)
    define(cluster)
    load = Load(cluster)
    with load.running():
        eventually(load.has_begun, because="all clients work")
        time.sleep(LOAD_SECONDS)
        run("create", folder, http=cluster.nodes[3].http)
        [made] = run("list", folder)
    assert run("verify", folder) == []
    cut_ms = cut_of(folder)
    defined = definitions(cluster)
    for node in cluster.nodes.values():
        node.kill()
        node.lose_disk()
    identity = ("--same-cluster", "--node-id", 1)
    run("restore", folder, made["id"], "--data-dir", cluster.nodes[1].data_dir, *identity)
    cluster.start()

    spread(cluster, (TOPIC, TASKS, QUEUE, LEDGER, REMINDERS))
    stored = {one: before(times, cut_ms) for one, times in load.stored.items()}
    settled = {one: before(times, cut_ms) for one, times in load.settled.items()}
    assert all(stored.values()), "the load has begun before the cut"
    assert all(settled.values())
    for topic, values in stored.items():
        assert values <= {one.text for one in load.http.read(topic)}, f"{topic} lacks messages"
    check_queues(load, stored, settled)
    load.readers.check(cut_ms, "new")
    load.ledger.check(cut_ms)
    load.reminders.check(cut_ms)
    assert definitions(cluster) == defined
    with pytest.raises(KafkaException):
        load.ledger.write(0)  # The producer of before was fenced, or is unknown.


def check_queues(load: Load, stored: dict[str, set[str]], settled: dict[str, set[str]]) -> None:
    """The clients go on: nothing acknowledged comes back, everything else does."""
    load.kafka.produce(TOPIC, "new")
    assert load.kafka.flush(60) == 0
    load.http.publish(TASKS, "new")
    load.jobs.send("new")
    got: dict[str, set[str]] = {TASKS: set(), QUEUE: set()}

    def take() -> bool:
        for one in load.tasks.receive(100, visibility=3600):
            load.tasks.ack(one)
            got[TASKS].add(one.text)
        for message in load.jobs.receive():
            load.jobs.delete(message)
            got[QUEUE].add(message["Body"])
        left = [(stored[one] - settled[one] | {"new"}) - got[one] - late[one] for one in got]
        return not any(left)

    # Acknowledged after the cut, or received before it and not acknowledged: out until the lease
    # ends, which is later than this test.
    late: dict[str, set[str]] = {one: set(load.settled[one]) - settled[one] for one in got}
    eventually(take, because="what was not acknowledged is delivered")
    for queue, values in got.items():
        assert not values & settled[queue], f"{queue}: what was acknowledged comes back"


def cut_of(folder: Path) -> int:
    """The time of the cut of the only backup."""
    [manifest] = (folder / "manifests").glob("*.json")
    content: dict[str, Any] = json.loads(manifest.read_text())["content"]
    return int(content["cut_ms"])
