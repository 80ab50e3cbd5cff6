"""Scrapes: in slices, one at a time, joined if they want the same, ended if nobody waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from goqueue.broker.metrics.scrape import (
    PIECES_PER_SLICE,
    UNITS_PER_SLICE,
    WAITING_MAX,
    Scraper,
    Wanted,
)
from goqueue.loop.promise import Cancellation, Promise
from goqueue.metrics import Registry, Samples
from goqueue.metrics import catalogue as c
from goqueue.metrics.rendering import PIECE_LINES
from goqueue.metrics.text_format import TextFormat
from goqueue.model.errors import RequestTimedOut
from tests.simulation.clock import VirtualClock

ALL = Wanted(frozenset(), TextFormat.PROMETHEUS)
DETAILS = Wanted(frozenset({c.PARTITIONS}), TextFormat.PROMETHEUS)
OPEN = Wanted(frozenset(), TextFormat.OPENMETRICS)
SERIES = 3 * UNITS_PER_SLICE + 1


class Place:
    """A scraper, and what its collector does in each turn of the loop."""

    def __init__(self, series: int = SERIES) -> None:
        self.clock = VirtualClock()
        self.registry = Registry()
        self.prepared = 0
        self.waits: Promise[None] | None = None  # what a scrape has to prepare
        self.units: list[int] = []  # the step of the clock in which each was done
        self.series = series
        self.scraper = Scraper(self.clock.node(), self.registry, self._prepare)
        self.registry.collect(self._collect)

    async def _prepare(self, samples: Samples) -> None:
        self.prepared += 1
        if self.waits is not None:
            await self.waits

    def _collect(self, samples: Samples) -> Iterator[None]:
        for number in range(self.series):
            samples.set(c.STORAGE_LOG, number, f"topic{number}")
            samples.set(c.PARTITION_LOG, number, f"topic{number}", "0")
            self.units.append(self.clock.steps)
            yield

    def scrape(
        self, wanted: Wanted = ALL, cancellation: Cancellation | None = None
    ) -> Promise[bytes]:
        return self.scraper.scrape(wanted, cancellation or Cancellation())

    def run(self, ms: float = 100) -> None:
        self.clock.run_for(ms)


def text_of(promise: Promise[bytes]) -> str:
    found: list[bytes] = []
    promise.then(lambda text, error: found.append(text or b""))
    assert found, "it is not answered yet"
    return found[0].decode()


def test_collecting_takes_a_bounded_part_of_each_turn() -> None:
    place = Place()
    place.scrape()
    place.run()
    assert len(place.units) == SERIES
    assert max(Counter(place.units).values()) == UNITS_PER_SLICE


def test_a_long_text_is_whole() -> None:
    place = Place(series=10 * PIECES_PER_SLICE * PIECE_LINES)
    answer = place.scrape()
    place.run()
    lines = text_of(answer).splitlines()
    assert sum(line.startswith("goqueue_storage_log_bytes{") for line in lines) == place.series


def test_equal_scrapes_that_wait_are_answered_together() -> None:
    place = Place()
    first = place.scrape()
    second, third = place.scrape(), place.scrape()
    assert place.scraper.waiting == 1
    place.run()
    assert place.prepared == 2, "the first had begun already"
    assert text_of(first)
    assert text_of(second) == text_of(third)


def test_others_wait_for_their_turn() -> None:
    place = Place()
    place.waits = Promise()
    answers = [place.scrape(one) for one in (ALL, DETAILS, OPEN)]
    place.run()
    assert place.prepared == 1
    place.waits.resolve(None)
    place.run()
    assert place.prepared == 3
    assert "goqueue_partition_log_bytes" in text_of(answers[1])
    assert "goqueue_partition_log_bytes" not in text_of(answers[0])
    assert text_of(answers[2]).endswith("# EOF\n")


def test_a_client_that_hangs_up_ends_its_scrape() -> None:
    place = Place()
    cancellation = Cancellation()
    place.scrape(cancellation=cancellation)
    cancellation.cancel()
    place.run()
    assert len(place.units) == UNITS_PER_SLICE
    place.scrape()
    place.run()
    assert len(place.units) == UNITS_PER_SLICE + SERIES


def test_a_scrape_goes_on_while_anybody_waits_for_it() -> None:
    place = Place()
    place.waits = Promise()
    place.scrape(DETAILS)
    gone = Cancellation()
    place.scrape(ALL, gone)
    stays = place.scrape(ALL)
    gone.cancel()
    place.waits.resolve(None)
    place.run()
    assert "goqueue_storage_log_bytes" in text_of(stays)


def test_a_waiting_scrape_that_nobody_wants_any_more_is_skipped() -> None:
    place = Place()
    place.waits = Promise()
    place.scrape(DETAILS)
    gone = Cancellation()
    place.scrape(ALL, gone)
    gone.cancel()
    place.waits.resolve(None)
    place.run()
    assert place.prepared == 1
    assert place.scraper.waiting == 0


def test_too_many_scrapes_are_refused() -> None:
    place = Place()
    place.waits = Promise()
    place.scrape()
    for number in range(WAITING_MAX):
        place.scrape(ALL._replace(tenant=f"tenant{number}"))
    with pytest.raises(RequestTimedOut):
        place.scrape(ALL._replace(tenant="one more"))


def test_an_error_is_that_of_one_scrape() -> None:
    place = Place()
    place.waits = Promise()
    failing = place.scrape()
    place.waits.reject(ValueError("broken"))
    errors: list[Exception | None] = []
    failing.then(lambda _, error: errors.append(error))
    assert [type(one) for one in errors] == [ValueError]
    place.waits = None
    answer = place.scrape()
    place.run()
    assert text_of(answer)


def test_the_default_tenant_gets_what_belongs_to_no_other() -> None:
    place = Place(series=0)
    registry = place.registry
    registry.counter(c.PRODUCER_MESSAGES, "~acme~orders").value += 3
    registry.counter(c.PRODUCER_MESSAGES, "orders").value += 5
    registry.counter(c.TENANT_MESSAGES, "acme", "in").value += 3
    registry.counter(c.AUDIT_LOST).value += 1
    answer = place.scrape(ALL._replace(tenant=""))
    place.run()
    assert 'goqueue_producer_messages_total{topic="orders"} 5' in text_of(answer)
    assert "goqueue_audit_lost_total 1" in text_of(answer)
    assert "acme" not in text_of(answer)


def test_a_tenant_gets_its_own_series_under_plain_names() -> None:
    place = Place(series=0)
    registry = place.registry
    registry.counter(c.PRODUCER_MESSAGES, "~acme~orders").value += 3
    registry.counter(c.PRODUCER_MESSAGES, "~other~orders").value += 4
    registry.counter(c.PRODUCER_MESSAGES, "orders").value += 5
    registry.counter(c.QUEUE_DELIVERED, "~acme~shop", "~acme~orders").value += 6
    registry.counter(c.TENANT_MESSAGES, "acme", "in").value += 3
    registry.counter(c.TENANT_MESSAGES, "other", "in").value += 4
    registry.counter(c.AUDIT_LOST).value += 1
    answer = place.scrape(ALL._replace(tenant="acme"))
    place.run()
    values = [line for line in text_of(answer).splitlines() if not line.startswith("#")]
    assert values == [
        'goqueue_producer_messages_total{topic="orders"} 3',
        'goqueue_queue_delivered_total{group="shop",topic="orders"} 6',
        'goqueue_tenant_messages_total{tenant="acme",direction="in"} 3',
    ]


def test_the_default_tenant_gets_the_series_of_the_node_and_its_own() -> None:
    place = Place(series=0)
    registry = place.registry
    registry.counter(c.PRODUCER_MESSAGES, "~acme~orders").value += 3
    registry.counter(c.PRODUCER_MESSAGES, "orders").value += 5
    registry.counter(c.PRODUCER_MESSAGES, "~odd").value += 7
    registry.counter(c.QUEUE_DELIVERED, "~acme~shop", "~acme~orders").value += 6
    registry.counter(c.TENANT_MESSAGES, "acme", "in").value += 3
    registry.counter(c.AUDIT_LOST).value += 1
    answer = place.scrape(ALL._replace(tenant=""))
    place.run()
    lines = text_of(answer).splitlines()
    assert not any("acme" in line for line in lines)
    for line in (
        'goqueue_producer_messages_total{topic="orders"} 5',
        'goqueue_producer_messages_total{topic="~odd"} 7',
        "goqueue_audit_lost_total 1",
    ):
        assert line in lines
