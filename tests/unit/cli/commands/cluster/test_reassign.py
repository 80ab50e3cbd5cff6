"""What `goqueue cluster reassign` reads and shows."""

from __future__ import annotations

import pytest

from goqueue.cli.commands.cluster.reassign import _read_rate, _show_time, _shown
from goqueue.client.http import MovingPartition
from goqueue.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("word", "rate"),
    [
        ("50MB", 50_000_000),
        ("50mb/s", 50_000_000),
        ("1 MiB", 1 << 20),
        ("1000", 1_000),
        ("none", None),
        (" None ", None),
    ],
)
def test_a_throttle_is_a_size_per_second(word: str, rate: int | None) -> None:
    assert _read_rate(word) == rate


@pytest.mark.parametrize("word", ["fast", "0", "-1", "5 parsecs", ""])
def test_what_is_no_throttle_is_refused_with_how_to_write_one(word: str) -> None:
    with pytest.raises(InvalidRequest, match="or write none"):
        _read_rate(word)


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0 s"), (1, "1 s"), (90_000, "90 s"), (121_000, "3 min"), (10 * 3_600_000, "10 h")],
)
def test_a_time_is_told_as_exactly_as_it_is_known(ms: int, shown: str) -> None:
    assert _show_time(ms) == shown


def test_a_move_is_shown_with_what_is_known_of_it() -> None:
    move = MovingPartition(
        topic="orders",
        partition=0,
        leader=1,
        replicas=[1, 2],
        target=[1, 3],
        adding=[3],
        removing=[2],
        in_sync=[1, 2],
        copies=[],
        progress=0.25,
    )
    row = _shown(move)
    assert (row["to"], row["progress"], row["throttle"], row["remaining"]) == (
        "1,3",
        "25%",
        None,
        None,
    )
    move.throttle_bytes_per_second, move.remaining_ms = 5 << 20, 60_000
    move.bytes_left, move.bytes_per_second = 300 << 20, 5 << 20
    row = _shown(move)
    assert (row["left"], row["rate"]) == ("300.0 MiB", "5.0 MiB/s")
    assert (row["throttle"], row["remaining"]) == ("5.0 MiB/s", "60 s")
