"""Durations, times and places, as people write them."""

from __future__ import annotations

import pytest

from goqueue.cli.moments import read_duration_ms, read_position, read_time_ms, show_time
from goqueue.client import Position, PositionKind
from goqueue.model.errors import InvalidRequest

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position.earliest()),
        ("Latest", Position.latest()),
        ("42", Position.at_offset(42)),
        ("90s", Position.at_time(NOW_MS - 90_000)),
        ("2h", Position.at_time(NOW_MS - 7_200_000)),
        ("7d", Position.at_time(NOW_MS - 7 * 86_400_000)),
        ("2026-01-31T12:00:00Z", Position.at_time(1_769_860_800_000)),
        ("2026-01-31T13:00:00.250+01:00", Position.at_time(1_769_860_800_250)),
        ("2026-01-31", Position.at_time(1_769_817_600_000)),
    ],
)
def test_places_are_read(text: str, position: Position) -> None:
    assert read_position(text, now_ms=NOW_MS) == position


@pytest.mark.parametrize("text", ["", "begin", "-5", "2 weeks", "2026-13-01", "1969-12-31"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_position(text, now_ms=NOW_MS)


def test_a_plain_number_is_an_offset_here_and_milliseconds_there() -> None:
    assert read_position("1000", now_ms=NOW_MS).kind is PositionKind.OFFSET
    assert read_time_ms("1000") == 1000
    with pytest.raises(InvalidRequest, match="not a time"):
        read_time_ms("soon")


def test_durations_are_read_as_settings_are() -> None:
    assert read_duration_ms("15m") == 900_000
    with pytest.raises(InvalidRequest, match="duration"):
        read_duration_ms("soon")


def test_a_time_that_is_shown_can_be_read() -> None:
    assert show_time(1_769_860_800_250) == "2026-01-31T12:00:00.250Z"
    assert read_time_ms(show_time(1_769_860_800_250)) == 1_769_860_800_250
    assert show_time(2**62) == str(2**62)
