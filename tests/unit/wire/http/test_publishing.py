"""Publishing and reading over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import StorageFull
from goqueue.model.key_hash import partition_of_key
from tests.simulation.world import World
from tests.unit.broker.gate.areas.policies import Only
from tests.unit.wire.http.client import Client, request

PUBLISH = "/v1/topics/orders/publish"
MESSAGES = "/v1/topics/orders/messages"


@pytest.fixture(autouse=True)
def _orders(world: World) -> None:
    world.create("orders", 2)


def values(answer: Any) -> list[Any]:
    return [one["value"] for one in answer["messages"]]


def test_a_message_is_published_and_read_back(client: Client) -> None:
    published = client.post(PUBLISH, {"value": "hello", "key": "k", "partition": 1})
    assert published["id"] == "orders:1:0"
    message = client.get(f"{MESSAGES}/1/0")
    assert message["id"] == published["id"]
    assert (message["key"], message["value"]) == ("k", "hello")
    assert message["timestamp"] == published["timestamp"]


def test_a_key_goes_where_every_client_of_the_log_sends_it(client: Client) -> None:
    for key in ("a", "b", "customer-7", "é"):
        published = client.post(PUBLISH, {"key": key, "value": "v"})
        assert published["partition"] == partition_of_key(key.encode(), 2)


BYTES = st.none() | st.binary(max_size=40)
_CLIENT: list[Client] = []


@settings(max_examples=100, deadline=None)
@given(
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(min_size=1, max_size=5), BYTES), max_size=3),
    encoding=st.sampled_from(["utf8", "base64"]),
)
def test_arbitrary_bytes_come_back_exactly(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], encoding: str
) -> None:
    if not _CLIENT:
        world = World()
        world.create("orders")
        _CLIENT.append(Client(world))
    client = _CLIENT[0]
    body = {
        "key": _base64(key),
        "key_encoding": "base64",
        "value": _base64(value),
        "value_encoding": "base64",
        "headers": [
            {"name": name, "value": _base64(content), "encoding": "base64"}
            for name, content in headers
        ],
    }
    offset = client.post(PUBLISH, body)["offset"]
    message = client.get(f"{MESSAGES}/0/{offset}", encoding=encoding)
    assert _bytes(message["key"], message["key_encoding"]) == key
    assert _bytes(message["value"], message["value_encoding"]) == value
    assert [
        (one["name"], _bytes(one["value"], one["encoding"])) for one in message["headers"]
    ] == headers


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _bytes(text: str | None, encoding: str) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text) if encoding == "base64" else text.encode()


def test_a_batch_has_a_result_for_each_message(client: Client) -> None:
    answer = client.post(
        "/v1/topics/orders/batch",
        {
            "messages": [
                {"value": "a", "partition": 0},
                {"value": "b", "partition": 7},
                {"value": "c", "partition": 1},
                {"value": "?", "value_encoding": "base64"},
                {"value": "d", "partition": 0},
                {"value": "e", "deliver_at": "whenever"},
                {"value": "f", "partition": 0, "delay_ms": 5000},
            ]
        },
    )
    results = answer["results"]
    assert [one.get("problem", {}).get("code") for one in results] == [
        None,
        "unknown_partition",
        None,
        "invalid_field",
        None,
        "invalid_attribute",
        None,
    ]
    assert answer["failed"] == 3
    assert [one["published"].get("id") for one in (results[0], results[2], results[4])] == [
        "orders:0:0",
        "orders:1:0",
        "orders:0:1",
    ]
    assert set(results[6]["published"]) == {"topic", "schedule_id", "deliver_at"}


def test_json_is_published_as_it_is(client: Client) -> None:
    one = client.post(PUBLISH, {"json": {"b": 1, "a": [1.0, None]}, "key": "k"})
    assert client.get(f"{MESSAGES}/{one['partition']}/0")["value"] == '{"b":1,"a":[1.0,null]}'
    batch = client.post("/v1/topics/orders/batch", {"messages": [{"json": []}, {"key": "k"}]})
    assert batch["failed"] == 1
    assert batch["results"][1]["problem"]["field"] == "value"
    refused = client.refused("POST", PUBLISH, {"key": "k"})
    assert (refused.status, refused.json["field"]) == (400, "value")


def test_json_is_stored_or_nested_too_deeply(client: Client) -> None:
    statuses = set()
    for depth in (*range(1, 1000, 7), 100_000):
        body = b'{"json":' + b"[" * depth + b"]" * depth + b"}"
        answer = client.send("POST", PUBLISH, body)
        statuses.add(answer.status)
        assert answer.status == 200 or "nested too deeply" in answer.json["detail"]
    assert statuses == {200, 400}


def test_a_batch_for_no_topic_is_refused_as_a_whole(client: Client) -> None:
    body = {"messages": [{"value": "a"}]}
    assert client.refused("POST", "/v1/topics/no%20good/batch", body).status == 400
    assert client.refused("POST", "/v1/topics/orders/batch", {"messages": []}).status == 400


def test_an_answer_waits_for_the_disk_unless_nobody_wants_it_to(client: Client) -> None:
    safe, quick = client.wire(), client.wire()
    safe.feed(request("POST", PUBLISH, {"value": "safe", "partition": 0}))
    quick.feed(request("POST", PUBLISH, {"value": "quick", "partition": 0, "acks": "none"}))
    client.world.run_until(lambda: bool(quick.answers))
    assert quick.answers[0].json["offset"] == 1
    assert not safe.answers
    client.world.run_until(lambda: bool(safe.answers))


def test_a_message_that_is_too_large_is_refused(client: Client) -> None:
    refused = client.refused("POST", PUBLISH, {"value": "x" * 1_100_000})
    assert (refused.status, refused.json["code"]) == (413, "record_too_large")


def test_a_full_disk_is_told_as_such(client: Client) -> None:
    client.world.broker.upkeep.is_full = True
    refused = client.refused("POST", PUBLISH, {"value": "x"})
    assert (refused.status, refused.json["retryable"]) == (507, True)
    assert client.send("GET", "/healthz").status == 503
    assert client.send("GET", "/readyz").status == 200


def test_probes_without_rights_get_no_names_of_partitions_that_fail(client: Client) -> None:
    broker = client.world.broker
    broker.topics.get("orders").partition(0).failure = StorageFull("broken")
    [problem] = client.send("GET", "/healthz").json["problems"]
    assert problem == "Partitions that cannot be written: orders/0."
    broker.gate.policy = Only()
    answer = client.send("GET", "/healthz")
    assert (answer.status, answer.json["problems"]) == (
        503,
        ["Partitions that cannot be written: 1."],
    )


# Reading


def test_pages_follow_one_another_without_gap_or_repeat(world: World, client: Client) -> None:
    for number in range(25):
        world.produce("orders", [str(number)], partition=number % 2)
        world.run_for(5)
    read, query = [], {}
    while True:
        page = client.get(MESSAGES, limit=4, **query)
        if not page["messages"]:
            break
        read += values(page)
        query = {"cursor": page["cursor"]}
    assert read == [str(number) for number in range(25)], "oldest first, over all partitions"


def test_a_stretch_of_time_is_read(world: World, client: Client) -> None:
    for value in ("old", "middle", "new"):
        world.produce("orders", [value])
        world.run_for(3_600_000)
    assert values(client.get(MESSAGES, from_="150m", until="90m")) == ["middle"]
    assert values(client.get(MESSAGES, from_="150m")) == ["middle", "new"]
    assert values(client.get(MESSAGES, until="150m")) == ["old"]
    assert values(client.get(MESSAGES, from_="latest")) == []


def test_a_reader_waits_for_the_next_message(world: World, client: Client) -> None:
    wire = client.wire()
    wire.feed(request("GET", MESSAGES, from_="latest", wait_ms=20_000))
    world.run_for(5_000)
    assert not wire.answers
    world.produce("orders", ["now"], partition=1)
    world.run_until(lambda: bool(wire.answers))
    assert values(wire.answers[0].json) == ["now"]
    before = world.broker.clock.now_ms()
    assert values(client.get(MESSAGES, from_="latest", wait_ms=2_000)) == []
    assert 2_000 <= world.broker.clock.now_ms() - before < 3_000


def test_a_waiting_reader_hears_that_its_topic_is_gone(world: World, client: Client) -> None:
    wire = client.wire()
    wire.feed(request("GET", MESSAGES, from_="latest", wait_ms=20_000))
    world.wait(world.broker.topics.delete("orders"))
    world.run_until(lambda: bool(wire.answers))
    assert wire.answers[0].json["code"] == "unknown_topic"


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ({"offset": 1}, 400, "partition"),
        ({"partition": 0, "offset": 1, "from_": "1h"}, 400, "from"),
        ({"cursor": "0:0", "partition": 0}, 400, "cursor"),
        ({"cursor": "0:0,0:1"}, 400, "cursor"),
        ({"partition": 0, "offset": 5}, 416, None),
        ({"partition": 2}, 404, None),
        ({"cursor": "2:0"}, 404, None),
        ({"from_": "lately"}, 400, "from"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(
    client: Client, query: dict[str, Any], status: int, field: str | None
) -> None:
    answer = client.refused("GET", MESSAGES, **query)
    assert (answer.status, answer.json.get("field")) == (status, field)


def test_one_message_that_is_not_there(client: Client) -> None:
    client.post(PUBLISH, {"value": "a", "partition": 0})
    assert client.refused("GET", f"{MESSAGES}/0/1").json["code"] == "unknown_message"
    assert client.refused("GET", f"{MESSAGES}/9/0").json["code"] == "unknown_partition"
    assert client.refused("GET", f"{MESSAGES}/zero/0").json["field"] == "partition"
    assert client.refused("GET", f"{MESSAGES}/0/{1 << 64}").json["field"] == "offset"


# Schedules


def test_a_delayed_message_waits_and_can_be_moved_and_cancelled(
    world: World, client: Client
) -> None:
    body = {"value": "later", "key": "k", "delay_ms": 60_000}
    ids = [client.post(PUBLISH, body)["schedule_id"] for _ in range(3)]
    assert client.get("/v1/schedules/count") == {"count": 3}
    assert client.get("/v1/schedules/count", topic="others") == {"count": 0}
    shown = client.get(f"/v1/schedules/{ids[0]}")
    assert (shown["topic"], shown["value"], shown["partition"]) == ("orders", "later", None)
    listed = client.get("/v1/schedules", limit=2)
    more = client.get("/v1/schedules", limit=2, cursor=listed["cursor"])
    assert sorted(one["id"] for one in listed["schedules"] + more["schedules"]) == sorted(ids)
    moved = client.send("PATCH", f"/v1/schedules/{ids[1]}", {"delay_ms": 600_000})
    assert moved.json["deliver_at"] > shown["deliver_at"]
    assert client.send("DELETE", f"/v1/schedules/{ids[2]}").status == 204
    world.run_for(61_000)
    assert values(client.get(MESSAGES)) == ["later"]
    assert client.refused("GET", f"/v1/schedules/{ids[2]}").status == 404
    assert client.refused("DELETE", f"/v1/schedules/{ids[0]}").status == 409
    stats = client.get("/v1/schedules/stats")
    assert (stats["pending"], stats["released"], stats["cancelled"]) == (1, 1, 1)


def test_a_wrong_schedule_is_refused(client: Client) -> None:
    assert client.refused("GET", "/v1/schedules/nonsense").status == 404
    both = {"delay_ms": 1, "deliver_at": 5}
    assert client.refused("PATCH", "/v1/schedules/x", both).json["field"] == "deliver_at"
    assert client.refused("GET", "/v1/schedules", from_="2h").json["field"] == "from"
    assert client.refused("GET", "/v1/schedules", cursor="nonsense").status in (400, 404)
