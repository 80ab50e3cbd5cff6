"""Batches of clients on their way into partitions.

A batch is validated against the schemas of its topic, admitted to its transaction, split if it has
delayed records, and appended. Whatever refuses it, what its producer sends after it is refused too
until it has been sent again (ADR 50).
"""

from __future__ import annotations

from functools import partial

from goqueue.broker.publishing.split_batches import PendingBatches, Split, scheduled_participant
from goqueue.broker.schedules.schedules import Schedules
from goqueue.broker.schemas.validation import Validation
from goqueue.broker.topics.housekeeping import Upkeep
from goqueue.broker.topics.topics import Topic
from goqueue.broker.transactions.entry import Entrant, TransactionEntry
from goqueue.broker.transactions.joining import Joining, is_transactional
from goqueue.loop.clock import Clock
from goqueue.model.attributes import contains_prefix, may_have_attributes
from goqueue.model.batch import HEADER_BYTES, produced_payload, read_header
from goqueue.model.compression import Buffer
from goqueue.model.errors import GoQueueError, InternalTopic, InvalidRequest, StorageFull
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.session import Session
from goqueue.partition import Appended, Partition


class Producing:
    """Stores the batches that clients produce."""

    def __init__(
        self,
        clock: Clock,
        schedules: Schedules,
        validation: Validation,
        entry: TransactionEntry,
        upkeep: Upkeep,
        *,
        waiting_bytes_max: int,
    ) -> None:
        """`waiting_bytes_max` limits the batches that wait for their delayed records."""
        self._clock = clock
        self._schedules = schedules
        self._validation = validation
        self._entry = entry
        self._pending = PendingBatches(clock, schedules, bytes_max=waiting_bytes_max)
        self._upkeep = upkeep

    def produce(
        self,
        topic: Topic,
        partition: Partition,
        batch: memoryview,
        *,
        transactional_id: str | None = None,
        joins_transaction: bool = False,
        session: Session | None = None,
    ) -> Appended | Split | Joining:
        """Append a client's batch; `partition.when_committed` notifies when it is committed.

        A batch with delayed records is split, and its result has its own `when_committed`. So has
        that of a transactional batch whose partition has yet to join, if `joins_transaction` allows
        it.
        """
        if topic.is_internal:
            raise InternalTopic(topic.name)
        if topic.settings.has_schemas:
            self._validation.check_batch(topic, batch, now_ms=self._clock.wall_ms())
        if not is_transactional(batch):
            return self._store(topic, partition, batch, session)
        if transactional_id is None:
            raise InvalidRequest("A transactional batch needs its producer's transactional id.")
        header = read_header(batch)
        entrant = Entrant(
            transactional_id,
            ProducerIdentity(header.producer_id, header.producer_epoch),
            partition,
            self._scheduled_by(topic, partition, batch),
            joins_transaction,
            partial(self._store, topic, partition, batch, session),
        )

        def refused(error: GoQueueError | None) -> None:
            if error is not None:
                self._pending.note_refused(partition, header, error)

        try:
            admitted = self._entry.admit(entrant)
        except GoQueueError as error:
            refused(error)
            raise
        if isinstance(admitted, Joining):
            admitted.when_committed(refused)
        return admitted

    def refused(self, partition: Partition, batch: Buffer, error: GoQueueError) -> GoQueueError:
        """Record and return the error of a refused batch, which its producer will resend."""
        if len(batch) >= HEADER_BYTES:
            self._pending.note_refused(partition, read_header(batch), error)
        return error

    def _scheduled_by(
        self, topic: Topic, partition: Partition, batch: memoryview
    ) -> list[TopicPartition]:
        """Return where the delayed records of a transactional batch are stored, if any."""
        if not (topic.settings.has_attributes and may_have_attributes(batch)):
            return []
        now_ms = self._clock.wall_ms()
        name = scheduled_participant(self._schedules, topic, partition, batch, now_ms=now_ms)
        return [] if name is None else [name]

    def _store(
        self, topic: Topic, partition: Partition, batch: memoryview, session: Session | None
    ) -> Appended | Split:
        try:
            return self._store_now(topic, partition, batch, session)
        except GoQueueError as error:
            self.refused(partition, batch, error)
            raise

    def _store_now(
        self, topic: Topic, partition: Partition, batch: memoryview, session: Session | None
    ) -> Appended | Split:
        if self._upkeep.is_full:
            raise StorageFull("The disk is full; retry when there is room again.")
        now_ms = self._clock.wall_ms()
        payload = produced_payload(batch) if topic.settings.has_attributes else None
        if payload is not None and contains_prefix(payload, 0):
            return self._pending.append(topic, partition, batch, now_ms=now_ms)
        if self._pending.is_idle:
            return partition.append(batch, now_ms=now_ms, payload=payload, session=session)
        return self._pending.append_plain(partition, batch, now_ms=now_ms)

    def role_changed(self, _: Topic, partition: Partition, leads: bool) -> None:
        """Refuse what waits for a partition that this node no longer leads."""
        if not leads:
            self._pending.resign(partition)
