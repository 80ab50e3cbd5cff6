"""Schedules: messages that appear in their topics later, and the operations on them.

A message waits in an internal topic, created with the first one. A response waits until the records
are durable, as for any producer. Cancel and release exclude each other: the first in the agenda
wins, and the other caller gets its result when that is certain.

In a cluster, a partition of that topic belongs to its leader. A message may wait in any partition,
so a node uses one that it leads, if any. A query about one message must go to its owner; lists,
counts and cancels are sent to all owners from here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from zlib import crc32

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.schedules.calls import not_here, unknown_outcome
from goqueue.broker.schedules.cluster import ScheduleCluster
from goqueue.broker.schedules.hosting import ScheduleHosting, Tools
from goqueue.broker.schedules.in_flight import under_way
from goqueue.broker.schedules.intake import Delayed, pieces, to_messages
from goqueue.broker.schedules.listing import (
    Schedule,
    ScheduleListing,
    SchedulePage,
    ScheduleStats,
    Wanted,
)
from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.release import Releaser
from goqueue.broker.schedules.single_node import ScheduleAlone
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.config import ProducerSettings, ScheduleSettings
from goqueue.delivery.schedules import (
    NEVER_MS,
    NO_EPOCH,
    PARTITION_OPEN,
    Lateness,
    Origin,
    ScheduledMessage,
    ScheduleIds,
)
from goqueue.loop.clock import Clock, Handle, earlier_ms
from goqueue.loop.peers import Peers
from goqueue.loop.promise import Promise, promised, start
from goqueue.model.attributes import check_due
from goqueue.model.errors import (
    GoQueueError,
    InternalTopic,
    StorageFull,
    UnknownSchedule,
)
from goqueue.model.names import SCHEDULED_TOPIC, ProducerIdentity, TopicPartition
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

__all__ = ["Delayed", "Schedule", "ScheduleStats", "Schedules"]

CHECKPOINT_CHECK_MS = 1000
CHECKPOINT_RECORDS_MAX = 200_000  # replayed after a crash at most
FORGET_CHECK_MS = 60_000  # how often idle producers are expired

_log = logging.getLogger(__name__)


class Schedules:
    """All schedules of the node."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        settings: ScheduleSettings,
        producers: ProducerSettings,
        *,
        is_full: Callable[[], bool],
        node_id: int = 0,
        cluster: tuple[Leaders, Peers, Random] | None = None,
    ) -> None:
        """In a cluster it takes the metadata of leaders, and calls to other nodes."""
        self._node_id = node_id
        self._clock = clock
        self._topics = topics
        self._settings = settings
        self._producers = producers
        self._forgotten_ms = clock.now_ms()
        self._is_full = is_full
        self._alone = ScheduleAlone(
            clock, disk, topics, partition_count=settings.partitions, is_full=is_full
        )
        self._next_log = 0
        self._lateness = Lateness()
        self._cluster: ScheduleCluster | None = None
        self._hosting: ScheduleHosting | None = None
        if cluster is not None:
            leaders, peers, random = cluster
            self._cluster = ScheduleCluster(clock, topics, leaders, peers, random, self)
            send = self._cluster.calls.append
            self._hosting = ScheduleHosting(
                Tools(clock, disk, topics, send, is_full, self._lateness, leaders.is_unfit)
            )
        self._timer: Handle = clock.call_later(CHECKPOINT_CHECK_MS, self._check_checkpoints)

    # Starting and stopping

    def open(self) -> None:
        """On a single node: load waiting messages."""
        self._alone.open()

    def stop(self, done: Callable[[], None], flush: Callable[[Callable[[], None]], None]) -> None:
        """Release nothing more; on a single node, also write checkpoints for a fast start."""
        self._timer.cancel()
        if self._hosting is not None:
            self._hosting.stop(done)
        else:
            self._alone.stop(done, flush)

    # Leadership, in a cluster

    def lead(self, partition: Partition) -> None:
        """Own the messages of a partition of schedules that this node now leads."""
        assert self._hosting is not None
        self._hosting.lead(partition)

    def resign(self, partition: Partition) -> None:
        """Give up a partition of schedules that this node no longer leads."""
        assert self._hosting is not None
        self._hosting.resign(partition)

    def owner_of(self, schedule_id: str) -> int:
        """The node that owns a message; -1 if there is none."""
        if self._cluster is None:
            return self._node_id
        return self._cluster.owner_of(schedule_id)

    def _logs_here(self) -> list[ScheduleLog]:
        return self._alone.logs if self._hosting is None else [one.log for one in self._hosting]

    def _wake_at(self, log: ScheduleLog, due_ms: int) -> None:
        """Make sure that a message is released when it is due."""
        releaser = self._alone.releaser
        if self._hosting is not None:
            hosted = self._hosting.find(log.number)
            releaser = hosted.releaser if hosted is not None and hosted.log is log else None
        if releaser is not None:
            releaser.wake_at(due_ms)

    def _check_checkpoints(self) -> None:
        self._timer = self._clock.call_later(CHECKPOINT_CHECK_MS, self._check_checkpoints)
        if self._clock.now_ms() - self._forgotten_ms >= FORGET_CHECK_MS:
            self._forgotten_ms = self._clock.now_ms()
            self._forget_sources()
        for log in self._logs_here():
            if log.is_checkpoint_due(
                interval_ms=self._settings.checkpoint_ms, records_max=CHECKPOINT_RECORDS_MAX
            ):
                log.save(lambda: None)

    def _forget_sources(self) -> None:
        """Expire idle producers of delayed records, as partitions expire theirs."""
        before_ms = earlier_ms(self._clock) - self._producers.id_expiry_ms
        for log in self._logs_here():
            try:
                log.forget_sources(
                    before_ms=before_ms,
                    states_max=self._producers.states_per_partition_max,
                    is_known=lambda topic_id: self._topics.find_by_id(topic_id) is not None,
                )
            except GoQueueError as error:
                _log.warning(
                    "%s: idle producers could not be expired yet: %s", log.partition.name, error
                )

    # Scheduling

    def schedule(self, topic: str, delayed: Sequence[Delayed]) -> Promise[list[str]]:
        """Schedule records for a topic; return their ids, in the same order, when durable."""
        promise: Promise[list[str]] = Promise()
        try:
            target = self._topics.get(topic)
            if target.is_internal:
                raise InternalTopic(topic)
            messages = to_messages(target, delayed, now_ms=self._clock.wall_ms())
            if self._cluster is not None:
                start(self._schedule_anywhere(self._cluster, messages), promise.settle)
                return promise
            log, numbers = self._store(target, messages)
        except GoQueueError as error:
            promise.reject(error)
            return promise

        def committed(error: GoQueueError | None) -> None:
            ids = self._alone.ids.write_all(log.number, numbers) if error is None else None
            promise.settle(ids, error)

        log.partition.when_committed(numbers[-1], committed)
        return promise

    async def _schedule_anywhere(
        self, cluster: ScheduleCluster, messages: list[ScheduledMessage]
    ) -> list[str]:
        own = [log.number for log in self._logs_here()]
        number, numbers = await cluster.store(messages, number=None, own=own)
        return cluster.ids().write_all(number, numbers)

    def store_here(
        self,
        number: int,
        messages: list[ScheduledMessage],
        *,
        transaction: ProducerIdentity | None,
        is_one_batch: bool,
        leader_epoch: int,
    ) -> Promise[list[int]]:
        """In a cluster: store messages in a partition that this node leads; return their numbers.

        An error raised synchronously means that nothing was stored. A batch sent to the leader of a
        partition has that leader's `leader_epoch`; a former leader is refused.
        """
        assert self._hosting is not None
        assert self._cluster is not None
        hosted = self._hosting.find(number)
        if hosted is None:
            raise not_here()
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")
        log = hosted.log
        log.partition.check_leading()
        if log.partition.shortage is not None:
            raise log.partition.shortage
        if leader_epoch != NO_EPOCH:
            source = messages[0].topic_id, messages[0].partition
            log.check_leader(source, leader_epoch, known=self._cluster.epoch_of(*source))
        if is_one_batch:
            numbers = self._store_batch(log, messages, transaction)
        else:
            numbers = self._store_pieces(log, messages)
        promise: Promise[list[int]] = Promise()

        def committed(error: GoQueueError | None) -> None:
            promise.settle(numbers, None if error is None else unknown_outcome(error))

        log.partition.when_committed(numbers[-1], committed)
        return promise

    def _store(
        self, topic: Topic, messages: list[ScheduledMessage]
    ) -> tuple[ScheduleLog, list[int]]:
        """Write messages in a few batches of one log; all of them or, on an error, none."""
        log = self._log_for(topic, messages[0].partition)
        return log, self._store_pieces(log, messages)

    def _store_pieces(self, log: ScheduleLog, messages: list[ScheduledMessage]) -> list[int]:
        numbers: list[int] = []
        try:
            for some in pieces(messages):
                first = log.schedule(some)
                numbers += range(first, first + len(some))
        except GoQueueError as error:
            if not self._undo(log, numbers) and self._cluster is not None:
                raise unknown_outcome(error) from error  # It must not be retried elsewhere.
            raise
        self._wake_at(log, min(message.due_ms for message in messages))
        return numbers

    def _store_batch(
        self,
        log: ScheduleLog,
        messages: list[ScheduledMessage],
        transaction: ProducerIdentity | None,
    ) -> list[int]:
        """Write the messages of one producer's batch as one batch, unless already stored."""
        first = messages[0]
        if first.origin is not None:
            known = log.agenda.origins.find(first.topic_id, first.partition, first.origin)
            if known is not None:
                return [known]
        if transaction is not None:
            number = log.schedule_pending(messages, transaction)
        else:
            number = log.schedule(messages)
            self._wake_at(log, min(message.due_ms for message in messages))
        return list(range(number, number + len(messages)))

    def _undo(self, log: ScheduleLog, numbers: list[int]) -> bool:
        """Undo messages stored a moment ago; return whether that was possible."""
        try:
            log.end(numbers, is_released=False)
            return True
        except GoQueueError as error:
            _log.warning(
                "%d messages of a refused call stay scheduled in %s: %s",
                len(numbers),
                log.partition.name,
                error,
            )
            return False

    def _log_for(self, topic: Topic, partition: int) -> ScheduleLog:
        self._check_room(topic)
        self._alone.ensure()
        logs = self._alone.logs
        if partition == PARTITION_OPEN:
            self._next_log += 1
            return logs[self._next_log % len(logs)]
        return logs[_number_of(topic, partition, len(logs))]

    def _check_room(self, topic: Topic) -> None:
        if topic.is_internal:
            raise InternalTopic(topic.name)
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")

    def schedule_batch(
        self,
        topic: Topic,
        delayed: Sequence[Delayed],
        origin: Origin | None,
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
        stored: Promise[None] = Promise()
        partition = delayed[0].partition
        messages = to_messages(topic, delayed, now_ms=self._clock.wall_ms(), origin=origin)
        if self._cluster is None:
            log = self._log_for(topic, partition)
            numbers = self._store_batch(log, messages, transaction)
            log.partition.when_committed(numbers[-1], lambda error: stored.settle(None, error))
            return stored
        self._check_room(topic)
        number = _number_of(topic, partition, self._cluster.partition_count())
        storing = self._cluster.store_batch(
            number,
            messages,
            leader_epoch=leader_epoch,
            transaction=transaction,
            timeout_ms=self._settings.store_timeout_ms,
            check=check,
        )
        start(storing, stored.settle)
        return stored

    # Transactions

    def participant(self, topic: Topic, partition: int) -> TopicPartition:
        """Where `schedule_batch` stores the delayed records of a partition."""
        if self._cluster is None:
            return self._log_for(topic, partition).partition.name
        number = _number_of(topic, partition, self._cluster.partition_count())
        return TopicPartition(SCHEDULED_TOPIC, number)

    def check_delayed(self, topic: Topic, delayed: Sequence[Delayed]) -> list[ScheduledMessage]:
        """Prepare messages of a transaction for `schedule_pending`; raise if one is invalid."""
        return to_messages(topic, delayed, now_ms=self._clock.wall_ms())

    def log_of(self, identity: ProducerIdentity) -> ScheduleLog | None:
        """The log that stores a producer's messages, whose partition must be a participant.

        None if this node has no such log; `place_of` then returns a partition of another node.
        """
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")
        if self._hosting is None:
            self._alone.ensure()
        logs = self._logs_here()
        return logs[identity.producer_id % len(logs)] if logs else None

    def place_of(self, identity: ProducerIdentity) -> TopicPartition:
        """A partition of another node that can store a producer's messages."""
        assert self._cluster is not None
        count = self._cluster.partition_count()
        return TopicPartition(SCHEDULED_TOPIC, identity.producer_id % count)

    async def schedule_pending_at(
        self,
        place: TopicPartition,
        messages: Sequence[ScheduledMessage],
        identity: ProducerIdentity,
    ) -> list[str]:
        """Do `schedule_pending` at the leader of a partition."""
        assert self._cluster is not None
        numbers: list[int] = []
        for some in pieces(messages):
            _, stored = await self._cluster.store(
                list(some), number=place.partition, own=(), transaction=identity, is_one_batch=True
            )
            numbers += stored
        return self._ids_here().write_all(place.partition, numbers)

    def schedule_pending(
        self, log: ScheduleLog, messages: Sequence[ScheduledMessage], identity: ProducerIdentity
    ) -> list[str]:
        """Store messages of a transaction, scheduled by its commit; return their future ids.

        On an error some may be stored, and the transaction must not be committed.
        """
        numbers: list[int] = []
        for some in pieces(messages):
            first = log.schedule_pending(some, identity)
            numbers += range(first, first + len(some))
        return self._ids_here().write_all(log.number, numbers)

    def transaction_ended(self, partition: Partition, producer_id: int, is_commit: bool) -> None:
        """Apply a transaction marker committed in a partition of the internal topic."""
        for log in self._logs_here():
            if log.partition is partition:
                wake_at = partial(self._wake_at, log)
                log.ended(producer_id, is_commit=is_commit, on_active=wake_at)

    # Changes

    def cancel(self, schedule_id: str) -> Promise[None]:
        """Cancel a message; refused if it has been released."""
        promise: Promise[None] = Promise()

        def cancelled(outcomes: list[GoQueueError | None] | None, error: Exception | None) -> None:
            promise.settle(None, outcomes[0] if outcomes is not None else error)

        self.cancel_many([schedule_id]).then(cancelled)
        return promise

    def cancel_many(self, schedule_ids: Sequence[str]) -> Promise[list[GoQueueError | None]]:
        """Cancel messages; return the refusal of each, if any, when all outcomes are certain."""
        if self._cluster is None:
            return self.cancel_here(schedule_ids)
        promise: Promise[list[GoQueueError | None]] = Promise()
        start(self._cluster.cancel(schedule_ids), promise.settle)
        return promise

    def cancel_here(self, schedule_ids: Sequence[str]) -> Promise[list[GoQueueError | None]]:
        """The same, for messages that this node owns."""
        return promised(self._cancel_all(schedule_ids))

    async def _cancel_all(self, schedule_ids: Sequence[str]) -> list[GoQueueError | None]:
        outcomes: list[GoQueueError | None] = [None] * len(schedule_ids)
        flights = self._flights_of(schedule_ids)
        others = [place for place in range(len(schedule_ids)) if place not in flights]
        await self._cancel_some(schedule_ids, others, outcomes)
        for flight in flights.values():
            await flight
        await self._cancel_some(schedule_ids, list(flights), outcomes)
        return outcomes

    async def _cancel_some(
        self, schedule_ids: Sequence[str], some: list[int], outcomes: list[GoQueueError | None]
    ) -> None:
        places: dict[ScheduleLog, list[int]] = {}
        for place in some:
            try:
                log, number = self._find_changeable(schedule_ids[place])
            except GoQueueError as error:
                outcomes[place] = error
            else:
                log.cancel(number)
                places.setdefault(log, []).append(place)
        await _gather_cancels(places, outcomes)

    def _flights_of(self, schedule_ids: Sequence[str]) -> dict[int, Promise[None]]:
        """The releases to await before messages can be changed or refused, by position in the
        list.
        """
        flights: dict[int, Promise[None]] = {}
        for place, schedule_id in enumerate(schedule_ids):
            try:
                log, number = self._find(schedule_id)
            except GoQueueError:
                continue  # The change itself reports the error.
            flight = log.flight_of(number)
            if flight is not None:
                flights[place] = flight
        return flights

    def reschedule(self, schedule_id: str, due_ms: int) -> Promise[None]:
        """Change the due time of a message; refused if it has been released."""
        return promised(self._reschedule(schedule_id, due_ms))

    async def _reschedule(self, schedule_id: str, due_ms: int) -> None:
        check_due(due_ms, now_ms=self._clock.wall_ms())
        for flight in self._flights_of([schedule_id]).values():
            await flight
        log, number = self._find_changeable(schedule_id)
        offset = log.move(number, due_ms)
        self._wake_at(log, due_ms)
        moved: Promise[None] = Promise()
        log.partition.when_committed(offset, lambda error: moved.settle(None, error))
        await moved

    def _find(self, schedule_id: str) -> tuple[ScheduleLog, int]:
        number_of_log, number = self._ids_here().read(schedule_id)
        if self._cluster is not None and self._hosting is not None:
            if number_of_log >= self._cluster.partition_count():
                raise UnknownSchedule(schedule_id)
            hosted = self._hosting.find(number_of_log)
            if hosted is None:
                raise not_here()
            return hosted.log, number
        if number_of_log >= len(self._alone.logs):
            raise UnknownSchedule(schedule_id)
        return self._alone.logs[number_of_log], number

    def _ids_here(self) -> ScheduleIds:
        return self._alone.ids if self._cluster is None else self._cluster.ids()

    def _find_changeable(self, schedule_id: str) -> tuple[ScheduleLog, int]:
        log, number = self._find(schedule_id)
        if log.is_being_cancelled(number):
            raise UnknownSchedule(schedule_id)
        if log.agenda.is_in_flight(number):
            raise under_way(schedule_id)
        log.agenda.check_changeable(number, schedule_id)
        return log, number

    # Queries

    def get(self, schedule_id: str) -> Schedule:
        """Return a waiting message."""
        log, number = self._find(schedule_id)
        if log.is_being_cancelled(number):
            raise UnknownSchedule(schedule_id)
        if not log.agenda.is_waiting(number):
            log.agenda.check_changeable(number, schedule_id)
            raise UnknownSchedule(schedule_id)
        message = log.read(number)
        if message is None:
            raise UnknownSchedule(schedule_id)
        return Schedule(
            schedule_id,
            message.topic,
            None if message.partition == PARTITION_OPEN else message.partition,
            log.agenda.moved.get(number, message.due_ms),
            message.key,
            message.value,
            message.headers,
            message.timestamp_ms,
        )

    def list(
        self,
        *,
        topic: str | None = None,
        from_ms: int = 0,
        until_ms: int = NEVER_MS,
        limit: int = 100,
        after: str = "",
    ) -> Promise[SchedulePage]:
        """Return waiting messages by due time; those being released are left out."""
        wanted = {"topic": topic, "from_ms": from_ms, "until_ms": until_ms}
        if self._cluster is None:
            return self.list_here(limit=limit, after=after, **wanted)  # type: ignore[arg-type]
        promise: Promise[SchedulePage] = Promise()
        page = self._cluster.page(limit=limit, after=after, **wanted)  # type: ignore[arg-type]
        start(page, promise.settle)
        return promise

    def list_here(
        self, *, topic: str | None, from_ms: int, until_ms: int, limit: int, after: str
    ) -> Promise[SchedulePage]:
        """The same, for messages that this node owns."""
        self._check_loaded()
        promise: Promise[SchedulePage] = Promise()
        wanted = Wanted(topic, from_ms, until_ms)
        start(self._listing().page(wanted, limit=limit, after=after), promise.settle)
        return promise

    def _check_loaded(self) -> None:
        if self._hosting is not None:
            self._hosting.check_loaded()

    def _listing(self) -> ScheduleListing:
        return ScheduleListing(self._clock, self._logs_here(), self._ids_here())

    def count(
        self, *, topic: str | None = None, from_ms: int = 0, until_ms: int = NEVER_MS
    ) -> Promise[int]:
        """Count waiting messages, of one topic or all, in a time range or overall."""
        if self._cluster is None:
            return self.count_here(topic=topic, from_ms=from_ms, until_ms=until_ms)
        promise: Promise[int] = Promise()
        counted = self._cluster.count(topic=topic, from_ms=from_ms, until_ms=until_ms)
        start(counted, promise.settle)
        return promise

    def count_here(self, *, topic: str | None, from_ms: int, until_ms: int) -> Promise[int]:
        """The same, for messages that this node owns."""
        self._check_loaded()
        promise: Promise[int] = Promise()
        if from_ms <= 0 and until_ms >= NEVER_MS:
            promise.resolve(sum(log.agenda.count(topic) for log in self._logs_here()))
        else:
            start(self._listing().count(Wanted(topic, from_ms, until_ms)), promise.settle)
        return promise

    def stats(self) -> ScheduleStats:
        """The metrics of this node."""
        return self.stats_here()

    def stats_of_all(self) -> Promise[ScheduleStats]:
        """The metrics of all nodes together."""
        promise: Promise[ScheduleStats] = Promise()
        if self._cluster is None:
            promise.resolve(self.stats_here())
        else:
            start(self._cluster.stats(), promise.settle)
        return promise

    def stats_here(self) -> ScheduleStats:
        agendas = [log.agenda for log in self._logs_here()]
        dead_lettered, dropped = self._counts()
        releaser = self._alone.releaser
        late = self._lateness if releaser is None else releaser.lateness
        next_due_ms = min((one.timetable.due_min_ms() for one in agendas), default=NEVER_MS)
        return ScheduleStats(
            pending=sum(one.count() for one in agendas),
            released=sum(one.released_count for one in agendas),
            cancelled=sum(one.cancelled_count for one in agendas),
            dead_lettered=dead_lettered,
            dropped=dropped,
            late_ms_p50=late.percentile_ms(50),
            late_ms_p99=late.percentile_ms(99),
            late_ms_max=late.max_ms,
            next_due_ms=next_due_ms if next_due_ms < NEVER_MS else None,
        )

    def _counts(self) -> tuple[int, int]:
        """How many messages were dead-lettered here, and how many were dropped."""
        releaser = self._alone.releaser
        releasers: list[Releaser] = [] if releaser is None else [releaser]
        earlier = (0, 0)
        if self._hosting is not None:
            releasers = [one.releaser for one in self._hosting]
            earlier = (self._hosting.dead_lettered, self._hosting.dropped)
        return (
            earlier[0] + sum(one.dead_lettered for one in releasers),
            earlier[1] + sum(one.dropped for one in releasers),
        )


def _number_of(topic: Topic, partition: int, count: int) -> int:
    """The partition of schedules that stores producers' delayed records for a partition."""
    return (crc32(topic.id) + partition) % count


async def _gather_cancels(
    places: dict[ScheduleLog, list[int]], outcomes: list[GoQueueError | None]
) -> None:
    """Wait for the logs with pending cancels; an error applies to all cancels in its log."""
    waits = [(log.cancelled(), some) for log, some in places.items()]
    for cancelled, some in waits:
        try:
            await cancelled
        except GoQueueError as error:
            for place in some:
                outcomes[place] = error
