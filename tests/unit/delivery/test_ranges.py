"""Ranges against plain sets of numbers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goqueue.delivery.ranges import RangeSet, ranges_of

OFFSETS = st.integers(0, 60)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "before", "from"]), OFFSETS, st.integers(0, 12)), max_size=30
)


@pytest.fixture(params=[2, 512])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that most changes cross them, and as they are."""
    monkeypatch.setattr(RangeSet, "BLOCK_RANGES_MAX", request.param)


@pytest.mark.usefixtures("block")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANGES, OFFSETS, OFFSETS)
def test_a_range_set_is_a_set(changes: list[tuple[str, int, int]], first: int, second: int) -> None:
    ranges, model = RangeSet(), set[int]()
    for change, offset, length in changes:
        if change == "add":
            ranges.add(offset, offset + length)
            model.update(range(offset, offset + length))
        elif change == "before":
            ranges.discard_before(offset)
            model = {one for one in model if one >= offset}
        else:
            ranges.discard_from(offset)
            model = {one for one in model if one < offset}
        assert {one for start, end in ranges for one in range(start, end)} == model
        assert list(ranges) == ranges_of(sorted(model)), "ranges overlap or touch"
    assert [one in ranges for one in range(80)] == [one in model for one in range(80)]
    missing = next(one for one in range(first, 200) if one not in model)
    assert ranges.first_missing_from(first) == missing
    low, high = min(first, second), max(first, second)
    outside = [one for start, end in ranges.gaps(low, high) for one in range(start, end)]
    assert outside == [one for one in range(low, high) if one not in model]
    inside = [one for start, end in ranges.within(low, high) for one in range(start, end)]
    assert inside == [one for one in range(low, high) if one in model]


def test_a_million_consecutive_offsets_are_one_range() -> None:
    ranges = RangeSet()
    for first in range(0, 1_000_000, 100):
        ranges.add(first, first + 100)
    assert list(ranges) == [(0, 1_000_000)]


def test_the_hole_between_two_ranges_closes() -> None:
    ranges = RangeSet([(0, 5), (6, 9)])
    assert len(ranges) == 2
    ranges.add(5, 6)
    assert list(ranges) == [(0, 9)]
