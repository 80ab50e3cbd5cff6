"""Histograms, readers, messages in flight, settling by hand, calendars, dead-letter topics."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.model.batch import Record
from tests.simulation.world import World
from tests.unit.wire.http.client import Client
from tests.unit.wire.http.test_registry import Registry

T0 = 1_690_000_000_000
TOPIC, GROUP = "/v1/topics/orders", "/v1/groups/workers"
IN_FLIGHT = f"{GROUP}/in-flight"


@pytest.fixture(autouse=True)
def _orders(world: World) -> None:
    """Sixty messages, one a second, in three partitions."""
    world.create("orders", 3)
    for number in range(60):
        record = Record(b"k", b"%d" % number, (), T0 + number * 1000)
        world.wait(world.broker.publish("orders", [record], partition=number % 3))


def receive(client: Client, count: int, consumer: str = "one") -> list[dict[str, Any]]:
    body = {"topic": "orders", "max_messages": count, "consumer": consumer}
    messages: list[dict[str, Any]] = client.post(f"{GROUP}/receive", body)["messages"]
    return messages


def commit(client: Client, group: str, partition: int, offset: int) -> None:
    body = {"offsets": [{"topic": "orders", "partition": partition, "offset": offset}]}
    assert client.post(f"/v1/groups/{group}/commit", body)["failed"] == 0


# Histograms


def test_messages_are_counted_by_their_time(client: Client) -> None:
    found = client.get(f"{TOPIC}/histogram", from_=T0, until=T0 + 60_000, buckets=6)
    assert found["counts"] == [10] * 6
    assert (found["from"], found["until"], found["bucket_ms"]) == (T0, T0 + 60_000, 10_000)
    assert found["partitions"] == 3
    one = client.get(f"{TOPIC}/histogram", from_=T0, until=T0 + 60_000, buckets=2, partition=1)
    assert (one["counts"], one["partitions"]) == ([10, 10], 1)


def test_a_histogram_of_everything_begins_with_the_oldest_message(client: Client) -> None:
    found = client.get(f"{TOPIC}/histogram", from_="earliest", until=T0 + 60_000, buckets=1)
    assert (found["from"], found["counts"]) == (T0, [60])


def test_what_is_gone_is_not_counted(client: Client) -> None:
    client.send("DELETE", f"{TOPIC}/records", before=str(T0 + 30_000))
    found = client.get(f"{TOPIC}/histogram", from_=T0, until=T0 + 60_000, buckets=6)
    assert found["counts"] == [0, 0, 0, 10, 10, 10]


def test_an_empty_topic_has_an_empty_histogram(world: World, client: Client) -> None:
    world.create("empty")
    found = client.get("/v1/topics/empty/histogram", from_="earliest")
    assert sum(found["counts"]) == 0


@pytest.mark.parametrize(
    "query",
    [{"from_": T0, "until": T0}, {"from_": T0, "until": "earliest"}, {"buckets": 501}],
)
def test_ranges_that_make_no_sense_are_refused(client: Client, query: dict[str, Any]) -> None:
    assert client.refused("GET", f"{TOPIC}/histogram", **query).status == 400


# Readers


def test_the_readers_of_a_topic_have_their_lag_there(world: World, client: Client) -> None:
    world.create("other")
    world.produce("other", ["x"] * 7)
    commit(client, "readers", 0, 15)
    body = {"offsets": [{"topic": "other", "partition": 0, "offset": 0}]}
    client.post("/v1/groups/readers/commit", body)
    client.post("/v1/groups/elsewhere/commit", body)
    receive(client, 4)
    found = client.get(f"{TOPIC}/groups")
    assert [(one["name"], one["kind"]) for one in found["groups"]] == [
        ("readers", "stream"),
        ("workers", "queue"),
    ]
    # 5 in the partition that they have committed, and all of the others.
    assert found["groups"][0]["stats"]["lag"] == 45
    assert found["groups"][1]["stats"]["in_flight"] == 4
    assert found["missing_nodes"] == []


def test_a_message_stands_differently_in_each_group(client: Client) -> None:
    commit(client, "behind", 0, 3)
    commit(client, "ahead", 0, 4)
    commit(client, "nowhere", 1, 4)
    taken = {one["id"]: one for one in receive(client, 60)}
    message = taken["orders:0:3"]

    def standing() -> dict[str, Any]:
        found = client.get(f"{TOPIC}/messages/0/3/deliveries")["deliveries"]
        return {one["group"]: one for one in found}

    first = standing()
    assert set(first) == {"behind", "ahead", "workers"}
    assert (first["behind"]["state"], first["ahead"]["state"]) == ("pending", "consumed")
    held = first["workers"]
    assert (held["state"], held["consumer"], held["attempts"]) == ("leased", "one", 1)
    assert abs(held["leased_until"] - message["leased_until"]) < 100
    client.post(f"{GROUP}/ack", {"receipts": [message["receipt"]]})
    assert standing()["workers"]["state"] == "done"


# Messages in flight


def test_messages_in_flight_have_a_holder_and_a_deadline(client: Client) -> None:
    receive(client, 5, "one")
    receive(client, 3, "two")
    found = client.get(IN_FLIGHT, topic="orders")
    assert (len(found["messages"]), found["total"], found["cursor"]) == (8, 8, "")
    assert found["consumers"] == [
        {"consumer": "one", "messages": 5},
        {"consumer": "two", "messages": 3},
    ]
    first = found["messages"][0]
    assert first["leased_until"] - first["leased_at"] == 30_000
    assert (first["attempt"], first["priority"]) == (1, "normal")
    only = client.get(IN_FLIGHT, topic="orders", consumer="two")
    assert {one["consumer"] for one in only["messages"]} == {"two"}
    assert only["total"] == 3


def test_pages_of_messages_in_flight_are_all_of_them(client: Client) -> None:
    taken = {one["id"] for one in receive(client, 17)}
    found: list[str] = []
    cursor = ""
    while True:
        page = client.get(IN_FLIGHT, topic="orders", limit=5, cursor=cursor)
        found += [one["id"] for one in page["messages"]]
        if not (cursor := page["cursor"]):
            break
    assert (set(found), len(found)) == (taken, 17)


def places(messages: list[dict[str, Any]]) -> list[dict[str, int]]:
    return [{"partition": one["partition"], "offset": one["offset"]} for one in messages]


def by_hand(client: Client, action: str, messages: list[dict[str, Any]], **more: Any) -> Any:
    body = {"topic": "orders", "action": action, "messages": places(messages), **more}
    return client.post(IN_FLIGHT, body)


def test_released_messages_are_delivered_to_others(client: Client) -> None:
    taken = receive(client, 60, "stuck")
    assert receive(client, 60, "two") == []
    assert by_hand(client, "release", taken[:2])["failed"] == 0
    again = receive(client, 60, "two")
    assert {one["id"] for one in again} == {one["id"] for one in taken[:2]}
    assert {one["attempt"] for one in again} == {2}


def test_messages_are_settled_by_hand(world: World, client: Client) -> None:
    acked, rejected, extended = receive(client, 3)
    assert by_hand(client, "ack", [acked])["failed"] == 0
    assert by_hand(client, "reject", [rejected], reason="poison")["failed"] == 0
    assert by_hand(client, "extend", [extended], visibility_ms=600_000)["failed"] == 0
    [left] = client.get(IN_FLIGHT, topic="orders")["messages"]
    assert left["id"] == extended["id"]
    assert left["leased_until"] > extended["leased_until"] + 500_000
    letters = client.get("/v1/deadletters/orders")
    assert [one["reason"] for one in letters["messages"]] == ["poison"]


def test_what_nobody_has_is_not_settled(client: Client) -> None:
    [taken] = receive(client, 1)
    other = {"partition": 2, "offset": 19}
    body = {"topic": "orders", "action": "ack", "messages": [*places([taken]), other]}
    result = client.post(IN_FLIGHT, body)
    assert result["failed"] == 1
    assert "problem" not in result["results"][0]
    assert result["results"][1]["problem"]["code"] == "stale_receipt"
    again = by_hand(client, "ack", [taken])
    assert again["failed"] == 1, "it is done"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"topic": "orders", "action": "ack", "messages": []}, "invalid_field"),
        ({"topic": "orders", "action": "eat", "messages": [{"partition": 0, "offset": 0}]}, None),
        (
            {"topic": "orders", "action": "ack", "messages": [{"partition": 0, "offset": 0}] * 2},
            "invalid_field",
        ),
        (
            {"topic": "nothing", "action": "ack", "messages": [{"partition": 0, "offset": 0}]},
            "unknown_topic",
        ),
    ],
)
def test_settling_nonsense_is_refused(client: Client, body: Any, code: str | None) -> None:
    receive(client, 1)
    refused = client.refused("POST", IN_FLIGHT, body)
    assert code in (None, refused.json["code"])


def test_a_rewind_can_be_previewed(client: Client) -> None:
    for one in receive(client, 60):
        client.post(f"{GROUP}/ack", {"receipts": [one["receipt"]]})
    body = {"topic": "orders", "to": "earliest", "dry_run": True}
    preview = client.post(f"{GROUP}/rewind", body)
    assert [one["offset"] for one in preview["offsets"]] == [0, 0, 0]
    assert receive(client, 60) == []
    assert client.post(f"{GROUP}/rewind", {**body, "dry_run": False}) == preview
    assert len(receive(client, 60)) == 60


# Schedules and dead letters


def test_a_calendar_has_what_is_due_when(world: World, client: Client) -> None:
    now_ms = world.broker.clock.wall_ms()
    for minutes in (1, 5, 5, 90, 2000):
        client.post(f"{TOPIC}/publish", {"value": "later", "delay_ms": minutes * 60_000})
    found = client.get("/v1/schedules/calendar", from_=now_ms, until=now_ms + 7_200_000, buckets=2)
    assert found["counts"] == [3, 1]
    assert found["bucket_ms"] == 3_600_000
    [moved] = client.get("/v1/schedules", until=now_ms + 120_000)["schedules"]
    client.send("PATCH", f"/v1/schedules/{moved['id']}", {"deliver_at": now_ms + 4_000_000})
    found = client.get("/v1/schedules/calendar", from_=now_ms, until=now_ms + 7_200_000, buckets=2)
    assert found["counts"] == [2, 2]
    assert sum(client.get("/v1/schedules/calendar", topic="orders")["counts"]) == 4


def test_topics_with_dead_letters_are_listed(world: World, client: Client) -> None:
    assert client.get("/v1/deadletters") == {"topics": [], "cursor": "", "total": 0}
    by_hand(client, "reject", receive(client, 3))
    found = client.get("/v1/deadletters", match="ORD")
    [one] = found["topics"]
    assert (one["topic"], one["dead_letter_topic"], one["messages"]) == ("orders", "orders.dlq", 3)
    assert one["bytes"] > 0
    assert client.get("/v1/deadletters", match="nothing")["total"] == 0


def test_the_matches_of_a_filter_are_counted_with_the_first_page(client: Client) -> None:
    taken = receive(client, 5)
    for messages, reason in ((taken[:3], "declined"), (taken[3:], "broken")):
        body = {"receipts": [one["receipt"] for one in messages], "reason": reason}
        assert client.post(f"{GROUP}/reject", body)["failed"] == 0
    whole = client.get("/v1/deadletters/orders")
    assert (whole["total"], whole["matching"], whole["end"]) == (5, 5, True)
    first = client.get("/v1/deadletters/orders", reason="declined", limit=2)
    assert len(first["messages"]) == 2
    assert (first["total"], first["matching"], first["end"]) == (5, 3, False)
    assert first["matching_is_complete"]
    last = client.get("/v1/deadletters/orders", reason="declined", limit=2, cursor=first["cursor"])
    assert len(last["messages"]) == 1
    assert (last["total"], last["matching"], last["end"]) == (5, None, True)


def test_dead_letters_are_counted_by_reason_group_and_key(client: Client) -> None:
    nothing = client.get("/v1/deadletters/orders/summary")
    assert (nothing["messages"], nothing["reasons"], nothing["last_died_at"]) == (0, [], None)
    taken = receive(client, 5)
    for messages, reason in ((taken[:3], "declined"), (taken[3:], "broken")):
        body = {"receipts": [one["receipt"] for one in messages], "reason": reason}
        assert client.post(f"{GROUP}/reject", body)["failed"] == 0
    found = client.get("/v1/deadletters/orders/summary")
    assert found["reasons"] == [
        {"reason": "declined", "messages": 3},
        {"reason": "broken", "messages": 2},
    ]
    assert found["groups"] == [{"group": "workers", "messages": 5}]
    assert found["keys"] == [{"key": "k", "key_encoding": "utf8", "messages": 5}]
    assert 0 < found["first_died_at"] <= found["last_died_at"]
    assert found["is_complete"]
    assert client.refused("GET", "/v1/deadletters/nothing/summary").status == 404


# Lag


def test_the_lag_of_a_partition_has_an_age(world: World, client: Client) -> None:
    commit(client, "behind", 0, 3)
    commit(client, "behind", 1, 20)
    now_ms = world.broker.clock.wall_ms()
    found = client.get("/v1/groups/behind/lag")["partitions"]
    ages_ms = {one["partition"]: one["lag_ms"] for one in found}
    assert ages_ms[0] == pytest.approx(now_ms - T0 - 9_000, abs=1_000)
    assert ages_ms[1] == 0
    receive(client, 1)
    for one in client.get(f"{GROUP}/lag")["partitions"]:
        assert one["lag_ms"] > 0


# Settings


def test_settings_have_kinds_defaults_and_descriptions(client: Client) -> None:
    topics = {one["name"]: one for one in client.get("/v1/settings/topics")["settings"]}
    assert topics["retention_ms"]["kind"] == "long"
    assert topics["retention_ms"]["default"] == 604_800_000
    assert topics["cleanup_policy"]["choices"] == ["delete", "compact"]
    groups = {one["name"]: one for one in client.get("/v1/settings/groups")["settings"]}
    assert groups["visibility_ms"]["default"] == 30_000
    assert groups["visibility_ms"]["least"] == 1
    assert (groups["start"]["default"], groups["start"]["kind"]) == ("earliest", "string")
    assert groups["key_order"]["kind"] == "boolean"
    assert all(one["description"] for one in (*topics.values(), *groups.values()))


def test_subjects_are_listed_in_pages(world: World, client: Client) -> None:
    registry = Registry(world, is_mounted=True)
    schema = '{"type": "record", "name": "Order", "fields": []}'
    for subject in ("a-value", "b-value", "c-key"):
        registry.register(subject, schema)
    first = client.get("/v1/subjects", match="VALUE", limit=1)
    assert first["subjects"] == [
        {"subject": "a-value", "version": 1, "id": 1, "type": "AVRO", "versions": 1}
    ]
    second = client.get("/v1/subjects", match="VALUE", limit=1, cursor=first["cursor"])
    assert [one["subject"] for one in second["subjects"]] == ["b-value"]
    assert second["cursor"] == ""
    assert registry.told("DELETE", "/subjects/c-key") == [1]
    [deleted] = client.get("/v1/subjects", deleted="true")["subjects"]
    assert (deleted["subject"], deleted["versions"]) == ("c-key", 0)
