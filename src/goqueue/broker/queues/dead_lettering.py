"""Moves messages to dead-letter topics, exactly once, also across crashes. For a single node.

The broker writes dead letters as a producer of its own, one batch at a time per dead-letter
partition: the next batch waits until the delivery journal records that the messages of this one are
done. So after a crash, only the last batch of that producer in each partition can hold messages
that the journal does not record as done; they are marked as done before anything is delivered.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from goqueue.broker.queues.records import RecordReader
from goqueue.broker.shards.own_records import newest_records
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.delivery import DeadLetter, DeadLettered, Ledger, LedgerKey, PendingLetter
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, add_sequence, encode_batch
from goqueue.model.dead_letters import PREFIX, Origin, read_origin, without_origin, write_origin
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition

PRODUCER_NAME = "dead-letters"
LETTERS_PER_BATCH_MAX = 500
BATCH_BYTES_MAX = 512 << 10
RETRY_MS = 1000

# A topic or a group may be deleted and created again under its name; the ids distinguish them.
TOPIC_ID_HEADER = PREFIX + "topic-id"
GROUP_ID_HEADER = PREFIX + "group-id"

_log = logging.getLogger(__name__)

LedgerOf = Callable[[LedgerKey], Ledger | None]


class SourceQueue(Protocol):
    """The queue that the dead letters come from."""

    group: str
    group_id: str
    topic: Topic

    @property
    def dead_letter_topic(self) -> str: ...

    def note_dead_lettered(
        self, letters: list[DeadLetter], letter_topic: Topic, end: int
    ) -> Promise[None]:
        """Note letters of one partition that a topic has before `end`; resolves when journaled."""

    def given_up(self, letters: list[DeadLetter]) -> None:
        """Finish letters whose records no longer exist."""

    def saved(self) -> Promise[None]:
        """Resolves when everything so far is journaled."""


_Entry = tuple[SourceQueue, DeadLetter, Promise[None]]


class _Line:
    """The pending letters of one target partition; busy from a write until it is journaled."""

    def __init__(self, topic: Topic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self.pending: deque[_Entry] = deque()
        self.is_busy = False
        self.next_sequence = 0


class DeadLetterWriter:
    """Writes all dead letters of a single node."""

    def __init__(self, clock: Clock, topics: Topics, reader: RecordReader) -> None:
        self._clock = clock
        self._topics = topics
        self._reader = reader
        self._producer: NamedProducer | None = None
        self._is_taking_over = False
        self._lines: dict[Partition, _Line] = {}

    # Recovery

    def recover(self, ledger_of: LedgerOf) -> dict[LedgerKey, DeadLettered]:
        """Mark messages with a written dead letter as done; return the events to journal."""
        producer = self._topics.facts.producer_named(PRODUCER_NAME)
        events: dict[LedgerKey, DeadLettered] = {}
        if producer is not None:
            for topic, record in newest_records(self._topics, producer):
                _note(record, topic, ledger_of, events)
        return events

    # Writing

    def send(self, source_queue: SourceQueue, letters: list[DeadLetter]) -> list[Promise[None]]:
        """Dead-letter these messages of a queue; each promise resolves when its message is done."""
        promises: list[Promise[None]] = []
        for letter in letters:
            promise: Promise[None] = Promise()
            promises.append(promise)
            self._queue((source_queue, letter, promise))
        return promises

    def _queue(self, entry: _Entry) -> None:
        source_queue, letter, _ = entry
        try:
            line = self._line(source_queue, letter)
        except GoQueueError as error:
            # The topic cannot be created now. The message keeps its state until a retry succeeds.
            _log.error("cannot dead-letter for group %s; retrying: %s", source_queue.group, error)
            self._clock.call_later(RETRY_MS, partial(self._queue, entry))
            return
        line.pending.append(entry)
        if not line.is_busy:
            line.is_busy = True
            self._clock.call_soon(partial(self._pump, line))

    def _line(self, source_queue: SourceQueue, letter: DeadLetter) -> _Line:
        name = source_queue.dead_letter_topic
        topic = self._topics.find(name)
        if topic is None:
            self._topics.create(name, partition_count=len(source_queue.topic.partitions))
            topic = self._topics.get(name)
        target = topic.partition(letter.partition % len(topic.partitions))
        line = self._lines.get(target)
        if line is None:
            for gone in [
                one for one in self._lines if one.is_gone and not self._lines[one].is_busy
            ]:
                del self._lines[gone]
            line = self._lines[target] = _Line(topic, target)
        return line

    def _pump(self, line: _Line) -> None:
        """Write the next batch, if there is one."""
        if self._producer is None:
            self._take_over()
            return
        if line.partition.is_gone:
            self._move_on(line)
            return
        entries, records = self._collect(line)
        if not records:
            line.is_busy = False
            return
        try:
            end = self._write(line, records)
        except GoQueueError as error:
            _log.error("cannot write dead letters to %s; retrying: %s", line.partition.name, error)
            line.pending.extendleft(reversed(entries))
            self._clock.call_later(RETRY_MS, partial(self._pump, line))
            return

        def committed(error: GoQueueError | None) -> None:
            if error is None:
                self._discard(line, entries, end)
            else:
                self._fail(line, entries, error)

        line.partition.when_committed(end - 1, committed)

    def _collect(self, line: _Line) -> tuple[list[_Entry], list[Record]]:
        """Return the next letters and their new records; finish those whose record is gone."""
        entries: list[_Entry] = []
        records: list[Record] = []
        size = 0
        while line.pending and len(entries) < LETTERS_PER_BATCH_MAX and size < BATCH_BYTES_MAX:
            entry = line.pending.popleft()
            source_queue, letter, promise = entry
            source = source_queue.topic.partitions[letter.partition]
            found = self._reader.read(source, [letter.offset])
            record = found.records.get(letter.offset)
            if record is not None:
                entries.append(entry)
                records.append(
                    letter_record(
                        record,
                        topic=source_queue.topic,
                        partition=letter.partition,
                        pending_letters=PendingLetter(
                            letter.offset, letter.attempts, letter.reason
                        ),
                        group=source_queue.group,
                        group_id=source_queue.group_id,
                        now_ms=self._clock.wall_ms(),
                    )
                )
                size += len(record.key or b"") + len(record.value or b"")
            elif found.gone or source.is_gone:
                source_queue.given_up([letter])
                promise.resolve(None)
            else:
                _log.error("cannot read a dead letter from its topic: %s", found.error)
                self._clock.call_later(RETRY_MS, partial(self._queue, entry))
        return entries, records

    def _write(self, line: _Line, records: list[Record]) -> int:
        """Write a batch to the dead-letter partition; return the offset after it."""
        target, producer = line.partition, self._producer
        assert producer is not None
        if target.failure is not None:
            raise target.failure
        batch = encode_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=line.next_sequence,
        )
        appended = target.write(memoryview(batch), now_ms=self._clock.wall_ms())
        line.next_sequence = add_sequence(line.next_sequence, len(records))
        return appended.last_offset + 1

    def _discard(self, line: _Line, entries: list[_Entry], end: int) -> None:
        """Have the queues journal a durable batch, and continue when they have."""
        shares: dict[tuple[SourceQueue, int], list[_Entry]] = {}
        for entry in entries:
            shares.setdefault((entry[0], entry[1].partition), []).append(entry)
        left = len(shares)

        def noted() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._pump(line)

        for (source_queue, _), share in shares.items():
            saved = source_queue.note_dead_lettered(
                [letter for _, letter, _ in share], line.topic, end
            )
            saved.then(partial(self._noted, source_queue, share, noted))

    def _noted(
        self,
        source_queue: SourceQueue,
        entries: list[_Entry],
        go_on: Callable[[], None],
        _: object,
        error: Exception | None,
    ) -> None:
        for _source, _letter, promise in entries:
            promise.settle(None, error)
        if error is None:
            go_on()
            return
        # The letters are in their topic but not yet in the journal: no other batch may be written
        # until they are.
        again = partial(self._noted, source_queue, [], go_on)
        self._clock.call_later(RETRY_MS, lambda: source_queue.saved().then(again))

    def _fail(self, line: _Line, entries: list[_Entry], error: GoQueueError) -> None:
        """Fail letters whose partition is not writable; only its deletion or a restart helps."""
        _log.error("dead letters for %s are not durable: %s", line.partition.name, error)
        if line.partition.is_gone:
            line.pending.extendleft(reversed(entries))
            self._move_on(line)
            return
        for _, _, promise in entries:
            promise.reject(error)
        line.is_busy = False

    def _move_on(self, line: _Line) -> None:
        """Send the letters for a deleted dead-letter topic to a new one."""
        self._lines.pop(line.partition, None)
        pending, line.pending = line.pending, deque()
        for entry in pending:
            self._queue(entry)

    def _take_over(self) -> None:
        """Register as the producer of dead letters, fencing any earlier one."""

        def taken(producer: NamedProducer | None, error: Exception | None) -> None:
            self._is_taking_over = False
            self._producer = producer
            if error is not None:
                _log.error("cannot register the dead-letter producer; retrying: %s", error)
                self._clock.call_later(RETRY_MS, self._take_over)
                return
            for line in list(self._lines.values()):
                if line.is_busy:
                    self._pump(line)

        if not self._is_taking_over:
            self._is_taking_over = True
            self._topics.facts.take_over_producer(PRODUCER_NAME).then(taken)


def letter_record(
    record: Record,
    *,
    topic: Topic,
    partition: int,
    pending_letters: PendingLetter,
    group: str,
    group_id: str,
    now_ms: int,
) -> Record:
    """Return the record that a message becomes in a dead-letter topic."""
    origin = Origin(
        topic.name,
        partition,
        pending_letters.offset,
        group,
        pending_letters.reason,
        pending_letters.attempts,
        now_ms,
    )
    headers = (
        *without_origin(record.headers),
        *write_origin(origin),
        (TOPIC_ID_HEADER, topic.id.hex().encode()),
        (GROUP_ID_HEADER, group_id.encode()),
    )
    return Record(record.key, record.value, headers, now_ms)


def _note(
    record: Record, letter_topic: Topic, ledger_of: LedgerOf, events: dict[LedgerKey, DeadLettered]
) -> None:
    """Mark the message of a dead letter as done in its ledger, unless it already is."""
    origin, ids = read_origin(record.headers), dict(record.headers)
    group_id, topic_id = ids.get(GROUP_ID_HEADER), ids.get(TOPIC_ID_HEADER)
    if origin is None or group_id is None or topic_id is None:
        _log.error("the dead letter %d of %s has no origin", record.offset, letter_topic.name)
        return
    key = LedgerKey(group_id.decode(), bytes.fromhex(topic_id.decode()), origin.partition)
    ledger = ledger_of(key)
    known = events.get(key)
    if ledger is None or (
        known is None and ledger.letter_ends.get(letter_topic.id, 0) > record.offset
    ):
        return
    before = [] if known is None else known.ranges
    event = DeadLettered(
        [*before, (origin.offset, origin.offset + 1)], letter_topic.id, record.offset + 1
    )
    ledger.apply(event)
    events[key] = event
