"""One partition of the topic of scheduled messages, with the agenda built from it.

The broker is the only writer here, so the number of a message, its offset, is determined before it
is written. The agenda is updated in the same event-loop turn in which a record is appended; it is
therefore always in step with the log, and a checkpoint can be taken at any time. Messages of a
transaction are the exception (`replay`).

Messages become due in a different order than they arrived, so each is in a different batch. Reading
and scanning that batch would cost far more than the message. The position of a record is noted when
it is written. After a restart or a compaction it is found when the first message of its batch is
read, and cached for the others. It takes four bytes per message, and only the newest pages are
kept.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from goqueue.broker.schedules.observation import Move, Observation
from goqueue.broker.shards.transactional_batches import next_sequence, write_batch
from goqueue.delivery.schedules import (
    Agenda,
    Intent,
    ProducerState,
    ScheduledMessage,
    Source,
    TargetKey,
    end_batch,
    forget_leader_epoch_record,
    forget_producer_record,
    intent_record,
    leader_epoch_record,
    message_batch,
    move_record,
    no_intent_record,
    number_key,
    producer_key,
    producer_value,
    read_message,
)
from goqueue.loop.clock import Clock
from goqueue.model.batch import (
    HEADER_BYTES,
    BatchHeader,
    encode_batch,
    is_intact,
    read_header,
    unpack_payload,
    varint,
)
from goqueue.model.compression import Compression
from goqueue.model.decode_fields import read_varint
from goqueue.model.errors import (
    CorruptBatch,
    GoQueueError,
    NotCoordinator,
    RequestTimedOut,
    UnsupportedVersion,
)
from goqueue.model.names import ProducerIdentity
from goqueue.model.observer import Observer
from goqueue.partition import Partition
from goqueue.storage.disk import Disk, File
from goqueue.storage.log import Slice
from goqueue.storage.segment import Segment

# After a restart a message is found by scanning its batch, so batches are kept small.
BATCH_RECORDS_MAX = 250
BATCH_BYTES_MAX = 256 << 10
ENDS_PER_BATCH_MAX = 2000

PAGE_BITS = 14
PAGE_NUMBERS = 1 << PAGE_BITS
PAGES_MAX = 256  # the positions of four million messages, in 16 MB

_MASK = PAGE_NUMBERS - 1
_UNKNOWN = 0  # a header comes before every record
_POSITION_MAX = (1 << 32) - 1
_RECORD_BYTES = 512  # read for one message; most are smaller
_RUN_BYTES = 16 << 10  # read when requested messages are close together
_NEAR_BYTES = 2048
_LENGTH_BYTES_MAX = 5
_LONG = 0x80  # flag: more bytes of the varint follow
_BATCH_BYTES = 32 << 10
_LOG_BYTES_MAX = 1 << 60
_KEY_LENGTH = varint(len(number_key(0)))

_log = logging.getLogger(__name__)

_Read = Callable[[int, int], bytes]


class ScheduleLog:
    """Stores scheduled messages and their state changes, and looks them up."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        partition: Partition,
        *,
        topic_id: bytes,
        observer: Observer | None,
    ) -> None:
        self.partition = partition
        self.number = partition.name.partition
        self.disk = disk
        self.folder = f"schedules/{self.number}"
        self.topic_id = topic_id
        self.agenda = self.new_agenda()
        self.is_closed = False
        # Called with the due time of a message that now waits, or of the earliest of several.
        self.on_due: Callable[[int], None] = lambda due_ms: None
        # Called when a record of a later release is found, with which this node cannot go on.
        self.on_unreadable: Callable[[UnsupportedVersion], None] = lambda error: None
        self._clock = clock
        self._positions = PositionIndex(partition)
        self.observation = None if observer is None else Observation(clock, observer, partition)

    def new_agenda(self) -> Agenda:
        return Agenda(self.disk, self.folder, topic_id=self.topic_id)

    # Messages

    def store(self, messages: Sequence[ScheduledMessage]) -> list[int]:
        """Store messages in a few batches; return their numbers.

        On an error none is scheduled, unless the error says that the outcome is unknown.
        """
        numbers: list[int] = []
        try:
            for some in batches_of(messages):
                first = self.schedule(some)
                numbers += range(first, first + len(some))
        except GoQueueError as error:
            self._undo(numbers, error)
            raise
        return numbers

    def _undo(self, numbers: list[int], refusal: GoQueueError) -> None:
        try:
            self.end(numbers, is_released=False)
        except GoQueueError as error:
            _log.warning(
                "%d messages of a refused call stay scheduled in %s: %s",
                len(numbers),
                self.partition.name,
                error,
            )
            raise unknown_outcome(refusal) from refusal

    def store_once(
        self, messages: Sequence[ScheduledMessage], transaction: ProducerIdentity | None
    ) -> list[int]:
        """Store the messages of one producer's batch as one batch, unless already stored."""
        first = messages[0]
        if first.origin is not None:
            known = self.agenda.producers.find(first.topic_id, first.partition, first.origin)
            if known is not None:
                return [known]
        if transaction is not None:
            number = self.schedule_pending(messages, transaction)
        else:
            number = self.schedule(messages)
        return list(range(number, number + len(messages)))

    def schedule(self, messages: Sequence[ScheduledMessage]) -> int:
        """Store messages as one batch; return the number of the first. The others follow it."""
        first = self.partition.end_offset
        now_ms = self._clock.wall_ms()
        state, trailer = self._producer_after(first, messages, now_ms)
        batch, starts = message_batch(first, messages, now_ms, trailer=trailer)
        self._write(batch)
        self._positions.note_written(first, len(batch), starts)
        self.agenda.schedule(first, messages)
        if state is not None:
            self.agenda.producers.put(state)
        if self.observation is not None:
            self.observation.scheduled(first, messages)
        self.on_due(min([message.due_ms for message in messages]))
        return first

    def _producer_after(
        self, first: int, messages: Sequence[ScheduledMessage], now_ms: int
    ) -> tuple[ProducerState | None, tuple[bytes, bytes] | None]:
        """The new state of the producer of these messages, if it is identified, and its record."""
        number = first + len(messages) - 1
        state = self.agenda.producers.after(messages[-1], number, now_ms=now_ms)
        return state, None if state is None else (producer_key(state.key), producer_value(state))

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
        state, trailer = self._producer_after(first, messages, now_ms)
        batch, starts = message_batch(
            first,
            messages,
            now_ms,
            transaction=identity,
            base_sequence=sequence,
            trailer=trailer,
        )
        last = write_batch(self.partition, memoryview(batch), now_ms=now_ms).last_offset
        self._positions.note_written(first, len(batch), starts)
        self.agenda.pend(identity.producer_id, first, last)
        if state is not None:
            self.agenda.producers.put(state)
        return first

    def activated(
        self, messages: Sequence[tuple[int, ScheduledMessage]], marker_offset: int
    ) -> None:
        """Note that messages of a transaction wait since its commit, each given with its number."""
        if self.observation is not None:
            self.observation.activated(messages, marker_offset)
        if messages:
            self.on_due(min([message.due_ms for _, message in messages]))

    # Changes

    def move(self, number: int, due_ms: int) -> int:
        """Store a new due time; return the offset to wait for."""
        offset = self._write(encode_batch([move_record(number, due_ms, self._clock.wall_ms())]))
        self.agenda.move(number, due_ms)
        self.on_due(due_ms)
        return offset

    def end(self, numbers: Sequence[int], *, is_released: bool, moves: Sequence[Move] = ()) -> int:
        """Store that messages no longer wait; return the offset to wait for.

        `moves` are the ranges of those that were released, if it is known where they are.
        """
        now_ms = self._clock.wall_ms()
        moved = self.agenda.moved
        last = -1
        for start in range(0, len(numbers), ENDS_PER_BATCH_MAX):
            some = numbers[start : start + ENDS_PER_BATCH_MAX]
            last = self._write(end_batch(some, moved, now_ms, is_released=is_released))
            self.agenda.end_many(some, is_released=is_released)
        if self.observation is not None and numbers:
            if is_released:
                self.observation.released(numbers, moves)
            else:
                self.observation.cancelled(numbers)
        return last

    def announce(self, intent: Intent) -> int:
        """Store what is about to be released; return the offset to wait for before the release."""
        offset = self._write(encode_batch([intent_record(intent, self._clock.wall_ms())]))
        self.agenda.intents[intent.target] = intent
        return offset

    def withdraw(self, target: TargetKey) -> int:
        """Store that the newest intent for a partition is not continued; return the offset to wait
        for.
        """
        offset = self._write(encode_batch([no_intent_record(target, self._clock.wall_ms())]))
        self.agenda.intents.pop(target, None)
        return offset

    # Leaders and producers that store delayed records here

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
        producers = agenda.producers.expired(
            before_ms=before_ms, states_max=states_max, is_known=is_known
        )
        sources = agenda.leader_epochs.expired(is_known=is_known)
        for start in range(0, len(producers), ENDS_PER_BATCH_MAX):
            some = producers[start : start + ENDS_PER_BATCH_MAX]
            self._write(encode_batch([forget_producer_record(one, now_ms) for one in some]))
            for one in some:
                agenda.producers.remove(one)
        for start in range(0, len(sources), ENDS_PER_BATCH_MAX):
            gone = sources[start : start + ENDS_PER_BATCH_MAX]
            self._write(encode_batch([forget_leader_epoch_record(one, now_ms) for one in gone]))
            for source in gone:
                agenda.leader_epochs.remove(source)

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

    def read(self, number: int, *, may_block: bool = True) -> ScheduledMessage | None:
        """A stored message, or None if it is gone; fast for ascending numbers.

        Unless it `may_block`, raise `OnDisk` for a message that must be read from disk.
        """
        value = self._positions.find(number, may_block=may_block)
        try:
            return None if value is None else read_message(value)
        except UnsupportedVersion as error:
            self.on_unreadable(error)
            raise

    def fetch(self, numbers: list[int]) -> Callable[[], None]:
        """A function that reads messages from disk; it blocks, and may run outside the event
        loop.
        """
        return self._positions.fetch(numbers)

    @property
    def search_count(self) -> int:
        """The number of reads so far that had to scan a whole batch, which is slow."""
        return self._positions.search_count

    def due_ms(self, number: int) -> int:
        """The current due time of a message; now, if it is gone."""
        due_ms = self.agenda.moved.get(number)
        if due_ms is None:
            message = self.read(number)
            due_ms = message.due_ms if message is not None else self._clock.wall_ms()
        return due_ms


def unknown_outcome(error: GoQueueError) -> RequestTimedOut:
    """The error when something was written, but may still be lost."""
    return RequestTimedOut(f"The messages may or may not have been scheduled: {error}")


def batches_of(messages: Sequence[ScheduledMessage]) -> Iterator[Sequence[ScheduledMessage]]:
    """Split messages into runs that each make one batch."""
    start, size = 0, 0
    for stop, message in enumerate(messages, 1):
        size += len(message.value or b"") + len(message.key or b"")
        if stop - start == BATCH_RECORDS_MAX or size >= BATCH_BYTES_MAX:
            yield messages[start:stop]
            start, size = stop, 0
    if start < len(messages):
        yield messages[start:]


# Positions


class _Misplaced(Exception):
    """Another record, or none, is at the expected position."""


class OnDisk(Exception):
    """A message is not in memory; `PositionIndex.fetch` loads it."""


class PositionIndex:
    """Finds the messages of one log by number; fast for ascending numbers."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._pages: dict[int, array[int]] = {}
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self.search_count = 0  # how often a whole batch had to be scanned
        self._window: tuple[Segment | None, int, bytes] = (None, 0, b"")

    def note_written(self, first: int, batch_bytes: int, starts: list[int]) -> None:
        """Note the newest batch of the log: messages from `first` on, one at each start."""
        position = self._partition.log.active.size - batch_bytes
        if position + batch_bytes > _POSITION_MAX:
            return
        positions = array("I", [position + start for start in starts])
        done = 0
        while done < len(positions):
            at = (first + done) & _MASK
            count = min(len(positions) - done, PAGE_NUMBERS - at)
            self._page(first + done)[at : at + count] = positions[done : done + count]
            done += count

    def find(self, number: int, *, may_block: bool = True) -> bytes | None:
        """The value of the record with this number; None if there is none.

        Unless it `may_block`, raise `OnDisk` instead of reading the disk, if the position is known.
        """
        segment, position = self._locate(number)
        try:
            if position != _UNKNOWN:
                try:
                    return self._read_record(segment, position, number, may_block=may_block)
                except (_Misplaced, IndexError, CorruptBatch):
                    pass  # The batch has a checksum, by which the scan detects damage.
            return self._search(number)
        except OSError as error:
            raise self._partition.unreadable(error, number) from error

    def fetch(self, numbers: list[int]) -> Callable[[], None]:
        """A function that reads messages into memory; it blocks, and may run outside the event
        loop.
        """
        found = [self._locate(number) for number in numbers]
        return partial(_fetch, [(one.file, at, one.size - at) for one, at in found])

    def _locate(self, number: int) -> tuple[Segment, int]:
        """The segment that holds a record, and its position there, if known."""
        log = self._partition.log
        if log.segments != self._segments:
            self._follow(log.segments)
        page = self._pages.get(number >> PAGE_BITS)
        position = page[number & _MASK] if page is not None else _UNKNOWN
        return self._segments[bisect_right(self._bases, number) - 1], position

    def _page(self, number: int) -> array[int]:
        page = self._pages.get(number >> PAGE_BITS)
        if page is None:
            page = self._pages[number >> PAGE_BITS] = array("I", bytes(4 * PAGE_NUMBERS))
            if len(self._pages) > PAGES_MAX:
                del self._pages[next(iter(self._pages))]
        return page

    def _follow(self, segments: list[Segment]) -> None:
        """Drop the positions in segments that compaction has replaced."""
        kept = set(segments)
        for segment in self._segments:
            if segment not in kept:
                first = segment.base_offset >> PAGE_BITS
                last = segment.end_offset >> PAGE_BITS
                for page in [one for one in self._pages if first <= one <= last]:
                    del self._pages[page]
        self._window = (None, 0, b"")
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        assert all(one < other for one, other in pairwise(self._bases))

    def _read_record(
        self, segment: Segment, position: int, number: int, *, may_block: bool
    ) -> bytes | None:
        read = segment.file.read if may_block else _at_once(segment.file)
        known, start, data = self._window
        at = position - start
        is_near = known is segment and 0 <= at < len(data) + _NEAR_BYTES
        if not is_near or not _holds_record(data, at):
            # Other requested messages may be near, but this caller must not wait for them.
            size = _RUN_BYTES if is_near and not may_block else _RECORD_BYTES
            data = read(position, min(size, segment.size - position))
            self._window = (segment, position, data)
            at = 0
        length, body = read_varint(data, at)
        if body + length > len(data):
            data = read(position, body + length)
        return _value(data, body, number)

    def _search(self, number: int) -> bytes | None:
        """Scan the batch of a message, and note the positions of all its records."""
        log = self._partition.log
        part = log.read(number, bytes_max=_LOG_BYTES_MAX, until_offset=self._partition.end_offset)
        if part is None:
            return None
        self.search_count += 1
        header, data = _read_batch(part)
        payload = bytes(unpack_payload(data, header))
        position = part.position + HEADER_BYTES
        is_kept = header.codec is Compression.NONE and part.position + header.size <= _POSITION_MAX
        found = None
        try:
            for delta, start, body in _records(payload, header.record_count):
                here = header.base_offset + delta
                if is_kept:
                    self._page(here)[here & _MASK] = position + start
                if here == number:
                    found = body
            return None if found is None else _value(payload, found, number)
        except (_Misplaced, IndexError) as error:
            raise CorruptBatch(f"The record {number} is not a scheduled message.") from error


def _at_once(file: File) -> _Read:
    def read(position: int, length: int) -> bytes:
        data = file.read_at_once(position, length)
        if data is None:
            raise OnDisk
        return data

    return read


def _fetch(records: list[tuple[File, int, int]]) -> None:
    """Read the records at these positions into the page cache, each up to a given size."""
    for file, position, bytes_max in records:
        file.pin()
        try:
            data = file.read(position, min(_RECORD_BYTES, bytes_max))
            length, body = read_varint(data, 0)
            if body + length > len(data):
                file.read(position, min(body + length, bytes_max))
        except (IndexError, CorruptBatch):
            pass  # The next reader of this position reports the error.
        finally:
            file.unpin()


def _read_batch(part: Slice) -> tuple[BatchHeader, bytes]:
    """The first batch of a slice; raise `CorruptBatch` if it is damaged."""
    data = part.segment.file.read(part.position, _BATCH_BYTES)
    header = read_header(data)
    if header.size > len(data):
        data = part.segment.file.read(part.position, header.size)
    if not part.is_trusted and not is_intact(memoryview(data), header):
        part._replace(length=header.size).read()  # It raises the specific error.
    return header, data


def _records(payload: bytes, count: int) -> Iterator[tuple[int, int, int]]:
    """For each record: its offset in the batch, its start, and the start of its fields."""
    start = 0
    for _ in range(count):
        length, body = read_varint(payload, start)
        if length <= 0 or body + length > len(payload):
            raise CorruptBatch("A record claims more bytes than its batch has.")
        at = body + 2 if payload[body + 1] < _LONG else read_varint(payload, body + 1)[1]
        yield read_varint(payload, at)[0], start, body
        start = body + length


def _holds_record(data: bytes, at: int) -> bool:
    """Whether the record that begins at a position is complete."""
    if at + _LENGTH_BYTES_MAX > len(data):
        return False
    length, body = read_varint(data, at)
    return body + length <= len(data)


def _value(data: bytes, body: int, number: int) -> bytes | None:
    """The value of the record whose fields begin at `body`, if it has that number."""
    # Most have the timestamp of their batch and are near its start: one-byte varints.
    at = body + 2 if data[body + 1] < _LONG else read_varint(data, body + 1)[1]
    at = at + 1 if data[at] < _LONG else read_varint(data, at)[1]
    key = _KEY_LENGTH + number_key(number)
    if data[at : at + len(key)] != key:
        raise _Misplaced
    length, at = read_varint(data, at + len(key))
    return data[at : at + length] if length >= 0 else None
