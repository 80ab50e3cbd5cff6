"""Sends pieces to the owners of the journal: in order, one call at a time for each partition."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from goqueue.broker.journeys.own import OwnEvents
from goqueue.broker.journeys.owners import JournalOwners
from goqueue.broker.journeys.pieces import WRITTEN, Piece, Results
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError
from goqueue.tracing.events import Source

CALL_BYTES_MAX = 512 << 10
CALL_PIECES_MAX = 1_000
# Of all pieces that wait. With more, they are dropped, and derived from the logs again later.
QUEUE_BYTES_MAX = 8 << 20
# Of pieces that wait and cannot be derived. With more, they are condensed to marks.
OWN_BYTES_MAX = 1 << 20
RETRY_MS = 250

_log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """A piece, and since when it waits."""

    piece: Piece
    since_ms: int


class Outlets:
    """The pieces that wait for each partition of the journal."""

    def __init__(
        self,
        clock: Clock,
        owners: JournalOwners,
        own: OwnEvents,
        *,
        refused: Callable[[Source], None],
        overflowed: Callable[[], None],
    ) -> None:
        """`refused` is called with a source whose pieces do not continue the journal.

        `overflowed` is called when too many pieces wait; it must `clear`. Neither is about events
        that cannot be derived: they remain here.
        """
        self._derivable_bytes = self._own_bytes = 0  # that wait
        self._own_pieces = 0  # that wait, or were sent
        self._clock = clock
        self._owners = owners
        self._own = own
        self._refused = refused
        self._overflowed = overflowed
        self._queues: dict[int, deque[_Waiting]] = {}
        self._is_busy: set[int] = set()
        self._sent_since: dict[int, int] = {}  # since when pieces wait whose answer is due
        self._is_failing = False
        self._when_empty: list[Callable[[], None]] = []

    @property
    def size(self) -> int:
        """The bytes that wait."""
        return self._derivable_bytes + self._own_bytes

    @property
    def is_empty(self) -> bool:
        return not self._is_busy and not any(self._queues.values())

    def oldest_ms(self) -> int | None:
        """Return since when the oldest piece waits to be written; None if none does."""
        waiting = [queue[0].since_ms for queue in self._queues.values() if queue]
        return min([*waiting, *self._sent_since.values()], default=None)

    def add(self, number: int, piece: Piece) -> None:
        """Send a piece to a partition of the journal, after those before it."""
        self._put(number, piece)
        if self._derivable_bytes > QUEUE_BYTES_MAX:
            self._overflowed()
        if piece.is_own and self._own_bytes > OWN_BYTES_MAX:
            self._condense()
        if number not in self._is_busy and self._queues.get(number):
            self._is_busy.add(number)
            # In a turn of its own: the pieces of one flush share a call.
            self._clock.call_soon(lambda: self._send(number))

    def _put(self, number: int, piece: Piece) -> None:
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = deque()
        queue.append(_Waiting(piece, self._clock.now_ms()))
        self._count_bytes(piece, 1)
        self._own_pieces += piece.is_own

    def _count_bytes(self, piece: Piece, sign: int) -> None:
        if piece.is_own:
            self._own_bytes += sign * piece.size
        else:
            self._derivable_bytes += sign * piece.size

    def clear(self) -> list[Source]:
        """Drop everything that waits and can be derived; return the sources of it."""
        dropped: dict[Source, None] = {}
        for number in list(self._queues):
            pieces = self._remove(number, lambda one: not one.is_own)
            dropped.update(dict.fromkeys(one.source for one in pieces))
        return list(dropped)

    def drop(self, source: Source) -> None:
        """Drop what waits of one source."""
        for number in list(self._queues):
            self._remove(number, lambda one: one.source == source)

    def _remove(self, number: int, is_wanted: Callable[[Piece], bool]) -> list[Piece]:
        """Remove waiting pieces of a partition; return them in their order."""
        queue = self._queues.get(number, ())
        removed = [one.piece for one in queue if is_wanted(one.piece)]
        if removed:
            self._queues[number] = deque(one for one in queue if not is_wanted(one.piece))
            for piece in removed:
                self._count_bytes(piece, -1)
                self._own_pieces -= piece.is_own
        return removed

    def _condense(self) -> None:
        """Replace the pieces that cannot be derived by marks that there were some."""
        for number in list(self._queues):
            pieces = self._remove(number, lambda one: one.is_own)
            if pieces:
                self._put(number, self._own.condensed(number, pieces))

    def when_empty(self, done: Callable[[], None]) -> None:
        """Call `done` when everything is written."""
        self._when_empty.append(done)
        self._check_empty()

    def _check_empty(self) -> None:
        if self._when_empty and self.is_empty:
            waiting, self._when_empty = self._when_empty, []
            for done in waiting:
                done()

    def _send(self, number: int) -> None:
        pieces = self._take(number)
        if not pieces:
            self._is_busy.discard(number)
            self._check_empty()
            return
        self._write(number, pieces)

    def _take(self, number: int) -> list[Piece]:
        queue, pieces, size = self._queues.get(number), list[Piece](), 0
        while queue and len(pieces) < CALL_PIECES_MAX and size < CALL_BYTES_MAX:
            piece, since_ms = queue.popleft()
            self._sent_since.setdefault(number, since_ms)
            pieces.append(piece)
            size += piece.size
            self._count_bytes(piece, -1)
        return pieces

    def _write(self, number: int, pieces: list[Piece]) -> None:
        def answered(results: Results | None, error: Exception | None) -> None:
            if results is not None:
                self._is_failing = False
                self._written(number, pieces, results)
            elif not isinstance(error, GoQueueError):
                assert error is not None
                raise error
            else:
                if not self._is_failing:
                    _log.warning("journeys cannot be written yet; retrying: %s", error)
                self._is_failing = True
                self._clock.call_later(RETRY_MS, lambda: self._write(number, pieces))

        self._owners.write(number, pieces).then(answered)

    def _written(self, number: int, pieces: list[Piece], results: Results) -> None:
        del self._sent_since[number]
        both = zip(pieces, results, strict=True)
        refused = [piece for piece, result in both if result != WRITTEN]
        for source in dict.fromkeys(one.source for one in refused if not one.is_own):
            self._refused(source)
        own = [one for one in refused if one.is_own]
        if own:
            # Those that wait continue them.
            own += self._remove(number, lambda one: one.is_own)
            for piece in self._own.renumbered(number, own):
                self.add(number, piece)
        done = sum(piece.is_own for piece in pieces)
        self._own_pieces -= done
        if done and not self._own_pieces:
            self._own.written()
        self._clock.call_soon(lambda: self._send(number))
