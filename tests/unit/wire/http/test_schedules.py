"""Schedules over HTTP: many are cancelled with one call."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.world import World
from tests.unit.wire.http.client import Client

CANCEL = "/v1/schedules/cancel"


@pytest.fixture
def ids(world: World, client: Client) -> list[str]:
    world.create("orders", 2)
    messages = [{"value": f"{one}", "delay_ms": 5_000} for one in range(30)]
    answer = client.post("/v1/topics/orders/batch", {"messages": messages})
    return [one["published"]["schedule_id"] for one in answer["results"]]


def codes(answer: dict[str, Any]) -> list[str | None]:
    return [one.get("problem", {}).get("code") for one in answer["results"]]


def test_many_are_cancelled_at_once(world: World, client: Client, ids: list[str]) -> None:
    answer = client.post(CANCEL, {"ids": ids[:29]})
    assert answer == {"results": [{"id": one} for one in ids[:29]], "failed": 0}
    world.run_for(10_000)
    values = [one.value for number in (0, 1) for one in world.consume("orders", partition=number)]
    assert values == [b"29"]


def test_each_refusal_says_why(world: World, client: Client, ids: list[str]) -> None:
    client.post(CANCEL, {"ids": ids[:1]})
    answer = client.post(CANCEL, {"ids": [ids[0], "nonsense", ids[1], ids[1]]})
    assert codes(answer) == ["unknown_schedule", "unknown_schedule", None, "unknown_schedule"]
    assert answer["failed"] == 3
    world.run_for(10_000)
    answer = client.post(CANCEL, {"ids": ids[1:3]})
    assert codes(answer) == ["unknown_schedule", "schedule_released"]


@pytest.mark.parametrize("ids", [[], ["A" * 16] * 1001, ["A" * 65], "A" * 16, [3]])
def test_what_makes_no_sense_is_refused(client: Client, ids: object) -> None:
    assert client.refused("POST", CANCEL, {"ids": ids}).status == 400
