"""Journeys: what happened to messages."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.bodies.messages import TraceId
from goqueue.wire.http.fields import (
    WAIT_MS_MAX,
    GroupName,
    Limit,
    Moment,
    Offset,
    PartitionNumber,
    TopicName,
)

JourneyOutcome = Literal[
    "scheduled",
    "cancelled",
    "released",
    "stored",
    "waiting",
    "in_flight",
    "acked",
    "dead",
    "redriven",
    "expired",
    "skipped",
    "consumed",
    "retired",
]
JourneyCursor = Annotated[
    str, Meta(max_length=32_000, description="`cursor` of the last response of the same query.")
]
Key = Annotated[str, Meta(max_length=10_000, description="The key of a message, as UTF-8.")]


class GetJourney(Body, kw_only=True):
    topic: Annotated[
        TopicName | None, Meta(description="Needed with a schedule id: the target of the message.")
    ] = None


class SelectEvents(Body, kw_only=True):
    """A selection of what happened to messages."""

    topic: TopicName | None = None
    partition: PartitionNumber | None = None
    group: GroupName | None = None
    from_: Annotated[Moment | None, Meta(description="Not earlier than this.")] = field(
        name="from", default=None
    )
    until: Annotated[Moment | None, Meta(description="Earlier than this.")] = None


class ListJourneys(SelectEvents, kw_only=True):
    """A selection of journeys: all conditions hold."""

    offset: Annotated[Offset | None, Meta(description="Needs a topic and a partition.")] = None
    key: Annotated[Key | None, Meta(description="Needs a topic.")] = None
    trace_id: TraceId = None
    outcome: Annotated[
        JourneyOutcome | None, Meta(description="How messages stand now, in the group if given.")
    ] = None
    limit: Limit = 100
    cursor: JourneyCursor = ""


class JourneyStatistics(SelectEvents, kw_only=True):
    """The messages of a topic to count."""


class ReadEvents(SelectEvents, kw_only=True):
    """A selection of events; without `from` and `cursor`, those from now on."""

    outcome: Annotated[
        JourneyOutcome | None, Meta(description="Events after which messages stand so.")
    ] = None
    limit: Limit = 100
    cursor: JourneyCursor = ""
    wait_ms: Annotated[
        int, Meta(ge=0, le=WAIT_MS_MAX, description="How long to wait if there is no event.")
    ] = 0


class FollowEvents(SelectEvents, kw_only=True):
    """A selection of events; a `Last-Event-ID` header has precedence over `cursor`."""

    outcome: JourneyOutcome | None = None
    cursor: JourneyCursor = ""


class JourneyMessage(Answer, kw_only=True, omit_defaults=True):
    """A message by its position; one that is scheduled by its schedule id."""

    topic: str
    id: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    schedule_id: str | UnsetType = UNSET


class JourneyEntry(Answer, kw_only=True, omit_defaults=True):
    """Something that happened to a message. What does not apply is left out."""

    kind: str
    message: JourneyMessage
    time: int
    after_ms: Annotated[int, Meta(description="Since the entry before.")] = 0
    node: int = -1
    group: str = ""
    consumer: str = ""
    attempt: int = 0
    principal: str = ""
    client_id: str = ""
    listener: str = ""
    reason: str = ""
    replicas: Annotated[int, Meta(description="That had the message when it was committed.")] = 0
    due: Annotated[int, Meta(description="When it is due, or delivered again.")] = 0
    recovered: Annotated[
        bool, Meta(description="Derived from the log after a crash; some details are lost.")
    ] = False


class JourneyStanding(Answer, kw_only=True, omit_defaults=True):
    """How a message stands in a group; without a group, by itself."""

    outcome: str
    message: JourneyMessage
    time: int
    group: str = ""
    attempts: int = 0
    consumer: str = ""
    reason: str = ""


class Journey(Answer, kw_only=True):
    """A message, those it came from and became, what happened to them, and how they stand."""

    message: JourneyMessage
    messages: list[JourneyMessage]
    entries: list[JourneyEntry]
    outcomes: list[JourneyStanding]
    complete: Annotated[bool, Meta(description="False if some of it was lost in a crash.")]


class JourneySummary(Answer, kw_only=True):
    """One of several journeys, and how the message stands."""

    message: JourneyMessage
    time: Annotated[int, Meta(description="Of the event, or the record, that was found.")]
    kind: Annotated[str, Meta(description="Of the event; empty if a record was found.")]
    outcomes: list[JourneyStanding]


class Journeys(Answer, kw_only=True):
    """Journeys. A page may be empty before the end, as a request reads a limited part."""

    journeys: list[JourneySummary]
    cursor: Annotated[str, Meta(description="Where the next page begins; empty at the end.")]
    read_bytes: int
    skipped_bytes: Annotated[int, Meta(description="Which filters of keys ruled out.")]


class JourneyCount(Answer, kw_only=True):
    kind: str
    group: str
    messages: int
    bytes: int


class JourneyStats(Answer, kw_only=True):
    """How many messages something happened to, by kind and group."""

    counts: list[JourneyCount]
    complete: Annotated[bool, Meta(description="False if only a part of the journal was read.")]


class JourneyEvent(Answer, kw_only=True, omit_defaults=True):
    """Something that happened to the messages from `offset` up to, not including, `end_offset`."""

    kind: str
    topic: str
    partition: int
    offset: int
    end_offset: int
    time: int
    last_time: Annotated[int, Meta(description="Of the last message.")]
    node: int = -1
    group: str = ""
    consumer: str = ""
    attempt: int = 0
    principal: str = ""
    client_id: str = ""
    listener: str = ""
    reason: str = ""
    replicas: int = 0
    bytes: int = 0
    due: int = 0
    recovered: bool = False


class JourneyEvents(Answer, kw_only=True):
    """Events in the order in which they were recorded, and where to read on."""

    events: list[JourneyEvent]
    cursor: str
    end: Annotated[bool, Meta(description="Whether nothing more is recorded so far.")]
