"""Quotas with real clients: rates are held, clients are told, others notice nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient

from goqueue.wire.kafka.headers import encode_request_header
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.integration.cluster import Cluster
from tests.integration.process import Broker
from tests.integration.sharing import commit, configure, fill, received, share_consumer
from tests.integration.sqs import connect
from tests.integration.topics import create_topic
from tests.integration.waiting import eventually
from tests.unit.wire.kafka.requests import records_for

from .throttled import Flood, Reader, rate_of, set_quota

RATE = 2_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(
        tmp_path_factory.mktemp("quotas"),
        {"storage.fsync": "none", "groups.initial_rebalance_delay_ms": 0},
    )
    broker.start()
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def topic(node: Broker) -> str:
    return create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), "orders")


def test_a_producer_and_a_consumer_are_held_to_their_rates(node: Broker, topic: str) -> None:
    set_quota(node.http, {"client-id": "writer"}, producer_byte_rate=RATE)
    set_quota(node.http, {"client-id": "reader"}, consumer_byte_rate=RATE)
    flood = Flood(node.bootstrap, topic, "writer")
    try:
        written = rate_of(flood.work, skipped=2, seconds=4)
    finally:
        flood.close()
    assert flood.errors == []
    assert 0.95 * RATE <= written <= 1.05 * RATE, f"{written:.0f} bytes/s"
    assert flood.throttle.ms_max > 0
    reader = Reader(node.bootstrap, topic, "reader")
    try:
        read = rate_of(reader.work, skipped=1.5, seconds=3)
    finally:
        reader.close()
    assert 0.9 * RATE <= read <= 1.1 * RATE, f"{read:.0f} bytes/s"
    assert reader.throttle.ms_max > 0


def test_aiokafka_is_held_to_its_rate_and_loses_nothing(node: Broker, topic: str) -> None:
    set_quota(node.http, {"client-id": "aio"}, producer_byte_rate=RATE)

    async def produce() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=node.bootstrap, client_id="aio", max_batch_size=50_000
        )
        await producer.start()
        try:
            began = time.monotonic()
            sent = [await producer.send(topic, b"x" * 10_000) for _ in range(600)]
            await asyncio.gather(*sent)
            return 6_000_000 / (time.monotonic() - began)
        finally:
            await producer.stop()

    rate = asyncio.run(produce())  # 6 MB at 2 MB/s, of which the first 2 MB are the burst
    assert 0.8 * RATE <= rate <= 1.6 * RATE


def test_curl_gets_429_with_retry_after(node: Broker, topic: str) -> None:
    set_quota(node.http, {"user": None}, producer_message_rate=1)
    try:
        command = [
            *("curl", "-s", "-i", "-H", "content-type: application/json"),
            *("-d", '{"value": "x"}', f"{node.http}/v1/topics/{topic}/publish"),
        ]
        answers = [
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.lower()
            for _ in range(3)
        ]
    finally:
        set_quota(node.http, {"user": None}, producer_message_rate=None)
    assert "200 ok" in answers[0]
    assert "429 too many requests" in answers[-1]
    assert "retry-after: 1" in answers[-1]
    assert 'ratelimit: "producer_message_rate";r=0;t=1' in answers[-1]


def test_boto3_retries_until_its_messages_are_stored(node: Broker) -> None:
    sqs = connect(node.sqs, attempts_max=10)
    url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
    set_quota(node.http, {"user": None}, producer_message_rate=2)
    try:
        answers = [sqs.send_message(QueueUrl=url, MessageBody="x") for _ in range(5)]
    finally:
        set_quota(node.http, {"user": None}, producer_message_rate=None)
    assert sum(one["ResponseMetadata"]["RetryAttempts"] for one in answers) > 0


def test_a_client_that_hangs_up_while_it_is_muted_is_noticed(node: Broker, topic: str) -> None:
    set_quota(node.http, {"client-id": "rude"}, producer_byte_rate=10)
    api = API_BY_NAME["Produce"]
    data = PartitionProduceData(index=0, records=records_for(9, b"x" * 10_000))
    request = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    body = encode_request_header(api, version=9, correlation_id=1, client_id="rude")
    body += api.codec.encode_request(request, 9)
    host, _, port = node.bootstrap.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(len(body).to_bytes(4, "big") + body)
        connection.settimeout(10)
        length = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        # With unread bytes, closing would reset the connection, and the kernel forget it at once.
        assert len(connection.recv(length, socket.MSG_WAITALL)) == length
        connection.sendall(len(body).to_bytes(4, "big") + body)  # not read for hours
        client_port = connection.getsockname()[1]
        assert _is_held(int(port), client_port)
    eventually(
        lambda: not _is_held(int(port), client_port), because="the node has closed it", within=15
    )


def _is_held(node_port: int, client_port: int) -> bool:
    """Whether the node has its end of a connection open, though the client may have closed."""
    ends = f":{node_port:04X} 0100007F:{client_port:04X} "
    return ends in Path("/proc/net/tcp").read_text()


def test_an_address_over_its_connection_rate_is_turned_away(node: Broker) -> None:
    set_quota(node.http, {"ip": "127.0.0.1"}, connection_creation_rate=20)
    host, _, port = node.bootstrap.partition(":")
    opened = [socket.create_connection((host, int(port))) for _ in range(60)]
    try:
        refused = sum(map(_is_refused, opened))
    finally:
        for connection in opened:
            connection.close()
        eventually(lambda: _try_to_remove(node), because="the quota is removed")
    assert 20 <= refused < 60


def _is_refused(connection: socket.socket) -> bool:
    connection.settimeout(0.02)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def _try_to_remove(node: Broker) -> bool:
    try:
        set_quota(node.http, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    except Exception:
        return False
    return True


def test_the_command_line_sets_lists_shows_and_deletes(node: Broker) -> None:
    def goqueue(*words: str) -> str:
        command = [sys.executable, "-m", "goqueue", "--http", node.http, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    goqueue("quota", "set", "--user", "bob", "producer_byte_rate=1000", "request_rate=0.5")
    listed = json.loads(goqueue("-o", "json", "quota", "list", "--user", "bob"))
    assert {one["limit"]: one["value"] for one in listed} == {
        "producer_byte_rate": 1000,
        "request_rate": 0.5,
    }
    goqueue("quota", "delete", "--user", "bob", "--yes")
    assert json.loads(goqueue("-o", "json", "quota", "list", "--user", "bob")) == []


def test_three_nodes_hold_one_quota_together(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, settings={"storage.fsync": "none"})
    cluster.start()
    try:
        create_topic(cluster.admin, "orders", partitions=3)
        cluster.until_in_sync("orders")
        set_quota(cluster.nodes[1].http, {"client-id": "writer"}, producer_byte_rate=RATE)
        flood = Flood(cluster.bootstrap, "orders", "writer", acks=1)
        try:
            rate = rate_of(flood.work, skipped=3, seconds=4)
        finally:
            flood.close()
        assert flood.errors == []
        assert 0.9 * RATE <= rate <= 1.05 * RATE, f"{rate:.0f} bytes/s"
    finally:
        cluster.close()


def test_a_share_consumer_is_held_to_its_rate_and_gets_every_message_once(node: Broker) -> None:
    name, count, rate = "shared", 4_000, 1_000
    create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), name)
    configure(node.bootstrap, name, share_auto_offset_reset="earliest")
    fill(node.bootstrap, name, [f"{number:0500}" for number in range(count)])
    set_quota(node.http, {"client-id": "sharer"}, consumer_message_rate=rate)
    seen: list[bytes | None] = []
    settings = {"client_id": "sharer", "is_explicit": False}
    with share_consumer(node.bootstrap, name, name, **settings) as consumer:  # type: ignore[arg-type]
        began = time.monotonic()
        while len(seen) < count:
            seen += [one.value() for one in received(consumer)]
            assert time.monotonic() - began < 60, len(seen)
        seconds = time.monotonic() - began
        commit(consumer)
    assert sorted(seen) == [f"{number:0500}".encode() for number in range(count)]
    assert seconds > (count - 2 * rate - 500) / rate, "after the burst, by the rate"
