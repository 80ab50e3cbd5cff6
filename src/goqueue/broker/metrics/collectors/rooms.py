"""Schedules, transactions, share groups, schemas and journeys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from goqueue.broker.journeys.journeys import Journeys
from goqueue.broker.schedules.schedules import Schedules
from goqueue.broker.schemas.registry import Schemas
from goqueue.broker.transactions.transactions import Transactions
from goqueue.loop.clock import Clock
from goqueue.metrics import Registry, Samples
from goqueue.metrics import catalogue as c

TRANSACTIONS_PER_UNIT = 10  # less work each than a partition


class ScheduleCollector:
    """Scheduled messages of the logs that this node owns, and how late it released them."""

    def __init__(self, schedules: Schedules, registry: Registry) -> None:
        self._schedules = schedules
        self._lateness = registry.histogram(c.SCHEDULE_LATENESS)

    def collect(self, samples: Samples) -> Iterator[None]:
        if not samples.wants(c.SCHEDULE_PENDING):
            return
        lateness = self._schedules.shards.metrics.lateness
        self._lateness.counts = lateness.buckets([1000 * one for one in self._lateness.bounds])
        self._lateness.sum = lateness.sum_ms / 1000
        if any(True for _ in self._schedules.shards):
            found = self._schedules.stats()
            samples.set(c.SCHEDULE_PENDING, found.pending)
            if found.next_due_ms is not None:
                samples.set(c.SCHEDULE_NEXT_DUE, found.next_due_ms / 1000)
        yield


class TransactionCollector:
    """Open transactions of the coordinators here."""

    def __init__(self, clock: Clock, transactions: Transactions) -> None:
        self._clock = clock
        self._transactions = transactions

    def collect(self, samples: Samples) -> Iterator[None]:
        if not samples.wants(c.TRANSACTION_OPEN):
            return
        now_ms = self._clock.now_ms()
        for shard in list(self._transactions.shards):
            samples.add(c.TRANSACTION_OPEN, 0)
            samples.maximum(c.TRANSACTION_OLDEST_AGE, 0)
            for number, started_ms in enumerate(shard.machine.open_since_ms()):
                samples.add(c.TRANSACTION_OPEN, 1)
                age_ms = max(0, now_ms - started_ms)
                samples.maximum(c.TRANSACTION_OLDEST_AGE, age_ms / 1000)
                if number % TRANSACTIONS_PER_UNIT == 0:
                    yield
            yield


class ShareGroupCollector:
    """Members of the share groups that this node coordinates."""

    def __init__(self, counts: Callable[[], Iterable[tuple[str, int]]]) -> None:
        """`counts` returns the number of members by group."""
        self._counts = counts

    def collect(self, samples: Samples) -> Iterator[None]:
        if not samples.wants(c.SHARE_GROUP_MEMBERS):
            return
        for group, count in self._counts():
            samples.set(c.SHARE_GROUP_MEMBERS, count, group)
            yield


class SchemaCollector:
    """Subjects, on the node that owns them."""

    def __init__(self, schemas: Schemas, node_id: int) -> None:
        self._schemas = schemas
        self._node_id = node_id

    def collect(self, samples: Samples) -> Iterator[None]:
        if samples.wants(c.SCHEMA_SUBJECTS) and self._schemas.owner() == self._node_id:
            samples.set(c.SCHEMA_SUBJECTS, self._schemas.subject_count())
        yield


class JourneyCollector:
    """What this node writes to the journal, and what it has collected for it."""

    def __init__(self, clock: Clock, journeys: Journeys) -> None:
        self._clock = clock
        self._journeys = journeys

    def collect(self, samples: Samples) -> Iterator[None]:
        if samples.wants(c.JOURNEY_EVENTS):
            recorder, written = self._journeys.recorder, self._journeys.owners.written
            samples.set(c.JOURNEY_EVENTS, written.events)
            samples.set(c.JOURNEY_WRITTEN, written.bytes)
            samples.set(c.JOURNEY_RECOVERED, recorder.recovery.recovered)
            now_ms = self._clock.now_ms()
            since = (recorder.outlets.oldest_ms(), recorder.recovery.oldest_ms())
            oldest_ms = min([one for one in since if one is not None], default=now_ms)
            samples.set(c.JOURNEY_LAG, (now_ms - oldest_ms) / 1000)
        yield
