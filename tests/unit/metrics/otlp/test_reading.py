"""Reports of clients are read as the official classes wrote them, and garbage is refused."""

from __future__ import annotations

import math
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)

from goqueue.metrics.otlp.fields import FIXED64, Fields, nested, number, read_varint, varint
from goqueue.metrics.otlp.reading import FIELDS_MAX, POINTS_MAX, Point, read_points
from goqueue.model.errors import MalformedRequest

DELTA, CUMULATIVE = 1, 2
ATTRIBUTES = [KeyValue(key="node.id", value=AnyValue(string_value="1"))]

numbers = st.floats(allow_nan=False, allow_infinity=False)
points = st.one_of(
    st.builds(NumberDataPoint, as_double=numbers, time_unix_nano=st.integers(0, 1 << 62)),
    st.builds(NumberDataPoint, as_int=st.integers(-(1 << 53), 1 << 53)),
)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
gauge_metrics = st.builds(
    Metric, name=names, gauge=st.builds(Gauge, data_points=st.lists(points, max_size=3))
)
sum_metrics = st.builds(
    Metric,
    name=names,
    description=st.text(max_size=10),
    sum=st.builds(
        Sum,
        data_points=st.lists(points, max_size=3),
        aggregation_temporality=st.sampled_from([0, DELTA, CUMULATIVE]),
        is_monotonic=st.booleans(),
    ),
)
histogram_metrics = st.builds(
    Metric,
    name=names,
    histogram=st.just(Histogram(data_points=[HistogramDataPoint(count=3, sum=2.0)])),
)
reports = st.lists(
    st.lists(st.one_of(gauge_metrics, sum_metrics, histogram_metrics), max_size=5), max_size=3
)


def data_of(scopes: list[list[Metric]]) -> bytes:
    resources = [
        ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=metrics)]) for metrics in scopes
    ]
    return bytes(MetricsData(resource_metrics=resources).SerializeToString())


def expected(data: bytes) -> list[Point]:
    """What the official classes find."""
    found = []
    for resource in MetricsData.FromString(data).resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind not in ("gauge", "sum"):
                    continue
                body = getattr(metric, kind)
                is_delta = kind == "sum" and body.aggregation_temporality == DELTA
                for point in body.data_points:
                    value = getattr(point, point.WhichOneof("value"))
                    found.append(Point(metric.name, float(value), is_delta))
    return found


def all_points(data: bytes) -> list[Point]:
    return read_points(data, lambda _: True)


@given(reports)
def test_numbers_are_those_that_the_official_classes_find(scopes: list[list[Metric]]) -> None:
    data = data_of(scopes)
    assert all_points(data) == expected(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        all_points(data)
    except MalformedRequest:
        pass


@given(reports, st.data())
def test_a_report_that_is_cut_off_is_read_or_refused(
    scopes: list[list[Metric]], draw: st.DataObject
) -> None:
    data = data_of(scopes)
    cut = data[: draw.draw(st.integers(0, len(data)))]
    try:
        assert len(all_points(cut)) <= len(expected(data))
    except MalformedRequest:
        pass


def test_only_wanted_names_are_read() -> None:
    metrics = [
        Metric(name=name, gauge=Gauge(data_points=[NumberDataPoint(as_double=1.0)]))
        for name in ("a", "b", "a")
    ]
    assert read_points(data_of([metrics]), {"b"}.__contains__) == [Point("b", 1.0, False)]


def test_attributes_and_values_that_are_no_numbers_are_left_out() -> None:
    values = [
        NumberDataPoint(as_double=math.nan),
        NumberDataPoint(as_double=math.inf),
        NumberDataPoint(attributes=ATTRIBUTES),
        NumberDataPoint(attributes=ATTRIBUTES, as_double=2.5),
    ]
    data = data_of([[Metric(name="a", gauge=Gauge(data_points=values))]])
    assert all_points(data) == [Point("a", 2.5, False)]


def test_too_many_numbers_and_fields_are_refused_soon() -> None:
    point = [NumberDataPoint(as_int=1)]
    many = Metric(name="a", gauge=Gauge(data_points=point * (POINTS_MAX + 1)))
    with pytest.raises(MalformedRequest, match="more than"):
        all_points(data_of([[many]]))
    began = process_time()
    with pytest.raises(MalformedRequest, match="too many fields"):
        all_points(number(3, 0) * (FIELDS_MAX + 1))
    assert process_time() - began < 1


def test_long_names_are_ignored_and_bad_ones_refused() -> None:
    gauge = Gauge(data_points=[NumberDataPoint(as_int=1)])
    assert all_points(data_of([[Metric(name="a" * 201, gauge=gauge)]])) == []
    broken = nested(1, nested(2, nested(2, nested(1, b"\xff"))))
    with pytest.raises(MalformedRequest, match="UTF-8"):
        all_points(broken)


@given(st.integers(0, (1 << 63) - 1))
def test_varints_are_read_as_written(value: int) -> None:
    data = varint(value)
    assert read_varint(data, 0, len(data)) == (value, len(data))


def test_an_endless_varint_and_an_unknown_type_are_refused() -> None:
    with pytest.raises(MalformedRequest, match="too long"):
        read_varint(b"\xff" * 20, 0, 20)
    with pytest.raises(MalformedRequest, match="cut off"):
        read_varint(b"\xff", 0, 1)
    with pytest.raises(MalformedRequest, match="type 3"):
        list(Fields(b"\x0b", 10).of(0, 1))
    with pytest.raises(MalformedRequest, match="ends after"):
        list(Fields(bytes([1 << 3 | FIXED64]) + b"1234", 10).of(0, 5))
