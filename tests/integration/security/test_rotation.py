"""Rotation under load: passwords, keys and certificates change, and no message is lost.

Stock clients write over every front end while the credentials that they use are replaced, the old
ones are deleted, and the nodes get another certificate. Sessions of Kafka clients last a second, so
each of them authenticates with the new credentials. On three nodes, credentials are replaced at one
of them, and clients of HTTP and SQS use others.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from goqueue.client import ClientSettings, LogClient, Position, SaslSettings, TlsSettings
from tests.integration.waiting import eventually

from .encrypted import EncryptedBroker, EncryptedCluster

SESSION_MS = 1_000
PASSWORDS = ("planted-First-passw0rd", "planted-Second-passw0rd")
PAUSE_S = 0.01

Nodes = EncryptedBroker | EncryptedCluster

pytestmark = [
    pytest.mark.single_node("it has nodes of its own"),
    pytest.mark.timeout(240),
]


class Credentials:
    """What the clients of one user log in with now."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        nodes.run("user", "create", "ann", "--password-file", "-", stdin=PASSWORDS[0])
        self.password = PASSWORDS[0]
        self.api_key = self._create("api")
        self.access_key = self._create("access")

    def _create(self, kind: str) -> dict[str, str]:
        made, _ = self._nodes.run("key", "create", "ann", "--kind", kind, "-o", "json")
        found: dict[str, str] = json.loads(made)
        return found

    def rotate(self) -> list[str]:
        """Replace all of them; the ids of the old keys."""
        self._nodes.run("user", "set-password", "ann", "--password-file", "-", stdin=PASSWORDS[1])
        self.password = PASSWORDS[1]
        old = [self.api_key["id"], self.access_key["id"]]
        rotated, _ = self._nodes.run("key", "rotate", old[0], "--overlap", "1h", "-o", "json")
        api_key, access_key = json.loads(rotated), self._create("access")
        # Clients get keys that all nodes know: a node learns of a key a moment after another.
        eventually(
            lambda: accepts(self._nodes, api_key) and signs(self._nodes, access_key),
            because="the nodes of the clients know the keys",
        )
        self.api_key, self.access_key = api_key, access_key
        return old


class Writer(threading.Thread):
    """Writes numbers until it is told to stop; `acknowledged` are those that must be there."""

    def __init__(self, write: Callable[[int], None], end: threading.Event) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self.error: BaseException | None = None
        self._write = write
        self._end = end

    def run(self) -> None:
        number = 0
        try:
            while not self._end.is_set():
                self._write(number)
                self.acknowledged.append(number)
                number += 1
                time.sleep(PAUSE_S)
        except BaseException as error:  # shown by the test
            self.error = error


class Clients:
    """A stock client of each front end, whose writes return when the broker has acknowledged."""

    def __init__(self, nodes: Nodes, credentials: Credentials) -> None:
        self._nodes = nodes
        self._credentials = credentials
        self._sqs: tuple[str, Any] = ("", None)
        self._http = httpx.Client(
            base_url=nodes.http, verify=ssl.create_default_context(cafile=nodes.ca_file), timeout=20
        )
        self._confluent = confluent_kafka.Producer(
            {**self._librdkafka(), "enable.idempotence": True, "linger.ms": 0}
        )
        settings = ClientSettings(
            tls=TlsSettings(nodes.ca_file),
            sasl=SaslSettings("SCRAM-SHA-256", "ann", lambda: credentials.password),
        )
        self._log = LogClient(nodes.bootstrap, settings)
        self._producer = self._log.producer()

    def writes(self) -> dict[str, Callable[[int], None]]:
        return {
            "confluent": self._by_confluent,
            "log": self._by_log,
            "http": self._by_http,
            "sqs": self._by_sqs,
        }

    def use_new_password(self) -> None:
        """librdkafka is told; the other clients ask."""
        self._confluent.set_sasl_credentials("ann", self._credentials.password)

    def close(self) -> None:
        self._producer.close()
        self._log.close()
        self._http.close()

    def _librdkafka(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._nodes.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self._nodes.ca_file,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": self._credentials.password,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }

    def _by_confluent(self, number: int) -> None:
        failed: list[Any] = []
        self._confluent.produce(
            "confluent", b"%d" % number, on_delivery=lambda error, _: error and failed.append(error)
        )
        assert self._confluent.flush(30) == 0, "not acknowledged in time"
        assert not failed, failed

    def _by_log(self, number: int) -> None:
        self._producer.send("log", b"%d" % number)
        self._producer.flush()

    def _by_http(self, number: int) -> None:
        answer = self._http.post(
            "/v1/topics/http/publish",
            json={"value": str(number)},
            headers={"authorization": f"Bearer {self._credentials.api_key['secret']}"},
        )
        assert answer.status_code in (200, 201), answer.text

    def _by_sqs(self, number: int) -> None:
        key = self._credentials.access_key
        if key["id"] != self._sqs[0]:
            self._sqs = key["id"], sqs_client(self._nodes, key)
        sqs = self._sqs[1]
        url = sqs.get_queue_url(QueueName="letters")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=str(number))


def accepts(nodes: Nodes, key: dict[str, str]) -> bool:
    """Whether the node that clients use over HTTP takes an API key."""
    header = {"authorization": f"Bearer {key['secret']}"}
    context = ssl.create_default_context(cafile=nodes.ca_file)
    answer = httpx.get(f"{nodes.http}/v1/whoami", headers=header, verify=context)
    assert answer.status_code in (200, 401), answer.text
    return answer.status_code == 200


def signs(nodes: Nodes, key: dict[str, str]) -> bool:
    """Whether the node that clients use over SQS takes signatures with a key."""
    try:
        sqs_client(nodes, key).list_queues()
    except ClientError:
        return False
    return True


def sqs_client(nodes: Nodes, key: dict[str, str]) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=nodes.sqs,
        region_name="us-east-1",
        aws_access_key_id=key["id"],
        aws_secret_access_key=key["secret"],
        verify=nodes.ca_file,
        config=Config(retries={"max_attempts": 1}),
    )


@pytest.fixture(params=[EncryptedBroker, EncryptedCluster], ids=["one", "three"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    made: Nodes = request.param(tmp_path, {"security.connections_max_reauth_ms": SESSION_MS})
    try:
        made.start()
        yield made
    finally:
        made.close()


def serial_of(nodes: Nodes, address: str) -> bytes:
    """The certificate that a listener shows."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=nodes.ca_file)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        return encrypted.getpeercert(binary_form=True) or b""


def listeners_of(nodes: Nodes) -> list[str]:
    each = list(nodes.nodes.values()) if isinstance(nodes, EncryptedCluster) else [nodes]
    return [one.rpartition("//")[2] for node in each for one in (node.bootstrap, node.http)]


def test_credentials_and_certificates_change_under_load(nodes: Nodes) -> None:
    credentials = Credentials(nodes)
    for topic in ("confluent", "log", "http"):
        nodes.run("topic", "create", topic, "--partitions", "3")
    eventually(
        lambda: accepts(nodes, credentials.api_key) and signs(nodes, credentials.access_key),
        because="the nodes of the clients know the keys",
    )
    sqs_client(nodes, credentials.access_key).create_queue(QueueName="letters")
    old_key, old_access = credentials.api_key, credentials.access_key
    clients, end = Clients(nodes, credentials), threading.Event()
    writers = {name: Writer(write, end) for name, write in clients.writes().items()}
    listeners = [*listeners_of(nodes), nodes.sqs.rpartition("//")[2]]
    before = {one: serial_of(nodes, one) for one in listeners}
    try:
        for writer in writers.values():
            writer.start()
        progress(writers, 20)
        old_ids = credentials.rotate()
        clients.use_new_password()
        progress(writers, 2)  # Whatever was sent with the old keys is answered.
        for key_id in old_ids:
            nodes.run("key", "delete", key_id, "--yes")
        progress(writers, 20)
        nodes.new_certificate()
        for one in listeners:
            eventually(
                lambda one=one: serial_of(nodes, one) != before[one],  # type: ignore[misc]
                because=f"{one} shows the new certificate",
                within=20,
            )
        time.sleep(1.5 * SESSION_MS / 1000)  # Every session of Kafka clients was renewed since.
        progress(writers, 20)
    finally:
        end.set()
        for writer in writers.values():
            writer.join(40)
        clients.close()
    check_refused(nodes, old_key, old_access)
    check_all_there(nodes, credentials, writers)


def progress(writers: dict[str, Writer], count: int) -> None:
    """Wait until each writer has written some more."""
    wanted = {name: len(one.acknowledged) + count for name, one in writers.items()}

    def is_done() -> bool:
        for name, one in writers.items():
            assert one.error is None, f"{name}: {one.error!r}"
        return all(len(one.acknowledged) >= wanted[name] for name, one in writers.items())

    eventually(is_done, because="all clients write", within=40)


def check_refused(nodes: Nodes, api: dict[str, str], access: dict[str, str]) -> None:
    """What was replaced is worth nothing any more."""
    assert not accepts(nodes, api)
    assert not signs(nodes, access)
    login = {"GOQUEUE_USER": "ann", "GOQUEUE_PASSWORD": PASSWORDS[0]}
    _, said = nodes.run("topic", "list", code=1, **login)
    assert "refused the credentials" in said


def check_all_there(nodes: Nodes, credentials: Credentials, writers: dict[str, Writer]) -> None:
    settings = ClientSettings(
        tls=TlsSettings(nodes.ca_file),
        sasl=SaslSettings("SCRAM-SHA-512", "ann", credentials.password),
    )
    with LogClient(nodes.bootstrap, settings) as client:
        for name, writer in writers.items():
            topic = "letters" if name == "sqs" else name
            reader = client.reader([topic], Position.earliest(), until=Position.latest())
            found = [int(one.value or b"") for one in reader.records()]
            assert sorted(found) == writer.acknowledged, name
