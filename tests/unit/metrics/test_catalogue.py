"""The table of metrics follows the conventions of its readers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goqueue.metrics.catalogue import CATALOGUE, DETAILS
from goqueue.metrics.metric import Kind, Metric
from tools.metrics_page import page

ROOT = Path(__file__).parents[3]
LABELS = {
    *("topic", "partition", "group", "lane", "tenant", "listener", "api", "code", "reason"),
    *("limit", "mechanism", "outcome", "state", "direction", "software"),
}
RESERVED = ("_total", "_count", "_sum", "_bucket", "_info", "_created")
ABBREVIATIONS = re.compile(r"_(ms|us|ns|secs?|minutes?|kb|mb|msgs?|pct|percent)(_|$)")

metrics = pytest.mark.parametrize("metric", CATALOGUE.values(), ids=CATALOGUE)


@metrics
def test_a_name_is_one_that_monitoring_systems_expect(metric: Metric) -> None:
    assert re.fullmatch(r"(goqueue|process)(_[a-z]+)+", metric.name)
    assert not ABBREVIATIONS.search(metric.name)
    suffix = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(metric.kind, "")
    assert metric.name.endswith(suffix)
    assert not metric.name.removesuffix(suffix).endswith(RESERVED)


@metrics
def test_the_help_is_a_sentence(metric: Metric) -> None:
    assert re.fullmatch(r"[A-Z1].*\.", metric.help)


@metrics
def test_labels_name_no_node_and_no_client(metric: Metric) -> None:
    assert metric.kind is Kind.INFO or set(metric.labels) <= LABELS
    assert len(set(metric.labels)) == len(metric.labels)


@metrics
def test_a_series_for_each_partition_is_a_detail(metric: Metric) -> None:
    assert ("partition" in metric.labels) == bool(metric.detail)


@metrics
def test_buckets_ascend(metric: Metric) -> None:
    assert list(metric.bounds) == sorted(set(metric.bounds))


def test_no_metric_is_named_as_a_series_of_another() -> None:
    families = [metric.family for metric in CATALOGUE.values()]
    assert len(set(families)) == len(families)
    series = {f"{family}{suffix}" for family in families for suffix in RESERVED}
    assert not series & set(families)


def test_the_families_of_details_are_known() -> None:
    assert set(DETAILS) == {"partitions", "groups", "queues", "lanes"}


def test_the_page_of_the_manual_is_current() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs-metrics`"
