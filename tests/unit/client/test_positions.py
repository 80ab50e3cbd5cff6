"""Places in a partition."""

from __future__ import annotations

import pytest

from goqueue.client import Position, PositionKind
from goqueue.model.errors import InvalidRequest


def test_a_duration_counts_back_from_now() -> None:
    assert Position.ago(1_000, now_ms=5_000) == Position(PositionKind.TIME, 4_000)
    assert Position.ago(9_000, now_ms=5_000) == Position(PositionKind.TIME, 0)


def test_negative_places_are_refused() -> None:
    for make in (Position.at_offset, Position.at_time):
        with pytest.raises(InvalidRequest):
            make(-1)


def test_a_place_says_what_it_is() -> None:
    assert str(Position.latest()) == "latest"
    assert str(Position.at_offset(7)) == "offset 7"
