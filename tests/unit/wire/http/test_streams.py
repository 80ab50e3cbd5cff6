"""Server-sent events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goqueue.wire.carrier import connection as limits_of
from tests.simulation.world import World
from tests.unit.wire.http.client import Client, Wire, request

STREAM = "/v1/topics/orders/stream"


def events(wire: Wire) -> list[dict[str, str]]:
    """The events so far, as a browser would see them."""
    found = []
    for block in wire.answers[0].body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "data" in fields:
            found.append(fields)
    return found


def values(wire: Wire) -> list[Any]:
    return [json.loads(one["data"])["value"] for one in events(wire)]


@pytest.fixture
def orders(world: World) -> None:
    world.create("orders", 2)


@pytest.mark.usefixtures("orders")
def test_messages_are_sent_as_they_come(world: World, client: Client) -> None:
    world.produce("orders", ["before"])
    wire = client.wire()
    wire.feed(request("GET", STREAM))
    world.run_for(5)
    assert wire.answers[0].headers["content-type"].startswith("text/event-stream")
    assert values(wire) == []
    world.produce("orders", ["a", "b"])
    world.produce("orders", ["c"], partition=1)
    world.run_for(5)
    assert values(wire) == ["a", "b", "c"]


@pytest.mark.usefixtures("orders")
def test_a_client_goes_on_where_it_was(world: World, client: Client) -> None:
    first = client.wire()
    first.feed(request("GET", STREAM, from_="earliest"))
    world.produce("orders", ["a", "b", "c"])
    world.produce("orders", ["d", "e"], partition=1)
    world.run_for(5)
    seen = events(first)
    assert len(seen) == 5
    first.close()
    for place, event in enumerate(seen):
        again = client.wire()
        again.feed(request("GET", STREAM, headers={"last-event-id": event["id"]}))
        world.run_for(5)
        assert values(again) == [json.loads(one["data"])["value"] for one in seen[place + 1 :]]
        again.close()


@pytest.mark.usefixtures("orders")
def test_a_silent_stream_is_kept_alive(world: World, client: Client) -> None:
    wire = client.wire()
    wire.feed(request("GET", STREAM))
    world.run_for(50_000)
    assert wire.answers[0].body.count(b": waiting\n\n") == 3


@pytest.mark.usefixtures("orders")
def test_a_reader_that_takes_nothing_holds_the_stream_back(world: World, client: Client) -> None:
    world.produce("orders", ["x" * 50_000 for _ in range(40)])
    wire = client.wire()
    wire.is_stuck = True
    wire.feed(request("GET", STREAM, from_="earliest"))
    world.run_for(100)
    sent = len(wire.sent)
    assert sent < 2 << 20, "about one write beyond the bound"
    world.run_for(20_000)
    assert len(wire.sent) == sent
    assert not wire.connection.is_busy, "the node waits for the client, and not the other way"
    while len(values(wire)) < 40:
        wire.connection.unsent_bytes = 0
        world.run_for(10)
    assert limits_of.STREAM_UNSENT_BYTES_MAX < 2 << 20


@pytest.mark.usefixtures("orders")
def test_a_reader_that_leaves_is_noticed(world: World, client: Client) -> None:
    wire = client.wire()
    wire.feed(request("GET", STREAM))
    world.run_for(5)
    partitions = world.broker.topics.get("orders").partitions
    assert [len(one.watchers) for one in partitions] == [1, 1]
    wire.close()
    assert [len(one.watchers) for one in partitions] == [0, 0]
    assert not client.application.busy


@pytest.mark.usefixtures("orders")
def test_a_stream_of_a_deleted_topic_ends_with_an_error(world: World, client: Client) -> None:
    wire = client.wire()
    wire.feed(request("GET", STREAM))
    world.run_for(5)
    world.wait(world.broker.topics.delete("orders"))
    world.run_for(5)
    assert wire.answers[0].is_whole
    (last,) = events(wire)
    assert last["event"] == "error"
    assert json.loads(last["data"])["code"] == "unknown_topic"


@pytest.mark.usefixtures("orders")
def test_a_place_that_is_not_there_is_refused_before_the_stream_begins(client: Client) -> None:
    assert client.refused("GET", STREAM, partition=0, offset=99).status == 416
    answer = client.send("GET", STREAM, headers={"last-event-id": "nonsense"})
    assert (answer.status, answer.json["field"]) == (400, "cursor")
