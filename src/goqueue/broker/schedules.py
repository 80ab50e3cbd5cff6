"""Schedules: messages that appear in their topics later, and everything one can ask about them.

A message waits in an internal topic, made when the first one comes. The answer to a call waits for
the durability of its records, like that of any producer. Cancelling and releasing exclude each
other: whichever comes first in the agenda wins, and the other caller is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from zlib import crc32

from goqueue.broker.internal_topics import SCHEDULED_SETTINGS
from goqueue.broker.promise import Promise, start
from goqueue.broker.schedule_intake import Delayed, pieces, to_messages
from goqueue.broker.schedule_listing import (
    Schedule,
    ScheduleListing,
    SchedulePage,
    ScheduleStats,
    Wanted,
)
from goqueue.broker.schedule_log import ScheduleLog
from goqueue.broker.schedule_recovery import end_released
from goqueue.broker.schedule_release import RETRY_MS, Releaser
from goqueue.broker.scheduler import Handle, Scheduler
from goqueue.broker.topics import SCHEDULED_TOPIC, Topic, Topics
from goqueue.cluster.metadata import NamedProducer
from goqueue.config import ScheduleSettings
from goqueue.delivery.schedules import (
    NEVER_MS,
    PARTITION_OPEN,
    Lateness,
    Origin,
    ScheduledMessage,
    ScheduleIds,
)
from goqueue.model.attributes import check_due
from goqueue.model.errors import (
    GoQueueError,
    InternalTopic,
    StorageFull,
    UnknownSchedule,
)
from goqueue.model.names import ProducerIdentity
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

__all__ = ["Delayed", "Schedule", "ScheduleStats", "Schedules"]

PRODUCER_NAME = "schedules"
CHECKPOINT_CHECK_MS = 1000
CHECKPOINT_RECORDS_MAX = 200_000  # read again after a crash at most

_log = logging.getLogger(__name__)


class Schedules:
    """All schedules of the node."""

    def __init__(
        self,
        scheduler: Scheduler,
        disk: Disk,
        topics: Topics,
        settings: ScheduleSettings,
        *,
        is_full: Callable[[], bool],
    ) -> None:
        self._scheduler = scheduler
        self._disk = disk
        self._topics = topics
        self._settings = settings
        self._is_full = is_full
        self._logs: list[ScheduleLog] = []
        self._ids = ScheduleIds(b"")
        self._releaser: Releaser | None = None
        self._producer: NamedProducer | None = None
        self._timer: Handle | None = None
        self._is_stopped = False
        self._next_log = 0

    # Starting and stopping

    def open(self) -> None:
        """Load what waits; the topic is made when the first message comes."""
        topic = self._topics.find(SCHEDULED_TOPIC)
        if topic is not None:
            self._host(topic)

    def stop(self, done: Callable[[], None], flush: Callable[[Callable[[], None]], None]) -> None:
        """Finish what is being released, and leave checkpoints so that the next start is quick."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._releaser is None:
            done()
            return
        releaser = self._releaser

        def save(index: int) -> None:
            if index == len(self._logs):
                done()
                return
            is_clean = releaser.is_clean and self._producer is not None
            epoch = self._producer.epoch if is_clean and self._producer is not None else -1
            self._logs[index].save(lambda: save(index + 1), clean_epoch=epoch)

        releaser.stop(lambda: flush(lambda: save(0)))

    def _host(self, topic: Topic) -> None:
        self._ids = ScheduleIds(topic.id)
        for partition in topic.partitions:
            log = ScheduleLog(self._scheduler, self._disk, partition, topic_id=topic.id)
            log.load()
            self._logs.append(log)
        self._releaser = Releaser(
            self._scheduler, self._topics, self._logs, self._ids, is_full=self._is_full
        )
        self._begin()
        self._timer = self._scheduler.call_later(CHECKPOINT_CHECK_MS, self._check_checkpoints)

    def _begin(self) -> None:
        """Find out what was released before, then become the producer that releases more."""
        if self._is_stopped:
            return
        before = self._topics.facts.producer_named(PRODUCER_NAME)
        is_clean = before is not None and all(log.clean_epoch == before.epoch for log in self._logs)
        try:
            if before is not None and not is_clean:
                end_released(self._topics, self._logs, self._ids, before)
            taken = self._topics.facts.take_over_producer(PRODUCER_NAME)
        except GoQueueError as error:
            _log.error("nothing can be released yet: %s", error)
            self._scheduler.call_later(RETRY_MS, self._begin)
            return
        taken.then(self._taken_over)

    def _taken_over(self, producer: NamedProducer | None, error: Exception | None) -> None:
        if producer is None:
            _log.error("nothing can be released yet: %s", error)
            self._scheduler.call_later(RETRY_MS, self._begin)
            return
        assert self._releaser is not None
        self._producer = producer
        self._releaser.start(producer)

    def _check_checkpoints(self) -> None:
        self._timer = self._scheduler.call_later(CHECKPOINT_CHECK_MS, self._check_checkpoints)
        for log in self._logs:
            if log.is_checkpoint_due(
                interval_ms=self._settings.checkpoint_ms, records_max=CHECKPOINT_RECORDS_MAX
            ):
                log.save(lambda: None)

    def _ensure(self) -> None:
        """Make the internal topic if it is missing; it is usable at once.

        Nobody waits for its durability here: the first message is committed together with it.
        """
        if not self._logs:
            if self._topics.find(SCHEDULED_TOPIC) is None:
                self._topics.create(
                    SCHEDULED_TOPIC,
                    partition_count=self._settings.partitions,
                    settings=SCHEDULED_SETTINGS,
                )
            self._host(self._topics.get(SCHEDULED_TOPIC))

    # Scheduling

    def schedule(self, topic: str, delayed: Sequence[Delayed]) -> Promise[list[str]]:
        """Let records appear in a topic later; their ids, in the same order, when it is sure."""
        promise: Promise[list[str]] = Promise()
        try:
            target = self._topics.get(topic)
            if target.is_internal:
                raise InternalTopic(topic)
            messages = to_messages(target, delayed, now_ms=self._scheduler.now_ms())
            log, numbers = self._store(target, messages)
        except GoQueueError as error:
            promise.reject(error)
            return promise

        def committed(error: GoQueueError | None) -> None:
            ids = self._ids.write_all(log.number, numbers) if error is None else None
            promise.settle(ids, error)

        log.partition.when_committed(numbers[-1], committed)
        return promise

    def _store(
        self, topic: Topic, messages: list[ScheduledMessage]
    ) -> tuple[ScheduleLog, list[int]]:
        """Write messages in a few batches of one log; all of them or, on an error, none."""
        log = self._log_for(topic, messages[0].partition)
        numbers: list[int] = []
        try:
            for some in pieces(messages):
                first = log.schedule(some)
                numbers += range(first, first + len(some))
        except GoQueueError:
            self._undo(log, numbers)
            raise
        assert self._releaser is not None
        self._releaser.wake_at(min(message.due_ms for message in messages))
        return log, numbers

    def _undo(self, log: ScheduleLog, numbers: list[int]) -> None:
        try:
            log.end(numbers, is_released=False)
        except GoQueueError as error:
            _log.warning(
                "%d messages of a refused call stay scheduled in %s: %s",
                len(numbers),
                log.partition.name,
                error,
            )

    def _log_for(self, topic: Topic, partition: int) -> ScheduleLog:
        if topic.is_internal:
            raise InternalTopic(topic.name)
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")
        self._ensure()
        if partition == PARTITION_OPEN:
            self._next_log += 1
            return self._logs[self._next_log % len(self._logs)]
        return self._logs[(crc32(topic.id) + partition) % len(self._logs)]

    def schedule_batch(
        self,
        topic: Topic,
        delayed: Sequence[Delayed],
        origin: Origin | None,
        *,
        transaction: ProducerIdentity | None = None,
    ) -> tuple[ScheduleLog, int]:
        """Store the delayed records of one producer's batch, unless they were stored before.

        They all go to one partition and are stored as one batch, so that a crash leaves all of
        them or none. The log and the number to wait for. In a transaction they are scheduled by
        its commit.
        """
        partition = delayed[0].partition
        log = self._log_for(topic, partition)
        if origin is not None:
            known = log.agenda.origins.find(topic.id, partition, origin)
            if known is not None:
                return log, known
        messages = to_messages(topic, delayed, now_ms=self._scheduler.now_ms(), origin=origin)
        if transaction is not None:
            return log, log.schedule_pending(messages, transaction) + len(messages) - 1
        first = log.schedule(messages)
        assert self._releaser is not None
        self._releaser.wake_at(min(message.due_ms for message in messages))
        return log, first + len(messages) - 1

    # Transactions

    def participant(self, topic: Topic, partition: int) -> Partition:
        """Where `schedule_batch` stores the delayed records of a partition."""
        return self._log_for(topic, partition).partition

    def check_delayed(self, topic: Topic, delayed: Sequence[Delayed]) -> list[ScheduledMessage]:
        """The messages of a transaction, made ready for `schedule_pending`; raise if one is bad."""
        return to_messages(topic, delayed, now_ms=self._scheduler.now_ms())

    def log_of(self, identity: ProducerIdentity) -> ScheduleLog:
        """The log that keeps a producer's messages, whose partition must be a participant."""
        if self._is_full():
            raise StorageFull("The disk is full; retry when there is room again.")
        self._ensure()
        return self._logs[identity.producer_id % len(self._logs)]

    def schedule_pending(
        self, log: ScheduleLog, messages: Sequence[ScheduledMessage], identity: ProducerIdentity
    ) -> list[str]:
        """Store messages of a transaction, which its commit schedules; the ids they will have.

        On an error some may be stored, and the transaction must not be committed.
        """
        numbers: list[int] = []
        for some in pieces(messages):
            first = log.schedule_pending(some, identity)
            numbers += range(first, first + len(some))
        return self._ids.write_all(log.number, numbers)

    def transaction_ended(self, partition: Partition, producer_id: int, is_commit: bool) -> None:
        """A marker in a partition of the internal topic is committed."""
        releaser = self._releaser
        for log in self._logs:
            if log.partition is partition and releaser is not None:
                log.ended(producer_id, is_commit=is_commit, on_active=releaser.wake_at)

    # Changing

    def cancel(self, schedule_id: str) -> Promise[None]:
        """Let a message never appear; refused when it has been released."""
        promise: Promise[None] = Promise()

        def cancelled(outcomes: list[GoQueueError | None] | None, error: Exception | None) -> None:
            promise.settle(None, outcomes[0] if outcomes is not None else error)

        self.cancel_many([schedule_id]).then(cancelled)
        return promise

    def cancel_many(self, schedule_ids: Sequence[str]) -> Promise[list[GoQueueError | None]]:
        """Let messages never appear; for each, when all is sure, why it was refused, if it was."""
        outcomes: list[GoQueueError | None] = [None] * len(schedule_ids)
        places: dict[ScheduleLog, list[int]] = {}
        for place, schedule_id in enumerate(schedule_ids):
            try:
                log, number = self._find_changeable(schedule_id)
            except GoQueueError as error:
                outcomes[place] = error
            else:
                log.cancel(number)
                places.setdefault(log, []).append(place)
        promise: Promise[list[GoQueueError | None]] = Promise()
        start(_gather_cancels(places, outcomes), promise.settle)
        return promise

    def reschedule(self, schedule_id: str, due_ms: int) -> Promise[None]:
        """Let a message appear at another time; refused when it has been released."""
        promise: Promise[None] = Promise()
        try:
            check_due(due_ms, now_ms=self._scheduler.now_ms())
            log, number = self._find_changeable(schedule_id)
            offset = log.move(number, due_ms)
        except GoQueueError as error:
            promise.reject(error)
            return promise
        assert self._releaser is not None
        self._releaser.wake_at(due_ms)
        log.partition.when_committed(offset, lambda error: promise.settle(None, error))
        return promise

    def _find(self, schedule_id: str) -> tuple[ScheduleLog, int]:
        number_of_log, number = self._ids.read(schedule_id)
        if number_of_log >= len(self._logs):
            raise UnknownSchedule(schedule_id)
        return self._logs[number_of_log], number

    def _find_changeable(self, schedule_id: str) -> tuple[ScheduleLog, int]:
        log, number = self._find(schedule_id)
        if log.is_being_cancelled(number):
            raise UnknownSchedule(schedule_id)
        log.agenda.check_changeable(number, schedule_id)
        return log, number

    # Asking

    def get(self, schedule_id: str) -> Schedule:
        """A message that waits."""
        log, number = self._find(schedule_id)
        if not log.agenda.is_waiting(number) or log.is_being_cancelled(number):
            log.agenda.check_changeable(number, schedule_id)
            raise UnknownSchedule(schedule_id)
        message = log.read(number)
        if message is None:
            raise UnknownSchedule(schedule_id)
        return Schedule(
            schedule_id,
            message.topic,
            message.partition,
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
        """What waits, by due time; messages whose release is under way are left out."""
        promise: Promise[SchedulePage] = Promise()
        listing = ScheduleListing(self._scheduler, self._logs, self._ids)
        wanted = Wanted(topic, from_ms, until_ms)
        start(listing.page(wanted, limit=limit, after=after), promise.settle)
        return promise

    def count(
        self, *, topic: str | None = None, from_ms: int = 0, until_ms: int = NEVER_MS
    ) -> Promise[int]:
        """How many messages wait, for one topic or all, in a stretch of time or at all."""
        promise: Promise[int] = Promise()
        if from_ms <= 0 and until_ms >= NEVER_MS:
            promise.resolve(sum(log.agenda.count(topic) for log in self._logs))
        else:
            listing = ScheduleListing(self._scheduler, self._logs, self._ids)
            start(listing.count(Wanted(topic, from_ms, until_ms)), promise.settle)
        return promise

    def stats(self) -> ScheduleStats:
        agendas = [log.agenda for log in self._logs]
        releaser = self._releaser
        late = releaser.lateness if releaser is not None else Lateness()
        next_due_ms = min((one.timetable.due_min_ms() for one in agendas), default=NEVER_MS)
        return ScheduleStats(
            pending=sum(one.count() for one in agendas),
            released=sum(one.released_count for one in agendas),
            cancelled=sum(one.cancelled_count for one in agendas),
            dead_lettered=releaser.dead_lettered if releaser is not None else 0,
            dropped=releaser.dropped if releaser is not None else 0,
            late_ms_p50=late.percentile_ms(50),
            late_ms_p99=late.percentile_ms(99),
            late_ms_max=late.max_ms,
            next_due_ms=next_due_ms if next_due_ms < NEVER_MS else None,
        )


async def _gather_cancels(
    places: dict[ScheduleLog, list[int]], outcomes: list[GoQueueError | None]
) -> list[GoQueueError | None]:
    """Wait for the logs in which something is being cancelled; an error counts for all in it."""
    waits = [(log.cancelled(), some) for log, some in places.items()]
    for cancelled, some in waits:
        try:
            await cancelled
        except GoQueueError as error:
            for place in some:
                outcomes[place] = error
    return outcomes
