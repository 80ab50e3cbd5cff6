"""Moves messages to dead-letter topics, exactly once, across crashes and changes of leaders.

A dead-letter partition may be led by another node, and the owner of a queue may change while a
batch of dead letters is in flight. So an intent is journaled first: the messages of the batch, and
its producer id and sequence number. Only then is the batch sent, repeatedly until it is committed,
and then the journal records that its messages are done. A new owner that finds an intent without
this completion sends the batch again under the same numbers (see `Courier`).

Each time a node becomes the owner of a journal partition it writes as a new producer, and sends
one batch at a time to each dead-letter partition.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.journal import not_here
from goqueue.broker.queues.records import RecordReader, Source, read_soon
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.shards.courier import BatchNumbers, Courier
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.topic_changes import IN_SYNC_SETTING
from goqueue.delivery import DeadLetter, DeadLettered, DeadLetterIntent, PendingLetter
from goqueue.delivery.ledger import stored_letters
from goqueue.delivery.ranges import ranges_of
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, start
from goqueue.model.batch import Record
from goqueue.model.dead_letters import (
    PREFIX,
    Origin,
    without_origin,
    write_errors,
    write_origin,
)
from goqueue.model.errors import (
    GoQueueError,
    OutOfOrderSequence,
    TopicExists,
    UnknownTopicId,
)
from goqueue.model.names import ProducerIdentity

LETTERS_PER_BATCH_MAX = 500
BATCH_BYTES_MAX = 512 << 10
RETRY_MS = 1000
LOOK_MS = 50  # how often to check whether the local metadata has caught up

# A topic or a group may be deleted and created again under its name; the ids distinguish them.
TOPIC_ID_HEADER = PREFIX + "topic-id"
GROUP_ID_HEADER = PREFIX + "group-id"

_log = logging.getLogger(__name__)


class LetterSource(NamedTuple):
    """The partition of a queue that dead letters come from."""

    group: str
    group_id: str
    topic: Topic
    number: int
    has_error_headers: bool = False


@dataclass(slots=True)
class _Entry:
    source_queue: HostedQueue
    letter: DeadLetter
    promise: Promise[None]


@dataclass(slots=True)
class _Batch:
    """Dead letters of one partition of one queue, all with their records."""

    source_queue: HostedQueue
    number: int
    entries: list[_Entry]
    records: dict[int, Record]  # by offset


@dataclass(slots=True)
class _Line:
    """The pending dead letters of one target partition."""

    topic: str
    number: int
    pending: deque[_Entry] = field(default_factory=deque)
    is_busy: bool = False


class DeadLetterWriter:
    """Writes the dead letters of all queues in one partition of the journal."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        reader: RecordReader,
        *,
        source_of: Callable[[Topic, int], Source],
    ) -> None:
        """`source_of` returns the source from which a partition's records are read."""
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._reader = reader
        self._source_of = source_of
        # Messages were checked when they were accepted, and must not get stuck as dead letters.
        self._courier = Courier(topics, leaders, is_over=lambda: self._is_closed, is_checked=True)
        self._lines: dict[tuple[str, int], _Line] = {}
        self._waiting: dict[Promise[None], None] = {}
        self._is_closed = False

    def close(self) -> None:
        """Stop, because another node owns these queues; it completes the journaled intents."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, {}
        for promise in waiting:
            promise.reject(not_here())

    # Intents of an earlier owner

    async def finish(self, source: LetterSource, intent: DeadLetterIntent) -> DeadLettered:
        """Make sure that the batch of an intent is stored; return the event to journal."""
        offsets = [letter.offset for letter in intent.letters]
        # What cannot be stored under these numbers is dead-lettered anew.
        nothing = DeadLettered([], intent.topic_id, 0)
        records = await self._read_again(source, intent.topic_id, offsets)
        if records is None:
            return nothing
        try:
            end = await self._store(source, intent, records)
        except (UnknownTopicId, OutOfOrderSequence):
            return nothing
        self._check_open()
        stored = stored_letters(intent.letters, intent.partition, end)
        return DeadLettered(ranges_of(sorted(offsets)), intent.topic_id, end, stored)

    async def _read_again(
        self, source: LetterSource, letter_topic_id: bytes, offsets: list[int]
    ) -> Mapping[int, Record] | None:
        """Return the messages of an intent; None if the same batch cannot be built again."""
        source_of = partial(self._source_of, source.topic, source.number)
        while True:
            self._check_open()
            if self._topics.find_by_id(letter_topic_id) is None:
                return None
            if self._topics.find_by_id(source.topic.id) is None:
                return None
            found = await read_soon(self._reader, source_of, offsets)
            if found.gone:
                return None
            records = found.records
            if len(records) == len(offsets):
                return records
            if found.error is not None:
                _log.warning("cannot read the messages of an intent yet: %s", found.error)
            await self._sleep(LOOK_MS)

    # Writing

    def send(self, source_queue: HostedQueue, letters: list[DeadLetter]) -> list[Promise[None]]:
        """Dead-letter these messages of a queue; each promise resolves when its message is done."""
        promises: list[Promise[None]] = []
        for letter in letters:
            promise: Promise[None] = Promise()
            promises.append(promise)
            if self._is_closed:
                promise.reject(not_here())
            else:
                self._waiting[promise] = None
                self._queue(_Entry(source_queue, letter, promise))
        return promises

    def _queue(self, entry: _Entry) -> None:
        name = entry.source_queue.dead_letter_topic
        topic = self._topics.find(name)
        count = len((topic or entry.source_queue.topic).partitions)
        place = (name, entry.letter.partition % count)
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = _Line(*place)
        line.pending.append(entry)
        if not line.is_busy:
            line.is_busy = True
            self._clock.call_soon(lambda: start(self._work(line), _raise))

    async def _work(self, line: _Line) -> None:
        while not self._is_closed and line.pending:
            try:
                await self._step(line)
            except GoQueueError as error:
                if not self._is_closed:
                    _log.error("cannot write dead letters to %s; retrying: %s", line.topic, error)
                    await self._sleep(RETRY_MS)
        line.is_busy = False
        self._lines.pop((line.topic, line.number), None)

    async def _step(self, line: _Line) -> None:
        """Complete one batch."""
        letter_topic = await self._letter_topic(line)
        if self._courier.producer is None:
            await self._courier.renew()
        self._check_open()
        if line.pending[0].letter.partition % len(letter_topic.partitions) != line.number:
            # Now that the topic exists, it has another number of partitions than assumed.
            pending, line.pending = line.pending, deque()
            for entry in pending:
                self._queue(entry)
            return
        batch = await self._draft(line)
        self._check_open()
        if batch is None:
            return
        try:
            await self._move(batch, letter_topic)
        except (UnknownTopicId, OutOfOrderSequence) as error:
            # The topic was deleted, or has lost earlier batches. Another batch gets the letters.
            _log.error("dead letters for %s are written anew: %s", line.topic, error)
            line.pending.extendleft(reversed(batch.entries))
            self._courier.producer = None

    async def _move(self, batch: _Batch, letter_topic: Topic) -> None:
        """Write the intent ahead, store the batch, and note that its messages are done."""
        source_queue, letters = batch.source_queue, [entry.letter for entry in batch.entries]
        intent = self._intent(letter_topic, batch.number, letters)
        source = LetterSource(
            source_queue.group,
            source_queue.group_id,
            source_queue.topic,
            batch.number,
            source_queue.queue.settings.error_headers,
        )
        source_queue.intend_dead_letters(batch.number, intent)
        await self._saved(source_queue)
        end = await self._store(source, intent, batch.records)
        self._check_open()
        source_queue.note_dead_lettered(letters, intent, end)
        await self._saved(source_queue)
        for entry in batch.entries:
            self._done(entry)

    def _intent(
        self, letter_topic: Topic, number: int, letters: list[DeadLetter]
    ) -> DeadLetterIntent:
        target = number % len(letter_topic.partitions)
        numbers = self._courier.number(letter_topic, target, len(letters))
        return DeadLetterIntent(
            [PendingLetter(one.offset, one.attempts, one.reason) for one in letters],
            letter_topic.id,
            target,
            numbers.producer.producer_id,
            numbers.sequence,
        )

    async def _store(
        self, source: LetterSource, intent: DeadLetterIntent, records: Mapping[int, Record]
    ) -> int:
        """Have the leader of the partition store a batch; return the offset after it."""
        producer = ProducerIdentity(intent.producer_id, 0)
        numbers = BatchNumbers(intent.topic_id, intent.partition, producer, intent.sequence)
        now_ms = self._clock.wall_ms()
        letters = [
            letter_record(records[one.offset], source, one, now_ms=now_ms) for one in intent.letters
        ]
        while True:
            try:
                return await self._courier.store(numbers, letters)
            except (UnknownTopicId, OutOfOrderSequence):
                raise
            except GoQueueError as error:
                self._check_open()
                _log.error(
                    "cannot write dead letters of %s; retrying: %s", source.topic.name, error
                )
                await self._sleep(RETRY_MS)

    async def _saved(self, source_queue: HostedQueue) -> None:
        """Wait until what was noted in a queue is durable."""
        while True:
            try:
                await source_queue.saved()
                self._check_open()
                return
            except GoQueueError as error:
                self._check_open()
                _log.warning("cannot journal dead letters yet; retrying: %s", error)
                await self._sleep(RETRY_MS)

    def _done(self, entry: _Entry) -> None:
        if self._waiting.pop(entry.promise, self) is None:
            entry.promise.resolve(None)

    async def _letter_topic(self, line: _Line) -> Topic:
        """Return the dead-letter topic, creating it if it is missing.

        A message is done as soon as its dead letter is stored, so this topic must be as durable.
        """
        topic = self._topics.find(line.topic)
        if topic is None:
            source = line.pending[0].source_queue.topic
            own = source.fact.settings
            try:
                topic = await self._topics.create(
                    line.topic,
                    partition_count=len(source.partitions),
                    settings={name: own[name] for name in (IN_SYNC_SETTING,) if name in own},
                    replication_factor=self._leaders.copies_of(source),
                )
            except TopicExists:
                topic = self._topics.get(line.topic)
        return topic

    async def _draft(self, line: _Line) -> _Batch | None:
        """Build the next batch, of one queue partition; finish letters without a record."""
        candidates = _candidates(line)
        source_queue, number = candidates[0].source_queue, candidates[0].letter.partition
        found = await read_soon(
            self._reader,
            lambda: source_queue.sources[number],
            [one.letter.offset for one in candidates],
        )
        found_records, gone = found.records, set(found.gone)
        is_gone = self._topics.find_by_id(source_queue.topic.id) is None
        batch = _Batch(source_queue, number, [], {})
        size = 0
        for entry in candidates:
            if size >= BATCH_BYTES_MAX:
                break
            line.pending.popleft()
            offset = entry.letter.offset
            record = found_records.get(offset)
            if record is not None:
                batch.entries.append(entry)
                batch.records[offset] = record
                size += len(record.key or b"") + len(record.value or b"")
            elif offset in gone or is_gone:
                source_queue.given_up([entry.letter])
                self._done(entry)
            else:
                _log.warning("cannot read a dead letter from its topic yet: %s", found.error)
                self._clock.call_later(RETRY_MS, partial(self._queue_again, entry))
        return batch if batch.entries else None

    def _queue_again(self, entry: _Entry) -> None:
        if not self._is_closed:
            self._queue(entry)

    def _check_open(self) -> None:
        if self._is_closed:
            raise not_here()

    def _sleep(self, delay_ms: float) -> Promise[None]:
        over: Promise[None] = Promise()
        self._clock.call_later(delay_ms, lambda: over.resolve(None))
        return over


def letter_record(
    record: Record, source: LetterSource, letter: PendingLetter, *, now_ms: int
) -> Record:
    """Return the record that a message becomes in a dead-letter topic."""
    origin = Origin(
        source.topic.name,
        source.number,
        letter.offset,
        source.group,
        letter.reason,
        letter.attempts,
        now_ms,
    )
    headers = (
        *without_origin(record.headers),
        *write_origin(origin),
        *(write_errors(origin) if source.has_error_headers else ()),
        (TOPIC_ID_HEADER, source.topic.id.hex().encode()),
        (GROUP_ID_HEADER, source.group_id.encode()),
    )
    return Record(record.key, record.value, headers, now_ms)


def _candidates(line: _Line) -> list[_Entry]:
    """Return the letters at the head of a line that belong to one partition of one queue."""
    found: list[_Entry] = []
    for entry in line.pending:
        first = found[0] if found else entry
        is_other = (first.source_queue, first.letter.partition) != (
            entry.source_queue,
            entry.letter.partition,
        )
        if is_other or len(found) == LETTERS_PER_BATCH_MAX:
            break
        found.append(entry)
    return found


def _raise(_: object, error: Exception | None) -> None:
    if error is not None:
        raise error
