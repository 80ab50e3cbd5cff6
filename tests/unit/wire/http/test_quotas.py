"""Quotas over HTTP: managed there, and signalled as 429 and 403."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from goqueue.model.session import NOBODY
from tests.unit.wire.http.client import Answer, Client, Wire, request

MESSAGE = {"value": "x" * 100}


def limit(client: Client, entity: dict[str, str | None], **limits: float | None) -> None:
    answer = client.send("PATCH", "/v1/quotas", {"entity": entity, "limits": limits})
    assert answer.status == 204, answer.json


def publish(client: Client, count: int = 1, topic: str = "orders") -> Any:
    body = {"messages": [MESSAGE] * count}
    return client.send("POST", f"/v1/topics/{topic}/batch", body)


@pytest.fixture(autouse=True)
def orders(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders", "partitions": 1})


def test_quotas_are_set_listed_and_deleted(client: Client) -> None:
    limit(client, {"user": "alice"}, producer_byte_rate=1000, request_rate=0.5)
    limit(client, {"user": None}, request_rate=500)
    limit(client, {"user": "alice", "client-id": None}, request_rate=50)
    assert client.get("/v1/quotas", user="alice", strict="true") == {
        "quotas": [
            {
                "entity": {"user": "alice"},
                "limits": {"producer_byte_rate": 1000.0, "request_rate": 0.5},
            }
        ],
        "cursor": "",
        "total": 1,
    }
    assert len(client.get("/v1/quotas")["quotas"]) == 3
    assert len(client.get("/v1/quotas", user="alice", default="client-id")["quotas"]) == 1
    assert len(client.get("/v1/quotas", any="user")["quotas"]) == 3
    limit(client, {"user": "alice"}, request_rate=None)
    assert client.get("/v1/quotas", user="alice", strict="true")["quotas"][0]["limits"] == {
        "producer_byte_rate": 1000.0
    }
    assert client.send("DELETE", "/v1/quotas", user="alice").status == 204
    assert client.send("DELETE", "/v1/quotas", user="alice").status == 204
    assert client.send("DELETE", "/v1/quotas", default="user").status == 204
    assert len(client.get("/v1/quotas")["quotas"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"entity": {"user": "a"}, "limits": {"bytes": 1}},
        {"entity": {"user": "a"}, "limits": {}},
        {"entity": {}, "limits": {"request_rate": 1}},
        {"entity": {"user": "a", "ip": "b"}, "limits": {"request_rate": 1}},
        {"entity": {"user": "a"}, "limits": {"request_rate": -1}},
        {"entity": {"tenant": "a"}, "limits": {"topics": 1.5}},
    ],
)
def test_wrong_quotas_are_refused(client: Client, body: dict[str, Any]) -> None:
    refused = client.refused("PATCH", "/v1/quotas", body)
    assert (refused.status, refused.json["code"]) == (400, "invalid_quota")


def test_a_publisher_over_its_rate_gets_429_with_the_time_to_wait(client: Client) -> None:
    limit(client, {"user": None}, producer_byte_rate=100)
    assert publish(client, 4).status == 200
    refused = publish(client)
    assert refused.status == 429
    assert refused.json["code"] == "quota_exceeded"
    assert refused.json["retryable"] is True
    assert refused.headers["retry-after"] == "3"
    assert refused.headers["ratelimit-policy"] == '"producer_byte_rate";q=100;w=1'
    assert refused.headers["ratelimit"] == '"producer_byte_rate";r=0;t=3'
    client.world.run_for(3_000)
    assert publish(client).status == 200


def test_reading_over_the_rate_gets_429(client: Client) -> None:
    publish(client, 10)
    limit(client, {"user": None}, consumer_message_rate=5)
    path = "/v1/topics/orders/messages"
    first = client.send("GET", path)
    assert first.status == 200, first.json
    assert client.send("GET", path).status == 429


def test_receiving_from_a_queue_over_the_rate_gets_429(client: Client) -> None:
    publish(client, 20)
    limit(client, {"user": None}, consumer_message_rate=5)
    path, body = "/v1/groups/workers/receive", {"topic": "orders", "max_messages": 10}
    assert len(client.post(path, body)["messages"]) == 10
    assert client.send("POST", path, body).status == 429


def test_leases_over_the_quota_of_messages_in_flight_are_refused(client: Client) -> None:
    publish(client, 20)
    limit(client, {"tenant": None}, in_flight_messages=7)
    path, body = "/v1/groups/workers/receive", {"topic": "orders", "max_messages": 10}
    messages = client.post(path, body)["messages"]
    assert len(messages) == 7
    refused = client.refused("POST", path, body)
    assert (refused.status, refused.json["code"]) == (429, "in_flight_quota_reached")
    assert refused.headers["retry-after"] == "1"
    client.post("/v1/groups/workers/ack", {"receipts": [one["receipt"] for one in messages[:3]]})
    assert len(client.post(path, body)["messages"]) == 3


def test_groups_over_the_quota_are_refused(client: Client) -> None:
    publish(client, 5)
    limit(client, {"tenant": None}, groups=1)
    body = {"topic": "orders", "max_messages": 1}
    client.post("/v1/groups/one/receive", body)
    refused = client.refused("POST", "/v1/groups/two/receive", body)
    assert (refused.status, refused.json["code"]) == (403, "quota_reached")
    client.post("/v1/groups/one/receive", body)


def test_requests_over_the_rate_get_429(client: Client) -> None:
    limit(client, {"user": None}, request_rate=3)
    statuses = [client.send("GET", "/v1/topics").status for _ in range(6)]
    assert statuses[:3] == [200] * 3
    assert statuses[-1] == 429
    assert client.send("GET", "/v1/admin/cluster/health").status == 200


def test_a_full_tenant_gets_403_and_no_retry_header(client: Client) -> None:
    limit(client, {"tenant": None}, storage_bytes=200)
    publish(client, 3)
    refused = publish(client)
    assert (refused.status, refused.json["code"]) == (403, "storage_quota_reached")
    assert "retry-after" not in refused.headers
    assert refused.json["retryable"] is False


def test_topics_over_the_quota_get_403(client: Client) -> None:
    limit(client, {"tenant": None}, topics=1)
    refused = client.refused("POST", "/v1/topics", {"name": "more"})
    assert (refused.status, refused.json["code"]) == (403, "quota_reached")


def test_delayed_messages_over_the_quota_are_refused(client: Client) -> None:
    limit(client, {"tenant": None}, scheduled_messages=2)

    def delay(count: int) -> Any:
        body = {"messages": [{"value": "x", "delay_ms": 60_000}] * count}
        return client.send("POST", "/v1/topics/orders/batch", body)

    assert delay(2).status == 200
    refused = delay(1)
    assert "quota_reached" in refused.body.decode(), refused.body


def test_usage_shows_rates_and_counts(client: Client) -> None:
    limit(client, {"user": None}, producer_byte_rate=1_000)
    limit(client, {"tenant": None}, storage_bytes=10_000)
    publish(client, 2)
    found = {one["limit"]: one for one in client.get("/v1/quotas/usage")["usage"]}
    assert found["producer_byte_rate"]["used"] >= 150
    assert found["producer_byte_rate"]["entity"] == {"user": "ANONYMOUS"}
    assert found["storage_bytes"]["used"] >= 200


def ask(client: Client, wire: Wire, user: str = "", path: str = "/v1/whoami") -> Answer:
    """One more request on a connection, in the name of a user."""
    headers = {}
    if user:
        headers["authorization"] = "Basic " + b64encode(f"{user}:correct horse".encode()).decode()
    before = len(wire.answers)
    wire.feed(request("GET", path, headers=headers))
    client.world.run_until(lambda: len(wire.answers) > before and wire.answers[-1].is_whole)
    return wire.answers[-1]


@pytest.fixture
def users(client: Client) -> None:
    for name in ("alice", "bob"):
        made = client.world.broker.gate.users.create(NOBODY, user=name, password="correct horse")
        client.world.wait(made)


@pytest.mark.usefixtures("users")
def test_a_user_has_no_more_connections_than_its_quota(client: Client) -> None:
    limit(client, {"user": "alice"}, connections=2)
    first, second, third = (client.wire() for _ in range(3))
    for _ in range(3):  # A connection counts once, however many requests it has.
        assert ask(client, first, "alice", "/v1/topics").status == 200
        assert ask(client, second, "alice", "/v1/topics").status == 200
    refused = ask(client, third, "alice", "/v1/topics")
    assert (refused.status, refused.json["code"]) == (403, "quota_reached")
    assert "connections" in refused.json["detail"]
    assert third.is_closed
    assert ask(client, client.wire(), "bob", "/v1/topics").status == 200
    first.close()
    assert ask(client, client.wire(), "alice", "/v1/topics").status == 200


@pytest.mark.usefixtures("users")
def test_a_connection_counts_for_the_user_of_its_last_request(client: Client) -> None:
    limit(client, {"user": None}, connections=1)
    shared, other = client.wire(), client.wire()
    assert ask(client, shared, "alice", "/v1/topics").status == 200
    assert ask(client, shared, "bob", "/v1/topics").status == 200
    assert ask(client, other, "alice", "/v1/topics").status == 200
    assert ask(client, shared, "alice", "/v1/topics").status == 403
    assert shared.is_closed
    assert ask(client, other, "bob", "/v1/topics").status == 200


@pytest.mark.usefixtures("users")
def test_requests_without_a_user_do_not_count(client: Client) -> None:
    limit(client, {"user": None}, connections=1)
    assert ask(client, client.wire(), "alice", "/v1/topics").status == 200
    wire = client.wire()
    wire.feed(request("GET", "/v1/topics", headers={"authorization": "Basic bm9ib2R5Om5vdGhpbmc="}))
    client.world.run_until(lambda: bool(wire.answers))
    assert wire.answers[0].status == 401
    for _ in range(3):
        assert ask(client, client.wire(), path="/v1/admin/cluster/health").status == 200
    usage = client.world.broker.quotas.usage()
    assert [(one.key.entity, one.used) for one in usage] == [((("user", "alice"),), 1)]


@pytest.mark.usefixtures("users")
def test_a_lower_quota_ends_connections_at_their_next_requests(client: Client) -> None:
    wires = [client.wire() for _ in range(3)]
    for wire in wires:
        ask(client, wire, "alice", "/v1/topics")
    limit(client, {"user": "alice"}, connections=3)
    assert {ask(client, wire, "alice", "/v1/topics").status for wire in wires} == {200}
    limit(client, {"user": "alice"}, connections=2)
    assert [ask(client, wire, "alice", "/v1/topics").status for wire in wires] == [403, 200, 200]
    limit(client, {"user": "alice"}, connections=None)
    assert ask(client, client.wire(), "alice", "/v1/topics").status == 200


@pytest.mark.usefixtures("users")
def test_connections_are_counted_anew_when_a_quota_is_set_again(client: Client) -> None:
    wires = [client.wire() for _ in range(3)]
    limit(client, {"user": "alice"}, connections=3)
    assert {ask(client, wire, "alice", "/v1/topics").status for wire in wires} == {200}
    limit(client, {"user": "alice"}, connections=None)
    assert ask(client, wires[0], "alice", "/v1/topics").status == 200
    limit(client, {"user": "alice"}, connections=2)
    assert [ask(client, wire, "alice", "/v1/topics").status for wire in wires] == [200, 200, 403]
    wires[0].close()
    [usage] = client.world.broker.quotas.usage()
    assert usage.used == 1
