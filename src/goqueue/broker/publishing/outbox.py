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

from goqueue.broker.publishing.gathering import (
    BATCH_RECORDS_MAX,
    OF_ONE_RECORD,
    Share,
    senders_of,
)
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
QUEUE_BYTES_MAX = 64 << 20  # queued for one partition; more is refused
QUEUES_MAX = 20_000  # partitions remembered; beyond that, idle ones are forgotten

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
class _PartitionQueue:
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
        self._queues: dict[tuple[bytes, int], _PartitionQueue] = {}

    def add(self, topic: Topic, number: int, lane: int, share: Share) -> None:
        """Add a share; it is notified when it is committed or refused."""
        queue = self._queue(topic, number)
        if queue.size + share.size > QUEUE_BYTES_MAX:
            text = f"Too many bytes are queued for {topic.name}/{number}; retry later."
            share.refused(RequestTimedOut(text))
            return
        queue.size += share.size
        waiting = _Waiting(share, self._clock.now_ms())
        queue.lanes.setdefault(lane, deque()).append(waiting)
        if not queue.is_busy:
            # Not immediately: the records of one event-loop turn make one batch.
            queue.is_busy = True
            self._next_soon(queue)

    def _queue(self, topic: Topic, number: int) -> _PartitionQueue:
        queue = self._queues.get((topic.id, number))
        if queue is None:
            if len(self._queues) >= QUEUES_MAX:
                self._queues = {key: one for key, one in self._queues.items() if one.is_busy}
            queue = self._queues[topic.id, number] = _PartitionQueue(topic, number)
        return queue

    def _next(self, queue: _PartitionQueue) -> None:
        """Write the next batch of a queue, if there is one."""
        shares = self._take(queue)
        if not shares:
            queue.is_busy = False
            return
        if queue.producer_id != _NO_PRODUCER:
            self._write(queue, shares)
            return

        def identified(producer_id: int | None, error: Exception | None) -> None:
            if producer_id is None:
                assert isinstance(error, GoQueueError)
                self._refuse(queue, shares, error)
            else:
                queue.producer_id, queue.sequence = producer_id, 0
                self._write(queue, shares)

        self._identify(queue).then(identified)

    def _identify(self, queue: _PartitionQueue) -> Promise[int]:
        """Get a new producer identity for the partition of a queue."""
        return self._new_producer_id()

    def _take(self, queue: _PartitionQueue) -> list[Share]:
        """Take shares of one lane that fit a batch, without those that have timed out."""
        room = queue.topic.settings.message_bytes_max - HEADER_BYTES
        late_ms = self._clock.now_ms() - WRITE_TIMEOUT_MS
        taken: list[Share] = []
        while queue.lanes and not taken:
            lane, waiting = next(iter(queue.lanes.items()))
            del queue.lanes[lane]
            size = count = 0
            while waiting:
                share, is_late = waiting[0].share, waiting[0].since_ms < late_ms
                is_over = size + share.size > room or count + len(share.records) > BATCH_RECORDS_MAX
                if taken and is_over and not is_late:
                    queue.lanes[lane] = waiting  # Now behind the other lanes.
                    break
                waiting.popleft()
                queue.size -= share.size
                if is_late:
                    share.refused(_too_late(queue))
                    continue
                taken.append(share)
                size += share.size
                count += len(share.records)
        return taken

    def _write(
        self, queue: _PartitionQueue, shares: Sequence[Share], *, is_again: bool = False
    ) -> None:
        records = [record for share in shares for record in share.records]
        try:
            batch = encode_batch(
                records,
                producer_id=queue.producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=queue.sequence,
            )
        except GoQueueError as error:
            self._refuse(queue, shares, error)
            return

        def written(appended: Appended | None, error: Exception | None) -> None:
            if appended is not None:
                queue.sequence = add_sequence(queue.sequence, len(records))
                self._stored(queue, shares, appended)
                return
            if not isinstance(error, GoQueueError):
                assert error is not None
                raise error
            is_forgotten = isinstance(error, _FORGOTTEN) and queue.sequence > 0
            # Whether or not the batch was stored, its sequence number is used up: continue under a
            # new identity. Errors caused by a record are found before anything is stored.
            if not isinstance(error, OF_ONE_RECORD):
                queue.producer_id = _NO_PRODUCER
            if is_forgotten and not is_again:
                self._write_anew(queue, shares)
            else:
                self._refuse(queue, shares, _reported(queue, error))

        self._leaders.append(
            queue.topic,
            queue.number,
            bytes(batch),
            timeout_ms=WRITE_TIMEOUT_MS,
            senders=senders_of(shares),
        ).then(written)

    def _write_anew(self, queue: _PartitionQueue, shares: Sequence[Share]) -> None:
        def identified(producer_id: int | None, error: Exception | None) -> None:
            if producer_id is None:
                assert isinstance(error, GoQueueError)
                self._refuse(queue, shares, error)
            else:
                queue.producer_id, queue.sequence = producer_id, 0
                self._write(queue, shares, is_again=True)

        self._identify(queue).then(identified)

    def _stored(self, queue: _PartitionQueue, shares: Sequence[Share], appended: Appended) -> None:
        base_offset = appended.base_offset
        for share in shares:
            share.stored(base_offset, appended.timestamp_ms)
            base_offset += len(share.records)
        for share in shares:
            if share.waits:
                share.committed(None)
        self._next_soon(queue)

    def _refuse(self, queue: _PartitionQueue, shares: Sequence[Share], error: GoQueueError) -> None:
        is_alone = len(shares) == 1 and len(shares[0].records) == 1
        if not is_alone and isinstance(error, OF_ONE_RECORD):
            # One invalid record does not fail the others: each is retried by itself.
            self._write_singly(queue, deque(part for share in shares for part in share.split()))
            return
        for share in shares:
            share.refused(error)
        self._next_soon(queue)

    def _write_singly(self, queue: _PartitionQueue, parts: deque[Share]) -> None:
        """Put shares of one record each at the head of the queue, each in its own lane."""
        now_ms = self._clock.now_ms()
        for part in parts:
            queue.size += part.size
        singles = {
            _SINGLE - index: deque([_Waiting(part, now_ms)]) for index, part in enumerate(parts)
        }
        queue.lanes = {**singles, **queue.lanes}
        self._next_soon(queue)

    def _next_soon(self, queue: _PartitionQueue) -> None:
        # In a turn of its own: a response may be synchronous, and thousands of nested calls would
        # overflow the stack.
        self._clock.call_soon(partial(self._next, queue))


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

    def _identify(self, queue: _PartitionQueue) -> Promise[int]:
        key, identity = (queue.topic.id, queue.number), Promise[int]()
        if key in self._begun:
            identity.reject(_too_late(queue))
        else:
            self._begun.add(key)
            identity.resolve(self._producer_id)
        return identity


def _nobody() -> Promise[int]:
    raise AssertionError("an owner has its identity")


_SINGLE = -1  # Lanes below this one hold one share each, so that each becomes a batch.


def _reported(queue: _PartitionQueue, error: GoQueueError) -> GoQueueError:
    """The error for the publishers of a batch that was not written.

    A transient error was met on every attempt. An error that says only that no leader was found
    leaves open whether an earlier attempt succeeded.
    """
    if not error.retryable or isinstance(error, _CLEAR):
        return error
    return RequestTimedOut(
        f"No leader of {queue.topic.name}/{queue.number} confirmed this write in time ({error}); "
        "it may or may not have been stored."
    )


def _too_late(queue: _PartitionQueue) -> RequestTimedOut:
    return RequestTimedOut(
        f"The leader of {queue.topic.name}/{queue.number} did not respond in time; nothing was "
        "written. Retry."
    )
