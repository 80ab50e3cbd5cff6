"""What two scrapes of all nodes say: rates, sums and quantiles of the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from goqueue.client.http import Node, Sample
from goqueue.client.http.samples import Labels
from goqueue.model.errors import GoQueueError

Values = dict[tuple[str, ...], float]  # by the values of some labels

_INFINITE = "+Inf"


@dataclass(slots=True)
class Scrape:
    """The metrics of one node."""

    at: float  # in seconds, of a clock that does not jump
    series: dict[str, dict[Labels, float]]


def scrape_of(at: float, samples: Iterable[Sample]) -> Scrape:
    series: dict[str, dict[Labels, float]] = defaultdict(dict)
    for name, labels, value in samples:
        series[name][labels] = value
    return Scrape(at, dict(series))


@dataclass(slots=True)
class Round:
    """An attempt to scrape all nodes: by address, the metrics of each or why there are none."""

    scrapes: dict[str, Scrape] = field(default_factory=dict)
    failures: dict[str, GoQueueError] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)  # those that the cluster has told of
    cluster_id: str = ""


@dataclass(slots=True)
class Measured:
    """The last round, and what has changed since the rounds before."""

    last: Round
    before: Mapping[str, Scrape]  # by address, the scrape of each node before its last

    def followed_by(self, done: Round) -> Measured:
        """What the next round adds; a node that did not answer for a while is still compared."""
        return Measured(done, {**self.before, **self.last.scrapes})

    def rate(self, name: str, *by: str, where: Mapping[str, str] | None = None) -> Values:
        """How much a counter has grown per second, summed over the nodes."""
        found: Values = defaultdict(float)
        for address in self.last.scrapes:
            for labels, grown in self._grown(address, name):
                if _fits(labels, where):
                    found[_values(labels, by)] += grown
        return dict(found)

    def rate_of_node(self, address: str, name: str) -> float | None:
        """How much a counter has grown per second on one node; None if it is not exported."""
        if name not in self.last.scrapes[address].series:
            return None
        return sum(grown for _, grown in self._grown(address, name))

    def total(self, name: str, *by: str) -> Values:
        """The sum of a gauge, or of a counter since the start, over the nodes."""
        found: Values = defaultdict(float)
        for labels, value in self._all(name):
            found[_values(labels, by)] += value
        return dict(found)

    def highest(self, name: str, *by: str) -> Values:
        """The largest value of a gauge."""
        found: Values = {}
        for labels, value in self._all(name):
            key = _values(labels, by)
            found[key] = max(found.get(key, value), value)
        return found

    def of_node(self, address: str, name: str) -> float | None:
        """The sum of a gauge on one node; None if the node does not export it."""
        values = self.last.scrapes[address].series.get(name)
        return sum(values.values()) if values else None

    def quantile(self, share: float, name: str, *, address: str = "") -> float | None:
        """A quantile of a histogram since the round before; None if nothing was observed."""
        buckets: dict[str, float] = defaultdict(float)
        for one in [address] if address else self.last.scrapes:
            for labels, grown in self._grown(one, f"{name}_bucket"):
                buckets[dict(labels)["le"]] += grown
        return quantile_of(share, buckets)

    def _all(self, name: str) -> Iterator[tuple[Labels, float]]:
        for scrape in self.last.scrapes.values():
            yield from scrape.series.get(name, {}).items()

    def _grown(self, address: str, name: str) -> Iterator[tuple[Labels, float]]:
        """By how much each series of a counter has grown per second on a node."""
        now, then = self.last.scrapes[address], self.before.get(address)
        if then is None or now.at <= then.at:
            return
        known = then.series.get(name, {})
        for labels, value in now.series.get(name, {}).items():
            old = known.get(labels, 0.0)
            # A counter that has decreased is that of a new process, which began at 0.
            yield labels, (value - old if value >= old else value) / (now.at - then.at)


def quantile_of(share: float, buckets: Mapping[str, float]) -> float | None:
    """The quantile of a histogram whose buckets include the lower ones, by upper bound.

    It is interpolated in its bucket, as Prometheus does; in the last, it is the lower bound.
    """
    total = buckets.get(_INFINITE, 0.0)
    if total <= 0:
        return None
    wanted = share * total
    bounds = sorted((float(bound), count) for bound, count in buckets.items())
    for (low, below), (high, count) in pairwise([(0.0, 0.0), *bounds]):
        if count >= wanted:
            inside = count - below
            part = (wanted - below) / inside if inside else 1.0
            return low if high == float("inf") else low + (high - low) * part
    return bounds[-1][0]


def _fits(labels: Labels, where: Mapping[str, str] | None) -> bool:
    return not where or all((name, value) in labels for name, value in where.items())


def _values(labels: Labels, by: tuple[str, ...]) -> tuple[str, ...]:
    found = dict(labels)
    return tuple(found.get(name, "") for name in by)
