"""Histograms, calendars, readers of topics, and messages that consumers have."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from goqueue.broker.gate.areas.overviews.inspection import BUCKETS_MAX, PLACES_MAX
from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.bodies.groups import SHARE, GroupKind, GroupStats
from goqueue.wire.http.bodies.queues import MessageState, VisibilityMs
from goqueue.wire.http.bodies.schedules import Due
from goqueue.wire.http.fields import (
    Limit,
    ListCursor,
    Match,
    MemberId,
    Moment,
    Offset,
    PartitionNumber,
    Priority,
    TopicName,
)

Buckets = Annotated[int, Meta(ge=1, le=BUCKETS_MAX, description="Number of intervals.")]
MissingNodes = Annotated[list[int], Meta(description="Nodes whose part is missing.")]


class ReadHistogram(Body, kw_only=True):
    from_: Annotated[
        Moment, Meta(description="Where to start; `earliest` is the oldest message.")
    ] = field(name="from", default="24h")
    until: Annotated[Moment | None, Meta(description="Where to end; now by default.")] = None
    buckets: Buckets = 60
    partition: Annotated[PartitionNumber | None, Meta(description="By default all.")] = None


class Histogram(Answer, kw_only=True):
    """Messages by the time that they carry. A batch counts where its newest message is."""

    from_: int = field(name="from")
    until: int
    bucket_ms: int
    counts: list[int]
    partitions: Annotated[int, Meta(description="Number of partitions that are counted.")]


class TopicReader(Answer, kw_only=True):
    """A group that reads a topic. Its figures are those of the topic."""

    name: str
    kind: GroupKind
    state: str
    share: Annotated[bool, Meta(description=SHARE)]
    stats: GroupStats


class TopicReaders(Answer, kw_only=True):
    groups: list[TopicReader]
    missing_nodes: MissingNodes


class Delivery(Answer, kw_only=True):
    """How a message stands in a group."""

    group: str
    kind: GroupKind
    state: Annotated[
        MessageState | Literal["consumed", "pending"],
        Meta(description="`consumed` and `pending` are for stream groups."),
    ]
    attempts: int
    consumer: str | None
    leased_until: int | None
    due_at: int | None


class Deliveries(Answer, kw_only=True):
    deliveries: list[Delivery]
    missing_nodes: MissingNodes


class ListInFlight(Body, kw_only=True):
    topic: TopicName
    partition: PartitionNumber | None = None
    consumer: MemberId | None = None
    limit: Limit = 100
    cursor: Annotated[
        str,
        Meta(
            max_length=40,
            pattern=r"^([0-9]{1,10}:[0-9]{1,19})?$",
            description="`cursor` of the last response; by default from the start.",
        ),
    ] = ""


class MessageInFlight(Answer, kw_only=True):
    """A message that a consumer has, without its contents."""

    id: str
    topic: str
    partition: int
    offset: int
    consumer: str
    attempt: int
    leased_at: int
    leased_until: int
    priority: Priority


class HoldingConsumer(Answer, kw_only=True):
    consumer: str
    messages: int


class InFlight(Answer, kw_only=True):
    """A page of messages; `consumers` are those of all pages, the largest first."""

    messages: list[MessageInFlight]
    consumers: list[HoldingConsumer]
    total: int
    cursor: str


class HandPlace(Body, kw_only=True):
    partition: PartitionNumber
    offset: Offset


class SettleByHand(Body, kw_only=True):
    """What to do with messages that consumers have, on behalf of these."""

    topic: TopicName
    action: Annotated[
        Literal["release", "extend", "ack", "reject"],
        Meta(
            description=(
                "`release`: deliver again, after `delay_ms`; `extend`: lease for `visibility_ms` "
                "from now; `ack`: done; `reject`: to the dead-letter topic, with `reason`."
            )
        ),
    ]
    messages: Annotated[list[HandPlace], Meta(min_length=1, max_length=PLACES_MAX)]
    delay_ms: Annotated[int, Meta(ge=0, le=12 * 3600 * 1000)] = 0
    visibility_ms: VisibilityMs | None = None
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] = "rejected"


class HandResult(Answer, kw_only=True, omit_defaults=True):
    """The result for one message; without a problem it is done."""

    partition: int
    offset: int
    problem: Problem | UnsetType = UNSET


class SettledByHand(Answer, kw_only=True):
    results: list[HandResult]
    failed: Annotated[int, Meta(description="Number of messages that were not in flight.")]


class ReadCalendar(Body, kw_only=True):
    """When messages are due: by default in the next day."""

    topic: TopicName | None = None
    from_: Due = field(name="from", default=None)
    until: Due = None
    buckets: Buckets = 60


class Calendar(Answer, kw_only=True):
    """Scheduled messages by the time at which they are due."""

    from_: int = field(name="from")
    until: int
    bucket_ms: int
    counts: list[int]
    nodes: Annotated[list[int], Meta(description="Nodes whose part is included.")]


class ListDeadLetterTopics(Body, kw_only=True):
    match: Match = ""
    limit: Limit = 100
    cursor: ListCursor = ""


class DeadLetterTopic(Answer, kw_only=True):
    topic: str
    dead_letter_topic: str
    messages: Annotated[int, Meta(description="Dead letters that were not redriven.")]
    bytes: int


class DeadLetterTopics(Answer, kw_only=True):
    """Topics with the suffix `.dlq`, by name; `cursor` is empty at the end."""

    topics: list[DeadLetterTopic]
    cursor: str
    total: int


class ListSubjects(Body, kw_only=True):
    match: Match = ""
    deleted: Annotated[bool, Meta(description="Those whose versions are all deleted.")] = False
    limit: Limit = 100
    cursor: ListCursor = ""


class SubjectOverview(Answer, kw_only=True):
    """A subject and its newest version."""

    subject: str
    version: int
    id: Annotated[int, Meta(description="The id of the schema.")]
    type: Literal["AVRO", "JSON", "PROTOBUF"]
    versions: Annotated[int, Meta(description="Versions that are not deleted.")]


class Subjects(Answer, kw_only=True):
    """Subjects that the caller may describe, by name; `cursor` is empty at the end."""

    subjects: list[SubjectOverview]
    cursor: str


class Setting(Answer, kw_only=True, omit_defaults=True):
    """What can be set, and what is in effect otherwise."""

    name: str
    kind: str
    default: str | int | float | bool | None
    description: str
    choices: list[str] | UnsetType = UNSET
    least: float | UnsetType = UNSET
    most: float | UnsetType = UNSET


class Settings(Answer, kw_only=True):
    settings: list[Setting]
