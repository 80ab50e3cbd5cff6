"""A row of the catalogue: what a metric is called, what it means, and its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from goqueue.metrics.instruments import SECONDS

PREFIX = "goqueue_"
TOTAL = "_total"
INFO = "_info"


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"  # labels that say something; its value is 1


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric: rows are compared and hashed as the objects that they are."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    # Exported only if this family of details is requested, because it has a series for each
    # partition or lane; empty for those that every scrape has.
    detail: str = ""
    bounds: Sequence[float] = SECONDS  # of a histogram

    @property
    def family(self) -> str:
        """The name without the suffix that its kind demands."""
        return self.name.removesuffix(TOTAL).removesuffix(INFO)


def counter(name: str, text: str, *labels: str, detail: str = "") -> Metric:
    return Metric(f"{PREFIX}{name}{TOTAL}", Kind.COUNTER, text, labels, detail)


def gauge(name: str, text: str, *labels: str, detail: str = "") -> Metric:
    return Metric(f"{PREFIX}{name}", Kind.GAUGE, text, labels, detail)


def histogram(name: str, text: str, *labels: str, bounds: Sequence[float] = SECONDS) -> Metric:
    return Metric(f"{PREFIX}{name}", Kind.HISTOGRAM, text, labels, bounds=bounds)


def info(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"{PREFIX}{name}{INFO}", Kind.INFO, text, labels)


def of_process(kind: Kind, name: str, text: str) -> Metric:
    """A metric that every process has, under the name that Prometheus clients give it."""
    return Metric(f"process_{name}", kind, text)
