"""Clients that prove with a certificate who they are, and those that cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramMechanism, UserScramCredentialDeletion

from tests.certificates import Authority
from tests.integration.ports import quiet_port
from tests.integration.waiting import eventually

from .tls_nodes import TlsBroker, Trust, client_settings, curl, read, round_trip_aiokafka, write

pytestmark = pytest.mark.single_node("the listeners are those of one node")

RULES = "RULE:^CN=(robot-.*)$/$1/U,RULE:^CN=(alice|bob)$/$1/"
ADMIN = ("root", "root-secret")


class GuardedBroker(TlsBroker):
    """A node with one more Kafka listener, where SASL decides who a client is."""

    sasl_port: int

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        self.sasl_port = quiet_port()
        command[command.index("--listen-kafka") + 1] += f",sasl_ssl://127.0.0.1:{self.sasl_port}"
        return command


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("servers"), "servers")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("clients"), "clients")


@pytest.fixture(scope="module")
def node(
    servers: Authority, clients: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GuardedBroker]:
    settings = {
        **client_settings(clients.sign("any", "any"), "required"),
        "security.tls_principal_rules": RULES,
        "security.super_users": "User:alice;User:ROBOT-7",
        "security.initial_admin": ":".join(ADMIN),
    }
    files = servers.sign("server", "127.0.0.1")
    broker = GuardedBroker(tmp_path_factory.mktemp("mtls"), files, settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def trust_of(servers: Authority, clients: Authority, name: str, *, days: int = 1) -> Trust:
    """A client with a certificate in this name."""
    return Trust(servers.sign("any", "any").authorities, clients.sign(name, "client", days=days))


def test_a_user_with_a_password_in_a_tenant_becomes_that_of_a_certificate_without_it(
    node: GuardedBroker, servers: Authority, clients: Authority
) -> None:
    operator, bob = (trust_of(servers, clients, name) for name in ("alice", "bob"))

    def send(path: str, **body: str) -> None:
        words = ["-H", "content-type: application/json", "-d", json.dumps(body), "--fail"]
        assert curl(f"https://{node.at('http')}/v1/{path}", operator, *words).returncode == 0

    def tenant_of_bob() -> str:
        found: str = json.loads(curl(f"https://{node.at('http')}/v1/whoami", bob).stdout)["tenant"]
        return found

    send("tenants", name="acme", admin="boss")
    send("users", name="bob", password="correct horse", tenant="acme")
    assert tenant_of_bob() == tenant_of_bob() == ""
    advice = "--entity-name bob --delete-config 'SCRAM-SHA-256,SCRAM-SHA-512'"
    assert node.log_text.count(advice) == 1

    admin = AdminClient({"bootstrap.servers": node.at("kafka"), **operator.librdkafka})
    mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    deletions = [UserScramCredentialDeletion("bob", one) for one in mechanisms]
    for done in admin.alter_user_scram_credentials(deletions).values():
        done.result(20)
    eventually(lambda: tenant_of_bob() == "acme", because="it has no password any more")


@pytest.mark.parametrize("name", ["alice", "robot-7"])
def test_the_name_in_a_certificate_is_who_the_client_is(
    node: GuardedBroker, servers: Authority, clients: Authority, name: str
) -> None:
    trust = trust_of(servers, clients, name)
    write(node.at("kafka"), trust, name, [b"hello"])
    assert read(node.at("kafka"), trust, name, 1) == [b"hello"]
    assert round_trip_aiokafka(node.at("kafka"), trust, f"{name}-aio", b"hello") == b"hello"
    topics = json.loads(curl(f"https://{node.at('http')}/v1/topics", trust).stdout)["topics"]
    assert name in [one["name"] for one in topics]


def test_another_name_has_other_rights(
    node: GuardedBroker, servers: Authority, clients: Authority
) -> None:
    trust = trust_of(servers, clients, "bob")
    with pytest.raises(ConnectionError, match="TOPIC_AUTHORIZATION_FAILED"):
        write(node.at("kafka"), trust, "alice", [b"x"], seconds=2)
    assert json.loads(curl(f"https://{node.at('http')}/v1/topics", trust).stdout) == {"topics": []}


@pytest.mark.parametrize(
    ("who", "logged"),
    [
        ("nobody", "it has no certificate, which this listener requires"),
        ("foreign", "its certificate is refused"),
        ("expired", "its certificate is refused: certificate has expired"),
        ("unnamed", "The subject 'CN=mallory' matches no rule of security.tls_principal_rules"),
    ],
)
def test_who_cannot_prove_it_gets_nowhere(
    node: GuardedBroker,
    servers: Authority,
    clients: Authority,
    tmp_path: Path,
    who: str,
    logged: str,
) -> None:
    authorities = servers.sign("any", "any").authorities
    trust = {
        "nobody": lambda: Trust(authorities),
        "foreign": lambda: trust_of(servers, Authority(tmp_path, "foreign"), "alice"),
        "expired": lambda: trust_of(servers, clients, "expired", days=-1),
        "unnamed": lambda: trust_of(servers, clients, "mallory"),
    }[who]()
    with pytest.raises(ConnectionError):
        write(node.at("kafka"), trust, "never", [b"x"], seconds=1)
    for protocol in ("http", "registry", "sqs"):
        assert curl(f"https://{node.at(protocol)}/", trust).returncode != 0
    eventually(lambda: logged in node.log_text, because="the reason is logged")


def test_where_sasl_is_required_the_certificate_is_checked_but_does_not_count(
    node: GuardedBroker, servers: Authority, clients: Authority
) -> None:
    address = f"127.0.0.1:{node.sasl_port}"
    sasl = {
        "bootstrap.servers": address,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": ADMIN[0],
        "sasl.password": ADMIN[1],
    }
    with_certificate = {**trust_of(servers, clients, "bob").librdkafka, **sasl}
    found = AdminClient(with_certificate).list_topics(timeout=20)
    assert [str(one).partition("/")[0] for one in found.brokers.values()] == [address]
    with pytest.raises(ConnectionError):
        write(address, trust_of(servers, clients, "alice"), "never", [b"x"], seconds=1)


def test_the_plain_listener_stays_anonymous(node: GuardedBroker) -> None:
    found = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=20)
    assert not found.topics
