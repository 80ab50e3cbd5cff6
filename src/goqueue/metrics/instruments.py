"""Counters, gauges and histograms: plain attributes, changed by the event loop alone.

A hot path keeps its instrument and writes `counter.value += 1`; there is no method call to pay for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

# 0.5 ms to 5 s: calls, syncs, event-loop delay.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# 5 ms to 15 min: what takes as long as clients want it to.
LONG_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0)


class Counter:
    """Counts what this node has done; it never decreases."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Gauge:
    """A current value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Exemplar(NamedTuple):
    """One observation of a bucket, with the trace that it belongs to."""

    trace_id: str
    value: float
    at_ms: int


class Histogram:
    """Counts observations by size; a bucket has those that do not exceed its bound."""

    __slots__ = ("bounds", "counts", "exemplars", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # of each bucket alone; the last is unbounded
        self.sum: float = 0
        self.exemplars: dict[int, Exemplar] = {}  # by bucket, the latest each

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float, count: int = 1) -> None:
        """Count observations of the same size."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def observe_traced(self, value: float, trace_id: str, at_ms: int) -> None:
        """Count an observation, and keep its trace as the exemplar of its bucket."""
        bucket = bisect_left(self.bounds, value)
        self.counts[bucket] += 1
        self.sum += value
        self.exemplars[bucket] = Exemplar(trace_id, value, at_ms)


class UncountedHistogram(Histogram):
    """Ignores all observations."""

    __slots__ = ()

    def observe(self, value: float, count: int = 1) -> None:
        pass

    def observe_traced(self, value: float, trace_id: str, at_ms: int) -> None:
        pass


Instrument = Counter | Gauge | Histogram
