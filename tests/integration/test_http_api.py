"""The HTTP API of a real process, used by clients we did not write: httpx, curl, a raw socket."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .process import Broker
from .waiting import eventually

StartBroker = Callable[..., Broker]


@pytest.fixture(scope="module")
def api(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http, timeout=30) as client:
        yield client


@pytest.fixture
def orders(api: httpx.Client, unique: str) -> str:
    """The path of a topic with two partitions."""
    name = f"http-{unique}"
    good(api.post("/v1/topics", json={"name": name, "partitions": 2}))
    return f"/v1/topics/{name}"


def good(response: httpx.Response) -> Any:
    assert response.is_success, response.text
    return response.json() if response.content else None


@pytest.mark.on_cluster
def test_a_message_is_published_and_read_by_http_and_by_kafka(
    api: httpx.Client, broker: Broker, orders: str
) -> None:
    published = good(
        api.post(
            f"{orders}/publish",
            json={
                "key": "k",
                "value": "héllo",
                "headers": [{"name": "trace", "value": "AAE=", "encoding": "base64"}],
            },
        )
    )
    message = good(api.get(f"{orders}/messages/{published['partition']}/{published['offset']}"))
    assert message["value"] == "héllo"
    topic = orders.rpartition("/")[2]
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{topic}-kafka",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found = eventually(lambda: consumer.poll(0.2))
    consumer.close()
    assert (found.key(), found.value()) == (b"k", "héllo".encode())
    assert found.headers() == [("trace", b"\x00\x01")]
    assert (found.partition(), found.offset()) == (published["partition"], published["offset"])


def test_keys_go_where_kafka_clients_send_them(
    api: httpx.Client, broker: Broker, orders: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    placed: dict[str, int] = {}

    def delivered(error: object, message: Any) -> None:
        assert error is None
        placed[message.key().decode()] = message.partition()

    for number in range(20):
        topic = orders.rpartition("/")[2]
        producer.produce(topic, key=f"key-{number}", value="x", on_delivery=delivered)
    producer.flush(20)
    for key, partition in placed.items():
        assert (
            good(api.post(f"{orders}/publish", json={"key": key, "value": "x"}))["partition"]
            == partition
        )
    assert len(placed) == 20


CONTENT = st.none() | st.binary(max_size=200)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    key=CONTENT,
    value=CONTENT,
    headers=st.lists(st.tuples(st.text(min_size=1, max_size=20), CONTENT), max_size=4),
)
def test_arbitrary_bytes_come_back_exactly(
    api: httpx.Client,
    orders: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> None:
    body = {
        "key": _encoded(key),
        "key_encoding": "base64",
        "value": _encoded(value),
        "value_encoding": "base64",
        "headers": [
            {"name": name, "value": _encoded(content), "encoding": "base64"}
            for name, content in headers
        ],
    }
    published = good(api.post(f"{orders}/publish", json=body))
    path = f"{orders}/messages/{published['partition']}/{published['offset']}"
    for encoding in ("utf8", "base64"):
        message = good(api.get(path, params={"encoding": encoding}))
        assert _decoded(message["key"], message["key_encoding"]) == key
        assert _decoded(message["value"], message["value_encoding"]) == value
        found = [
            (one["name"], _decoded(one["value"], one["encoding"])) for one in message["headers"]
        ]
        assert found == headers


def _encoded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _decoded(text: str | None, encoding: str) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text) if encoding == "base64" else text.encode()


def test_a_long_poll_ends_when_a_message_comes(api: httpx.Client, orders: str) -> None:
    answers: list[Any] = []

    def wait() -> None:
        query = {"from": "latest", "wait_ms": 20_000}
        answers.append(
            good(httpx.get(f"{api.base_url}{orders}/messages", params=query, timeout=30))
        )

    waiting = threading.Thread(target=wait)
    waiting.start()
    # Until one of these comes after the poll has begun, the poll goes on.
    eventually(
        lambda: good(api.post(f"{orders}/publish", json={"value": "now"})) and answers,
        because="the poll was answered",
    )
    waiting.join()
    assert answers[0]["messages"][0]["value"] == "now"


def test_events_are_streamed_to_a_reader_that_reconnects(api: httpx.Client, orders: str) -> None:
    for number in range(5):
        good(api.post(f"{orders}/publish", json={"value": str(number), "partition": number % 2}))
    seen, last = _events(api, f"{orders}/stream?from=earliest", 3, {})
    more, _ = _events(api, f"{orders}/stream", 2, {"Last-Event-ID": last})
    assert sorted(seen + more) == ["0", "1", "2", "3", "4"]


def _events(
    api: httpx.Client, path: str, count: int, headers: dict[str, str]
) -> tuple[list[str], str]:
    values: list[str] = []
    last = ""
    with api.stream("GET", path, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("id: "):
                last = line.removeprefix("id: ")
            elif line.startswith("data: "):
                values.append(json.loads(line.removeprefix("data: "))["value"])
                if len(values) == count:
                    break
    return values, last


@pytest.mark.on_cluster
def test_a_queue_hands_each_message_to_one_of_many_consumers(
    api: httpx.Client, orders: str, group: str
) -> None:
    batch = {"messages": [{"value": str(number)} for number in range(200)]}
    assert good(api.post(f"{orders}/batch", json=batch))["failed"] == 0
    topic = orders.rpartition("/")[2]
    seen: list[str] = []

    def consume() -> None:
        with httpx.Client(base_url=api.base_url, timeout=30) as client:
            while len(seen) < 200:
                body = {"topic": topic, "max_messages": 7, "wait_ms": 500}
                messages = good(client.post(f"/v1/groups/{group}/receive", json=body))["messages"]
                if messages:
                    receipts = {"receipts": [one["receipt"] for one in messages]}
                    assert (
                        good(client.post(f"/v1/groups/{group}/ack", json=receipts))["failed"] == 0
                    )
                    seen.extend(one["value"] for one in messages)

    consumers = [threading.Thread(target=consume) for _ in range(4)]
    for one in consumers:
        one.start()
    for one in consumers:
        one.join()
    assert sorted(seen, key=int) == [str(number) for number in range(200)]
    assert good(api.get(f"/v1/groups/{group}/lag"))["lag"] == 0


def test_a_delayed_message_is_not_early(api: httpx.Client, orders: str) -> None:
    body = {"value": "later", "delay_ms": 1_000}
    due = good(api.post(f"{orders}/publish", json=body))["deliver_at"]
    page = good(api.get(f"{orders}/messages", params={"wait_ms": 10_000}))
    assert page["messages"][0]["value"] == "later"
    assert page["messages"][0]["timestamp"] >= due
    assert time.time() * 1000 >= due


@pytest.mark.on_cluster
def test_a_stream_group_of_http_members_shares_a_topic(
    api: httpx.Client, orders: str, group: str
) -> None:
    topic = orders.rpartition("/")[2]
    path = f"/v1/groups/{group}"
    epochs = {}
    for member in ("one", "two"):
        body = {"topics": [topic], "member_id": member}
        epochs[member] = good(api.post(f"{path}/join", json=body))["member_epoch"]
    for number in range(20):
        good(api.post(f"{orders}/publish", json={"value": str(number), "partition": number % 2}))
    seen: dict[str, list[str]] = {"one": [], "two": []}

    def poll() -> bool:
        for member in epochs:
            query = {"member_id": member, "member_epoch": epochs[member], "auto_commit": "true"}
            polled = good(api.get(f"{path}/poll", params={**query, "limit": 3}))
            epochs[member] = polled["member_epoch"]
            seen[member] += [one["value"] for one in polled["messages"]]
        return len(seen["one"]) + len(seen["two"]) >= 20 and bool(seen["two"])

    eventually(poll)
    assert sorted(seen["one"] + seen["two"], key=int) == [str(number) for number in range(20)]
    for member in epochs:
        good(api.post(f"{path}/leave", json={"member_id": member}))
    assert api.delete(path).status_code == 204


def test_what_was_published_survives_a_kill(start_broker: StartBroker) -> None:
    node = start_broker()
    good(httpx.post(f"{node.http}/v1/topics", json={"name": "orders"}))
    good(httpx.post(f"{node.http}/v1/topics/orders/publish", json={"value": "kept"}))
    node.kill()
    node.start()
    page = good(httpx.get(f"{node.http}/v1/topics/orders/messages"))
    assert [one["value"] for one in page["messages"]] == ["kept"]


def test_a_stop_ends_those_who_wait(start_broker: StartBroker) -> None:
    node = start_broker()
    good(httpx.post(f"{node.http}/v1/topics", json={"name": "orders"}))
    with _connect(node) as waiting, _connect(node) as following:
        # The first answer shows that the node has begun with the second request.
        waiting.sendall(
            b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
            b"GET /v1/topics/orders/messages?wait_ms=60000 HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        assert waiting.recv(4096).startswith(b"HTTP/1.1 200 OK")
        following.sendall(b"GET /v1/topics/orders/stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"text/event-stream" in following.recv(4096)
        began = time.monotonic()
        node.stop()
        assert time.monotonic() - began < 10
        assert waiting.recv(4096).startswith(b"HTTP/1.1 503 ")
        assert _rest(following).endswith(b"0\r\n\r\n"), "the stream has an orderly end"


def _rest(raw: socket.socket) -> bytes:
    received = b""
    while data := raw.recv(65536):
        received += data
    return received


def test_curl_works_as_in_the_manual(broker: Broker, orders: str) -> None:
    address = f"{broker.http}{orders}/publish"
    done = subprocess.run(
        ["curl", "-sS", address, "-H", "Content-Type: application/json", "-d", '{"value": "hi"}'],
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["offset"] == 0
    form = subprocess.run(
        ["curl", "-sS", address, "-d", '{"value": "hi"}'], capture_output=True, check=True
    )
    assert json.loads(form.stdout)["id"].startswith("http-")


def test_a_large_body_is_refused_with_an_answer(api: httpx.Client, orders: str) -> None:
    response = api.post(f"{orders}/publish", json={"value": "x" * (17 << 20)})
    assert response.status_code == 413
    assert response.json()["code"] == "body_too_large"
    assert api.get("/livez").status_code == 200


def test_requests_may_be_pipelined(broker: Broker) -> None:
    with _connect(broker) as raw:
        raw.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n" * 50)
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 50:
            received += raw.recv(65536)


def test_silent_and_slow_clients_are_let_go(start_broker: StartBroker) -> None:
    node = start_broker(
        {"listeners.http_idle_timeout_ms": 1_000, "listeners.http_receive_timeout_ms": 1_000}
    )
    with _connect(node) as silent, _connect(node) as slow:
        slow.sendall(b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        slow.settimeout(30)
        assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
        silent.settimeout(30)
        assert silent.recv(4096) == b""


def test_connections_have_a_limit(start_broker: StartBroker) -> None:
    node = start_broker({"listeners.http_connections_max": 2})
    with _connect(node) as first, _connect(node) as second, _connect(node) as third:
        third.settimeout(30)
        assert third.recv(100) == b""
        for one in (first, second):
            one.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert one.recv(4096).startswith(b"HTTP/1.1 200 OK")


def _connect(broker: Broker) -> socket.socket:
    address = urlsplit(broker.http)
    return socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=30)
