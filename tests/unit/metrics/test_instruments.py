"""Counters, gauges and histograms, by label values."""

from __future__ import annotations

import pytest

from goqueue.metrics import Histogram, Registry, Samples
from goqueue.metrics import catalogue as c
from goqueue.metrics.metric import gauge
from goqueue.metrics.registry import CHILDREN_MAX, OTHER

GAUGE = gauge("room_things", "Things.", "topic")
DETAIL = gauge("room_partition_things", "Things.", "topic", "partition", detail=c.PARTITIONS)


def test_a_value_at_the_bound_of_a_bucket_belongs_to_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.1, 0.100001, 1.0, 7.0):
        histogram.observe(value)
    assert histogram.counts == [1, 2, 1]
    assert histogram.sum == pytest.approx(8.200001)


def test_many_observations_of_one_size_are_counted_at_once() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.observe(0.5, 1000)
    assert (histogram.count, histogram.sum) == (1000, 500)


def test_a_bucket_remembers_the_latest_trace() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.observe_traced(0.2, "a" * 32, 1000)
    histogram.observe_traced(0.3, "b" * 32, 2000)
    histogram.observe_traced(9.0, "c" * 32, 3000)
    assert histogram.count == 3
    assert {bucket: one.trace_id[0] for bucket, one in histogram.exemplars.items()} == {
        1: "b",
        2: "c",
    }


def test_the_same_labels_have_the_same_instrument() -> None:
    registry = Registry()
    registry.counter(c.PRODUCER_MESSAGES, "orders").value += 2
    registry.counter(c.PRODUCER_MESSAGES, "orders").value += 3
    registry.counter(c.PRODUCER_MESSAGES, "other").value += 7
    children = registry.counters(c.PRODUCER_MESSAGES).children
    assert registry.families()[c.PRODUCER_MESSAGES] is children
    assert {labels: one.value for labels, one in children.items()} == {
        ("orders",): 5,
        ("other",): 7,
    }


def test_names_beyond_the_bound_are_counted_together() -> None:
    registry = Registry()
    for number in range(CHILDREN_MAX + 5):
        registry.counter(c.PRODUCER_MESSAGES, f"topic{number}").value += 1
    children = registry.counters(c.PRODUCER_MESSAGES).children
    assert len(children) == CHILDREN_MAX + 1
    assert children[OTHER,].value == 5
    assert registry.counter(c.PRODUCER_MESSAGES, "topic7").value == 1


def test_a_histogram_has_the_buckets_of_the_catalogue() -> None:
    registry = Registry()
    assert registry.histogram(c.SCHEDULE_LATENESS).bounds == c.SCHEDULE_LATENESS.bounds
    assert registry.histogram(c.STORAGE_SYNC_DURATION).bounds[0] == 0.0005


def test_collectors_add_values_in_any_order() -> None:
    samples = Samples(series_max=10)
    for partition in (3, 4):
        samples.add(c.STORAGE_LOG, partition, "orders")
        samples.maximum(c.QUEUE_OLDEST_AGE, partition, "g", "orders")
        samples.minimum(c.SCHEDULE_NEXT_DUE, partition)
    samples.set(c.STORAGE_FULL, 1)
    assert samples.by_metric == {
        c.STORAGE_LOG: {("orders",): 7},
        c.QUEUE_OLDEST_AGE: {("g", "orders"): 4},
        c.SCHEDULE_NEXT_DUE: {(): 3},
        c.STORAGE_FULL: {(): 1},
    }


def test_details_are_collected_only_if_they_are_requested() -> None:
    aggregated = Samples(series_max=10)
    detailed = Samples(frozenset({c.PARTITIONS}), series_max=10)
    assert (aggregated.wants(GAUGE), aggregated.wants(DETAIL)) == (True, False)
    assert (detailed.wants(GAUGE), detailed.wants(DETAIL)) == (False, True)
    assert not detailed.wants(c.LANE_PARTITION_READY)


def test_series_beyond_the_bound_of_a_scrape_are_left_out_and_counted() -> None:
    samples = Samples(series_max=2)
    for topic in ("a", "b", "c", "d", "b"):
        samples.add(GAUGE, 1, topic)
    assert samples.by_metric == {GAUGE: {("a",): 1, ("b",): 2}}
    assert samples.left_out == 2
