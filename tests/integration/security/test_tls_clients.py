"""Stock clients of every protocol over TLS, those that cannot connect, and new certificates."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from confluent_kafka.admin import AdminClient

from tests.certificates import Authority
from tests.integration.waiting import eventually

from .tls_nodes import (
    SECONDS_MAX,
    TlsBroker,
    Trust,
    curl,
    kcat,
    read,
    round_trip_aiokafka,
    write,
)

pytestmark = pytest.mark.single_node("the listeners are those of one node")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "servers")


@pytest.fixture(scope="module")
def node(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    files = authority.sign("server", "127.0.0.1", "localhost", days=10)
    broker = TlsBroker(tmp_path_factory.mktemp("tls"), files)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@pytest.fixture(scope="module")
def trust(authority: Authority) -> Trust:
    return Trust(authority.sign("any", "any").authorities)


def test_kafka_clients_write_and_read(node: TlsBroker, trust: Trust) -> None:
    values = [b"%d" % one for one in range(100)]
    write(node.at("kafka"), trust, "confluent", values)
    assert sorted(read(node.at("kafka"), trust, "confluent", 100)) == sorted(values)
    kcat(node.at("kafka"), trust, "-P", "-t", "kcat", input="hello\n")
    assert kcat(node.at("kafka"), trust, "-C", "-t", "kcat", "-e", "-q") == "hello\n"
    assert round_trip_aiokafka(node.at("kafka"), trust, "aiokafka", b"hello") == b"hello"


def test_large_messages_pass_in_pieces(node: TlsBroker, trust: Trust) -> None:
    values = [bytes([one]) * 900_000 for one in range(12)]
    write(node.at("kafka"), trust, "large", values)
    assert sorted(read(node.at("kafka"), trust, "large", 12)) == values


def test_clients_are_sent_to_the_listener_that_they_came_by(node: TlsBroker, trust: Trust) -> None:
    for address, settings in ((node.at("kafka"), trust.librdkafka), (node.bootstrap, {})):
        found = AdminClient({"bootstrap.servers": address, **settings}).list_topics(timeout=20)
        assert [str(one).partition("/")[0] for one in found.brokers.values()] == [address]


def test_every_listener_is_named_at_the_start_and_in_the_ready_file(node: TlsBroker) -> None:
    ready = json.loads((node.directory / "ready.json").read_text())
    for protocol, port in node.tls_ports.items():
        assert ready[f"{protocol}-ssl"] == f"127.0.0.1:{port}"
        assert f"{protocol}-ssl ".ljust(13) + f"ssl://127.0.0.1:{port}" in node.log_text


def test_http_and_its_relatives_are_served(node: TlsBroker, trust: Trust) -> None:
    https = f"https://{node.at('http')}"
    assert "topics" in json.loads(curl(f"{https}/v1/topics", trust).stdout)
    assert json.loads(curl(f"https://{node.at('registry')}/subjects", trust).stdout) == []
    shown = curl(f"{https}/v1/topics", trust, "-v", "--http1.1").stderr
    assert "server accepted http/1.1" in shown
    nodes = json.loads(curl(f"{https}/v1/admin/nodes", trust).stdout)["nodes"]
    assert nodes[0]["addresses"]["kafka-ssl"] == f"ssl://{node.at('kafka')}"
    assert nodes[0]["addresses"]["http"] == node.http.removeprefix("http://")


def test_sqs_clients_send_and_receive(node: TlsBroker, trust: Trust) -> None:
    client = boto3.client(
        "sqs",
        endpoint_url=f"https://{node.at('sqs')}",
        verify=str(trust.authorities),
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    url = client.create_queue(QueueName="tls")["QueueUrl"]
    assert url.startswith("https://")
    client.send_message(QueueUrl=url, MessageBody="hello")
    (message,) = client.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert message["Body"] == "hello"


def test_a_client_of_another_authority_does_not_connect(node: TlsBroker, tmp_path: Path) -> None:
    other = Trust(Authority(tmp_path, "other").sign("any", "any").authorities)
    assert "certificate" in curl(f"https://{node.at('http')}/", other).stderr
    with pytest.raises(ConnectionError):
        write(node.at("kafka"), other, "never", [b"x"], seconds=1)
    node.until_logged("it refuses this node's certificate: tlsv1 alert unknown ca")


def test_a_name_that_the_certificate_lacks_is_noticed_by_the_client(
    node: TlsBroker, trust: Trust
) -> None:
    port = node.tls_ports["http"]
    words = ("--resolve", f"queue.example:{port}:127.0.0.1")
    assert "queue.example" in curl(f"https://queue.example:{port}/", trust, *words).stderr


def test_old_versions_are_refused(node: TlsBroker, trust: Trust) -> None:
    context = ssl.create_default_context(cafile=str(trust.authorities))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", node.tls_ports["kafka"])) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        name, version, _ = secured.cipher() or ("", "", 0)
        assert version == "TLSv1.2"
        assert name.startswith("ECDHE")
    client_hello = b"\x16\x03\x01\x00\x31\x01\x00\x00\x2d\x03\x01" + bytes(32) + b"\x00"
    client_hello += b"\x00\x02\x00\x2f\x01\x00\x00\x02\x00\x00"
    with socket.create_connection(("127.0.0.1", node.tls_ports["kafka"])) as plain:
        plain.settimeout(SECONDS_MAX)
        plain.sendall(client_hello)
        answer = plain.recv(100)
    assert answer[:1] in (b"\x15", b""), "an alert, or nothing"


def test_clients_that_mix_up_the_ports_are_named_and_answered(
    node: TlsBroker, trust: Trust
) -> None:
    plain = curl(f"http://{node.at('http')}/v1/topics", trust, "-w", "%{http_code}").stdout
    assert plain.endswith("https://.\n400")
    node.until_logged("it does not use TLS, which this listener requires; it uses HTTP")
    with pytest.raises(ConnectionError):
        write(node.bootstrap, trust, "never", [b"x"], seconds=1)
    node.until_logged("a client uses TLS on a port for Kafka")
    assert curl(node.http.replace("http:", "https:"), trust).returncode
    node.until_logged("a client uses TLS on a port for HTTP")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x16",
        b"\x16\x03\x01",
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x15" * 40,
        b"\0" * 9,
    ],
)
def test_garbage_ends_only_its_own_connection(
    node: TlsBroker, trust: Trust, garbage: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", node.tls_ports["kafka"])) as bad:
        bad.settimeout(SECONDS_MAX)
        try:
            bad.sendall(garbage)
            bad.shutdown(socket.SHUT_WR)
            while bad.recv(4096):
                pass
        except OSError:
            pass  # The node may close it at once.
    assert curl(f"https://{node.at('http')}/v1/topics", trust).returncode == 0
    assert "Traceback" not in node.log_text


def serial_of(node: TlsBroker, trust: Trust) -> object:
    context = ssl.create_default_context(cafile=str(trust.authorities))
    with (
        socket.create_connection(("127.0.0.1", node.tls_ports["kafka"])) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        shown = secured.getpeercert()
        assert shown is not None
        return shown["serialNumber"]


def test_a_new_certificate_counts_at_once_and_no_message_is_lost(
    node: TlsBroker, trust: Trust, authority: Authority
) -> None:
    before = serial_of(node, trust)
    written: list[bytes] = []
    is_over = threading.Event()

    def load(name: bytes) -> None:
        round_number = 0
        while not is_over.is_set():
            values = [b"%b-%d-%d" % (name, round_number, one) for one in range(50)]
            write(node.at("kafka"), trust, "swapped", values)  # with a connection of its own
            written.extend(values)
            round_number += 1

    threads = [threading.Thread(target=load, args=(name,)) for name in (b"a", b"b")]
    for thread in threads:
        thread.start()
    seen = {before}
    for _ in range(3):
        authority.sign("server", "127.0.0.1", "localhost", days=20)
        now = serial_of(node, trust)
        assert now not in seen, "the next connection sees the new one"
        seen.add(now)
    is_over.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
    found = read(node.at("kafka"), trust, "swapped", len(written))
    assert sorted(found) == sorted(written)
    node.until_logged("the certificate has changed; new connections use the new one")


def test_an_unusable_certificate_is_named_and_the_old_one_kept(
    node: TlsBroker, trust: Trust
) -> None:
    path = Path(str(node.settings["security.tls_certificate"]))
    good, before = path.read_bytes(), serial_of(node, trust)
    try:
        path.write_text("not a certificate")
        assert serial_of(node, trust) == before
        node.until_logged("the new certificate cannot be used, so the old one is kept")
    finally:
        path.write_bytes(good)


def test_a_certificate_that_expires_soon_is_warned_about(node: TlsBroker) -> None:
    eventually(
        lambda: "(security.tls_certificate) expires in 9 days" in node.log_text,
        because="the expiry is checked at the start",
    )
