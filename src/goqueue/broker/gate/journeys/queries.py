"""Performs the operations on journeys, which `areas.journeys` declares; loaded by the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.journeys.listing import EventReading, JourneyListing
from goqueue.broker.gate.journeys.sources import JourneyCall, JourneySources, numbers_of, query_of
from goqueue.broker.gate.journeys.views import (
    JourneyCount,
    JourneyEvents,
    JourneyMessage,
    JourneyPage,
    JourneyStats,
    JourneyView,
    Selection,
    view_entry,
    view_message,
    view_standing,
)
from goqueue.broker.journeys.reconstruction import reconstruct, targets_of
from goqueue.broker.journeys.searching import JournalSearch
from goqueue.loop.promise import Cancellation, Promise, promised
from goqueue.model.errors import UnknownMessage, UnknownSchedule
from goqueue.model.names import SCHEDULED_TOPIC, TopicPartition
from goqueue.model.session import Session
from goqueue.tracing.events import Kind
from goqueue.tracing.timeline import Journey, Message

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.journeys import JourneysArea

POLL_MS = 500  # while waiting for events


class JourneyQueries:
    """Journeys of messages, as sessions may see them."""

    def __init__(self, area: JourneysArea) -> None:
        self._area = area
        self._broker = area._broker
        self.journal = JournalSearch(self._broker.clock, self._broker.topics)

    async def get(
        self,
        session: Session,
        topic: str,
        partition: int,
        offset: int,
        *,
        cancellation: Cancellation,
    ) -> JourneyView:
        message = Message(topic, partition, offset)
        known = self._broker.topics.get(topic).partition(partition)
        call = self._call(session, cancellation)
        sources = JourneySources(call)
        journey = await reconstruct(message, sources, read_id=self._broker.schedules.position_of)
        if not journey.entries and await sources.record(message) is None:
            [bounds] = await self._broker.reads.look(self._broker.topics.get(topic), [partition])
            end = bounds.high_watermark - 1
            raise UnknownMessage(known.name, offset, start=bounds.start_offset, end=end)
        return self._view(call, journey)

    async def get_scheduled(
        self, session: Session, topic: str, schedule_id: str, *, cancellation: Cancellation
    ) -> JourneyView:
        message = Message(SCHEDULED_TOPIC, *self._broker.schedules.position_of(schedule_id))
        call = self._call(session, cancellation)
        sources = JourneySources(call)
        journey = await reconstruct(message, sources, read_id=self._broker.schedules.position_of)
        if topic not in targets_of(journey):
            raise UnknownSchedule(schedule_id)
        return self._view(call, journey._replace(message=message), topic=topic)

    async def list(
        self,
        session: Session,
        selection: Selection,
        *,
        limit: int,
        cursor: str,
        cancellation: Cancellation,
    ) -> JourneyPage:
        listing = JourneyListing(self._call(session, cancellation), selection)
        if selection.key is not None or selection.trace_id is not None:
            return await listing.searched(limit, cursor)
        return await listing.recorded(limit, cursor)

    async def stats(
        self, session: Session, selection: Selection, cancellation: Cancellation
    ) -> JourneyStats:
        topic = self._broker.topics.get(selection.topic)
        totals: dict[tuple[str, str], tuple[int, int]] = {}
        read, is_complete = 0, True
        call = self._call(session, cancellation)
        asked = [
            promised(
                call.count_events(
                    self.journal.number_of(TopicPartition(topic.name, number)),
                    query_of(selection, topic.id, number),
                )
            )
            for number in numbers_of(topic, selection)
        ]
        for one in asked:
            counted = await one
            read, is_complete = read + counted.read_bytes, is_complete and counted.is_end
            for kind, group, messages, size in counted.kinds:
                if call.sees_group(group):
                    key = Kind(kind).name.lower(), group
                    before = totals.get(key, (0, 0))
                    totals[key] = before[0] + messages, before[1] + size
        counts = [JourneyCount(*key, *sums) for key, sums in sorted(totals.items())]
        return JourneyStats(counts, is_complete, read)

    async def events(
        self,
        session: Session,
        selection: Selection,
        *,
        limit: int,
        cursor: str,
        wait_ms: int,
        cancellation: Cancellation,
    ) -> JourneyEvents:
        until_ms = self._broker.clock.now_ms() + wait_ms
        reading = EventReading(self._call(session, cancellation), selection)
        places = await reading.begin(cursor)
        while True:
            found, places, is_end = await reading.read(limit, places)
            is_over = self._broker.clock.now_ms() + POLL_MS > until_ms
            if found or is_over or not is_end:
                return JourneyEvents(found, str(places), is_end)
            await self._sleep(POLL_MS, cancellation)

    def _call(self, session: Session, cancellation: Cancellation) -> JourneyCall:
        return JourneyCall(self._area, self.journal, session, cancellation)

    def _sleep(self, delay_ms: int, cancellation: Cancellation) -> Promise[None]:
        promise: Promise[None] = Promise()
        timer = self._broker.clock.call_later(delay_ms, lambda: promise.resolve(None))
        cancellation.on_cancel(timer.cancel)
        return promise

    def _view(self, call: JourneyCall, journey: Journey, *, topic: str = "") -> JourneyView:
        """Return a journey as a session may see it; `topic` is that of scheduled messages."""
        targets = [one.topic for one in journey.messages if one.topic != SCHEDULED_TOPIC]
        topic = topic or (targets[0] if targets else journey.message.topic)
        shown = {
            one: self._view_message(one, topic)
            for one in (*journey.messages, journey.message)
            if one.topic == SCHEDULED_TOPIC or call.reads(one.topic)
        }
        return JourneyView(
            self._view_message(journey.message, topic),
            [shown[one] for one in journey.messages if one in shown],
            [
                view_entry(one, shown[one.message])
                for one in journey.entries
                if one.message in shown and call.sees_group(one.event.details.group)
            ],
            [
                view_standing(one, shown[one.message])
                for one in journey.standings
                if one.message in shown and call.sees_group(one.group)
            ],
            journey.is_incomplete,
        )

    def _view_message(self, message: Message, topic: str) -> JourneyMessage:
        schedule_id = ""
        if message.topic == SCHEDULED_TOPIC:
            schedule_id = self._broker.schedules.id_of(message.partition, message.offset)
        return view_message(message, topic, schedule_id)
