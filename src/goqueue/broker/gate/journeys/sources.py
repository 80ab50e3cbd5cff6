"""Where the events and records of journeys come from: the leaders of the journal and of topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from goqueue.broker.gate.areas.records import (
    SEARCH_BYTES_MAX,
    At,
    Position,
    RecordFilter,
    RecordsArea,
    SearchPage,
    Span,
)
from goqueue.broker.gate.journeys.views import Selection
from goqueue.broker.gate.namespaces import inside
from goqueue.broker.gate.operation import OPERATIONS
from goqueue.broker.gate.waiting import CANCELLATION
from goqueue.broker.journeys.queries import CountedEvents, FoundEvents, JournalQuery
from goqueue.broker.journeys.reconstruction import is_letter_of
from goqueue.broker.journeys.searching import JournalSearch, events_of
from goqueue.broker.quotas.quotas import size_of
from goqueue.broker.reading.records import Place
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import Record
from goqueue.model.dead_letters import OFFSET_HEADER
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.model.session import INTERNAL, Session
from goqueue.tracing.events import Event
from goqueue.tracing.timeline import Message

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.journeys import JourneysArea
    from goqueue.broker.topics.topics import Topic

EARLIER_MS = 5_000  # a linked message is searched for from this long before its event
SEARCHED_BYTES = 256 << 20
FOUND_MAX = 100
RECORD_BYTES_MAX = 1 << 20


def numbers_of(topic: Topic, selection: Selection) -> Sequence[int]:
    """Return the selected partitions of a topic."""
    if selection.partition is None:
        return range(topic.partition_count)
    topic.partition(selection.partition)
    return [selection.partition]


def query_of(selection: Selection, topic_id: bytes | None, number: int | None) -> JournalQuery:
    """Return the query for selected events about a partition, or about all."""
    return JournalQuery(
        topic_id,
        number,
        group=selection.group,
        from_ms=selection.from_ms,
        until_ms=selection.until_ms,
    )


class JourneyCall:
    """One call of a session: what it may see, and the operations that it consists of."""

    def __init__(
        self,
        area: JourneysArea,
        journal: JournalSearch,
        session: Session,
        cancellation: Cancellation,
    ) -> None:
        self.broker = area._broker
        self.journal = journal
        self._area = area
        self._session = session
        self._cancellation = cancellation

    def reads(self, topic: str) -> bool:
        """Whether the session may read a topic."""
        return self._area._may(self._session, Action.READ, Resource(ResourceKind.TOPIC, topic))

    def sees_group(self, group: str) -> bool:
        """Whether the session may describe a group; there is nothing to hide without one."""
        resource = Resource(ResourceKind.GROUP, group)
        return not group or self._area._may(self._session, Action.DESCRIBE, resource)

    async def find_events(self, number: int, query: JournalQuery, begin: int) -> FoundEvents:
        """Find events in a partition of the journal, wherever it is led."""
        found: FoundEvents = await self._part(
            "find_events", number=number, query=query, begin=begin
        )
        self.charge(found.read_bytes)
        return found

    async def count_events(self, number: int, query: JournalQuery) -> CountedEvents:
        """Count events in a partition of the journal, wherever it is led."""
        counted: CountedEvents = await self._part(
            "count_events", number=number, query=query, begin=0
        )
        self.charge(counted.read_bytes)
        return counted

    def _part(self, name: str, **arguments: object) -> Promise[Any]:
        """Answer a part of an authorised operation, which no client may call itself."""
        operation = OPERATIONS[f"journeys.{name}"]
        given = {**arguments, CANCELLATION: self._cancellation}
        return self._area._dispatcher.answer(inside(INTERNAL), operation, self._area, given)

    async def search(
        self,
        topic: str,
        spans: Sequence[Span],
        wanted: RecordFilter,
        *,
        limit: int,
        bytes_max: int = SEARCH_BYTES_MAX,
    ) -> SearchPage:
        """Find records of a topic."""
        records = self._area._dispatcher.areas["records"]
        assert isinstance(records, RecordsArea)
        resource = Resource(ResourceKind.TOPIC, topic)
        self._area._check(self._session, Action.READ, resource)
        page = await records._find(
            self._session,
            topic,
            spans,
            wanted,
            limit=limit,
            bytes_max=bytes_max,
            cancellation=self._cancellation,
        )
        self.charge(page.read_bytes)
        return page

    def charge(self, size: int) -> None:
        """Charge what was read; the call was admitted as a whole, so it is not refused now."""
        self.broker.quotas.consumed(self._session, size, 0)


class JourneySources:
    """The events and records of messages, for one call."""

    def __init__(self, call: JourneyCall) -> None:
        self._call = call
        self._broker = call.broker

    async def events(self, message: Message) -> Sequence[Event]:
        """Return the events of a message; none if its topic does not exist."""
        return await self.events_between(message, message.offset + 1)

    async def events_between(self, message: Message, end: int) -> list[Event]:
        """Return the events of a message and those after it, up to an offset."""
        topic = self._broker.topics.find(message.topic)
        if topic is None:
            return []
        name = TopicPartition(topic.name, message.partition)
        query = JournalQuery(topic.id, message.partition, message.offset, end)
        events: list[Event] = []
        begin, is_end = 0, False
        while not is_end:
            number = self._call.journal.number_of(name)
            found = await self._call.find_events(number, query, begin)
            events += (one for _, _, its in events_of(found.records) for one in its)
            begin, is_end = found.next_offset, found.is_end
        return events

    async def record(self, message: Message) -> Record | None:
        """Return the record of a message; None if it no longer exists, or cannot be read now."""
        topic = self._broker.topics.find(message.topic)
        if topic is None or not 0 <= message.partition < topic.partition_count:
            return None
        place = Place(topic.partition(message.partition), message.offset, message.offset + 1)
        try:
            reading = self._broker.reads.read([place], records_max=1, bytes_max=RECORD_BYTES_MAX)
            page = await reading.promise
        except GoQueueError:
            return None
        if not page.records:
            return None
        record = page.records[0][1]
        self._call.charge(size_of(record))
        return record

    async def find_letter(self, message: Message, topic: str, time_ms: int) -> Message | None:
        """Return the dead letter of a message in a topic, written about a time or later."""
        wanted = RecordFilter(header=OFFSET_HEADER, header_value=b"%d" % message.offset)
        for number, record in await self._search(topic, wanted, time_ms):
            if is_letter_of(message, record.headers):
                return Message(topic, number, record.offset)
        return None

    async def find_released(self, message: Message, topic: str, time_ms: int) -> Message | None:
        """Return the message of a topic that was scheduled, written about a time or later."""
        schedule_id = self._broker.schedules.id_of(message.partition, message.offset)
        wanted = RecordFilter(header=SCHEDULE_ID_HEADER, header_value=schedule_id.encode())
        for number, record in await self._search(topic, wanted, time_ms):
            return Message(topic, number, record.offset)
        return None

    async def _search(
        self, topic: str, wanted: RecordFilter, time_ms: int
    ) -> Sequence[tuple[int, Record]]:
        """Return the first records of a topic from about a time on; none if it may not be read."""
        found = self._broker.topics.find(topic)
        if found is None or not self._call.reads(topic):
            return []
        begin = Position(At.TIME, max(0, time_ms - EARLIER_MS))
        spans = [Span(number, begin) for number in range(found.partition_count)]
        page = await self._call.search(
            topic, spans, wanted, limit=FOUND_MAX, bytes_max=SEARCHED_BYTES
        )
        return page.records
