"""A node that is made to do work of every kind, so that it has every metric there is."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from goqueue import Client
from goqueue.client.http import HttpSettings, Outgoing, RetrySettings
from goqueue.model.errors import GoQueueError
from tests.certificates import Authority
from tests.integration import sqs
from tests.integration.ports import quiet_port
from tests.integration.security.secured import ADMIN, ADMIN_PASSWORD, SETTINGS, SecuredBroker
from tests.integration.security.tls_nodes import server_settings
from tests.integration.sharing import received, share_consumer
from tests.integration.waiting import eventually

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})
TENANT, TENANT_USER, TENANT_PASSWORD = "acme", "acme-admin", "planted-acme-passw0rd"
ORDERS, STRICT, KEYED, SHORT = "orders", "strict", "keyed", "short"
FIFO = "mail.fifo"
GROUP, READERS, SHARERS = "billing", "readers", "sharers"
SEGMENT = {"segment_bytes": 1024}
ONE_TRY = HttpSettings(retry=RetrySettings(retries_max=0))


class BusyNode(SecuredBroker):
    """HTTP with passwords and with TLS; Kafka and SQS are open to anonymous clients."""

    def __init__(self, directory: Path, *, metrics: str, traces: str) -> None:
        """The addresses are those of collectors."""
        files = Authority(directory / "tls").sign("node", "127.0.0.1")
        super().__init__(
            directory,
            {
                **SETTINGS,
                **server_settings(files),
                "security.super_users": "User:ANONYMOUS",
                "storage.retention_check_ms": 100,
                "metrics.client_interval_ms": "1s",
                "metrics.otlp_endpoint": metrics,
                "metrics.otlp_interval_ms": "1s",
                "journeys.otlp_endpoint": traces,
            },
        )
        self.tls_port = quiet_port()

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        command[command.index("--listen-http") + 1] += f",ssl://127.0.0.1:{self.tls_port}"
        at = command.index("--listen-sqs") + 1
        command[at] = command[at].removeprefix("sasl_plaintext://")
        return command

    def client(self, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> Client:
        return Client(self.http, ONE_TRY, username=user, password=password)


def work(node: BusyNode) -> None:
    """Do work of every kind."""
    eventually(lambda: _is_up(node), because="the administrator is created")
    with node.client() as client:
        client.topics.create(ORDERS)
        _fall_behind_retention(node, client)
        _stream(node)
        _queue(client)
        _schedule(client)
        _transact(client)
        _validate(client)
        _compact(node, client)
        _serve_a_tenant(node, client)
        _throttle(node, client)
    _deduplicate(node)
    _refuse(node)


class Reporters:
    """A producer and a consumer that report what they measure for as long as they live, and a
    member of a share group, which counts for as long as it fetches."""

    def __init__(self, node: BusyNode) -> None:
        settings = {"bootstrap.servers": node.bootstrap}
        self._producer = Producer(settings)
        self._consumer = Consumer({**settings, "group.id": "reporters"})
        self._consumer.subscribe([ORDERS])
        self._members = ExitStack()
        sharing = share_consumer(node.bootstrap, SHARERS, ORDERS, is_explicit=False)
        self._member = self._members.enter_context(sharing)

    def work(self) -> None:
        """Give them something to measure."""
        self._producer.produce(ORDERS, b"more")
        self._producer.flush(20)
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            self._consumer.commit(message, asynchronous=False)
        received(self._member)

    def close(self) -> None:
        self._consumer.close()
        self._members.close()


def _is_up(node: BusyNode) -> bool:
    with node.as_admin() as api:
        return api.get("/v1/whoami").status_code == 200


def _produce(node: BusyNode, topic: str, count: int, *, size: int = 10, key: str = "k") -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    for _ in range(count):
        producer.produce(topic, b"x" * size, key=key)
        producer.flush(20)


def _fall_behind_retention(node: BusyNode, client: Client) -> None:
    """A group commits, and retention deletes what it has not read."""
    client.topics.create(SHORT, settings=SEGMENT)
    _produce(node, SHORT, 10, size=500)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": READERS})
    consumer.commit(offsets=[TopicPartition(SHORT, 0, 1)], asynchronous=False)
    consumer.close()
    client.node.metrics()  # a loss is counted between two scrapes
    client.topics.configure(SHORT, {"retention_bytes": 1024})

    def is_deleted() -> bool:
        return client.topics.partitions(SHORT)[0].start_offset > 1

    eventually(is_deleted, because="retention deleted what the group had not read")


def _stream(node: BusyNode) -> None:
    """A member joins a group, reads and commits; what it leaves is lag."""
    _produce(node, ORDERS, 5)
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": READERS,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([ORDERS])
    message = eventually(lambda: consumer.poll(0.5), because="a message is read")
    consumer.commit(message, asynchronous=False)
    consumer.close()


def _queue(client: Client) -> None:
    """Messages of two priorities: acknowledged, returned, rejected, redriven."""
    many = [Outgoing(value=f"{one}", priority=one) for one in ("high", "normal") for _ in range(4)]
    client.publish_many(ORDERS, many)
    queue = client.queue(ORDERS, group=GROUP)
    returned, rejected, acked, *_ = queue.receive(4, wait=5)
    queue.nack(returned, delay=0)
    queue.reject(rejected)
    queue.ack(acked)
    queue.receive(1, wait=5)
    letters = client.dead_letters(ORDERS)
    eventually(lambda: list(letters.list_all()), because="the dead letter is there")
    redrive = letters.redrive()
    eventually(
        lambda: letters.show_redrive(redrive.id).moved == 1, because="the dead letter is moved"
    )


def _schedule(client: Client) -> None:
    client.publish(ORDERS, "soon", delay=0.05)
    client.publish(ORDERS, "in an hour", delay=3600)
    cancelled = client.publish(ORDERS, "never", delay=3600)
    client.schedules.cancel(cancelled.schedule_id)
    eventually(lambda: client.schedules.stats().released >= 1, because="a message was released")


def _transact(client: Client) -> None:
    with client.transaction() as transaction:
        transaction.publish(ORDERS, "together")
    client.transaction("left open").__enter__()


def _validate(client: Client) -> None:
    client.topics.create(STRICT, settings={"schema_validation": "value"})
    schema = client.schemas.register(f"{STRICT}-value", SCHEMA, kind="JSON")
    head = b"\0" + schema.id.to_bytes(4, "big")
    client.publish(STRICT, head + b'{"n": 1}')
    with suppress(GoQueueError):
        client.publish(STRICT, head + b'{"n": "one"}')


def _compact(node: BusyNode, client: Client) -> None:
    client.topics.create(KEYED, settings={**SEGMENT, "cleanup_policy": "compact"})
    _produce(node, KEYED, 10, size=500)
    client.topics.compact(KEYED)


def _serve_a_tenant(node: BusyNode, client: Client) -> None:
    node.cli("tenant", "create", TENANT, "--admin", TENANT_USER)
    secret = node.directory / "tenant.password"
    secret.write_text(TENANT_PASSWORD)
    node.cli("user", "create", TENANT_USER, "--tenant", TENANT, "--password-file", str(secret))
    client.quotas.set({"tenant": TENANT}, {"producer_byte_rate": 1 << 20})
    with node.client(TENANT_USER, TENANT_PASSWORD) as own:
        own.publish("orders", "of the tenant")
        own.queue("orders", group=GROUP).receive(1, wait=5)
        list(own.read("orders", from_="earliest"))


def _throttle(node: BusyNode, client: Client) -> None:
    """A client writes more than its quota."""
    client.quotas.set({"client-id": "greedy"}, {"producer_byte_rate": 1000})
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "greedy"})
    for _ in range(5):
        producer.produce(ORDERS, b"x" * 2_000)
    producer.flush(30)


def _deduplicate(node: BusyNode) -> None:
    client = sqs.connect(node.sqs)
    url = client.create_queue(QueueName=FIFO, Attributes={"FifoQueue": "true"})["QueueUrl"]
    for _ in range(2):
        sqs.Queue(client, url).send("once", MessageGroupId="g", MessageDeduplicationId="1")


def _refuse(node: BusyNode) -> None:
    """A wrong password, an action that is denied, and a client without TLS."""
    node.create_user("mallory", "planted-mallory-passw0rd")
    attempts: list[Callable[[Client], object]] = [lambda one: one.topics.list_all()]
    with node.client("mallory", "planted-mallory-passw0rd") as mallory:
        attempts.append(lambda one: mallory.publish(ORDERS, "denied"))
        with node.client("mallory", "wrong") as wrong:
            for attempt in attempts:
                with suppress(GoQueueError):
                    attempt(wrong)
    with socket.create_connection(("127.0.0.1", node.tls_port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.recv(100)
