"""What a board is: sections of panels, each with its queries, and the variables at its head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Shape = Literal["graph", "number", "table"]

# What Grafana calls the units; values are in base units everywhere.
BYTES = "bytes"
BYTES_PER_SECOND = "Bps"
SECONDS = "s"
PER_SECOND = "cps"
REQUESTS_PER_SECOND = "reqps"
RATIO = "percentunit"
COUNT = "short"
SINCE = "dateTimeFromNow"

# The range of every rate: Grafana makes it four scrapes at least.
RANGE = "$__rate_interval"
OF_CLUSTER = 'job="$job"'


@dataclass(frozen=True, slots=True)
class Query:
    """A query of Prometheus, and how its series are called: labels in double braces."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    queries: Sequence[Query]
    shape: Shape = "graph"
    unit: str = COUNT
    width: int = 8  # of 24
    is_stacked: bool = False
    # A number is green below the first of these, then yellow, then red from the second on.
    thresholds: tuple[float, float] | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A choice at the head of a board: the values that a label has in some series."""

    name: str
    label: str
    series: Sequence[str]
    is_multiple: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    name: str  # of the file
    title: str
    description: str
    sections: Sequence[Section]
    variables: Sequence[Variable] = field(default_factory=tuple)


def numbers(*panels: tuple[str, str, str], width: int = 4) -> list[Panel]:
    """Single numbers beside each other: title, unit and query of each."""
    return [
        Panel(title=title, shape="number", unit=unit, queries=[Query(query)], width=width)
        for title, unit, query in panels
    ]


def graph(title: str, unit: str, *queries: Query, width: int = 8, description: str = "") -> Panel:
    return Panel(title=title, unit=unit, queries=queries, width=width, description=description)


def stacked(title: str, unit: str, *queries: Query, width: int = 8) -> Panel:
    return Panel(title=title, unit=unit, queries=queries, width=width, is_stacked=True)


def alarm(title: str, query: str, yellow: float, red: float, unit: str = COUNT) -> Panel:
    """A number that turns yellow, then red."""
    return Panel(
        title=title,
        shape="number",
        unit=unit,
        queries=[Query(query)],
        width=4,
        thresholds=(yellow, red),
    )


def total(metric: str, by: str = "", where: str = "") -> str:
    """The sum of a gauge over the nodes of the cluster, by some labels."""
    return f"sum{_by(by)} ({metric}{{{_where(where)}}})"


def highest(metric: str, by: str = "", where: str = "") -> str:
    """The largest value of a gauge over the nodes of the cluster, by some labels."""
    return f"max{_by(by)} ({metric}{{{_where(where)}}})"


def lowest(metric: str, by: str = "", where: str = "") -> str:
    """The smallest value of a gauge over the nodes of the cluster, by some labels."""
    return f"min{_by(by)} ({metric}{{{_where(where)}}})"


def rate(metric: str, by: str = "", where: str = "") -> str:
    """How much a counter grows in a second, over the nodes of the cluster, by some labels."""
    return f"sum{_by(by)} (rate({metric}{{{_where(where)}}}[{RANGE}]))"


def average(metric: str, by: str = "") -> str:
    """The average of a histogram, over the nodes of the cluster, by some labels."""
    return f"{rate(f'{metric}_sum', by)} / {rate(f'{metric}_count', by)}"


def quantile(share: float, metric: str, by: str = "", where: str = "") -> str:
    """A quantile of a histogram, over the nodes of the cluster, by some labels."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', labels, where)})"


def quantiles(title: str, metric: str, where: str = "", width: int = 8) -> Panel:
    """The median and the tail of a histogram of durations."""
    queries = [
        Query(quantile(share, metric, where=where), legend)
        for share, legend in ((0.5, "half"), (0.95, "95 %"), (0.99, "99 %"))
    ]
    return graph(title, SECONDS, *queries, width=width)


def largest(count: int, query: str) -> str:
    """The series of a query with the largest values."""
    return f"topk({count}, {query})"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def _where(matchers: str) -> str:
    return f"{OF_CLUSTER}, {matchers}" if matchers else OF_CLUSTER
