"""What two rounds of scrapes say about a cluster."""

from __future__ import annotations

import pytest

from goqueue.cli.commands.top.measured import quantile_of
from tests.unit.cli.commands.top.figures import ONE, TWO, measured

COUNTER = "goqueue_producer_messages_total"


def test_rates_are_summed_over_nodes_by_label() -> None:
    figures = measured(
        {ONE: f'{COUNTER}{{topic="a"}} 100', TWO: f'{COUNTER}{{topic="a"}} 5'},
        {
            ONE: f'{COUNTER}{{topic="a"}} 150\n{COUNTER}{{topic="b"}} 20',
            TWO: f'{COUNTER}{{topic="a"}} 15',
        },
    )
    assert figures.rate(COUNTER, "topic") == {("a",): 6.0, ("b",): 2.0}
    assert figures.rate(COUNTER) == {(): 8.0}
    assert figures.rate_of_node(TWO, COUNTER) == 1.0


def test_a_counter_that_began_again_counts_from_zero() -> None:
    figures = measured({ONE: f"{COUNTER} 1000"}, {ONE: f"{COUNTER} 30"})
    assert figures.rate(COUNTER) == {(): 3.0}


def test_a_new_node_has_no_rates_yet() -> None:
    figures = measured({ONE: f"{COUNTER} 0"}, {ONE: f"{COUNTER} 10", TWO: f"{COUNTER} 1000000"})
    assert figures.rate(COUNTER) == {(): 1.0}


def test_a_node_that_was_away_is_compared_with_its_last_answer() -> None:
    figures = measured({ONE: f"{COUNTER} 0", TWO: f"{COUNTER} 0"}, {ONE: f"{COUNTER} 10"})
    back = measured({}, {ONE: f"{COUNTER} 10", TWO: f"{COUNTER} 40"}).last
    assert figures.followed_by(back).rate_of_node(TWO, COUNTER) == 4.0


def test_only_counters_with_the_wanted_labels_count() -> None:
    name = "goqueue_queue_settled_total"
    figures = measured(
        {ONE: ""}, {ONE: f'{name}{{outcome="acked"}} 50\n{name}{{outcome="expired"}} 10'}
    )
    assert figures.rate(name, where={"outcome": "acked"}) == {(): 5.0}


def test_gauges_are_added_or_the_largest_is_taken() -> None:
    figures = measured({}, {ONE: 'lag{group="g"} 3', TWO: 'lag{group="g"} 5'})
    assert figures.total("lag", "group") == {("g",): 8.0}
    assert figures.highest("lag", "group") == {("g",): 5.0}
    assert figures.of_node(ONE, "lag") == 3.0
    assert figures.of_node(ONE, "other") is None


def test_quantiles_are_of_the_time_between_the_rounds() -> None:
    def text(fast: int, all_of_them: int) -> str:
        return f'd_bucket{{le="0.1"}} {fast}\nd_bucket{{le="+Inf"}} {all_of_them}'

    figures = measured({ONE: text(0, 1000)}, {ONE: text(100, 1100)})
    assert figures.quantile(0.95, "d") == pytest.approx(0.095)
    assert figures.quantile(0.95, "other") is None


def test_quantiles_are_interpolated_as_prometheus_does() -> None:
    buckets = {"0.1": 50.0, "0.2": 100.0, "+Inf": 100.0}
    assert quantile_of(0.5, buckets) == pytest.approx(0.1)
    assert quantile_of(0.75, buckets) == pytest.approx(0.15)
    assert quantile_of(0.99, {"0.1": 50.0, "+Inf": 100.0}) == 0.1
    assert quantile_of(0.5, {"+Inf": 0.0}) is None
