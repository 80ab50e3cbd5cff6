"""Lists of journeys and of events: pages of them, from the journal or from a search of records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.records import (
    EARLIEST,
    SEARCH_BYTES_MAX,
    At,
    Position,
    RecordFilter,
    Span,
)
from goqueue.broker.gate.journeys.cursors import (
    JournalCursor,
    SearchCursor,
    read_journal_cursor,
    read_search_cursor,
)
from goqueue.broker.gate.journeys.sources import (
    JourneyCall,
    JourneySources,
    numbers_of,
    query_of,
)
from goqueue.broker.gate.journeys.views import (
    JourneyEvent,
    JourneyMessage,
    JourneyPage,
    JourneyRow,
    Selection,
    kind_name,
    view_event,
    view_standing,
)
from goqueue.broker.journeys.queries import FoundEvents, JournalQuery
from goqueue.broker.journeys.searching import events_of
from goqueue.model.errors import InvalidRequest, UnknownTopic
from goqueue.model.names import JOURNEYS_TOPIC, SCHEDULED_TOPIC, TopicPartition
from goqueue.tracing.events import Event
from goqueue.tracing.filters import EventFilter, kinds_for, stands
from goqueue.tracing.timeline import Message, Standing, build_journey

if TYPE_CHECKING:
    from goqueue.broker.topics.topics import Topic

NEAR = 5_000  # messages of one partition whose events are read together

Found = dict[Message, tuple[str, int]]  # messages with the kind and time of an event


class JournalReading:
    """Reads the selected events of the journal, for one call of a session."""

    def __init__(self, call: JourneyCall, selection: Selection) -> None:
        self._call = call
        self._broker = call.broker
        self._selection = selection

    def _beginning(self) -> JournalCursor:
        """Return the beginning of the partitions of the journal with the selected events.

        While the journal does not exist, the cursor has none: nobody knows how many it will have.
        """
        selection, journal = self._selection, self._broker.topics.find(JOURNEYS_TOPIC)
        if journal is None:
            return JournalCursor([])
        if selection.topic:
            topic = self._broker.topics.get(selection.topic)
            names = [TopicPartition(topic.name, one) for one in numbers_of(topic, selection)]
            numbers = {self._call.journal.number_of(one) for one in names}
        else:
            numbers = set(range(journal.partition_count))
        return JournalCursor([(number, 0, 0) for number in sorted(numbers)])

    async def _find(self, number: int, begin: int, wanted: EventFilter) -> FoundEvents:
        return await self._call.find_events(number, self._query(wanted), begin)

    def _query(self, wanted: EventFilter) -> JournalQuery:
        selection, topic_id = self._selection, None
        if selection.topic and selection.partition is not None:
            topic_id = self._broker.topics.get(selection.topic).id
        query = query_of(selection, topic_id, selection.partition)
        return query._replace(kinds=tuple(map(int, wanted.kinds)))

    def _shows(self, topic: str) -> bool:
        if self._selection.topic:
            return topic == self._selection.topic
        return topic != SCHEDULED_TOPIC and self._call.reads(topic)


class EventReading(JournalReading):
    """Pages of events as they are recorded."""

    async def begin(self, cursor: str) -> JournalCursor:
        """Return where events are read: at a cursor, from a time on, or at the end."""
        at = read_journal_cursor(cursor)
        journal = self._broker.topics.find(JOURNEYS_TOPIC)
        if at is not None:
            return at
        beginning = self._beginning()
        if self._selection.from_ms is not None or journal is None:
            return beginning
        numbers = [number for number, _, _ in beginning.places]
        bounds = await self._broker.reads.look(journal, numbers)
        ends = zip(numbers, bounds, strict=True)
        return JournalCursor([(number, one.high_watermark, 0) for number, one in ends])

    async def read(
        self, limit: int, at: JournalCursor
    ) -> tuple[list[JourneyEvent], JournalCursor, bool]:
        """Return events after a cursor, the cursor after them, and whether that is the end.

        A cursor without partitions is from before the journal existed: it has everything since.
        """
        selection = self._selection
        at = at if at.places else self._beginning()
        kinds = kinds_for(selection.outcome, "") if selection.outcome else frozenset()
        wanted = EventFilter(kinds, selection.group, selection.from_ms, selection.until_ms)
        found: list[JourneyEvent] = []
        places: list[tuple[int, int, int]] = []
        is_end = True
        for number, begin, done in at.places:
            if len(found) >= limit:
                places.append((number, begin, done))
                is_end = False
                continue
            page = await self._find(number, begin, wanted)
            stopped = self._take(page, limit, done, found)
            places.append((number, *(stopped or (page.next_offset, 0))))
            is_end = is_end and page.is_end and stopped is None
        return found, JournalCursor(places), is_end

    def _take(
        self, page: FoundEvents, limit: int, done: int, found: list[JourneyEvent]
    ) -> tuple[int, int] | None:
        """Add events to those found; return where to go on if there are too many."""
        for journal_offset, place, events in events_of(page.records):
            for count, event in enumerate(events if self._shows(place.topic) else ()):
                if count < done:
                    continue
                if len(found) >= limit:
                    return journal_offset, count
                if self._call.sees_group(event.details.group):
                    found.append(view_event(event, place.topic, place.partition))
            done = 0
        return None


class JourneyListing(JournalReading):
    """Pages of journeys, each with how the message stands."""

    async def recorded(self, limit: int, cursor: str) -> JourneyPage:
        """List the messages of events in the journal."""
        selection = self._selection
        at = read_journal_cursor(cursor)
        if at is None:
            at = self._beginning()
        wanted = EventFilter(
            kinds_for(selection.outcome, selection.group),
            selection.group,
            selection.from_ms,
            selection.until_ms,
        )
        found: Found = {}
        places: list[tuple[int, int, int]] = []
        read = 0
        for number, begin, done in at.places:
            if len(found) >= limit:
                places.append((number, begin, done))
                continue
            page = await self._find(number, begin, wanted)
            read += page.read_bytes
            stopped = self._take(page, wanted, limit, done, found)
            if stopped is not None:
                places.append((number, *stopped))
            elif not page.is_end:
                places.append((number, page.next_offset, 0))
        rows = await self._rows(found, wanted)
        rows.sort(key=lambda one: one.time_ms)
        return JourneyPage(rows, str(JournalCursor(places)) if places else "", read)

    def _take(
        self, page: FoundEvents, wanted: EventFilter, limit: int, skipped: int, found: Found
    ) -> tuple[int, int] | None:
        """Add messages of events to those found; return where to go on if there are too many.

        That is the offset of a record of the journal, and how many messages of it are done.
        """
        for journal_offset, place, events in events_of(page.records):
            done = 0
            for event in events if self._shows(place.topic) else ():
                for offset in wanted.offsets(event):
                    done += 1
                    if done <= skipped:
                        continue
                    message = Message(place.topic, place.partition, offset)
                    if message not in found and len(found) >= limit:
                        return journal_offset, done - 1
                    found[message] = kind_name(event), event.time_of(offset)
            skipped = 0
        return None

    async def searched(self, limit: int, cursor: str) -> JourneyPage:
        """List the messages whose records have a key or a trace id."""
        selection = self._selection
        topics = self._searched_topics()
        at = read_search_cursor(cursor)
        if at is not None:
            ids = [one.id.hex() for one in topics]
            if at.topic_id not in ids:
                raise UnknownTopic(selection.topic or at.topic_id)
            topics = topics[ids.index(at.topic_id) :]
        wanted = RecordFilter(key=selection.key, trace_id=selection.trace_id)
        found: Found = {}
        read = skipped = 0
        following = ""
        for number, topic in enumerate(topics):
            spans = _spans(topic, selection, None if number else at)
            page = await self._call.search(topic.name, spans, wanted, limit=limit - len(found))
            for partition, record in page.records:
                message = Message(topic.name, partition, record.offset)
                found[message] = "", record.timestamp_ms
            read, skipped = read + page.read_bytes, skipped + page.skipped_bytes
            later = topics[number + 1 :]
            if page.places:
                following = str(SearchCursor(topic.id.hex(), list(page.places)))
                break
            if later and (len(found) >= limit or read >= SEARCH_BYTES_MAX):
                following = str(SearchCursor(later[0].id.hex(), []))
                break
        rows = await self._rows(found)
        rows.sort(key=lambda one: one.time_ms)
        return JourneyPage(rows, following, read, skipped)

    def _searched_topics(self) -> list[Topic]:
        selection = self._selection
        if selection.topic:
            return [self._broker.topics.get(selection.topic)]
        if selection.key is not None:
            raise InvalidRequest("Keys are searched for in one topic; name it.")
        topics = sorted(self._broker.topics, key=lambda one: one.name)
        return [one for one in topics if not one.is_internal and self._shows(one.name)]

    async def _rows(self, found: Found, wanted: EventFilter | None = None) -> list[JourneyRow]:
        """Return messages with how they stand, those that stand as wanted.

        A message that was found by several events is shown at the last one, on whichever page.
        """
        rows: list[JourneyRow] = []
        for message, events in await self._events_of(found):
            if wanted is not None and _last_of(events, message, wanted) != found[message]:
                continue
            standings = build_journey(message, {message: events}).standings
            if self._is_wanted(standings):
                viewed = JourneyMessage(*message)
                shown = [view_standing(one, viewed) for one in standings]
                rows.append(JourneyRow(viewed, *found[message], shown))
        return rows

    def _is_wanted(self, standings: Sequence[Standing]) -> bool:
        selection = self._selection
        is_any = selection.outcome is None and not selection.group
        return is_any or stands(standings, selection.outcome, selection.group)

    async def _events_of(self, messages: Iterable[Message]) -> list[tuple[Message, list[Event]]]:
        """Return the events of messages that may be seen; those of neighbours are read together."""
        sources = JourneySources(self._call)
        found: list[tuple[Message, list[Event]]] = []
        for near in _near(messages):
            between = await sources.events_between(near[0], near[-1].offset + 1)
            events = [one for one in between if self._call.sees_group(one.details.group)]
            for message in near:
                its = [one for one in events if one.first <= message.offset < one.end]
                found.append((message, its))
        return found


def _last_of(
    events: Iterable[Event], message: Message, wanted: EventFilter
) -> tuple[str, int] | None:
    """Return the kind and time of the last wanted event of a message."""
    its = [one for one in events if wanted.selects(one) and message.offset in wanted.offsets(one)]
    return (kind_name(its[-1]), its[-1].time_of(message.offset)) if its else None


def _spans(topic: Topic, selection: Selection, at: SearchCursor | None) -> Sequence[Span]:
    """Return what to search of a topic: from a cursor, or a time, up to a time."""
    until = None
    if selection.until_ms is not None:
        until = Position(At.TIME, selection.until_ms)
    if at is not None and at.places:
        return [Span(number, Position(At.OFFSET, offset), until) for number, offset in at.places]
    begin = EARLIEST
    if selection.from_ms is not None:
        begin = Position(At.TIME, selection.from_ms)
    return [Span(number, begin, until) for number in numbers_of(topic, selection)]


def _near(messages: Iterable[Message]) -> Iterable[list[Message]]:
    """Yield messages in groups of one partition whose offsets are close to each other."""
    group: list[Message] = []
    for message in sorted(messages):
        is_near = group and message[:2] == group[0][:2] and message.offset < group[0].offset + NEAR
        if group and not is_near:
            yield group
            group = []
        group.append(message)
    if group:
        yield group
