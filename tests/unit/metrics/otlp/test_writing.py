"""What is exported is what the official classes read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1 import metrics_pb2

from goqueue.metrics import Counter, Gauge, Histogram, Kind, Metric, Registry
from goqueue.metrics import catalogue as metrics
from goqueue.metrics.metric import counter, gauge, histogram
from goqueue.metrics.otlp.writing import PIECE_SERIES, Times, request, write
from goqueue.metrics.rendering import Series

TIMES = Times(1_000_000_007, 2_000_000_009)
CUMULATIVE = metrics_pb2.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
COUNTER = counter("things_done", "Things that were done.", "topic", "code")
GAUGE = gauge("things_bytes", "Size of things.", "topic")
HISTOGRAM = histogram("things_seconds", "Time of things.", "topic", bounds=(0.1, 1.0))
INFO = metrics.BUILD_INFO

texts = st.text(max_size=30)
finite = st.floats(allow_nan=False, allow_infinity=False)


def written(*series: Series) -> metrics_pb2.ScopeMetrics:
    data = request({"service.name": "goqueue"}, "1.0", b"".join(write(series, TIMES)))
    read = ExportMetricsServiceRequest.FromString(data)
    [resource] = read.resource_metrics
    assert [(one.key, one.value.string_value) for one in resource.resource.attributes] == [
        ("service.name", "goqueue")
    ]
    [scope] = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("goqueue", "1.0")
    return scope


def labels_of(point: object) -> dict[str, str]:
    return {one.key: one.value.string_value for one in point.attributes}  # type: ignore[attr-defined]


@given(st.dictionaries(st.tuples(texts, texts), st.integers(0, 1 << 53), max_size=5))
def test_counters_are_cumulative_sums(values: dict[tuple[str, ...], int]) -> None:
    instruments = []
    for labels, value in values.items():
        made = Counter()
        made.value = value
        instruments.append((labels, made))
    [metric] = written(Series(COUNTER, instruments)).metrics
    assert (metric.name, metric.description) == (COUNTER.name, COUNTER.help)
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == CUMULATIVE
    found = {}
    for point in metric.sum.data_points:
        assert (point.start_time_unix_nano, point.time_unix_nano) == TIMES
        found[tuple(labels_of(point).values())] = point.as_double
    assert found == values


@given(st.dictionaries(st.tuples(texts), finite, max_size=5))
def test_gauges_are_gauges_also_from_collectors(values: dict[tuple[str, ...], float]) -> None:
    [metric] = written(Series(GAUGE, list(values.items()))).metrics
    assert metric.unit == "By"
    found = {(labels_of(one)["topic"],): one.as_double for one in metric.gauge.data_points}
    assert found == values


@given(st.lists(st.floats(0, 10), max_size=20))
def test_histograms_have_their_buckets(values: list[float]) -> None:
    instrument = Histogram(HISTOGRAM.bounds)
    for value in values:
        instrument.observe(value)
    [metric] = written(Series(HISTOGRAM, [(("a",), instrument)])).metrics
    assert metric.unit == "s"
    assert metric.histogram.aggregation_temporality == CUMULATIVE
    [point] = metric.histogram.data_points
    assert labels_of(point) == {"topic": "a"}
    assert point.count == len(values)
    assert point.sum == pytest.approx(sum(values))
    assert list(point.explicit_bounds) == [0.1, 1.0]
    assert list(point.bucket_counts) == instrument.counts
    assert (point.start_time_unix_nano, point.time_unix_nano) == TIMES


def test_exemplars_lead_to_their_traces() -> None:
    instrument = Histogram(HISTOGRAM.bounds)
    instrument.observe_traced(0.05, "ab" * 16, 1_234)
    instrument.observe_traced(5.0, "no trace id", 5)
    [metric] = written(Series(HISTOGRAM, [(("a",), instrument)])).metrics
    [exemplar] = metric.histogram.data_points[0].exemplars
    assert exemplar.trace_id.hex() == "ab" * 16
    assert (exemplar.as_double, exemplar.time_unix_nano) == (0.05, 1_234_000_000)


def test_names_that_are_no_text_are_exported_all_the_same() -> None:
    [metric] = written(Series(GAUGE, [(("\ud800",), 1.0)])).metrics
    assert labels_of(metric.gauge.data_points[0]) == {"topic": "?"}


def test_every_metric_of_the_catalogue_can_be_exported() -> None:
    registry = Registry()
    series = []
    for metric in metrics.CATALOGUE.values():
        labels = tuple("x" for _ in metric.labels)
        series.append(Series(metric, [(labels, _made(registry, metric, labels))]))
    names = [one.name for one in written(*series).metrics]
    assert names == list(metrics.CATALOGUE)


def _made(registry: Registry, metric: Metric, labels: tuple[str, ...]) -> object:
    if metric.kind is Kind.HISTOGRAM:
        return registry.histogram(metric, *labels)
    return registry.counter(metric, *labels) if metric.kind is Kind.COUNTER else Gauge()


def test_many_series_come_in_pieces() -> None:
    values = [((str(number),), 1.0) for number in range(3 * PIECE_SERIES)]
    pieces = list(write([Series(GAUGE, values), Series(INFO, [(("1", "3"), 1.0)])], TIMES))
    assert [bool(one) for one in pieces] == [False] * 3 + [True] * 2
