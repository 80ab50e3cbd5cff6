"""The order of the tests, if several workers share them."""

from __future__ import annotations

import pytest

from tests.shares import SECONDS, in_shares

SPARK = [f"tests/e2e/test_batch.py::test_{one}" for one in range(30)]
BROWSER = [f"tests/e2e/console/test_topics.py::test_{one}" for one in range(60)]
PROCESSES = [f"tests/integration/test_admin.py::test_{one}" for one in range(400)]
SHORT = [f"tests/unit/test_layers.py::test_{one}" for one in range(5_000)]
ALL = BROWSER + SPARK + PROCESSES + SHORT


@pytest.mark.parametrize("workers", [2, 3, 4, 5])
def test_each_worker_begins_with_its_share_of_the_long_tests(workers: int) -> None:
    order = [ALL[one] for one in in_shares(ALL, workers)]
    assert sorted(order) == sorted(ALL)
    parts: list[list[str]] = []
    for left in range(workers, 0, -1):  # as xdist does
        count = len(order) // left
        parts.append(order[:count])
        del order[:count]
    spent = [sum(map(seconds_of, part)) for part in parts]
    assert max(spent) - min(spent) <= 2 * max(SECONDS.values())
    for part in parts:
        is_short = [name in SHORT for name in part]
        assert is_short == sorted(is_short)


@pytest.mark.parametrize(
    "names", [[], SPARK[:1], SHORT[:1], PROCESSES[:7], BROWSER[:2] + SHORT[:2]]
)
def test_none_is_lost_if_there_are_few(names: list[str]) -> None:
    assert sorted(in_shares(names, 3)) == list(range(len(names)))


def seconds_of(name: str) -> float:
    return next((SECONDS[folder] for folder in SECONDS if name.startswith(folder)), 0.0)
