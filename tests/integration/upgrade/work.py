"""What clients do while the nodes of a cluster are upgraded, and what must be true afterwards."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from itertools import count
from typing import Any

import httpx
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.integration.cluster import Cluster
from tests.integration.sqs import connect

PAUSE_SECONDS = 0.05
RETRY_SECONDS = 0.1
VISIBILITY_SECONDS = 5  # then messages come again whose delivery was lost with its answer
READ_SECONDS_MAX = 30.0


class Worker(ABC):
    """A client in a thread of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.over = threading.Event()
        self.answered: list[str] = []  # what was accepted
        self.refused: Counter[str] = Counter()  # what it was refused with meanwhile
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self.prepare()
            for number in count():
                if self.over.is_set():
                    break
                self.step(number)
                time.sleep(PAUSE_SECONDS)
            self.finish()
        except Exception as error:
            self.failure = error

    def prepare(self) -> None:  # noqa: B027 - most have something to prepare
        """Do what comes before the first step."""

    @abstractmethod
    def step(self, number: int) -> None:
        """Do one thing."""

    def finish(self) -> None:  # noqa: B027
        """Do what comes after the last step."""

    def http(self, method: str, path: str, body: dict[str, Any], number: int) -> Any:
        """Ask one node after the other until one answers; None once the work is over."""
        nodes = list(self.cluster.nodes.values())
        while True:
            node = nodes[number % len(nodes)]
            number += 1
            try:
                answer = httpx.request(method, node.http + path, json=body, timeout=10)
            except httpx.TransportError as error:
                self.refused[type(error).__name__] += 1
            else:
                if answer.status_code < 400:
                    return answer.json() if answer.content else {}
                problem = answer.json()
                assert problem["retryable"], f"{method} {path}: {problem}"
                self.refused[problem["code"]] += 1
            if self.over.is_set():
                return None
            time.sleep(RETRY_SECONDS)


class Producing(Worker):
    """An idempotent producer."""

    topic = "orders"

    def prepare(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 2,
            }
        )

    def step(self, number: int) -> None:
        for one in range(5):
            value = f"{number}-{one}"
            self._producer.produce(self.topic, value.encode(), on_delivery=self._done)
        self._producer.poll(0)

    def _done(self, error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        self.answered.append(message.value().decode())

    def finish(self) -> None:
        assert self._producer.flush(60) == 0, "everything is answered in the end"

    def check(self) -> None:
        found = Counter(read_all(self.cluster, self.topic))
        assert found == Counter(self.answered), "each accepted record is there once"


class Committing(Worker):
    """A producer with transactions, of three records each."""

    topic = "ledger"
    size = 3

    def prepare(self) -> None:
        self._producer: Producer | None = None
        self.open: list[str] = []  # of which it is not known whether they were committed

    def step(self, number: int) -> None:
        name = str(number)
        try:
            if self._producer is None:
                self._producer = self._started()
            producer = self._producer
            producer.begin_transaction()
            for one in range(self.size):
                producer.produce(self.topic, f"{name}-{one}".encode())
            self.open.append(name)
            producer.commit_transaction(30)
        except KafkaException as error:
            self.refused[error.args[0].name()] += 1
            self._producer = None  # The next one with this id fences it.
        else:
            self.open.remove(name)
            self.answered.append(name)

    def _started(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": "till",
                "log_level": 2,
            }
        )
        producer.init_transactions(30)
        return producer

    def check(self) -> None:
        found = Counter(one.split("-")[0] for one in read_all(self.cluster, self.topic))
        assert set(found.values()) <= {self.size}, "a transaction is there as a whole"
        assert set(found) >= set(self.answered)
        assert set(found) <= {*self.answered, *self.open}


class Reading(Worker):
    """A stream group with one member, which commits what it has read."""

    topic = Producing.topic

    def prepare(self) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "log_level": 2,
            }
        )
        self._consumer.subscribe([self.topic])
        self.committed: dict[int, int] = {}
        self.seen: set[str] = set()

    def step(self, number: int) -> None:
        messages = [one for one in self._consumer.consume(500, 0.2) if one.error() is None]
        self.seen.update(one.value().decode() for one in messages)
        if not messages:
            return
        try:
            done = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.refused[error.args[0].name()] += 1
            return
        for one in done or []:
            if one.error is None and one.offset >= 0:  # without a position there is no commit
                assert one.offset >= self.committed.get(one.partition, 0), "an offset moved back"
                self.committed[one.partition] = one.offset

    def finish(self) -> None:
        self._consumer.close()

    def check(self, produced: list[str]) -> None:
        """Read the rest, from where the group is."""
        after = Reading(self.cluster)
        after.prepare()
        known = after._consumer.committed(
            [TopicPartition(self.topic, one) for one in self.committed], 20
        )
        for one in known:
            assert one.offset >= self.committed[one.partition], "a commit was undone"
        deadline = time.monotonic() + READ_SECONDS_MAX
        while not self.seen | after.seen >= set(produced) and time.monotonic() < deadline:
            after.step(0)
        after.finish()
        assert self.seen | after.seen >= set(produced), "the group has missed something"


class Working(Worker):
    """A queue over HTTP: messages are published, received and acknowledged."""

    topic, group = "tasks", "workers"

    def prepare(self) -> None:
        self.acked: set[str] = set()
        self.unsure: set[str] = set()  # refused when asked again: the first answer was lost

    def step(self, number: int) -> None:
        value = str(number)
        path = f"/v1/topics/{self.topic}/publish"
        if self.http("POST", path, {"value": value}, number) is not None:
            self.answered.append(value)
        self.receive(number)

    def receive(self, number: int) -> int:
        wanted = {
            "topic": self.topic,
            "max_messages": 10,
            "visibility_ms": VISIBILITY_SECONDS * 1000,
        }
        got = self.http("POST", f"/v1/groups/{self.group}/receive", wanted, number)
        messages = [] if got is None else got["messages"]
        for one in messages:
            assert one["value"] not in self.acked, "what is acknowledged came again"
        if messages:
            receipts = {"receipts": [one["receipt"] for one in messages]}
            before = self.refused.total()
            done = self.http("POST", f"/v1/groups/{self.group}/ack", receipts, number)
            results = [] if done is None else done["results"]
            for one, result in zip(messages, results, strict=False):
                if "problem" not in result:
                    self.acked.add(one["value"])
                elif self.refused.total() > before:
                    self.unsure.add(one["value"])
        return len(messages)

    def check(self) -> None:
        self.over.clear()
        deadline = time.monotonic() + READ_SECONDS_MAX
        while not set(self.answered) <= self.acked | self.unsure and time.monotonic() < deadline:
            self.receive(0)
        missing = set(self.answered) - self.acked - self.unsure
        assert not missing, f"never delivered: {sorted(missing)[:5]} of {len(missing)}"


class Grouping(Worker):
    """Queue groups are created and changed by every node, whatever its release."""

    def step(self, number: int) -> None:
        name, settings = f"group-{number}", {"visibility_ms": 5_000}
        if self.http("PUT", f"/v1/groups/{name}", {"settings": settings}, number) is not None:
            self.answered.append(name)
        time.sleep(0.5)

    def check(self) -> None:
        for node in self.cluster.nodes.values():
            found = httpx.get(f"{node.http}/v1/groups", timeout=20).json()["groups"]
            assert {one["name"] for one in found} >= set(self.answered)


class Queueing(Worker):
    """A named queue over SQS: what is deleted does not come again."""

    def prepare(self) -> None:
        self.deleted: set[str] = set()
        self._clients = [connect(node.sqs) for node in self.cluster.nodes.values()]
        attributes = {"VisibilityTimeout": str(VISIBILITY_SECONDS)}
        made = self._sqs(0, "create_queue", QueueName="mail", Attributes=attributes)
        self._path = made["QueueUrl"].split("/", 3)[3]

    def _sqs(self, number: int, action: str, **arguments: Any) -> Any:
        while True:
            client = self._clients[number % len(self._clients)]
            number += 1
            if "url" in arguments:
                arguments["QueueUrl"] = f"{client.meta.endpoint_url}/{arguments.pop('url')}"
            elif "QueueUrl" in arguments:
                path = arguments["QueueUrl"].split("/", 3)[3]
                arguments["QueueUrl"] = f"{client.meta.endpoint_url}/{path}"
            try:
                return getattr(client, action)(**arguments)
            except (BotoCoreError, ClientError) as error:
                if isinstance(error, ClientError):
                    metadata = error.response["ResponseMetadata"]
                    if metadata["HTTPStatusCode"] < 500:
                        raise
                self.refused[type(error).__name__] += 1
            if self.over.is_set():
                return None
            time.sleep(RETRY_SECONDS)

    def step(self, number: int) -> None:
        if self._sqs(number, "send_message", url=self._path, MessageBody=str(number)) is not None:
            self.answered.append(str(number))
        self.receive(number)

    def receive(self, number: int) -> None:
        got = self._sqs(number, "receive_message", url=self._path, MaxNumberOfMessages=10)
        for one in (got or {}).get("Messages", []):
            assert one["Body"] not in self.deleted, "what was deleted came again"
            receipt = one["ReceiptHandle"]
            if (
                self._sqs(number, "delete_message", url=self._path, ReceiptHandle=receipt)
                is not None
            ):
                self.deleted.add(one["Body"])

    def check(self) -> None:
        self.over.clear()
        deadline = time.monotonic() + READ_SECONDS_MAX
        while not set(self.answered) <= self.deleted and time.monotonic() < deadline:
            self.receive(0)
        assert set(self.answered) <= self.deleted, "something was never delivered"


class Scheduling(Worker):
    """Delayed messages, each of which is released once."""

    topic = "reminders"

    def prepare(self) -> None:
        self.attempts: Counter[str] = Counter()

    def step(self, number: int) -> None:
        value = str(number)
        before = self.refused.total()
        body = {"value": value, "delay_ms": 2_000}
        sent = self.http("POST", f"/v1/topics/{self.topic}/publish", body, number)
        self.attempts[value] = 1 + self.refused.total() - before
        if sent is not None:
            self.answered.append(value)

    def check(self) -> None:
        deadline = time.monotonic() + READ_SECONDS_MAX
        found: Counter[str] = Counter()
        while not set(found) >= set(self.answered) and time.monotonic() < deadline:
            found = Counter(read_all(self.cluster, self.topic))
        assert set(found) >= set(self.answered), "a scheduled message was lost"
        for value, times in found.items():
            # A request that was repeated may have been accepted every time.
            assert times <= self.attempts[value], f"{value} was released {times} times"


def read_all(cluster: Cluster, topic: str) -> list[str]:
    """Return the values of all committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"check-{topic}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
        left, values = set(partitions), []
        deadline = time.monotonic() + READ_SECONDS_MAX
        while left and time.monotonic() < deadline:
            for one in consumer.consume(1_000, 0.2):
                error = one.error()
                if error is None:
                    values.append(one.value().decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(one.partition())
        assert not left, f"partitions of {topic} could not be read to the end: {left}"
        return values
    finally:
        consumer.close()
