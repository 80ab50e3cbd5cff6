"""Rings: the newest rows, at their times, in bounded memory."""

from __future__ import annotations

from math import isnan

from hypothesis import given
from hypothesis import strategies as st

from goqueue.broker.history.ring import TRIMMED_ROWS, Ring


def shown(ring: Ring, begin: int, end: int, column: int = 0) -> list[float | None]:
    return [None if isnan(one) else one for one in ring.column(column, begin, end)]


def test_rows_are_returned_at_their_times() -> None:
    ring = Ring(10, 2)
    ring.put(100, (1, 10))
    ring.put(101, (2, 20))
    assert shown(ring, 99, 103) == [None, 1, 2, None]
    assert shown(ring, 101, 102, column=1) == [20]
    assert shown(ring, 0, 0) == []


def test_what_was_not_recorded_is_not_known() -> None:
    ring = Ring(10, 1)
    ring.put(5, (1,))
    ring.put(8, (4,))
    assert shown(ring, 5, 9) == [1, None, None, 4]


def test_a_clock_that_was_set_back_changes_nothing() -> None:
    ring = Ring(10, 1)
    ring.put(5, (1,))
    ring.put(5, (7,))
    ring.put(3, (9,))
    assert shown(ring, 3, 6) == [None, None, 1]


def test_after_a_long_pause_it_begins_again() -> None:
    ring = Ring(10, 1)
    ring.put(5, (1,))
    ring.put(10**12, (2,))
    assert shown(ring, 10**12 - 1, 10**12 + 1) == [None, 2]


def test_quiet_is_without_anything_but_zeros() -> None:
    ring = Ring(10, 2)
    ring.put(1, (0, 3))
    ring.put(2, (0, 0))
    ring.put(4, (0, 0))
    assert ring.is_quiet(2)
    assert not ring.is_quiet(1)


@given(st.lists(st.integers(min_value=-3, max_value=30), max_size=200), st.integers(1, 40))
def test_it_is_like_a_dictionary_of_the_newest_buckets(steps: list[int], rows_max: int) -> None:
    ring, model, at = Ring(rows_max, 2), dict[int, int](), 1000
    for number, step in enumerate(steps):
        at += step
        if not model or at > max(model):
            ring.put(at, (number, -number))
            model[at] = number
        else:
            ring.put(at, (-1, -1))
        newest = max(model)
        rows = range(newest - rows_max + 1, newest + 1)
        known = shown(ring, rows[0], rows[-1] + 1, column=1)
        assert known == [-model[one] if one in model else None for one in rows]
        assert len(ring._values) <= 2 * (rows_max + TRIMMED_ROWS)
