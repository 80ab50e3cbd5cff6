"""Exports the metrics of a node to a collector of OpenTelemetry, in an interval."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import NamedTuple

from goqueue.broker.metrics.scrape import Write
from goqueue.config import MetricsSettings
from goqueue.config.metrics import GZIP
from goqueue.loop.clock import NANOSECONDS, Clock, Handle
from goqueue.loop.promise import Promise
from goqueue.metrics import Registry, Samples
from goqueue.metrics import catalogue as metrics
from goqueue.metrics.otlp.sending import Answer, Sending
from goqueue.metrics.otlp.writing import Times, request, write
from goqueue.model.errors import GoQueueError
from goqueue.model.support import release
from goqueue.runtime.measuring.collector import Collector

STOP_SECONDS_MAX = 2.0  # a stop waits so long for the last export

_log = logging.getLogger(__name__)


class ExportedNode(NamedTuple):
    """What the exported metrics are about."""

    node_id: int
    cluster_id: Callable[[], str]  # not known before the node has joined its cluster


class MetricsExport:
    """Collects, queues and sends the metrics. One request is on its way at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
        settings: MetricsSettings,
        node: ExportedNode,
        collect: Callable[[Write], Promise[bytes]],
    ) -> None:
        """`collect` returns all metrics as encoded by what it is given."""
        self._loop = loop
        self._clock = clock
        self._settings = settings
        self._node = node
        self._collect = collect
        self._start_ns = clock.wall_ms() * NANOSECONDS
        self._sending = Sending(random)
        self._rejected = 0
        self._collector = Collector(
            settings.otlp_endpoint,
            dict(settings.otlp_headers),
            settings.otlp_timeout_ms,
            is_compressed=settings.otlp_compression == GZIP,
            authorities=settings.otlp_authorities,
        )
        self._is_failing = False
        self._is_stopping = False
        self._timer: Handle | None = None
        self._retry: Handle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def measure(self, registry: Registry) -> None:
        """Count the exports themselves."""
        registry.collect(self._count)

    def start(self) -> None:
        self._timer = self._clock.call_later(self._settings.otlp_interval_ms, self._due)

    async def stop(self) -> None:
        """Send the metrics once more, if the collector is fast."""
        self._is_stopping = True
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        if self._is_failing:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._idle.wait()
                self._idle.clear()
                self._begin()
                await self._idle.wait()
        except TimeoutError:
            _log.info("the last metrics were not exported in time")

    def _due(self) -> None:
        self.start()
        self._begin()

    def _begin(self) -> None:
        times = Times(self._start_ns, self._clock.wall_ms() * NANOSECONDS)
        try:
            encoded = self._collect(partial(write, times=times))
        except GoQueueError as error:  # Too many scrapes wait already.
            self._collected(None, error)
        else:
            encoded.then(self._collected)

    def _collected(self, encoded: bytes | None, error: Exception | None) -> None:
        if encoded is None:
            _log.warning("the metrics could not be collected for their export: %s", error)
            self._idle.set()
            return
        body = request(self._attributes(), release(), encoded)
        self._sending.add(body)
        self._send()

    def _attributes(self) -> dict[str, str]:
        return {
            **dict(self._settings.otlp_attributes),
            "service.name": self._settings.otlp_service_name,
            "service.version": release(),
            "service.instance.id": f"{self._node.cluster_id()}/{self._node.node_id}",
            "goqueue.cluster.id": self._node.cluster_id(),
            "goqueue.node.id": str(self._node.node_id),
        }

    # Sending

    def _send(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        body = self._sending.take(self._clock.now_ms())
        if body is None:
            self._send_later()
            return
        self._idle.clear()
        # A thread of its own, because those of the node must not wait for a collector.
        thread = threading.Thread(target=self._post, args=(body,), name="otlp", daemon=True)
        thread.start()

    def _post(self, body: bytes) -> None:
        answer = self._collector.post(body)
        try:
            self._loop.call_soon_threadsafe(partial(self._answered, answer))
        except RuntimeError:
            return  # The node has stopped meanwhile.

    def _answered(self, answer: Answer) -> None:
        self._sending.answered(answer, self._clock.now_ms())
        self._rejected += answer.rejected
        self._log(answer)
        self._idle.set()
        if not self._is_stopping:
            self._send()

    def _send_later(self) -> None:
        wait_ms = self._sending.wait_ms(self._clock.now_ms())
        if wait_ms is not None and self._retry is None and not self._is_stopping:
            self._retry = self._clock.call_later(wait_ms, self._send)

    def _log(self, answer: Answer) -> None:
        """Log once that exports fail, and once that they succeed again."""
        if answer.is_success == self._is_failing:
            address = self._settings.otlp_endpoint
            if answer.is_success:
                _log.info("metrics are exported to %s again", address)
            else:
                what = f"{answer.status or ''} {answer.reason}".strip()
                _log.warning("metrics cannot be exported to %s: %s", address, what)
        self._is_failing = not answer.is_success

    def _count(self, samples: Samples) -> Iterator[None]:
        sending = self._sending
        for outcome, count in (
            ("accepted", sending.sent),
            ("failed", sending.failed),
            ("dropped", sending.dropped),
        ):
            samples.set(metrics.METRICS_EXPORTS, count, outcome)
        samples.set(metrics.METRICS_EXPORT_REJECTED, self._rejected)
        samples.set(metrics.METRICS_EXPORT_WAITING, sending.waiting)
        yield
