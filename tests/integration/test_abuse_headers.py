"""Megabytes of headers, of records or of requests, do not make others wait."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from goqueue.model.batch import Record, encode_batch
from goqueue.model.compression import Compression

from .abuse import MiB, bounded, receive
from .process import Broker
from .topics import create_topic
from .wire import PRODUCE, connect, produce_v3, produced_v3

pytestmark = pytest.mark.single_node("measures the memory of one process")

INVALID_RECORD, MESSAGE_TOO_LARGE = 87, 10
HEADERS = 9_000  # of one record, of at most ten thousand
RECORDS = 100
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    node = Broker(tmp_path_factory.mktemp("headers"), {})
    try:
        node.start()
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
        create_topic(admin, "headed", partitions=1, **{"max.message.bytes": str(20 * MiB)})
        yield node
    finally:
        node.close()


def _produce(node: Broker, batch: bytes) -> int:
    with connect(node.bootstrap) as wire:
        wire.request(PRODUCE, 3, produce_v3("headed", batch))
        return produced_v3(wire.answer()[1])[0]


def _batch(records: int, headers: int, name: str = "h") -> bytes:
    record = Record(b"k", b"v", ((name, b""),) * headers, NOW_MS)
    return bytes(encode_batch([record] * records, codec=Compression.ZSTD))


def test_a_record_of_too_many_headers_is_refused(node: Broker) -> None:
    assert _produce(node, _batch(1, 10_000)) == 0
    assert _produce(node, _batch(1, 10_001)) == INVALID_RECORD


def test_a_batch_of_too_many_headers_with_delays_is_refused(node: Broker) -> None:
    batch = _batch(RECORDS, HEADERS, "goqueue-nothing")
    with bounded(node):
        assert _produce(node, batch) == MESSAGE_TOO_LARGE


def test_records_of_many_headers_are_read_a_few_at_a_time(node: Broker) -> None:
    assert _produce(node, _batch(RECORDS, HEADERS)) == 0
    count = 0
    with bounded(node):
        for _ in range(5):
            url = f"{node.http}/v1/topics/headed/messages?limit=1000"
            count += len(httpx.get(url, timeout=60).json()["messages"])
        received = receive(node, "heads", "headed", 1000)
    assert 0 < count < 5 * RECORDS
    assert 0 < len(received) < RECORDS


def test_a_request_of_many_record_headers_is_refused(node: Broker) -> None:
    headers = [{"name": "h", "value": ""}] * 1000
    body = json.dumps({"messages": [{"value": "v", "headers": headers} for _ in range(400)]})
    assert 8 * MiB < len(body) < 16 * MiB
    with bounded(node):
        answer = httpx.post(
            f"{node.http}/v1/topics/headed/batch",
            content=body,
            headers={"content-type": "application/json"},
            timeout=60,
        )
    assert answer.status_code == 400
    assert "headers together" in answer.text


@pytest.mark.parametrize("kind", ["head", "trailers"])
def test_a_request_of_many_http_headers_is_refused(node: Broker, kind: str) -> None:
    host, port = node.http.removeprefix("http://").split(":")
    start = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n"
    if kind == "trailers":
        start = b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\n"
        start += b"transfer-encoding: chunked\r\n\r\n0\r\n"
    lines = b"".join(b"h%d: %d\r\n" % (number, number) for number in range(10_000))
    received = b""
    with bounded(node), socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(start)
        try:
            for _ in range(80):  # ten megabytes
                client.sendall(lines)
        except ConnectionError:
            pass  # It was closed meanwhile, as it should be.
        try:
            received = client.recv(65536)
        except ConnectionError:
            pass
    assert received == b"" or received.startswith(b"HTTP/1.1 431")
