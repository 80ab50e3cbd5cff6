"""Times and durations as Python has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from goqueue.client.http.moments import duration_ms, moment_ms, position_text
from goqueue.model.errors import InvalidRequest


def test_durations_are_seconds_or_timedeltas_and_never_shorter_than_asked() -> None:
    assert duration_ms(1.5) == 1500
    assert duration_ms(timedelta(minutes=2)) == 120_000
    assert duration_ms(0.0001) == 1
    assert duration_ms(0) == 0


@pytest.mark.parametrize("duration", [-1, timedelta(seconds=-1), float("nan"), 1e300])
def test_what_cannot_be_waited_is_refused(duration: float | timedelta) -> None:
    with pytest.raises(InvalidRequest):
        duration_ms(duration)


def test_moments_need_a_zone_and_are_never_early() -> None:
    noon = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
    assert moment_ms(noon) == 1_769_860_800_001
    there = datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2)))
    assert moment_ms(there) == 1_769_860_800_000
    assert moment_ms(42) == 42
    with pytest.raises(InvalidRequest, match="no time zone"):
        moment_ms(noon.replace(tzinfo=None))


def test_places_are_words_moments_or_so_long_ago() -> None:
    assert position_text("earliest") == "earliest"
    assert position_text(timedelta(hours=2)) == "7200000ms"
    assert position_text(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == "1000"
