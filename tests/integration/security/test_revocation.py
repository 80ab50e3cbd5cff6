"""Certificates that are revoked, or expire, end what their holders do."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority, Files
from tests.integration.waiting import eventually

from .tls_nodes import TlsBroker, Trust, client_settings, curl, write

pytestmark = pytest.mark.single_node("the listeners are those of one node")

SOON_DAYS = 6 / 86_400  # until a certificate expires


class Revoking:
    """A node that knows a revocation list, and the authorities of it and of its clients."""

    def __init__(self, folder: Path) -> None:
        self.servers = Authority(folder / "servers", "servers")
        self.clients = Authority(folder / "clients", "clients")
        settings = {
            **client_settings(self.clients.sign("any", "any"), "required"),
            "security.tls_revocation_lists": self.clients.revoke(),
            "security.tls_principal_rules": "RULE:^CN=(.*)$/$1/",
            "security.super_users": "User:alice;User:bob",
            "security.access_control": "on",
        }
        files = self.servers.sign("server", "127.0.0.1")
        place = folder / "node"
        place.mkdir()
        self.node = TlsBroker(place, files, settings)

    def client(self, name: str, *, days: float = 1) -> Files:
        return self.clients.sign(name, "client", days=days)

    def trust(self, own: Files) -> Trust:
        return Trust(self.servers.sign("any", "any").authorities, own)

    def connect(self, own: Files) -> http.client.HTTPSConnection:
        """An open connection whose client has proved who it is."""
        context = ssl.create_default_context(cafile=self.trust(own).authorities)
        context.load_cert_chain(own.certificate, own.key)
        host, _, port = self.node.at("http").rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=20)
        assert status(connection) == 200
        return connection


def status(connection: http.client.HTTPSConnection) -> int:
    connection.request("GET", "/v1/topics")
    response = connection.getresponse()
    response.read()
    return response.status


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed a connection on which nothing is expected."""
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.fixture(scope="module")
def revoking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Revoking]:
    made = Revoking(tmp_path_factory.mktemp("revoking"))
    try:
        made.node.start()
        yield made
    finally:
        made.node.close()


def test_a_revoked_certificate_ends_its_connections_and_opens_no_more(revoking: Revoking) -> None:
    alice, bob = revoking.client("alice"), revoking.client("bob")
    node = revoking.node
    with (
        contextlib.closing(revoking.connect(alice)) as of_alice,
        contextlib.closing(revoking.connect(bob)) as of_bob,
    ):
        write(node.at("kafka"), revoking.trust(bob), "orders", [b"before"])
        revoking.clients.revoke(bob)
        eventually(lambda: is_closed(of_bob.sock), because="its certificate is revoked")
        assert status(of_alice) == 200, "the others go on"
    assert curl(f"https://{node.at('http')}/v1/topics", revoking.trust(bob)).returncode != 0
    with pytest.raises(ConnectionError):
        write(node.at("kafka"), revoking.trust(bob), "orders", [b"after"], seconds=2)
    write(node.at("kafka"), revoking.trust(alice), "orders", [b"of alice"])
    assert "its certificate is revoked" in node.log_text


def test_a_session_ends_with_its_certificate(revoking: Revoking) -> None:
    brief = revoking.client("bob", days=SOON_DAYS)
    with contextlib.closing(revoking.connect(brief)) as connection:

        def is_over() -> bool:
            try:
                return status(connection) == 401
            except (OSError, http.client.HTTPException):
                return True

        eventually(is_over, because="the certificate has expired")


def test_a_list_that_cannot_be_read_is_named_at_the_start(tmp_path: Path) -> None:
    clients = Authority(tmp_path / "clients", "clients")
    files = Authority(tmp_path / "servers", "servers").sign("server", "127.0.0.1")
    settings = {
        **client_settings(clients.sign("any", "any"), "required"),
        "security.tls_revocation_lists": files.certificate,
    }
    place = tmp_path / "node"
    place.mkdir()
    node = TlsBroker(place, files, settings)
    try:
        with pytest.raises(AssertionError):
            node.start()
        assert "holds no revocation lists in PEM" in node.log_text
    finally:
        node.close()
