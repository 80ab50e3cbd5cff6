"""Rules of access control and roles over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.model.session import ANONYMOUS
from tests.simulation.world import World
from tests.unit.wire.http.client import Client

READ = {"kind": "TOPIC", "name": "orders", "principal": "User:alice", "action": "READ"}


def create(client: Client, *acls: dict[str, Any]) -> Any:
    return client.post("/v1/acls", {"acls": list(acls)})


def names(page: Any) -> list[str]:
    return [one["name"] for one in page["acls"]]


def test_rules_are_created_listed_and_deleted(client: Client) -> None:
    made = create(client, READ, {**READ, "name": "ord", "pattern": "PREFIXED"})
    assert made["enforced"] is False  # This node does not control access.
    assert made["acls"][0] == {**READ, "pattern": "LITERAL", "host": "*", "permission": "ALLOW"}
    create(client, {**READ, "name": "*", "principal": "Role:readers", "permission": "DENY"})
    assert names(client.get("/v1/acls")) == ["*", "ord", "orders"]
    assert names(client.get("/v1/acls", name="orders", pattern="MATCH")) == ["*", "ord", "orders"]
    assert names(client.get("/v1/acls", name="orders")) == ["orders"]
    assert names(client.get("/v1/acls", permission="DENY")) == ["*"]
    shown = client.send("DELETE", "/v1/acls", principal="User:alice", dry_run="true").json
    assert names(shown) == ["ord", "orders"]
    assert names(client.send("DELETE", "/v1/acls", principal="User:alice").json) == names(shown)
    assert names(client.get("/v1/acls")) == ["*"]
    assert client.refused("DELETE", "/v1/acls").json["field"] == "all"
    assert names(client.send("DELETE", "/v1/acls", all="true").json) == ["*"]


def test_a_list_has_pages(client: Client) -> None:
    create(client, *({**READ, "name": f"t{number}"} for number in range(5)))
    found, cursor = [], ""
    for count in (2, 2, 1):
        page = client.get("/v1/acls", limit=2, cursor=cursor, kind="TOPIC")
        assert len(page["acls"]) == count
        found += names(page)
        cursor = page["cursor"]
    assert (found, cursor) == (["t0", "t1", "t2", "t3", "t4"], "")
    assert client.refused("GET", "/v1/acls", cursor="no cursor").status == 400


@pytest.mark.parametrize(
    "wrong",
    [
        {"principal": "alice"},
        {"host": "example.com"},
        {"kind": "CLUSTER"},
        {"kind": "USER"},
        {"action": "DANCE"},
        {"name": ""},
        {"permission": "MAYBE"},
    ],
)
def test_one_invalid_rule_refuses_all(client: Client, wrong: dict[str, str]) -> None:
    body = {"acls": [READ, {**READ, **wrong}]}
    assert client.refused("POST", "/v1/acls", body).status == 400
    assert names(client.get("/v1/acls")) == []


def test_the_deciding_rule_is_shown(client: Client) -> None:
    client.post("/v1/roles", {"name": "readers", "members": ["User:alice"]})
    create(client, {**READ, "principal": "Role:readers", "name": "ord", "pattern": "PREFIXED"})
    asked = {"principal": "User:alice", "kind": "TOPIC", "name": "orders"}
    found = client.get("/v1/acls/test", action="DESCRIBE", **asked)
    assert (found["allowed"], found["reason"]) == (True, "rule")
    assert found["acl"]["principal"] == "Role:readers"
    found = client.get("/v1/acls/test", action="WRITE", **asked)
    assert (found["allowed"], found["reason"], found["acl"]) == (False, "no_rule_allows", None)


def test_roles_are_created_granted_revoked_and_deleted(client: Client) -> None:
    assert client.post("/v1/roles", {"name": "readers"}) == {"name": "readers", "members": []}
    granted = client.post("/v1/roles/readers/grant", {"members": ["User:bob", "User:alice"]})
    assert granted["members"] == ["User:alice", "User:bob"]
    revoked = client.post("/v1/roles/readers/revoke", {"members": ["User:alice", "User:x"]})
    assert revoked["members"] == ["User:bob"]
    assert client.get("/v1/roles")["roles"] == [revoked]
    assert client.get("/v1/roles/readers") == revoked
    create(client, {**READ, "principal": "Role:readers"}, READ)
    assert client.send("DELETE", "/v1/roles/readers").status == 204
    assert len(client.get("/v1/acls")["acls"]) == 1  # The rules of a role go with it.
    for path in ("/v1/roles/readers/grant", "/v1/roles/readers/revoke"):
        assert client.refused("POST", path, {"members": ["User:a"]}).json["code"] == "unknown_role"
    assert client.refused("GET", "/v1/roles/readers").status == 404
    assert client.refused("DELETE", "/v1/roles/readers").status == 404


@pytest.mark.parametrize("member", ["alice", "User:", "User:*", "Role:other"])
def test_only_users_have_roles(client: Client, member: str) -> None:
    body = {"name": "readers", "members": [member]}
    assert client.refused("POST", "/v1/roles", body).json["code"] == "invalid_role"


@pytest.mark.parametrize("name", ["a/b", "a:b", " a", "x" * 256, ""])
def test_a_bad_name_of_a_role_is_refused(client: Client, name: str) -> None:
    assert client.refused("POST", "/v1/roles", {"name": name}).status == 400


def test_roles_have_pages(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.post("/v1/roles", {"name": name})
    page = client.get("/v1/roles", limit=2)
    assert ([one["name"] for one in page["roles"]], page["cursor"]) == (["a", "b"], "b")
    page = client.get("/v1/roles", limit=2, cursor="b")
    assert ([one["name"] for one in page["roles"]], page["cursor"]) == (["c"], "")


def test_what_one_may_not_describe_does_not_exist() -> None:
    world = World(security__access_control="on", security__super_users="User:root")
    client = Client(world)
    world.create("orders")
    for path in ("/v1/topics/orders", "/v1/topics/nowhere"):
        answer = client.refused("GET", path)
        name = path.rpartition("/")[2]
        assert (answer.status, answer.json["code"]) == (404, "unknown_topic")
        assert answer.json["detail"] == f"Topic {name!r} does not exist; create it first."
    denied = client.refused("GET", "/v1/acls")
    assert (denied.status, denied.json["code"]) == (403, "access_denied")


def test_who_sees_a_topic_learns_what_is_missing() -> None:
    world = World(security__access_control="on", security__super_users=ANONYMOUS)
    client = Client(world)
    world.create("orders")
    create(client, {**READ, "principal": ANONYMOUS, "action": "DESCRIBE"})
    world.broker.access._control.super_users = frozenset()
    world.broker.access._control._cache.clear()
    assert client.get("/v1/topics/orders")["name"] == "orders"
    denied = client.refused("DELETE", "/v1/topics/orders")
    assert (denied.status, denied.json["code"]) == (403, "access_denied")
    assert denied.json["detail"] == (
        "User:ANONYMOUS may not DELETE topic 'orders'; request that permission."
    )
