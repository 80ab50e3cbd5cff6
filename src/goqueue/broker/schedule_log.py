"""One partition of the topic of scheduled messages, with the agenda that it feeds.

The broker is the only writer here, so the number of a message, its offset, is known before it is
written. The agenda is told of a record in the same turn in which the record is appended; it is
therefore always as far as the log, and a checkpoint can be taken at any moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from goqueue.broker.promise import Promise
from goqueue.broker.scheduler import Scheduler
from goqueue.delivery.schedules import (
    Agenda,
    Bucket,
    Checkpoint,
    DamagedBucket,
    ScheduledMessage,
    end_move_record,
    end_record,
    message_record,
    move_record,
    number_key,
    read_checkpoint,
    read_message,
    write_checkpoint,
)
from goqueue.model.batch import (
    BatchHeader,
    Record,
    decode_batch,
    decode_records,
    encode_batch,
    is_intact,
    read_header,
    unpack_payload,
    varint,
)
from goqueue.model.errors import CorruptBatch, GoQueueError
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

# One message is found by looking through its batch, so batches are small.
BATCH_RECORDS_MAX = 64
BATCH_BYTES_MAX = 256 << 10
ENDS_PER_BATCH_MAX = 2000
SYNC_POLL_MS = 100
_READ_BYTES = 32 << 10
_LOG_BYTES_MAX = 1 << 60

_log = logging.getLogger(__name__)


class ScheduleLog:
    """Stores scheduled messages and what happens to them, and finds them again."""

    def __init__(
        self, scheduler: Scheduler, disk: Disk, partition: Partition, *, topic_id: bytes
    ) -> None:
        self.partition = partition
        self.number = partition.name.partition
        self._scheduler = scheduler
        self._disk = disk
        self._topic_id = topic_id
        self._folder = f"schedules/{self.number}"
        self.agenda = self._new_agenda()
        self.clean_epoch = -1  # as the checkpoint says that this start found
        self._finder = _Finder(partition)
        self._checkpoint_offset = partition.start_offset
        self._checkpoint_ms = 0
        self._is_saving = False
        self._is_untrusted = False
        self._cancelling: dict[int, Promise[None]] = {}

    # Opening

    def load(self) -> None:
        """Know what the log says: from the checkpoint, and from the records after it."""
        checkpoint = read_checkpoint(self._disk, self._folder, topic_id=self._topic_id)
        if checkpoint is not None and checkpoint.offset <= self.partition.end_offset:
            try:
                self.agenda.restore(checkpoint)
            except (DamagedBucket, OSError) as error:
                _log.error("the schedules of %s are read anew: %s", self.partition.name, error)
                self.agenda = self._new_agenda()
            else:
                self.clean_epoch = checkpoint.clean_epoch
                self._checkpoint_offset = checkpoint.offset
                self._replay(checkpoint.offset, self.agenda.replay)
                return
        self.agenda.timetable.restore([], serial_next=1)
        self._replay(self.partition.start_offset, self.agenda.replay)

    def rebuild(self) -> None:
        """Make the buckets anew from the log, because they are damaged."""
        self.agenda.renew_timetable()
        self._replay(self.partition.start_offset, self.agenda.refile)

    def _new_agenda(self) -> Agenda:
        return Agenda(self._disk, self._folder, topic_id=self._topic_id)

    def _replay(self, offset: int, take: Callable[[Record], None]) -> None:
        self.agenda.timetable.advance(self._scheduler.now_ms())
        self._checkpoint_ms = self._scheduler.now_ms()
        first, end = offset, self.partition.end_offset
        while offset < end:
            try:
                for header, batch in self.partition.log.batches(offset, until_offset=end):
                    for record in decode_batch(batch):
                        if record.offset >= first:
                            take(record)
                    offset = header.next_offset
                return
            except CorruptBatch as error:
                _log.error("%s is damaged: %s", self.partition.name, error)
                offset = error.next_offset if error.next_offset is not None else end

    # Writing

    def schedule(self, messages: Sequence[ScheduledMessage]) -> int:
        """Store messages as one batch; the number of the first. The others follow it."""
        first = self.partition.end_offset
        now_ms = self._scheduler.now_ms()
        self._write(
            [message_record(number, one, now_ms) for number, one in enumerate(messages, first)]
        )
        self.agenda.schedule(first, messages)
        return first

    def move(self, number: int, due_ms: int) -> int:
        """Store a new due time; the offset to wait for."""
        offset = self._write([move_record(number, due_ms, self._scheduler.now_ms())])
        self.agenda.move(number, due_ms)
        return offset

    def end(self, numbers: Sequence[int], *, is_released: bool) -> int:
        """Store that messages wait no longer; the offset to wait for."""
        now_ms = self._scheduler.now_ms()
        moved = self.agenda.moved
        last = -1
        for start in range(0, len(numbers), ENDS_PER_BATCH_MAX):
            some = numbers[start : start + ENDS_PER_BATCH_MAX]
            records = [end_record(one, now_ms, is_released=is_released) for one in some]
            records += [end_move_record(one, now_ms) for one in some if one in moved]
            last = self._write(records)
            for number in some:
                self.agenda.end(number, is_released=is_released)
        return last

    def cancel(self, number: int) -> Promise[None]:
        """End a message that can be changed; cancels of one turn share one batch."""
        promise: Promise[None] = Promise()
        if not self._cancelling:
            self._scheduler.call_soon(self._write_cancels)
        self._cancelling[number] = promise
        self.agenda.hold(number)
        return promise

    def is_being_cancelled(self, number: int) -> bool:
        return number in self._cancelling

    def _write_cancels(self) -> None:
        cancelling, self._cancelling = self._cancelling, {}
        try:
            last = self.end(list(cancelling), is_released=False)
        except GoQueueError as error:
            for number, promise in cancelling.items():
                if self.agenda.is_waiting(number):
                    self.agenda.give_back(number, retry_ms=self._due_ms(number))
                promise.reject(error)
            return

        def committed(error: GoQueueError | None) -> None:
            for promise in cancelling.values():
                promise.settle(None, error)

        self.partition.when_committed(last, committed)

    def _write(self, records: list[Record]) -> int:
        if self.partition.failure is not None:
            raise self.partition.failure
        batch = memoryview(encode_batch(records))
        return self.partition.write(batch, now_ms=self._scheduler.now_ms()).last_offset

    # Reading

    def read(self, number: int) -> ScheduledMessage | None:
        """A stored message, or None when it is gone; quick for ascending numbers."""
        value = self._finder.find(number)
        return None if value is None else read_message(value)

    def _due_ms(self, number: int) -> int:
        due_ms = self.agenda.moved.get(number)
        if due_ms is None:
            message = self.read(number)
            due_ms = message.due_ms if message is not None else self._scheduler.now_ms()
        return due_ms

    # Checkpoints

    def is_checkpoint_due(self, *, interval_ms: int, records_max: int) -> bool:
        news = self.partition.end_offset - self._checkpoint_offset
        if self._is_saving or self._is_untrusted or self.partition.failure is not None or not news:
            return False
        age_ms = self._scheduler.now_ms() - self._checkpoint_ms
        return news >= records_max or not 0 <= age_ms < interval_ms

    def save(self, done: Callable[[], None], *, clean_epoch: int = -1) -> None:
        """Write a checkpoint if that is possible now, then call `done`."""
        if self._is_saving or self._is_untrusted or self.partition.failure is not None:
            done()
            return
        offset = self.partition.end_offset
        self._checkpoint_ms = self._scheduler.now_ms()
        try:
            checkpoint, dirty = self.agenda.checkpoint(offset, clean_epoch=clean_epoch)
        except OSError as error:
            _log.warning("schedules of %s were not saved: %s", self.partition.name, error)
            done()
            return
        self._is_saving = True
        self._save_when_synced(checkpoint, dirty, done)

    def _save_when_synced(
        self, checkpoint: Checkpoint, dirty: list[Bucket], done: Callable[[], None]
    ) -> None:
        """A checkpoint must not speak of records that a power cut could still take away."""
        if self.partition.failure is not None:
            self._saved(None, self.partition.failure, checkpoint, done)
        elif self.partition.synced_offset < checkpoint.offset:
            self._scheduler.call_later(
                SYNC_POLL_MS, partial(self._save_when_synced, checkpoint, dirty, done)
            )
        else:
            self._scheduler.run_blocking(
                partial(_save, self._disk, self._folder, checkpoint, dirty),
                lambda result, error: self._saved(result, error, checkpoint, done),
            )

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
            # What that file holds is unknown from here on. The last checkpoint stays, and the
            # next start reads the log from there.
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
            if error is not None:
                _log.warning("old schedule files could not be removed: %s", error)

        if paths:
            self._scheduler.run_blocking(partial(_remove, self._disk, paths), removed)

    def close(self) -> None:
        self.agenda.timetable.close()


class _Finder:
    """Finds stored messages by their numbers, one after the other; remembers the last batch."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._header: BatchHeader | None = None
        self._payload = b""

    def find(self, number: int) -> bytes | None:
        """The value of the record with this number; None when there is none."""
        header = self._header
        if header is None or not header.base_offset <= number < header.next_offset:
            header = self._header = self._open_batch(number)
            if header is None:
                return None
        # The beginning of the record: no attributes, the time of the batch, place and key. A
        # value may contain the same bytes, so they count only if they occur once.
        payload, key = self._payload, number_key(number)
        pattern = b"\x00\x00" + varint(number - header.base_offset) + varint(len(key)) + key
        at = payload.find(pattern)
        if at >= 0 and payload.find(pattern, at + 1) < 0:
            return _bytes_at(payload, at + len(pattern))
        for record in decode_records(header, payload):
            if record.offset == number:
                return record.value
        return None

    def _open_batch(self, number: int) -> BatchHeader | None:
        partition = self._partition
        try:
            part = partition.log.read(
                number, bytes_max=_LOG_BYTES_MAX, until_offset=partition.end_offset
            )
            if part is None:
                return None
            data = part.segment.file.read(part.position, _READ_BYTES)
            header = read_header(data)
            if header.size > len(data):
                data = part.segment.file.read(part.position, header.size)
            if not part.is_trusted and not is_intact(memoryview(data), header):
                part._replace(length=header.size).read()  # It says what is wrong.
        except OSError as error:
            raise partition.unreadable(error) from error
        self._payload = bytes(unpack_payload(data, header))
        return header


def _bytes_at(data: bytes, position: int) -> bytes | None:
    """The field at a position, behind its length as a variable-length integer."""
    length, shift = 0, 0
    while True:
        byte = data[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return data[position : position + (length >> 1)] if not length & 1 else None


def _save(disk: Disk, folder: str, checkpoint: Checkpoint, dirty: list[Bucket]) -> str | None:
    """Runs in a thread. What could not be synced is named; other errors are raised."""
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
