"""A producer's batch with delayed records: some are appended now, the others are scheduled.

The log must contain the sequence numbers of the whole batch, or the producer's next batch would be
out of order. So the records due now are written as a batch that spans all offsets of the original
and lacks the delayed records, as after compaction. The delayed ones are stored as one batch in the
schedule log, each with a reference to its original batch.

A sequence number in the log means that everything up to it is stored. So the delayed records of an
idempotent producer are stored first, and the batch takes its sequence numbers when they are
durable; if they cannot be stored, the whole batch is refused. Meanwhile further batches of the
producer wait behind it, in order. A retry finds the delayed records stored, or waits with the batch
that it repeats.

Batches that follow one refused with a retryable error are refused in the same way, whether they
are waiting or have yet to arrive, until that batch is stored. An out-of-order error would make
clients take a new epoch, in which batches sent before are not recognised: records already stored
would be stored twice.

A producer without an id has no sequence numbers. Both parts of its batch are stored at once, so
that its records stay in order, and a retry may store either part again, as with any such producer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from goqueue.broker.schedules.delayed_records import (
    SplitBatch,
    batch_without_delayed,
    split_batch,
)
from goqueue.broker.schedules.schedules import Schedules
from goqueue.broker.topics.topics import Topic
from goqueue.delivery.schedules import ProducerBatch
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, start
from goqueue.model.batch import (
    HEADER_BYTES,
    BatchHeader,
    add_sequence,
    is_sequence_before,
    read_header,
)
from goqueue.model.errors import (
    ConcurrentTransactions,
    FencedLeaderEpoch,
    FencedProducer,
    GoQueueError,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    RequestTimedOut,
    StorageFull,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.partition import NO_LEADER, Appended, Committed, Partition
from goqueue.partition.producers import NO_MARKER
from goqueue.partition.rules import check_produced

WAITING_BATCHES_MAX = 5  # of one producer in one partition: clients have no more in flight
REFUSED_MAX = 10_000  # producers with a refused batch; the oldest is forgotten first
REFUSED_MS = 600_000  # longer than producers retry a batch

_ProducerKey = tuple[Partition, int]  # and the producer's id


class Split:
    """The pending result of a batch that is not stored at once, or not as a whole.

    A split batch has no offset to return; the offset of another is set when it is committed.
    """

    __slots__ = ("_done", "base_offset", "last_offset", "timestamp_ms")

    def __init__(self) -> None:
        self._done: Promise[None] = Promise()
        self.base_offset = -1
        self.last_offset = -1
        self.timestamp_ms = -1

    def when_committed(self, committed: Committed) -> None:
        """Call `committed` once all parts have the promised durability, or the batch is refused."""

        def done(_: None, error: Exception | None) -> None:
            if error is not None and not isinstance(error, GoQueueError):
                raise error
            committed(error)

        self._done.then(done)

    def settle(self, error: Exception | None) -> None:
        self._done.settle(None, error)


class _Waiting:
    """A batch that waits for its turn, or is being stored."""

    __slots__ = ("header", "is_split", "outcome", "size", "store")

    def __init__(
        self,
        header: BatchHeader,
        size: int,
        store: Callable[[], Coroutine[Promise[Any], None, Appended]],
        *,
        is_split: bool,
    ) -> None:
        self.header = header
        self.size = size
        self.store = store
        self.is_split = is_split
        self.outcome = Split()

    def is_same(self, header: BatchHeader) -> bool:
        mine = self.header
        return (
            mine.producer_epoch == header.producer_epoch
            and mine.base_sequence == header.base_sequence
            and mine.last_offset_delta == header.last_offset_delta
        )


class _Queue:
    """The waiting batches of one producer; the first is being stored."""

    __slots__ = ("entries", "is_over")

    def __init__(self) -> None:
        self.entries: deque[_Waiting] = deque()
        self.is_over = False  # this node no longer leads the partition


class _Refused(NamedTuple):
    """Refused batches of a producer, which it is expected to send again."""

    epoch: int
    sequence: int  # of the earliest of them
    last_sequence: int  # of the latest
    until_ms: int  # when to forget them
    marker_offset: int  # of the producer's newest marker; a later one ends its transaction

    def precedes(self, header: BatchHeader) -> bool:
        """Whether another batch of the producer has to wait for the earliest of these."""
        if header.producer_epoch != self.epoch:
            return header.producer_epoch < self.epoch
        return is_sequence_before(self.sequence, header.base_sequence)


class RefusedBatches:
    """The batches that were refused and that their producers will send again.

    A partition without state for a producer would accept any sequence number as its first, so those
    that follow a refused batch are refused until it is stored.
    """

    def __init__(self, clock: Clock) -> None:
        self.noted: dict[_ProducerKey, _Refused] = {}  # oldest first
        self._clock = clock
        self._is_sweeping = False

    def note(self, partition: Partition, header: BatchHeader, error: GoQueueError) -> None:
        """Note a batch, if its producer will retry it."""
        if header.producer_id < 0 or not error.retryable:
            return
        key, known = (partition, header.producer_id), partition.producers.get(header.producer_id)
        if known is not None and known.epoch > header.producer_epoch:
            return
        if partition.producers.find(header) is not None:
            return  # It is stored, and only its retry is refused.
        noted, last_sequence = self.noted.get(key), header.base_sequence
        if noted is not None and not self._is_stale(key, noted):
            if header.producer_epoch == noted.epoch:
                last_sequence = _later(noted.last_sequence, last_sequence)
            if noted.precedes(header):
                if header.producer_epoch == noted.epoch:
                    self.noted[key] = noted._replace(last_sequence=last_sequence)
                return
            del self.noted[key]  # to be last again
        until_ms = self._clock.now_ms() + REFUSED_MS
        marker_offset = NO_MARKER if known is None else known.marker_offset
        self.noted[key] = _Refused(
            header.producer_epoch, header.base_sequence, last_sequence, until_ms, marker_offset
        )
        if len(self.noted) > REFUSED_MAX:
            del self.noted[next(iter(self.noted))]
        self._sweep_later()

    def check(self, key: _ProducerKey, header: BatchHeader) -> None:
        """Refuse a batch after a refused one until that one is stored."""
        noted = self.noted.get(key)
        if noted is None:
            return
        if header.producer_epoch > noted.epoch or self._is_stale(key, noted):
            del self.noted[key]
        elif header.producer_epoch == noted.epoch:
            expected = self._next_sequence(key, noted)
            if is_sequence_before(expected, header.base_sequence):
                raise _not_yet(header, expected)

    def forget_stored(self, key: _ProducerKey) -> None:
        """Forget the refused batches of a producer once they are stored."""
        noted = self.noted.get(key)
        if noted is not None and self._is_stale(key, noted):
            del self.noted[key]

    def resign(self, partition: Partition) -> None:
        """Forget the batches for a partition that this node no longer leads."""
        for key in [one for one in self.noted if one[0] is partition]:
            del self.noted[key]

    def _is_stale(self, key: _ProducerKey, noted: _Refused) -> bool:
        """Whether refused batches were all stored since, or cannot be sent again."""
        partition, producer_id = key
        known = partition.producers.get(producer_id)
        if known is None or known.epoch < noted.epoch:
            return False
        if known.epoch > noted.epoch or known.marker_offset > noted.marker_offset:
            return True
        return is_sequence_before(noted.last_sequence, self._next_sequence(key, noted))

    @staticmethod
    def _next_sequence(key: _ProducerKey, noted: _Refused) -> int:
        """The earliest refused batch that is not stored yet."""
        partition, producer_id = key
        known = partition.producers.get(producer_id)
        if known is None or known.epoch < noted.epoch:
            return noted.sequence
        return _later(noted.sequence, partition.producers.next_sequence(producer_id, noted.epoch))

    def _sweep_later(self) -> None:
        if self.noted and not self._is_sweeping:
            self._is_sweeping = True
            until_ms = next(iter(self.noted.values())).until_ms
            self._clock.call_later(until_ms - self._clock.now_ms(), self._sweep)

    def _sweep(self) -> None:
        """Forget producers that have not retried their batch."""
        self._is_sweeping = False
        now_ms = self._clock.now_ms()
        for key in [one for one, noted in self.noted.items() if noted.until_ms <= now_ms]:
            del self.noted[key]
        self._sweep_later()


class PendingBatches:
    """Stores batches with delayed records, and keeps later batches in order."""

    def __init__(self, clock: Clock, schedules: Schedules, *, bytes_max: int) -> None:
        self._clock = clock
        self._schedules = schedules
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queues: dict[_ProducerKey, _Queue] = {}
        self._refused = RefusedBatches(clock)

    @property
    def is_idle(self) -> bool:
        """Whether batches without attributes may be appended directly to their partitions."""
        return not (self._queues or self._refused.noted)

    def append(
        self, topic: Topic, partition: Partition, batch: memoryview, *, now_ms: int
    ) -> Appended | Split:
        """Store a batch whose records may have attributes; refuse an invalid one."""
        parts = split_batch(partition, batch, now_ms=now_ms)
        if not parts.later:
            return self.append_plain(partition, batch, now_ms=now_ms)
        if partition.failure is not None:
            raise partition.failure
        partition.check_leading()
        if parts.header.producer_id < 0:
            return self._store_both(topic, partition, parts, now_ms=now_ms)
        store = partial(self._store_split, topic, partition, parts)
        return self._admit(partition, _Waiting(parts.header, len(batch), store, is_split=True))

    def append_plain(
        self, partition: Partition, batch: memoryview, *, now_ms: int
    ) -> Appended | Split:
        """Store a batch without delayed records, behind its producer's waiting batches."""
        if self.is_idle or len(batch) < HEADER_BYTES:
            return partition.append(batch, now_ms=now_ms)
        key = (partition, read_header(batch).producer_id)
        if key not in self._queues and key not in self._refused.noted:
            return partition.append(batch, now_ms=now_ms)
        header = check_produced(batch, partition.settings, now_ms=now_ms)
        earlier = partition.producers.find(header)
        if earlier is not None:
            return partition.append(batch, now_ms=now_ms)
        # It may have to wait, and the buffer belongs to the caller.
        store = partial(self._store_plain, partition, bytearray(batch))
        return self._admit(partition, _Waiting(header, len(batch), store, is_split=False))

    def note_refused(self, partition: Partition, header: BatchHeader, error: GoQueueError) -> None:
        """Note a batch that its producer will retry; later ones must not precede it."""
        self._refused.note(partition, header, error)

    def resign(self, partition: Partition) -> None:
        """Refuse the batches waiting for a partition that this node no longer leads."""
        for key in [one for one in self._queues if one[0] is partition]:
            queue = self._queues.pop(key)
            queue.is_over = True
            entries, queue.entries = queue.entries, deque()
            for entry in entries:
                self._bytes -= entry.size
                entry.outcome.settle(NotLeader(partition.name, NO_LEADER))
        self._refused.resign(partition)

    # Order

    def _admit(self, partition: Partition, entry: _Waiting) -> Split:
        """Queue a batch of an idempotent producer; its turn may be now."""
        header = entry.header
        key = (partition, header.producer_id)
        earlier = partition.producers.find(header)
        if earlier is not None:
            # It has taken its sequence numbers, so its delayed records are stored.
            partition.when_committed(earlier.last_offset, entry.outcome.settle)
            return entry.outcome
        queue = self._queues.get(key)
        entries = () if queue is None else queue.entries
        for waiting in entries:
            if waiting.is_same(header):
                return waiting.outcome
        if entries:
            _check_order(entries[-1].header, header)
        else:
            self._refused.check(key, header)
            partition.producers.check(header)
            partition.check_transaction(header)
        self._check_room(len(entries), entry)
        self._bytes += entry.size
        if queue is not None:
            queue.entries.append(entry)  # It is stored after those before it.
            return entry.outcome
        queue = self._queues[key] = _Queue()
        queue.entries.append(entry)
        start(self._store_queued(key, queue), _raise)
        return entry.outcome

    def _check_room(self, count: int, entry: _Waiting) -> None:
        if count >= WAITING_BATCHES_MAX:
            raise NotEnoughReplicas(
                f"{WAITING_BATCHES_MAX} batches of producer {entry.header.producer_id} wait for "
                "delayed records to be stored; retry."
            )
        if self._bytes + entry.size > self._bytes_max and self._bytes:
            raise NotEnoughReplicas(
                "Too many batches wait for delayed records to be stored; retry, or raise "
                "schedules.waiting_bytes_max."
            )

    async def _store_queued(self, key: _ProducerKey, queue: _Queue) -> None:
        """Store waiting batches one after the other until none is left."""
        partition = key[0]
        while queue.entries:
            entry = queue.entries[0]
            try:
                appended = await entry.store()
            except GoQueueError as error:
                if queue.is_over:
                    return
                self._refuse(key, queue, error)
                continue
            if queue.is_over:
                return
            queue.entries.popleft()
            self._bytes -= entry.size
            self._refused.forget_stored(key)
            if not entry.is_split:
                entry.outcome.base_offset, entry.outcome.last_offset, timestamp_ms = appended
                entry.outcome.timestamp_ms = timestamp_ms
            partition.when_committed(appended.last_offset, entry.outcome.settle)
        if self._queues.get(key) is queue:
            del self._queues[key]

    def _refuse(self, key: _ProducerKey, queue: _Queue, error: GoQueueError) -> None:
        """Refuse the first batch, and those behind it that cannot be stored before it."""
        first = queue.entries[0].header
        epoch = first.producer_epoch
        refused = [one for one in queue.entries if one.header.producer_epoch == epoch]
        queue.entries = deque(one for one in queue.entries if one not in refused)
        self._refused.note(key[0], first, error)
        for entry in refused:
            self._bytes -= entry.size
        refused[0].outcome.settle(error)
        # A producer that gives up the first batch renumbers the others.
        later = _not_yet if error.retryable else _out_of_order
        for entry in refused[1:]:
            entry.outcome.settle(later(entry.header, first.base_sequence))

    # Storing

    async def _store_plain(self, partition: Partition, batch: bytearray) -> Appended:
        return partition.append(memoryview(batch), now_ms=self._clock.wall_ms())

    async def _store_split(self, topic: Topic, partition: Partition, parts: SplitBatch) -> Appended:
        """Store the delayed records of a batch, then the rest with its sequence numbers."""
        header = parts.header
        epoch, marker = partition.leader_epoch, _marker(partition, header.producer_id)
        check = partial(_check_leading, partition, epoch)
        try:
            await self._store_later(topic, partition, parts, check)
        except GoQueueError as error:
            check()
            raise _refusal(partition, error) from error
        check()
        earlier = partition.producers.check(header)
        if earlier is not None:
            return Appended(earlier.base_offset, earlier.last_offset, -1)
        if header.is_transactional and marker != _marker(partition, header.producer_id):
            # The producer's permission to write here was checked before that marker was written.
            raise ConcurrentTransactions(
                f"The transaction of producer {header.producer_id} has ended meanwhile; retry."
            )
        partition.check_transaction(header)
        return self._write_rest(partition, parts, now_ms=self._clock.wall_ms())

    def _store_both(
        self, topic: Topic, partition: Partition, parts: SplitBatch, *, now_ms: int
    ) -> Split:
        """Store the batch of a producer without an id."""
        check = partial(_check_leading, partition, partition.leader_epoch)
        try:
            later = self._store_later(topic, partition, parts, check)
            if later.is_done:
                later.then(_raise)  # A refusal at once: nothing is stored then.
        except GoQueueError as error:
            raise _refusal(partition, error) from error
        split, now = Split(), Promise[None]()
        if parts.now:
            try:
                last_offset = self._write_rest(partition, parts, now_ms=now_ms).last_offset
            except GoQueueError as error:
                now.reject(error)
            else:
                partition.when_committed(last_offset, lambda error: now.settle(None, error))
        else:
            now.resolve(None)
        start(_both(partition, later, now), lambda _, error: split.settle(error))
        return split

    def _store_later(
        self, topic: Topic, partition: Partition, parts: SplitBatch, check: Callable[[], None]
    ) -> Promise[None]:
        header = parts.header
        origin, transaction = None, None
        if header.producer_id >= 0:
            origin = ProducerBatch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
            )
        if header.is_transactional:
            transaction = ProducerIdentity(header.producer_id, header.producer_epoch)
        return self._schedules.schedule_batch(
            topic,
            parts.later,
            origin,
            leader_epoch=partition.leader_epoch,
            transaction=transaction,
            check=check,
        )

    @staticmethod
    def _write_rest(partition: Partition, parts: SplitBatch, *, now_ms: int) -> Appended:
        rest = memoryview(batch_without_delayed(parts, partition))
        is_append_time = partition.settings.is_append_time
        return partition.write(rest, now_ms=now_ms, is_append_time=is_append_time)


def scheduled_participant(
    schedules: Schedules, topic: Topic, partition: Partition, batch: memoryview, *, now_ms: int
) -> TopicPartition | None:
    """The additional participant that this batch needs: where its delayed records are stored.

    An invalid batch is refused here already.
    """
    if not split_batch(partition, batch, now_ms=now_ms).later:
        return None
    return schedules.participant(topic, partition.name.partition)


def _later(sequence: int, other: int) -> int:
    return other if is_sequence_before(sequence, other) else sequence


def _check_order(newest: BatchHeader, header: BatchHeader) -> None:
    """Refuse a batch that does not follow its producer's newest waiting one."""
    if header.producer_epoch < newest.producer_epoch:
        raise FencedProducer(
            f"Producer {header.producer_id} writes with epoch {header.producer_epoch}, but epoch "
            f"{newest.producer_epoch} has taken over; stop this producer."
        )
    expected = 0
    if header.producer_epoch == newest.producer_epoch:
        expected = add_sequence(newest.last_sequence, 1)
    if is_sequence_before(expected, header.base_sequence):
        # The missing batch was refused for now; if not, this one is found to be out of order once
        # none is waiting.
        raise _not_yet(header, expected)
    if header.base_sequence != expected:
        raise _out_of_order(header, expected)


def _not_yet(header: BatchHeader, expected: int) -> NotEnoughReplicas:
    """A retryable refusal that does not make clients take a new epoch."""
    return NotEnoughReplicas(
        f"Sequence {expected} of producer {header.producer_id} could not be stored yet, and "
        f"{header.base_sequence} comes after it; retry."
    )


def _out_of_order(header: BatchHeader, expected: int) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"Producer {header.producer_id} sends sequence {header.base_sequence}, but {expected} "
        "comes next."
    )


def _check_leading(partition: Partition, epoch: int) -> None:
    if partition.failure is not None:
        raise partition.failure
    partition.check_leading()
    if partition.leader_epoch != epoch:
        raise NotLeader(partition.name, NO_LEADER)


def _marker(partition: Partition, producer_id: int) -> tuple[int, int] | None:
    """The newest marker of a producer in a partition."""
    known = partition.producers.get(producer_id)
    return None if known is None else (known.marker_offset, known.coordinator_epoch)


def _refusal(partition: Partition, error: GoQueueError) -> GoQueueError:
    """Convert an error in storing delayed records to one for the batch's producer.

    Producers would misread errors about another partition's leader or a coordinator.
    """
    if isinstance(error, FencedLeaderEpoch):
        return NotLeader(partition.name, NO_LEADER)
    if not error.retryable or isinstance(error, RequestTimedOut | StorageFull):
        return error
    return NotEnoughReplicas(f"The delayed records cannot be stored now: {error}")


async def _both(partition: Partition, later: Awaitable[None], now: Awaitable[None]) -> None:
    try:
        await later
    except GoQueueError as error:
        raise _refusal(partition, error) from error
    await now


def _raise(_: None, error: Exception | None) -> None:
    if error is not None:
        raise error
