"""Browsing over HTTP: pages in both orders, conditions, progress, budgets, clients that leave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goqueue.model.batch import Record
from goqueue.model.session import Session
from tests.simulation.world import World
from tests.unit.wire.http.client import Client, Wire, request

BROWSE = "/v1/topics/orders/browse"
T0 = 1_690_000_000_000


class Browsed:
    """The events of a stream that has ended."""

    def __init__(self, body: str) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        for block in body.split("\n\n"):
            if block.startswith("event: "):
                kind, data = block.split("\n", 1)
                self.events.append((kind[7:], json.loads(data[6:])))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [data for one, data in self.events if one == kind]

    @property
    def values(self) -> list[str]:
        return [one["value"] for one in self.of("message")]

    @property
    def done(self) -> dict[str, Any]:
        [done] = self.of("done")
        assert self.events[-1][0] == "done"
        return done


def browse(client: Client, **query: object) -> Browsed:
    answer = client.send("GET", BROWSE, **query)
    assert answer.status == 200, answer
    return Browsed(answer.body.decode())


def all_pages(client: Client, **query: object) -> list[str]:
    values: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(100):
        page = browse(client, **query, **cursor)
        values += page.values
        if not page.done["cursor"]:
            return values
        cursor = {"cursor": page.done["cursor"]}
    raise AssertionError("the pages do not end")


@pytest.fixture
def client(world: World) -> Client:
    """A topic with 60 messages in three partitions, whose values are their order in time."""
    world.create("orders", 3)
    for number in range(60):
        record = Record(
            b"k%d" % (number % 5),
            b"message %d" % number,
            (("colour", b"red" if number % 10 == 0 else b"blue"),),
            T0 + number * 1000,
        )
        world.wait(world.broker.publish("orders", [record], partition=number % 3))
    return Client(world)


def test_the_newest_messages_come_first(client: Client) -> None:
    page = browse(client, limit=10)
    assert page.values == [f"message {one}" for one in range(59, 49, -1)]
    assert page.done["reason"] == "limit"
    assert page.done["messages"] == 10
    assert page.events[0] == ("phase", {"phase": "scanning"})


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_in_both_orders_are_the_whole_topic(client: Client, limit: int) -> None:
    expected = [f"message {one}" for one in range(60)]
    assert all_pages(client, limit=limit, order="oldest") == expected
    assert all_pages(client, limit=limit, order="newest") == expected[::-1]


def test_one_partition_from_an_offset(client: Client) -> None:
    oldest = browse(client, order="oldest", partition=1, offset=17)
    assert oldest.values == [f"message {one}" for one in (52, 55, 58)]
    newest = browse(client, order="newest", partition=1, offset=2)
    assert newest.values == [f"message {one}" for one in (7, 4, 1)]
    assert newest.done["reason"] == "end"


def test_a_time_range(client: Client) -> None:
    page = browse(client, from_=T0 + 10_000, until=T0 + 15_000)
    assert page.values == [f"message {one}" for one in (14, 13, 12, 11, 10)]


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize(
    ("conditions", "numbers"),
    [
        ({"key": "k3"}, range(3, 60, 5)),
        ({"header": "colour", "header_value": "red"}, range(0, 60, 10)),
        ({"text": "message 5"}, [5, *range(50, 60)]),
        ({"regex": "^message [12]7$"}, [17, 27]),
        ({"regex": "7$", "key": "k2"}, [7, 17, 27, 37, 47, 57]),
        ({"text": "nowhere"}, []),
    ],
)
def test_conditions(
    client: Client, order: str, conditions: dict[str, str], numbers: list[int]
) -> None:
    expected = sorted(f"message {one}" for one in numbers)
    for limit in (2, 100):
        found = all_pages(client, order=order, limit=limit, **conditions)
        assert sorted(found) == expected


def test_progress_and_costs_are_reported(client: Client) -> None:
    page = browse(client, text="message", limit=100)
    progress = page.of("progress")[-1]
    assert progress["messages"] == 60
    assert progress["share"] == 1
    assert progress["scanned_bytes"] > 0
    assert page.done["scanned_bytes"] == progress["scanned_bytes"]
    assert page.done["elapsed_ms"] >= 0


def test_a_scan_over_its_quota_is_slowed_and_not_ended(world: World, client: Client) -> None:
    limited = world.broker.gate.quotas.alter(
        Session("http"), names={"user": ""}, limits={"consumer_byte_rate": 1_000}
    )
    world.wait(limited)
    began_ms = world.broker.clock.now_ms()
    for query in ({"regex": "message 0$"}, {"text": "message 0"}):
        page = browse(client, order="newest", limit=1, **query)
        assert page.values == ["message 0"]
    assert world.broker.clock.now_ms() - began_ms > 1_000, "the second began in debt"


def test_a_scan_ends_when_its_budget_is_used_up(client: Client) -> None:
    page = browse(client, regex="nothing", order="oldest", scan_bytes=1)
    assert page.done["reason"] == "end", "all of it fits into one read"
    found = browse(client, order="newest", regex="message 0$", scan_bytes=1, limit=1)
    assert found.done["reason"] == "budget"
    assert found.values == []
    assert all_pages(client, regex="message 0$", scan_bytes=1, limit=1) == ["message 0"]


def test_long_values_are_cut_between_characters(world: World, client: Client) -> None:
    world.produce("orders", ["é" * 100])
    [message] = browse(client, limit=1, value_bytes=51).of("message")
    assert message["value"] == "é" * 25
    assert (message["value_encoding"], message["value_bytes"]) == ("utf8", 200)
    assert message["is_cut"] is True
    whole = browse(client, limit=1, value_bytes=200).of("message")[0]
    assert (whole["value"], whole["is_cut"]) == ("é" * 100, False)
    assert browse(client, limit=1, value_bytes=0).of("message")[0]["value"] == ""


def test_hostile_contents_stay_data(world: World, client: Client) -> None:
    hostile = "</script>\n\nevent: done\ndata: {}\n\n\u202e\x00"
    world.produce("orders", [hostile])
    page = browse(client, limit=1)
    assert page.values == [hostile]
    assert page.done["messages"] == 1


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"regex": "("}, "invalid_regular_expression"),
        ({"header_value": "x"}, "invalid_request"),
        ({"offset": 1}, "invalid_field"),
        ({"offset": 1, "partition": 0, "cursor": "0:1"}, "invalid_field"),
        ({"cursor": "0:x"}, "invalid_field"),
        ({"partition": 9}, "unknown_partition"),
        ({"trace_id": "z" * 32}, "invalid_request"),
        ({"limit": 1001}, "invalid_field"),
    ],
)
def test_what_makes_no_sense_is_refused(client: Client, query: dict[str, Any], code: str) -> None:
    assert client.refused("GET", BROWSE, **query).json["code"] == code


def test_offsets_that_are_gone_are_left_out(world: World, client: Client) -> None:
    client.send("DELETE", "/v1/topics/orders/records", before=str(T0 + 30_000))
    found = browse(client, order="oldest", partition=0, offset=0)
    assert found.values[0] == "message 30"
    assert browse(client, order="newest", cursor="0:3,1:3,2:3").values == []


def test_an_empty_topic_ends_at_once(world: World, client: Client) -> None:
    world.create("empty", 2)
    answer = client.send("GET", "/v1/topics/empty/browse", text="x")
    done = Browsed(answer.body.decode()).done
    assert (done["reason"], done["cursor"], done["messages"]) == ("end", "", 0)


def test_nothing_is_read_for_a_client_that_has_left(world: World, client: Client) -> None:
    world.create("large")
    for _ in range(20):
        world.produce("large", ["x" * 200_000] * 4)
    wire: Wire = client.wire()
    wire.is_stuck = True
    path = "/v1/topics/large/browse"
    wire.feed(request("GET", path, order="oldest", limit=1000, value_bytes=1_000_000))
    world.run_for(1000)
    sent = len(wire.sent)
    assert 0 < sent < 8 << 20, "it does not read ahead of a client that takes nothing"
    stream = wire.connection._stream
    wire.close()
    world.run_for(1000)
    assert stream is not None
    assert stream.is_over
    assert len(wire.sent) == sent
