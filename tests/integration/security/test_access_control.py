"""Access control lists with stock clients: what rules allow works, the rest is denied."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import httpx
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.process import Broker

from .nodes import ADMIN, GuardedBroker
from .sasl_clients import Login, confluent_settings

pytestmark = pytest.mark.single_node("tests/simulation/test_cluster_access.py has three nodes")

ALICE = Login("SCRAM-SHA-256", "alice", "alice-secret")
ROOT = (ADMIN.user, ADMIN.password)


class ControlledBroker(GuardedBroker):
    """A node on which rules decide, for clients of Kafka and HTTP alike."""

    def _command(self, ready_file: Any) -> list[str]:
        command = super()._command(ready_file)
        at = command.index("--listen-http") + 1
        command[at] = f"sasl_plaintext://{command[at]}"
        return command


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"security.access_control": "auto"}
    broker = ControlledBroker(tmp_path_factory.mktemp("access"), settings)
    try:
        broker.start()
        with httpx.Client(base_url=broker.http, auth=ROOT, timeout=20) as api:
            made = api.post("/v1/users", json={"name": ALICE.user, "password": ALICE.password})
            assert made.status_code == 201, made.text
        yield broker
    finally:
        broker.close()


@pytest.fixture
def admin(node: Broker) -> AdminClient:
    return AdminClient(confluent_settings(node.bootstrap, ADMIN))


def rule(
    kind: ResourceType,
    name: str,
    action: AclOperation,
    *,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:alice", "*", action, permission)


def create(admin: AdminClient, *rules: AclBinding) -> None:
    for future in admin.create_acls(list(rules)).values():
        future.result(20)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produced(node: Broker, topic: str) -> str:
    """The name of the error, or nothing."""
    outcome: list[Any] = []
    producer = confluent_kafka.Producer(confluent_settings(node.bootstrap, ALICE))
    producer.produce(topic, b"m", on_delivery=lambda error, _: outcome.append(error))
    until(lambda: bool(producer.flush(0.1) == 0 and outcome))
    return "" if outcome[0] is None else str(outcome[0].name())


def test_confluent_kafka_manages_rules(node: Broker, admin: AdminClient) -> None:
    made = [
        rule(ResourceType.TOPIC, "managed", AclOperation.READ),
        rule(
            ResourceType.GROUP,
            "managed-",
            AclOperation.ALL,
            pattern=ResourcePatternType.PREFIXED,
            permission=AclPermissionType.DENY,
        ),
    ]
    create(admin, *made)
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        "User:alice",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(admin.describe_acls(everything).result(20)) == set(made)
    matching = AclBindingFilter(
        ResourceType.GROUP,
        "managed-group",
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(matching).result(20) == made[1:]
    [deleted] = admin.delete_acls([everything]).values()
    assert set(deleted.result(20)) == set(made)
    assert admin.describe_acls(everything).result(20) == []


def test_who_may_not_manage_rules_is_told_so(node: Broker) -> None:
    alice = AdminClient(confluent_settings(node.bootstrap, ALICE))
    [future] = alice.create_acls([rule(ResourceType.TOPIC, "t", AclOperation.READ)]).values()
    with pytest.raises(confluent_kafka.KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        future.result(20)


def test_a_producer_and_a_consumer_need_their_rules(node: Broker, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(20)
    assert produced(node, "orders") == "TOPIC_AUTHORIZATION_FAILED"
    alice = AdminClient(confluent_settings(node.bootstrap, ALICE))
    assert "orders" not in alice.list_topics(timeout=20).topics
    write = rule(ResourceType.TOPIC, "orders", AclOperation.WRITE)
    create(admin, write)
    assert produced(node, "orders") == ""
    assert "orders" in alice.list_topics(timeout=20).topics
    settings = {**confluent_settings(node.bootstrap, ALICE), "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "group.id": "shop"})
    consumer.subscribe(["orders"])
    errors: list[str] = []

    def polled() -> Any:
        found = consumer.poll(0.2)
        if found is not None and found.error() is not None:
            errors.append(found.error().name())
        return found

    until(lambda: polled() is not None)
    assert errors[0] == "GROUP_AUTHORIZATION_FAILED"
    create(
        admin,
        rule(ResourceType.GROUP, "shop", AclOperation.READ),
        rule(ResourceType.TOPIC, "ord", AclOperation.READ, pattern=ResourcePatternType.PREFIXED),
    )
    found: list[Any] = []

    def has_read() -> bool:
        one = polled()
        if one is not None and one.error() is None:
            found.append(one.value())
        return bool(found)

    until(has_read)
    consumer.close()
    assert found == [b"m"]
    # A rule that denies takes precedence, at once.
    deny = rule(ResourceType.TOPIC, "*", AclOperation.WRITE, permission=AclPermissionType.DENY)
    create(admin, deny)
    assert produced(node, "orders") == "TOPIC_AUTHORIZATION_FAILED"


def test_an_idempotent_producer_needs_no_right_on_the_cluster(
    node: Broker, admin: AdminClient
) -> None:
    admin.create_topics([NewTopic("ledger", 1, 1)])["ledger"].result(20)
    delete_all(admin)
    create(admin, rule(ResourceType.TOPIC, "ledger", AclOperation.WRITE))
    outcome: list[Any] = []
    settings = {**confluent_settings(node.bootstrap, ALICE), "enable.idempotence": True}
    producer = confluent_kafka.Producer(settings)
    producer.produce("ledger", b"m", on_delivery=lambda error, _: outcome.append(error))
    until(lambda: bool(producer.flush(0.1) == 0 and outcome))
    assert outcome == [None]


def delete_all(admin: AdminClient) -> None:
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for future in admin.delete_acls([every]).values():
        future.result(20)


def test_the_command_line_makes_rules_of_roles(node: Broker, admin: AdminClient) -> None:
    delete_all(admin)

    def goqueue(*words: str) -> str:
        environ = {**os.environ, "GOQUEUE_HTTP": node.http}
        environ |= {"GOQUEUE_USER": ADMIN.user, "GOQUEUE_PASSWORD": ADMIN.password}
        done = subprocess.run(
            [sys.executable, "-m", "goqueue", *words],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    goqueue("role", "create", "writers", "alice")
    goqueue("acl", "create", "--allow", "Role:writers", "--producer", "--topic", "mails")
    assert produced(node, "mails") == ""  # CREATE is among what producers need.
    test = ("acl", "test", "--user", "alice", "--action", "write", "--topic", "mails", "-o", "json")
    assert "Role:writers" in goqueue(*test)
    assert "Role:writers" in goqueue("acl", "list", "--topic", "mails")
    goqueue("role", "revoke", "writers", "alice")
    assert produced(node, "mails") == "TOPIC_AUTHORIZATION_FAILED"
    goqueue("role", "grant", "writers", "User:alice")
    assert produced(node, "mails") == ""
    assert "3 rules are deleted" in goqueue("acl", "delete", "--user", "Role:writers", "--yes")
    assert produced(node, "mails") == "TOPIC_AUTHORIZATION_FAILED"
    goqueue("role", "delete", "writers", "--yes")


def test_http_hides_what_one_may_not_describe(node: Broker, admin: AdminClient) -> None:
    delete_all(admin)
    name = "hidden"
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    auth = (ALICE.user, ALICE.password)
    with httpx.Client(base_url=node.http, auth=auth, timeout=20) as api:
        assert api.get(f"/v1/topics/{name}").status_code == 404
        assert api.get("/v1/topics").json()["topics"] == []
        assert api.get("/v1/acls").status_code == 403
        create(admin, rule(ResourceType.TOPIC, name, AclOperation.DESCRIBE))
        assert api.get(f"/v1/topics/{name}").status_code == 200
        assert api.delete(f"/v1/topics/{name}").status_code == 403
    with httpx.Client(base_url=node.http, timeout=20) as api:
        assert api.get(f"/v1/topics/{name}").status_code == 401
