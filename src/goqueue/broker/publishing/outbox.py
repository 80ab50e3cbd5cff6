"""Sends records published at one node of a cluster to the leaders of their partitions.

A batch is retried until its leader has responded, across leader changes too, so duplicates must be
detected: each partition is written to by a producer of this node's own, one batch at a time.
Records published meanwhile are queued and become one batch, so that a slow leader adds latency but
does not reduce throughput.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from goqueue.broker.publishing.gathering import BATCH_RECORDS_MAX, OF_ONE_RECORD, Share
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import HEADER_BYTES, add_sequence, encode_batch
from goqueue.model.errors import (
    GoQueueError,
    NotEnoughReplicas,
    OutOfOrderSequence,
    RequestTimedOut,
    StorageFailed,
    StorageFull,
    UnknownProducer,
)
from goqueue.partition import Appended

WRITE_TIMEOUT_MS = 15_000  # long enough to elect another leader
LINE_BYTES_MAX = 64 << 20  # queued for one partition; more is refused
LINES_MAX = 20_000  # partitions remembered; beyond that, idle ones are forgotten

_NO_PRODUCER = -1
# Transient errors that are reported to the client as they are.
_CLEAR = (NotEnoughReplicas, StorageFull, StorageFailed)
# The leader has expired this producer, or never had it: nothing was stored.
_FORGOTTEN = (UnknownProducer, OutOfOrderSequence)


@dataclass(slots=True)
class _Waiting:
    share: Share
    since_ms: int


@dataclass(slots=True)
class _Line:
    """The queue of one partition, by lane, and this node's producer identity there."""

    topic: Topic
    number: int
    lanes: dict[int, deque[_Waiting]] = field(default_factory=dict)
    size: int = 0
    is_busy: bool = False
    producer_id: int = _NO_PRODUCER
    sequence: int = 0


class Outbox:
    """Replaces `Gatherer` in a cluster."""

    def __init__(
        self,
        clock: Clock,
        leaders: Leaders,
        new_producer_id: Callable[[], Promise[int]],
        *,
        producer_epoch: int = 0,
    ) -> None:
        self._clock = clock
        self._leaders = leaders
        self._new_producer_id = new_producer_id
        self._producer_epoch = producer_epoch
        self._lines: dict[tuple[bytes, int], _Line] = {}

    def add(self, topic: Topic, number: int, lane: int, share: Share) -> None:
        """Add a share; it is notified when it is committed or refused."""
        line = self._line(topic, number)
        if line.size + share.size > LINE_BYTES_MAX:
            text = f"Too many bytes are queued for {topic.name}/{number}; retry later."
            share.refused(RequestTimedOut(text))
            return
        line.size += share.size
        waiting = _Waiting(share, self._clock.now_ms())
        line.lanes.setdefault(lane, deque()).append(waiting)
        if not line.is_busy:
            # Not immediately: the records of one event-loop turn make one batch.
            line.is_busy = True
            self._go_on(line)

    def _line(self, topic: Topic, number: int) -> _Line:
        line = self._lines.get((topic.id, number))
        if line is None:
            if len(self._lines) >= LINES_MAX:
                self._lines = {place: one for place, one in self._lines.items() if one.is_busy}
            line = self._lines[topic.id, number] = _Line(topic, number)
        return line

    def _next(self, line: _Line) -> None:
        """Write the next batch of a queue, if there is one."""
        shares = self._take(line)
        if not shares:
            line.is_busy = False
            return
        if line.producer_id != _NO_PRODUCER:
            self._write(line, shares)
            return

        def identified(producer_id: int | None, error: Exception | None) -> None:
            if producer_id is None:
                assert isinstance(error, GoQueueError)
                self._refuse(line, shares, error)
            else:
                line.producer_id, line.sequence = producer_id, 0
                self._write(line, shares)

        self._identify(line).then(identified)

    def _identify(self, line: _Line) -> Promise[int]:
        """Get a new producer identity for the partition of a queue."""
        return self._new_producer_id()

    def _take(self, line: _Line) -> list[Share]:
        """Take shares of one lane that fit a batch, without those that have timed out."""
        room = line.topic.settings.message_bytes_max - HEADER_BYTES
        late_ms = self._clock.now_ms() - WRITE_TIMEOUT_MS
        taken: list[Share] = []
        while line.lanes and not taken:
            lane, waiting = next(iter(line.lanes.items()))
            del line.lanes[lane]
            size = count = 0
            while waiting:
                share, is_late = waiting[0].share, waiting[0].since_ms < late_ms
                is_over = size + share.size > room or count + len(share.records) > BATCH_RECORDS_MAX
                if taken and is_over and not is_late:
                    line.lanes[lane] = waiting  # Now behind the other lanes.
                    break
                waiting.popleft()
                line.size -= share.size
                if is_late:
                    share.refused(_too_late(line))
                    continue
                taken.append(share)
                size += share.size
                count += len(share.records)
        return taken

    def _write(self, line: _Line, shares: Sequence[Share], *, is_again: bool = False) -> None:
        records = [record for share in shares for record in share.records]
        try:
            batch = encode_batch(
                records,
                producer_id=line.producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=line.sequence,
            )
        except GoQueueError as error:
            self._refuse(line, shares, error)
            return

        def written(appended: Appended | None, error: Exception | None) -> None:
            if appended is not None:
                line.sequence = add_sequence(line.sequence, len(records))
                self._stored(line, shares, appended)
                return
            if not isinstance(error, GoQueueError):
                assert error is not None
                raise error
            is_forgotten = isinstance(error, _FORGOTTEN) and line.sequence > 0
            # Whether or not the batch was stored, its sequence number is used up: continue under a
            # new identity. Errors caused by a record are found before anything is stored.
            if not isinstance(error, OF_ONE_RECORD):
                line.producer_id = _NO_PRODUCER
            if is_forgotten and not is_again:
                self._write_anew(line, shares)
            else:
                self._refuse(line, shares, _told(line, error))

        self._leaders.append(
            line.topic, line.number, bytes(batch), timeout_ms=WRITE_TIMEOUT_MS
        ).then(written)

    def _write_anew(self, line: _Line, shares: Sequence[Share]) -> None:
        def identified(producer_id: int | None, error: Exception | None) -> None:
            if producer_id is None:
                assert isinstance(error, GoQueueError)
                self._refuse(line, shares, error)
            else:
                line.producer_id, line.sequence = producer_id, 0
                self._write(line, shares, is_again=True)

        self._identify(line).then(identified)

    def _stored(self, line: _Line, shares: Sequence[Share], appended: Appended) -> None:
        base_offset = appended.base_offset
        for share in shares:
            share.stored(base_offset, appended.timestamp_ms)
            base_offset += len(share.records)
        for share in shares:
            if share.waits:
                share.committed(None)
        self._go_on(line)

    def _refuse(self, line: _Line, shares: Sequence[Share], error: GoQueueError) -> None:
        is_alone = len(shares) == 1 and len(shares[0].records) == 1
        if not is_alone and isinstance(error, OF_ONE_RECORD):
            # One invalid record does not fail the others: each is retried by itself.
            self._write_singly(line, deque(part for share in shares for part in share.split()))
            return
        for share in shares:
            share.refused(error)
        self._go_on(line)

    def _write_singly(self, line: _Line, parts: deque[Share]) -> None:
        """Put shares of one record each at the head of the queue, each in its own lane."""
        now_ms = self._clock.now_ms()
        for part in parts:
            line.size += part.size
        singles = {
            _SINGLE - place: deque([_Waiting(part, now_ms)]) for place, part in enumerate(parts)
        }
        line.lanes = {**singles, **line.lanes}
        self._go_on(line)

    def _go_on(self, line: _Line) -> None:
        # In a turn of its own: a response may be synchronous, and thousands of nested calls would
        # overflow the stack.
        self._clock.call_soon(partial(self._next, line))


class OwnersOutbox(Outbox):
    """Writes as one producer that this node has taken over, until a write fails.

    Writers to a partition under an earlier epoch of that producer are fenced. After a failure the
    next sequence number is unknown, so a writer that continues must take over again.
    """

    def __init__(
        self, clock: Clock, leaders: Leaders, *, producer_id: int, producer_epoch: int
    ) -> None:
        super().__init__(clock, leaders, _nobody, producer_epoch=producer_epoch)
        self._producer_id = producer_id
        self._begun: set[tuple[bytes, int]] = set()

    def _identify(self, line: _Line) -> Promise[int]:
        place, identity = (line.topic.id, line.number), Promise[int]()
        if place in self._begun:
            identity.reject(_too_late(line))
        else:
            self._begun.add(place)
            identity.resolve(self._producer_id)
        return identity


def _nobody() -> Promise[int]:
    raise AssertionError("an owner has its identity")


_SINGLE = -1  # Lanes below this one hold one share each, so that each becomes a batch.


def _told(line: _Line, error: GoQueueError) -> GoQueueError:
    """The error for the publishers of a batch that was not written.

    A transient error was met on every attempt. An error that says only that no leader was found
    leaves open whether an earlier attempt succeeded.
    """
    if not error.retryable or isinstance(error, _CLEAR):
        return error
    return RequestTimedOut(
        f"No leader of {line.topic.name}/{line.number} confirmed this write in time ({error}); "
        "it may or may not have been stored."
    )


def _too_late(line: _Line) -> RequestTimedOut:
    return RequestTimedOut(
        f"The leader of {line.topic.name}/{line.number} did not respond in time; nothing was "
        "written. Retry."
    )
