"""One partition of the topic of scheduled messages, with the agenda built from it.

The broker is the only writer here, so the number of a message, its offset, is determined before it
is written. The agenda is updated in the same event-loop turn in which a record is appended; it is
therefore always in step with the log, and a checkpoint can be taken at any time.

Messages of a transaction are the exception. They are scheduled when their commit marker is itself
committed: if they were released earlier, a crash could undo the marker. From the marker to that
moment the agenda is behind the log, and no checkpoint is taken.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from goqueue.broker.schedules.in_flight import Flights
from goqueue.broker.schedules.positions import Places
from goqueue.broker.shards.transactional_batches import next_sequence, write_batch
from goqueue.delivery.ranges import ranges_of
from goqueue.delivery.schedules import (
    Agenda,
    Bucket,
    Checkpoint,
    DamagedBucket,
    Intent,
    NumberRange,
    OriginState,
    ScheduledMessage,
    Source,
    TargetKey,
    end_batch,
    forget_leader_epoch_record,
    forget_origin_record,
    intent_record,
    leader_epoch_record,
    message_batch,
    move_record,
    no_intent_record,
    origin_key,
    origin_value,
    read_checkpoint,
    read_key,
    read_message,
    write_checkpoint,
)
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import (
    BatchHeader,
    Record,
    decode_batch,
    decode_marker,
    encode_batch,
)
from goqueue.model.compression import Buffer
from goqueue.model.errors import CorruptBatch, GoQueueError, NotCoordinator
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.observer import Observer
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

# After a restart a message is found by scanning its batch, so batches are kept small.
BATCH_RECORDS_MAX = 250
BATCH_BYTES_MAX = 256 << 10
ENDS_PER_BATCH_MAX = 2000
SYNC_POLL_MS = 100
ACTIVATE_MESSAGES_MAX = 5000  # of a committed transaction, per event-loop turn
READ_RETRY_MS = 1000
LOAD_STEP_BYTES = 256 << 10  # read per event-loop turn

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ScheduleLog:
    """Stores scheduled messages and their state changes, and looks them up."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        partition: Partition,
        *,
        topic_id: bytes,
        is_replica: bool = False,
    ) -> None:
        """With replication, the log may have changed since its checkpoint, under another leader."""
        self.partition = partition
        self.number = partition.name.partition
        self._clock = clock
        self._disk = disk
        self._topic_id = topic_id
        self._is_replica = is_replica
        self.is_closed = False
        self._closed: Promise[None] = Promise()
        self._threads = 0  # that use the files now
        self._folder = f"schedules/{self.number}"
        self.agenda = self._new_agenda()
        self.clean_epoch = -1  # as in the checkpoint found at this start
        self._places = Places(partition)
        self._checkpoint_offset = partition.start_offset
        self._checkpoint_ms = 0
        self._is_saving = False
        self._is_untrusted = False
        self._cancelling: set[int] = set()
        self._cancels: Promise[None] = Promise()
        self._flights = Flights(clock)
        self._activating: deque[NumberRange] = deque()
        self._on_active: Callable[[int], None] = lambda due_ms: None
        self.observer: Observer | None = None

    # Opening

    def load(self) -> None:
        """Build the agenda from the checkpoint and the records after it."""
        for _ in self.loading():
            pass

    def loading(self) -> Iterator[None]:
        """The same in steps, which yield to the event loop in between."""
        offset = self._restore()
        if offset is None:
            self.agenda.timetable.restore([], serial_next=1)
            offset = self.partition.start_offset
        yield from self._replay(offset, self._take_batch)
        self._drop_decided()

    def _restore(self) -> int | None:
        """Restore a usable checkpoint; return the offset where replay continues."""
        checkpoint = read_checkpoint(self._disk, self._folder, topic_id=self._topic_id)
        if checkpoint is None or not self._is_of_this_log(checkpoint):
            return None
        try:
            self.agenda.restore(checkpoint)
        except (DamagedBucket, OSError) as error:
            _log.error(
                "the schedules of %s are replayed from the start: %s", self.partition.name, error
            )
            self.agenda = self._new_agenda()
            return None
        self.clean_epoch = checkpoint.clean_epoch
        self._checkpoint_offset = checkpoint.offset
        return checkpoint.offset

    def _is_of_this_log(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint was taken of this log.

        Two logs with a record of the same epoch at the same offset are identical up to there.
        """
        if checkpoint.offset > self.partition.end_offset:
            return False
        if not self._is_replica:
            return True
        if checkpoint.offset < self.partition.start_offset:
            return False
        epoch, end_offset = self.partition.epoch_end(checkpoint.leader_epoch)
        return epoch == checkpoint.leader_epoch and checkpoint.offset <= end_offset

    def rebuild(self) -> None:
        """Rebuild the buckets from the log, because they are damaged."""
        self.agenda.renew_timetable()
        for _ in self._replay(self.partition.start_offset, self._refile_batch):
            pass

    def _new_agenda(self) -> Agenda:
        return Agenda(self._disk, self._folder, topic_id=self._topic_id)

    def _take_batch(self, header: BatchHeader, batch: Buffer, first: int) -> None:
        """Apply a batch from an offset on."""
        if header.is_control:
            is_commit = decode_marker(batch).is_commit
            for numbers in self.agenda.end_transaction(header.producer_id, is_commit=is_commit):
                self._activate(*numbers)
            return
        for record in decode_batch(batch):
            if record.offset < first:
                continue
            if header.is_transactional:
                message = _own_message(record)
                if message is not None:
                    self.agenda.note_origin(record.offset, message, record.timestamp_ms)
                if message is not None or self.agenda.replay_source(record):
                    self.agenda.pend(header.producer_id, record.offset, record.offset)
            else:
                self.agenda.replay(record)

    def _refile_batch(self, header: BatchHeader, batch: Buffer, _: int) -> None:
        for record in decode_batch(batch) if not header.is_control else ():
            self.agenda.refile(record)

    def _drop_decided(self) -> None:
        """Drop ended transactions: compaction may have removed all of one, its marker included."""
        for producer_id in self.agenda.pending:
            if self.partition.open_transaction(producer_id) is None:
                self.agenda.pending.end(producer_id)

    def _replay(
        self, offset: int, take: Callable[[BatchHeader, Buffer, int], None]
    ) -> Iterator[None]:
        self.agenda.timetable.advance(self._clock.wall_ms())
        self._checkpoint_ms = self._clock.wall_ms()
        first = offset
        while offset < self.partition.end_offset:
            left, end = LOAD_STEP_BYTES, self.partition.end_offset
            try:
                for header, batch in self.partition.log.batches(offset, until_offset=end):
                    take(header, batch, first)
                    offset = header.next_offset
                    left -= header.size
                    if left <= 0:
                        break
                else:
                    offset = end  # Compaction may have removed the last batches entirely.
            except CorruptBatch as error:
                _log.error("%s is damaged: %s", self.partition.name, error)
                offset = error.next_offset if error.next_offset is not None else end
            yield

    # Writing

    def schedule(self, messages: Sequence[ScheduledMessage]) -> int:
        """Store messages as one batch; return the number of the first. The others follow it."""
        first = self.partition.end_offset
        now_ms = self._clock.wall_ms()
        state, trailer = self._origin_after(first, messages, now_ms)
        batch, starts = message_batch(first, messages, now_ms, trailer=trailer)
        self._write(batch)
        self._places.note_written(first, len(batch), starts)
        self.agenda.schedule(first, messages)
        if state is not None:
            self.agenda.origins.put(state)
        if self.observer is not None:
            self._report(self.observer.scheduled, (first, first + len(messages)))
        return first

    def _origin_after(
        self, first: int, messages: Sequence[ScheduledMessage], now_ms: int
    ) -> tuple[OriginState | None, tuple[bytes, bytes] | None]:
        """The new state of the producer of these messages, if it is identified, and its record."""
        number = first + len(messages) - 1
        state = self.agenda.origins.after(messages[-1], number, now_ms=now_ms)
        return state, None if state is None else (origin_key(state.key), origin_value(state))

    # Leaders that store delayed records here

    def check_leader(self, source: Source, epoch: int, *, known: int) -> None:
        """Refuse a former leader, and record a new one as durably as what it stores next.

        `known` is the newest epoch in this node's metadata.
        """
        if self.agenda.leader_epochs.check(source, epoch, known=known):
            now_ms = self._clock.wall_ms()
            self._write(encode_batch([leader_epoch_record(source, epoch, now_ms)]))
            self.agenda.leader_epochs.put(source, epoch)

    def forget_sources(
        self, *, before_ms: int, states_max: int, is_known: Callable[[bytes], bool]
    ) -> None:
        """Expire producers as a partition does, and the state of topics that are gone."""
        agenda, now_ms = self.agenda, self._clock.wall_ms()
        producers = agenda.origins.expired(
            before_ms=before_ms, states_max=states_max, is_known=is_known
        )
        sources = agenda.leader_epochs.expired(is_known=is_known)
        for start in range(0, len(producers), ENDS_PER_BATCH_MAX):
            some = producers[start : start + ENDS_PER_BATCH_MAX]
            self._write(encode_batch([forget_origin_record(one, now_ms) for one in some]))
            for one in some:
                agenda.origins.remove(one)
        for start in range(0, len(sources), ENDS_PER_BATCH_MAX):
            gone = sources[start : start + ENDS_PER_BATCH_MAX]
            self._write(encode_batch([forget_leader_epoch_record(one, now_ms) for one in gone]))
            for source in gone:
                agenda.leader_epochs.remove(source)

    # Transactions

    def schedule_pending(
        self, messages: Sequence[ScheduledMessage], identity: ProducerIdentity
    ) -> int:
        """Store messages of a transaction, already a participant here, as one batch.

        Return the number of the first; they are scheduled from the commit on.
        """
        self.check_open()
        self.agenda.pending.check_room(identity.producer_id)
        first = self.partition.end_offset
        now_ms = self._clock.wall_ms()
        sequence = next_sequence(self.partition, identity)
        state, trailer = self._origin_after(first, messages, now_ms)
        batch, starts = message_batch(
            first,
            messages,
            now_ms,
            transaction=identity,
            base_sequence=sequence,
            trailer=trailer,
        )
        last = write_batch(self.partition, memoryview(batch), now_ms=now_ms).last_offset
        self._places.note_written(first, len(batch), starts)
        self.agenda.pend(identity.producer_id, first, last)
        if state is not None:
            self.agenda.origins.put(state)
        return first

    def ended(self, producer_id: int, *, is_commit: bool, on_active: Callable[[int], None]) -> None:
        """Apply the committed marker that ends a producer's transaction here.

        `on_active` is called with due times as messages are scheduled.
        """
        ranges = self.agenda.end_transaction(producer_id, is_commit=is_commit)
        if ranges:
            self._on_active = on_active
            self._activating.extend(ranges)
            self._activate_some()

    @property
    def _is_behind(self) -> bool:
        """Whether the log holds decisions that the agenda does not reflect yet."""
        is_open = self.partition.open_transaction
        return bool(self._activating) or any(is_open(one) is None for one in self.agenda.pending)

    def _activate_some(self) -> None:
        room = ACTIVATE_MESSAGES_MAX
        while self._activating and room > 0:
            first, last = self._activating.popleft()
            until = min(last, first + room - 1)
            try:
                due_ms = self._activate(first, until)
            except OSError as error:
                _log.error("%s must be replayed: %s", self.partition.name, error)
                self._activating.appendleft((first, last))
                self._clock.call_later(READ_RETRY_MS, self._activate_some)
                return
            if until < last:
                self._activating.appendleft((until + 1, last))
            if self.observer is not None:
                self.observer.scheduled(self.partition.name, (first, until + 1))
            room -= until - first + 1
            if due_ms is not None:
                self._on_active(due_ms)
        if self._activating:
            self._clock.call_soon(self._activate_some)

    def _activate(self, first: int, last: int) -> int | None:
        """Schedule the messages in an offset range; return the earliest due time."""
        earliest: int | None = None
        try:
            for _, batch in self.partition.log.batches(first, until_offset=last + 1):
                for record in decode_batch(batch):
                    message = _own_message(record) if first <= record.offset <= last else None
                    if message is not None:
                        self.agenda.activate(record.offset, [message])
                        due_ms = message.due_ms
                        earliest = due_ms if earliest is None else min(earliest, due_ms)
        except CorruptBatch as error:
            _log.error("messages of a transaction in %s are lost: %s", self.partition.name, error)
        return earliest

    # Changes

    def move(self, number: int, due_ms: int) -> int:
        """Store a new due time; return the offset to wait for."""
        offset = self._write(encode_batch([move_record(number, due_ms, self._clock.wall_ms())]))
        self.agenda.move(number, due_ms)
        return offset

    def end(self, numbers: Sequence[int], *, is_released: bool) -> int:
        """Store that messages no longer wait; return the offset to wait for."""
        now_ms = self._clock.wall_ms()
        moved = self.agenda.moved
        last = -1
        for start in range(0, len(numbers), ENDS_PER_BATCH_MAX):
            some = numbers[start : start + ENDS_PER_BATCH_MAX]
            last = self._write(end_batch(some, moved, now_ms, is_released=is_released))
            self.agenda.end_many(some, is_released=is_released)
        if self.observer is not None and numbers:
            report = self.observer.released if is_released else self.observer.cancelled
            self._report(report, ranges_of(sorted(numbers)))
        return last

    def _report(self, report: Callable[[TopicPartition, T], None], what: T) -> None:
        """Call an observer when everything written so far is committed."""

        def committed(error: GoQueueError | None) -> None:
            if error is None:
                report(self.partition.name, what)

        self.partition.when_committed(self.partition.end_offset - 1, committed)

    def intend(self, intent: Intent) -> int:
        """Store what is about to be released; return the offset to wait for before the release."""
        offset = self._write(encode_batch([intent_record(intent, self._clock.wall_ms())]))
        self.agenda.intents[intent.target] = intent
        return offset

    def abandon(self, lane: TargetKey) -> int:
        """Store that the newest intent for a partition is abandoned; return the offset to wait
        for.
        """
        offset = self._write(encode_batch([no_intent_record(lane, self._clock.wall_ms())]))
        self.agenda.intents.pop(lane, None)
        return offset

    def cancel(self, number: int) -> None:
        """Begin to cancel a message that can still be changed; `cancelled` resolves when it is
        done.
        """
        if not self._cancelling:
            self._clock.call_soon(self._write_cancels)
        self._cancelling.add(number)
        self.agenda.hold(number)

    def cancelled(self) -> Promise[None]:
        """Resolves when all cancels of this turn, which share one batch, are stored or have
        failed.
        """
        assert self._cancelling, "something is being cancelled"
        return self._cancels

    def is_being_cancelled(self, number: int) -> bool:
        return number in self._cancelling

    def flight_of(self, number: int) -> Promise[None] | None:
        """The promise to wait for while a message is being released; None if it is not."""
        if self.is_being_cancelled(number) or not self.agenda.is_in_flight(number):
            return None
        return self._flights.of(self.agenda, number)

    def _write_cancels(self) -> None:
        cancelling, self._cancelling = self._cancelling, set()
        promise, self._cancels = self._cancels, Promise()
        try:
            last = self.end(sorted(cancelling), is_released=False)
        except GoQueueError as error:
            for number in cancelling:
                if self.agenda.is_waiting(number):
                    self.agenda.give_back(number, retry_ms=self._due_ms(number))
            promise.reject(error)
            return
        self.partition.when_committed(last, lambda error: promise.settle(None, error))

    def check_open(self) -> None:
        """Refuse late calls: another node may own the log by now."""
        if self.is_closed:
            raise NotCoordinator("Another node owns these schedules now; find the owner again.")

    def _write(self, batch: bytearray) -> int:
        self.check_open()
        if self.partition.failure is not None:
            raise self.partition.failure
        view = memoryview(batch)
        return self.partition.write(view, now_ms=self._clock.wall_ms()).last_offset

    # Reading

    def read(self, number: int, *, is_waiting: bool = True) -> ScheduledMessage | None:
        """A stored message, or None if it is gone; fast for ascending numbers.

        Without `is_waiting`, raise `OnDisk` for a message that must be read from disk.
        """
        value = self._places.find(number, is_waiting=is_waiting)
        return None if value is None else read_message(value)

    def fetch(self, numbers: list[int]) -> Callable[[], None]:
        """A function that reads messages from disk; it blocks, and may run outside the event
        loop.
        """
        return self._places.fetch(numbers)

    @property
    def search_count(self) -> int:
        """The number of reads so far that had to scan a whole batch, which is slow."""
        return self._places.search_count

    def _due_ms(self, number: int) -> int:
        due_ms = self.agenda.moved.get(number)
        if due_ms is None:
            message = self.read(number)
            due_ms = message.due_ms if message is not None else self._clock.wall_ms()
        return due_ms

    # Checkpoints

    def is_checkpoint_due(self, *, interval_ms: int, records_max: int) -> bool:
        news = self.partition.end_offset - self._checkpoint_offset
        if self._is_saving or self._is_untrusted or self.partition.failure is not None or not news:
            return False
        if self._is_behind or self.is_closed:
            return False
        age_ms = self._clock.wall_ms() - self._checkpoint_ms
        return news >= records_max or not 0 <= age_ms < interval_ms

    def save(self, done: Callable[[], None], *, clean_epoch: int = -1) -> None:
        """Write a checkpoint if possible now, then call `done`."""
        is_possible = not (self._is_saving or self._is_untrusted or self._is_behind)
        if self.is_closed or not is_possible or self.partition.failure is not None:
            done()
            return
        offset = self.partition.end_offset
        self._checkpoint_ms = self._clock.wall_ms()
        try:
            checkpoint, dirty = self.agenda.checkpoint(
                offset, clean_epoch=clean_epoch, leader_epoch=self.partition.last_epoch
            )
        except OSError as error:
            _log.warning("schedules of %s were not saved: %s", self.partition.name, error)
            done()
            return
        self._is_saving = True
        self._save_when_synced(checkpoint, dirty, done)

    def _save_when_synced(
        self, checkpoint: Checkpoint, dirty: list[Bucket], done: Callable[[], None]
    ) -> None:
        """Wait for the sync: a checkpoint must not include records that a power cut could undo."""
        if self.partition.failure is not None:
            self._saved(None, self.partition.failure, checkpoint, done)
        elif self.is_closed:
            self._is_saving = False
            done()
        elif self.partition.synced_offset < checkpoint.offset:
            self._clock.call_later(
                SYNC_POLL_MS, partial(self._save_when_synced, checkpoint, dirty, done)
            )
        else:
            self._threads += 1
            self._clock.run_blocking(
                partial(_save, self._disk, self._folder, checkpoint, dirty),
                lambda result, error: self._saved_apart(result, error, checkpoint, done),
            )

    def _saved_apart(
        self,
        unsynced: str | None,
        error: Exception | None,
        checkpoint: Checkpoint,
        done: Callable[[], None],
    ) -> None:
        self._threads -= 1
        if not self.is_closed:
            self._saved(unsynced, error, checkpoint, done)
            return
        done()
        self._close_if_alone()

    def _saved(
        self,
        unsynced: str | None,
        error: Exception | None,
        checkpoint: Checkpoint,
        done: Callable[[], None],
    ) -> None:
        self._is_saving = False
        if error is not None and not isinstance(error, (OSError, GoQueueError)):
            raise error
        if unsynced:
            # The content of that file is undefined from here on. The last checkpoint stays valid,
            # and the next start replays the log from there.
            self._is_untrusted = True
            _log.error("schedules are no longer saved: %s", unsynced)
        elif error is not None:
            _log.warning("schedules of %s were not saved: %s", self.partition.name, error)
            self.agenda.timetable.mark_dirty()
        else:
            self._checkpoint_offset = checkpoint.offset
            self._remove(self.agenda.timetable.take_dropped())
        done()

    def _remove(self, paths: list[str]) -> None:
        def removed(_: object, error: Exception | None) -> None:
            self._threads -= 1
            if error is not None:
                _log.warning("old schedule files could not be removed: %s", error)
            self._close_if_alone()

        if paths:
            self._threads += 1
            self._clock.run_blocking(partial(_remove, self._disk, paths), removed)

    # Closing

    def close(self) -> Promise[None]:
        """Stop, because the log has another owner; resolves when no file is in use here."""
        self.is_closed = True
        self._flights.close()
        self._close_if_alone()
        return self._closed

    def _close_if_alone(self) -> None:
        if self.is_closed and not self._threads and not self._closed.is_done:
            self.agenda.timetable.close()
            self._closed.resolve(None)


def _own_message(record: Record) -> ScheduledMessage | None:
    """The message that a record schedules, which is stored under its own offset."""
    if record.value is None or read_key(record.key) != (record.offset, False):
        return None
    return read_message(record.value)


def _save(disk: Disk, folder: str, checkpoint: Checkpoint, dirty: list[Bucket]) -> str | None:
    """Save in a thread. Return which file could not be synced; raise other errors."""
    for bucket in dirty:
        try:
            bucket.sync()
        except OSError as error:
            return f"{bucket.path} could not be synced: {error}"
    write_checkpoint(disk, folder, checkpoint)
    return None


def _remove(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        if disk.exists(path):
            disk.remove(path)
