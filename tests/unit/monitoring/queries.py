"""What a query of Prometheus names, and what there is to name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import promql_parser

from goqueue.metrics.catalogue import CATALOGUE
from goqueue.metrics.metric import Kind, Metric

_OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
_GRAFANA_RANGE = re.compile(r"\$__\w+")

# What Prometheus adds to each series of a scrape.
SCRAPED = frozenset({"job", "instance"})


def labels_by_series() -> dict[str, frozenset[str]]:
    """Every series of a node by its name, with its labels, and those that Prometheus makes."""
    found = {
        name: SCRAPED.union(metric.labels, {"le"} if name.endswith("_bucket") else ())
        for metric in CATALOGUE.values()
        for name in series_of(metric)
    }
    return found | {"up": SCRAPED, "ALERTS": SCRAPED | {"alertstate", "alertname"}}


def series_of(metric: Metric) -> tuple[str, ...]:
    """The names that the series of a metric have."""
    if metric.kind is Kind.HISTOGRAM:
        return tuple(metric.name + suffix for suffix in _OF_HISTOGRAMS)
    return (metric.name,)


def metrics_of(query: str) -> set[str]:
    """The names of the series in a query."""
    return {name for node in _nodes(query) if (name := _name(node))}


def unknown_in(query: str) -> list[str]:
    """What a query names that no node exports: series, and labels that they do not have."""
    known = labels_by_series()
    unknown = [name for name in metrics_of(query) if name not in known]
    for node in _nodes(query):
        if (name := _name(node)) in known:
            named = {one.name for one in node.matchers.matchers}
            unknown += [f"{name}{{{label}}}" for label in named - known[name] - {"__name__"}]
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            inside = [known.get(one, frozenset()) for one in metrics_of(node.expr.prettify())]
            common = frozenset.intersection(*inside) if inside else frozenset()
            unknown += [f"by ({label})" for label in set(node.modifier.labels) - common]
    return unknown


def _nodes(query: str) -> Iterator[object]:
    """Every part of a query; the ranges that Grafana fills in are five minutes here."""
    found: list[object] = []
    promql_parser.walk(promql_parser.parse(_GRAFANA_RANGE.sub("5m", query)), found.append)
    yield from found


def _name(node: object) -> str:
    return (node.name or "") if isinstance(node, promql_parser.VectorSelector) else ""
