"""What a node has counted of its requests."""

from __future__ import annotations

from goqueue.broker import Broker
from goqueue.metrics import catalogue as metrics


def requests_of(broker: Broker, listener: str) -> dict[str, int]:
    """How many requests there were, by API; those without any are left out."""
    found = broker.metrics.families()[metrics.REQUEST_DURATION]
    counts = {
        api: one.count  # type: ignore[union-attr]
        for (name, api), one in found.items()
        if name == listener
    }
    return {api: count for api, count in counts.items() if count}


def seconds_of(broker: Broker, listener: str, api: str) -> float:
    """How long the requests of an API took together."""
    return broker.metrics.histogram(metrics.REQUEST_DURATION, listener, api).sum


def traces_of(broker: Broker, listener: str, api: str) -> set[str]:
    """The traces that the durations of an API lead to."""
    histogram = broker.metrics.histogram(metrics.REQUEST_DURATION, listener, api)
    return {one.trace_id for one in histogram.exemplars.values()}


def errors_of(broker: Broker, listener: str) -> dict[tuple[str, str], float]:
    """How many requests had an error, by API and code."""
    found = broker.metrics.families().get(metrics.REQUEST_ERRORS, {})
    return {
        (api, code): one.value  # type: ignore[union-attr]
        for (name, api, code), one in found.items()
        if name == listener
    }
