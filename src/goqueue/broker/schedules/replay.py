"""Builds the agenda of a schedule log from its records: at the start, and when transactions end.

The records after the last checkpoint are replayed, a piece at a time. Messages of a transaction are
scheduled when their commit marker is itself committed: if they were released earlier, a crash could
undo the marker. From the marker to that moment the agenda is behind the log, and no checkpoint is
taken. A committed transaction of any size is scheduled a piece per event-loop turn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.delivery.schedules import ScheduledMessage, read_key, read_message
from goqueue.loop.clock import Clock
from goqueue.model.batch import BatchHeader, Record, decode_batch, decode_marker
from goqueue.model.compression import Buffer
from goqueue.model.errors import CorruptBatch, UnsupportedVersion

LOAD_STEP_BYTES = 256 << 10  # read per event-loop turn
ACTIVATE_MESSAGES_MAX = 5000  # of a committed transaction, per event-loop turn
READ_RETRY_MS = 1000

_log = logging.getLogger(__name__)


def replay(log: ScheduleLog, offset: int, *, now_ms: int) -> Iterator[None]:
    """Apply the records from an offset on, in steps that yield to the event loop in between."""
    yield from _batches(log, offset, _apply_batch, now_ms=now_ms)
    _drop_decided(log)


def rebuild_buckets(log: ScheduleLog, *, now_ms: int) -> None:
    """Fill the timetable anew from the log, because its files are damaged."""
    log.agenda.renew_timetable()
    try:
        for _ in _batches(log, log.partition.start_offset, _refile_batch, now_ms=now_ms):
            pass
    except UnsupportedVersion as error:
        log.on_unreadable(error)


_Apply = Callable[[ScheduleLog, BatchHeader, Buffer, int], None]


def _batches(log: ScheduleLog, offset: int, apply: _Apply, *, now_ms: int) -> Iterator[None]:
    log.agenda.timetable.advance(now_ms)
    partition, first = log.partition, offset
    while offset < partition.end_offset:
        left, end = LOAD_STEP_BYTES, partition.end_offset
        try:
            for header, batch in partition.log.batches(offset, until_offset=end):
                try:
                    apply(log, header, batch, first)
                except CorruptBatch as error:
                    # It was written so; what follows it can be read.
                    at = header.base_offset
                    _log.error("the batch at %d of %s: %s", at, partition.name, error)
                offset = header.next_offset
                left -= header.size
                if left <= 0:
                    break
            else:
                offset = end  # Compaction may have removed the last batches entirely.
        except CorruptBatch as error:
            _log.error("%s is damaged: %s", partition.name, error)
            offset = error.next_offset if error.next_offset is not None else end
        yield


def _apply_batch(log: ScheduleLog, header: BatchHeader, batch: Buffer, first: int) -> None:
    """Apply the records of a batch from the offset `first` on."""
    agenda = log.agenda
    if header.is_control:
        is_commit = decode_marker(batch).is_commit
        for numbers in agenda.end_transaction(header.producer_id, is_commit=is_commit):
            _activate(log, *numbers)
        return
    for record in decode_batch(batch):
        if record.offset < first:
            continue
        if header.is_transactional:
            message = _own_message(record)
            if message is not None:
                agenda.note_producer(record.offset, message, record.timestamp_ms)
            if message is not None or agenda.replay_source(record):
                agenda.pend(header.producer_id, record.offset, record.offset)
        else:
            agenda.replay(record)


def _refile_batch(log: ScheduleLog, header: BatchHeader, batch: Buffer, _: int) -> None:
    for record in decode_batch(batch) if not header.is_control else ():
        log.agenda.refile(record)


def _drop_decided(log: ScheduleLog) -> None:
    """Drop ended transactions: compaction may have removed all of one, its marker included."""
    for producer_id in log.agenda.pending:
        if log.partition.transactions.get(producer_id) is None:
            log.agenda.pending.end(producer_id)


class CommittedTransactions:
    """Schedules the messages of transactions that have been committed."""

    def __init__(self, clock: Clock, log: ScheduleLog) -> None:
        self._clock = clock
        self._log = log
        # With the offset of the marker that has committed them.
        self._activating: deque[tuple[int, int, int]] = deque()

    def ended(self, producer_id: int, *, is_commit: bool, marker_offset: int) -> None:
        """Apply the committed marker that ends a producer's transaction here."""
        numbers = self._log.agenda.end_transaction(producer_id, is_commit=is_commit)
        if numbers:
            self._activating.extend((*some, marker_offset) for some in numbers)
            self._activate_some()

    @property
    def is_behind(self) -> bool:
        """Whether the log holds decisions that the agenda does not reflect yet."""
        is_open = self._log.partition.transactions.get
        return bool(self._activating) or any(
            is_open(one) is None for one in self._log.agenda.pending
        )

    def _activate_some(self) -> None:
        room = ACTIVATE_MESSAGES_MAX
        while self._activating and room > 0:
            first, last, marker_offset = self._activating.popleft()
            until = min(last, first + room - 1)
            try:
                messages = _activate(self._log, first, until)
            except OSError as error:
                _log.error("%s must be replayed: %s", self._log.partition.name, error)
                self._activating.appendleft((first, last, marker_offset))
                self._clock.call_later(READ_RETRY_MS, self._activate_some)
                return
            except UnsupportedVersion as error:
                # It stays in the queue, so that no checkpoint is taken without it.
                self._activating.appendleft((first, last, marker_offset))
                self._log.on_unreadable(error)
                return
            if until < last:
                self._activating.appendleft((until + 1, last, marker_offset))
            room -= until - first + 1
            self._log.activated(messages, marker_offset)
        if self._activating:
            self._clock.call_soon(self._activate_some)


def _activate(log: ScheduleLog, first: int, last: int) -> list[tuple[int, ScheduledMessage]]:
    """Schedule the messages in an offset range; return them, each with its number."""
    activated: list[tuple[int, ScheduledMessage]] = []
    try:
        for _, batch in log.partition.log.batches(first, until_offset=last + 1):
            for record in decode_batch(batch):
                message = _own_message(record) if first <= record.offset <= last else None
                if message is not None:
                    log.agenda.activate(record.offset, [message])
                    activated.append((record.offset, message))
    except CorruptBatch as error:
        _log.error("messages of a transaction in %s are lost: %s", log.partition.name, error)
    return activated


def _own_message(record: Record) -> ScheduledMessage | None:
    """The message that a record schedules, which is stored under its own offset."""
    if record.value is None or read_key(record.key) != (record.offset, False):
        return None
    return read_message(record.value)
