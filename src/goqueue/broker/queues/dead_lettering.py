"""Moves messages to dead-letter topics, exactly once, whatever crashes in between.

The broker writes dead letters as a producer of its own, one batch at a time for each dead-letter
partition: the next one waits until the queues' journals say that the messages of this one are
done. So after a crash only the last batch of that producer in each partition can hold messages
whose journal does not know it yet, and those are marked as done before anything is delivered.
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
from goqueue.delivery import Buried, DeadLetter, Dying, Ledger, LedgerKey
from goqueue.loop.clock import Scheduler
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, add_sequence, encode_batch
from goqueue.model.dead_letters import PREFIX, Origin, read_origin, without_origin, write_origin
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition

PRODUCER_NAME = "dead-letters"
LETTERS_PER_BATCH_MAX = 500
BATCH_BYTES_MAX = 512 << 10
RETRY_MS = 1000

# A topic or a group may be deleted and made again under its name; these tell them apart.
TOPIC_ID_HEADER = PREFIX + "topic-id"
GROUP_ID_HEADER = PREFIX + "group-id"

_log = logging.getLogger(__name__)

LedgerOf = Callable[[LedgerKey], Ledger | None]


class Mourner(Protocol):
    """The queue whose messages die."""

    group: str
    group_id: str
    topic: Topic

    @property
    def dead_letter_topic(self) -> str: ...

    def buried(self, letters: list[DeadLetter], grave: Topic, end: int) -> Promise[None]:
        """The letters, of one partition, are in `grave` before `end`; kept when that is noted."""

    def given_up(self, letters: list[DeadLetter]) -> None:
        """The letters have no record any more."""

    def saved(self) -> Promise[None]:
        """Kept when everything so far is noted."""


_Entry = tuple[Mourner, DeadLetter, Promise[None]]


class _Line:
    """The dead letters on their way to one partition; busy from a write until it is noted."""

    def __init__(self, topic: Topic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self.pending: deque[_Entry] = deque()
        self.is_busy = False
        self.next_sequence = 0


class Burial:
    """Every dead letter on its way."""

    def __init__(self, scheduler: Scheduler, topics: Topics, reader: RecordReader) -> None:
        self._scheduler = scheduler
        self._topics = topics
        self._reader = reader
        self._producer: NamedProducer | None = None
        self._is_taking_over = False
        self._lines: dict[Partition, _Line] = {}

    # After a crash

    def recover(self, ledger_of: LedgerOf) -> dict[LedgerKey, Buried]:
        """Mark as done what was written as a dead letter and not noted; what is to be noted now."""
        producer = self._topics.facts.producer_named(PRODUCER_NAME)
        events: dict[LedgerKey, Buried] = {}
        if producer is not None:
            for topic, record in newest_records(self._topics, producer):
                _note(record, topic, ledger_of, events)
        return events

    # On their way

    def send(self, mourner: Mourner, letters: list[DeadLetter]) -> list[Promise[None]]:
        """Bury these messages of a queue; each promise is kept when its message is done."""
        promises: list[Promise[None]] = []
        for letter in letters:
            promise: Promise[None] = Promise()
            promises.append(promise)
            self._queue((mourner, letter, promise))
        return promises

    def _queue(self, entry: _Entry) -> None:
        mourner, letter, _ = entry
        try:
            line = self._line(mourner, letter)
        except GoQueueError as error:
            # The topic cannot be made now. The message stays as it is, and it is tried again.
            _log.error("a dead letter of group %s must wait: %s", mourner.group, error)
            self._scheduler.call_later(RETRY_MS, partial(self._queue, entry))
            return
        line.pending.append(entry)
        if not line.is_busy:
            line.is_busy = True
            self._scheduler.call_soon(partial(self._pump, line))

    def _line(self, mourner: Mourner, letter: DeadLetter) -> _Line:
        name = mourner.dead_letter_topic
        topic = self._topics.find(name)
        if topic is None:
            self._topics.create(name, partition_count=len(mourner.topic.partitions))
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
            _log.error("dead letters for %s must wait: %s", line.partition.name, error)
            line.pending.extendleft(reversed(entries))
            self._scheduler.call_later(RETRY_MS, partial(self._pump, line))
            return

        def committed(error: GoQueueError | None) -> None:
            if error is None:
                self._bury(line, entries, end)
            else:
                self._fail(line, entries, error)

        line.partition.when_committed(end - 1, committed)

    def _collect(self, line: _Line) -> tuple[list[_Entry], list[Record]]:
        """The next letters with the records they become; those without a record are over."""
        entries: list[_Entry] = []
        records: list[Record] = []
        size = 0
        while line.pending and len(entries) < LETTERS_PER_BATCH_MAX and size < BATCH_BYTES_MAX:
            entry = line.pending.popleft()
            mourner, letter, promise = entry
            source = mourner.topic.partitions[letter.partition]
            found = self._reader.read(source, [letter.offset])
            record = found.records.get(letter.offset)
            if record is not None:
                entries.append(entry)
                records.append(
                    letter_record(
                        record,
                        topic=mourner.topic,
                        partition=letter.partition,
                        dying=Dying(letter.offset, letter.attempts, letter.reason),
                        group=mourner.group,
                        group_id=mourner.group_id,
                        now_ms=self._scheduler.wall_ms(),
                    )
                )
                size += len(record.key or b"") + len(record.value or b"")
            elif found.gone or source.is_gone:
                mourner.given_up([letter])
                promise.resolve(None)
            else:
                _log.error("a dead letter cannot be read from its topic: %s", found.error)
                self._scheduler.call_later(RETRY_MS, partial(self._queue, entry))
        return entries, records

    def _write(self, line: _Line, records: list[Record]) -> int:
        """Put a batch into the dead-letter partition; the offset after it."""
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
        appended = target.write(memoryview(batch), now_ms=self._scheduler.wall_ms())
        line.next_sequence = add_sequence(line.next_sequence, len(records))
        return appended.last_offset + 1

    def _bury(self, line: _Line, entries: list[_Entry], end: int) -> None:
        """The batch is durable: have the queues note it, and go on when they have."""
        shares: dict[tuple[Mourner, int], list[_Entry]] = {}
        for entry in entries:
            shares.setdefault((entry[0], entry[1].partition), []).append(entry)
        left = len(shares)

        def noted() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._pump(line)

        for (mourner, _), share in shares.items():
            saved = mourner.buried([letter for _, letter, _ in share], line.topic, end)
            saved.then(partial(self._noted, mourner, share, noted))

    def _noted(
        self,
        mourner: Mourner,
        entries: list[_Entry],
        go_on: Callable[[], None],
        _: object,
        error: Exception | None,
    ) -> None:
        for _mourner, _letter, promise in entries:
            promise.settle(None, error)
        if error is None:
            go_on()
            return
        # They are buried and the journal does not know: no other batch may come before it does.
        again = partial(self._noted, mourner, [], go_on)
        self._scheduler.call_later(RETRY_MS, lambda: mourner.saved().then(again))

    def _fail(self, line: _Line, entries: list[_Entry], error: GoQueueError) -> None:
        """The partition can no longer be written; only its deletion or a restart helps."""
        _log.error("dead letters for %s are not safe: %s", line.partition.name, error)
        if line.partition.is_gone:
            line.pending.extendleft(reversed(entries))
            self._move_on(line)
            return
        for _, _, promise in entries:
            promise.reject(error)
        line.is_busy = False

    def _move_on(self, line: _Line) -> None:
        """The dead-letter topic was deleted; what was meant for it goes to a new one."""
        self._lines.pop(line.partition, None)
        pending, line.pending = line.pending, deque()
        for entry in pending:
            self._queue(entry)

    def _take_over(self) -> None:
        """Become the producer of dead letters, as nobody else is any longer."""

        def taken(producer: NamedProducer | None, error: Exception | None) -> None:
            self._is_taking_over = False
            self._producer = producer
            if error is not None:
                _log.error("dead letters must wait: %s", error)
                self._scheduler.call_later(RETRY_MS, self._take_over)
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
    dying: Dying,
    group: str,
    group_id: str,
    now_ms: int,
) -> Record:
    """The record that a message becomes in a dead-letter topic."""
    origin = Origin(
        topic.name, partition, dying.offset, group, dying.reason, dying.attempts, now_ms
    )
    headers = (
        *without_origin(record.headers),
        *write_origin(origin),
        (TOPIC_ID_HEADER, topic.id.hex().encode()),
        (GROUP_ID_HEADER, group_id.encode()),
    )
    return Record(record.key, record.value, headers, now_ms)


def _note(
    record: Record, grave: Topic, ledger_of: LedgerOf, events: dict[LedgerKey, Buried]
) -> None:
    """Have the ledger of a dead letter's message know it, unless it does."""
    origin, ids = read_origin(record.headers), dict(record.headers)
    group_id, topic_id = ids.get(GROUP_ID_HEADER), ids.get(TOPIC_ID_HEADER)
    if origin is None or group_id is None or topic_id is None:
        _log.error("the dead letter %d of %s has no origin", record.offset, grave.name)
        return
    key = LedgerKey(group_id.decode(), bytes.fromhex(topic_id.decode()), origin.partition)
    ledger = ledger_of(key)
    known = events.get(key)
    if ledger is None or (known is None and ledger.graves.get(grave.id, 0) > record.offset):
        return
    before = [] if known is None else known.ranges
    event = Buried([*before, (origin.offset, origin.offset + 1)], grave.id, record.offset + 1)
    ledger.apply(event)
    events[key] = event
