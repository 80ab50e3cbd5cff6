"""The tail of a topic with conditions, and as a sample."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goqueue.model.batch import Record
from tests.simulation.world import World
from tests.unit.wire.http.client import Client, Wire, request

STREAM = "/v1/topics/orders/stream"
TRACE_PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _orders(world: World) -> None:
    world.create("orders")


def follow(client: Client, **query: object) -> Wire:
    wire = client.wire()
    wire.feed(request("GET", STREAM, **query))
    client.world.run_for(5)
    return wire


def blocks(wire: Wire) -> list[dict[str, str]]:
    found = []
    for block in wire.answers[0].body.decode().split("\n\n"):
        found.append(dict(line.split(": ", 1) for line in block.splitlines() if line[0] != ":"))
    return found


def values(wire: Wire) -> list[Any]:
    return [
        json.loads(one["data"])["value"]
        for one in blocks(wire)
        if "data" in one and "event" not in one
    ]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"key": "b"}, ["two", "four"]),
        ({"text": "o"}, ["one", "two", "four"]),
        ({"regex": "^(one|three)$"}, ["one", "three"]),
        ({"header": "colour"}, ["one", "two"]),
        ({"header": "colour", "header_value": "red"}, ["one"]),
        ({"key": "b", "text": "f"}, ["four"]),
        ({"trace_id": "0af7651916cd43dd8448eb211c80319c"}, ["three"]),
        ({"trace_id": "1-0AF76519-16cd43dd8448eb211c80319c", "key": "b"}, []),
        ({}, ["one", "two", "three", "four"]),
    ],
)
def test_only_what_satisfies_the_conditions_is_sent(
    world: World, client: Client, conditions: dict[str, str], expected: list[str]
) -> None:
    wire = follow(client, **conditions)
    records = [
        Record(b"a", b"one", (("colour", b"red"),)),
        Record(b"b", b"two", (("colour", b"blue"),)),
        Record(None, b"three", (("traceparent", TRACE_PARENT),)),
        Record(b"b", b"four", (("traceparent", None), ("trace", b"0af7651916cd43dd"))),
    ]
    world.wait(world.broker.publish("orders", records))
    world.run_for(5)
    assert values(wire) == expected


def test_what_was_left_out_is_not_read_again(world: World, client: Client) -> None:
    wire = follow(client, text="wanted")
    world.produce("orders", ["x"] * 10)
    world.run_for(5)
    assert blocks(wire)[-2] == {"id": "0:10"}


def test_a_sample_says_how_much_is_missing(world: World, client: Client) -> None:
    wire = follow(client, sample_per_s=3)
    world.produce("orders", [str(one) for one in range(10)])
    world.run_for(5)
    assert values(wire) == ["0", "1", "2"]
    [skipped] = [one for one in blocks(wire) if one.get("event") == "skipped"]
    assert json.loads(skipped["data"]) == {"messages": 7}
    assert skipped["id"] == "0:10"
    world.run_for(1000)
    world.produce("orders", ["later"])
    world.run_for(5)
    assert values(wire)[-1] == "later"


def test_long_values_are_cut_and_say_how_long_they_are(world: World, client: Client) -> None:
    wire = follow(client, value_bytes=4)
    world.produce("orders", ["long value", "four"])
    world.run_for(5)
    shown = [json.loads(one["data"]) for one in blocks(wire) if "data" in one]
    assert [(one["value"], one["value_bytes"], one["is_cut"]) for one in shown] == [
        ("long", 10, True),
        ("four", 4, False),
    ]


@pytest.mark.parametrize("query", [{"regex": "("}, {"header_value": "x"}, {"sample_per_s": 0}])
def test_what_makes_no_sense_is_refused(client: Client, query: dict[str, Any]) -> None:
    assert client.refused("GET", STREAM, **query).status == 400


def test_a_trace_id_that_is_none_is_refused(client: Client) -> None:
    assert client.refused("GET", STREAM, trace_id="z" * 32).status == 400
