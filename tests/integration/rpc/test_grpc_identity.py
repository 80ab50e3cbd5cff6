"""Who a client of the gRPC listener is, by certificate or credentials, and what it may do."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2

from goqueue import grpc as clients
from goqueue.client.http import Client as HttpClient
from goqueue.model.errors import AuthenticationFailed
from goqueue.wire.grpc.messages import admin_service_pb2 as admin
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import topic_service_pb2 as topics
from goqueue.wire.http.bodies.acls import AclAction, Kind, NewAcl
from tests.certificates import Authority, Files
from tests.integration.ports import quiet_port
from tests.integration.process import Broker
from tests.integration.waiting import eventually

from .calls import Rpc, details_of, reason_of

ROOT, ROOT_PASSWORD = "root", "planted-Root-passw0rd"
PASSWORD = "planted-Bob-passw0rd"


class GuardedBroker(Broker):
    """A node with gRPC listeners for certificates and for credentials."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "certificates")
        self.files = self.authority.sign("node", "127.0.0.1")
        self.by_certificate = f"127.0.0.1:{quiet_port()}"
        self.by_credentials = f"127.0.0.1:{quiet_port()}"
        settings: dict[str, object] = {
            "listeners.grpc": f"ssl://{self.by_certificate},sasl_ssl://{self.by_credentials}",
            "security.initial_admin": f"{ROOT}:{ROOT_PASSWORD}",
            "security.access_control": "on",
            "security.super_users": "User:ANONYMOUS",  # of the plain listeners of this test
            "security.tls_certificate": self.files.certificate,
            "security.tls_key": self.files.key,
            "security.tls_client_auth": "required",
            "security.tls_client_authorities": self.files.authorities,
            "security.tls_principal_rules": "RULE:^CN=([a-z]+)$/$1/",
            "groups.initial_rebalance_delay_ms": 0,
        }
        super().__init__(directory, settings)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    node = GuardedBroker(tmp_path_factory.mktemp("grpc-identity"))
    try:
        node.start()
        with HttpClient(node.http) as api:
            api.users.create("bob", password=PASSWORD)
        yield node
    finally:
        node.close()


@pytest.fixture(scope="module")
def bob_files(node: GuardedBroker) -> Files:
    return node.authority.sign("bob", "bob")


def connected(
    node: GuardedBroker, address: str, files: Files | None, *metadata: tuple[str, str]
) -> Rpc:
    tls = grpc.ssl_channel_credentials(
        node.files.authorities.read_bytes(),
        *(() if files is None else (files.key.read_bytes(), files.certificate.read_bytes())),
    )
    return Rpc(address, tls=tls, metadata=metadata)


def basic(user: str, password: str) -> tuple[str, str]:
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return ("authorization", f"Basic {text}")


def allowing(kind: Kind, name: str, action: AclAction) -> NewAcl:
    return NewAcl(kind=kind, name=name, principal="User:bob", action=action)


def principal_of(client: Rpc) -> str:
    answer = client.call(client.admin.GetSession, admin.GetSessionRequest())
    return f"{answer.principal} by {answer.mechanism}"


def test_a_certificate_is_the_identity_of_a_client(node: GuardedBroker, bob_files: Files) -> None:
    with connected(node, node.by_certificate, bob_files) as client:
        assert re.match(r"(User:)?bob by ", principal_of(client))
    with connected(node, node.by_certificate, None) as client:
        with pytest.raises(grpc.RpcError) as raised:
            client.admin.GetSession(admin.GetSessionRequest(), timeout=20)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    said = "it has no certificate, which this listener requires"
    eventually(lambda: said in node.log_text, because="the log says why")


def test_credentials_of_all_kinds_are_those_of_one_user(
    node: GuardedBroker, bob_files: Files
) -> None:
    with HttpClient(node.http) as api:
        key = api.keys.create("bob").secret
    for metadata in (
        basic("bob", PASSWORD),
        ("authorization", f"Bearer {key}"),
        ("x-api-key", key),
    ):
        with connected(node, node.by_credentials, bob_files, metadata) as client:
            assert re.match(r"(User:)?bob by ", principal_of(client))


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((), "authentication_required"),
        ((basic("bob", "wrong"),), "authentication_failed"),
        ((("authorization", "Bearer gqk_none_none"),), "authentication_failed"),
        ((("authorization", "Digest x"),), "authentication_failed"),
        ((("x-api-key", "a" * 20_000),), "authentication_failed"),
        ((basic("bob", PASSWORD), ("x-api-key", "a")), "malformed_request"),
    ],
    ids=["none", "wrong", "unknown key", "unknown scheme", "long", "two"],
)
def test_wrong_credentials_are_refused_and_right_ones_work_afterwards(
    node: GuardedBroker, bob_files: Files, metadata: tuple[tuple[str, str], ...], reason: str
) -> None:
    with connected(node, node.by_credentials, bob_files, *metadata) as client:
        with pytest.raises(grpc.RpcError) as raised:
            client.call(client.admin.GetSession, admin.GetSessionRequest())
        wanted = grpc.StatusCode.UNAUTHENTICATED
        if reason == "malformed_request":
            wanted = grpc.StatusCode.INVALID_ARGUMENT
        assert (raised.value.code(), reason_of(raised.value)) == (wanted, reason)
        stream = client.consuming.Follow(
            consuming.FollowRequest(topic="t"), metadata=metadata, timeout=20
        )
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        assert raised.value.code() is wanted
        client.metadata = (basic("bob", PASSWORD),)
        assert "bob" in principal_of(client)


def test_what_nothing_allows_looks_as_if_it_did_not_exist(
    node: GuardedBroker, bob_files: Files, name: str
) -> None:
    with HttpClient(node.http) as api:
        api.topics.create(name, partitions=1)
        api.topics.create(f"{name}-seen", partitions=1)
        api.acls.create([allowing("TOPIC", f"{name}-seen", "DESCRIBE")])
    with connected(node, node.by_certificate, bob_files) as client:
        for topic, code in (
            (name, grpc.StatusCode.NOT_FOUND),
            (f"{name}-seen", grpc.StatusCode.PERMISSION_DENIED),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                client.publish(topic, b"x")
            assert raised.value.code() is code
            stream = client.publishing.PublishStream(iter([]), timeout=20)
            assert list(stream) == []
            with pytest.raises(grpc.RpcError) as raised:
                client.pull("group", topic, wait_ms=0)
            assert raised.value.code() is grpc.StatusCode.NOT_FOUND, "the group may not be seen"
        listed = client.call(client.topics.ListTopics, topics.ListTopicsRequest(prefix=name))
        assert [one.name for one in listed.topics] == [f"{name}-seen"]
        with pytest.raises(grpc.RpcError) as raised:
            client.publish(f"{name}-seen", b"x")
        [info] = details_of(raised.value, error_details_pb2.ErrorInfo)
        assert info.metadata["retryable"] == "false"


def test_a_stream_ends_when_its_key_is_deleted(
    node: GuardedBroker, bob_files: Files, name: str
) -> None:
    with HttpClient(node.http) as api:
        api.topics.create(name, partitions=1)
        api.acls.create([allowing("TOPIC", name, "READ"), allowing("GROUP", name, "READ")])
        key = api.keys.create("bob")
        metadata = ("x-api-key", key.secret)
        with connected(node, node.by_credentials, bob_files, metadata) as client:
            start = consuming.ReceiveStart(group=name, topic=name)
            stream = client.stream(
                client.consuming.Receive, consuming.ReceiveRequest(start=start, credit=10)
            )
            api.publish(name, "one")
            assert [one.value for one in stream.next().messages] == [b"one"]
            api.keys.delete(key.key.id)
            with pytest.raises(grpc.RpcError) as raised:
                stream.next()
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert reason_of(raised.value) == "authentication_failed"
            stream.half_close()


def test_health_needs_no_credentials_and_reflection_does(
    node: GuardedBroker, bob_files: Files
) -> None:
    with connected(node, node.by_credentials, bob_files) as client:
        checked = client.call(client.health.Check, health_pb2.HealthCheckRequest())
        assert checked.status == health_pb2.HealthCheckResponse.SERVING
        reflect = client.channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
        )
        with pytest.raises(grpc.RpcError) as raised:
            next(reflect(iter([b""]), timeout=20))
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_python_client_logs_in_and_verifies_the_node(
    node: GuardedBroker, bob_files: Files, tmp_path: Path
) -> None:
    certificate = (str(bob_files.certificate), str(bob_files.key))
    with clients.Client(
        f"grpcs://{node.by_credentials}",
        username="bob",
        password=PASSWORD,
        ca_file=str(node.files.authorities),
        client_certificate=certificate,
    ) as client:
        assert "bob" in client.cluster.session().principal
    with (
        clients.Client(
            f"grpcs://{node.by_credentials}",
            username="bob",
            password="wrong",
            ca_file=str(node.files.authorities),
            client_certificate=certificate,
        ) as client,
        pytest.raises(AuthenticationFailed),
    ):
        client.topics.describe("orders")


def test_a_new_certificate_is_used_without_a_restart(node: GuardedBroker, bob_files: Files) -> None:
    node.authority.sign("node", "127.0.0.1")

    def is_served() -> bool:
        with connected(node, node.by_certificate, bob_files) as client:
            return "bob" in principal_of(client)

    assert eventually(is_served)
