"""Users and keys over HTTP."""

from __future__ import annotations

import pytest

from tests.unit.wire.http.client import Client

PASSWORD = "correct horse"


@pytest.fixture
def alice(client: Client) -> str:
    client.post("/v1/users", {"name": "alice", "password": PASSWORD})
    return "alice"


def test_a_user_is_created_shown_and_deleted(client: Client, alice: str) -> None:
    shown = client.get("/v1/users/alice")
    assert shown["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert shown["disabled"] is False
    assert [one["name"] for one in client.get("/v1/users")["users"]] == ["alice"]
    assert client.refused("POST", "/v1/users", {"name": "alice"}).status == 409
    assert client.send("DELETE", "/v1/users/alice").status == 204
    assert client.refused("GET", "/v1/users/alice").json["code"] == "unknown_user"


def test_a_user_is_disabled_and_enabled(client: Client, alice: str) -> None:
    assert client.send("PATCH", "/v1/users/alice", {"disabled": True}).json["disabled"] is True
    assert client.send("PATCH", "/v1/users/alice", {"disabled": False}).json["disabled"] is False


def test_a_list_has_pages(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.post("/v1/users", {"name": name})
    first = client.get("/v1/users", limit=2)
    assert ([one["name"] for one in first["users"]], first["cursor"]) == (["a", "b"], "b")
    rest = client.get("/v1/users", cursor="b")
    assert ([one["name"] for one in rest["users"]], rest["cursor"]) == (["c"], "")


@pytest.mark.parametrize("name", ["", "a/b", "a:b", " a", "ANONYMOUS", "x" * 256, "a\n"])
def test_a_bad_name_is_refused(client: Client, name: str) -> None:
    assert client.refused("POST", "/v1/users", {"name": name}).status == 400


def test_no_response_has_a_password(client: Client, alice: str) -> None:
    for answer in (
        client.send("GET", "/v1/users/alice"),
        client.send("PUT", "/v1/users/alice/password", {"password": "hunter2"}),
        client.send("PUT", "/v1/users/alice/password", {"password": ["hunter2"]}),
        client.send("PUT", "/v1/users/alice/password", b'{"password": "hunter2'),
        client.send("PUT", "/v1/users/alice/password", {"pass": "hunter2"}),
        client.send("POST", "/v1/users", {"name": "alice", "password": "hunter2 hunter2"}),
    ):
        assert b"hunter2" not in answer.body
        assert PASSWORD.encode() not in answer.body


def test_a_key_is_created_listed_rotated_and_deleted(client: Client, alice: str) -> None:
    made = client.post("/v1/users/alice/keys", {"description": "billing", "ttl_ms": 60_000})
    assert made["secret"].startswith("gqk_" + made["key"]["id"])
    assert made["key"]["expires_at"] == made["key"]["created_at"] + 60_000
    (listed,) = client.get("/v1/users/alice/keys")["keys"]
    assert listed == made["key"]
    rotated = client.post(f"/v1/keys/{listed['id']}/rotate", {"overlap_ms": 1_000})
    assert rotated["key"]["expires_at"] == listed["expires_at"]
    old = client.get(f"/v1/keys/{listed['id']}")
    assert old["expires_at"] < listed["expires_at"]
    assert client.send("DELETE", f"/v1/keys/{listed['id']}").status == 204
    assert client.refused("GET", f"/v1/keys/{listed['id']}").json["code"] == "unknown_key"


def test_an_access_key_has_an_id_and_a_secret(client: Client, alice: str) -> None:
    made = client.post("/v1/users/alice/keys", {"kind": "access"})
    assert made["key"]["id"].startswith("GQAK")
    assert len(made["secret"]) == 40
    assert made["key"]["expires_at"] is None


def test_an_expiry_is_given_once_and_in_the_future(client: Client, alice: str) -> None:
    both = {"expires_at": 1, "ttl_ms": 1}
    assert client.refused("POST", "/v1/users/alice/keys", both).json["field"] == "ttl_ms"
    past = client.refused("POST", "/v1/users/alice/keys", {"expires_at": 1})
    assert past.json["code"] == "invalid_credential"


def test_whoami_without_credentials(client: Client) -> None:
    shown = client.get("/v1/whoami")
    assert (shown["principal"], shown["authenticated"]) == ("User:ANONYMOUS", False)
