"""Quotas over HTTP: managed there, and signalled as 429 and 403."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.wire.http.client import Client

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
        ]
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
