"""Delays of the event loop, and pauses for garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from goqueue.metrics import Registry
from goqueue.metrics import catalogue as metrics
from goqueue.runtime.measuring.loop_probe import PROBE_SECONDS, CollectionWatch, LoopProbe


class Loop:
    """Runs a timer when the test says so, however late."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Callable[[], None]] = []

    def call_later(self, seconds: float, action: Callable[[], None]) -> Loop:
        assert seconds == PROBE_SECONDS
        self.timers.append(action)
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def run_late(self, seconds: float) -> None:
        self.now += PROBE_SECONDS + seconds
        self.timers.pop()()


def test_each_delay_is_observed_by_itself() -> None:
    loop: Any = Loop()
    registry = Registry()
    probe = LoopProbe(loop, registry, seconds=lambda: loop.now)
    probe.start()
    for late in (0.25, 0.0, -0.001, 1.5):
        loop.run_late(late)
    lag = registry.histogram(metrics.LOOP_LAG)
    assert lag.count == 4
    assert abs(lag.sum - 1.75) < 1e-9
    assert lag.counts[0] == 2
    probe.stop()
    assert loop.timers == []


def test_collections_are_counted_while_they_are_watched() -> None:
    registry = Registry()
    watch = CollectionWatch(registry)
    gc.collect()
    watch.start()
    gc.collect()
    gc.collect()
    watch.stop()
    gc.collect()
    watch.stop()
    assert registry.counter(metrics.GC_COLLECTIONS).value == 2
    assert registry.histogram(metrics.GC_PAUSE).count == 2
    assert registry.histogram(metrics.GC_PAUSE).sum > 0
