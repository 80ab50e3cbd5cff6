"""Clients of every kind that count what they do, until they are stopped.

Then they finish what they began, so that nothing is under way when counts are compared. Each kind
works on topics of its own, so that every counter of a topic is that of one kind.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import AcknowledgeType, Consumer, KafkaError, Message, Producer, ShareConsumer

from goqueue import Client
from goqueue.client.http import HttpSettings, Outgoing, ReceivedMessage, RetrySettings
from goqueue.grpc import Client as GrpcClient
from goqueue.grpc import GrpcSettings
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import publish_service_pb2 as publish_bodies
from tests.integration import sharing, sqs
from tests.integration.cluster import Cluster
from tests.integration.rpc.calls import Rpc, Stream
from tests.integration.rpc.calls import messages as rpc_messages

from .ledger import Ledger

FINISH_SECONDS_MAX = 60.0
BATCH = 10
GROUP = "workers"
NO_RETRIES = RetrySettings(retries_max=0)  # a repeated request is not counted
ONE_TRY = HttpSettings(retry=NO_RETRIES)


class Worker(ABC):
    """One kind of client, in a thread of its own."""

    def __init__(self, cluster: Cluster, ledger: Ledger, seed: int = 0) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.random = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self) -> None:
        self._thread.join(FINISH_SECONDS_MAX)
        if self._thread.is_alive():
            self.ledger.fail(f"{self._thread.name} did not finish")

    @abstractmethod
    def work(self) -> None:
        """Work until the worker is stopped, then finish."""

    def asked(self, listener: str, api: str) -> None:
        """Count a request that was answered without an error."""
        self.ledger.add("goqueue_request_duration_seconds_count", listener=listener, api=api)

    def turns(self, pause_seconds: float) -> Iterator[int]:
        """Yield numbers with pauses between them, until the worker is stopped."""
        number = 0
        while not self._stopped.is_set():
            yield number
            number += 1
            self._stopped.wait(pause_seconds)

    def until(self, is_done: Callable[[], bool], what: str) -> Iterator[None]:
        """Yield until something is done that takes several steps."""
        end = time.monotonic() + FINISH_SECONDS_MAX
        while not is_done():
            if time.monotonic() > end:
                self.ledger.fail(f"{type(self).__name__}: {what}")
                return
            yield

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.ledger.fail(f"{type(self).__name__}: {error!r}")


class KafkaLog(Worker):
    """librdkafka: an idempotent producer, and a consumer that commits."""

    topic, group = "count-log", "count-readers"

    def __init__(self, cluster: Cluster, ledger: Ledger, seed: int = 0) -> None:
        super().__init__(cluster, ledger, seed)
        self._stored = self._read = 0

    def work(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self.topic])
        for turn in self.turns(0.02):
            for number in range(20):
                producer.produce(self.topic, b"x" * 100, key=str(number), on_delivery=self._told)
            producer.poll(0)
            self._consume(consumer)
            if turn % 50 == 49 and self._read:
                consumer.commit(asynchronous=False)
        producer.flush(FINISH_SECONDS_MAX)
        for _ in self.until(lambda: self._read >= self._stored, "not everything was read"):
            self._consume(consumer)
        consumer.commit(asynchronous=False)
        consumer.close()
        self.ledger.add("goqueue_producer_messages_total", self._stored, topic=self.topic)
        self.ledger.add("goqueue_consumer_messages_total", self._read, topic=self.topic)
        self.ledger.add(
            "goqueue_group_committed_messages_total",
            self._read,
            group=self.group,
            topic=self.topic,
        )

    def _consume(self, consumer: Consumer) -> None:
        messages = consumer.consume(1000, timeout=0.05)
        for message in messages:
            if message.error() is not None:
                raise message.error()
        self._read += len(messages)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.ledger.fail(f"{self.topic}: {error}")
        self._stored += 1


class KafkaTransactions(Worker):
    """librdkafka: transactions, of which some are aborted."""

    topic = "count-transactions"

    def work(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": "count-transactions",
                "linger.ms": 0,
            }
        )
        producer.init_transactions(FINISH_SECONDS_MAX)
        for turn in self.turns(0.2):
            producer.begin_transaction()
            for _ in range(BATCH):
                producer.produce(self.topic, b"t")
            producer.flush(FINISH_SECONDS_MAX)
            is_aborted = turn % 5 == 4
            if is_aborted:
                producer.abort_transaction(FINISH_SECONDS_MAX)
            else:
                producer.commit_transaction(FINISH_SECONDS_MAX)
            outcome = "aborted" if is_aborted else "committed"
            self.ledger.add("goqueue_transaction_ended_total", outcome=outcome)
            self.ledger.add("goqueue_producer_messages_total", BATCH, topic=self.topic)


class HttpJobs(Worker):
    """The Python client: a queue group whose consumers acknowledge, return and reject."""

    topic = "count-jobs"
    # How the metrics name the listener and the requests.
    listener = "http"
    publish, publish_many, receive = "publish", "publishBatch", "receive"
    ack, nack, reject = "ack", "nack", "reject"

    def __init__(self, cluster: Cluster, ledger: Ledger, seed: int = 0) -> None:
        super().__init__(cluster, ledger, seed)
        self._published = self._done = 0

    def work(self) -> None:
        clients = self._clients()
        for turn in self.turns(0.05):
            self._publish(clients[turn % len(clients)])
            self._receive(clients[(turn + 1) % len(clients)])
        for _ in self.until(lambda: self._done >= self._published, "not everything was settled"):
            self._receive(clients[0])
        self.ledger.add("goqueue_producer_messages_total", self._published, topic=self.topic)
        for client in clients:
            client.close()

    def _clients(self) -> list[Client]:
        return [Client(node.http, ONE_TRY) for node in self.cluster.nodes.values()]

    def _asked(self, api: str) -> None:
        self.asked(self.listener, api)

    def _publish(self, client: Client) -> None:
        client.publish(self.topic, "one", priority=self.random.choice(["high", "normal"]))
        self._asked(self.publish)
        many = [Outgoing(value=f"job {number}") for number in range(BATCH - 1)]
        client.publish_many(self.topic, many)
        self._asked(self.publish_many)
        self._published += BATCH

    def _receive(self, client: Client) -> None:
        queue = client.queue(self.topic, group=GROUP, consumer=self._thread.name)
        received = queue.receive(2 * BATCH, wait=0.5)
        self._asked(self.receive)
        labels = {"group": GROUP, "topic": self.topic}
        self.ledger.add("goqueue_queue_delivered_total", len(received), **labels)
        again = sum(1 for message in received if message.attempt > 1)
        self.ledger.add("goqueue_queue_redelivered_total", again, **labels)
        for message in received:
            self._settle(queue, message, labels)

    def _settle(self, queue: Any, message: ReceivedMessage, labels: dict[str, str]) -> None:
        chance = self.random.random()
        if chance < 0.05 and message.attempt == 1:
            queue.nack(message, delay=0.1)
            self._asked(self.nack)
            self.ledger.add("goqueue_queue_settled_total", outcome="nacked", **labels)
            return
        self._done += 1
        if chance > 0.97:
            queue.reject(message)
            self._asked(self.reject)
            self.ledger.add("goqueue_queue_settled_total", outcome="rejected", **labels)
            self.ledger.add("goqueue_queue_dead_lettered_total", reason="rejected", **labels)
            return
        queue.ack(message)
        self._asked(self.ack)
        self.ledger.add("goqueue_queue_settled_total", outcome="acked", **labels)


class GrpcJobs(HttpJobs):
    """The same over gRPC."""

    topic = "count-calls"
    listener = "grpc"
    publish, publish_many, receive = "Publish", "Publish", "Pull"
    ack, nack, reject = "Ack", "Nack", "Reject"

    def _clients(self) -> list[Client]:
        settings = GrpcSettings(retry=NO_RETRIES)
        return [GrpcClient(node.grpc, settings) for node in self.cluster.nodes.values()]


class ShareJobs(Worker):
    """librdkafka: a share group whose members accept records, and release some of them."""

    topic, group = "count-shares", "count-members"

    def __init__(self, cluster: Cluster, ledger: Ledger, seed: int = 0) -> None:
        super().__init__(cluster, ledger, seed)
        self._sent = self._accepted = 0
        self.labels = {"group": self.group, "topic": self.topic}

    def work(self) -> None:
        bootstrap = self.cluster.bootstrap
        sharing.configure(bootstrap, self.group, share_auto_offset_reset="earliest")
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        with sharing.share_consumer(bootstrap, self.group, self.topic) as consumer:
            for _ in self.turns(0.05):
                for number in range(BATCH):
                    producer.produce(self.topic, b"s" * 100, key=str(number))
                self._sent += BATCH
                producer.poll(0)
                self._consume(consumer)
            left = producer.flush(FINISH_SECONDS_MAX)
            if left:
                self.ledger.fail(f"{left} records were not sent")
            for _ in self.until(lambda: self._accepted >= self._sent, "records are left"):
                self._consume(consumer)
        self.ledger.add("goqueue_producer_messages_total", self._sent, topic=self.topic)

    def _consume(self, consumer: ShareConsumer) -> None:
        messages = sharing.received(consumer)
        released = 0
        for message in messages:
            is_first = message.delivery_count() == 1
            is_released = is_first and self.random.random() < 0.05
            released += is_released
            kind = AcknowledgeType.RELEASE if is_released else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)
            if not is_first:
                self.ledger.add("goqueue_queue_redelivered_total", **self.labels)
        if not messages:
            return
        sharing.commit(consumer)
        accepted = len(messages) - released
        self._accepted += accepted
        self.ledger.add("goqueue_queue_delivered_total", len(messages), **self.labels)
        for outcome, count in (("acked", accepted), ("nacked", released)):
            self.ledger.add("goqueue_queue_settled_total", count, outcome=outcome, **self.labels)


class HttpDelays(Worker):
    """The Python client: messages with delays, of which some are cancelled."""

    topic = "count-delays"

    def work(self) -> None:
        clients = [Client(node.http, ONE_TRY) for node in self.cluster.nodes.values()]
        due = cancelled = 0
        for turn in self.turns(0.05):
            client = clients[turn % len(clients)]
            self.asked("http", "publish")
            if turn % 4 == 3:
                published = client.publish(self.topic, "never", delay=3600)
                client.schedules.cancel(published.schedule_id)
                self.asked("http", "cancelSchedule")
                cancelled += 1
            else:
                client.publish(self.topic, "later", delay=self.random.uniform(0.05, 0.5))
                due += 1
        reader = clients[0].follow(self.topic, from_="earliest", limit=due, wait=1)
        released = sum(1 for _ in reader)  # it ends when all have come
        self.ledger.add("goqueue_schedule_scheduled_total", due + cancelled)
        self.ledger.add("goqueue_schedule_released_total", released)
        self.ledger.add("goqueue_schedule_cancelled_total", cancelled)
        for client in clients:
            client.close()


class SqsMail(Worker):
    """boto3: a standard queue, and one that deduplicates."""

    def work(self) -> None:
        clients = [sqs.connect(node.sqs) for node in self.cluster.nodes.values()]
        plain = self._queues(clients, "count-mail", {})
        fifo = self._queues(clients, "count-mail.fifo", {"FifoQueue": "true"})
        sent = {"count-mail": 0, "count-mail.fifo": 0}
        received = dict.fromkeys(sent, 0)
        for turn in self.turns(0.05):
            plain[turn % 3].send_all(f"{turn} {number}" for number in range(BATCH))
            self.asked("sqs", "SendMessageBatch")
            sent["count-mail"] += BATCH
            for place in (turn, turn + 1):
                fifo[place % 3].send("once", MessageGroupId="g", MessageDeduplicationId=f"{turn}")
                self.asked("sqs", "SendMessage")
            sent["count-mail.fifo"] += 1
            self.ledger.add("goqueue_queue_deduplicated_total", topic="count-mail.fifo")
            for queues in (plain, fifo):
                received[queues[0].name] += self._take(queues[(turn + 2) % 3])
        for queues in (plain, fifo):
            name = queues[0].name
            for _ in self.until(lambda name=name: received[name] >= sent[name], "mail is left"):
                received[name] += self._take(queues[0])
            self.ledger.add("goqueue_producer_messages_total", sent[name], topic=name)
            self.ledger.add("goqueue_queue_delivered_total", received[name], topic=name)
            self.ledger.add(
                "goqueue_queue_settled_total", received[name], topic=name, outcome="acked"
            )

    def _queues(self, clients: list[Any], name: str, attributes: dict[str, str]) -> list[sqs.Queue]:
        """The queue as each of the nodes serves it."""
        clients[0].create_queue(QueueName=name, Attributes=attributes)
        return [sqs.Queue(one, one.get_queue_url(QueueName=name)["QueueUrl"]) for one in clients]

    def _take(self, queue: sqs.Queue) -> int:
        messages = queue.receive(wait_seconds=1)
        self.asked("sqs", "ReceiveMessage")
        for message in messages:
            queue.delete(message)
            self.asked("sqs", "DeleteMessage")
        return len(messages)


class GrpcStreams(Worker):
    """grpcio: a stream that publishes, and one that receives, acknowledges, returns and rejects."""

    topic = "count-streams"

    def __init__(self, cluster: Cluster, ledger: Ledger, seed: int = 0) -> None:
        super().__init__(cluster, ledger, seed)
        self._published = self._done = self._number = 0
        self._unhandled: deque[consuming.ReceiveResponse] = deque()

    def work(self) -> None:
        nodes = list(self.cluster.nodes.values())
        with Rpc(nodes[0].grpc) as first, Rpc(nodes[1].grpc) as second:
            publishing = first.stream(first.publishing.PublishStream)
            start = consuming.ReceiveStart(group=GROUP, topic=self.topic, messages_max=BATCH)
            receiving = second.stream(
                second.consuming.Receive, consuming.ReceiveRequest(start=start, credit=BATCH)
            )
            for turn in self.turns(0.05):
                self._publish(publishing, turn)
                self._receive(receiving)
            for _ in self.until(lambda: self._done >= self._published, "not all were settled"):
                self._receive(receiving)
            publishing.half_close()
            receiving.close()
        self.ledger.add("goqueue_producer_messages_total", self._published, topic=self.topic)

    def _publish(self, stream: Stream, number: int) -> None:
        stream.send(
            publish_bodies.PublishStreamRequest(
                number=number, topic=self.topic, messages=rpc_messages(*[b"x" * 100] * BATCH)
            )
        )
        response = stream.next()
        if response.report.errors or not response.report.offsets:
            self.ledger.fail(f"{self.topic}: {response}")
        self.asked("grpc", "PublishStream")
        self._published += BATCH

    def _receive(self, stream: Stream) -> None:
        """Take one response with messages, and settle them in one request."""
        received = (self._unhandled.popleft() if self._unhandled else stream.next()).messages
        labels = {"group": GROUP, "topic": self.topic}
        self.ledger.add("goqueue_queue_delivered_total", len(received), **labels)
        again = sum(1 for message in received if message.attempt > 1)
        self.ledger.add("goqueue_queue_redelivered_total", again, **labels)
        self._number += 1
        request = consuming.ReceiveRequest(number=self._number, credit=len(received))
        for message in received:
            chance = self.random.random()
            if chance < 0.05 and message.attempt == 1:
                request.nack.add(receipts=[message.receipt], delay_ms=100)
                outcome = "nacked"
            elif chance > 0.97:
                request.reject.add(receipts=[message.receipt])
                outcome = "rejected"
                self.ledger.add("goqueue_queue_dead_lettered_total", reason="rejected", **labels)
            else:
                request.ack.append(message.receipt)
                outcome = "acked"
            self._done += outcome != "nacked"
            self.ledger.add("goqueue_queue_settled_total", outcome=outcome, **labels)
        stream.send(request)
        while not (response := stream.next()).settlements:
            self._unhandled.append(response)  # It came before the confirmation.
        if response.settlements[0].errors:
            self.ledger.fail(f"{self.topic}: {response}")
        self.asked("grpc", "Receive")


WITH_TOPICS = (
    KafkaLog,
    KafkaTransactions,
    HttpJobs,
    HttpDelays,
    GrpcJobs,
    GrpcStreams,
    ShareJobs,
)
KINDS = (*WITH_TOPICS, SqsMail)


def prepare(cluster: Cluster) -> None:
    """Create the topics, so that no request meets one that is just being created."""
    node = next(iter(cluster.nodes.values()))
    with Client(node.http) as client:
        for kind in WITH_TOPICS:
            client.topics.create(kind.topic, partitions=6)
            cluster.until_in_sync(kind.topic)


def run(cluster: Cluster, seconds: float) -> Ledger:
    """Let clients of every kind work for some seconds; what they counted."""
    ledger = Ledger()
    for listener in ("http", "sqs", "grpc"):
        ledger.add("goqueue_request_errors_total", 0, listener=listener)
    workers = [kind(cluster, ledger, seed) for seed, kind in enumerate(KINDS)]
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join()
    return ledger
