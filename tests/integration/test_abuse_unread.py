"""Clients that ask for much and do not read it cost little memory, and others no time."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import httpx
import pytest
from confluent_kafka import Producer

from .abuse import bounded
from .process import Broker
from .topics import create_topic
from .waiting import eventually
from .wire import FETCH, fetch_v4, frame, request_header

pytestmark = pytest.mark.single_node("measures the memory of one process")

HANG_UPS = 40
PIPELINED = 60
CONNECTIONS = 20
VALUE_BYTES = 60_000
VALUES = 300


class Ask(NamedTuple):
    """A request for a large answer, and where to send it."""

    address: str
    data: bytes


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    node = Broker(tmp_path_factory.mktemp("abused"), {})
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture(scope="module")
def topic(node: Broker) -> str:
    """A topic of 18 MB."""
    name = "large"
    create_topic(_admin(node), name, partitions=1)
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5})
    for number in range(VALUES):
        producer.produce(name, bytes([65 + number % 26]) * VALUE_BYTES)
    assert producer.flush(60) == 0
    return name


def _admin(node: Broker) -> object:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})


def _get(base: str, path: str) -> Ask:
    host = base.removeprefix("http://")
    return Ask(host, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def _page(node: Broker, topic: str) -> Ask:
    return _get(node.http, f"/v1/topics/{topic}/messages?limit=1000")


def _stream(node: Broker, topic: str) -> Ask:
    return _get(node.http, f"/v1/topics/{topic}/stream?from=earliest")


def _fetch(node: Broker, topic: str) -> Ask:
    request = request_header(FETCH, 4, 1) + fetch_v4(topic, bytes_max=50 << 20)
    return Ask(node.bootstrap, frame(request))


def _receive(node: Broker, topic: str) -> Ask:
    """A receive of ten messages of a megabyte, which stay visible."""
    headers = {"content-type": "application/x-amz-json-1.0"}

    def call(action: str, **fields: object) -> httpx.Response:
        target = headers | {"x-amz-target": f"AmazonSQS.{action}"}
        answer = httpx.post(f"{node.sqs}/", headers=target, json=fields, timeout=30)
        assert answer.is_success, answer.text
        return answer

    url = call("CreateQueue", QueueName="large").json()["QueueUrl"]
    for _ in range(10):
        call("SendMessage", QueueUrl=url, MessageBody="x" * 1_000_000)
    body = json.dumps({"QueueUrl": url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0})
    host = node.sqs.removeprefix("http://")
    head = (
        f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"X-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return Ask(host, (head + body).encode())


def _schema(node: Broker, topic: str) -> Ask:
    schema = {"type": "record", "name": "R", "fields": [], "doc": "d" * 1_000_000}
    url = f"{node.registry}/subjects/large/versions"
    answer = httpx.post(url, json={"schema": json.dumps(schema)}, timeout=60)
    assert answer.is_success, answer.text[:200]
    return _get(node.registry, "/subjects/large/versions/1")


asked = pytest.mark.parametrize(
    "ask", [_page, _stream, _fetch, _receive, _schema], ids=lambda ask: ask.__name__.strip("_")
)


def _connect(address: str) -> socket.socket:
    host, port = address.split(":")
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    connected.settimeout(60)
    connected.connect((host, int(port)))
    return connected


@asked
def test_a_client_that_hangs_up_costs_nothing(
    node: Broker, topic: str, ask: Callable[[Broker, str], Ask]
) -> None:
    address, data = ask(node, topic)
    with bounded(node):
        for _ in range(HANG_UPS):
            with _connect(address) as client:
                client.sendall(data)
                assert client.recv(1)


@asked
def test_answers_that_are_not_read_stop_the_work_on_a_connection(
    node: Broker, topic: str, ask: Callable[[Broker, str], Ask]
) -> None:
    address, data = ask(node, topic)
    with bounded(node), ExitStack() as open_clients:
        for _ in range(CONNECTIONS):
            client = open_clients.enter_context(_connect(address))
            client.sendall(data * PIPELINED)
        for _ in range(3):  # What was asked before this is at work or held back.
            assert httpx.get(f"{node.http}/v1/topics", timeout=60).is_success
        assert client.recv(1)
    if ask is _page:
        eventually(lambda: "listeners.unsent_bytes_total_max" in node.log_text)


def test_pipelined_pages_are_all_answered_to_a_client_that_reads(node: Broker, topic: str) -> None:
    address, data = _page(node, topic)
    with _connect(address) as client, bounded(node):
        client.sendall(data * 5 + data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        received = 0
        while piece := client.recv(1 << 20):
            received += len(piece)
    assert received > 6 * 16_000_000
