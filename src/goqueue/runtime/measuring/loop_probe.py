"""How late the event loop is, and how long garbage collections stop it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from time import perf_counter

from goqueue.metrics import Registry
from goqueue.metrics import catalogue as metrics

PROBE_SECONDS = 0.5


class LoopProbe:
    """Sets a timer again and again, and observes how late it runs.

    The timers of the event loop have a resolution of a millisecond, which the delay includes.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: Registry,
        *,
        seconds: Callable[[], float] = perf_counter,
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._lag = registry.histogram(metrics.LOOP_LAG)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = self._seconds() + PROBE_SECONDS
        self._timer = self._loop.call_later(PROBE_SECONDS, self._ran)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ran(self) -> None:
        self._lag.observe(max(0.0, self._seconds() - self._due))
        self.start()


class CollectionWatch:
    """Observes the garbage collections of Python, during which nothing else runs."""

    def __init__(self, registry: Registry) -> None:
        self._collections = registry.counter(metrics.GC_COLLECTIONS)
        self._pauses = registry.histogram(metrics.GC_PAUSE)
        self._began = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, _: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = perf_counter()
        else:
            self._collections.value += 1
            self._pauses.observe(perf_counter() - self._began)
