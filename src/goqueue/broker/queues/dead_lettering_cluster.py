"""Moves messages to dead-letter topics of a cluster, exactly once, across changes of leaders.

A dead-letter partition may be led by another node, and the owner of a queue may change while a
batch of dead letters is in flight. So an intent is journaled first: the messages of the batch, and
its producer id and sequence number. Only then is the batch sent, repeatedly until it is committed,
and then the journal records that its messages are done. A new owner that finds an intent without
this completion sends the batch again under the same numbers, and the partition discards a
duplicate. Nothing is sent before its intent is committed, so a former owner that has not noticed
the change of ownership cannot add anything.

Each time a node becomes the owner of a journal partition it writes as a new producer, and sends
one batch at a time to each dead-letter partition.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from goqueue.broker.queues.dead_lettering import letter_record
from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.journal import not_here
from goqueue.broker.queues.records import RecordReader, Source, read_soon
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import QueueGroupFact
from goqueue.cluster.topic_changes import IN_SYNC_SETTING
from goqueue.delivery import DeadLetter, DeadLettered, DeadLetterIntent, PendingLetter
from goqueue.delivery.ranges import ranges_of
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, start
from goqueue.model.batch import Record, add_sequence, encode_batch
from goqueue.model.errors import DuplicateSequence, GoQueueError, TopicExists, UnknownTopicId

LETTERS_PER_BATCH_MAX = 500
BATCH_BYTES_MAX = 512 << 10
APPEND_TIMEOUT_MS = 30_000  # then the same batch is sent again
RETRY_MS = 1000
LOOK_MS = 50  # how often to check whether the local metadata has caught up

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    source_queue: HostedQueue
    letter: DeadLetter
    promise: Promise[None]


@dataclass(slots=True)
class _Batch:
    """Dead letters of one partition of one queue, and their progress."""

    source_queue: HostedQueue
    entries: list[_Entry]
    letter_topic: Topic
    event: DeadLetterIntent
    data: bytes
    is_announced: bool = False  # the intent was passed to the queue
    is_noted: bool = False  # the intent is committed
    end: int | None = None  # the offset after them, once they are written
    is_written: bool = False  # the queue was notified that they are written


@dataclass(slots=True)
class _Line:
    """The pending dead letters of one target partition."""

    topic: str
    number: int
    pending: deque[_Entry] = field(default_factory=deque)
    batch: _Batch | None = None
    is_busy: bool = False


class ClusterDeadLetterWriter:
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
        self._producer_id: int | None = None
        self._sequences: dict[tuple[bytes, int], int] = {}
        self._lines: dict[tuple[str, int], _Line] = {}
        self._waiting: dict[Promise[None], None] = {}
        self._is_closed = False

    def close(self) -> None:
        """Stop, because another node owns these queues; it completes the journaled intents."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, {}
        for promise in waiting:
            promise.reject(not_here())

    # Intents of a previous owner

    async def finish(
        self, group: QueueGroupFact, topic: Topic, number: int, event: DeadLetterIntent
    ) -> DeadLettered:
        """Make sure that the batch of an intent is stored; return the event to journal.

        `number` is the partition that holds the messages.
        """
        offsets = [letter.offset for letter in event.letters]
        nothing = DeadLettered([], event.topic_id, 0)
        while True:
            self._check_open()
            letter_topic = self._topics.find_by_id(event.topic_id)
            if letter_topic is None:
                return nothing
            source_of = partial(self._source_of, topic, number)
            if self._topics.find_by_id(topic.id) is None:
                return nothing
            found = await read_soon(self._reader, source_of, offsets)
            records = found.records
            if found.gone:
                # The same batch cannot be built again. The rest may go into a new one.
                return nothing
            if len(records) == len(offsets):
                break
            if found.error is not None:
                _log.warning("cannot read the messages of an intent yet: %s", found.error)
            await self._sleep(LOOK_MS)
        data = self._encode(group, topic, number, event, records)
        while True:
            try:
                end = await self._store(letter_topic, event, data)
                self._check_open()
                return DeadLettered(ranges_of(sorted(offsets)), event.topic_id, end)
            except UnknownTopicId:
                return nothing
            except GoQueueError as error:
                self._check_open()
                _log.error("cannot finish an intent for %s; retrying: %s", letter_topic.name, error)
                await self._sleep(RETRY_MS)

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
            self._clock.call_soon(lambda: start(self._work(line), self._ended))

    @staticmethod
    def _ended(_: None, error: Exception | None) -> None:
        if error is not None:
            raise error

    async def _work(self, line: _Line) -> None:
        while not self._is_closed and (line.pending or line.batch is not None):
            try:
                await self._step(line)
            except GoQueueError as error:
                if not self._is_closed:
                    _log.error("cannot write dead letters to %s; retrying: %s", line.topic, error)
                    await self._sleep(RETRY_MS)
        line.is_busy = False
        self._lines.pop((line.topic, line.number), None)

    async def _step(self, line: _Line) -> None:
        """Complete one batch. After an error, completed parts of the work are not repeated."""
        if self._producer_id is None:
            self._producer_id = await self._topics.facts.reserve_producer_id()
        letter_topic = await self._letter_topic(line)
        self._check_open()
        if line.batch is not None and line.batch.letter_topic.id != letter_topic.id:
            # The dead-letter topic was deleted; its pending letters go to the new one.
            line.pending.extendleft(reversed(line.batch.entries))
            line.batch = None
        if line.batch is None and self._is_elsewhere(line, letter_topic):
            pending, line.pending = line.pending, deque()
            for entry in pending:
                self._queue(entry)
        elif line.batch is None:
            line.batch = await self._draft(line, letter_topic)
            self._check_open()
        if line.batch is not None:
            await self._discard(line, line.batch)

    async def _discard(self, line: _Line, batch: _Batch) -> None:
        source_queue, event = batch.source_queue, batch.event
        number = batch.entries[0].letter.partition
        if not batch.is_noted:
            saved = (
                source_queue.saved()
                if batch.is_announced
                else source_queue.letter_intents(number, event)
            )
            batch.is_announced = True
            await saved
            batch.is_noted = True
        if batch.end is None:
            batch.end = await self._store(batch.letter_topic, event, batch.data)
            place = (event.topic_id, event.partition)
            self._sequences[place] = add_sequence(event.sequence, len(event.letters))
        self._check_open()
        letters = [entry.letter for entry in batch.entries]
        saved = (
            source_queue.saved()
            if batch.is_written
            else source_queue.note_dead_lettered(letters, batch.letter_topic, batch.end)
        )
        batch.is_written = True
        await saved
        self._check_open()
        line.batch = None
        for entry in batch.entries:
            self._done(entry)

    def _done(self, entry: _Entry) -> None:
        if self._waiting.pop(entry.promise, self) is None:
            entry.promise.resolve(None)

    async def _letter_topic(self, line: _Line) -> Topic:
        """Return the dead-letter topic, creating it if it is missing.

        A message is done as soon as its dead letter is stored, so this topic must be as durable.
        """
        topic = self._topics.find(line.topic)
        if topic is None:
            entry = line.pending[0] if line.pending else None
            if entry is None:
                assert line.batch is not None
                entry = line.batch.entries[0]
            source = entry.source_queue.topic
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

    @staticmethod
    def _is_elsewhere(line: _Line, letter_topic: Topic) -> bool:
        """Whether the topic, now that it exists, has another number of partitions than assumed."""
        if not line.pending:
            return False
        return line.pending[0].letter.partition % len(letter_topic.partitions) != line.number

    async def _draft(self, line: _Line, letter_topic: Topic) -> _Batch | None:
        """Build the next batch, of one queue partition; finish letters without a record."""
        candidates = _candidates(line)
        if not candidates:
            return None
        source_queue, number = candidates[0].source_queue, candidates[0].letter.partition
        found = await read_soon(
            self._reader,
            lambda: source_queue.sources[number],
            [one.letter.offset for one in candidates],
        )
        found_records, gone = found.records, set(found.gone)
        is_gone = self._topics.find_by_id(source_queue.topic.id) is None
        entries: list[_Entry] = []
        records: dict[int, Record] = {}
        size = 0
        for entry in candidates:
            if size >= BATCH_BYTES_MAX:
                break
            line.pending.popleft()
            offset = entry.letter.offset
            record = found_records.get(offset)
            if record is not None:
                entries.append(entry)
                records[offset] = record
                size += len(record.key or b"") + len(record.value or b"")
            elif offset in gone or is_gone:
                source_queue.given_up([entry.letter])
                self._done(entry)
            else:
                _log.warning("cannot read a dead letter from its topic yet: %s", found.error)
                self._clock.call_later(RETRY_MS, partial(self._queue_again, entry))
        if not entries:
            return None
        return self._batch(letter_topic, entries, records)

    def _queue_again(self, entry: _Entry) -> None:
        if not self._is_closed:
            self._queue(entry)

    def _batch(
        self, letter_topic: Topic, entries: list[_Entry], records: dict[int, Record]
    ) -> _Batch:
        assert self._producer_id is not None
        source_queue, number = entries[0].source_queue, entries[0].letter.partition
        target = number % len(letter_topic.partitions)
        event = DeadLetterIntent(
            [
                PendingLetter(one.letter.offset, one.letter.attempts, one.letter.reason)
                for one in entries
            ],
            letter_topic.id,
            target,
            self._producer_id,
            self._sequences.get((letter_topic.id, target), 0),
        )
        group = QueueGroupFact(bytes.fromhex(source_queue.group_id), source_queue.group, {})
        data = self._encode(group, source_queue.topic, number, event, records)
        return _Batch(source_queue, entries, letter_topic, event, data)

    def _encode(
        self,
        group: QueueGroupFact,
        topic: Topic,
        number: int,
        event: DeadLetterIntent,
        records: dict[int, Record],
    ) -> bytes:
        now_ms = self._clock.wall_ms()
        letters: Sequence[Record] = [
            letter_record(
                records[one.offset],
                topic=topic,
                partition=number,
                pending_letters=one,
                group=group.name,
                group_id=group.id.hex(),
                now_ms=now_ms,
            )
            for one in event.letters
        ]
        batch = encode_batch(
            letters,
            producer_id=event.producer_id,
            producer_epoch=0,
            base_sequence=event.sequence,
        )
        return bytes(batch)

    async def _store(self, letter_topic: Topic, event: DeadLetterIntent, data: bytes) -> int:
        """Have the leader of the partition store a batch; return the offset after it."""
        try:
            appended = await self._leaders.append(
                letter_topic, event.partition, data, timeout_ms=APPEND_TIMEOUT_MS
            )
        except DuplicateSequence:
            return 0  # It was stored long ago; its offset is not needed.
        return appended.last_offset + 1

    def _check_open(self) -> None:
        if self._is_closed:
            raise not_here()

    def _sleep(self, delay_ms: float) -> Promise[None]:
        over: Promise[None] = Promise()
        self._clock.call_later(delay_ms, lambda: over.resolve(None))
        return over


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
