"""The lag is kept, and leads where a straight line leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.spark.pipelines.lag_history import (
    LagSample,
    append_lag,
    forecast,
    read_lag,
    slope,
)

NOW_MS = 1_767_225_600_000


def sample(second: int, committed: int, end: int, partition: int = 0) -> LagSample:
    return LagSample(NOW_MS + second * 1000, "billing", "orders", partition, committed, end)


def test_samples_come_back_from_their_files(tmp_path: Path) -> None:
    early, late = [sample(0, 1, 5), sample(0, 2, 5, 1)], [sample(60, 4, 9)]
    append_lag(tmp_path, late)
    append_lag(tmp_path, early)
    assert append_lag(tmp_path, []) is None
    assert read_lag(tmp_path) == [*early, *late]
    assert read_lag(tmp_path, from_ms=NOW_MS + 1) == late
    assert len(list(tmp_path.glob("*.parquet"))) == 2


def test_two_runs_of_one_moment_do_not_meet(tmp_path: Path) -> None:
    append_lag(tmp_path, [sample(0, 1, 5)])
    append_lag(tmp_path, [sample(0, 1, 5)])
    assert len(read_lag(tmp_path)) == 2


def test_a_shrinking_lag_has_an_end() -> None:
    (found,) = forecast(
        [sample(second, 100 + 30 * second, 1000 + 10 * second) for second in (0, 5, 10)]
    )
    assert (found.last.lag, found.samples) == (700, 3)
    assert found.produced_per_s == pytest.approx(10)
    assert found.consumed_per_s == pytest.approx(30)
    assert found.lag_per_s == pytest.approx(-20)
    assert found.gone_at_ms == NOW_MS + 10_000 + 35_000
    assert found.bound_at_ms is None


def test_a_growing_lag_reaches_its_bound() -> None:
    samples = [sample(second, 0, 10 * second) for second in (0, 10)]
    (found,) = forecast(samples, bound=500)
    assert found.gone_at_ms is None
    assert found.bound_at_ms == NOW_MS + 50_000
    (past,) = forecast(samples, bound=100)
    assert past.bound_at_ms == NOW_MS + 10_000


def test_one_sample_says_nothing_about_rates() -> None:
    (found,) = forecast([sample(0, 4, 10)], bound=100)
    assert (found.last.lag, found.lag_per_s, found.gone_at_ms, found.bound_at_ms) == (
        6,
        None,
        None,
        None,
    )
    (none,) = forecast([sample(0, 10, 10)])
    assert none.gone_at_ms == NOW_MS


def test_partitions_are_foreseen_apart() -> None:
    samples = [sample(0, 0, 10), sample(1, 5, 10), sample(0, 0, 7, partition=1)]
    assert [(one.last.partition, one.last.lag) for one in forecast(samples)] == [(0, 5), (1, 7)]


@given(
    st.lists(st.integers(0, 10**9), min_size=2, max_size=20, unique=True),
    st.integers(-1000, 1000),
    st.integers(0, 10**15),
)
def test_the_rate_of_a_straight_line_is_found(times: list[int], rate: int, base: int) -> None:
    found = slope([NOW_MS / 1000 + time for time in times], [base + rate * time for time in times])
    assert found == pytest.approx(rate, abs=1e-3)
    assert slope([1.0, 1.0], [1, 2]) is None
