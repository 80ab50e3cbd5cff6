"""Latenesses are counted in a fixed table, and their percentiles are close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from goqueue.delivery.schedules.releases import Lateness


@given(
    some.lists(some.integers(0, 1 << 40), min_size=1, max_size=200),
    some.floats(min_value=0.1, max_value=100),
)
def test_a_percentile_is_off_by_one_percent_at_most(late_ms: list[int], percent: float) -> None:
    lateness = Lateness()
    lateness.note(late_ms)
    ranked = sorted(late_ms)
    exact = next(one for rank, one in enumerate(ranked, 1) if rank >= len(ranked) * percent / 100)
    assert exact <= lateness.percentile_ms(percent) <= exact * 1.01
    assert lateness.max_ms == ranked[-1]
    assert lateness.total == len(late_ms)


def test_small_latenesses_are_exact_over_the_whole_run() -> None:
    lateness = Lateness()
    for _ in range(1000):
        lateness.note(range(100))
    assert lateness.percentile_ms(50) == 49
    assert lateness.percentile_ms(99) == 98
    assert lateness.percentile_ms(100) == lateness.max_ms == 99


@pytest.mark.parametrize(("late_ms", "counted"), [(-5, 0), (1 << 60, (1 << 42) - 1)])
def test_what_no_clock_should_say_is_counted_at_the_ends(late_ms: int, counted: int) -> None:
    lateness = Lateness()
    lateness.note([late_ms])
    assert lateness.percentile_ms(50) == counted


def test_nothing_was_late_before_anything_was_released() -> None:
    assert (Lateness().percentile_ms(99), Lateness().max_ms) == (0, 0)
