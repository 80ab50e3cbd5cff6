"""Events that follow from no log: duplicates that were refused, and redrives.

They are numbered from 0 for each partition of the journal. Such a numbering, a run, is the source
of its pieces. The owner of a partition of the journal forgets a run some time after its last piece,
so each has its own time: a busy partition says nothing about a quiet one. Nothing can derive these
events, so a piece that is refused is written again under a new run. While the journal is away only
so much of them is kept; then one event for each partition says that there were some. A process that
is killed leaves notes of the duplicates that it had not written; the next one marks their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from goqueue.broker.journeys.notes import Notes
from goqueue.broker.journeys.pieces import OWN_PARTITION, Piece
from goqueue.broker.journeys.sources import Numbered, merged, piece_of
from goqueue.loop.clock import Clock
from goqueue.tracing.encoding import decode_events, decode_key
from goqueue.tracing.events import Details, Event, Kind, Place, Source, Span

RUN_MS_MAX = 1_800_000  # idle time after which a new run begins; owners remember one for longer
TOO_MUCH = "too much waited to be written"
KILLED = "the node was killed before it was written"

Events = dict[Place, list[Event]]


class _Run:
    """A numbering of events for one partition of the journal."""

    __slots__ = ("last_ms", "sent", "source")

    def __init__(self, run_id: bytes) -> None:
        self.source = Source(run_id, OWN_PARTITION)
        self.sent = 0
        self.last_ms = 0

    def piece(self, events: Events, now_ms: int) -> Piece:
        """Return the next piece."""
        first, self.sent = self.sent, self.sent + sum(map(len, events.values()))
        self.last_ms = now_ms
        return piece_of(Span(self.source, 0, first, self.sent), merged(events))


class OwnEvents:
    """Collects events that follow from no log, and makes pieces of them."""

    def __init__(
        self, clock: Clock, notes: Notes, *, node_id: int, new_id: Callable[[], bytes]
    ) -> None:
        self._clock = clock
        self._notes = notes
        self._new_id = new_id
        self._lost = Details(Kind.RECOVERED, node_id, reason=TOO_MUCH, is_recovered=True)
        self._unmarked = notes.load()  # by the process before this one
        self._runs: dict[int, _Run] = {}  # by partition of the journal
        self._events: dict[int, Events] = {}

    def add(self, number: int, place: Place, event: Event) -> None:
        """Collect an event, for a partition of the journal."""
        # The delivery journal says which letters were redriven.
        if event.kind is Kind.DEDUPLICATED:
            self._notes.add(place, event.first, event.end)
        self._events.setdefault(number, {}).setdefault(place, []).append(event)

    def mark(self, number_of: Callable[[Place], int]) -> int:
        """Collect marks for what the process before this one did not write; return how many."""
        unmarked, self._unmarked = self._unmarked, []
        details, now_ms = self._lost._replace(reason=KILLED), self._clock.wall_ms()
        for place, (first, end) in unmarked:
            self.add(number_of(place), place, Event(details, first, end, now_ms, now_ms))
        return len(unmarked)

    def written(self) -> None:
        """The journal has everything that was taken."""
        if not self._events and not self._unmarked:
            self._notes.clear()

    def take(self) -> list[Numbered]:
        """Return what was collected, as pieces."""
        collected, self._events = self._events, {}
        return [(number, self._piece(number, events)) for number, events in collected.items()]

    def _piece(self, number: int, events: Events) -> Piece:
        run, now_ms = self._runs.get(number), self._clock.now_ms()
        if run is None or now_ms - run.last_ms > RUN_MS_MAX:
            run = self._runs[number] = _Run(self._new_id())
        return run.piece(events, now_ms)

    def renumbered(self, number: int, pieces: Iterable[Piece]) -> list[Piece]:
        """Return pieces that were refused, or wait behind such, under a new run."""
        self._runs.pop(number, None)
        return [self._piece(number, _events_in([piece])) for piece in pieces]

    def condensed(self, number: int, pieces: Iterable[Piece]) -> Piece:
        """Return a piece with one event in place of all those about a partition."""
        self._runs.pop(number, None)
        now_ms = self._clock.wall_ms()
        marks: Events = {}
        for place, events in _events_in(pieces).items():
            first, end = min(one.first for one in events), max(one.end for one in events)
            marks[place] = [Event(self._lost, first, end, now_ms, now_ms)]
        return self._piece(number, marks)


def _events_in(pieces: Iterable[Piece]) -> Events:
    found: Events = {}
    for key, value in (record for piece in pieces for record in piece.records):
        place = decode_key(key).place
        found.setdefault(place, []).extend(decode_events(place, value)[1])
    return found
