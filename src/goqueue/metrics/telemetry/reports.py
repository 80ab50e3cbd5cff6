"""What the numbers that a client reports become: observations, counts, and its latest values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from goqueue.metrics import catalogue_of_clients as metrics
from goqueue.metrics.metric import Metric
from goqueue.metrics.otlp.reading import Point

_SECONDS = 0.001  # clients report milliseconds
_ROOT = "org.apache.kafka"
_OF_PRODUCERS = f"{_ROOT}.producer"
_OF_CONSUMERS = f"{_ROOT}.consumer"
_COORDINATOR = f"{_OF_CONSUMERS}.coordinator"
_FETCHES = f"{_OF_CONSUMERS}.fetch.manager"


class How(Enum):
    """How the numbers of several clients are put together."""

    OBSERVED = 1  # one observation each
    COUNTED = 2
    LARGEST = 3
    SMALLEST = 4
    ADDED = 5


class _Rule(NamedTuple):
    metric: Metric
    how: How
    scale: float = 1.0


class Report(NamedTuple):
    """One push of a client."""

    observed: list[tuple[Metric, float]]
    counted: list[tuple[Metric, float]]
    values: dict[Metric, float]


def _latency(name: str, average: Metric, largest: Metric) -> dict[str, _Rule]:
    return {
        f"{name}.avg": _Rule(average, How.OBSERVED, _SECONDS),
        f"{name}.max": _Rule(largest, How.LARGEST, _SECONDS),
    }


RULES: Mapping[str, _Rule] = {
    f"{_OF_PRODUCERS}.connection.creation.total": _Rule(metrics.CLIENT_CONNECTIONS, How.COUNTED),
    f"{_OF_CONSUMERS}.connection.creation.total": _Rule(metrics.CLIENT_CONNECTIONS, How.COUNTED),
    **_latency(
        f"{_OF_PRODUCERS}.node.request.latency",
        metrics.CLIENT_PRODUCER_LATENCY,
        metrics.CLIENT_PRODUCER_LATENCY_MAX,
    ),
    **_latency(
        f"{_OF_PRODUCERS}.record.queue.time",
        metrics.CLIENT_PRODUCER_QUEUE,
        metrics.CLIENT_PRODUCER_QUEUE_MAX,
    ),
    **_latency(
        f"{_OF_PRODUCERS}.produce.throttle.time",
        metrics.CLIENT_PRODUCER_THROTTLE,
        metrics.CLIENT_PRODUCER_THROTTLE_MAX,
    ),
    **_latency(
        f"{_OF_CONSUMERS}.node.request.latency",
        metrics.CLIENT_CONSUMER_LATENCY,
        metrics.CLIENT_CONSUMER_LATENCY_MAX,
    ),
    **_latency(
        f"{_FETCHES}.fetch.latency",
        metrics.CLIENT_CONSUMER_FETCH,
        metrics.CLIENT_CONSUMER_FETCH_MAX,
    ),
    **_latency(
        f"{_COORDINATOR}.commit.latency",
        metrics.CLIENT_CONSUMER_COMMIT,
        metrics.CLIENT_CONSUMER_COMMIT_MAX,
    ),
    **_latency(
        f"{_COORDINATOR}.rebalance.latency",
        metrics.CLIENT_CONSUMER_REBALANCE,
        metrics.CLIENT_CONSUMER_REBALANCE_MAX,
    ),
    f"{_COORDINATOR}.assigned.partitions": _Rule(metrics.CLIENT_CONSUMER_PARTITIONS, How.ADDED),
    f"{_OF_CONSUMERS}.poll.idle.ratio.avg": _Rule(metrics.CLIENT_CONSUMER_IDLE, How.SMALLEST),
    f"{_FETCHES}.records.lag.max": _Rule(metrics.CLIENT_CONSUMER_LAG, How.LARGEST),
}
# How the latest values of clients are put together by a scrape.
GAUGES: Mapping[Metric, How] = {
    one.metric: one.how
    for one in RULES.values()
    if one.how in (How.LARGEST, How.SMALLEST, How.ADDED)
}


def report_of(points: Iterable[Point]) -> Report:
    """Sort out what a client has sent; what no rule is about is ignored.

    A client has one number of some names for each node that it talks to.
    """
    report = Report([], [], {})
    for point in points:
        rule = RULES.get(point.name)
        if rule is None or point.value < 0:
            continue
        metric, value = rule.metric, point.value * rule.scale
        if rule.how is How.OBSERVED:
            report.observed.append((metric, value))
        elif rule.how is How.COUNTED:
            if point.is_increase:
                report.counted.append((metric, value))
        elif rule.how is How.SMALLEST:
            report.values[metric] = min(value, report.values.get(metric, value))
        else:
            report.values[metric] = max(value, report.values.get(metric, value))
    return report
