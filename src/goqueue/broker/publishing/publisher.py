"""Publishing for front ends whose clients send records rather than batches.

Each record gets a partition. Records due now are encoded in batches, one lane per batch, so that
lanes can be distinguished by whole batches; delayed records are scheduled. Every record has its own
result, since some may be refused while others are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple, cast

from goqueue.broker.publishing.gathering import BATCH_RECORDS_MAX, Gatherer, Share
from goqueue.broker.publishing.outbox import Outbox
from goqueue.broker.schedules.schedules import Delayed, Schedules
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery.schedules import PARTITION_OPEN
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.attributes import (
    DELAY_HEADER,
    DELIVER_AT_HEADER,
    PRIORITY_DEFAULT,
    PRIORITY_HEADER,
    TTL_HEADER,
    Attributes,
    parse_attributes,
)
from goqueue.model.batch import HEADER_BYTES, NO_TIMESTAMP, Header, Record
from goqueue.model.errors import GoQueueError, InternalTopic, StorageFull
from goqueue.model.key_hash import partition_of_key
from goqueue.model.session import Session
from goqueue.model.tenants import Text

RECORD_OVERHEAD_BYTES = 40  # lengths, deltas and the like, at most
HEADER_OVERHEAD_BYTES = 10

_ATTRIBUTE_HEADERS = frozenset({PRIORITY_HEADER, DELAY_HEADER, DELIVER_AT_HEADER, TTL_HEADER})


class Outgoing(NamedTuple):
    """A record to be published. Its headers give its attributes, unless `attributes` does."""

    record: Record
    attributes: Attributes | None = None


class Published(NamedTuple):
    """The record is stored in its topic."""

    partition: int
    offset: int
    timestamp_ms: int


class Scheduled(NamedTuple):
    """The record is scheduled for its topic."""

    schedule_id: Text
    due_ms: int


PublishResult = Published | Scheduled | GoQueueError

_Lane = tuple[int, int]  # partition and priority


class Publisher:
    """Stores or schedules records."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        schedules: Schedules,
        random: Random,
        *,
        is_full: Callable[[], bool],
        outbox: Outbox | None = None,
    ) -> None:
        """In a cluster, records go through an `outbox` to the leaders of their partitions."""
        self._clock = clock
        self._topics = topics
        self._schedules = schedules
        self._gatherer = Gatherer(clock)
        self._outbox = outbox
        # Nodes that start together should not all begin with the same partition.
        self._last = random.randrange(1 << 20)
        self._turns = 0
        self._is_full = is_full

    def publish(
        self,
        topic: str,
        outgoing: Sequence[Record | Outgoing],
        *,
        partition: int | None,
        waits: bool = True,
        now_ms: int | None = None,
        session: Session | None = None,
    ) -> Promise[list[PublishResult]]:
        """Store or schedule records; return a result for each, in order, when all are durable.

        Records of one call without a key and without a partition go to one partition. A caller that
        has stamped them with a time of arrival passes it as `now_ms`: by another clock, a record
        could be due now and yet have an earlier timestamp.
        """
        try:
            target = self._topics.get(topic)
            if target.is_internal:
                raise InternalTopic(topic)
            # In a cluster the records are on the leaders, which report a full disk themselves.
            if self._outbox is None and self._is_full():
                raise StorageFull("The disk is full; retry when there is room again.")
            if partition is not None:
                target.partition(partition)
        except GoQueueError as error:
            refused: Promise[list[PublishResult]] = Promise()
            refused.reject(error)
            return refused
        if now_ms is None:
            now_ms = self._clock.wall_ms()
        call = _Call(self, target, len(outgoing), waits=waits, now_ms=now_ms, session=session)
        keyless = self._keyless(target) if partition is None else partition
        call.sort_in(outgoing, partition=partition, keyless=keyless)
        return call.carry_out()

    def check_record(self, topic: Topic, record: Record) -> None:
        self._topics.check_record(topic, record)

    def append(self, topic: Topic, number: int, lane: int, share: Share) -> None:
        if self._outbox is None:
            self._gatherer.add(topic.partitions[number], lane, share)
        else:
            self._outbox.add(topic, number, lane, share)

    def schedule(self, topic: Topic, delayed: list[Delayed]) -> Promise[list[str]]:
        return self._schedules.schedule(topic.name, delayed)

    def _keyless(self, topic: Topic) -> int:
        """Choose partitions round-robin: a random one would cost a system call per message.

        Records that many clients publish at once go to one partition and make one batch. Not if
        responses wait for a sync: a single write starts it immediately, and would leave out records
        that arrive a moment later.
        """
        if topic.partitions[0].waits_for_sync or self._gatherer.turns != self._turns:
            self._turns = self._gatherer.turns
            self._last += 1
        return self._last % len(topic.partitions)


class _Call:
    """One call of `publish` in progress."""

    def __init__(
        self,
        publisher: Publisher,
        topic: Topic,
        count: int,
        *,
        waits: bool,
        now_ms: int,
        session: Session | None,
    ) -> None:
        self._publisher = publisher
        self._topic = topic
        self._now_ms = now_ms
        self.waits = waits
        self.session = session
        self.results: list[PublishResult | None] = [None] * count
        self._lanes: dict[_Lane, _Load] = {}
        self._delayed: list[tuple[int, Delayed]] = []
        self._left = 1
        self._promise: Promise[list[PublishResult]] = Promise()

    def sort_in(
        self, outgoing: Sequence[Record | Outgoing], *, partition: int | None, keyless: int
    ) -> None:
        """Route records; an invalid one is refused by itself."""
        has_schemas = self._topic.settings.has_schemas
        for index, one in enumerate(outgoing):
            if has_schemas and not self._obeys(index, one):
                continue
            record, priority = cast(Record, one), PRIORITY_DEFAULT
            if isinstance(one, Outgoing) or one.headers:
                parsed = self._parse(index, one)
                if parsed is None:
                    continue
                record, due_ms, priority = parsed
                if due_ms is not None:
                    number = PARTITION_OPEN if partition is None else partition
                    self._delayed.append((index, Delayed(record, due_ms, number)))
                    continue
            number = keyless
            if partition is None and record.key is not None:
                number = partition_of_key(record.key, len(self._topic.partitions))
            if record.timestamp_ms == NO_TIMESTAMP:
                record = record._replace(timestamp_ms=self._now_ms)
            load = self._lanes.get((number, priority))
            if load is None:
                load = self._lanes[number, priority] = _Load()
            load.indexes.append(index)
            load.records.append(record)

    def _parse(self, index: int, one: Record | Outgoing) -> tuple[Record, int | None, int] | None:
        """A record, its due time if delayed, and its lane; None if it has been refused."""
        try:
            return parse_outgoing(one, now_ms=self._now_ms)
        except GoQueueError as error:
            self.results[index] = error
            return None

    def _obeys(self, index: int, one: Record | Outgoing) -> bool:
        """Whether a record conforms to the schemas of its topic; if not, it has been refused."""
        try:
            record = one.record if isinstance(one, Outgoing) else one
            self._publisher.check_record(self._topic, record)
        except GoQueueError as error:
            self.results[index] = error
            return False
        return True

    def carry_out(self) -> Promise[list[PublishResult]]:
        for (number, lane), load in self._lanes.items():
            room = self._topic.settings.message_bytes_max - HEADER_BYTES
            for part, size in load.parts(room):
                self._left += len(part.records)
                share = _Share(self, number, part, size)
                self._publisher.append(self._topic, number, lane, share)
        if self._delayed:
            self._schedule()
        self.done(1)
        return self._promise

    def _schedule(self) -> None:
        indexes = [index for index, _ in self._delayed]

        def scheduled(ids: list[str] | None, error: Exception | None) -> None:
            if ids is None:
                assert isinstance(error, GoQueueError)
                for index in indexes:
                    self.results[index] = error
            else:
                for schedule_id, (index, one) in zip(ids, self._delayed, strict=True):
                    self.results[index] = Scheduled(schedule_id, one.due_ms)
            self.done(1)

        self._left += 1
        delayed = [one for _, one in self._delayed]
        self._publisher.schedule(self._topic, delayed).then(scheduled)

    def done(self, count: int) -> None:
        """Count records that have their results."""
        self._left -= count
        if not self._left:
            assert None not in self.results, "every record has a result"
            self._promise.resolve(cast(list[PublishResult], self.results))


def parse_outgoing(one: Record | Outgoing, *, now_ms: int) -> tuple[Record, int | None, int]:
    """A record with a timestamp, its due time if delayed, and its lane; raise if invalid."""
    record, attributes = one if isinstance(one, Outgoing) else (one, None)
    if attributes is None:
        attributes = parse_attributes(record.headers)
    else:
        record = record._replace(headers=_with_attributes(record.headers, attributes))
    due_ms = attributes.due_ms(now_ms)
    if record.timestamp_ms == NO_TIMESTAMP:
        record = record._replace(timestamp_ms=now_ms)
    return record, due_ms, attributes.priority


class _Load:
    """Records of one call for one partition and lane, with their positions in the call."""

    __slots__ = ("indexes", "records")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.records: list[Record] = []

    def parts(self, bytes_max: int) -> Iterator[tuple[_Load, int]]:
        """Loads that fit a batch, with their size; a record too large for any is its own load."""
        size = record_bytes(self.records)
        if size <= bytes_max and len(self.records) <= BATCH_RECORDS_MAX:
            yield self, size
            return
        part, size = _Load(), 0
        for index, record in zip(self.indexes, self.records, strict=True):
            record_size = record_bytes((record,))
            is_full = len(part.records) == BATCH_RECORDS_MAX
            if part.records and (is_full or size + record_size > bytes_max):
                yield part, size
                part, size = _Load(), 0
            part.indexes.append(index)
            part.records.append(record)
            size += record_size
        yield part, size


class _Share:
    """A load on its way into a batch."""

    __slots__ = ("_call", "_load", "_number", "records", "session", "size", "waits")

    def __init__(self, call: _Call, number: int, load: _Load, size: int) -> None:
        self._call = call
        self._number = number
        self._load = load
        self.records = load.records
        self.size = size
        self.session = call.session
        self.waits = call.waits

    def stored(self, base_offset: int, timestamp_ms: int) -> None:
        results, number, offset = self._call.results, self._number, base_offset
        is_append_time = timestamp_ms != NO_TIMESTAMP
        for index, record in zip(self._load.indexes, self.records, strict=True):
            at_ms = timestamp_ms if is_append_time else record.timestamp_ms
            results[index] = Published(number, offset, at_ms)
            offset += 1
        if not self.waits:
            self._call.done(len(self.records))

    def refused(self, error: GoQueueError) -> None:
        for index in self._load.indexes:
            self._call.results[index] = error
        self._call.done(len(self.records))

    def committed(self, error: GoQueueError | None) -> None:
        if error is not None:
            self.refused(error)
        else:
            self._call.done(len(self.records))

    def split(self) -> list[_Share]:
        shares = []
        for index, record in zip(self._load.indexes, self.records, strict=True):
            load = _Load()
            load.indexes, load.records = [index], [record]
            shares.append(_Share(self._call, self._number, load, record_bytes(load.records)))
        return shares


def _with_attributes(headers: tuple[Header, ...], wanted: Attributes) -> tuple[Header, ...]:
    """Headers that express the attributes in `wanted`, for readers of the record."""
    kept = [header for header in headers if header[0] not in _ATTRIBUTE_HEADERS]
    if wanted.priority != PRIORITY_DEFAULT:
        kept.append((PRIORITY_HEADER, b"%d" % wanted.priority))
    if wanted.ttl_ms is not None:
        kept.append((TTL_HEADER, b"%d" % wanted.ttl_ms))
    return tuple(kept)


def record_bytes(records: Sequence[Record]) -> int:
    """The upper bound of the size of records in a batch, in bytes."""
    size = len(records) * RECORD_OVERHEAD_BYTES
    for key, value, headers, _, _ in records:
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        for name, content in headers:
            size += 3 * len(name) + len(content or b"") + HEADER_OVERHEAD_BYTES
    return size
