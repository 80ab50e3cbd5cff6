"""Requests of many megabytes, whole and half, cost bounded memory, and others send theirs."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from confluent_kafka import Producer

from .abuse import MiB, bounded
from .conftest import StartBroker
from .process import Broker
from .wire import PRODUCE, connect, frame, produce_v3, produced_v3, request_header

pytestmark = pytest.mark.single_node("measures the memory of one process")

REQUEST_BYTES = 95 * MiB
HALF_BYTES = 60 * MiB
CONNECTIONS = 6
INVALID_RECORD = 87
PIECE = bytes(MiB)


@contextmanager
def _half_requests(address: str, start: bytes) -> Iterator[None]:
    """Connections that send the larger part of a request, and then nothing."""
    host, port = address.split(":")

    def send(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(start)
            for _ in range(HALF_BYTES // MiB):
                connection.sendall(PIECE)

    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection((host, int(port))))
            for _ in range(CONNECTIONS)
        ]
        threads = [threading.Thread(target=send, args=(one,)) for one in connections]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def test_half_requests_over_kafka_cost_little_and_others_send_theirs(
    start_broker: StartBroker,
) -> None:
    node = start_broker()
    httpx.post(f"{node.http}/v1/topics", json={"name": "orders"}).raise_for_status()
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 2})
    start = struct.pack(">i", REQUEST_BYTES) + request_header(PRODUCE, 3, 1)
    with bounded(node), _half_requests(node.bootstrap, start):
        time.sleep(3)  # by now all memory for such requests is taken
        for _ in range(20):
            producer.produce("orders", bytes(900_000))
        assert producer.flush(30) == 0, node.log_text[-2000:]
    assert "listeners.receive_buffer_bytes_total_max" in node.log_text


def test_half_bodies_over_http_cost_little(start_broker: StartBroker) -> None:
    node = start_broker()
    host = node.http.removeprefix("http://")
    start = f"POST /v1/topics HTTP/1.1\r\nHost: {host}\r\nContent-Length: {15 * MiB}\r\n\r\n"
    with bounded(node), ExitStack() as stack:
        for _ in range(20):
            connection = socket.create_connection(tuple(host.split(":")), timeout=30)  # type: ignore[arg-type]
            stack.enter_context(connection)
            with contextlib.suppress(OSError):
                connection.sendall(start.encode() + bytes(14 * MiB))


def _whole(node: Broker, count: int) -> list[int]:
    """The error codes of so many requests at once, each of them with one huge batch."""
    request = frame(request_header(PRODUCE, 3, 1) + produce_v3("orders", bytes(REQUEST_BYTES)))
    codes: list[int] = []

    def send() -> None:
        while True:
            with contextlib.suppress(ConnectionError), connect(node.bootstrap) as wire:
                wire.send(request)
                codes.append(produced_v3(wire.answer()[1])[0])
                return

    threads = [threading.Thread(target=send) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return codes


@pytest.mark.parametrize("count", [1, 4])
def test_the_largest_requests_are_answered_and_cost_little(
    start_broker: StartBroker, count: int
) -> None:
    node = start_broker()
    httpx.post(f"{node.http}/v1/topics", json={"name": "orders"}).raise_for_status()
    with bounded(node):
        codes = _whole(node, count)
    assert codes == [INVALID_RECORD] * count
