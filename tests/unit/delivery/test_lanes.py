"""The lane index against a plain list of lanes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery.lanes import (
    ARRIVAL_STEP_MS,
    NO_LANE,
    NORMAL,
    Arrivals,
    LaneIndex,
    LaneState,
)
from goqueue.delivery.settings import LANE_COUNT, LaneSettings
from goqueue.model.errors import InvalidGroupSettings

# How many offsets are passed over, how many are noted, and their lane, if they have one.
NOTES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, NO_LANE)), max_size=20
)


def build(notes: list[tuple[int, int, int]]) -> tuple[LaneIndex, list[int]]:
    index, model = LaneIndex(), list[int]()
    for passed, count, lane in notes:
        model += [NORMAL] * passed
        index.note(len(model), len(model) + count - 1, lane)
        model += [lane] * count
    return index, model


def lanes_of(model: list[int]) -> list[int]:
    """What is no message counts as a normal one where a lane has to be named."""
    return [NORMAL if lane == NO_LANE else lane for lane in model]


@given(NOTES, st.integers(0, 100), st.integers(0, 100), st.integers(0, 4))
def test_the_index_knows_the_lane_of_every_offset(
    notes: list[tuple[int, int, int]], start: int, until: int, lane: int
) -> None:
    index, model = build(notes)
    assert index.end == len(model)
    assert [index.lane_of(offset) for offset in range(len(model))] == lanes_of(model)
    found = index.next_in_lane(lane, start, until)
    wanted = [one for one in range(start, min(until, len(model))) if model[one] == lane]
    if not wanted:
        assert found is None
    else:
        assert found is not None
        assert found[0] == wanted[0]
        assert set(range(*found)) <= set(wanted)
    expected = [model[start:until].count(one) for one in range(LANE_COUNT)]
    assert index.counts(start, until) == expected
    without = [
        one for first, end in index.without_messages(start, until) for one in range(first, end)
    ]
    assert without == [one for one in range(start, min(until, len(model))) if model[one] == NO_LANE]


@given(NOTES, st.integers(0, 100))
def test_what_is_forgotten_leaves_the_rest_as_it_was(
    notes: list[tuple[int, int, int]], start: int
) -> None:
    index, model = build(notes)
    index.forget_before(start)
    assert [index.lane_of(one) for one in range(start, len(model))] == lanes_of(model[start:])
    index.note(max(start, len(model)), max(start, len(model)), 0)
    assert index.lane_of(index.end - 1) == 0


@given(NOTES)
def test_a_saved_index_comes_back(notes: list[tuple[int, int, int]]) -> None:
    index, model = build(notes)
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(index.state()), type=LaneState)
    restored = LaneIndex.restore(saved)
    assert restored is not None
    assert [restored.lane_of(one) for one in range(len(model))] == lanes_of(model)
    end = len(model)
    assert restored.without_messages(0, end) == index.without_messages(0, end)
    assert restored.is_plain == index.is_plain
    assert restored.end == index.end


def test_a_saved_index_that_makes_no_sense_is_refused() -> None:
    index, _ = build([(0, 3, 0), (2, 3, 1)])
    good = index.state()
    for bad in (
        msgspec.structs.replace(good, lanes=b"\x09" * len(good.lanes)),
        msgspec.structs.replace(good, starts=good.starts[:-8]),
        msgspec.structs.replace(good, starts=good.starts[::-1]),
        msgspec.structs.replace(good, end=0),
        msgspec.structs.replace(good, order="none"),
    ):
        assert LaneIndex.restore(bad) is None


def test_a_topic_without_priorities_costs_one_run() -> None:
    index = LaneIndex()
    for first in range(0, 100_000, 10):
        index.note(first, first + 9, NORMAL)
    assert len(index) == 1
    assert index.is_plain
    index.note(100_000, 100_000, 0)
    assert not index.is_plain


def test_a_full_index_goes_on_in_the_last_lane() -> None:
    index = LaneIndex(runs_max=3)
    for offset in range(10):
        index.note(offset, offset, offset % 2)
    assert len(index) == 3
    assert [index.lane_of(offset) for offset in range(10)] == [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert index.counts(0, 10) == [9, 1, 0, 0, 0]


def test_a_full_index_loses_no_message_to_what_is_none() -> None:
    index = LaneIndex(runs_max=4)
    for offset in range(0, 20, 2):
        index.note(offset, offset, NORMAL)
        index.note(offset + 1, offset + 1, NO_LANE)
    assert len(index) == 3
    assert index.without_messages(0, 20) == [(1, 2)]
    assert sum(index.counts(0, 20)) == 19
    assert index.is_plain


def test_arrivals_never_underestimate_a_wait_and_stay_few() -> None:
    arrivals = Arrivals(0, 0, checkpoints_max=16)
    for step in range(1, 1000):
        arrivals.note(step * 10, step * ARRIVAL_STEP_MS)
        assert len(arrivals) <= 16
    for step in range(1, 1000):
        assert arrivals.arrived_ms(step * 10 + 5) <= step * ARRIVAL_STEP_MS
    assert arrivals.arrived_ms(9_995) > 500 * ARRIVAL_STEP_MS, "recent arrivals are known well"
    arrivals.forget_before(5000)
    assert arrivals.arrived_ms(9_995) > 500 * ARRIVAL_STEP_MS


@pytest.mark.parametrize("weights", [(1, 2, 3), (0, 1, 1, 1, 1), (1, 1, 1, 1, 1001)])
def test_weights_that_make_no_sense_are_refused(weights: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGroupSettings, match="5 weights"):
        LaneSettings(weights=weights)
