"""The partitions of the journal: each has an owner, which accepts every event once.

The leader of a partition owns it. For each source it knows up to where the journal has its events,
the cursor, and accepts a piece only if it begins there. So a piece that is sent again because its
answer was lost is not written again, and a gap is noticed by the sender, who fills it. A former
leader of a source is fenced by the epoch of the new one.

The cursors follow from the records of the partition. From time to time all of them are written, so
that a new owner reads only the end of its partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from goqueue.broker.journeys.pieces import FENCED, NO_RESET, UNKNOWN, WRITTEN, Piece, Results
from goqueue.broker.shards.leadership import Unreadable
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, decode_batch, encode_batch
from goqueue.model.errors import (
    CoordinatorLoading,
    CorruptBatch,
    CorruptJourney,
    GoQueueError,
    NotCoordinator,
    UnsupportedVersion,
)
from goqueue.partition import Partition
from goqueue.tracing.encoding import (
    check_known,
    decode_cursors,
    decode_key,
    decode_span,
    encode_cursors,
    is_cursors,
    is_events,
)
from goqueue.tracing.events import Cursor, Source

# Records between two snapshots of the cursors; more if there are many cursors.
SNAPSHOT_RECORDS_MIN = 1_000
RECORDS_PER_CURSOR = 4
CURSORS_PER_RECORD = 4_096
LOADED_PER_TURN_MAX = 100  # records, while an owner starts
FORGET_MS = 3_600_000  # cursors of sources that are gone are dropped after this

_log = logging.getLogger(__name__)


class _Position:
    """Up to where the journal has the events of a source, and the newest leader that asked."""

    __slots__ = ("changed_ms", "epoch", "offset")

    def __init__(self, epoch: int, offset: int, changed_ms: int) -> None:
        self.epoch = epoch
        self.offset = offset
        self.changed_ms = changed_ms


class Written:
    """How much this node has written to the journal, whichever partitions it led."""

    __slots__ = ("bytes", "events")

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0


class JourneyShard:
    """One partition of the journal that this node leads."""

    def __init__(
        self,
        clock: Clock,
        partition: Partition,
        written: Written,
        *,
        is_known: Callable[[bytes], bool],
    ) -> None:
        """`is_known` returns whether a topic exists, given its id."""
        self.partition = partition
        self._written = written
        self.is_closed = False
        self._is_loaded = False
        self._clock = clock
        self._is_known = is_known
        self._positions: dict[Source, _Position] = {}
        self._asked: dict[Source, int] = {}  # epochs of sources of which nothing is written yet
        self._records_since = 0  # the last snapshot

    def close(self, error: GoQueueError) -> None:
        self.is_closed = True

    def cursors(self) -> list[Cursor]:
        return [Cursor(source, one.epoch, one.offset) for source, one in self._positions.items()]

    # Calls

    def ask(self, sources: Iterable[tuple[bytes, int, int]]) -> Results:
        """Return how far the journal has these sources, and fence their former leaders."""
        self._check_open()
        results: Results = []
        for topic_id, partition, epoch in sources:
            source = Source(topic_id, partition)
            known = self._positions.get(source)
            if epoch < self._epoch_of(source):
                results.append(FENCED)
            elif known is None:
                self._asked[source] = epoch
                results.append(UNKNOWN)
            else:
                known.epoch = epoch
                results.append(known.offset)
        return results

    def write(self, pieces: Iterable[Piece]) -> Promise[Results]:
        """Append the pieces that continue what is here; resolves when they are committed."""
        self._check_open()
        if self.partition.failure is not None:
            raise self.partition.failure
        results: Results = []
        accepted: dict[Source, Piece] = {}
        records: list[Record] = []
        now_ms = self._clock.wall_ms()
        for piece in pieces:
            result = self._examine(piece, accepted)
            results.append(result)
            if result == WRITTEN and self._is_new(piece, accepted):
                accepted[piece.source] = piece
                records += [Record(key, value, (), now_ms) for key, value in piece.records]
        if accepted:
            self._append(list(accepted.values()), records, now_ms)
        stored: Promise[Results] = Promise()
        self.partition.when_committed(
            self.partition.end_offset - 1,
            lambda error: stored.settle(None if error else results, error),
        )
        return stored

    def _check_open(self) -> None:
        if self.is_closed:
            raise NotCoordinator("Another node owns this part of the journeys now; retry there.")
        if not self._is_loaded:
            raise CoordinatorLoading("Journeys are being loaded; retry.")

    def _epoch_of(self, source: Source) -> int:
        known = self._positions.get(source)
        return self._asked.get(source, -1) if known is None else known.epoch

    def _offset_of(self, source: Source, accepted: dict[Source, Piece]) -> int | None:
        if source in accepted:
            return accepted[source].end
        known = self._positions.get(source)
        return None if known is None else known.offset

    def _examine(self, piece: Piece, accepted: dict[Source, Piece]) -> int:
        """Return whether a piece is, or may be, written; else where the source has to continue."""
        if piece.epoch < self._epoch_of(piece.source):
            return FENCED
        offset = self._offset_of(piece.source, accepted)
        if offset is None:
            # Only who knows that nothing is written may begin after the start.
            is_first = piece.first == 0 or piece.source in self._asked
            return WRITTEN if is_first and piece.reset_from == NO_RESET else UNKNOWN
        if piece.reset_from != NO_RESET:
            return WRITTEN if offset in (piece.reset_from, piece.end) else offset
        return WRITTEN if piece.first == offset or piece.end <= offset else offset

    def _is_new(self, piece: Piece, accepted: dict[Source, Piece]) -> bool:
        offset = self._offset_of(piece.source, accepted)
        if piece.reset_from != NO_RESET:
            return offset == piece.reset_from
        return offset is None or piece.end > offset

    def _append(self, accepted: list[Piece], records: list[Record], now_ms: int) -> None:
        """Write the records of pieces, and the cursors that they do not imply."""
        moved = [Cursor(one.source, one.epoch, one.end) for one in accepted if not one.records]
        if moved:
            records.append(_cursor_record(moved, now_ms, is_snapshot=False))
        before = {one.source: self._positions.get(one.source) for one in accepted}
        for piece in accepted:
            self._positions[piece.source] = _Position(piece.epoch, piece.end, now_ms)
        self._records_since += len(records)
        is_due = self._records_since >= self._snapshot_records
        if is_due:
            records += self._snapshot(now_ms)
        batch = encode_batch(records)
        try:
            self.partition.write(memoryview(batch), now_ms=now_ms)
        except GoQueueError:
            for source, position in before.items():
                if position is None:
                    del self._positions[source]
                else:
                    self._positions[source] = position
            raise
        self._written.bytes += len(batch)
        for piece in accepted:
            self._written.events += piece.event_count
            self._asked.pop(piece.source, None)
        if is_due:
            self._records_since = 0

    # Snapshots

    @property
    def _snapshot_records(self) -> int:
        return max(SNAPSHOT_RECORDS_MIN, RECORDS_PER_CURSOR * len(self._positions))

    def _snapshot(self, now_ms: int) -> list[Record]:
        """Return all cursors as records, without those of sources that are long gone."""
        self._positions = {
            source: one
            for source, one in self._positions.items()
            if now_ms - one.changed_ms < FORGET_MS or self._is_known(source.topic_id)
        }
        cursors = self.cursors()
        return [
            _cursor_record(cursors[at : at + CURSORS_PER_RECORD], now_ms, is_snapshot=not at)
            for at in range(0, len(cursors), CURSORS_PER_RECORD)
        ]

    # Loading

    def load(self, unreadable: Unreadable) -> None:
        """Read the cursors from the end of the partition, a little per event-loop turn.

        `unreadable` is called if a later release has written there.
        """
        steps = self._loading()

        def step() -> None:
            if self.is_closed:
                return
            try:
                is_done = next(steps, None) is None
            except UnsupportedVersion as error:
                unreadable(self.partition, error)
                return
            if is_done:
                self._is_loaded = True
            else:
                self._clock.call_soon(step)

        self._clock.call_soon(step)

    def _loading(self) -> Iterator[int]:
        """Go back to the last snapshot of the cursors; yield after every step."""
        start, end = self.partition.start_offset, self.partition.end_offset
        count = 2 * SNAPSHOT_RECORDS_MIN
        has_snapshot = start == end
        while not has_snapshot:
            first = max(start, end - count)
            self._positions, self._records_since = {}, 0
            for place, record in enumerate(self._records(first, end), 1):
                has_snapshot |= self._replay(record)
                if not place % LOADED_PER_TURN_MAX:
                    yield place
            if first == start:
                return
            count *= 4

    def _records(self, first: int, end: int) -> Iterator[Record]:
        while first < end:
            try:
                for header, batch in self.partition.log.batches(first, until_offset=end):
                    yield from decode_batch(batch)
                    first = header.next_offset
                return
            except CorruptBatch as error:
                _log.error("%s is damaged: %s", self.partition.name, error)
                if error.next_offset is None or error.next_offset <= first:
                    return
                first = error.next_offset

    def _replay(self, record: Record) -> bool:
        """Apply a record; return whether it begins a snapshot."""
        try:
            return self._replay_record(record)
        except CorruptJourney as error:
            _log.error("%s at offset %d: %s", self.partition.name, record.offset, error)
            return False

    def _replay_record(self, record: Record) -> bool:
        now_ms = self._clock.wall_ms()
        self._records_since += 1
        key, value = record.key, record.value
        if key is None or value is None:
            return False
        if is_events(key):
            span = decode_span(decode_key(key).place, value)
            self._positions[span.source] = _Position(span.epoch, span.end, now_ms)
        elif is_cursors(key):
            is_snapshot, cursors = decode_cursors(value)
            if is_snapshot:
                self._positions, self._records_since = {}, 0
            for cursor in cursors:
                self._positions[cursor.source] = _Position(cursor.epoch, cursor.position, now_ms)
            return is_snapshot
        else:
            check_known(key)
        return False


def _cursor_record(cursors: list[Cursor], now_ms: int, *, is_snapshot: bool) -> Record:
    key, value = encode_cursors(cursors, is_snapshot=is_snapshot)
    return Record(key, value, (), now_ms)
