"""Counts what the rooms of a node do, and loads what collects the rest when it is scraped."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from goqueue.groups import Rebalance
from goqueue.loop.peers import Answer, PeerKind
from goqueue.loop.promise import Promise
from goqueue.metrics import catalogue as c
from goqueue.partition import Partition
from goqueue.storage.disk import Disk
from goqueue.transactions import Standing, Why

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.gate.client_telemetry import ClientTelemetry
    from goqueue.broker.history.history import History
    from goqueue.broker.metrics.lag import GroupLag
    from goqueue.broker.metrics.scrape import Scraper


class Measuring:
    """The metrics of a node: counted from its start, collected from the first scrape on."""

    def __init__(self, broker: Broker, disk: Disk) -> None:
        self._broker = broker
        self._disk = disk
        self._started_ms = broker.clock.wall_ms()
        if broker.settings.metrics.enabled:
            _count(broker)
        if broker.peers is not None:
            broker.peers.serve(PeerKind.LAG, self._answer_lag)

    # What follows is imported at first use, because a node that nobody scrapes, and to which no
    # client reports, does not need it.

    @cached_property
    def scraper(self) -> Scraper:
        """Answers scrapes; from now on, all that can be collected is."""
        from goqueue.broker.scraping import create_scraper

        return create_scraper(self._broker, self._lag, started_ms=self._started_ms)

    @cached_property
    def client_telemetry(self) -> ClientTelemetry | None:
        """What clients report of themselves; None if they are not asked to."""
        broker, settings = self._broker, self._broker.settings.metrics
        if not settings.asks_clients:
            return None
        from goqueue.broker.gate.client_telemetry import ClientTelemetry

        return ClientTelemetry(broker.clock, broker.random, broker.metrics, settings)

    @cached_property
    def history(self) -> History:
        """The recent past of this node; recorded once the recorder is started."""
        from goqueue.broker.history.figures import NodeParts
        from goqueue.broker.history.history import History

        broker = self._broker
        parts = NodeParts(
            broker.clock, broker.topics, broker.leaders, broker.groups, broker.queues.groups
        )
        return History(parts, broker.metrics, lambda: self._lag)

    @cached_property
    def _lag(self) -> GroupLag:
        from goqueue.broker.scraping import create_lag

        return create_lag(self._broker, self._disk)

    def _answer_lag(self, _: int, head: bytes, __: memoryview) -> Promise[Answer]:
        return self._lag.answer(head)


def _count(broker: Broker) -> None:
    """Count what is no event of messages."""
    registry = broker.metrics
    rebalances = registry.histogram(c.GROUP_REBALANCE_DURATION)
    transactions = registry.histogram(c.TRANSACTION_DURATION)

    def rebalanced(group: str, rebalance: Rebalance) -> None:
        registry.counter(c.GROUP_REBALANCES, group, rebalance.reason.value).value += 1
        rebalances.observe(rebalance.duration_ms / 1000)

    def ended(standing: Standing, why: Why) -> None:
        outcome = "committed" if standing.is_committing else "aborted"
        registry.counter(c.TRANSACTION_ENDED, outcome, why.value).value += 1
        transactions.observe(max(0, standing.updated_ms - standing.started_ms) / 1000)

    def compacted(partition: Partition) -> None:
        registry.counter(c.STORAGE_COMPACTIONS, partition.name.topic).value += 1

    def checked(topic: str, is_valid: bool) -> None:
        outcome = "valid" if is_valid else "invalid"
        registry.counter(c.SCHEMA_CHECKS, topic, outcome).value += 1

    def deduplicated(topic: str, count: int) -> None:
        registry.counter(c.QUEUE_DEDUPLICATED, topic).value += count

    broker.named_queues.deduplicated = deduplicated
    broker.groups.rebalanced = rebalanced
    broker.transactions.ended = ended
    broker.compactor.compacted = compacted
    broker.validation.checked = checked
