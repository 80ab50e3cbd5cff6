"""Journeys over HTTP, searches of messages, and the trace context of requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client, request

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
OTHER = f"00-{TRACE[::-1]}-b7ad6b7169203331-00"
PUBLISH = "/v1/topics/orders/publish"
GROUP = "/v1/groups/billing"
FLUSHED_MS = 1_300


@pytest.fixture(autouse=True)
def _orders(world: World) -> None:
    world.create("orders", 2)


def headers_of(message: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in message["headers"]}


def publish(client: Client, value: str, **fields: object) -> dict[str, Any]:
    body = {"value": value, "partition": 0, **fields}
    published: dict[str, Any] = client.post(PUBLISH, body)
    return published


def receive(client: Client, group: str = GROUP) -> dict[str, Any]:
    """One message; a delayed or nacked one when it is due."""
    body = {"topic": "orders", "max_messages": 1, "wait_ms": 20_000}
    [message] = client.post(f"{group}/receive", body)["messages"]
    return dict(message)


def kinds(journey: dict[str, Any]) -> list[str]:
    return [one["kind"] for one in journey["entries"]]


def test_a_whole_life_is_one_timeline(world: World, client: Client) -> None:
    settings = {"deliveries_max": 2, "visibility_ms": 5_000}
    put = client.send("PUT", GROUP, {"kind": "queue", "settings": settings})
    assert put.status < 300, put
    scheduled = publish(client, "v", key="k", delay_ms=3_000)
    first = receive(client)
    client.post(f"{GROUP}/nack", {"receipts": [first["receipt"]]})
    second = receive(client)
    world.run_for(20_000)  # its lease expires, and that was the last delivery
    [letter] = client.get("/v1/topics/orders.dlq/messages")["messages"]
    assert headers_of(letter)["goqueue-dead-offset"] == str(second["offset"])
    client.post("/v1/deadletters/orders/redrives", {})
    again = receive(client)
    client.post(f"{GROUP}/ack", {"receipts": [again["receipt"]]})
    world.run_for(FLUSHED_MS)

    journey = client.get(f"/v1/journeys/{again['id']}")
    assert kinds(journey) == [
        "scheduled",
        "released",
        "arrived",
        "stored",
        "delivered",
        "nacked",
        "delivered",
        "lease_expired",
        "dead_lettered",
        "arrived",
        "stored",
        "redriven",
        "arrived",
        "stored",
        "delivered",
        "acked",
    ]
    assert journey["complete"]
    [outcome] = journey["outcomes"]
    assert (outcome["group"], outcome["outcome"]) == ("billing", "acked")
    assert outcome["message"]["id"] == again["id"]
    times = [one["time"] for one in journey["entries"]]
    assert times == sorted(times)
    ids = [one.get("id", one.get("schedule_id")) for one in journey["messages"]]
    assert ids == [scheduled["schedule_id"], second["id"], letter["id"], again["id"]]

    for one in (second["id"], letter["id"]):
        assert client.get(f"/v1/journeys/{one}")["entries"] == journey["entries"]
    by_schedule = client.get(f"/v1/journeys/{scheduled['schedule_id']}", topic="orders")
    assert by_schedule["entries"] == journey["entries"]
    client.refused("GET", f"/v1/journeys/{scheduled['schedule_id']}", topic="orders.dlq.other")
    client.refused("GET", f"/v1/journeys/{scheduled['schedule_id']}")

    found = client.get("/v1/journeys", topic="orders", outcome="dead", group="billing")
    assert [one["message"]["id"] for one in found["journeys"]] == [second["id"]]
    found = client.get("/v1/journeys", topic="orders", key="k")
    assert {one["message"]["id"] for one in found["journeys"]} == {second["id"], again["id"]}


def test_lists_statistics_and_one_message(world: World, client: Client) -> None:
    for value in ("a", "b"):
        publish(client, value, key=value)
    world.run_for(FLUSHED_MS)
    found = client.get("/v1/journeys", topic="orders", limit=1)
    assert [one["message"]["id"] for one in found["journeys"]] == ["orders:0:0"]
    more = client.get("/v1/journeys", topic="orders", limit=5, cursor=found["cursor"])
    assert [one["message"]["id"] for one in more["journeys"]] == ["orders:0:1"]
    assert more["cursor"] == ""
    one = client.get("/v1/journeys", topic="orders", partition=0, offset=1)
    assert [row["outcomes"][0]["outcome"] for row in one["journeys"]] == ["stored"]
    stats = client.get("/v1/journeys/stats", topic="orders", from_="1h")
    assert {row["kind"]: row["messages"] for row in stats["counts"]} == {
        "received": 2,
        "stored": 2,
    }


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/journeys/orders:0", {}),
        ("/v1/journeys/orders:0:x", {}),
        ("/v1/journeys/orders:0:0:0", {}),
        ("/v1/journeys", {"partition": 0}),
        ("/v1/journeys", {"offset": 0, "topic": "orders"}),
        ("/v1/journeys", {"outcome": "lost"}),
        ("/v1/journeys", {"key": "k"}),
        ("/v1/journeys", {"trace_id": "z" * 32}),
        ("/v1/journeys", {"from": "yesterday"}),
        ("/v1/journeys/stats", {}),
        ("/v1/topics/orders/search", {"header_value": "x"}),
        ("/v1/topics/orders/search", {"key": "x", "cursor": "0:0", "from": "1h"}),
    ],
)
def test_invalid_queries_are_refused(client: Client, path: str, query: dict[str, Any]) -> None:
    assert client.refused("GET", path, **query).status == 400


def test_events_are_streamed_as_they_are_recorded(world: World, client: Client) -> None:
    publish(client, "before")
    world.run_for(FLUSHED_MS)
    wire = client.wire()
    wire.feed(request("GET", "/v1/journeys/follow?topic=orders"))
    world.run_for(FLUSHED_MS)
    assert wire.answers[0].headers["content-type"].startswith("text/event-stream")
    publish(client, "after")
    world.run_for(2 * FLUSHED_MS)
    blocks = [
        dict(line.split(": ", 1) for line in one.splitlines() if line[:1] not in ("", ":"))
        for one in wire.answers[0].body.decode().split("\n\n")
    ]
    data = [json.loads(one["data"]) for one in blocks if "data" in one]
    assert [(one["kind"], one["offset"]) for one in data] == [("received", 1), ("stored", 1)]
    last_id = [one["id"] for one in blocks if "id" in one][-1]
    publish(client, "later")
    world.run_for(FLUSHED_MS)
    page = client.get("/v1/journeys/events", topic="orders", cursor=last_id)
    assert [one["offset"] for one in page["events"]] == [2, 2]
    assert page["end"]
    wire.close()


def test_messages_are_found_by_what_is_in_them(client: Client) -> None:
    publish(client, "red", key="a", headers=[{"name": "tenant", "value": "acme"}])
    publish(client, "blue", key="b")
    search = "/v1/topics/orders/search"

    def found(**query: object) -> list[str]:
        return [one["value"] for one in client.get(search, **query)["messages"]]

    assert found(key="a") == ["red"]
    assert found(text="lu") == ["blue"]
    assert found(header="tenant") == ["red"]
    assert found(header="tenant", header_value="other") == []
    page = client.get(search, limit=1, partition=0)
    assert [one["value"] for one in page["messages"]] == ["red"]
    page = client.get(search, cursor=page["cursor"])
    assert [one["value"] for one in page["messages"]] == ["blue"]
    assert page["cursor"] == ""


def test_the_trace_context_of_a_request_is_that_of_its_messages(client: Client) -> None:
    given = {"traceparent": PARENT}
    own = [{"name": "traceparent", "value": OTHER}]
    client.send("POST", PUBLISH, {"value": "a", "partition": 0}, headers=given)
    client.send(
        "POST",
        "/v1/topics/orders/batch",
        {"messages": [{"value": "b", "partition": 0}, {"value": "c", "headers": own}]},
        headers=given,
    )
    for invalid in ("00-1-2-3", PARENT.upper(), "ff" + PARENT[2:]):
        body = {"value": "d", "partition": 1}
        answer = client.send("POST", PUBLISH, body, headers={"traceparent": invalid})
        assert answer.status == 200
    messages = client.get("/v1/topics/orders/messages")["messages"]
    traces = {one["value"]: headers_of(one).get("traceparent") for one in messages}
    assert traces == {"a": PARENT, "b": PARENT, "c": OTHER, "d": None}
    found = client.get("/v1/topics/orders/search", trace_id=TRACE)["messages"]
    assert [one["value"] for one in found] == ["a", "b"]
