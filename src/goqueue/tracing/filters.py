"""Which events and journeys a query selects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from goqueue.tracing.events import Event, Kind
from goqueue.tracing.outcomes import Outcome
from goqueue.tracing.timeline import Standing

_KINDS_OF = {
    Outcome.SCHEDULED: (Kind.SCHEDULED,),
    Outcome.CANCELLED: (Kind.CANCELLED,),
    Outcome.RELEASED: (Kind.RELEASED,),
    Outcome.STORED: (Kind.RECEIVED, Kind.ARRIVED, Kind.STORED),
    Outcome.WAITING: (Kind.NACKED, Kind.LEASE_EXPIRED, Kind.RETURNED),
    Outcome.IN_FLIGHT: (Kind.DELIVERED,),
    Outcome.ACKED: (Kind.ACKED,),
    Outcome.DEAD: (Kind.REJECTED, Kind.DEAD_LETTERED),
    Outcome.REDRIVEN: (Kind.REDRIVEN,),
    Outcome.EXPIRED: (Kind.EXPIRED,),
    Outcome.SKIPPED: (Kind.SKIPPED,),
    Outcome.CONSUMED: (Kind.CONSUMED,),
    Outcome.RETIRED: (Kind.RETIRED,),
}
_FIRST_OF_ALL = (Kind.RECEIVED, Kind.ARRIVED)


class EventFilter(NamedTuple):
    """Which events a scan of the journal returns. What is not given selects all."""

    kinds: frozenset[Kind] = frozenset()
    group: str = ""
    from_ms: int | None = None
    until_ms: int | None = None  # not included

    def selects(self, event: Event) -> bool:
        """Return whether an event is of such a kind, group and time."""
        return (
            (not self.kinds or event.kind in self.kinds)
            and (not self.group or event.details.group == self.group)
            and (self.from_ms is None or event.last_ms >= self.from_ms)
            and (self.until_ms is None or event.time_ms < self.until_ms)
        )

    def offsets(self, event: Event) -> range:
        """Return the messages of an event to which it happened within the time."""
        first, end = event.first, event.end
        if self.from_ms is not None and event.time_ms < self.from_ms:
            first = _first_at(event, self.from_ms)
        if self.until_ms is not None and event.last_ms >= self.until_ms:
            end = _first_at(event, self.until_ms)
        return range(first, end)


def kinds_for(outcome: Outcome | None, group: str) -> frozenset[Kind]:
    """Return the kinds of events from which a list of journeys is made.

    Each kind is one that a message has if it stands so: without an outcome and a group, that it was
    received.
    """
    if outcome is not None:
        return frozenset(_KINDS_OF[outcome])
    return frozenset() if group else frozenset(_FIRST_OF_ALL)


def stands(standings: Iterable[Standing], outcome: Outcome | None, group: str) -> bool:
    """Return whether a message stands as wanted, in a group if one is given."""
    return any(
        (outcome is None or one.outcome is outcome) and (not group or one.group == group)
        for one in standings
    )


class Counts(NamedTuple):
    """How many messages events of one kind happened to, for one group."""

    kind: Kind
    group: str
    messages: int
    size: int  # bytes, of what was received


def count_events(events: Iterable[Event], wanted: EventFilter) -> Sequence[Counts]:
    """Count messages by kind and group, as the events have them; a message may count repeatedly."""
    found: dict[tuple[Kind, str], list[int]] = {}
    for event in events:
        if not wanted.selects(event):
            continue
        count = len(wanted.offsets(event))
        row = found.setdefault((event.kind, event.details.group), [0, 0])
        row[0] += count
        row[1] += event.size * count // (event.end - event.first)
    return [Counts(*key, *row) for key, row in found.items()]


def _first_at(event: Event, time_ms: int) -> int:
    """Return the first message to which an event happened at a time or later."""
    low, high = event.first, event.end
    while low < high:
        middle = (low + high) // 2
        if event.time_of(middle) < time_ms:
            low = middle + 1
        else:
            high = middle
    return low
