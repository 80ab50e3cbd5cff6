"""The instruments of a node, by metric and label values, and its collectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from goqueue.metrics.instruments import (
    Counter,
    Gauge,
    Histogram,
    Instrument,
    UncountedHistogram,
)
from goqueue.metrics.metric import Kind, Metric
from goqueue.metrics.samples import Collector, Labels, Samples

# Beyond so many series of one metric, all others are counted together, so that names that clients
# choose cannot use up the memory.
CHILDREN_MAX = 50_000
OTHER = "(other)"  # no topic and no tenant can have this name
SERIES_MAX = 500_000  # that collectors read in one scrape

OneKind = TypeVar("OneKind", bound=Instrument)


class Family(Generic[OneKind]):
    """The instruments of one metric, by label values."""

    __slots__ = ("_make", "_rest", "children", "metric")

    def __init__(self, metric: Metric, make: Callable[[], OneKind]) -> None:
        self.metric = metric
        self.children: dict[Labels, OneKind] = {}
        self._make = make
        self._rest = (OTHER,) * len(metric.labels)

    def child(self, labels: Labels) -> OneKind:
        """Return the instrument of some label values, which begins at 0."""
        found = self.children.get(labels)
        return found if found is not None else self._new(labels)

    def _new(self, labels: Labels) -> OneKind:
        assert len(labels) == len(self.metric.labels), f"{self.metric.name} has other labels"
        if len(self.children) >= CHILDREN_MAX:
            labels = self._rest
            if labels in self.children:
                return self.children[labels]
        made = self.children[labels] = self._make()
        return made


class Child(NamedTuple):
    """One series of a metric."""

    family: Family[Any]
    labels: Labels

    def value_of(self, label: str) -> str:
        return self.labels[self.family.metric.labels.index(label)]


class Registry:
    """Every instrument of a node.

    An instrument is removed only with what it is about, because counters do not go back. Whoever
    keeps instruments must drop them then (`on_remove`), and request them again.
    """

    _observes: type[Histogram] = Histogram

    def __init__(self) -> None:
        self._counters: dict[Metric, Family[Counter]] = {}
        self._gauges: dict[Metric, Family[Gauge]] = {}
        self._histograms: dict[Metric, Family[Histogram]] = {}
        self._collectors: list[Collector] = []
        self._on_remove: list[Callable[[], None]] = []

    def counter(self, metric: Metric, *labels: str) -> Counter:
        """Return a counter, to be kept and incremented by whoever counts."""
        return self.counters(metric).child(labels)

    def counters(self, metric: Metric) -> Family[Counter]:
        """Return the counters of a metric, for callers whose label values vary."""
        found = self._counters.get(metric)
        if found is None:
            assert metric.kind is Kind.COUNTER, f"{metric.name} is a {metric.kind}"
            found = self._counters[metric] = Family(metric, Counter)
        return found

    def gauge(self, metric: Metric, *labels: str) -> Gauge:
        """Return a gauge that is set when something changes; others are read by collectors."""
        found = self._gauges.get(metric)
        if found is None:
            assert metric.kind in (Kind.GAUGE, Kind.INFO), f"{metric.name} is a {metric.kind}"
            found = self._gauges[metric] = Family(metric, Gauge)
        return found.child(labels)

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        return self.histograms(metric).child(labels)

    def histograms(self, metric: Metric) -> Family[Histogram]:
        found = self._histograms.get(metric)
        if found is None:
            assert metric.kind is Kind.HISTOGRAM, f"{metric.name} is a {metric.kind}"
            found = self._histograms[metric] = Family(
                metric, partial(self._observes, metric.bounds)
            )
        return found

    def collect(self, collector: Collector) -> None:
        """Call a collector at every scrape."""
        self._collectors.append(collector)

    def families(self) -> Mapping[Metric, Mapping[Labels, Instrument]]:
        """Return all instruments."""
        found: dict[Metric, Mapping[Labels, Instrument]] = {}
        for families in (self._counters, self._gauges, self._histograms):
            for metric, family in families.items():
                found[metric] = family.children
        return found

    def labelled(self, label: str) -> Iterator[Child]:
        """Yield the series that have a label; series may come meanwhile."""
        families: list[Family[Any]] = [
            *self._counters.values(),
            *self._gauges.values(),
            *self._histograms.values(),
        ]
        for family in families:
            if label in family.metric.labels:
                for labels in list(family.children):
                    yield Child(family, labels)

    def remove(self, children: Iterable[Child]) -> None:
        """Remove series; should they come again, they begin at 0."""
        for family, labels in children:
            family.children.pop(labels, None)
        for forget in self._on_remove:
            forget()

    def on_remove(self, forget: Callable[[], None]) -> None:
        """Call `forget` when series were removed, some of whose instruments it may have kept."""
        self._on_remove.append(forget)

    def run_collectors(self, samples: Samples) -> Iterator[None]:
        """Read the state of the node, one unit of work at a time."""
        for collector in self._collectors:
            yield from collector(samples)


class UncountedRegistry(Registry):
    """For a node whose metrics are switched off: its histograms ignore what they observe.

    Counters of hot paths are incremented all the same, which costs less than to ask.
    """

    _observes = UncountedHistogram
