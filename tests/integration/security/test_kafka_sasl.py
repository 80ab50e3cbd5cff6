"""Stock Kafka clients and the credentials that they authenticate with."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.integration.process import Broker
from tests.integration.waiting import eventually
from tests.unit.tenancy.token_issuer import AUDIENCE, ISSUER, key_set, token

from .nodes import ADMIN, GuardedBroker
from .sasl_clients import CLIENTS, Login, Refused, confluent_settings

pytestmark = pytest.mark.single_node("the passwords are those of one node")

KINDS = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
WITH_TOKENS = ("confluent-kafka", "aiokafka", "kafka-python")  # kcat has no callback for them
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node whose Kafka clients must authenticate, with the administrator and `ada`."""
    folder = tmp_path_factory.mktemp("sasl")
    broker = GuardedBroker(folder, token_settings(folder))
    try:
        broker.start()
        set_password(broker, "ada", "ada-secret")
        set_password(broker, "eve", "eve-secret")
        yield broker
    finally:
        broker.close()


def http(node: Broker, method: str, path: str, body: Any = None) -> Any:
    answer = httpx.request(method, f"{node.http}{path}", json=body, timeout=10)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def token_settings(folder: Path) -> dict[str, object]:
    """Trust the issuer of these tests; tokens end when they say so."""
    keys = folder / "keys.json"
    keys.write_bytes(key_set("ES256", "RS256"))
    return {
        "security.oauth_jwks": keys,
        "security.oauth_issuer": ISSUER,
        "security.oauth_audience": AUDIENCE,
        "security.oauth_clock_skew_ms": 0,
    }


def valid_token(kind: str = "ES256", **changes: Any) -> str:
    now = int(time.time())
    return token(kind, **{"sub": "tokens-of-ada", "iat": now - 5, "exp": now + 60, **changes})


@pytest.fixture(scope="module")
def api_key(node: Broker) -> str:
    made = http(node, "POST", "/v1/users/ada/keys", {})
    return str(made["secret"])


def alter(node: Broker, *changes: Any) -> None:
    """Change passwords as Kafka's tools do: they do not leave the client."""
    admin = AdminClient(confluent_settings(node.bootstrap, ADMIN))
    for change in changes:
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(10)


def set_password(node: Broker, user: str, password: str) -> None:
    infos = [ScramCredentialInfo(one, 4_096) for one in KINDS]
    alter(node, *(UserScramCredentialUpsertion(user, one, password.encode()) for one in infos))


def remove_password(node: Broker, user: str) -> None:
    alter(node, *(UserScramCredentialDeletion(user, one) for one in KINDS))


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_the_right_password_is_served(
    node: Broker, client: str, mechanism: str, unique: str
) -> None:
    login = Login(mechanism, "ada", "ada-secret")
    assert CLIENTS[client](node.bootstrap, login, unique) == f"from {client}".encode()


@pytest.mark.parametrize("name", ["ada", "any name"])
@pytest.mark.parametrize("client", CLIENTS)
def test_an_api_key_is_used_as_a_password(
    node: Broker, client: str, name: str, api_key: str, unique: str
) -> None:
    login = Login("PLAIN", name, api_key)
    assert CLIENTS[client](node.bootstrap, login, unique) == f"from {client}".encode()


@pytest.mark.parametrize("kind", ["RS256", "ES256", "API key"])
@pytest.mark.parametrize("client", WITH_TOKENS)
def test_a_client_with_a_valid_token_is_served(
    node: Broker, client: str, kind: str, api_key: str, unique: str
) -> None:
    login = Login("OAUTHBEARER", token=lambda: api_key if kind == "API key" else valid_token(kind))
    assert CLIENTS[client](node.bootstrap, login, unique) == f"from {client}".encode()


@pytest.mark.parametrize("kind", ["expired", "forged", "other audience"])
@pytest.mark.parametrize("client", WITH_TOKENS)
def test_a_client_with_a_wrong_token_is_refused(
    node: Broker, client: str, kind: str, unique: str
) -> None:
    wrong = {
        "expired": valid_token(sub="eve", exp=int(time.time()) - 1),
        "forged": valid_token("ES256-stolen", alg="ES256", header={"kid": "ES256"}, sub="eve"),
        "other audience": valid_token(sub="eve", aud="billing"),
    }
    with pytest.raises(Refused):
        CLIENTS[client](node.bootstrap, Login("OAUTHBEARER", token=lambda: wrong[kind]), unique)


def test_an_unknown_mechanism_is_refused_with_the_enabled_ones(node: Broker, unique: str) -> None:
    """A token needs a mechanism of its own; a name that nobody offers stands for the others."""
    host, port = node.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        request = struct.pack(">hhih", 17, 1, 7, -1) + struct.pack(">h", 6) + b"GSSAPI"
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = received(connection)
    assert struct.unpack_from(">iih", answer)[1:] == (7, 33)
    for mechanism in (*PASSWORDS, "OAUTHBEARER"):
        assert mechanism.encode() in answer


def received(connection: socket.socket) -> bytes:
    """All bytes until the broker closes the connection."""
    data = b""
    while piece := connection.recv(4_096):
        data += piece
    return data


# Load


class Writer:
    """A producer that writes numbers for as long as it is told to, and what was acknowledged."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.acknowledged: set[bytes] = set()
        self.errors: list[Any] = []
        self._producer = confluent_kafka.Producer(
            {**settings, "acks": "all", "linger.ms": 5, "error_cb": self.errors.append}
        )
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(10) == 0

    def _write(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.002)

    def _delivered(self, error: Any, record: Any) -> None:
        if error is None:
            self.acknowledged.add(record.value())
        else:
            self.errors.append(error)

    def more(self, count: int = 50) -> None:
        """Wait until some more messages were acknowledged."""
        wanted = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= wanted, because="the writer goes on")


def values_in(node: Broker, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            **confluent_settings(node.bootstrap, ADMIN),
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        found: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            found += [one.value() for one in consumer.consume(1_000, timeout=0.5)]
        return found
    finally:
        consumer.close()


def test_a_password_is_changed_under_load_without_a_lost_message(node: Broker, unique: str) -> None:
    set_password(node, "rotating", "first-secret")
    old = confluent_settings(node.bootstrap, Login("SCRAM-SHA-256", "rotating", "first-secret"))
    new = confluent_settings(node.bootstrap, Login("SCRAM-SHA-256", "rotating", "second-secret"))
    with Writer(old, unique) as writer:
        writer.more()
        set_password(node, "rotating", "second-secret")
        writer.more()  # Its connection stays.
        with Writer(new, f"{unique}-new") as other:
            other.more()
    assert not writer.errors
    assert not other.errors
    found = values_in(node, unique, len(writer.acknowledged))
    assert sorted(found) == sorted(writer.acknowledged)


def test_a_user_without_a_password_does_not_come_back(node: Broker, unique: str) -> None:
    set_password(node, "leaving", "first-secret")
    remove_password(node, "leaving")
    with pytest.raises(Refused):
        CLIENTS["confluent-kafka"](
            node.bootstrap, Login("SCRAM-SHA-256", "leaving", "first-secret"), unique
        )


@pytest.mark.parametrize("how", ["PATCH", "DELETE"])
def test_a_user_that_is_removed_is_disconnected_at_once(
    node: Broker, how: str, unique: str
) -> None:
    name = f"removed-{how.lower()}"
    set_password(node, name, "first-secret")
    settings = confluent_settings(node.bootstrap, Login("SCRAM-SHA-512", name, "first-secret"))
    with suppress(AssertionError), Writer({**settings, "message.timeout.ms": 1_000}, unique) as one:
        one.more()
        began = time.monotonic()
        if how == "PATCH":
            http(node, "PATCH", f"/v1/users/{name}", {"disabled": True})
        else:
            http(node, "DELETE", f"/v1/users/{name}")
        refused = confluent_kafka.KafkaError._AUTHENTICATION
        eventually(
            lambda: any(error.code() == refused for error in one.errors),
            because="the writer is disconnected, and refused when it comes back",
            within=10,
        )
    assert time.monotonic() - began < 5


# Re-authentication


def test_clients_authenticate_again_under_load_without_a_lost_message(
    tmp_path: Path, unique: str
) -> None:
    """Sessions last 1.5 s; connections outlive several of them."""
    broker = GuardedBroker(
        tmp_path, {**token_settings(tmp_path), "security.connections_max_reauth_ms": 1_500}
    )
    used: list[str] = []

    def fresh() -> str:
        used.append(valid_token("ES256", exp=int(time.time()) + 3))
        return used[-1]

    try:
        broker.start()
        login = Login("OAUTHBEARER", token=fresh, lifetime_seconds=2)
        scram = confluent_settings(broker.bootstrap, ADMIN)
        with (
            Writer(confluent_settings(broker.bootstrap, login), unique) as writer,
            Writer(scram, f"{unique}-scram") as other,
        ):
            began = time.monotonic()
            while time.monotonic() - began < 4:
                writer.more(20)
                other.more(20)
        assert len(set(used)) >= 3
        for one, topic in ((writer, unique), (other, f"{unique}-scram")):
            assert not one.errors
            found = values_in(broker, topic, len(one.acknowledged))
            assert sorted(found) == sorted(one.acknowledged)
        assert "has expired" not in broker.log_text
    finally:
        broker.close()


# Hang-ups


@pytest.mark.parametrize("mechanism", [*PASSWORDS, "OAUTHBEARER"])
def test_clients_that_hang_up_at_any_byte_leave_nothing_behind(
    node: Broker, mechanism: str
) -> None:
    host, port = node.bootstrap.split(":")
    name = mechanism.encode()
    hello = struct.pack(">hhih", 17, 1, 1, -1) + struct.pack(">h", len(name)) + name
    first = b"\0nobody\0secret" if mechanism == "PLAIN" else b"n,,n=hanging,r=nonce"
    login = struct.pack(">hhih", 36, 1, 2, -1) + struct.pack(">i", len(first)) + first
    data = b"".join(struct.pack(">i", len(one)) + one for one in (hello, login))
    for end in (0, 3, 10, len(hello) + 4, len(hello) + 9, len(data) - 1, len(data)):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(data[:end])
    login_ok = Login(mechanism, "ada", "ada-secret", token=valid_token)
    if mechanism != "OAUTHBEARER":
        login_ok = Login(mechanism, "ada", "ada-secret")
    CLIENTS["confluent-kafka"](node.bootstrap, login_ok, f"after-{mechanism}")
    assert "Traceback" not in node.log_text


# At the end, because an address that has failed often has to wait.


@pytest.mark.parametrize("user", ["eve", "nobody"])
@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_wrong_credentials_learns_that_they_are_wrong(
    node: Broker, client: str, mechanism: str, user: str, unique: str
) -> None:
    with pytest.raises(Refused) as refused:
        CLIENTS[client](node.bootstrap, Login(mechanism, user, "wrong-secret"), unique)
    # aiokafka and kafka-python only log what the broker answers.
    texts = "credentials are not valid|Too many failed attempts|Unable to bootstrap"
    assert re.search(texts, str(refused.value))
