"""Releases in a cluster: each batch is recorded in the schedule log before it is sent.

The messages of a batch, its producer and its sequence number form one record, the intent. Once the
intent is committed, the batch is sent to the leader of its topic's partition until it is confirmed
there; then the messages are marked as released. A node that takes over finds the last intent of
each partition and sends the same batch again. The leader deduplicates it by its sequence number, so
it is stored once, whichever node sent it and however often. A deposed node cannot begin another
batch, because its intent would not be committed.

New batches are written in a new epoch of the producer, of which each partition of schedules has
one. Epochs are allocated through the cluster's metadata, so that no two nodes have the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from goqueue.broker.schedules.lanes import Lane, Release, message_size, release_batch
from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.release import RETRY_MS, Releaser
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.delivery.schedules import Entry, Intent, ScheduleIds, TargetKey
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import add_sequence
from goqueue.model.errors import (
    CorruptBatch,
    DuplicateSequence,
    GoQueueError,
    OutOfOrderSequence,
)
from goqueue.model.names import ProducerIdentity

SEND_RETRY_MS = 100  # after a refusal or a lost response
UNREADABLE_RETRY_MS = 60_000

_log = logging.getLogger(__name__)

# Stores a batch at the leader of a partition, in one attempt; resolves when it is committed.
Send = Callable[[Topic, int, bytes], Promise[None]]


class IntentReleaser(Releaser):
    """Moves due messages from one schedule log to topics led by any node."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        log: ScheduleLog,
        ids: ScheduleIds,
        *,
        is_full: Callable[[], bool],
        send: Send,
        renew: Callable[[], None],
    ) -> None:
        """`renew` requests a new epoch, with which `start` is called."""
        super().__init__(clock, topics, [log], ids, is_full=is_full)
        self._log = log
        self._send_batch = send
        self._renew = renew
        self._left_over: list[Intent] = []
        self._is_renewing = False

    # Take-over

    def find_left_over(self) -> None:
        """Find batches with an intent but no known outcome.

        From now on their messages can be neither cancelled nor rescheduled.
        """
        agenda = self._log.agenda
        for intent in list(agenda.intents.values()):
            waiting = [one for one in intent.numbers if agenda.is_waiting(one)]
            if not waiting:
                del agenda.intents[intent.target]
                continue
            self._left_over.append(intent)
            for number in waiting:
                agenda.hold(number)

    def start(self, producer: NamedProducer) -> None:
        """Finish pending releases, then begin new ones, as this producer."""
        self._is_renewing = False
        super().start(producer)
        left_over, self._left_over = self._left_over, []
        for intent in left_over:
            self._resume(intent)

    def close(self) -> None:
        """Release nothing more, because another node does."""
        self._stopped = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _is_closed(self) -> bool:
        return self._stopped is not None

    def _resume(self, intent: Intent) -> None:
        if self._is_closed:
            return
        agenda = self._log.agenda
        waiting = [one for one in intent.numbers if agenda.is_waiting(one)]
        topic = self._topics.find_by_id(intent.topic_id)
        if topic is None:
            self._abandon(intent.target, waiting, _nothing)
            return
        if len(waiting) < len(intent.numbers):
            # An end is written only when the whole batch is committed in its topic.
            self._end(waiting)
            return
        batch = self._read_batch(intent)
        if batch is None:
            self._clock.call_later(UNREADABLE_RETRY_MS, lambda: self._resume(intent))
            return
        lane = self._lane(topic, intent.partition)
        lane.is_busy = True
        self._messages += len(batch)
        self._bytes += sum(one.size for one in batch)
        # Everything replayed from the log, this intent included, precedes its end offset.
        self._send_when_committed(lane, batch, intent, self._log.partition.end_offset - 1)

    def _read_batch(self, intent: Intent) -> list[Release] | None:
        """The messages of an intent, or None if one of them cannot be read now."""
        batch = []
        for index, number in enumerate(intent.numbers):
            try:
                message = self._log.read(number)
            except (CorruptBatch, GoQueueError) as error:
                _log.error("%s: a release cannot continue: %s", self._log.partition.name, error)
                return None
            if message is None:
                _log.error("%s: the message %d is gone", self._log.partition.name, number)
                return None
            due_ms = self._log.agenda.moved.get(number, message.due_ms)
            size, reason = message_size(message), intent.reason(index)
            batch.append(Release(self._log, number, due_ms, message, size, reason))
        return batch

    def _end(self, numbers: list[int]) -> None:
        if self._is_closed:
            return
        try:
            self._log.end(numbers, is_released=True)
        except GoQueueError as error:
            _log.warning("releases cannot be recorded yet: %s", error)
            self._clock.call_later(RETRY_MS, lambda: self._end(numbers))

    # Sending

    def _lane(self, topic: Topic, number: int) -> Lane:
        lane = super()._lane(topic, number)
        lane.topic, lane.partition = topic, topic.partitions[number]
        return lane

    def _is_gone(self, lane: Lane) -> bool:
        return self._topics.find_by_id(lane.topic.id) is None

    def _only_committed(self, log: ScheduleLog, entries: list[Entry]) -> list[Entry]:
        """All of them: they precede the intent in the log, so they are committed when it is."""
        return entries

    def _send(self, lane: Lane) -> None:
        if self._is_renewing:
            return
        if not lane.is_busy and self._is_gone(lane):
            self._log.agenda.intents.pop(lane.key, None)
        super()._send(lane)

    def _dispatch(self, lane: Lane, batch: list[Release]) -> None:
        producer = self._producer
        assert producer is not None
        if lane.epoch != producer.epoch:
            lane.epoch, lane.sequence = producer.epoch, 0
        intent = Intent(
            *lane.key,
            producer.producer_id,
            producer.epoch,
            lane.sequence,
            [one.number for one in batch],
            [one.reason for one in batch] if any(one.reason for one in batch) else [],
        )
        try:
            offset = self._log.intend(intent)
        except GoQueueError:
            self._leave(batch)
            self._put_off(lane, batch)
            return
        lane.is_busy = True
        lane.sequence = add_sequence(lane.sequence, len(batch))
        self._send_when_committed(lane, batch, intent, offset)

    def _send_when_committed(
        self, lane: Lane, batch: list[Release], intent: Intent, offset: int
    ) -> None:
        def committed(error: GoQueueError | None) -> None:
            if self._is_closed:
                return
            if error is None:
                self._carry(lane, batch, intent)
                return
            # The intent is in the log, and will be committed when there are enough replicas.
            self._clock.call_later(
                SEND_RETRY_MS, lambda: self._send_when_committed(lane, batch, intent, offset)
            )

        if not self._is_closed:
            self._log.partition.when_committed(offset, committed)

    def _carry(self, lane: Lane, batch: list[Release], intent: Intent) -> None:
        """Send a batch until it is confirmed in its topic, or the topic is gone."""
        if self._is_closed:
            return
        topic = self._topics.find_by_id(intent.topic_id)
        if topic is None:
            self._drop(lane, batch, intent)
            self._give_back(lane, retry_ms=self._clock.wall_ms())
            return
        lane = self._lane(topic, intent.partition)
        identity = ProducerIdentity(intent.producer_id, intent.epoch)
        # The batch was due by the clock of the node that began it; this node's may be behind.
        now_ms = max(self._clock.wall_ms(), *(one.due_ms for one in batch))
        encoded = release_batch(
            lane, batch, self._ids, identity, base_sequence=intent.base_sequence, now_ms=now_ms
        )
        self._send_batch(topic, intent.partition, bytes(encoded)).then(
            lambda _, error: self._sent(lane, batch, intent, error)
        )

    def _sent(
        self, lane: Lane, batch: list[Release], intent: Intent, error: Exception | None
    ) -> None:
        if self._is_closed:
            return
        if error is None or isinstance(error, DuplicateSequence):
            self._committed(lane, batch, None)
        elif isinstance(error, OutOfOrderSequence):
            # The topic lost batches of this producer in an unclean leader election, and refuses
            # this one permanently. The next epoch starts at sequence zero.
            _log.error("%s: %s", lane.partition.name, error)
            self._drop(lane, batch, intent)
            if not self._is_renewing:
                self._is_renewing = True
                self._renew()
        elif isinstance(error, GoQueueError):
            if not error.retryable:
                _log.warning("%s: a release is delayed: %s", lane.partition.name, error)
            delay_ms = SEND_RETRY_MS if error.retryable else RETRY_MS
            self._clock.call_later(delay_ms, lambda: self._carry(lane, batch, intent))
        else:
            raise error

    def _drop(self, lane: Lane, batch: list[Release], intent: Intent) -> None:
        """Drop a batch that can never be stored at its destination; its messages are sent anew."""
        self._leave(batch)

        def dropped() -> None:
            lane.is_busy = False

        self._abandon(intent.target, intent.numbers, dropped)

    def _abandon(self, lane: TargetKey, numbers: Iterable[int], done: Callable[[], None]) -> None:
        """Make messages due again, once it is certain that no node continues their intent."""
        if self._is_closed:
            return
        held = list(numbers)

        def abandoned(error: GoQueueError | None) -> None:
            if self._is_closed:
                return
            if error is not None:
                self._clock.call_later(SEND_RETRY_MS, wait)
                return
            now_ms = self._clock.wall_ms()
            for number in held:
                self._log.agenda.give_back(number, retry_ms=now_ms)
            done()
            self.wake()

        def wait() -> None:
            if not self._is_closed:
                self._log.partition.when_committed(offset, abandoned)

        try:
            offset = self._log.abandon(lane)
        except GoQueueError as error:
            _log.warning("%s: %s", self._log.partition.name, error)
            self._clock.call_later(RETRY_MS, lambda: self._abandon(lane, held, done))
            return
        wait()


def _nothing() -> None:
    """Do nothing: no caller waits for the end."""
