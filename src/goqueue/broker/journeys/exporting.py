"""What of the journal is exported as spans: which messages, and what was known of them before.

It reads the partitions of the journal that this node leads. What it remembers of messages saves
work and is bounded; what it has forgotten, or another node has read, is found in the journal again.
So the spans are the same wherever the export continues.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from goqueue.broker.journeys.queries import OFFSET_MAX, JournalQuery
from goqueue.broker.journeys.searching import JournalSearch, events_of
from goqueue.loop.promise import Cancellation
from goqueue.model.batch import Record
from goqueue.model.errors import CorruptJourney, UnsupportedVersion
from goqueue.partition import Partition
from goqueue.tracing.encoding import decode_events, decode_key, is_events
from goqueue.tracing.events import Event, Kind, Place
from goqueue.tracing.spans import (
    ERRORS,
    RELEVANT,
    Context,
    FindTopic,
    Span,
    Traced,
    chosen,
    is_chosen,
    spans_of,
)

HISTORIES_MAX = 20_000  # messages whose events are remembered
CONTEXTS_MAX = 50_000  # messages whose trace context is remembered
FAILED_MAX = 1_000  # messages of one event that are exported because they failed

# Happens to a message before anything else.
_FIRST = frozenset({Kind.RECEIVED, Kind.SCHEDULED})

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Returns the trace contexts of the messages of a partition between two offsets, by offset.
FindContexts = Callable[[Place, int, int], Awaitable[Mapping[int, Context]]]


class Sampling(NamedTuple):
    """Which messages are exported, besides those that their producers sample and that fail."""

    every: int  # one in so many; 0: none
    is_child: bool  # spans are children of the producer's


class _Known:
    """The trace contexts of the messages of a partition in one range of offsets."""

    __slots__ = ("contexts", "end", "first")

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        self.contexts: dict[int, Context] = {}


class SpanSource:
    """Makes spans of the records of the journal."""

    def __init__(
        self,
        search: JournalSearch,
        find_contexts: FindContexts,
        find_topic: FindTopic,
        sampling: Sampling,
    ) -> None:
        self._search = search
        self._find_contexts = find_contexts
        self._find_topic = find_topic
        self._sampling = sampling
        self._histories: dict[tuple[bytes, int, int], list[Event]] = {}
        self._known: dict[tuple[bytes, int], _Known] = {}
        self._context_count = 0

    async def spans(self, partition: Partition, record: Record) -> list[Span]:
        """Return the spans that the events of a record of the journal complete."""
        if not is_events(record.key):
            return []
        assert record.key is not None
        assert record.value is not None
        try:
            place = decode_key(record.key).place
            events = decode_events(place, record.value)[1]
        except (CorruptJourney, UnsupportedVersion) as error:
            _log.error("%s at offset %d: %s", partition.name, record.offset, error)
            return []
        relevant = [one for one in events if one.kind in RELEVANT]
        spans: list[Span] = []
        wanted = await self._wanted(place, relevant)
        for offset, context in wanted.items():
            new = [one for one in relevant if one.first <= offset < one.end]
            history = await self._history(partition, record.offset, place, offset, new)
            traced = Traced(place, offset, context, self._sampling.is_child)
            known = self._exported(traced, history)
            history += new
            spans += spans_of(traced, history, self._find_topic, known=known)
        return spans

    # Which messages

    async def _wanted(self, place: Place, events: Iterable[Event]) -> dict[int, Context | None]:
        """Return the messages whose spans are exported, each with its producer's span."""
        wanted: dict[int, Context | None] = {}
        for event in events:
            contexts = await self._contexts(place, event.first, event.end)
            for offset, context in contexts.items():
                if context.is_sampled:
                    wanted[offset] = context
            for offset in chosen(place, event.first, event.end, self._sampling.every):
                wanted[offset] = contexts.get(offset)
            if event.kind in ERRORS:
                for offset in range(event.first, min(event.end, event.first + FAILED_MAX)):
                    wanted[offset] = contexts.get(offset)
        return dict(sorted(wanted.items()))

    def _exported(self, traced: Traced, history: Sequence[Event]) -> int:
        """Return how many of its events a message had when its spans were exported last."""
        context, every = traced.producer, self._sampling.every
        is_sampled = context is not None and context.is_sampled
        if is_sampled or is_chosen(traced.place, traced.offset, every):
            return len(history)
        failed = [number for number, one in enumerate(history, 1) if one.kind in ERRORS]
        return failed[-1] if failed else 0

    async def _contexts(self, place: Place, first: int, end: int) -> Mapping[int, Context]:
        """Return the trace contexts of the messages in a range, found once for each message."""
        key = place.topic_id, place.partition
        known = self._known.get(key)
        if known is None or first > known.end:
            known = self._forget(key)
            known.first = known.end = first
        elif first < known.first:
            return await self._find_contexts(place, first, end)  # An old message; it is rare.
        if end > known.end:
            found = await self._find_contexts(place, known.end, end)
            known.contexts.update(found)
            known.end = end
            self._context_count += len(found)
        contexts = known.contexts
        within = {one: contexts[one] for one in _between(contexts, first, end)}
        if self._context_count > CONTEXTS_MAX:
            self._known, self._context_count = {}, 0
        return within

    def _forget(self, key: tuple[bytes, int]) -> _Known:
        before = self._known.get(key)
        self._context_count -= 0 if before is None else len(before.contexts)
        known = self._known[key] = _Known(0)
        return known

    # What was known before

    async def _history(
        self,
        partition: Partition,
        below: int,
        place: Place,
        offset: int,
        new: Sequence[Event],
    ) -> list[Event]:
        """Return the events of a message in the records of the journal before an offset."""
        key = place.topic_id, place.partition, offset
        history = self._histories.pop(key, None)
        if history is None:
            is_first = bool(new) and new[0].kind in _FIRST and not new[0].details.is_recovered
            history = [] if is_first else await self._find(partition, below, place, offset)
            if len(self._histories) >= HISTORIES_MAX:
                del self._histories[next(iter(self._histories))]
        self._histories[key] = history  # The one that was used last.
        return history

    async def _find(
        self, partition: Partition, below: int, place: Place, offset: int
    ) -> list[Event]:
        query = JournalQuery(place.topic_id, place.partition, offset, min(offset + 1, OFFSET_MAX))
        events: list[Event] = []
        begin, is_end = 0, False
        while begin < below and not is_end:
            found = await self._search.find(
                partition.name.partition, query, begin=begin, cancellation=Cancellation()
            )
            for at, _, some in events_of(found.records):
                if at < below:
                    events += (one for one in some if one.kind in RELEVANT)
            begin, is_end = found.next_offset, found.is_end
        return events

    def forget(self) -> None:
        """Forget what was read, because the export continues elsewhere in the journal."""
        self._histories, self._known, self._context_count = {}, {}, 0


def _between(contexts: Mapping[int, Context], first: int, end: int) -> list[int]:
    if end - first < len(contexts):
        return [one for one in range(first, end) if one in contexts]
    return [one for one in contexts if first <= one < end]
