"""Pages of topics and groups: sorted, filtered, whole, and with the right figures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.world import World
from tests.unit.broker.share_groups.member import Member
from tests.unit.wire.http.client import Client

TOPICS, GROUPS = "/v1/topics", "/v1/groups"


def all_pages(client: Client, path: str, key: str, **query: object) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = client.get(path, **query, cursor=cursor)
        assert page["missing_nodes"] == []
        rows += page[key]
        cursor = page["cursor"]
        if not cursor:
            assert page["total"] == len(rows)
            return rows


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in rows]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_together_are_the_whole_list(
    world: World, client: Client, order: str, limit: int
) -> None:
    for number in range(10):
        world.create(f"t-{number}", 1 + number % 3)
    found = all_pages(client, TOPICS, "topics", limit=limit, order=order, sort="partitions")
    expected = sorted(((1 + one % 3), f"t-{one}") for one in range(10))
    assert names(found) == [name for _, name in (expected if order == "asc" else expected[::-1])]


@pytest.mark.parametrize("sort", ["name", "lag"])
def test_no_page_follows_a_page_that_is_just_full(world: World, client: Client, sort: str) -> None:
    for number in range(4):
        world.create(f"t-{number}")
        commit(client, f"g-{number}", f"t-{number}", 0)
    for path, key in ((TOPICS, "topics"), (GROUPS, "groups")):
        page = client.get(path, limit=2, sort=sort)
        assert page["cursor"]
        page = client.get(path, limit=2, sort=sort, cursor=page["cursor"])
        assert (len(page[key]), page["cursor"]) == (2, "")
        assert client.get(path, limit=4, sort=sort)["cursor"] == ""


def test_topics_are_found_by_a_part_of_their_names(world: World, client: Client) -> None:
    for name in ("orders", "ORDERS.old", "mails", "reorder"):
        world.create(name)
    assert names(client.get(TOPICS, match="Order", limit=10)["topics"]) == [
        "ORDERS.old",
        "orders",
        "reorder",
    ]
    page = client.get(TOPICS, match="order", prefix="o", limit=10)
    assert (names(page["topics"]), page["total"]) == (["orders"], 1)


def test_topics_are_sorted_by_what_they_contain(world: World, client: Client) -> None:
    for number, name in enumerate(("a", "b", "c")):
        world.create(name)
        world.produce(name, ["x" * 100] * (number + 1))
    for sort in ("messages", "bytes"):
        rows = client.get(TOPICS, sort=sort, order="desc", stats="true", limit=2)["topics"]
        assert names(rows) == ["c", "b"]
    assert [one["stats"]["messages"] for one in rows] == [3, 2]
    assert rows[0]["stats"]["bytes"] > rows[1]["stats"]["bytes"] > 0


def test_topics_show_who_reads_them_and_how_far_behind(world: World, client: Client) -> None:
    for name in ("a", "b"):
        world.create(name)
        world.produce(name, ["x"] * 5)
    commit(client, "far", "b", 1)
    commit(client, "near", "b", 4)
    commit(client, "near", "a", 5)
    world.run_for(10_000)
    rows = client.get(TOPICS, sort="lag", order="desc", stats="true")["topics"]
    assert names(rows) == ["b", "a"]
    assert [(one["stats"]["groups"], one["stats"]["lag"]) for one in rows] == [(2, 4), (1, 0)]


def commit(client: Client, group: str, topic: str, offset: int) -> None:
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
    assert client.post(f"{GROUPS}/{group}/commit", body)["failed"] == 0


def test_groups_of_all_kinds_are_in_one_list(world: World, client: Client) -> None:
    world.create("orders")
    world.produce("orders", ["x"] * 5)
    commit(client, "readers", "orders", 2)
    client.post(f"{GROUPS}/workers/receive", {"topic": "orders", "max_messages": 2})
    rows = client.get(GROUPS, stats="true", limit=10)["groups"]
    assert [(one["name"], one["kind"]) for one in rows] == [
        ("readers", "stream"),
        ("workers", "queue"),
    ]
    assert rows[0]["stats"]["lag"] == 3
    assert rows[0]["stats"]["lag_ms"] >= 0
    assert rows[1]["stats"] == {
        "members": 1,
        "topics": 1,
        "lag": 5,
        "lag_ms": rows[1]["stats"]["lag_ms"],
        "in_flight": 2,
    }


def test_queue_groups_with_members_are_share_groups(world: World, client: Client) -> None:
    world.create("orders")
    commit(client, "readers", "orders", 0)
    client.post(f"{GROUPS}/workers/receive", {"topic": "orders"})
    member = Member(world, "one", group="sharers")
    member.heartbeat(topics=["orders"])
    member.ask()
    rows = all_pages(client, GROUPS, "groups", limit=2, stats="true")
    assert [one["stats"]["members"] for one in rows] == [0, 1, 0]
    assert [(one["name"], one["kind"], one["share"]) for one in rows] == [
        ("readers", "stream", False),
        ("sharers", "queue", True),
        ("workers", "queue", False),
    ]
    found = client.get(f"{TOPICS}/orders/groups")["groups"]
    assert {one["name"]: one["share"] for one in found}["sharers"] is True
    member.heartbeat(epoch=-1)
    rows = client.get(GROUPS, limit=3, kind="queue")["groups"]
    assert [one["share"] for one in rows] == [False, False]


def test_groups_are_sorted_and_filtered(world: World, client: Client) -> None:
    world.create("orders")
    world.produce("orders", ["x"] * 9)
    for number in range(6):
        commit(client, f"readers-{number}", "orders", number)
    client.post(f"{GROUPS}/workers/receive", {"topic": "orders", "max_messages": 1})
    rows = all_pages(client, GROUPS, "groups", sort="lag", order="desc", limit=2, stats="true")
    lags = [one["stats"]["lag"] for one in rows]
    assert lags == sorted(lags, reverse=True)
    assert len(rows) == 7
    page = client.get(GROUPS, match="READERS", kind="stream", state="empty", limit=3)
    assert (len(page["groups"]), page["total"]) == (3, 6)
    assert client.get(GROUPS, kind="queue", limit=3)["total"] == 1


def test_groups_are_sorted_by_topics_and_by_messages_in_flight(
    world: World, client: Client
) -> None:
    for topic in ("a", "b"):
        world.create(topic)
        world.produce(topic, ["x"] * 5)
        commit(client, "of-two", topic, 0)
    commit(client, "of-one", "a", 0)
    for group, count in (("holds-one", 1), ("holds-three", 3)):
        client.post(f"{GROUPS}/{group}/receive", {"topic": "a", "max_messages": count})
    rows = client.get(GROUPS, sort="topics", order="desc", limit=1)["groups"]
    assert names(rows) == ["of-two"]
    rows = client.get(GROUPS, sort="in_flight", order="desc", limit=2, stats="true")["groups"]
    assert [(one["name"], one["stats"]["in_flight"]) for one in rows] == [
        ("holds-three", 3),
        ("holds-one", 1),
    ]


def test_without_options_the_lists_are_as_they_were(world: World, client: Client) -> None:
    world.create("orders")
    commit(client, "readers", "orders", 0)
    assert set(client.get(TOPICS)) == {"topics"}
    assert "stats" not in client.get(TOPICS)["topics"][0]
    assert client.get(GROUPS) == {
        "groups": [{"name": "readers", "kind": "stream", "state": "Empty"}]
    }


@pytest.mark.parametrize("cursor", ["x", "!!!!", "AAAA", "WzEsMl0", "e30", "W251bGwsImEiXQ"])
def test_a_foreign_cursor_is_refused(client: Client, cursor: str) -> None:
    refused = client.refused("GET", TOPICS, cursor=cursor)
    assert (refused.status, refused.json["field"]) == (400, "cursor")


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 1001}, {"sort": "colour"}, {"order": "up"}]
)
def test_options_that_make_no_sense_are_refused(client: Client, query: dict[str, Any]) -> None:
    for path in (TOPICS, GROUPS):
        assert client.refused("GET", path, **query).status == 400


def test_totals_are_what_all_groups_and_topics_have(world: World, client: Client) -> None:
    for name in ("a", "b"):
        world.create(name, 2)
        world.produce(name, ["x" * 100] * 5)
    commit(client, "far", "a", 1)
    commit(client, "near", "b", 5)
    found = client.get("/v1/totals")
    assert (found["groups"], found["lagging"], found["lag"]) == (2, 1, 4)
    [disk] = found["nodes"]
    assert disk["bytes"] > 1000
    assert 0 < disk["free_bytes"] <= disk["total_bytes"]
    assert found["missing_nodes"] == []


def test_partitions_of_a_topic_have_pages(world: World, client: Client) -> None:
    world.create("orders", 7)
    path = f"{TOPICS}/orders/partitions"
    assert len(client.get(path)["partitions"]) == 7
    assert set(client.get(path)) == {"topic", "partitions"}
    numbers: list[int] = []
    cursor = ""
    for size in (3, 3, 1):
        page = client.get(path, limit=3, cursor=cursor)
        assert (len(page["partitions"]), page["total"]) == (size, 7)
        numbers += [one["partition"] for one in page["partitions"]]
        cursor = page["cursor"]
    assert (numbers, cursor) == (list(range(7)), "")
    beyond = client.get(path, limit=3, cursor="99")
    assert (beyond["partitions"], beyond["cursor"]) == ([], "")
    for wrong in ("x", "-1", "1e9", "9" * 10):
        assert client.refused("GET", path, limit=3, cursor=wrong).status == 400
