"""Puts one journey together: the events of a message, and those of the messages linked to it.

Events name the messages that a message came from and went to. Where an event does not know, the
headers of the record do, or those of the dead letters in the topic it went to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import Header, Record
from goqueue.model.dead_letters import REDRIVEN_HEADER, read_origin
from goqueue.model.errors import UnknownSchedule
from goqueue.model.names import SCHEDULED_TOPIC
from goqueue.model.tenants import name_beside
from goqueue.tracing.events import Event, Kind, Link
from goqueue.tracing.timeline import (
    BACKWARD,
    FORWARD,
    Journey,
    Message,
    build_journey,
    has_sender,
    linked_message,
    links_of,
)

LINKED_MAX = 30  # messages of one journey; what is beyond is left out


class Sources(Protocol):
    """Where events and records come from."""

    def events(self, message: Message) -> Awaitable[Sequence[Event]]:
        """Return the events of a message; none if its topic does not exist."""

    def record(self, message: Message) -> Awaitable[Record | None]:
        """Return the record of a message; None if it no longer exists."""

    def find_letter(self, message: Message, topic: str, time_ms: int) -> Awaitable[Message | None]:
        """Return the dead letter of a message in a topic, written about a time or later."""

    def find_released(
        self, message: Message, topic: str, time_ms: int
    ) -> Awaitable[Message | None]:
        """Return the message of a topic that was scheduled, written about a time or later."""


ReadId = Callable[[str], tuple[int, int]]


async def reconstruct(message: Message, sources: Sources, *, read_id: ReadId) -> Journey:
    """Return the journey of a message. `read_id` reads schedule ids."""
    events: dict[Message, Sequence[Event]] = {}
    origins: dict[Message, Message] = {}  # as records tell them, where events do not
    waiting = deque([message])
    while waiting and len(events) < LINKED_MAX:
        one = waiting.popleft()
        if one in events:
            continue
        events[one] = await sources.events(one)
        found = await _origins(one, events[one], sources, read_id)
        if found:
            origins[one] = found[-1]  # the last move
        waiting += [*await _neighbours(one, events[one], sources), *found]
    for target, source in origins.items():
        if source in events:
            events[source] = [_departure(source, target, each) for each in events[source]]
            events[target] = [_arrival(source, target, each) for each in events[target]]
    return build_journey(message, {one: its for one, its in events.items() if its})


def _departure(source: Message, target: Message, event: Event) -> Event:
    """Add to a move of a message where it went, if the event does not know."""
    link = event.link_of(source.offset)
    is_known = link is not None and linked_message(link) is not None
    return event if event.kind not in FORWARD or is_known else _linked(event, source, target)


def _arrival(source: Message, target: Message, event: Event) -> Event:
    """Turn what was received from no client into an arrival from elsewhere."""
    if event.kind is not Kind.RECEIVED or has_sender(event):
        return event
    arrived = event._replace(details=event.details._replace(kind=Kind.ARRIVED))
    return _linked(arrived, target, source)


def _linked(event: Event, message: Message, other: Message) -> Event:
    """Reduce an event to one of its messages, and link that to another one."""
    time_ms = event.time_of(message.offset)
    link = Link(other.topic, other.partition, other.offset)
    end = message.offset + 1
    return event._replace(
        first=message.offset, end=end, time_ms=time_ms, last_ms=time_ms, link=link
    )


async def _origins(
    message: Message, events: Sequence[Event], sources: Sources, read_id: ReadId
) -> list[Message]:
    """Return where a message came from, by its record, unless its events know."""
    is_known = any(kind in BACKWARD for kind, _ in links_of(events, message))
    if is_known or message.topic == SCHEDULED_TOPIC:
        return []
    record = await sources.record(message)
    if record is None or not record.headers:
        return []
    return origins_of(message, record.headers, read_id)


async def _neighbours(message: Message, events: Sequence[Event], sources: Sources) -> list[Message]:
    found: list[Message] = []
    links = links_of(events, message)
    for kind, link in links:
        other = linked_message(link)
        if other is None and kind is Kind.DEAD_LETTERED and link.topic:
            other = await sources.find_letter(message, link.topic, _time_of(kind, events, message))
        if other is not None:
            found.append(other)
    is_released = any(one.kind is Kind.RELEASED for one in events)
    if is_released and not any(kind is Kind.RELEASED for kind, _ in links):
        time_ms = _time_of(Kind.RELEASED, events, message)
        for topic in {one.link.topic for one in events if one.link is not None}:
            released = await sources.find_released(message, topic, time_ms)
            found += [released] if released is not None else []
    return found


def targets_of(journey: Journey) -> set[str]:
    """Return the topics that the messages of a journey were in, or are scheduled for."""
    links = [one.event.link for one in journey.entries if one.event.kind is Kind.SCHEDULED]
    targets = {one.topic for one in links if one is not None}
    return targets | {one.topic for one in journey.messages if one.topic != SCHEDULED_TOPIC}


def _time_of(kind: Kind, events: Sequence[Event], message: Message) -> int:
    return min(one.time_of(message.offset) for one in events if one.kind is kind)


def origins_of(message: Message, headers: Sequence[Header], read_id: ReadId) -> list[Message]:
    """Return where a record came from, according to the headers that the broker added.

    Headers have names as clients see them: those of the tenant of the message.
    """
    found: list[Message] = []
    texts = {name: (content or b"").decode("utf-8", "replace") for name, content in headers}
    if SCHEDULE_ID_HEADER in texts:
        try:
            found.append(Message(SCHEDULED_TOPIC, *read_id(texts[SCHEDULE_ID_HEADER])))
        except UnknownSchedule:
            pass  # A header of this name that a client wrote.
    origin = read_origin(headers)
    if origin is not None and origin.offset >= 0:
        found += _beside(message, origin.topic, str(origin.partition), str(origin.offset))
    parts = texts.get(REDRIVEN_HEADER, "").split("/")
    if len(parts) == 4:
        found += _beside(message, *parts[:3])
    return found


def is_letter_of(message: Message, headers: Sequence[Header]) -> bool:
    """Return whether these are the headers of the dead letter of a message."""
    origin = read_origin(headers)
    return (
        origin is not None
        and (origin.partition, origin.offset) == (message.partition, message.offset)
        and name_beside(message.topic, origin.topic) == message.topic
    )


def _beside(message: Message, topic: str, partition: str, offset: str) -> list[Message]:
    name = name_beside(message.topic, topic)
    if not name or not (partition.isdecimal() and offset.isdecimal()):
        return []
    return [Message(name, int(partition), int(offset))]
