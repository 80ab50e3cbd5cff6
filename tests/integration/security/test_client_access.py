"""Our own clients and the command line against listeners with TLS and SASL, right and wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from goqueue import Client
from goqueue.client import ClientSettings, LogClient, Position, SaslSettings, TlsSettings
from goqueue.client.errors import HungUp, TlsFailed
from goqueue.client.security import sasl_of_api_key
from goqueue.model.errors import (
    AuthenticationFailed,
    AuthenticationRequired,
    GoQueueError,
)

from .encrypted import ADMIN, ADMIN_PASSWORD, EncryptedBroker

SESSION_MS = 1_000
FAILURE_SECONDS_MAX = 8.0  # of a call that must fail: nothing is retried until a time-out
PASSWORD = "planted-Ann-passw0rd"

pytestmark = pytest.mark.single_node("the listeners are those of one node")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncryptedBroker]:
    settings = {"security.connections_max_reauth_ms": SESSION_MS}
    made = EncryptedBroker(tmp_path_factory.mktemp("encrypted"), settings)
    try:
        made.start()
        for user in ("ann", "bob"):
            made.run("user", "create", user, "--password-file", "-", stdin=PASSWORD)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def key(node: EncryptedBroker) -> str:
    secret: str = json.loads(node.run("key", "create", "ann", "-o", "json")[0])["secret"]
    return secret


def settings_of(node: EncryptedBroker, sasl: SaslSettings | None) -> ClientSettings:
    return ClientSettings(tls=TlsSettings(node.ca_file), sasl=sasl)


def test_a_session_is_renewed_while_it_is_used(node: EncryptedBroker) -> None:
    asked = []

    def password() -> str:
        asked.append(time.monotonic())
        return PASSWORD

    settings = settings_of(node, SaslSettings("SCRAM-SHA-256", "ann", password))
    deadline, sent = time.monotonic() + 3 * SESSION_MS / 1000, 0
    with LogClient(node.bootstrap, settings) as client:
        client.topics.create("renewed")
        with client.producer() as producer:
            while time.monotonic() < deadline:
                producer.send("renewed", b"%d" % sent)
                producer.flush()
                sent += 1
                time.sleep(0.02)
        reader = client.reader(["renewed"], Position.earliest(), until=Position.latest())
        assert [int(one.value or b"") for one in reader.records()] == list(range(sent))
    assert 4 <= len(asked) < sent / 2


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "key", "bearer key"])
def test_every_mechanism_is_let_in(node: EncryptedBroker, key: str, mechanism: str) -> None:
    sasl = {
        "key": sasl_of_api_key(key),
        "bearer key": SaslSettings("OAUTHBEARER", token=key),
    }.get(mechanism) or SaslSettings(mechanism, "ann", PASSWORD)
    with LogClient(node.bootstrap, settings_of(node, sasl)) as client:
        assert len(client.nodes.describe().nodes) == 1


def test_wrong_ways_to_connect_fail_soon_and_say_why(node: EncryptedBroker) -> None:
    right = settings_of(node, SaslSettings("SCRAM-SHA-512", "ann", PASSWORD))
    wrong: list[tuple[ClientSettings, type[GoQueueError], str]] = [
        (
            replace(right, sasl=SaslSettings("PLAIN", "ann", "wrong-one")),
            AuthenticationFailed,
            "'ann'",
        ),
        (
            replace(right, sasl=SaslSettings("SCRAM-SHA-512", "nobody", "wrong-one")),
            AuthenticationFailed,
            "'nobody'",
        ),
        (
            replace(right, sasl=SaslSettings("OAUTHBEARER", token="gqk_wrong-one")),
            AuthenticationFailed,
            "this token",
        ),
        (replace(right, sasl=None), HungUp, "may require credentials"),
        (replace(right, tls=None), HungUp, "may require TLS"),
        (replace(right, tls=TlsSettings()), TlsFailed, "is not trusted"),
    ]
    for settings, kind, text in wrong:
        began = time.monotonic()
        with pytest.raises(kind, match=text) as caught, LogClient(node.bootstrap, settings) as one:
            one.nodes.describe()
        assert time.monotonic() - began < FAILURE_SECONDS_MAX
        assert "wrong-one" not in str(caught.value)


def test_http_clients_say_why_they_are_refused(node: EncryptedBroker, key: str) -> None:
    with Client(node.http, api_key=key, ca_file=node.ca_file) as client:
        assert client.users.whoami().principal == "User:ann"
    began = time.monotonic()
    for wrong, kind in (
        (Client(node.http, ca_file=node.ca_file), AuthenticationRequired),
        (Client(node.http, api_key=key + "x", ca_file=node.ca_file), AuthenticationFailed),
        (Client(node.http, api_key=key), TlsFailed),
        (Client(node.http.replace("https", "http"), api_key=key), GoQueueError),
    ):
        with wrong, pytest.raises(kind) as caught:
            wrong.topics.list_all()
        assert key not in str(caught.value)
    assert time.monotonic() - began < FAILURE_SECONDS_MAX


def test_an_ordinary_user_needs_only_the_kafka_address(node: EncryptedBroker) -> None:
    bob = {"GOQUEUE_USER": "bob", "GOQUEUE_PASSWORD": PASSWORD}
    shown, _ = node.run("config", "test", "-o", "json", **bob)
    found = json.loads(shown)
    assert found["principal"] == "User:bob"
    assert found["tls"] is True
    assert node.http == f"https://{found['http']}"
    _, said = node.run("topic", "describe", "renewed", code=1, **bob)
    assert "these credentials lack a permission" in said
    assert "goqueue acl" in said


def test_commands_say_what_to_change(node: EncryptedBroker, tmp_path: Path) -> None:
    contexts = {"GOQUEUE_CLI_CONFIG": str(tmp_path / "contexts.yaml")}
    for environment, hint in (
        ({"GOQUEUE_PASSWORD": "wrong-one"}, "Check the user, the password"),
        ({"GOQUEUE_USER": "", "GOQUEUE_PASSWORD": ""}, "Log in with --login USER"),
        ({"GOQUEUE_TLS": "false"}, "Use --tls"),
        ({"GOQUEUE_CA_FILE": ""}, "See --ca-file"),
    ):
        _, said = node.run("topic", "list", code=1, **contexts, **environment)
        assert hint in said
        assert "wrong-one" not in said
        assert ADMIN_PASSWORD not in said


def test_a_context_is_enough(node: EncryptedBroker, tmp_path: Path) -> None:
    alone = {
        "GOQUEUE_CLI_CONFIG": str(tmp_path / "contexts.yaml"),
        **dict.fromkeys(("GOQUEUE_BOOTSTRAP", "GOQUEUE_USER", "GOQUEUE_PASSWORD"), ""),
        **dict.fromkeys(("GOQUEUE_TLS", "GOQUEUE_CA_FILE"), ""),
    }
    node.run(
        *("config", "set-context", "web", "--http", node.http, "--ca-file", node.ca_file),
        *("--login", ADMIN, "--login-password", "-"),
        stdin=ADMIN_PASSWORD,
        **alone,
    )
    shown, _ = node.run("config", "test", "-o", "json", **alone)
    assert json.loads(shown)["kafka"] == node.bootstrap
    shown, _ = node.run("config", "view", **alone)
    assert ADMIN_PASSWORD not in shown
