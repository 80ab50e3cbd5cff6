"""Topics over HTTP."""

from __future__ import annotations

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client


def test_a_topic_lives_and_dies(client: Client) -> None:
    made = client.post(
        "/v1/topics",
        {
            "name": "orders",
            "partitions": 3,
            "settings": {"retention_ms": 5000, "preallocate": True},
        },
    )
    assert (made["name"], made["partitions"], made["replication"]) == ("orders", 3, 1)
    assert made["settings"] == {"preallocate": True, "retention_ms": 5000}
    assert made["effective_settings"]["min_cleanable_dirty_ratio"] == 0.5
    assert [one["name"] for one in client.get("/v1/topics")["topics"]] == ["orders"]
    assert client.send("DELETE", "/v1/topics/orders").status == 204
    assert client.get("/v1/topics") == {"topics": []}
    assert client.refused("GET", "/v1/topics/orders").json["code"] == "unknown_topic"


def test_settings_are_merged_and_reset(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders", "settings": {"retention_ms": 5000}})
    path = "/v1/topics/orders"
    changed = client.send("PATCH", path, {"settings": {"cleanup_policy": "compact"}}).json
    assert changed["settings"] == {"cleanup_policy": "compact", "retention_ms": 5000}
    changed = client.send("PATCH", path, {"settings": {"retention_ms": None}}).json
    assert changed["settings"] == {"cleanup_policy": "compact"}
    assert changed["effective_settings"]["retention_ms"] == 604_800_000


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "orders"}, 409, "topic_exists"),
        ({"name": "a b"}, 400, "invalid_field"),
        ({"name": ".."}, 400, "invalid_topic_name"),
        ({"name": "new", "partitions": 0}, 400, "invalid_field"),
        ({"name": "new", "replication": 3}, 400, "invalid_replication_factor"),
        ({"name": "new", "settings": {"retention": 1}}, 400, "invalid_topic_setting"),
        ({"name": "new", "settings": {"retention_ms": "soon"}}, 400, "invalid_topic_setting"),
        ({"name": "new", "settings": {"retention_ms": None}}, 400, "invalid_field"),
    ],
)
def test_what_makes_no_sense_is_refused(
    client: Client, body: dict[str, object], status: int, code: str
) -> None:
    client.post("/v1/topics", {"name": "orders"})
    answer = client.refused("POST", "/v1/topics", body)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert len(client.get("/v1/topics")["topics"]) == 1


def test_a_topic_grows_but_never_shrinks(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders", "partitions": 2})
    grown = client.post("/v1/topics/orders/partitions", {"partitions": 4})
    assert [one["partition"] for one in grown["partitions"]] == [0, 1, 2, 3]
    refused = client.refused("POST", "/v1/topics/orders/partitions", {"partitions": 3})
    assert refused.json["code"] == "invalid_partition_count"


def test_partitions_show_where_they_begin_and_end(world: World, client: Client) -> None:
    world.create("orders", 2)
    world.produce("orders", ["a", "b", "c"], partition=1)
    _, second = client.get("/v1/topics/orders/partitions")["partitions"]
    assert (second["start_offset"], second["end_offset"], second["high_watermark"]) == (0, 3, 3)
    assert second["leader"] == world.broker.node_id
    described = client.get("/v1/topics/orders")
    assert described["messages"] == 3
    assert described["bytes"] == second["bytes"] > 0


def test_records_are_deleted_before_an_offset_or_a_moment(world: World, client: Client) -> None:
    world.create("orders", 2)
    world.produce("orders", ["a", "b"])
    world.run_for(60_000)
    world.produce("orders", ["c"])
    path = "/v1/topics/orders/records"
    deleted = client.send("DELETE", path, partition=0, before_offset=1).json
    assert deleted["partitions"] == [{"partition": 0, "start_offset": 1}]
    deleted = client.send("DELETE", path, before="30s").json
    assert [one["start_offset"] for one in deleted["partitions"]] == [2, 0]
    assert client.refused("DELETE", path, before_offset=1).json["field"] == "partition"
    assert client.refused("DELETE", path, partition=0, before_offset=9).status == 416
    client.send("DELETE", path)
    assert client.get("/v1/topics/orders")["messages"] == 0


def test_records_of_a_compacted_topic_are_kept(client: Client) -> None:
    client.post("/v1/topics", {"name": "state", "settings": {"cleanup_policy": "compact"}})
    assert client.refused("DELETE", "/v1/topics/state/records").json["code"] == "records_kept"


def test_compaction_can_be_asked_for(world: World, client: Client) -> None:
    client.post("/v1/topics", {"name": "state", "settings": {"cleanup_policy": "compact"}})
    for number in range(5):
        client.post("/v1/topics/state/publish", {"key": "k", "value": str(number)})
    assert client.send("POST", "/v1/topics/state/compact").status == 202
    world.run_until(lambda: world.broker.compactor.passes == 1)
    (left,) = client.get("/v1/topics/state/messages")["messages"]
    assert (left["offset"], left["value"]) == (4, "4")


def test_a_topic_that_is_not_compacted_says_so(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders"})
    assert client.refused("POST", "/v1/topics/orders/compact").json["code"] == "not_compacted"


def test_internal_topics_are_shown_on_request_and_cannot_be_changed(client: Client) -> None:
    client.post("/v1/topics", {"name": "orders"})
    client.post("/v1/groups/g/reset", {"topic": "orders", "to": "earliest"})
    names = [one["name"] for one in client.get("/v1/topics", internal="true")["topics"]]
    assert names == ["__consumer_offsets", "orders"]
    path = "/v1/topics/__consumer_offsets"
    assert client.refused("DELETE", path).status == 403
    assert client.refused("PATCH", path, {"settings": {"retention_ms": 1}}).status == 403
    assert client.refused("POST", f"{path}/publish", {"value": "x"}).status == 403


def test_deletion_may_be_switched_off() -> None:
    client = Client(World(topics__delete_enabled="false"))
    client.post("/v1/topics", {"name": "orders"})
    refused = client.refused("DELETE", "/v1/topics/orders")
    assert (refused.status, refused.json["code"]) == (403, "topic_deletion_disabled")
