"""Journeys as front ends see them: names are declared, so that the gate translates them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.model.names import SCHEDULED_TOPIC
from goqueue.model.tenants import GroupName, Sentence, Text, TopicName
from goqueue.tracing.events import Event
from goqueue.tracing.outcomes import Outcome

if TYPE_CHECKING:
    from goqueue.tracing.timeline import Entry, Message, Standing

NOWHERE = -1


class Selection(NamedTuple):
    """Which journeys are wanted. What is not given selects all."""

    topic: TopicName = ""
    partition: int | None = None
    group: GroupName = ""
    outcome: Outcome | None = None
    key: bytes | None = None
    trace_id: Text | None = None
    from_ms: int | None = None
    until_ms: int | None = None


class JourneyMessage(NamedTuple):
    """A message: by its position, or one that is scheduled by its schedule id."""

    topic: TopicName
    partition: int
    offset: int
    schedule_id: Text = ""


class JourneyEntry(NamedTuple):
    """Something that happened to a message. Texts are empty if they do not apply."""

    kind: Text
    message: JourneyMessage
    time_ms: int
    after_ms: int  # since the entry before
    node: int
    group: GroupName
    consumer: Text
    principal: Text
    client_id: Text
    listener: Text
    reason: Sentence
    attempt: int
    replicas: int
    due_ms: int
    is_recovered: bool


class JourneyStanding(NamedTuple):
    """How a message stands in a group, or without one by itself."""

    group: GroupName
    outcome: Text
    message: JourneyMessage
    time_ms: int
    attempts: int
    consumer: Text
    reason: Sentence


class JourneyView(NamedTuple):
    """A message and those linked to it: what happened to them, in order, and how they stand."""

    message: JourneyMessage
    messages: Sequence[JourneyMessage]
    entries: Sequence[JourneyEntry]
    standings: Sequence[JourneyStanding]
    is_incomplete: bool  # some of it was lost in a crash


class JourneyRow(NamedTuple):
    """One of several journeys: the message, the event that selected it, and how it stands."""

    message: JourneyMessage
    kind: Text
    time_ms: int
    standings: Sequence[JourneyStanding]


class JourneyPage(NamedTuple):
    """Journeys, the oldest first, and where the next page begins; empty at the end.

    A page may be empty before the end, because a call reads a limited part of the journal.
    """

    journeys: Sequence[JourneyRow]
    cursor: Text
    read_bytes: int
    skipped_bytes: int = 0


class JourneyEvent(NamedTuple):
    """An event as it is recorded: something that happened to a range of messages."""

    kind: Text
    topic: TopicName  # empty for scheduled messages
    partition: int
    first: int
    end: int
    time_ms: int
    last_ms: int
    node: int
    group: GroupName
    consumer: Text
    principal: Text
    client_id: Text
    listener: Text
    reason: Sentence
    attempt: int
    replicas: int
    size: int
    due_ms: int
    is_recovered: bool


class JourneyEvents(NamedTuple):
    """Recorded events, and where to read on."""

    events: Sequence[JourneyEvent]
    cursor: Text
    is_end: bool  # nothing more is recorded so far


class JourneyCount(NamedTuple):
    """How many messages something happened to; a message counts as often as it happened."""

    kind: Text
    group: GroupName
    messages: int
    size: int  # bytes, of what was received


class JourneyStats(NamedTuple):
    """What happened to messages in a time, by kind and group."""

    counts: Sequence[JourneyCount]
    is_complete: bool  # False: only a part of the journal was read
    read_bytes: int


def kind_name(event: Event) -> str:
    return event.kind.name.lower()


def view_message(message: Message, topic: str, schedule_id: str) -> JourneyMessage:
    """Return a message of a journey; one that is scheduled for `topic` by its schedule id."""
    if message.topic == SCHEDULED_TOPIC:
        return JourneyMessage(topic, NOWHERE, NOWHERE, schedule_id)
    return JourneyMessage(*message)


def view_entry(entry: Entry, message: JourneyMessage) -> JourneyEntry:
    details, event = entry.event.details, entry.event
    return JourneyEntry(
        kind_name(event),
        message,
        entry.time_ms,
        entry.after_ms,
        *details[1:-1],  # node to replicas
        event.due_ms,
        details.is_recovered,
    )


def view_standing(standing: Standing, message: JourneyMessage) -> JourneyStanding:
    return JourneyStanding(
        standing.group,
        standing.outcome.value,
        message,
        standing.time_ms,
        standing.attempts,
        standing.consumer,
        standing.reason,
    )


def view_event(event: Event, topic: str, partition: int) -> JourneyEvent:
    details = event.details
    return JourneyEvent(
        kind_name(event),
        "" if topic == SCHEDULED_TOPIC else topic,
        partition,
        event.first,
        event.end,
        event.time_ms,
        event.last_ms,
        *details[1:-1],  # node to replicas
        event.size,
        event.due_ms,
        details.is_recovered,
    )
