"""What one scrape has collected: values by metric and label values.

Collectors add to it in any order, for instance all metrics of one partition before those of the
next; it is rendered by metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from goqueue.metrics.metric import Metric

Labels = tuple[str, ...]


class Samples:
    """The values of one scrape, at most `series_max`."""

    def __init__(self, details: frozenset[str] = frozenset(), *, series_max: int) -> None:
        """`details` are the requested families of details; none for an aggregated scrape."""
        self.details = details
        self.left_out = 0  # series beyond the bound
        self._series_left = series_max
        self._values: dict[Metric, dict[Labels, float]] = {}

    @property
    def by_metric(self) -> Mapping[Metric, Mapping[Labels, float]]:
        return self._values

    def take(self, metric: Metric) -> Mapping[Labels, float]:
        """Return the values of a metric, and forget them."""
        return self._values.pop(metric, {})

    def wants(self, metric: Metric) -> bool:
        """Whether the scrape includes a metric; a collector may skip what it does not."""
        return metric.detail in self.details if metric.detail else not self.details

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a value."""
        values = self._of(metric)
        if labels in values or self._has_room():
            values[labels] = value

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add to a value, which begins at 0."""
        values = self._of(metric)
        if labels in values or self._has_room():
            values[labels] = values.get(labels, 0) + value

    def maximum(self, metric: Metric, value: float, *labels: str) -> None:
        """Keep the largest of the values."""
        values = self._of(metric)
        if labels in values or self._has_room():
            values[labels] = max(values.get(labels, value), value)

    def minimum(self, metric: Metric, value: float, *labels: str) -> None:
        """Keep the smallest of the values."""
        values = self._of(metric)
        if labels in values or self._has_room():
            values[labels] = min(values.get(labels, value), value)

    def _of(self, metric: Metric) -> dict[Labels, float]:
        known = self._values.get(metric)
        if known is None:
            known = self._values[metric] = {}
        return known

    def _has_room(self) -> bool:
        if self._series_left <= 0:
            self.left_out += 1
            return False
        self._series_left -= 1
        return True


# Reads the state of a room into the samples. It yields after each unit of work, about that of one
# partition, so that the scrape can be divided into slices; state may change in between.
Collector = Callable[[Samples], Iterator[None]]
