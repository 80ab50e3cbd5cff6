"""Requests over HTTP are counted by the name of their operation."""

from __future__ import annotations

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client, request
from tests.unit.wire.measured import errors_of, requests_of, seconds_of, traces_of

LISTENER = "http"


def test_requests_are_counted_by_operation(world: World, client: Client) -> None:
    wire = client.wire()
    wire.feed(request("GET", "/v1/topics") * 2)
    wire.feed(request("GET", "/healthz"))
    world.run_for(5)
    assert [one.status for one in wire.answers] == [200, 200, 200]
    counted = requests_of(world.broker, LISTENER)
    assert counted == {"listTopics": 2, "health": 1}
    assert errors_of(world.broker, LISTENER) == {}


def test_errors_are_counted_by_the_code_of_their_problem(world: World, client: Client) -> None:
    wire = client.wire()
    wire.feed(request("GET", "/v1/topics/nowhere") + request("GET", "/v1/nothing"))
    wire.feed(request("DELETE", "/healthz"))
    world.run_for(5)
    codes = [one.json["code"] for one in wire.answers]
    assert errors_of(world.broker, LISTENER) == {
        ("describeTopic", codes[0]): 1,
        ("unknown", codes[1]): 1,
        ("unknown", codes[2]): 1,
    }


def test_results_of_batches_that_failed_are_counted(world: World, client: Client) -> None:
    world.create("orders")
    bad = {"value": "hello", "headers": [{"name": "x", "value": "?", "encoding": "base64"}]}
    messages = [{"value": "hello"}, bad, {"value": "hello", "partition": 77}, bad]
    answer = client.send("POST", "/v1/topics/orders/batch", {"messages": messages})
    codes = [one["problem"]["code"] for one in answer.json["results"] if "problem" in one]
    assert (answer.status, len(codes)) == (200, 3)
    assert errors_of(world.broker, LISTENER) == {("publishBatch", code): 1 for code in codes}


TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331"
PUBLISH = "/v1/topics/orders/publish"


def test_the_duration_of_a_sampled_request_leads_to_its_trace(world: World, client: Client) -> None:
    world.create("orders")
    client.send("POST", PUBLISH, {"value": "hello"})
    client.send("POST", PUBLISH, {"value": "hello"}, headers={"traceparent": f"{PARENT}-00"})
    client.send("POST", PUBLISH, {"value": "hello"}, headers={"traceparent": "nonsense"})
    assert not traces_of(world.broker, LISTENER, "publish")
    client.send("POST", PUBLISH, {"value": "hello"}, headers={"traceparent": f"{PARENT}-01"})
    assert traces_of(world.broker, LISTENER, "publish") == {TRACE}
    assert requests_of(world.broker, LISTENER) == {"publish": 4}
    shown = client.send("GET", "/metrics", headers={"accept": "application/openmetrics-text"})
    assert f'trace_id="{TRACE}"' in shown.body.decode()


def test_the_duration_leads_to_the_trace_of_the_first_message(world: World, client: Client) -> None:
    world.create("orders")
    traced = {"value": "x", "headers": [{"name": "traceparent", "value": f"{PARENT}-01"}]}
    client.send("POST", PUBLISH, traced)
    client.send("POST", "/v1/topics/orders/batch", {"messages": [traced, {"value": "y"}]})
    for api in ("publish", "publishBatch"):
        assert traces_of(world.broker, LISTENER, api) == {TRACE}


def test_a_refused_request_leads_to_its_trace(world: World, client: Client) -> None:
    client.send("GET", "/v1/nothing", headers={"traceparent": f"{PARENT}-01"})
    assert traces_of(world.broker, LISTENER, "unknown") == {TRACE}


def test_a_stream_is_counted_when_it_begins(world: World, client: Client) -> None:
    world.create("orders", 1)
    wire = client.wire()
    wire.feed(request("GET", "/v1/topics/orders/stream"))
    world.run_for(5)
    assert requests_of(world.broker, LISTENER) == {"streamMessages": 1}
    wire.close()
    world.run_for(5)
    assert requests_of(world.broker, LISTENER) == {"streamMessages": 1}


def test_the_wait_of_a_long_poll_is_left_out(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("calls", "connection"):
        monkeypatch.setattr(
            f"goqueue.wire.carrier.{module}.perf_counter", lambda: world.clock.now_ms() / 1000
        )
    world.create("orders", 1)
    wire = client.wire()
    wire.feed(request("GET", "/v1/topics/orders/partitions/0/messages", wait_ms=20_000))
    world.run_until(lambda: bool(wire.answers))
    assert world.clock.now_ms() >= 20_000
    [(api, count)] = requests_of(world.broker, LISTENER).items()
    assert count == 1
    assert seconds_of(world.broker, LISTENER, api) < 1
