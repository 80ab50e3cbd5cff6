"""The delivery journal: the durable state of queues, in the internal topic `__delivery`.

All queues of a group write to one partition, determined by the group's id. The events of one
event-loop iteration become one batch, and callers get their response when it is durable (group
commit). When a partition has grown enough, a snapshot of all its ledgers is written, and everything
before it is deleted. The leader of a partition owns the delivery state in it: it replays the
partition when it becomes leader, and drops the state when it resigns. A single node leads them all.

Acks in a transaction are transactional batches here, and the transaction's marker in this partition
decides about them. Snapshots omit open transactions, so their batches, and everything after the
first of them, are retained.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from zlib import crc32

from goqueue.broker.queues.observation import Observation
from goqueue.broker.shards.own_records import readable_batches
from goqueue.broker.shards.reports import Reports
from goqueue.broker.shards.transactional_batches import write_records
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.config import DeliverySettings
from goqueue.delivery import (
    Ended,
    Event,
    Forgotten,
    Ledger,
    LedgerKey,
    Prepared,
    Shifted,
    decode_events,
    decode_key,
    encode_events,
    encode_key,
)
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Promise
from goqueue.model.batch import (
    BatchHeader,
    Record,
    decode_batch,
    decode_marker,
    encode_batch,
)
from goqueue.model.compression import Buffer
from goqueue.model.errors import (
    CorruptDeliveryState,
    GoQueueError,
    NotCoordinator,
    NotLeader,
    StorageFailed,
)
from goqueue.model.names import DELIVERY_TOPIC, ProducerIdentity, TopicPartition
from goqueue.partition import Partition

BATCH_BYTES_MAX = 1 << 20
RETRY_MS = 1000
# How often the time is journaled while messages are leased and nothing else is written. After a
# fail-over, a lease is longer by at most this, plus the time without an owner.
TICK_MS = 1000
# The key of records that carry only the time.
_CLOCK_KEY = LedgerKey("__clock", bytes(16), 0)

_log = logging.getLogger(__name__)

# The ledgers of one group for one topic, by partition.
Ledgers = dict[int, Ledger]


class Journaled(Protocol):
    """A queue with events to journal."""

    group: str
    group_id: str
    topic_id: bytes

    def name_of(self, number: int) -> TopicPartition: ...

    @property
    def has_leases(self) -> bool: ...

    def take_events(self) -> list[tuple[int, list[Event]]]: ...


@dataclass(slots=True)
class _OpenTransaction:
    """The acks of an open transaction in one partition of the journal."""

    first_offset: int  # in the journal
    ledgers: dict[LedgerKey, None] = field(default_factory=dict)


_Reportable = tuple[str, TopicPartition, list[Event]]


class DeliveryShard:
    """One partition of the journal that this node leads: its ledgers, and their unsaved events."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        partition: Partition,
        *,
        snapshot_bytes: int,
        is_alone: bool,
    ) -> None:
        """With `is_alone`, no other node can become the leader of the partition."""
        self.partition = partition
        self.is_alone = is_alone
        self.is_closed = False  # another node leads the partition now
        self.ledgers: dict[tuple[str, bytes], Ledgers] = {}  # by group id and topic id
        # Queues (group id, topic id) that wait for the dead letters of an earlier owner.
        self.opening: set[tuple[str, bytes]] = set()
        self._clock = clock
        self._topics = topics
        self._observer = topics.observer
        self._snapshot_bytes_min = snapshot_bytes
        self._bytes_since = 0  # written since the last snapshot
        self._snapshot_bytes = 0  # size of the last snapshot
        self._unsaved: list[Record] = []
        self._is_due = False
        self._is_retrying = False
        self._is_refused = False  # the last write failed
        self._waiting: list[Promise[None]] = []
        self._unwritten: list[Promise[None]] = []  # resolve on write, not on commit
        self._changed: dict[Journaled, None] = {}
        self._open: dict[int, _OpenTransaction] = {}  # by producer id
        self._written_ms = 0  # time of the last record, by the clock of its writer
        self._leasing: dict[Journaled, None] = {}  # queues that may have leases
        self._ticker: Handle | None = None
        self._unreported: list[_Reportable] = []  # not written yet
        self._reports = Reports(clock, partition)

    def close(self) -> None:
        """Drop the state, which another node owns; waiting callers have to retry there."""
        self.is_closed = True
        self._reports.close()
        self.ledgers, self.opening, self._unsaved, self._changed = {}, set(), [], {}
        waiting, self._waiting, self._unwritten = [*self._waiting, *self._unwritten], [], []
        if self._ticker is not None:
            self._ticker.cancel()
        for promise in waiting:
            promise.reject(not_here())

    # Replay

    def replay(self) -> None:
        """Read the partition to its end, including records that are not committed yet."""
        for header, batch in readable_batches(self.partition, name="delivery state"):
            self._bytes_since += header.size
            self._replay_batch(header, batch)
        self._resume_leases()

    def _resume_leases(self) -> None:
        """Resume leases from where their last owner left them.

        Their times are by that owner's clock, whose last value is in the last record of the
        journal. So no two clocks are compared, and the time without an owner does not count:
        nothing could be settled then. The shift is journaled for later replays.
        """
        event = Shifted(self._clock.now_ms() - self._written_ms)
        for (group_id, topic_id), ledgers in self.ledgers.items():
            for source, ledger in ledgers.items():
                if ledger.grants:
                    ledger.apply(event)
                    key = LedgerKey(group_id, topic_id, source)
                    self._unsaved.append(self._record(key, [event]))
        if self._unsaved:
            self._write_soon()

    def _replay_batch(self, header: BatchHeader, batch: Buffer) -> None:
        if header.is_control:
            self._end(header.producer_id, is_commit=decode_marker(batch).is_commit)
            return
        for record in decode_batch(batch):
            if record.offset < self.partition.start_offset:
                continue
            self._written_ms = record.timestamp_ms
            key = self._replay_record(record)
            if key is not None and header.is_transactional:
                self._note_open(header.producer_id, header.base_offset, key)

    def _replay_record(self, record: Record) -> LedgerKey | None:
        try:
            key = decode_key(record.key or b"")
            events = decode_events(record.value or b"")
        except CorruptDeliveryState as error:
            _log.error("cannot replay %s at offset %d: %s", DELIVERY_TOPIC, record.offset, error)
            return None
        ledger = self.ledger(key)
        for event in events:
            ledger.apply(event)
        if not ledger.is_known:
            ledgers = self.ledgers[key.group, key.topic_id]
            del ledgers[key.partition]
            if not ledgers:
                del self.ledgers[key.group, key.topic_id]
        return key

    def ledger(self, key: LedgerKey) -> Ledger:
        """Return a ledger, which is added if it is missing."""
        ledgers = self.ledgers.setdefault((key.group, key.topic_id), {})
        return ledgers.setdefault(key.partition, Ledger())

    # Transactions

    def prepare(self, events: Mapping[LedgerKey, Prepared], identity: ProducerIdentity) -> int:
        """Write the acks of a transaction; return the offset to wait for, or raise.

        Pending events are written first, so that the log has the same order.
        """
        self._write()
        self.check_writable()
        records = [self._record(key, [event]) for key, event in events.items()]
        now_ms, bytes_before = self._clock.now_ms(), self.partition.bytes_in
        written = write_records(self.partition, records, identity, now_ms=now_ms)
        self._bytes_since += self.partition.bytes_in - bytes_before
        for key in events:
            self._note_open(identity.producer_id, written.base_offset, key)
        return written.last_offset

    def ended(self, producer_id: int) -> list[LedgerKey]:
        """Return the ledgers that a committed marker decides about.

        The caller must notify their queues at once. If a queue was rewound or purged in the
        meantime, or its group deleted, that is after the marker in the log; applying both in
        either order gives the same ledger.
        """
        ended = self._open.pop(producer_id, None)
        return [] if ended is None else list(ended.ledgers)

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        for group_id, topic_id, number in self.ended(producer_id):
            ledger = self.ledgers.get((group_id, topic_id), {}).get(number)
            if ledger is not None:
                ledger.apply(Ended(producer_id, is_commit))

    def _note_open(self, producer_id: int, offset: int, key: LedgerKey) -> None:
        opened = self._open.setdefault(producer_id, _OpenTransaction(offset))
        opened.ledgers[key] = None

    # Writing

    def check_writable(self) -> None:
        """Refuse to change a queue while its earlier changes cannot be written."""
        if self.is_closed:
            raise not_here()
        if self.partition.failure is not None:
            raise self.partition.failure
        if self._is_refused:
            raise StorageFailed("Delivery state cannot be written to the disk now; retry.")

    def changed(self, queue: Journaled) -> None:
        """Schedule the events of a queue to be written at the end of this loop iteration."""
        if not self.is_closed:
            self._changed[queue] = None
            self._write_soon()

    def saved(self, queue: Journaled) -> Promise[None]:
        """Resolves when all events of the queue so far are durable."""
        promise: Promise[None] = Promise()
        if self.is_closed:
            promise.reject(not_here())
            return promise
        self._changed[queue] = None
        self._waiting.append(promise)
        self._write_soon()
        return promise

    def written(self, queue: Journaled) -> Promise[None]:
        """Resolves when all events of the queue so far are written, before they are durable."""
        promise: Promise[None] = Promise()
        if self.is_closed:
            promise.reject(not_here())
            return promise
        self._changed[queue] = None
        self._unwritten.append(promise)
        self._write_soon()
        return promise

    def prove(self) -> Promise[None]:
        """Resolves when this node has committed a record, which proves that it was the owner."""
        return self._saved([self._record(_CLOCK_KEY, [])])

    def settled(self) -> Promise[None]:
        """Resolves when everything now in the partition is committed."""
        promise: Promise[None] = Promise()
        last_offset = self.partition.end_offset - 1
        self.partition.when_committed(
            last_offset, lambda error: promise.settle(None, _where_now(error))
        )
        return promise

    def note(self, key: LedgerKey, event: Event, group: str, partition: TopicPartition) -> None:
        """Write an event about a partition that is already applied."""
        if self.is_closed:
            raise not_here()
        self._unsaved.append(self._record(key, [event]))
        if self._observer is not None:
            self._unreported.append((group, partition, [event]))
        self.flush()

    def apply(self, key: LedgerKey, events: list[Event]) -> Promise[None]:
        """Apply events to a ledger that belongs to no queue; resolves when they are durable."""
        ledger = self.ledger(key)
        for event in events:
            ledger.apply(event)
        return self._saved([self._record(key, events)])

    def forget(self, group_id: str, topic_id: bytes) -> None:
        """Drop the state of a deleted group or topic."""
        numbers = self.ledgers.pop((group_id, topic_id), {})
        if numbers:
            self._unsaved += [
                self._record(LedgerKey(group_id, topic_id, number), [Forgotten()])
                for number in numbers
            ]
            self._write_soon()

    def flush(self) -> None:
        """Write everything now, without waiting for the end of the loop iteration."""
        self._is_due = False
        if self._changed or self._unsaved or self._waiting or self._unwritten:
            self._write()

    def _saved(self, records: list[Record]) -> Promise[None]:
        promise: Promise[None] = Promise()
        if self.is_closed:
            promise.reject(not_here())
            return promise
        self._unsaved += records
        self._waiting.append(promise)
        self._write_soon()
        return promise

    def _write_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._clock.call_soon(self._write_due)

    def _write_due(self) -> None:
        if self._is_due:
            self.flush()

    def _write(self) -> None:
        changed, self._changed = self._changed, {}
        self._leasing.update(changed)
        if changed and self._ticker is None:
            self._ticker = self._clock.call_later(TICK_MS, self._tick)
        for queue in changed:
            for number, events in queue.take_events():
                key = LedgerKey(queue.group_id, queue.topic_id, number)
                self._unsaved.append(self._record(key, events))
                if self._observer is not None:
                    self._unreported.append((queue.group, queue.name_of(number), events))
        waiting, self._waiting = self._waiting, []
        unwritten, self._unwritten = self._unwritten, []
        try:
            self._append()
        except GoQueueError as error:
            _log.error("cannot write delivery state; retrying: %s", error)
            self._is_refused = True
            if not self._is_retrying:
                self._is_retrying = True
                self._clock.call_later(RETRY_MS, self._retry)
            _settle(waiting + unwritten, error)
            return
        self._is_refused = False
        reported, self._unreported = self._unreported, []
        end = self.partition.end_offset

        def committed(error: GoQueueError | None) -> None:
            if reported:
                self._reports.waited(end, partial(self._report, reported, end))
            _settle(waiting, error)

        for promise in unwritten:
            promise.resolve(None)
        self.partition.when_committed(end - 1, committed)
        size_max = max(self._snapshot_bytes_min, 2 * self._snapshot_bytes)
        if self._bytes_since > size_max and not self._is_behind:
            self._snapshot()

    def _report(self, committed: list[_Reportable], end: int) -> None:
        """Report events that were committed before the offset `end` to the observer."""
        observer = self._observer
        if observer is not None:
            report = Observation(observer, self._ahead_ms, self._topic_name)
            for group, name, events in committed:
                report.report(group, name, events)
            observer.reported(self.partition.name, end)

    def _ahead_ms(self) -> int:
        return self._clock.now_ms() - self._clock.wall_ms()

    def _topic_name(self, topic_id: bytes) -> str:
        topic = self._topics.find_by_id(topic_id)
        return "" if topic is None else topic.name

    def _retry(self) -> None:
        self._is_retrying = False
        self._write_soon()

    def _append(self) -> None:
        """Write all unsaved records; after an error, the rest stays unsaved."""
        if self.partition.failure is not None and self._unsaved:
            raise self.partition.failure
        while self._unsaved:
            count = _fitting(self._unsaved)
            self._bytes_since += self._append_batch(self._unsaved[:count])
            self._written_ms = self._unsaved[count - 1].timestamp_ms
            del self._unsaved[:count]

    def _tick(self) -> None:
        """Journal the current time if queues have live leases."""
        self._ticker = None
        self._leasing = {one: None for one in self._leasing if one.has_leases}
        if not self._leasing:
            return
        if self._clock.now_ms() - self._written_ms >= TICK_MS and not self._is_refused:
            self._unsaved.append(self._record(_CLOCK_KEY, []))
            self._write_soon()
        self._ticker = self._clock.call_later(TICK_MS, self._tick)

    def _append_batch(self, records: list[Record]) -> int:
        batch = encode_batch(records)
        self.partition.write(memoryview(batch), now_ms=self._clock.now_ms())
        return len(batch)

    def _record(self, key: LedgerKey, events: Iterable[Event]) -> Record:
        now_ms = self._clock.now_ms()
        return Record(encode_key(key), encode_events(events), timestamp_ms=now_ms)

    # Snapshots

    @property
    def _is_behind(self) -> bool:
        """Whether the log has a marker that is not yet applied to the ledgers.

        A snapshot written after the marker must include what it decides.
        """
        return any(self.partition.transactions.get(one) is None for one in self._open)

    def _snapshot(self) -> None:
        """Write all ledgers, then delete the records that they replace."""
        first = self.partition.end_offset
        needed = min([first, *(one.first_offset for one in self._open.values())])
        records = [
            self._record(LedgerKey(group_id, topic_id, number), [part])
            for (group_id, topic_id), ledgers in self.ledgers.items()
            for number, ledger in ledgers.items()
            if number == 0 or not ledger.is_empty  # the first one records that the queue exists
            for part in ledger.written_out()
        ]
        size = 0
        try:
            while records:
                count = _fitting(records)
                size += self._append_batch(records[:count])
                del records[:count]
        except GoQueueError as error:
            _log.error("cannot write a snapshot of delivery state; retrying later: %s", error)
            self._bytes_since = 0  # It is tried again after the journal has grown as much again.
            return
        self._bytes_since, self._snapshot_bytes = 0, size

        def committed(error: GoQueueError | None) -> None:
            if error is None:
                try:
                    self.partition.retention.delete_before(needed)
                except GoQueueError as refused:
                    _log.error("cannot delete old delivery state: %s", refused)

        self.partition.when_committed(self.partition.end_offset - 1, committed)


class DeliveryJournal:
    """The partitions of the journal that this node leads."""

    def __init__(
        self, clock: Clock, topics: Topics, settings: DeliverySettings, *, is_alone: bool
    ) -> None:
        """With `is_alone`, this node leads all partitions as soon as they exist."""
        self._clock = clock
        self._topics = topics
        self._settings = settings
        self._is_alone = is_alone
        self._shards: dict[int, DeliveryShard] = {}  # by partition of the journal

    def __iter__(self) -> Iterator[DeliveryShard]:
        return iter(self._shards.values())

    def ensure_topic(self) -> Topic:
        """Create the topic if it is missing; its creation is durable before any record in it."""
        return self._topics.internal.make(DELIVERY_TOPIC)

    def lead(self, partition: Partition) -> DeliveryShard:
        """Replay a partition that this node leads now."""
        shard = self._shards[partition.name.partition] = DeliveryShard(
            self._clock,
            self._topics,
            partition,
            snapshot_bytes=self._settings.snapshot_bytes,
            is_alone=self._is_alone,
        )
        shard.replay()
        return shard

    def resign(self, number: int) -> None:
        """Drop a partition that another node leads."""
        shard = self._shards.pop(number, None)
        if shard is not None:
            shard.close()

    def flush(self) -> None:
        for shard in list(self._shards.values()):
            shard.flush()

    # Who has the state of a group

    def number_of(self, group_id: str) -> int:
        """Return the partition that holds the state of a group."""
        topic = self._topics.find(DELIVERY_TOPIC)
        count = self._settings.partitions if topic is None else len(topic.partitions)
        # hash() differs between processes; this must not.
        return crc32(group_id.encode()) % count

    def partition_of(self, group_id: str) -> Partition:
        """Return the partition of a group's acks, which a transaction must include."""
        return self.ensure_topic().partition(self.number_of(group_id))

    def find(self, number: int) -> DeliveryShard | None:
        """Return a partition, if this node leads it."""
        return self._shards.get(number)

    def shard_of(self, group_id: str) -> DeliveryShard | None:
        """Return the partition of a group; raise unless this node leads it.

        Returns None on a single node whose first queue has yet to be started.
        """
        shard = self._shards.get(self.number_of(group_id))
        is_unmade = self._is_alone and self._topics.find(DELIVERY_TOPIC) is None
        if shard is None and not is_unmade:
            raise not_here()
        return shard

    # Ledgers of the broker itself, which belong to no queue; their groups begin with underscores

    def check_here(self, group_id: str) -> None:
        """Raise unless this node leads the group's partition."""
        self.shard_of(group_id)

    def ledger(self, key: LedgerKey) -> Ledger:
        """Return such a ledger, empty if nothing was written to it."""
        shard = self.shard_of(key.group)
        ledgers = {} if shard is None else shard.ledgers.get((key.group, key.topic_id), {})
        return ledgers.get(key.partition) or Ledger()

    def write(self, key: LedgerKey, events: list[Event]) -> Promise[None]:
        """Apply events to such a ledger; resolves when they are durable."""
        self.ensure_topic()
        shard = self.shard_of(key.group)
        assert shard is not None, "a single node leads the topic that it has made"
        return shard.apply(key, events)


def not_here() -> NotCoordinator:
    return NotCoordinator("Another node owns this queue group's state now; retry there.")


def _where_now(error: GoQueueError | None) -> GoQueueError | None:
    """Translate the error: a node that does not lead the journal does not own the group."""
    return not_here() if isinstance(error, NotLeader) else error


def _settle(promises: list[Promise[None]], error: GoQueueError | None) -> None:
    error = _where_now(error)
    for promise in promises:
        promise.settle(None, error)


def _fitting(records: list[Record]) -> int:
    """Return how many records, at least one, fit into one batch."""
    size = 0
    for count, record in enumerate(records):
        size += len(record.key or b"") + len(record.value or b"") + 32
        if size > BATCH_BYTES_MAX and count:
            return count
    return len(records)
