"""The text formats, read back by the parsers of the Prometheus client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import prometheus_client.openmetrics.parser
import prometheus_client.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric as Read

from goqueue.metrics import Histogram, Metric, Registry
from goqueue.metrics import catalogue as c
from goqueue.metrics.rendering import PIECE_LINES, Series, render
from goqueue.metrics.samples import Labels
from goqueue.metrics.text_format import TextFormat

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NAMES = st.text(max_size=20)


def parse_openmetrics(text: str) -> list[Read]:
    return list(prometheus_client.openmetrics.parser.text_string_to_metric_families(text))


def parse_prometheus(text: str) -> list[Read]:
    return list(prometheus_client.parser.text_string_to_metric_families(text))


def text_of(series: Iterable[Series], text_format: TextFormat) -> str:
    return b"".join(render(series, text_format)).decode()


def gauges(metric: Metric, values: Mapping[Labels, float]) -> Series:
    return Series(metric, values.items())


def read(text: str, text_format: TextFormat) -> dict[str, dict[tuple[tuple[str, str], ...], Any]]:
    is_open = text_format is TextFormat.OPENMETRICS
    found: dict[str, dict[tuple[tuple[str, str], ...], Any]] = {}
    for family in parse_openmetrics(text) if is_open else parse_prometheus(text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.items())] = sample.value
    return found


both = pytest.mark.parametrize("text_format", TextFormat, ids=[one.name for one in TextFormat])


@both
def test_what_is_rendered_is_what_a_client_reads(text_format: TextFormat) -> None:
    registry = Registry()
    registry.counter(c.PRODUCER_MESSAGES, "orders").value += 12
    series = [
        Series(c.PRODUCER_MESSAGES, registry.families()[c.PRODUCER_MESSAGES].items()),
        gauges(c.GROUP_LAG_SECONDS, {("g", "orders"): 1.5, ("h", "orders"): 0}),
        gauges(c.STORAGE_FULL, {(): 1}),
        gauges(c.BUILD_INFO, {("1.0", "3.11"): 1}),
    ]
    assert read(text_of(series, text_format), text_format) == {
        "goqueue_producer_messages_total": {(("topic", "orders"),): 12},
        "goqueue_group_lag_seconds": {
            (("group", "g"), ("topic", "orders")): 1.5,
            (("group", "h"), ("topic", "orders")): 0,
        },
        "goqueue_storage_full": {(): 1},
        "goqueue_build_info": {(("version", "1.0"), ("python", "3.11")): 1},
    }


def test_openmetrics_names_the_family_of_a_counter_without_its_suffix() -> None:
    series = [gauges(c.AUDIT_LOST, {(): 3}), gauges(c.BUILD_INFO, {("1", "3"): 1})]
    openmetrics = text_of(series, TextFormat.OPENMETRICS).splitlines()
    assert "# TYPE goqueue_audit_lost counter" in openmetrics
    assert "# TYPE goqueue_build info" in openmetrics
    assert openmetrics[-1] == "# EOF"
    prometheus = text_of(series, TextFormat.PROMETHEUS).splitlines()
    assert "# TYPE goqueue_audit_lost_total counter" in prometheus
    assert "# TYPE goqueue_build_info gauge" in prometheus
    assert "# EOF" not in prometheus


@both
def test_the_buckets_of_a_histogram_are_cumulative(text_format: TextFormat) -> None:
    histogram = Histogram((0.5, 1, 2.5))
    for value in (0.5, 0.7, 0.9, 3):
        histogram.observe(value)
    series = [Series(c.REQUEST_DURATION, [(("http", "produce"), histogram)])]
    found = read(text_of(series, text_format), text_format)
    name, labels = c.REQUEST_DURATION.name, (("listener", "http"), ("api", "produce"))
    assert found == {
        f"{name}_bucket": {
            (*labels, ("le", "0.5")): 1,
            (*labels, ("le", "1.0")): 3,
            (*labels, ("le", "2.5")): 3,
            (*labels, ("le", "+Inf")): 4,
        },
        f"{name}_sum": {labels: pytest.approx(5.1)},
        f"{name}_count": {labels: 4},
    }


def test_exemplars_are_in_openmetrics_only() -> None:
    histogram = Histogram((0.5, 1))
    histogram.observe_traced(0.7, TRACE, 1_700_000_000_123)
    series = [Series(c.STORAGE_SYNC_DURATION, [((), histogram)])]
    assert TRACE not in text_of(series, TextFormat.PROMETHEUS)
    [family] = parse_openmetrics(text_of(series, TextFormat.OPENMETRICS))
    found = {one.labels["le"]: one.exemplar for one in family.samples if one.exemplar}
    assert list(found) == ["1.0"]
    exemplar = found["1.0"]
    assert exemplar.labels == {"trace_id": TRACE}
    assert (exemplar.value, float(exemplar.timestamp)) == (0.7, 1_700_000_000.123)


def test_an_exemplar_is_never_longer_than_allowed() -> None:
    histogram = Histogram((0.5, 1))
    histogram.observe_traced(0.7, "x" * 500, 1)
    series = [Series(c.STORAGE_SYNC_DURATION, [((), histogram)])]
    [family] = parse_openmetrics(text_of(series, TextFormat.OPENMETRICS))
    [exemplar] = [one.exemplar for one in family.samples if one.exemplar]
    assert sum(len(name) + len(value) for name, value in exemplar.labels.items()) == 128


@both
@given(groups=st.sets(NAMES, max_size=5), topic=NAMES)
def test_names_that_clients_choose_are_escaped(
    text_format: TextFormat, groups: set[str], topic: str
) -> None:
    series = [gauges(c.GROUP_LAG_MESSAGES, {(group, topic): 7 for group in groups})]
    found = read(text_of(series, text_format), text_format).get(c.GROUP_LAG_MESSAGES.name, {})
    assert set(found) == {(("group", group), ("topic", topic)) for group in groups}


def test_what_is_no_text_does_not_break_the_others() -> None:
    series = [gauges(c.STORAGE_LOG, {("\ud800",): 1, ("orders",): 2})]
    found = read(text_of(series, TextFormat.PROMETHEUS), TextFormat.PROMETHEUS)
    assert found[c.STORAGE_LOG.name] == {(("topic", "?"),): 1, (("topic", "orders"),): 2}


@both
@pytest.mark.parametrize("value", [0, 1, -3, 1e300, 0.1, 1 << 63, float("inf"), float("-inf")])
def test_values_are_exact(text_format: TextFormat, value: float) -> None:
    found = read(text_of([gauges(c.STORAGE_FREE, {(): value})], text_format), text_format)
    assert found == {c.STORAGE_FREE.name: {(): value}}


def test_a_long_text_comes_in_pieces() -> None:
    count = 10 * PIECE_LINES
    series = [gauges(c.STORAGE_LOG, {(f"topic{number}",): number for number in range(count)})]
    pieces = list(render(series, TextFormat.PROMETHEUS))
    assert len(pieces) >= 10
    assert max(piece.count(b"\n") for piece in pieces) <= PIECE_LINES
    assert len(read(b"".join(pieces).decode(), TextFormat.PROMETHEUS)[c.STORAGE_LOG.name]) == count


@both
def test_a_metric_without_series_is_absent(text_format: TextFormat) -> None:
    assert read(text_of([], text_format), text_format) == {}
