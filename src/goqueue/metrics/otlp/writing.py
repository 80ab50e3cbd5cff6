"""Writes metrics as an OTLP export request, a piece at a time.

Counters and histograms are cumulative since the start of the process. Names are those that
Prometheus sees, so that boards and alerts work with either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from struct import pack
from typing import NamedTuple

from goqueue.metrics.instruments import Histogram, Instrument
from goqueue.metrics.metric import Kind, Metric
from goqueue.metrics.otlp.fields import double, fixed, nested, number, text
from goqueue.metrics.rendering import Series

PIECE_SERIES = 50  # some 0.3 ms of work

_CUMULATIVE = 2
_TRACE_ID_DIGITS = 32
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}


class Times(NamedTuple):
    """Nanoseconds since 1970."""

    start_ns: int  # when the node began to count
    now_ns: int


def request(attributes: Mapping[str, str], version: str, metrics: bytes) -> bytes:
    """Encode an export request about one node, which its attributes identify."""
    return nested(1, resource(attributes) + nested(2, scope(version) + metrics))


def resource(attributes: Mapping[str, str]) -> bytes:
    """Encode the field of a node, which its attributes identify."""
    return nested(1, b"".join(attribute(1, name, value) for name, value in attributes.items()))


def scope(version: str) -> bytes:
    """Encode the field of what has measured."""
    return nested(1, text(1, "goqueue") + text(2, version))


def write(all_series: Iterable[Series], times: Times) -> Iterator[bytes]:
    """Yield the metrics of a request; pieces may be empty, so that long ones can be divided."""
    clock = fixed(2, times.start_ns) + fixed(3, times.now_ns)
    for metric, values in all_series:
        points: list[bytes] = []
        for labels, value in values:
            attributes = zip(metric.labels, labels, strict=True)
            points.append(nested(1, _point(metric, attributes, value, clock)))
            if len(points) % PIECE_SERIES == 0:
                yield b""
        head = text(1, metric.name) + text(2, metric.help) + _unit(metric)
        yield nested(2, head + _data(metric, b"".join(points)))


def _unit(metric: Metric) -> bytes:
    unit = _UNITS.get(metric.family.rpartition("_")[2])
    return b"" if unit is None else text(3, unit)


def _data(metric: Metric, points: bytes) -> bytes:
    if metric.kind is Kind.HISTOGRAM:
        return nested(9, points + number(2, _CUMULATIVE))
    if metric.kind is Kind.COUNTER:
        return nested(7, points + number(2, _CUMULATIVE) + number(3, 1))
    return nested(5, points)


def _point(
    metric: Metric,
    attributes: Iterable[tuple[str, str]],
    value: Instrument | float,
    clock: bytes,
) -> bytes:
    if metric.kind is Kind.HISTOGRAM:
        assert isinstance(value, Histogram)
        return _attributes(9, attributes) + clock + _distribution(value)
    assert not isinstance(value, Histogram)
    amount = value if isinstance(value, int | float) else value.value
    return _attributes(7, attributes) + clock + double(4, amount)


def _distribution(histogram: Histogram) -> bytes:
    counts, bounds = list(histogram.counts), histogram.bounds
    point = fixed(4, sum(counts)) + double(5, histogram.sum)
    point += nested(6, pack(f"<{len(counts)}Q", *counts))
    point += nested(7, pack(f"<{len(bounds)}d", *bounds))
    for one in histogram.exemplars.values():
        if len(one.trace_id) == _TRACE_ID_DIGITS:
            trace = nested(5, bytes.fromhex(one.trace_id))
            point += nested(8, fixed(2, one.at_ms * 1_000_000) + double(3, one.value) + trace)
    return point


def _attributes(field: int, pairs: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(attribute(field, name, value) for name, value in pairs)


def attribute(field: int, name: str, value: str | int) -> bytes:
    """Encode a text, or a number that is not negative, and its name."""
    encoded = number(3, value) if isinstance(value, int) else text(1, value)
    return nested(field, text(1, name) + nested(2, encoded))
