"""The text formats of metrics: that of Prometheus, version 0.0.4, and OpenMetrics 1.0.0.

Rendering yields a piece of text at a time, so that a long one can be divided into slices. All
series of a metric are together, as both formats demand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from goqueue.metrics.instruments import Exemplar, Histogram, Instrument
from goqueue.metrics.metric import Kind, Metric
from goqueue.metrics.samples import Labels
from goqueue.metrics.text_format import TextFormat

PIECE_LINES = 200  # some 0.3 ms of work
EXEMPLAR_LENGTH_MAX = 128  # of names and values together; OpenMetrics forbids more

_TRACE_ID = "trace_id"
_SPECIAL = re.compile(r'[\\"\n]')
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_INFINITE = float("inf")


class Series(NamedTuple):
    """Every series of one metric: instruments, or the values that collectors have read."""

    metric: Metric
    values: Iterable[tuple[Labels, Instrument | float]]


def render(all_series: Iterable[Series], text_format: TextFormat) -> Iterator[bytes]:
    """Yield the text, a piece at a time."""
    lines: list[str] = []
    is_open = text_format is TextFormat.OPENMETRICS
    for metric, values in all_series:
        lines += _heading(metric, is_open=is_open)
        for line in _lines(metric, values, is_open=is_open):
            lines.append(line)
            if len(lines) >= PIECE_LINES:
                yield _joined(lines)
                lines = []
    if is_open:
        lines.append("# EOF")
    if lines:
        yield _joined(lines)


def _joined(lines: Sequence[str]) -> bytes:
    # Names that clients choose may have code points that are not text.
    return ("\n".join(lines) + "\n").encode(errors="replace")


def _heading(metric: Metric, *, is_open: bool) -> list[str]:
    name = metric.family if is_open else metric.name
    kind = metric.kind if is_open or metric.kind is not Kind.INFO else Kind.GAUGE
    text = metric.help.translate(_ESCAPES if is_open else _HELP_ESCAPES)
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _lines(
    metric: Metric, values: Iterable[tuple[Labels, Instrument | float]], *, is_open: bool
) -> Iterator[str]:
    names = [f'{name}="%s"' for name in metric.labels]
    if metric.kind is Kind.HISTOGRAM:
        for labels, value in values:
            assert isinstance(value, Histogram)
            yield from _buckets(metric.name, _filled(names, labels), value, is_open=is_open)
        return
    template = f"{metric.name}{{{','.join(names)}}} " if names else f"{metric.name} "
    for labels, value in values:
        number = value if isinstance(value, int | float) else _value_of(value)
        yield template % _escaped(labels) + _text(number)


def _value_of(instrument: Instrument) -> float:
    assert not isinstance(instrument, Histogram)
    return instrument.value


def _buckets(name: str, labels: str, histogram: Histogram, *, is_open: bool) -> Iterator[str]:
    bounds = [*map(_bound, histogram.bounds), "+Inf"]
    start = f"{name}_bucket{{{labels},le=" if labels else f"{name}_bucket{{le="
    totals = list(accumulate(histogram.counts))
    exemplars: Mapping[int, Exemplar] = histogram.exemplars if is_open else {}
    for bucket, (bound, total) in enumerate(zip(bounds, totals, strict=True)):
        exemplar = exemplars.get(bucket)
        yield f'{start}"{bound}"}} {total}{"" if exemplar is None else _exemplar(exemplar)}'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{braces} {_text(histogram.sum)}"
    yield f"{name}_count{braces} {totals[-1]}"


def _exemplar(exemplar: Exemplar) -> str:
    trace_id = exemplar.trace_id[: EXEMPLAR_LENGTH_MAX - len(_TRACE_ID)].translate(_ESCAPES)
    return f' # {{{_TRACE_ID}="{trace_id}"}} {_text(exemplar.value)} {exemplar.at_ms / 1000:.3f}'


def _filled(names: Sequence[str], labels: Labels) -> str:
    return ",".join(names) % _escaped(labels)


def _escaped(labels: Labels) -> Labels:
    if _SPECIAL.search("\0".join(labels)) is None:
        return labels
    return tuple(label.translate(_ESCAPES) for label in labels)


def _bound(bound: float) -> str:
    return repr(float(bound))


def _text(number: float) -> str:
    if number != number:
        return "NaN"
    if abs(number) == _INFINITE:
        return "+Inf" if number > 0 else "-Inf"
    return repr(number)
