"""The recent past over HTTP, and what a caller may do."""

from __future__ import annotations

import pytest

from goqueue.broker.history.recorder import DETAIL_STEP_MS, NODE_SERIES, NODE_STEP_MS
from tests.simulation.world import World
from tests.unit.wire.http.client import Client

HISTORY = "/v1/history"


@pytest.fixture(autouse=True)
def _recorded(world: World) -> None:
    world.create("orders")
    world.broker.measuring.history.recorder.start()
    world.run_for(NODE_STEP_MS)
    world.produce("orders", ["x"] * 100)
    world.run_for(3 * DETAIL_STEP_MS)


def test_the_cluster_has_a_row_every_ten_seconds(client: Client) -> None:
    found = client.get(HISTORY, from_="5m")
    assert found["step_ms"] == NODE_STEP_MS
    assert set(found["series"]) == set(NODE_SERIES)
    values = found["series"]["in_per_s"]
    assert len(found["times"]) == len(values) >= 30
    assert max(one for one in values if one is not None) == pytest.approx(10, abs=0.5)
    assert values[0] is None, "the node did not run yet"
    assert (len(found["nodes"]), found["missing_nodes"]) == (1, [])
    assert found["times"][1] - found["times"][0] == NODE_STEP_MS


def test_many_rows_are_joined(client: Client) -> None:
    found = client.get(HISTORY, from_="1h", points=10)
    assert len(found["times"]) <= 11
    assert found["step_ms"] == 36 * NODE_STEP_MS


def test_topics_have_their_own(client: Client) -> None:
    found = client.get(HISTORY, topic="orders", from_="10m")
    assert found["step_ms"] == DETAIL_STEP_MS
    assert max(one or 0 for one in found["series"]["in_per_s"]) > 0


def test_what_was_not_recorded_is_null(client: Client) -> None:
    found = client.get(HISTORY, group="nobody", from_="10m")
    assert set(found["series"]["lag"]) == {None}
    assert client.refused("GET", HISTORY, topic="nothing").status == 404


@pytest.mark.parametrize("from_", ["1970-01-01T00:00:00Z", "0", "100d"])
def test_no_more_is_returned_than_is_kept(client: Client, from_: str) -> None:
    found = client.get(HISTORY, from_=from_, points=1000)
    assert len(found["times"]) <= 1001
    assert len(found["times"]) * found["step_ms"] <= found["kept_ms"] + 10 * found["step_ms"]


def test_a_range_in_the_future_is_empty(client: Client) -> None:
    assert client.get(HISTORY, from_="2999-01-01T00:00:00Z")["times"] == []
    assert client.get(HISTORY, from_="latest", until="earliest")["times"] == []


def test_without_rules_everything_is_allowed(client: Client) -> None:
    found = client.get("/v1/whoami/access", kind="topic", name="orders")
    assert found["enforced"] is False
    assert "alter" in found["cluster"]
    assert "read" in found["any"]["group"]
    assert "read" in found["resource"]
    assert "resource" not in client.get("/v1/whoami/access")
