"""Moves batches of due messages to their topics, each exactly once: announce, append, note.

A batch is appended to its topic by an idempotent producer of the broker's own, one batch at a time
per target partition, each record with its schedule id. When it is committed there, the ends of its
messages are recorded in the schedule log. A crash may happen between the two steps; how it is found
out what had been appended differs.

In a cluster a batch is *announced* first: its messages, its producer and its sequence number form
one record in the schedule log, the intent. Once the intent is committed, the batch is sent to the
leader of its target until it is confirmed there. A node that takes over finds the last intent of
each target and sends the same batch again. The leader deduplicates it by its sequence number, so it
is stored once, whichever node sent it and however often. A deposed node cannot begin another batch,
because its intent would not be committed. New batches are written in a new epoch of the producer,
of which each partition of schedules has one. Epochs are allocated through the cluster's metadata,
so that no two nodes have the same.

A single node announces nothing: an intent would cost a record and a commit for each batch. At its
next start the newest batches of its producer are read back, and their messages are marked as
released before any other release. The newest batches are enough: the ends of one batch's messages
are written before the next batch for the same target, and a sync commits everything written before
it began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.observation import Move
from goqueue.broker.schedules.targets import (
    Release,
    TargetQueue,
    TargetQueues,
    Transfer,
    message_size,
    release_batch,
)
from goqueue.broker.shards.own_records import newest_records
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.delivery.schedules import Intent, Lateness, ScheduleIds, TargetKey
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import Record, add_sequence
from goqueue.model.errors import (
    CorruptBatch,
    DuplicateSequence,
    GoQueueError,
    OutOfOrderSequence,
    UnknownSchedule,
)
from goqueue.model.names import ProducerIdentity

NOTE_PAUSE_MS = 5  # the ends of batches committed within it share a sync with the next batches
SEND_RETRY_MS = 100  # after a refusal or a lost response
RETRY_MS = 1000
UNREADABLE_RETRY_MS = 60_000

_log = logging.getLogger(__name__)

# Stores a batch at the leader of a partition, in one attempt; resolves with its last offset, -1 if
# not known, when it is committed. If it raises synchronously, nothing was stored.
Append = Callable[[Topic, int, bytearray], Promise[int]]


@dataclass(slots=True)
class ReleaseMetrics:
    """What the releases of this node came to, since it started."""

    lateness: Lateness = field(default_factory=Lateness)
    dead_lettered: int = 0
    dropped: int = 0


class Owner(Protocol):
    """The releaser whose batches are moved."""

    def wake(self) -> None:
        """Act soon: there is something to do."""

    def wake_at(self, at_ms: int) -> None:
        """Act at a time: there will be something to do."""

    def renew(self) -> None:
        """Take a new epoch of the producer, and start with it."""


class ReleaseCourier:
    """Moves batches from queues to their targets."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        ids: ScheduleIds,
        append: Append,
        metrics: ReleaseMetrics,
        intents: Intents | None,
    ) -> None:
        """Batches are announced if there are `intents`; else all partitions must be led here."""
        self.owner: Owner
        self.metrics = metrics
        self.queues = TargetQueues(topics)
        self.is_clean = True  # no batch was between the steps when it stopped
        self._clock = clock
        self._topics = topics
        self._ids = ids
        self._append_at_leader = append
        self._intents = intents
        self._producer: NamedProducer | None = None
        self._committed: list[Transfer] = []
        self._is_renewing = False
        self._is_closed = False
        self._stopped: Callable[[], None] | None = None

    @property
    def announces(self) -> bool:
        return self._intents is not None

    # Starting and stopping

    def recover(self, logs: Sequence[ScheduleLog], before: NamedProducer | None) -> None:
        """Find what the last owner, whose producer was `before`, has left between the steps."""
        if self._intents is not None:
            self._intents.hold_left_over()
        elif before is not None:
            end_released(self._topics, logs, self._ids, before)

    def start(self, producer: NamedProducer) -> None:
        """Finish batches of the last owner, and begin new ones, as a producer with a new epoch."""
        self._producer = producer
        self._is_renewing = False
        if self._intents is not None:
            for intent in self._intents.take_left_over():
                self._resume(self._intents, intent)

    def stop(self, done: Callable[[], None]) -> None:
        """Finish batches in flight, begin no more, then call `done`."""
        self._stopped = done
        for queue in self.queues:
            self.queues.give_back(queue)
        self.note_committed()

    def close(self) -> None:
        """Stop at once, because another node continues."""
        self._is_closed = True
        if self._intents is not None:
            self._intents.is_closed = True

    @property
    def clean_epoch(self) -> int:
        """The epoch of the producer, if it has stopped and left nothing unfinished; else -1."""
        return self._producer.epoch if self._producer is not None and self.is_clean else -1

    def _check_stopped(self) -> None:
        if self._stopped is not None and not self.queues.is_busy:
            done, self._stopped = self._stopped, lambda: None
            done()

    def _put_off(self, transfer: Transfer) -> None:
        """Retry later where a partition cannot be written to, or elsewhere if it is gone."""
        queue, retry_ms = transfer.queue, self._clock.wall_ms() + RETRY_MS
        self.queues.leave(transfer.batch)
        for release in transfer.batch:
            release.log.agenda.give_back(release.number, retry_ms=retry_ms)
        self.queues.give_back(queue, retry_ms=retry_ms)
        queue.is_busy = False
        if self.queues.is_gone(queue):
            self.queues.remove(queue)

    # Announce

    def send_all(self) -> None:
        """Begin a batch for each target that has none in flight."""
        if self._is_renewing:
            return
        for queue in self.queues:
            if queue.is_busy:
                continue
            if queue.waiting:
                self._send(queue)
            elif self.queues.is_gone(queue):
                self.queues.remove(queue)
                if self._intents is not None:
                    self._intents.forget(queue.key)

    def _send(self, queue: TargetQueue) -> None:
        batch, early = queue.take_batch(self._clock.wall_ms())
        self.queues.leave(early)
        for release in early:
            release.log.agenda.give_back(release.number)
        if batch:
            self._begin(queue, batch)

    def _begin(self, queue: TargetQueue, batch: list[Release]) -> None:
        """Announce a batch, then append it; a single node only appends."""
        producer = self._producer
        assert producer is not None
        if queue.epoch != producer.epoch:
            queue.epoch, queue.sequence = producer.epoch, 0
        identity = ProducerIdentity(producer.producer_id, producer.epoch)
        transfer = Transfer(queue, batch, identity, queue.sequence)
        queue.is_busy = True
        if self._intents is None:
            queue.sequence = add_sequence(queue.sequence, len(batch))
            self._append(transfer)
            return
        try:
            transfer, offset = self._intents.announce(transfer)
        except GoQueueError:
            self._put_off(transfer)
            return
        queue.sequence = add_sequence(queue.sequence, len(batch))
        self._intents.when_committed(offset, partial(self._append, transfer))

    def _resume(self, intents: Intents, intent: Intent) -> None:
        """Send a batch again that the last owner has announced."""
        if self._is_closed:
            return
        topic, waiting = self._topics.find_by_id(intent.topic_id), intents.waiting(intent)
        if topic is None:
            intents.withdraw(intent.target, waiting, self.owner.wake)
            return
        if len(waiting) < len(intent.numbers):
            # An end is written only when the whole batch is committed in its topic.
            intents.end(waiting)
            return
        batch = intents.read_batch(intent)
        if batch is None:
            again = partial(self._resume, intents, intent)
            self._clock.call_later(UNREADABLE_RETRY_MS, again)
            return
        queue = self.queues.find(topic, intent.partition)
        queue.is_busy = True
        self.queues.enter(batch)
        identity = ProducerIdentity(intent.producer_id, intent.epoch)
        transfer = Transfer(queue, batch, identity, intent.base_sequence, intent)
        intents.when_committed(intents.end_offset - 1, partial(self._append, transfer))

    # Append

    def _append(self, transfer: Transfer) -> None:
        """Append a batch at the leader of its target; an announced one until it is confirmed."""
        if self._is_closed:
            return
        queue = transfer.queue
        topic_id, number = queue.key
        topic = self._topics.find_by_id(topic_id)
        if topic is None:
            self._target_deleted(transfer)
            return
        # The replica of this node may have come or gone since the last attempt.
        queue.topic, queue.partition = topic, topic.partitions[number]
        now_ms = self._clock.wall_ms()
        if transfer.intent is not None:
            # It was due by the clock of the node that began it; this node's may be behind.
            now_ms = max(now_ms, *[one.due_ms for one in transfer.batch])
        encoded = release_batch(transfer, self._ids, now_ms=now_ms)
        try:
            appended = self._append_at_leader(topic, number, encoded)
        except GoQueueError as error:
            if transfer.intent is None:
                queue.sequence = transfer.base_sequence  # Nothing was stored.
                self._put_off(transfer)
            else:
                self._append_failed(transfer, transfer.intent, error)
            return
        appended.then(lambda last, error: self._appended(transfer, last, error))

    def _appended(
        self, transfer: Transfer, last_offset: int | None, error: Exception | None
    ) -> None:
        if self._is_closed:
            return
        if error is None:
            first = -1 if last_offset is None else last_offset + 1 - len(transfer.batch)
            self._note_later(transfer._replace(first_offset=max(first, -1)))
        elif not isinstance(error, GoQueueError):
            raise error
        elif transfer.intent is not None:
            self._append_failed(transfer, transfer.intent, error)
        else:
            # The partition accepts nothing more until a restart, so nothing can be released twice:
            # the next start reads what it holds. If it was deleted, its records are gone.
            self.is_clean = False
            self._put_off(transfer)
            self._check_stopped()

    def _append_failed(self, transfer: Transfer, intent: Intent, error: GoQueueError) -> None:
        """Handle the refusal, or the lost response, of an announced batch."""
        name = transfer.queue.partition.name
        if isinstance(error, DuplicateSequence):
            self._note_later(transfer)
        elif isinstance(error, OutOfOrderSequence):
            # The topic lost batches of this producer in an unclean leader election, and refuses
            # this one permanently. The next epoch starts at sequence zero.
            _log.error("%s: %s", name, error)
            self._withdraw(transfer, intent)
            if not self._is_renewing:
                self._is_renewing = True
                self.owner.renew()
        else:
            if not error.retryable:
                _log.warning("%s: a release is delayed: %s", name, error)
            delay_ms = SEND_RETRY_MS if error.retryable else RETRY_MS
            self._clock.call_later(delay_ms, partial(self._append, transfer))

    def _target_deleted(self, transfer: Transfer) -> None:
        if transfer.intent is None:
            self._put_off(transfer)
        else:
            self._withdraw(transfer, transfer.intent)
            self.queues.give_back(transfer.queue, retry_ms=self._clock.wall_ms())

    def _withdraw(self, transfer: Transfer, intent: Intent) -> None:
        """Drop a batch that can never be stored at its target; its messages are sent anew."""
        assert self._intents is not None
        self.queues.leave(transfer.batch)

        def withdrawn() -> None:
            transfer.queue.is_busy = False
            self.owner.wake()

        self._intents.withdraw(intent.target, intent.numbers, withdrawn)

    # Note

    def _note_later(self, transfer: Transfer) -> None:
        """Have the ends of a committed batch recorded soon, with those of others."""
        now_ms, metrics, batch = self._clock.wall_ms(), self.metrics, transfer.batch
        metrics.lateness.note([now_ms - release.due_ms for release in batch])
        metrics.dead_lettered += sum([1 for release in batch if release.reason])
        self._note_soon(transfer)

    def _note_soon(self, transfer: Transfer) -> None:
        self._committed.append(transfer)
        if self._stopped is not None:
            self._clock.call_soon(self.note_committed)
        elif transfer.queue.waiting or not self.queues.has_room:
            self.owner.wake()
        else:
            # The records of their ends then share a sync with the next batches.
            self.owner.wake_at(self._clock.wall_ms() + NOTE_PAUSE_MS)

    def note_committed(self) -> None:
        """Record in the schedule logs the releases that are committed."""
        committed, self._committed = self._committed, []
        failed = _end_all(committed)
        for transfer in committed:
            if failed and not failed.isdisjoint(one.log for one in transfer.batch):
                self._note_again(transfer)
                continue
            self.queues.leave(transfer.batch)
            transfer.queue.is_busy = False
        self._check_stopped()

    def _note_again(self, transfer: Transfer) -> None:
        """Hold the next batch until this one's end is written, or a crash could hide this one."""
        if self._stopped is None:
            self._clock.call_later(RETRY_MS, partial(self._note_soon, transfer))
        else:
            self.is_clean = transfer.queue.is_busy = False  # The next start will find them.


def _end_all(transfers: list[Transfer]) -> set[ScheduleLog]:
    """Store the ends of messages; return the logs where that failed."""
    by_log: dict[ScheduleLog, list[int]] = {}
    moves: dict[ScheduleLog, list[Move]] = {}
    for transfer in transfers:
        if transfer.batch[0].log.observation is not None:
            for log, some in transfer.moves().items():
                moves.setdefault(log, []).extend(some)
        for release in transfer.batch:
            log = release.log
            if log in by_log:
                by_log[log].append(release.number)
            else:
                by_log[log] = [release.number]
    failed = set()
    for log, numbers in by_log.items():
        try:
            log.end(numbers, is_released=True, moves=moves.get(log, ()))
        except GoQueueError as error:
            _log.warning("releases cannot be recorded yet: %s", error)
            failed.add(log)
    return failed


class Intents:
    """The announced batches of one schedule log: intents written ahead, and withdrawn."""

    def __init__(self, clock: Clock, log: ScheduleLog) -> None:
        self.is_closed = False
        self._clock = clock
        self._log = log
        self._left_over: list[Intent] = []

    @property
    def end_offset(self) -> int:
        """Everything replayed from the log, intents included, precedes it."""
        return self._log.partition.end_offset

    def announce(self, transfer: Transfer) -> tuple[Transfer, int]:
        """Write the intent of a batch; return both, and the offset to wait for."""
        batch = transfer.batch
        intent = Intent(
            *transfer.queue.key,
            *transfer.producer,
            transfer.base_sequence,
            [one.number for one in batch],
            [one.reason for one in batch] if any(one.reason for one in batch) else [],
        )
        return transfer._replace(intent=intent), self._log.announce(intent)

    def when_committed(self, offset: int, then: Callable[[], None]) -> None:
        """Call `then` once the log is committed up to an offset."""

        def committed(error: GoQueueError | None) -> None:
            if self.is_closed:
                return
            if error is None:
                then()
            else:
                # What is in the log will be committed when there are enough replicas.
                self._clock.call_later(SEND_RETRY_MS, partial(self.when_committed, offset, then))

        if not self.is_closed:
            self._log.partition.when_committed(offset, committed)

    def withdraw(
        self, target: TargetKey, numbers: Iterable[int], withdrawn: Callable[[], None]
    ) -> None:
        """Make messages due again, once it is certain that no node continues their intent."""
        if self.is_closed:
            return
        held = list(numbers)

        def committed() -> None:
            now_ms = self._clock.wall_ms()
            for number in held:
                self._log.agenda.give_back(number, retry_ms=now_ms)
            withdrawn()

        try:
            offset = self._log.withdraw(target)
        except GoQueueError as error:
            _log.warning("%s: %s", self._log.partition.name, error)
            self._clock.call_later(RETRY_MS, partial(self.withdraw, target, held, withdrawn))
            return
        self.when_committed(offset, committed)

    def forget(self, target: TargetKey) -> None:
        """Drop the completed intent for a partition that is gone."""
        self._log.agenda.intents.pop(target, None)

    # Intents of the last owner

    def hold_left_over(self) -> None:
        """Find batches with an intent but no known outcome.

        From now on their messages can be neither cancelled nor rescheduled.
        """
        agenda = self._log.agenda
        self._left_over = []
        for intent in list(agenda.intents.values()):
            waiting = self.waiting(intent)
            if not waiting:
                del agenda.intents[intent.target]
                continue
            self._left_over.append(intent)
            for number in waiting:
                agenda.hold(number)

    def take_left_over(self) -> list[Intent]:
        left_over, self._left_over = self._left_over, []
        return left_over

    def waiting(self, intent: Intent) -> list[int]:
        """The messages of an intent that have not ended."""
        return [one for one in intent.numbers if self._log.agenda.is_waiting(one)]

    def read_batch(self, intent: Intent) -> list[Release] | None:
        """The messages of an intent, or None if one of them cannot be read now."""
        log, batch = self._log, []
        for index, number in enumerate(intent.numbers):
            try:
                message = log.read(number)
            except (CorruptBatch, GoQueueError) as error:
                _log.error("%s: a release cannot continue: %s", log.partition.name, error)
                return None
            if message is None:
                _log.error("%s: the message %d is gone", log.partition.name, number)
                return None
            due_ms = log.agenda.moved.get(number, message.due_ms)
            size, reason = message_size(message), intent.reason(index)
            batch.append(Release(log, number, due_ms, message, size, reason))
        return batch

    def end(self, numbers: list[int]) -> None:
        """Record that messages were released."""
        if self.is_closed:
            return
        try:
            self._log.end(numbers, is_released=True)
        except GoQueueError as error:
            _log.warning("releases cannot be recorded yet: %s", error)
            self._clock.call_later(RETRY_MS, partial(self.end, numbers))


# What a single node left


def end_released(
    topics: Topics, logs: Sequence[ScheduleLog], ids: ScheduleIds, producer: NamedProducer
) -> None:
    """Mark as released the messages in a producer's newest batches, in any topic."""
    by_number = {log.number: log for log in logs}
    found: dict[ScheduleLog, list[int]] = {}
    for _, record in newest_records(topics, producer):
        position = _position(record, ids)
        log = by_number.get(position[0]) if position is not None else None
        if log is not None and position is not None and log.agenda.is_waiting(position[1]):
            found.setdefault(log, []).append(position[1])
    for log, numbers in found.items():
        log.end(numbers, is_released=True)


def _position(record: Record, ids: ScheduleIds) -> tuple[int, int] | None:
    """Where a released message waited: log and number, from its schedule id, the last header."""
    for name, content in reversed(record.headers):
        if name == SCHEDULE_ID_HEADER and content is not None:
            try:
                return ids.read(content.decode("ascii", "replace"))
            except UnknownSchedule:
                return None
    return None
