"""Dead letters, and the jobs that redrive them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from goqueue.broker.gate.areas.dead_letters import LETTERS_NAMED_MAX, RATE_PER_S_MAX
from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.bodies.messages import Cursor, Damage, Message, Text
from goqueue.wire.http.fields import (
    INT64_MAX,
    Encoding,
    GroupName,
    Limit,
    Moment,
    Offset,
    PartitionNumber,
    ReadEncoding,
    TopicName,
)

Reason = Annotated[str, Meta(min_length=1, max_length=1000, examples=["deliveries_exhausted"])]
DeadLetterTopic = Annotated[
    TopicName | None,
    Meta(description="The dead-letter topic, if it is not the topic's own `.dlq`."),
]
HeaderName = Annotated[str, Meta(min_length=1, max_length=1000)]
RedriveState = Literal["running", "paused", "done", "cancelled", "failed"]


class HeaderFilter(Body, kw_only=True):
    """A required header; without a value, any value matches."""

    name: HeaderName
    value: Text | None = None
    encoding: Encoding = "utf8"


class LetterFilter(Body, kw_only=True):
    """A selection of dead letters; all given conditions must match."""

    reason: Reason | None = None
    group: GroupName | None = None
    key: Text | None = None
    key_encoding: Encoding = "utf8"
    from_: Annotated[Moment | None, Meta(description="Dead-lettered at this time or later.")] = (
        field(name="from", default=None)
    )
    until: Annotated[Moment | None, Meta(description="Dead-lettered before this time.")] = None
    header: HeaderFilter | None = None


class ListDeadLetters(Body, kw_only=True):
    """The dead letters to list, and where to start."""

    dead_letter_topic: DeadLetterTopic = None
    reason: Reason | None = None
    group: GroupName | None = None
    key: Text | None = None
    key_encoding: Encoding = "utf8"
    from_: Annotated[Moment | None, Meta(description="Dead-lettered at this time or later.")] = (
        field(name="from", default=None)
    )
    until: Annotated[Moment | None, Meta(description="Dead-lettered before this time.")] = None
    cursor: Cursor | None = None
    limit: Limit = 100
    encoding: ReadEncoding = "utf8"


class DeadLetterSource(Answer, kw_only=True):
    """The position of a message when it was dead-lettered."""

    topic: str
    partition: int
    offset: int
    group: str


class DeadLetter(Message, kw_only=True):
    """A dead letter. Topic, partition and offset are those of the dead-letter topic."""

    reason: str | None
    attempts: int | None
    died_at: int | None
    source: DeadLetterSource | None


class DeadLetters(Answer, kw_only=True):
    """A page of dead letters. `cursor` is the start of the next one, where new ones may come."""

    messages: list[DeadLetter]
    cursor: str
    end: Annotated[bool, Meta(description="Nothing is left after this page.")]
    total: Annotated[int, Meta(description="Dead letters of the topic, whatever the filters.")]
    matching: Annotated[
        int | None,
        Meta(description="How many match the filters. Null on later pages of a filtered list."),
    ]
    matching_is_complete: Annotated[
        bool, Meta(description="False if only the first 10,000 dead letters were examined.")
    ]
    damaged: list[Damage] = []


class SummariseDeadLetters(Body, kw_only=True):
    dead_letter_topic: DeadLetterTopic = None


class ReasonCount(Answer, kw_only=True):
    reason: Annotated[str | None, Meta(description="Null if none is recorded.")]
    messages: int


class LetterGroupCount(Answer, kw_only=True):
    group: str
    messages: int


class KeyCount(Answer, kw_only=True):
    key: str
    key_encoding: Encoding
    messages: int


class DeadLetterSummary(Answer, kw_only=True):
    """The most frequent reasons, groups and keys of dead letters, and when these died."""

    messages: Annotated[int, Meta(description="Dead letters that were counted.")]
    reasons: list[ReasonCount]
    groups: list[LetterGroupCount]
    keys: list[KeyCount]
    first_died_at: int | None
    last_died_at: int | None
    is_complete: Annotated[
        bool, Meta(description="False if there are more dead letters than were counted.")
    ]


class LetterPlace(Body, kw_only=True):
    partition: PartitionNumber
    offset: Offset


class StartRedrive(Body, kw_only=True):
    """What to redrive, and how; with `dry_run` nothing is moved, and the response is a preview."""

    filter: LetterFilter | None = None
    messages: Annotated[
        Annotated[list[LetterPlace], Meta(min_length=1, max_length=LETTERS_NAMED_MAX)] | None,
        Meta(description="Only these, by their position in the dead-letter topic."),
    ] = None
    max_messages: Annotated[int, Meta(ge=1, le=INT64_MAX)] | None = None
    rate_per_s: Annotated[int, Meta(ge=1, le=RATE_PER_S_MAX)] | None = None
    keep_copy: Annotated[bool, Meta(description="Keep the dead letters too.")] = False
    target_topic: Annotated[
        TopicName | None, Meta(description="By default each goes back to its source topic.")
    ] = None
    dead_letter_topic: DeadLetterTopic = None
    dry_run: bool = False
    encoding: ReadEncoding = "utf8"


class RedriveEvent(Answer, kw_only=True):
    time: int
    what: str


class Redrive(Answer, kw_only=True):
    """A job: what it was told to do, how far it is, and its history."""

    id: str
    topic: str
    dead_letter_topic: str
    state: RedriveState
    moved: Annotated[int, Meta(description="Brought back.")]
    passed_over: Annotated[int, Meta(description="Not asked for.")]
    failed: Annotated[int, Meta(description="Asked for, but could not be brought back.")]
    remaining: Annotated[int, Meta(description="Offsets that are still to be looked at.")]
    keep_copy: bool
    rate_per_s: int | None
    created_at: int
    ended_at: int | None
    problem: str
    history: list[RedriveEvent]


class RedrivePreview(Answer, kw_only=True):
    """What a redrive would bring back, and the first of it."""

    matching: int
    passed_over: int
    is_complete: Annotated[bool, Meta(description="False if there is more than was looked at.")]
    messages: list[DeadLetter]


class RedriveStarted(Answer, kw_only=True, omit_defaults=True):
    """The job, or with `dry_run` the preview."""

    redrive: Redrive | UnsetType = UNSET
    preview: RedrivePreview | UnsetType = UNSET


class Redrives(Answer, kw_only=True):
    """The jobs of a topic, newest first."""

    redrives: list[Redrive]
