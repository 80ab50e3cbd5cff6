"""Scrapes: the metrics of a node as text, collected and rendered in slices of the event loop.

A slice is bounded by the number of partitions, groups or lines, because the core reads no clock for
it. Scrapes run one at a time. One that wants the same as another joins it if that has not begun to
collect, and waits for its turn otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

from goqueue.loop.clock import Clock
from goqueue.loop.promise import Cancellation, Promise, start
from goqueue.loop.turns import turn
from goqueue.metrics import Instrument, Metric, Registry, Samples
from goqueue.metrics import catalogue as c
from goqueue.metrics.registry import SERIES_MAX
from goqueue.metrics.rendering import Series, render
from goqueue.metrics.samples import Labels
from goqueue.metrics.text_format import TextFormat
from goqueue.model.errors import RequestTimedOut
from goqueue.model.tenants import prefix_of, prefix_of_tenant

UNITS_PER_SLICE = 100  # partitions, groups or lanes: about a millisecond
PIECES_PER_SLICE = 3  # of the text, `PIECE_LINES` each: about a millisecond
OWNED_PER_SLICE = 2_000  # series that are compared with the name of a tenant
WAITING_MAX = 50  # scrapes that wait for their turn

_NAMES = ("topic", "group")  # labels whose values belong to a tenant
_TENANT = "tenant"


class Wanted(NamedTuple):
    """What a scrape returns; equal ones are answered together."""

    details: frozenset[str]  # families of details; none for the aggregated metrics
    text_format: TextFormat | None  # None: an encoding of the caller's
    # Only what belongs to this tenant, under plain names, or to the node and the default tenant, if
    # that is the one; None: everything.
    tenant: str | None = None


# Encodes all metrics, a piece at a time.
Write = Callable[[Iterable[Series]], Iterator[bytes]]


class _Scrape:
    """One scrape, for all that have requested the same."""

    def __init__(self, wanted: Wanted, write: Write) -> None:
        self.wanted = wanted
        self.write = write
        self.result: Promise[bytes] = Promise()
        self.clients = 0

    def leave(self) -> None:
        """Note that a client has disconnected; without clients the scrape ends."""
        self.clients -= 1


class Scraper:
    """Collects and renders the metrics of a node."""

    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        prepare: Callable[[Samples], Coroutine[Promise[Any], None, None]],
    ) -> None:
        """`prepare` gets what the collectors need from other nodes or from disk."""
        self._clock = clock
        self._registry = registry
        self._prepare = prepare
        self._waiting: deque[_Scrape] = deque()
        self._running: _Scrape | None = None
        self._began_ms = 0
        self._duration = registry.histogram(c.METRICS_SCRAPE_DURATION)
        self._left_out = registry.gauge(c.METRICS_SERIES_LEFT_OUT)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def scrape(self, wanted: Wanted, cancellation: Cancellation) -> Promise[bytes]:
        """Return the metrics as text."""
        assert wanted.text_format is not None
        write = partial(render, text_format=wanted.text_format)
        return self._request(wanted, write, cancellation)

    def export(self, write: Write) -> Promise[bytes]:
        """Return the metrics, without details, in an encoding of the caller's."""
        return self._request(Wanted(frozenset(), None), write, Cancellation())

    def _request(self, wanted: Wanted, write: Write, cancellation: Cancellation) -> Promise[bytes]:
        scrape = next((one for one in self._waiting if one.wanted == wanted), None)
        if scrape is None:
            if len(self._waiting) >= WAITING_MAX:
                raise RequestTimedOut(f"{WAITING_MAX} scrapes are waiting already; retry later.")
            scrape = _Scrape(wanted, write)
            self._waiting.append(scrape)
        scrape.clients += 1
        cancellation.on_cancel(scrape.leave)
        if self._running is None:
            self._begin_next()
        return scrape.result

    def _begin_next(self) -> None:
        """Begin the next scrape that somebody still waits for."""
        while self._waiting:
            scrape = self._waiting.popleft()
            if scrape.clients > 0:
                self._running = scrape
                self._began_ms = self._clock.now_ms()
                start(self._run(scrape), self._ended)
                return

    def _ended(self, text: bytes | None, error: Exception | None) -> None:
        assert self._running is not None
        scrape, self._running = self._running, None
        self._duration.observe((self._clock.now_ms() - self._began_ms) / 1000)
        # The next one begins in a turn of its own.
        self._clock.call_soon(self._begin_if_idle)
        scrape.result.settle(text if text is not None else b"", error)

    def _begin_if_idle(self) -> None:
        if self._running is None:
            self._begin_next()

    async def _run(self, scrape: _Scrape) -> bytes:
        wanted = scrape.wanted
        samples = Samples(wanted.details, series_max=SERIES_MAX)
        await self._prepare(samples)
        await self._in_slices(scrape, self._registry.run_collectors(samples), UNITS_PER_SLICE)
        self._left_out.value = samples.left_out
        series: Iterable[Series] = self._series(samples)
        if wanted.tenant is not None:
            series = await self._owned(scrape, series, wanted.tenant)
        pieces: list[bytes] = []
        text = _gather(scrape.write(series), pieces)
        await self._in_slices(scrape, text, PIECES_PER_SLICE)
        return b"".join(pieces)

    async def _in_slices(self, scrape: _Scrape, units: Iterator[None], count: int) -> None:
        """Do some units of work in each turn of the event loop, until nobody waits for them."""
        while scrape.clients > 0 and sum(1 for _ in islice(units, count)) == count:
            await turn(self._clock)

    def _series(self, samples: Samples) -> Iterator[Series]:
        """Yield the instruments and what was collected, in the order of the catalogue.

        What was collected is released with each metric, because that takes time too.
        """
        instruments = self._registry.families()
        for metric in c.CATALOGUE.values():
            if samples.wants(metric):
                known, collected = instruments.get(metric, {}), samples.take(metric)
                if known or collected:
                    yield Series(metric, chain(list(known.items()), collected.items()))

    async def _owned(self, scrape: _Scrape, series: Iterable[Series], tenant: str) -> list[Series]:
        """Return the series that belong to a tenant, with the names that its users know.

        The default tenant has those of the node as well.
        """
        owned: list[Series] = []
        for metric, values in series:
            if not is_of_tenants(metric):
                owned += [] if tenant else [Series(metric, values)]
            else:
                mine: list[tuple[Labels, Instrument | float]] = []
                units = _pick(metric, values, tenant, mine)
                await self._in_slices(scrape, units, OWNED_PER_SLICE)
                owned += [Series(metric, mine)] if mine else []
        return owned


def _gather(text: Iterable[bytes], pieces: list[bytes]) -> Iterator[None]:
    for piece in text:
        pieces.append(piece)
        yield


def is_of_tenants(metric: Metric) -> bool:
    """Whether the series of a metric belong to tenants."""
    return any(label in metric.labels for label in (*_NAMES, _TENANT))


def _pick(
    metric: Metric,
    values: Iterable[tuple[Labels, Instrument | float]],
    tenant: str,
    mine: list[tuple[Labels, Instrument | float]],
) -> Iterator[None]:
    """Add the series of a tenant to `mine`."""
    prefix = prefix_of_tenant(tenant)
    named = [number for number, label in enumerate(metric.labels) if label in _NAMES]
    tenants = [number for number, label in enumerate(metric.labels) if label == _TENANT]
    for labels, value in values:
        yield
        if all(labels[number] == tenant for number in tenants) and all(
            prefix_of(labels[number]) == prefix for number in named
        ):
            shown = tuple(
                label.removeprefix(prefix) if number in named else label
                for number, label in enumerate(labels)
            )
            mine.append((shown, value))
