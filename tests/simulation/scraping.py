"""Scrapes of simulated nodes, read as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from prometheus_client import parser

from goqueue.broker import Broker
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.session import Session

SESSION = Session("test")
T = TypeVar("T")
Wait = Callable[[Promise[Any]], Any]
Values = Counter[tuple[str, ...]]  # by name and label values


def scrape(
    broker: Broker, wait: Wait, *families: str, session: Session = SESSION
) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values of one node by name and label values."""
    text = wait(
        broker.gate.metrics.scrape(
            session, text_format="prometheus", families=families, cancellation=Cancellation()
        )
    )
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            values = found.setdefault(sample.name.removeprefix("goqueue_"), {})
            labels = tuple(sample.labels.values())
            assert labels not in values, f"{sample.name}{labels} is there twice"
            values[labels] = sample.value
    return found


def together(
    brokers: Iterable[Broker], wait: Wait, *families: str
) -> dict[str, Counter[tuple[str, ...]]]:
    """Return the sums over nodes."""
    sums: dict[str, Counter[tuple[str, ...]]] = {}
    for broker in brokers:
        for name, values in scrape(broker, wait, *families).items():
            sums.setdefault(name, Counter()).update(values)  # type: ignore[arg-type]
    return sums
