"""What of a node only its process can measure: sockets, certificates, the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter

from goqueue.broker import Broker
from goqueue.metrics import Metric, Samples
from goqueue.metrics import catalogue as metrics
from goqueue.runtime.listening import Listener
from goqueue.runtime.measuring.loop_probe import CollectionWatch, LoopProbe
from goqueue.runtime.measuring.process import collect_process


class NodeMeasuring:
    """Gives the listeners their instruments, and reads what is read at each scrape."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        listeners: Sequence[Listener],
        expiries: Mapping[str, Callable[[], int]],
        gauges: Mapping[Metric, Callable[[], int]] | None = None,
    ) -> None:
        """`expiries` have when certificates expire, in milliseconds, by listener.

        `gauges` have what else is counted outside of the broker.
        """
        self._listeners = listeners
        self._gauges = gauges or {}
        self._expiries = expiries
        registry = broker.metrics
        self._probes: list[LoopProbe | CollectionWatch] = []
        if broker.settings.metrics.enabled:
            self._probes = [LoopProbe(loop, registry), CollectionWatch(registry)]
            broker.flusher.measure(registry.histogram(metrics.STORAGE_SYNC_DURATION), perf_counter)
        for one in listeners:
            one.measured = broker.gate.requests.listener(one.rules.name)
        registry.collect(collect_process)
        registry.collect(self._collect)

    def start(self) -> None:
        for probe in self._probes:
            probe.start()

    def stop(self) -> None:
        for probe in self._probes:
            probe.stop()

    def _collect(self, samples: Samples) -> Iterator[None]:
        for one in self._listeners:
            samples.set(metrics.LISTENER_CONNECTIONS, len(one.connections), one.rules.name)
        for metric, count in self._gauges.items():
            samples.set(metric, count())
        for name, expires_ms in self._expiries.items():
            samples.set(metrics.CERTIFICATE_EXPIRY, expires_ms() / 1_000, name)
        yield
