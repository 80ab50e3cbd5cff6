"""Schedules: messages that appear in their topics later, and the operations on them.

A message waits in an internal topic, created with the first one. A response waits until the records
are durable, as for any producer. Cancel and release exclude each other: the first in the agenda
wins, and the other caller gets its result when that is certain.

A partition of that topic belongs to its leader; a single node leads all of them. A message may wait
in any partition, so a node uses one that it leads, if any. A query about one message must go to its
owner; lists, counts and cancels are sent to all owners from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from zlib import crc32

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.schedules.changes import ScheduleChanges
from goqueue.broker.schedules.delayed_records import Delayed, to_messages
from goqueue.broker.schedules.listing import Schedule, SchedulePage, ScheduleStats, Wanted
from goqueue.broker.schedules.log import ScheduleLog, batches_of, unknown_outcome
from goqueue.broker.schedules.owners import ScheduleOwners, Store, not_here
from goqueue.broker.schedules.queries import ScheduleQueries
from goqueue.broker.schedules.shards import ScheduleShard, ScheduleShards
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.config import ProducerSettings, ScheduleSettings
from goqueue.delivery.schedules import NEVER_MS, NO_EPOCH, ProducerBatch, ScheduledMessage
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised
from goqueue.model.errors import GoQueueError, InternalTopic, StorageFull, UnknownSchedule
from goqueue.model.names import SCHEDULED_TOPIC, ProducerIdentity, TopicPartition
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

__all__ = ["Delayed", "Schedule", "ScheduleStats", "Schedules"]


class Schedules:
    """All schedules, as this node and its clients use them."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        leaders: Leaders,
        random: Random,
        settings: ScheduleSettings,
        producers: ProducerSettings,
        *,
        is_full: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._settings = settings
        self._is_full = is_full
        # Raises if the tenant of a topic may not have so many more delayed messages.
        self.check_quota: Callable[[str, int], None] | None = None
        self._owners = ScheduleOwners(clock, topics, leaders, random)
        self.shards = ScheduleShards(
            clock,
            disk,
            topics,
            leaders,
            settings,
            producers,
            append=self._owners.append,
            is_full=is_full,
        )
        self._changes = ScheduleChanges(clock, self._owners, self._find)
        self._queries = ScheduleQueries(clock, self._owners, self.shards, self._find)
        self._owners.serve(self.store_here, self._changes, self._queries)

    # Starting and stopping

    def stop(self, done: Callable[[], None], flush: Callable[[Callable[[], None]], None]) -> None:
        """Release nothing more; on a single node, also write checkpoints for a fast start."""
        self.shards.stop(done, flush)

    def owner_of(self, schedule_id: str) -> int:
        """The node that owns a message; -1 if there is none."""
        return self._owners.owner_of(schedule_id)

    def position_of(self, schedule_id: str) -> tuple[int, int]:
        """The partition and the offset of a message in the schedule log."""
        return self._owners.ids().read(schedule_id)

    def id_of(self, partition: int, offset: int) -> str:
        """The id of a message in the schedule log."""
        return self._owners.ids().write(partition, offset)

    def _find(self, schedule_id: str) -> tuple[ScheduleShard, int]:
        """The shard and the number of a message that this node owns."""
        shard_number, number = self._owners.ids().read(schedule_id)
        shard = self.shards.owned.get(shard_number)
        if shard is None or shard.releaser is None:
            if shard_number >= self._owners.partition_count():
                raise UnknownSchedule(schedule_id)
            raise not_here()
        return shard, number

    # Scheduling

    def schedule(self, topic: str, delayed: Sequence[Delayed]) -> Promise[list[str]]:
        """Schedule records for a topic; return their ids, in the same order, when durable."""
        return promised(self._schedule(topic, delayed))

    async def _schedule(self, name: str, delayed: Sequence[Delayed]) -> list[str]:
        topic = self._topics.get(name)
        if topic.is_internal:
            raise InternalTopic(name)
        messages = to_messages(topic, delayed, now_ms=self._clock.wall_ms())
        self._check_quota(topic, len(messages))
        self._partition_count()
        own = [number for number, one in self.shards.owned.items() if one.releaser is not None]
        number, numbers = await self._owners.store(messages, own=own)
        return self._owners.ids().write_all(number, numbers)

    def schedule_batch(
        self,
        topic: Topic,
        delayed: Sequence[Delayed],
        origin: ProducerBatch | None,
        *,
        leader_epoch: int,
        transaction: ProducerIdentity | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Promise[None]:
        """Store the delayed records of one producer's batch, unless stored before.

        All go to one partition, always the same for a given partition of the topic, and are stored
        as one batch, so that a crash leaves all of them or none. Resolves when they are durable. In
        a transaction, its commit schedules them. `check` raises if this node no longer leads the
        batch's partition in `leader_epoch`.
        """
        messages = to_messages(topic, delayed, now_ms=self._clock.wall_ms(), origin=origin)
        self._check_room(topic)
        self._check_quota(topic, len(messages))
        storing = self._owners.store_batch(
            self._number_of(topic, delayed[0].partition),
            messages,
            leader_epoch=leader_epoch,
            transaction=transaction,
            timeout_ms=self._settings.store_timeout_ms,
            check=check,
        )
        return promised(storing)

    def store_here(self, call: Store) -> Promise[list[int]]:
        """Store messages in a partition that this node leads; return their numbers.

        An error raised synchronously means that nothing was stored. A batch sent to the leader of a
        partition has that leader's epoch; a former leader is refused.
        """
        shard = self.shards.owned.get(call.number)
        if shard is None or shard.releaser is None:
            raise not_here()
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")
        log, messages = shard.log, call.messages
        log.partition.check_leading()
        if log.partition.shortage is not None:
            raise log.partition.shortage
        if call.leader_epoch != NO_EPOCH:
            source = messages[0].topic_id, messages[0].partition
            log.check_leader(source, call.leader_epoch, known=self._owners.epoch_of(*source))
        if call.is_one_batch:
            numbers = log.store_once(messages, call.transaction)
        else:
            numbers = log.store(messages)
        promise: Promise[list[int]] = Promise()

        def committed(error: GoQueueError | None) -> None:
            # The next leader may have them; without others, the error says it all.
            if error is not None and not self._owners.is_alone:
                error = unknown_outcome(error)
            promise.settle(numbers, error)

        log.partition.when_committed(numbers[-1], committed)
        return promise

    def _partition_count(self) -> int:
        """Return the number of partitions; a single node creates them if they are missing.

        There is no wait for their durability: the first message is committed together with them.
        """
        topic = self._topics.find(SCHEDULED_TOPIC)
        if topic is None:
            self._check_full()
            topic = self._topics.internal.make(SCHEDULED_TOPIC)
        return len(topic.partitions)

    def _number_of(self, topic: Topic, partition: int) -> int:
        """The partition of schedules that stores producers' delayed records for a partition."""
        return (crc32(topic.id) + partition) % self._partition_count()

    def _check_room(self, topic: Topic) -> None:
        if topic.is_internal:
            raise InternalTopic(topic.name)
        self._check_full()

    def _check_quota(self, topic: Topic, count: int) -> None:
        if self.check_quota is not None:
            self.check_quota(topic.name, count)

    def _check_full(self) -> None:
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")

    # Transactions

    def participant(self, topic: Topic, partition: int) -> TopicPartition:
        """Where `schedule_batch` stores the delayed records of a partition."""
        return TopicPartition(SCHEDULED_TOPIC, self._number_of(topic, partition))

    def check_delayed(self, topic: Topic, delayed: Sequence[Delayed]) -> list[ScheduledMessage]:
        """Prepare messages of a transaction for `schedule_pending`; raise if one is invalid."""
        return to_messages(topic, delayed, now_ms=self._clock.wall_ms())

    def log_of(self, identity: ProducerIdentity) -> ScheduleLog | None:
        """The log that stores a producer's messages, whose partition must be a participant.

        None if this node has no such log; `remote_partition_of` then returns one of another node.
        """
        self._check_full()
        self._partition_count()
        logs = [shard.log for shard in self.shards]
        return logs[identity.producer_id % len(logs)] if logs else None

    def remote_partition_of(self, identity: ProducerIdentity) -> TopicPartition:
        """A partition of another node that can store a producer's messages."""
        number = identity.producer_id % self._partition_count()
        return TopicPartition(SCHEDULED_TOPIC, number)

    async def schedule_pending_at(
        self,
        name: TopicPartition,
        messages: Sequence[ScheduledMessage],
        identity: ProducerIdentity,
    ) -> list[str]:
        """Do `schedule_pending` at the leader of a partition."""
        numbers: list[int] = []
        for some in batches_of(messages):
            _, stored = await self._owners.store(
                list(some), number=name.partition, transaction=identity
            )
            numbers += stored
        return self._owners.ids().write_all(name.partition, numbers)

    def schedule_pending(
        self, log: ScheduleLog, messages: Sequence[ScheduledMessage], identity: ProducerIdentity
    ) -> list[str]:
        """Store messages of a transaction, scheduled by its commit; return their future ids.

        On an error some may be stored, and the transaction must not be committed.
        """
        numbers: list[int] = []
        for some in batches_of(messages):
            first = log.schedule_pending(some, identity)
            numbers += range(first, first + len(some))
        return self._owners.ids().write_all(log.number, numbers)

    def transaction_ended(
        self, partition: Partition, producer_id: int, is_commit: bool, offset: int
    ) -> None:
        """Apply a transaction marker committed in a partition of the internal topic."""
        for shard in self.shards:
            if shard.log.partition is partition:
                shard.transactions.ended(producer_id, is_commit=is_commit, marker_offset=offset)

    # Changes

    def cancel(self, schedule_id: str) -> Promise[None]:
        """Cancel a message; refused if it has been released."""
        return promised(self._cancel(schedule_id))

    async def _cancel(self, schedule_id: str) -> None:
        [refusal] = await self._changes.cancel_many([schedule_id])
        if refusal is not None:
            raise refusal

    def cancel_many(self, schedule_ids: Sequence[str]) -> Promise[list[GoQueueError | None]]:
        """Cancel messages; return the refusal of each, if any, when all outcomes are certain."""
        return promised(self._changes.cancel_many(schedule_ids))

    def reschedule(self, schedule_id: str, due_ms: int) -> Promise[None]:
        """Change the due time of a message; refused if it has been released."""
        return promised(self._changes.reschedule(schedule_id, due_ms))

    # Queries

    def get(self, schedule_id: str) -> Schedule:
        """Return a waiting message."""
        return self._queries.get(schedule_id)

    def list(
        self,
        *,
        topic: str | None = None,
        topics: frozenset[str] | None = None,
        from_ms: int = 0,
        until_ms: int = NEVER_MS,
        limit: int = 100,
        after: str = "",
    ) -> Promise[SchedulePage]:
        """Return waiting messages by due time; those being released are left out."""
        wanted = Wanted(_names(topic, topics), from_ms, until_ms)
        return promised(self._queries.page(wanted, limit=limit, after=after))

    def count(
        self,
        *,
        topic: str | None = None,
        topics: frozenset[str] | None = None,
        from_ms: int = 0,
        until_ms: int = NEVER_MS,
    ) -> Promise[int]:
        """Count waiting messages, of some topics or all, in a time range or overall."""
        wanted = Wanted(_names(topic, topics), from_ms, until_ms)
        return promised(self._queries.count(wanted))

    def calendar_here(
        self, *, topics: frozenset[str] | None, times_ms: Sequence[int]
    ) -> Promise[Sequence[int]]:
        """Count the waiting messages of this node that are due between each two times."""
        return self._queries.calendar_here(Wanted(topics), times_ms)

    def stats(self) -> ScheduleStats:
        """The metrics of this node."""
        return self._queries.stats_here()

    def counts_here(self) -> dict[str, int]:
        """Return how many messages this node keeps, by topic."""
        return self._queries.counts_here()

    def sizes_here(self) -> dict[str, int]:
        """Return how many bytes of messages this node keeps, by topic."""
        return self._queries.sizes_here()

    def stats_of_all(self) -> Promise[ScheduleStats]:
        """The metrics of all nodes together."""
        return promised(self._queries.stats())


def _names(topic: str | None, topics: frozenset[str] | None) -> frozenset[str] | None:
    return topics if topic is None else frozenset({topic})
