"""The delivery journal: the durable state of queues, in the internal topic `__delivery`.

All queues of a group write to one partition, determined by the group's id. The events of one
event-loop iteration become one batch, and callers get their response when it is durable (group
commit). When a partition has grown enough, a snapshot of all its ledgers is written, and everything
before it is deleted. In a cluster, the leader of a partition owns the delivery state in it: it
replays the partition when it becomes leader, and drops the state when it resigns.

Acks in a transaction are transactional batches here, and the transaction's marker in this partition
decides about them. Snapshots omit open transactions, so their batches, and everything after the
first of them, are retained.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

from goqueue.broker.queues.observation import observe
from goqueue.broker.shards.own_records import readable_batches
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

    @property
    def topic_id(self) -> bytes: ...

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


@dataclass(slots=True, eq=False)
class _Shard:
    """One partition of the journal."""

    partition: Partition
    bytes_since: int = 0  # written since its last snapshot
    snapshot_bytes: int = 0
    unsaved: list[Record] = field(default_factory=list)
    is_refused: bool = False  # the last write failed
    waiting: list[Promise[None]] = field(default_factory=list)
    unwritten: list[Promise[None]] = field(default_factory=list)  # resolve on write, not on commit
    changed: dict[Journaled, None] = field(default_factory=dict)
    open: dict[int, _OpenTransaction] = field(default_factory=dict)  # by producer id
    written_ms: int = 0  # time of the last record, by the clock of its writer
    leasing: dict[Journaled, None] = field(default_factory=dict)  # queues that may have leases
    unreported: list[_Reportable] = field(default_factory=list)  # not written yet

    @property
    def is_behind(self) -> bool:
        """Whether the log has a marker that is not yet applied to the ledgers.

        A snapshot written after the marker must include what it decides.
        """
        return any(self.partition.transactions.get(one) is None for one in self.open)


class DeliveryJournal:
    """Replays ledgers at the start, and journals their events from then on."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        settings: DeliverySettings,
        *,
        is_alone: bool = True,
    ) -> None:
        """Unless `is_alone`, nothing is opened until `lead` is called."""
        self._clock = clock
        self._topics = topics
        self._settings = settings
        self._is_alone = is_alone
        self._shards: dict[int, _Shard] = {}  # by partition of the journal
        self._is_due = False
        self._is_retrying = False
        self._ticker: Handle | None = None
        # By group id and topic id.
        self.ledgers: dict[tuple[str, bytes], Ledgers] = {}
        topics.internal.on_made(DELIVERY_TOPIC, lambda _: self.open())

    # Opening

    def open(self) -> None:
        """Replay all ledgers; the topic is created with the first queue."""
        topic = self._topics.find(DELIVERY_TOPIC)
        if topic is not None:
            for partition in topic.partitions:
                self.lead(partition)

    def ensure_topic(self) -> Topic:
        """Create the topic if it is missing; its creation is durable before any record in it."""
        return self._topics.internal.make(DELIVERY_TOPIC)

    # Leading

    def lead(self, partition: Partition) -> None:
        """Replay a partition to its end, including records that are not committed yet."""
        shard = self._shards[partition.name.partition] = _Shard(partition)
        self._replay(shard)

    def resign(self, number: int) -> None:
        """Drop a partition that another node leads; waiting callers have to retry there."""
        shard = self._shards.pop(number, None)
        for key in self.led_by(number):
            del self.ledgers[key]
        if shard is not None:
            for promise in (*shard.waiting, *shard.unwritten):
                promise.reject(not_here())

    def number_of(self, group_id: str) -> int:
        """Return the partition that holds the state of a group."""
        topic = self._topics.find(DELIVERY_TOPIC)
        count = self._settings.partitions if topic is None else len(topic.partitions)
        # hash() differs between processes; this must not.
        return crc32(group_id.encode()) % count

    def is_here(self, group_id: str) -> bool:
        return self._is_alone or self.number_of(group_id) in self._shards

    def check_here(self, group_id: str) -> None:
        """Raise unless this node leads the group's partition."""
        if not self.is_here(group_id):
            raise not_here()

    def led_by(self, number: int) -> list[tuple[str, bytes]]:
        """Return the ledgers in a partition, by group id and topic id."""
        return [key for key in self.ledgers if self.number_of(key[0]) == number]

    def settled(self, number: int) -> Promise[None]:
        """Resolves when everything now in a partition is committed."""
        promise: Promise[None] = Promise()
        shard = self._shards.get(number)
        if shard is None:
            promise.reject(not_here())
        else:
            last_offset = shard.partition.end_offset - 1
            shard.partition.when_committed(
                last_offset, lambda error: promise.settle(None, _where_now(error))
            )
        return promise

    def _replay(self, shard: _Shard) -> None:
        for header, batch in readable_batches(shard.partition, name="delivery state"):
            shard.bytes_since += header.size
            self._replay_batch(shard, header, batch)
        self._resume_leases(shard)

    def _resume_leases(self, shard: _Shard) -> None:
        """Resume leases from where their last owner left them.

        Their times are by that owner's clock, whose last value is in the last record of the
        journal. So no two clocks are compared, and the time without an owner does not count:
        nothing could be settled then. The shift is journaled for later replays.
        """
        number = shard.partition.name.partition
        shift_ms = self._clock.now_ms() - shard.written_ms
        for group_id, topic_id in self.led_by(number):
            for source, ledger in self.ledgers[group_id, topic_id].items():
                if ledger.grants:
                    event = Shifted(shift_ms)
                    ledger.apply(event)
                    key = LedgerKey(group_id, topic_id, source)
                    shard.unsaved.append(self._record(key, [event]))
        if shard.unsaved:
            self._write_soon()

    def _replay_batch(self, shard: _Shard, header: BatchHeader, batch: Buffer) -> None:
        if header.is_control:
            self._end(shard, header.producer_id, is_commit=decode_marker(batch).is_commit)
            return
        for record in decode_batch(batch):
            if record.offset < shard.partition.start_offset:
                continue
            shard.written_ms = record.timestamp_ms
            key = self._replay_record(record)
            if key is not None and header.is_transactional:
                self._note_open(shard, header.producer_id, header.base_offset, key)

    def _replay_record(self, record: Record) -> LedgerKey | None:
        try:
            key = decode_key(record.key or b"")
            events = decode_events(record.value or b"")
        except CorruptDeliveryState as error:
            _log.error("cannot replay %s at offset %d: %s", DELIVERY_TOPIC, record.offset, error)
            return None
        ledgers = self.ledgers.setdefault((key.group, key.topic_id), {})
        ledger = ledgers.setdefault(key.partition, Ledger())
        for event in events:
            ledger.apply(event)
        if not ledger.is_known:
            del ledgers[key.partition]
            if not ledgers:
                del self.ledgers[key.group, key.topic_id]
        return key

    # Transactions

    def partition_of(self, group_id: str) -> Partition:
        """Return the partition of a group's acks, which a transaction must include."""
        return self.ensure_topic().partition(self.number_of(group_id))

    def prepare(
        self, group_id: str, events: Mapping[LedgerKey, Prepared], identity: ProducerIdentity
    ) -> int:
        """Write the acks of a transaction; return the offset to wait for, or raise.

        Pending events are written first, so that the log has the same order.
        """
        shard = self._shard(group_id)
        self._write(shard)
        self.check_writable(group_id)
        records = [self._record(key, [event]) for key, event in events.items()]
        now_ms, bytes_before = self._clock.now_ms(), shard.partition.bytes_in
        written = write_records(shard.partition, records, identity, now_ms=now_ms)
        shard.bytes_since += shard.partition.bytes_in - bytes_before
        for key in events:
            self._note_open(shard, identity.producer_id, written.base_offset, key)
        return written.last_offset

    def ended(self, partition: Partition, producer_id: int) -> list[LedgerKey]:
        """Return the ledgers that a committed marker in a journal partition decides about.

        The caller must notify their queues at once. If a queue was rewound or purged in the
        meantime, or its group deleted, that is after the marker in the log; applying both in
        either order gives the same ledger.
        """
        shard = self._shards.get(partition.name.partition)
        if shard is None or shard.partition is not partition:
            return []
        ended = shard.open.pop(producer_id, None)
        return [] if ended is None else list(ended.ledgers)

    def _end(self, shard: _Shard, producer_id: int, *, is_commit: bool) -> None:
        for group_id, topic_id, number in self.ended(shard.partition, producer_id):
            ledger = self.ledgers.get((group_id, topic_id), {}).get(number)
            if ledger is not None:
                ledger.apply(Ended(producer_id, is_commit))

    @staticmethod
    def _note_open(shard: _Shard, producer_id: int, offset: int, key: LedgerKey) -> None:
        opened = shard.open.setdefault(producer_id, _OpenTransaction(offset))
        opened.ledgers[key] = None

    # Writing

    def check_writable(self, group_id: str) -> None:
        """Refuse to change a queue while its earlier changes cannot be written."""
        shard = self._shard(group_id)
        if shard.partition.failure is not None:
            raise shard.partition.failure
        if shard.is_refused:
            raise StorageFailed("Delivery state cannot be written to the disk now; retry.")

    def changed(self, queue: Journaled) -> None:
        """Schedule the events of a queue to be written at the end of this loop iteration."""
        shard = self._find_shard(queue.group_id)
        if shard is not None:
            shard.changed[queue] = None
            self._write_soon()

    def saved(self, queue: Journaled) -> Promise[None]:
        """Resolves when all events of the queue so far are durable."""
        promise: Promise[None] = Promise()
        shard = self._find_shard(queue.group_id)
        if shard is None:
            promise.reject(not_here())
            return promise
        shard.changed[queue] = None
        shard.waiting.append(promise)
        self._write_soon()
        return promise

    def written(self, queue: Journaled) -> Promise[None]:
        """Resolves when all events of the queue so far are written, before they are durable."""
        promise: Promise[None] = Promise()
        shard = self._find_shard(queue.group_id)
        if shard is None:
            promise.reject(not_here())
            return promise
        shard.changed[queue] = None
        shard.unwritten.append(promise)
        self._write_soon()
        return promise

    def prove(self, group_id: str) -> Promise[None]:
        """Resolves when this node has committed a record, which proves that it owned the group."""
        promise: Promise[None] = Promise()
        shard = self._find_shard(group_id)
        if shard is None:
            promise.reject(not_here())
            return promise
        shard.unsaved.append(self._record(_CLOCK_KEY, []))
        shard.waiting.append(promise)
        self._write_soon()
        return promise

    def note(self, events: Mapping[LedgerKey, Event]) -> None:
        """Write events that are already applied."""
        for key, event in events.items():
            self._shard(key.group).unsaved.append(self._record(key, [event]))
        self.flush()

    def ledger(self, key: LedgerKey) -> Ledger:
        """Return a ledger that belongs to no queue; its group name begins with two underscores."""
        self.check_here(key.group)
        return self.ledgers.get((key.group, key.topic_id), {}).get(key.partition) or Ledger()

    def write(self, key: LedgerKey, events: list[Event]) -> Promise[None]:
        """Apply events to such a ledger; resolves when they are durable."""
        self.ensure_topic()
        shard = self._shard(key.group)
        ledgers = self.ledgers.setdefault((key.group, key.topic_id), {})
        ledger = ledgers.setdefault(key.partition, Ledger())
        for event in events:
            ledger.apply(event)
        promise: Promise[None] = Promise()
        shard.unsaved.append(self._record(key, events))
        shard.waiting.append(promise)
        self._write_soon()
        return promise

    def forget(self, group_id: str, topic_id: bytes) -> None:
        """Drop the state of a deleted group or topic."""
        ledgers = self.ledgers.pop((group_id, topic_id), {})
        shard = self._find_shard(group_id)
        if shard is not None and ledgers:
            shard.unsaved += [
                self._record(LedgerKey(group_id, topic_id, number), [Forgotten()])
                for number in ledgers
            ]
            self._write_soon()

    def flush(self) -> None:
        """Write everything now, without waiting for the end of the loop iteration."""
        self._is_due = False
        for shard in list(self._shards.values()):
            if shard.changed or shard.unsaved or shard.waiting or shard.unwritten:
                self._write(shard)

    def _write_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._clock.call_soon(self._write_due)

    def _write_due(self) -> None:
        if self._is_due:
            self.flush()

    def _write(self, shard: _Shard) -> None:
        changed, shard.changed = shard.changed, {}
        shard.leasing.update(changed)
        if changed and self._ticker is None:
            self._ticker = self._clock.call_later(TICK_MS, self._tick)
        for queue in changed:
            for number, events in queue.take_events():
                key = LedgerKey(queue.group_id, queue.topic_id, number)
                shard.unsaved.append(self._record(key, events))
                if self._topics.observer is not None:
                    shard.unreported.append((queue.group, queue.name_of(number), events))
        waiting, shard.waiting = shard.waiting, []
        unwritten, shard.unwritten = shard.unwritten, []

        reported: list[_Reportable] = []

        def committed(error: GoQueueError | None) -> None:
            error = _where_now(error)
            for promise in waiting:
                promise.settle(None, error)
            observer = self._topics.observer
            if error is None and observer is not None:
                for group, name, events in reported:
                    observe(observer, group, name, events)

        try:
            self._append(shard)
        except GoQueueError as error:
            _log.error("cannot write delivery state; retrying: %s", error)
            shard.is_refused = True
            if not self._is_retrying:
                self._is_retrying = True
                self._clock.call_later(RETRY_MS, self._retry)
            waiting += unwritten
            committed(error)
            return
        shard.is_refused = False
        reported, shard.unreported = shard.unreported, []
        for promise in unwritten:
            promise.resolve(None)
        shard.partition.when_committed(shard.partition.end_offset - 1, committed)
        size_max = max(self._settings.snapshot_bytes, 2 * shard.snapshot_bytes)
        if shard.bytes_since > size_max and not shard.is_behind:
            self._snapshot(shard)

    def _retry(self) -> None:
        self._is_retrying = False
        self._write_soon()

    def _append(self, shard: _Shard) -> None:
        """Write all unsaved records; after an error, the rest stays unsaved."""
        if shard.partition.failure is not None and shard.unsaved:
            raise shard.partition.failure
        while shard.unsaved:
            count = _fitting(shard.unsaved)
            shard.bytes_since += self._append_batch(shard.partition, shard.unsaved[:count])
            shard.written_ms = shard.unsaved[count - 1].timestamp_ms
            del shard.unsaved[:count]

    def _tick(self) -> None:
        """Journal the current time for queues with live leases."""
        self._ticker, now_ms = None, self._clock.now_ms()
        is_leasing = False
        for shard in list(self._shards.values()):
            shard.leasing = {one: None for one in shard.leasing if one.has_leases}
            if not shard.leasing:
                continue
            is_leasing = True
            if now_ms - shard.written_ms >= TICK_MS and not shard.is_refused:
                shard.unsaved.append(self._record(_CLOCK_KEY, []))
                self._write_soon()
        if is_leasing:
            self._ticker = self._clock.call_later(TICK_MS, self._tick)

    def _append_batch(self, partition: Partition, records: list[Record]) -> int:
        batch = encode_batch(records)
        partition.write(memoryview(batch), now_ms=self._clock.now_ms())
        return len(batch)

    def _record(self, key: LedgerKey, events: Iterable[Event]) -> Record:
        now_ms = self._clock.now_ms()
        return Record(encode_key(key), encode_events(events), timestamp_ms=now_ms)

    def _snapshot(self, shard: _Shard) -> None:
        """Write all ledgers of the shard, then delete the records that they replace."""
        first = shard.partition.end_offset
        needed = min([first, *(one.first_offset for one in shard.open.values())])
        records = [
            self._record(LedgerKey(group_id, topic_id, number), [part])
            for (group_id, topic_id), ledgers in self.ledgers.items()
            if self._find_shard(group_id) is shard
            for number, ledger in ledgers.items()
            if number == 0 or not ledger.is_empty  # the first one records that the queue exists
            for part in ledger.written_out()
        ]
        size = 0
        try:
            while records:
                count = _fitting(records)
                size += self._append_batch(shard.partition, records[:count])
                del records[:count]
        except GoQueueError as error:
            _log.error("cannot write a snapshot of delivery state; retrying later: %s", error)
            shard.bytes_since = 0  # It is tried again after the journal has grown as much again.
            return
        shard.bytes_since, shard.snapshot_bytes = 0, size

        def committed(error: GoQueueError | None) -> None:
            if error is None:
                try:
                    shard.partition.retention.delete_before(needed)
                except GoQueueError as refused:
                    _log.error("cannot delete old delivery state: %s", refused)

        shard.partition.when_committed(shard.partition.end_offset - 1, committed)

    def _shard(self, group_id: str) -> _Shard:
        shard = self._find_shard(group_id)
        if shard is None:
            raise not_here()
        return shard

    def _find_shard(self, group_id: str) -> _Shard | None:
        return self._shards.get(self.number_of(group_id))


def not_here() -> NotCoordinator:
    return NotCoordinator("Another node owns this queue group's state now; retry there.")


def _where_now(error: GoQueueError | None) -> GoQueueError | None:
    """Translate the error: a node that does not lead the journal does not own the group."""
    return not_here() if isinstance(error, NotLeader) else error


def _fitting(records: list[Record]) -> int:
    """Return how many records, at least one, fit into one batch."""
    size = 0
    for count, record in enumerate(records):
        size += len(record.key or b"") + len(record.value or b"") + 32
        if size > BATCH_BYTES_MAX and count:
            return count
    return len(records)
