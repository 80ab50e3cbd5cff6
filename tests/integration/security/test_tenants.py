"""Two tenants of one node, with stock clients that use the same names."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.sqs import connect, error_of
from tests.integration.waiting import eventually

from .sasl_clients import Login, confluent, confluent_settings, kcat
from .tenants import TENANTS, TenantsBroker, login_of


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantsBroker]:
    made = TenantsBroker(tmp_path_factory.mktemp("tenants"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_kafka_clients_use_the_same_topic_and_group(node: TenantsBroker) -> None:
    for tenant in TENANTS:
        login = Login("SCRAM-SHA-256", *login_of(tenant))
        admin = AdminClient(confluent_settings(node.bootstrap, login))
        new = confluent_kafka.admin.NewTopic("orders", 2)
        admin.create_topics([new])["orders"].result(15)
        assert confluent(node.bootstrap, login, "orders") == b"from confluent-kafka"
        assert kcat(node.bootstrap, login, "orders")
        listed = admin.list_topics(timeout=15)
        assert set(listed.topics) == {"orders"}
        groups = admin.list_consumer_groups().result(15).valid
        assert all("~" not in one.group_id for one in groups)
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        rules = admin.describe_acls(everything).result(15)
        assert {one.principal for one in rules} == {f"User:{tenant}-admin"}
        assert {one.name for one in rules} <= {"*", "kafka-cluster"}
    ids = set()
    for tenant in TENANTS:
        login = Login("PLAIN", *login_of(tenant))
        admin = AdminClient(confluent_settings(node.bootstrap, login))
        ids.add(admin.describe_cluster().result(15).cluster_id)
    assert len(ids) == 2


def test_http_and_the_registry(node: TenantsBroker) -> None:
    for tenant in TENANTS:
        with node.api(tenant) as api:
            message = {"value": f"of {tenant}"}
            sent = api.post("/v1/topics/mails/publish", json=message)
            assert sent.status_code == 200, sent.text
            found = api.get("/v1/topics/mails/messages").json()["messages"]
            assert [one["value"] for one in found] == [f"of {tenant}"]
            made = api.post("/registry/subjects/mails-value/versions", json={"schema": '"string"'})
            assert made.json()["id"] == 1
            assert api.get("/registry/subjects").json() == ["mails-value"]
            refused = api.get("/v1/tenants")
            assert refused.status_code == 403
            assert api.get("/v1/usage").json()["users"] == 1
            missing = api.get("/v1/topics/nothing")
            assert missing.status_code == 404
            assert "~" not in missing.text


def test_queues_have_accounts(node: TenantsBroker) -> None:
    urls, clients = {}, {}
    for tenant in TENANTS:
        key, secret = node.create_key(login_of(tenant)[0], kind="access")
        sqs = clients[tenant] = connect(node.sqs, key=key, secret=secret)
        urls[tenant] = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        sqs.send_message(QueueUrl=urls[tenant], MessageBody=tenant)
    shown = node.cli_json("tenant", "show", "acme")
    assert urls["acme"].split("/")[-2] == shown["account"]
    for tenant, other in (TENANTS, TENANTS[::-1]):
        sqs = clients[tenant]
        [message] = sqs.receive_message(QueueUrl=urls[tenant])["Messages"]
        assert message["Body"] == tenant
        code, status, _ = error_of(sqs.receive_message, QueueUrl=urls[other])
        assert (code.startswith("AccessDenied"), status) == (True, 403)


def test_suspend_activate_and_delete(node: TenantsBroker) -> None:
    with node.api("other") as api:
        message = {"value": "x"}
        assert api.post("/v1/topics/mails/publish", json=message).status_code == 200
        node.cli("tenant", "suspend", "other", "--read-only")
        refused = api.post("/v1/topics/mails/publish", json=message)
        assert (refused.status_code, refused.json()["code"]) == (403, "tenant_suspended")
        assert api.get("/v1/topics/mails/messages").status_code == 200
        node.cli("tenant", "suspend", "other")
        assert api.get("/v1/topics").status_code == 403
        node.cli("tenant", "activate", "other")
        assert api.get("/v1/topics").status_code == 200
    with node.api("acme") as api:
        assert api.get("/v1/topics").status_code == 200
    assert "it has" in node.cli("tenant", "delete", "other", "--yes", code=1)
    node.cli("tenant", "delete", "other", "--purge", "--yes")
    eventually(
        lambda: [one["name"] for one in node.cli_json("tenant", "list")] == ["acme"],
        because="the tenant is deleted",
    )
    with node.as_admin() as api:
        names = [one["name"] for one in api.get("/v1/topics").json()["topics"]]
        assert not [one for one in names if one.startswith("~other~")]
        assert [one for one in names if one.startswith("~acme~")]
