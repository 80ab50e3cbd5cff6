"""Publishing in a transaction: all messages of a call are stored, or none.

A client that commits must be able to rely on the responses. So one invalid message has its whole
call refused before anything is written. If a disk fails half-way, some messages are written and
others are not; then the transaction can only be aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from goqueue.broker.publishing.gathering import BATCH_RECORDS_MAX
from goqueue.broker.publishing.publisher import (
    Published,
    PublishResult,
    Scheduled,
    parse_outgoing,
    record_bytes,
)
from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.schedules import Delayed, Schedules
from goqueue.broker.shards.transactional_batches import append_records, next_sequence
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.broker.transactions.ids import Transaction
from goqueue.broker.transactions.remote_writes import TransactionLines
from goqueue.broker.transactions.transactions import Transactions
from goqueue.delivery.schedules import PARTITION_OPEN, ScheduledMessage
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import HEADER_BYTES, NO_TIMESTAMP, Record, encode_batch
from goqueue.model.errors import (
    GoQueueError,
    InternalTopic,
    InvalidRequest,
    StorageFull,
    TransactionAbortable,
)
from goqueue.model.key_hash import partition_of_key
from goqueue.model.names import TopicPartition
from goqueue.model.tenants import TopicName
from goqueue.partition import Appended, Partition
from goqueue.partition.rules import check_produced

DOOMED_MAX = 10_000  # the oldest is forgotten first

_log = logging.getLogger(__name__)


class Addressed(NamedTuple):
    """A record and its destination; without a partition, its key selects one."""

    topic: TopicName
    record: Record
    partition: int | None = None


class _Batch(NamedTuple):
    """Records for one partition, with their positions in the call."""

    partition: Partition
    places: list[int]
    records: list[Record]


class _Late(NamedTuple):
    """Delayed records of one topic, with their positions in the call."""

    places: list[int]
    messages: list[ScheduledMessage]


class _Plan:
    """Where the records of one call go, and which are refused."""

    def __init__(self, count: int) -> None:
        self.refused: dict[int, GoQueueError] = {}
        self.count = count
        self.batches: list[_Batch] = []
        self.late: list[_Late] = []

    def refusals(self) -> list[PublishResult]:
        return all_refused(self.count, self.refused)


def all_refused(count: int, refused: dict[int, GoQueueError]) -> list[PublishResult]:
    """The results of a call of which nothing is stored, because part of it is refused."""
    place, error = next(iter(refused.items()))
    others = InvalidRequest(
        f"This message was not published, because message {place} of the same call was refused: "
        f"{error}"
    )
    return [refused.get(one, others) for one in range(count)]


class DoomedTransactions:
    """Transactions of which a part could not be stored; they can only be aborted."""

    def __init__(self) -> None:
        self._reasons: dict[Transaction, GoQueueError] = {}

    def add(self, transaction: Transaction, reason: GoQueueError) -> None:
        _log.error("a transaction of %r is half written: %s", transaction.transactional_id, reason)
        self._reasons[transaction] = reason
        if len(self._reasons) > DOOMED_MAX:
            del self._reasons[next(iter(self._reasons))]

    def check(self, transaction: Transaction) -> None:
        """Raise if a transaction must not be committed."""
        reason = self._reasons.get(transaction)
        if reason is not None:
            raise TransactionAbortable(
                f"This transaction cannot be committed, because not all of it could be stored "
                f"({reason}); abort it and begin another."
            )

    def forget(self, transaction: Transaction) -> None:
        """Drop a transaction that has ended."""
        self._reasons.pop(transaction, None)


class TransactionPublisher:
    """Stores or schedules records under the identity of a transaction's producer."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        schedules: Schedules,
        transactions: Transactions,
        lines: TransactionLines,
        *,
        is_full: Callable[[], bool],
    ) -> None:
        self.doomed = DoomedTransactions()
        self._clock = clock
        self._topics = topics
        self._schedules = schedules
        self._transactions = transactions
        self._lines = lines
        self._is_full = is_full
        self._turn = 0

    async def publish(
        self, transaction: Transaction, messages: Sequence[Addressed], *, now_ms: int
    ) -> list[PublishResult]:
        """Store or schedule records; return a result for each, in order, when all are durable.

        If one is refused, none is stored, and each result reports it.
        """
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")
        plan = self._plan(messages, now_ms=now_ms)
        if plan.refused:
            return plan.refusals()
        log = self._schedules.log_of(transaction.identity) if plan.late else None
        waiting = None if log is None else log.partition.name
        if plan.late and log is None:
            waiting = self._schedules.remote_partition_of(transaction.identity)
        await self._join(transaction, plan, waiting)
        self._check_batches(plan, now_ms=now_ms)
        if plan.refused:
            return plan.refusals()
        return await self._store(transaction, plan, log or waiting, now_ms=now_ms)

    # Planning

    def _plan(self, messages: Sequence[Addressed], *, now_ms: int) -> _Plan:
        plan = _Plan(len(messages))
        self._turn += 1
        lanes: dict[tuple[str, int, int], _Batch] = {}
        delayed: dict[str, tuple[Topic, list[int], list[Delayed]]] = {}
        for place, (name, one, wanted) in enumerate(messages):
            try:
                topic = self._topic(name, wanted)
                record, due_ms, priority = parse_outgoing(one, now_ms=now_ms)
                if topic.settings.has_schemas:
                    self._topics.check_record(topic, record)
            except GoQueueError as error:
                plan.refused[place] = error
                continue
            if due_ms is not None:
                late = delayed.setdefault(name, (topic, [], []))
                late[1].append(place)
                number = PARTITION_OPEN if wanted is None else wanted
                late[2].append(Delayed(record, due_ms, number))
                continue
            number = self._number(topic, record) if wanted is None else wanted
            lane = (name, number, priority)
            batch = lanes.get(lane)
            if batch is None:
                batch = lanes[lane] = _Batch(topic.partitions[number], [], [])
            batch.places.append(place)
            batch.records.append(record)
        for batch in lanes.values():
            plan.batches += _pieces(batch)
        for topic, places, some in delayed.values():
            self._plan_late(plan, topic, places, some)
        return plan

    def _topic(self, name: str, partition: int | None) -> Topic:
        topic = self._topics.get(name)
        if topic.is_internal:
            raise InternalTopic(name)
        if partition is not None:
            topic.partition(partition)
        return topic

    def _number(self, topic: Topic, record: Record) -> int:
        """Choose a partition: records of one call without a key share one, and calls rotate."""
        if record.key is not None:
            return partition_of_key(record.key, len(topic.partitions))
        return self._turn % len(topic.partitions)

    def _plan_late(
        self, plan: _Plan, topic: Topic, places: list[int], delayed: list[Delayed]
    ) -> None:
        try:
            plan.late.append(_Late(places, self._schedules.check_delayed(topic, delayed)))
        except GoQueueError:
            for place, one in zip(places, delayed, strict=True):
                try:
                    self._schedules.check_delayed(topic, [one])
                except GoQueueError as error:
                    plan.refused[place] = error

    def _check_batches(self, plan: _Plan, *, now_ms: int) -> None:
        """Refuse what the topic would refuse, before anything is stored."""
        for batch in plan.batches:
            try:
                _check(batch.partition, batch.records, now_ms=now_ms)
            except GoQueueError as refusal:
                for place, record in zip(batch.places, batch.records, strict=True):
                    try:
                        _check(batch.partition, [record], now_ms=now_ms)
                    except GoQueueError as error:
                        plan.refused[place] = error
                if not any(place in plan.refused for place in batch.places):
                    plan.refused.update(dict.fromkeys(batch.places, refusal))

    # Joining and storing

    async def _join(
        self, transaction: Transaction, plan: _Plan, waiting: TopicPartition | None
    ) -> None:
        """Make every partition written to a participant; return when that is durable.

        Delayed messages are written to `waiting`.
        """
        transactional_id, identity = transaction
        names = dict.fromkeys(batch.partition.name for batch in plan.batches)
        if waiting is not None:
            names[waiting] = None
        missing = [
            name
            for name in names
            if self._transactions.verify(transactional_id, identity, name) is not None
        ]
        if missing:
            await self._transactions.add_partitions(transactional_id, identity, missing)
            for name in missing:
                self._lines.begin(transaction, name)
        for name in names:
            refusal = self._transactions.verify(transactional_id, identity, name)
            if refusal is not None:
                raise refusal

    async def _store(
        self,
        transaction: Transaction,
        plan: _Plan,
        keeper: ScheduleLog | TopicPartition | None,
        *,
        now_ms: int,
    ) -> list[PublishResult]:
        """Write everything; `keeper` stores delayed messages, here or on another node."""
        results: list[PublishResult | None] = [None] * plan.count
        ends: dict[Partition, int] = {}
        remote: list[tuple[_Batch, Promise[Appended]]] = []
        late_elsewhere = plan.late if isinstance(keeper, TopicPartition) else []
        try:
            for batch in plan.batches:
                name = batch.partition.name
                if batch.partition.is_following:
                    stored = self._lines.append(transaction, name, batch.records)
                    remote.append((batch, stored))
                else:
                    ends[batch.partition] = self._append(transaction, batch, results, now_ms=now_ms)
                    sequence = next_sequence(batch.partition, transaction.identity)
                    self._lines.note(transaction, name, sequence=sequence)
            for late in plan.late if isinstance(keeper, ScheduleLog) else ():
                assert isinstance(keeper, ScheduleLog)
                ends.setdefault(keeper.partition, -1)  # On an error some may have been written.
                ids = self._schedules.schedule_pending(keeper, late.messages, transaction.identity)
                ends[keeper.partition] = keeper.partition.end_offset - 1
                _note_scheduled(late, ids, results)
        except GoQueueError as error:
            if not ends and not remote:
                raise
            self.doomed.add(transaction, error)
            late_elsewhere = []
            results = [error if result is None else result for result in results]
        try:
            await _committed(ends)
            for batch, stored in remote:
                _note_results(batch, await stored, results)
            for late in late_elsewhere:
                assert isinstance(keeper, TopicPartition)
                ids = await self._schedules.schedule_pending_at(
                    keeper, late.messages, transaction.identity
                )
                _note_scheduled(late, ids, results)
        except GoQueueError as error:
            self.doomed.add(transaction, error)
            raise
        assert None not in results, "every record has a result"
        return cast(list[PublishResult], results)

    @staticmethod
    def _append(
        transaction: Transaction,
        batch: _Batch,
        results: list[PublishResult | None],
        *,
        now_ms: int,
    ) -> int:
        partition = batch.partition
        appended = append_records(partition, batch.records, transaction.identity, now_ms=now_ms)
        _note_results(batch, appended, results)
        return appended.last_offset


def _note_scheduled(late: _Late, ids: Sequence[str], results: list[PublishResult | None]) -> None:
    for place, schedule_id, message in zip(late.places, ids, late.messages, strict=True):
        results[place] = Scheduled(schedule_id, message.due_ms)


def _note_results(batch: _Batch, appended: Appended, results: list[PublishResult | None]) -> None:
    number, offset = batch.partition.name.partition, appended.base_offset
    for place, record in zip(batch.places, batch.records, strict=True):
        is_append_time = appended.timestamp_ms != NO_TIMESTAMP
        at_ms = appended.timestamp_ms if is_append_time else record.timestamp_ms
        results[place] = Published(number, offset, at_ms)
        offset += 1


def _pieces(batch: _Batch) -> list[_Batch]:
    """Split records into batches the topic accepts; a record too large for any is its own batch."""
    bytes_max = batch.partition.settings.message_bytes_max - HEADER_BYTES
    pieces = [_Batch(batch.partition, [], [])]
    size = 0
    for place, record in zip(batch.places, batch.records, strict=True):
        record_size = record_bytes((record,))
        is_full = len(pieces[-1].records) == BATCH_RECORDS_MAX
        if pieces[-1].records and (is_full or size + record_size > bytes_max):
            pieces.append(_Batch(batch.partition, [], []))
            size = 0
        pieces[-1].places.append(place)
        pieces[-1].records.append(record)
        size += record_size
    return pieces


def _check(partition: Partition, records: Sequence[Record], *, now_ms: int) -> None:
    if partition.failure is not None:
        raise partition.failure
    batch = memoryview(encode_batch(records))
    check_produced(batch, partition.settings, now_ms=now_ms)


def _committed(ends: dict[Partition, int]) -> Promise[None]:
    """Resolves when all partitions are committed up to these offsets."""
    promise: Promise[None] = Promise()
    left = len(ends)
    failure: GoQueueError | None = None

    def one_done(error: GoQueueError | None) -> None:
        nonlocal left, failure
        left -= 1
        failure = failure or error
        if not left:
            promise.settle(None, failure)

    for partition, offset in list(ends.items()):
        partition.when_committed(offset, one_done)
    if not ends:
        promise.resolve(None)
    return promise
