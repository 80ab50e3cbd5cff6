"""Names that are not the node's, other users of its machine, and clients of another protocol."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import ssl
import stat
from collections.abc import Callable

import httpx
import pytest

from .process import Broker
from .waiting import eventually

StartBroker = Callable[..., Broker]

pytestmark = pytest.mark.single_node("looks at the files and the log of one process")


def _hosts(node: Broker) -> list[str]:
    return [node.http + "/v1/topics", node.registry + "/subjects", node.sqs + "/?Action=ListQueues"]


def test_only_names_that_the_node_is_known_by_are_answered(start_broker: StartBroker) -> None:
    node = start_broker({"listeners.http_hosts": "queues.example.org,other.example.org"})
    for url in _hosts(node):
        port = url.split(":")[2].split("/")[0]
        for host in ("rebound.example.com", f"rebound.example.com:{port}", "localhost.evil.com"):
            answer = httpx.get(url, headers={"host": host})
            expected = 403 if url.startswith(node.sqs) else 421  # AWS has no other word for it
            assert answer.status_code == expected, f"{url} as {host}: {answer.text[:200]}"
            assert "listeners.http_hosts" in answer.text
        for host in (
            f"localhost:{port}",
            f"127.0.0.1:{port}",
            f"[::1]:{port}",
            "LOCALHOST",
            "api.localhost",
            "192.168.7.7",
            socket.gethostname(),
            f"queues.example.org:{port}",
            "Other.Example.Org.",
        ):
            answer = httpx.get(url, headers={"host": host})
            assert answer.status_code == 200, f"{url} as {host}: {answer.text[:200]}"


def test_any_name_is_answered_where_that_is_asked_for(start_broker: StartBroker) -> None:
    node = start_broker({"listeners.http_hosts": "*"})
    for url in _hosts(node):
        assert httpx.get(url, headers={"host": "whatever.example.com"}).status_code == 200


def test_the_data_is_for_its_owner_alone(start_broker: StartBroker) -> None:
    node = start_broker()
    assert httpx.post(f"{node.http}/v1/topics", json={"name": "secret"}).is_success
    assert httpx.post(f"{node.http}/v1/topics/secret/publish", json={"value": "x"}).is_success
    node.stop()
    node.data_dir.chmod(0o755)  # as an earlier version left it
    node.start()
    assert stat.S_IMODE(node.data_dir.stat().st_mode) == 0o700
    for path in node.data_dir.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & 0o077, f"{path} has mode {mode:o}"


def test_the_documentation_page_runs_its_own_script_only(start_broker: StartBroker) -> None:
    answer = httpx.get(start_broker().http + "/docs")
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    for tag in ("script", "style"):
        contents = re.findall(f"<{tag}[^>]*>(.*?)</{tag}>", answer.text, re.DOTALL)
        for content in contents:
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy


def _connect(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def _speak_tls(address: str) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with _connect(address) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(plain)


def _speak(address: str, data: bytes) -> None:
    with _connect(address) as client:
        client.sendall(data)
        while client.recv(65536):
            pass


def test_clients_of_another_protocol_are_named_in_the_log_once(start_broker: StartBroker) -> None:
    node = start_broker()
    api_versions = bytes.fromhex("0000000e 0012 0000 00000001 0004") + b"name"
    for _ in range(5):
        _speak_tls(node.bootstrap)
        _speak(node.bootstrap, b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for base in (node.http, node.registry, node.sqs):
            _speak_tls(base)
            _speak(base, api_versions)
    told = {
        "uses TLS on a port for Kafka": 1,
        "uses HTTP on a port for Kafka": 1,
        "uses TLS on a port for HTTP": 3,
        "uses Kafka on a port for HTTP": 3,
    }
    for text, count in told.items():
        eventually(lambda text=text: text in node.log_text)  # type: ignore[misc]
        assert node.log_text.count(text) == count
