"""Journeys whose events do not name each other: records say where their messages came from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from goqueue.broker.journeys.reconstruction import reconstruct
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import Record
from goqueue.tracing.events import Event, Kind
from goqueue.tracing.timeline import Journey, Message
from tests.unit.tracing.journeys import ORDER, SCHEDULE, event

SCHEDULE_ID = "3-40"


class Journal:
    """Events and records that a cluster has."""

    def __init__(
        self, events: Mapping[Message, Sequence[Event]], records: Mapping[Message, Record]
    ) -> None:
        self._events = events
        self._records = records

    async def events(self, message: Message) -> Sequence[Event]:
        return self._events.get(message, ())

    async def record(self, message: Message) -> Record | None:
        return self._records.get(message)

    async def find_letter(self, message: Message, topic: str, time_ms: int) -> Message | None:
        return None

    async def find_released(self, message: Message, topic: str, time_ms: int) -> Message | None:
        return None


def read_id(text: str) -> tuple[int, int]:
    partition, offset = text.split("-")
    return int(partition), int(offset)


def journey_of(journal: Journal) -> Journey:
    return asyncio.run(reconstruct(ORDER, journal, read_id=read_id))


def test_a_release_that_was_derived_comes_before_what_it_caused() -> None:
    events = {
        SCHEDULE: [event(Kind.SCHEDULED, SCHEDULE, 100), event(Kind.RELEASED, SCHEDULE, 230)],
        ORDER: [
            event(Kind.RECEIVED, ORDER, 200),
            event(Kind.STORED, ORDER, 200),
            event(Kind.DELIVERED, ORDER, 210, group="shop"),
        ],
    }
    record = Record(None, b"v", ((SCHEDULE_ID_HEADER, SCHEDULE_ID.encode()),))
    found = journey_of(Journal(events, {ORDER: record}))
    assert [(one.event.kind, one.message) for one in found.entries] == [
        (Kind.SCHEDULED, SCHEDULE),
        (Kind.RELEASED, SCHEDULE),
        (Kind.ARRIVED, ORDER),
        (Kind.STORED, ORDER),
        (Kind.DELIVERED, ORDER),
    ]


def test_a_message_without_an_origin_was_received() -> None:
    events = {ORDER: [event(Kind.RECEIVED, ORDER, 200), event(Kind.STORED, ORDER, 200)]}
    found = journey_of(Journal(events, {ORDER: Record(None, b"v")}))
    assert [one.event.kind for one in found.entries] == [Kind.RECEIVED, Kind.STORED]
