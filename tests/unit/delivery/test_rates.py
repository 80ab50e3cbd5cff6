"""Rates follow what happens, and forget it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery import stats
from goqueue.delivery.lanes import RATE_WINDOW_MS, Rates
from tests.unit.delivery.desk import Desk


@pytest.mark.parametrize(("count", "every_ms"), [(1, 10), (100, 1_000), (7, 130)])
def test_a_steady_flow_is_told_within_a_twentieth(count: int, every_ms: int) -> None:
    rates = Rates(2)
    for now_ms in range(0, 6 * RATE_WINDOW_MS, every_ms):
        rates.add(1, count, now_ms)
        last_ms = now_ms
    steady = count * 1000 / every_ms
    between_ms = last_ms + every_ms // 2
    assert rates.per_second(1, between_ms) == pytest.approx(steady, rel=0.05)
    assert rates.per_second(0, between_ms) == 0


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 100)), max_size=30))
def test_a_rate_is_what_each_event_has_left(events: list[tuple[int, int]]) -> None:
    rates, now_ms, expected = Rates(1), 1_000_000, 0.0
    for pause_ms, count in events:
        now_ms += pause_ms
        rates.add(0, count, now_ms)
        expected = expected * 2.718281828459045 ** (-pause_ms / RATE_WINDOW_MS) + count / 10
    assert rates.per_second(0, now_ms) == pytest.approx(expected)
    assert rates.per_second(0, now_ms + 10 * RATE_WINDOW_MS) < expected / 20_000 + 1e-9


def test_a_clock_that_is_set_back_makes_nothing_grow() -> None:
    rates = Rates(1)
    rates.add(0, 10, 50_000)
    assert rates.per_second(0, 1_000) == rates.per_second(0, 50_000) == 1.0


def test_a_queue_tells_what_comes_and_what_goes() -> None:
    one = Desk()
    topic = one.topic
    for _ in range(60):
        topic.produce(10)
        topic.produce(5, lane=0)
        one.ack(one.receive(6))
        topic.now_ms += 1_000
    figures = stats(one.queue, topic.now_ms - 500)
    critical, _, normal, _, _ = figures.lanes
    assert critical.in_per_second == pytest.approx(5, rel=0.1)
    assert normal.in_per_second == pytest.approx(10, rel=0.1)
    out = critical.out_per_second + normal.out_per_second
    assert out == pytest.approx(6, rel=0.1)
    assert figures.partitions[0].in_per_second == pytest.approx(15, rel=0.1)
    assert figures.partitions[0].out_per_second == pytest.approx(out, abs=0.01)
