"""Merges repeated events, so that a flood of them becomes a few.

The first event of a kind is written at once. Those that follow within an interval are counted, and
written as one event at its end. The number of different events in an interval is limited, for each
source and in total: beyond that, events are counted without their details. So memory and writes are
bounded whatever clients do, and the counts of all written events add up to what happened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from goqueue.tenancy.audit.events import Event, all_others, others


class Limits(NamedTuple):
    """How many different events an interval may have, and sources beyond their limit."""

    events_max: int
    events_per_source_max: int
    sources_max: int = 100


class Merged(NamedTuple):
    """Equal events, how many, and when the first and the last happened, in wall time."""

    event: Event
    times: int
    first_ms: int
    last_ms: int


@dataclass(slots=True)
class _Repeats:
    """What happened since an event was written."""

    event: Event
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, wall_ms: int) -> None:
        self.first_ms = self.first_ms if self.count else wall_ms
        self.last_ms = wall_ms
        self.count += 1


@dataclass(slots=True)
class Merger:
    """The events of one group in the current interval."""

    limits: Limits
    interval_ms: int
    due_ms: int | None = None  # the end of the interval; None if nothing happened
    _known: dict[tuple[Any, ...], _Repeats] = field(default_factory=dict)
    _of_source: Counter[str] = field(default_factory=Counter)
    _beyond: dict[tuple[Any, ...], _Repeats] = field(default_factory=dict)

    def add(self, event: Event, *, now_ms: int, wall_ms: int) -> Merged | None:
        """Count an event; return it if it is to be written now."""
        if self.due_ms is None:
            self.due_ms = now_ms + self.interval_ms
        key = event.key
        known = self._known.get(key)
        if known is not None:
            known.add(wall_ms)
            return None
        source = event.source
        is_full = len(self._known) >= self.limits.events_max
        if is_full or self._of_source[source] >= self.limits.events_per_source_max:
            self._count_beyond(event, source, wall_ms)
            return None
        self._known[key] = _Repeats(event)
        self._of_source[source] += 1
        return Merged(event, 1, wall_ms, wall_ms)

    def _count_beyond(self, event: Event, source: str, wall_ms: int) -> None:
        key: tuple[Any, ...] = (source, event.outcome)
        if key not in self._beyond:
            if len(self._beyond) < self.limits.sources_max:
                self._beyond[key] = _Repeats(others(event))
            else:
                key = ()
                self._beyond.setdefault(key, _Repeats(all_others(event.group)))
        self._beyond[key].add(wall_ms)

    def take_due(self, now_ms: int) -> list[Merged]:
        """Return the merged events of an interval that has ended, and begin the next."""
        if self.due_ms is None or now_ms < self.due_ms:
            return []
        return self.take()

    def take(self) -> list[Merged]:
        """Return the merged events of the current interval, which ends now."""
        repeats = [*self._known.values(), *self._beyond.values()]
        self.due_ms = None
        self._known, self._beyond = {}, {}
        self._of_source = Counter()
        return [
            Merged(one.event, one.count, one.first_ms, one.last_ms) for one in repeats if one.count
        ]
