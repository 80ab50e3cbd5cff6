"""Where audit events are written to: a queue each, so that one that is away delays no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topics
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised
from goqueue.model.batch import Record, add_sequence, encode_batch
from goqueue.model.errors import GoQueueError, OutOfOrderSequence, UnknownProducer
from goqueue.model.names import AUDIT_TOPIC
from goqueue.tenancy.audit.events import Severity
from goqueue.tenancy.audit.queue import AuditQueue, QueueLimits

GATHER_MS = 50  # events that happen within it are written together
RETRY_MS = 500
BATCH_EVENTS_MAX = 500
BATCH_BYTES_MAX = 512 << 10
WRITE_TIMEOUT_MS = 15_000  # long enough to elect another leader
PARTITION = 0  # the only one: the events of all nodes are in one order

_NO_PRODUCER = -1

_log = logging.getLogger(__name__)


class Destination(Protocol):
    """Writes the texts of events."""

    @property
    def name(self) -> str: ...

    def write(self, texts: Sequence[bytes]) -> Promise[None]:
        """Resolves when the events are written; after an error the same are written again."""


class Outlet:
    """A queue of events, and the destination that they are written to one batch at a time."""

    def __init__(
        self,
        clock: Clock,
        destination: Destination,
        *,
        report_lost: Callable[[int], bytes],
        limits: QueueLimits | None = None,
    ) -> None:
        """`report_lost` returns the text of the event that so many events were lost."""
        self._clock = clock
        self._destination = destination
        self._report_lost = report_lost
        self._queue = AuditQueue(limits)
        self.lost = 0  # events that there was no room for
        self._batch: list[bytes] = []  # being written, until that has succeeded
        self._is_busy = False
        self._is_failing = False
        self._when_empty: list[Callable[[], None]] = []

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._batch)

    def add(self, severity: Severity, text: bytes, *, count: int) -> None:
        """Queue an event; it is written soon."""
        self._queue.add(severity, text, count=count)
        if not self._is_busy:
            self._is_busy = True
            self._clock.call_later(GATHER_MS, self._write_next)

    def when_empty(self, done: Callable[[], None]) -> None:
        """Call `done` when everything that was added is written."""
        if not self._is_busy and not self.waiting:
            done()
        else:
            self._when_empty.append(done)

    def _write_next(self) -> None:
        if not self._batch:
            self._batch = self._take()
        if not self._batch:
            self._is_busy = False
            done, self._when_empty = self._when_empty, []
            for one in done:
                one()
            return
        self._destination.write(self._batch).then(self._written)

    def _take(self) -> list[bytes]:
        texts = self._queue.take(events_max=BATCH_EVENTS_MAX, bytes_max=BATCH_BYTES_MAX)
        lost = self._queue.take_lost()
        self.lost += lost
        return [self._report_lost(lost), *texts] if lost else texts

    def _written(self, _: None, error: Exception | None) -> None:
        if error is not None:
            if not self._is_failing:
                name, waiting = self._destination.name, self.waiting
                _log.warning("audit: %d events wait for %s: %s", waiting, name, error)
            self._is_failing = True
            self._clock.call_later(RETRY_MS, self._write_next)
            return
        if self._is_failing:
            _log.info("audit: %s is written to again", self._destination.name)
        self._is_failing = False
        self._batch = []
        # In a turn of its own: a write may complete at once.
        self._clock.call_soon(self._write_next)


class AuditTopic:
    """Writes events to the internal topic, on whatever node leads it.

    A batch is written under the same sequence number until it is confirmed, so it is stored once
    even if a response is lost. Only if the leader has forgotten this producer, events may be there
    twice; their ids are the same then.
    """

    name = AUDIT_TOPIC

    def __init__(
        self, topics: Topics, leaders: Leaders, new_producer_id: Callable[[], Promise[int]]
    ) -> None:
        self._topics = topics
        self._leaders = leaders
        self._new_producer_id = new_producer_id
        self._producer_id = _NO_PRODUCER
        self._sequence = 0

    def write(self, texts: Sequence[bytes]) -> Promise[None]:
        return promised(self._write(texts))

    async def _write(self, texts: Sequence[bytes]) -> None:
        topic = self._topics.internal.make(AUDIT_TOPIC)
        if self._producer_id == _NO_PRODUCER:
            self._producer_id, self._sequence = await self._new_producer_id(), 0
        records = [Record(None, text) for text in texts]
        batch = encode_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        try:
            await self._leaders.append(topic, PARTITION, bytes(batch), timeout_ms=WRITE_TIMEOUT_MS)
        except (UnknownProducer, OutOfOrderSequence):
            self._producer_id = _NO_PRODUCER
            raise
        except GoQueueError as error:
            if not error.retryable:
                self._producer_id = _NO_PRODUCER
            raise
        self._sequence = add_sequence(self._sequence, len(records))
