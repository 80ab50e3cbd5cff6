"""Moments as people write them."""

from __future__ import annotations

import pytest

from goqueue.broker.reading.positions import offset_at
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.moments import position_of, time_ms
from tests.simulation.world import World

NOW_MS = 1_900_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1769860800000", 1_769_860_800_000),
        ("90s", NOW_MS - 90_000),
        ("15m", NOW_MS - 900_000),
        ("2h", NOW_MS - 7_200_000),
        ("7d", NOW_MS - 604_800_000),
        ("250ms", NOW_MS - 250),
        ("999999999d", 0),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31T13:00:00 01:00", 1_769_860_800_000),
    ],
)
def test_a_moment_is_read(text: str, expected: int) -> None:
    assert time_ms(text, now_ms=NOW_MS, field="from") == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2 h", "-5", "2026-13-01T00:00:00Z", "9" * 30])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        time_ms(text, now_ms=NOW_MS, field="until")
    assert caught.value.field == "until"


def test_a_moment_finds_its_place() -> None:
    world = World()
    partition = world.create("orders").partition(0)
    world.produce("orders", ["a", "b"])
    world.run_for(10_000)
    between = world.broker.clock.now_ms()
    world.run_for(10_000)
    world.produce("orders", ["c"])
    now_ms = world.broker.clock.now_ms()
    places = {
        text: offset_at(partition, position_of(text, now_ms=now_ms, field="from"))
        for text in ("earliest", "latest", str(between), "5s", "1h", str(now_ms + 1))
    }
    assert places == {
        "earliest": 0,
        "latest": 3,
        str(between): 2,
        "5s": 2,
        "1h": 0,
        str(now_ms + 1): 3,
    }
