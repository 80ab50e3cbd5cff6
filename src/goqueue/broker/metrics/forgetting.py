"""Removes the series of topics that were deleted, after every scraper has seen their last values.

It runs with the scrapes, in slices of them; so a node that nobody scrapes removes nothing, but the
number of its series is limited in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.broker.topics.topics import Topics
from goqueue.loop.clock import Clock
from goqueue.metrics import Registry, Samples
from goqueue.metrics.registry import OTHER, Child

KEPT_MS = 15 * 60_000  # after a topic was first seen to be gone
INTERVAL_MS = 60_000  # between two sweeps
SERIES_PER_SWEEP_MAX = 10_000  # the next sweep removes others
SERIES_PER_UNIT = 20  # about as much work as a partition
_TOPIC = "topic"


class DeletedTopics:
    """Finds the series of topics that no longer exist."""

    def __init__(self, clock: Clock, topics: Topics, registry: Registry) -> None:
        self._clock = clock
        self._topics = topics
        self._registry = registry
        self._gone_since: dict[str, int] = {}
        self._swept_ms = -INTERVAL_MS

    def collect(self, _: Samples) -> Iterator[None]:
        """Sweep, unless that was done a moment ago; a collector that adds no samples."""
        now_ms = self._clock.now_ms()
        if now_ms - self._swept_ms < INTERVAL_MS:
            return
        self._swept_ms = now_ms
        gone_since: dict[str, int] = {}
        due: dict[str, list[Child]] = {}
        left = SERIES_PER_SWEEP_MAX
        for number, one in enumerate(self._registry.labelled(_TOPIC)):
            if number % SERIES_PER_UNIT == 0:
                yield
            topic = one.value_of(_TOPIC)
            if topic == OTHER or self._topics.find(topic) is not None:
                continue
            since = gone_since[topic] = self._gone_since.get(topic, now_ms)
            if left > 0 and now_ms - since >= KEPT_MS:
                due.setdefault(topic, []).append(one)
                left -= 1
        self._gone_since = gone_since
        for topic, children in due.items():
            if self._topics.find(topic) is None:
                # All at once, because the topic may be created again in the next turn.
                self._registry.remove(children)
                yield
