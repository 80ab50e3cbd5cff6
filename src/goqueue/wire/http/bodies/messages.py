"""Messages: published, read one by one and as a stream.

A request brings or takes many of them. So their structs are unseen by the garbage collector: they
hold no cycles and are gone at once. Those of answers are made by position, which costs half as much
as by name.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.fields import (
    MESSAGES_MAX,
    Acks,
    DurationMs,
    Encoding,
    Isolation,
    Limit,
    Moment,
    Offset,
    PartitionNumber,
    Priority,
    ReadEncoding,
    Timestamp,
    WaitMs,
)

HEADERS_MAX = 1000
Text = Annotated[str, Meta(description="In the encoding that is named beside it.")]


class Header(Body, kw_only=True, gc=False):
    """One header; a list of them keeps their order and allows repeats."""

    name: Annotated[str, Meta(min_length=1, max_length=1000, examples=["trace"])]
    value: Text | None
    encoding: Encoding = "utf8"


class Publish(Body, kw_only=True, gc=False):
    """One message. A `null` value is a tombstone: compaction removes the key."""

    value: Annotated[Text | None, Meta(examples=["hello"])]
    key: Text | None = None
    value_encoding: Encoding = "utf8"
    key_encoding: Encoding = "utf8"
    headers: Annotated[list[Header], Meta(max_length=HEADERS_MAX)] = []
    priority: Annotated[Priority | None, Meta(description="The lane; `normal` by default.")] = None
    delay_ms: Annotated[DurationMs | None, Meta(description="Deliver this much later.")] = None
    deliver_at: Annotated[
        Timestamp | str | None,
        Meta(
            description="Deliver then: milliseconds since 1970 or an RFC 3339 time. One that has "
            "passed means at once; the answer then has an offset and no `schedule_id`."
        ),
    ] = None
    ttl_ms: Annotated[
        DurationMs | None, Meta(description="Queue groups no longer receive it after this.")
    ] = None
    partition: Annotated[
        PartitionNumber | None, Meta(description="By default the key decides.")
    ] = None
    timestamp: Annotated[Timestamp | None, Meta(description="By default the time of arrival.")] = (
        None
    )


class PublishOne(Publish, kw_only=True, gc=False):
    """One message, and what its acknowledgement shall mean."""

    acks: Annotated[
        Acks,
        Meta(
            description=(
                "`all` and `leader` answer when the message is as durable as the node promises; "
                "`none` when it is written but perhaps not synced."
            )
        ),
    ] = "all"


class PublishMany(Body, kw_only=True):
    """Messages of one topic; each has a result of its own."""

    messages: Annotated[list[Publish], Meta(min_length=1, max_length=MESSAGES_MAX)]
    acks: Acks = "all"


class Published(Answer, omit_defaults=True, gc=False):
    """Where a message is, or, if it was delayed, under which id it waits."""

    topic: str
    id: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    schedule_id: str | UnsetType = UNSET
    deliver_at: int | UnsetType = UNSET


class PublishResult(Answer, omit_defaults=True, gc=False):
    """The outcome for one message of a batch: what was published, or why it was not."""

    published: Published | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class PublishedMany(Answer, kw_only=True):
    """A result for each message, in the order they were sent."""

    results: list[PublishResult]
    failed: Annotated[int, Meta(description="How many were not published.")]


class HeaderRead(Answer, kw_only=True, gc=False):
    name: str
    value: str | None
    encoding: Encoding


class Message(Answer, gc=False):
    """A message as it is stored."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    key_encoding: Encoding
    value: str | None
    value_encoding: Encoding
    headers: list[HeaderRead]


class Damage(Answer, kw_only=True):
    """Records that cannot be read any more, and were passed over."""

    partition: int
    offset: int
    next_offset: int
    detail: str


Cursor = Annotated[
    str,
    Meta(
        max_length=32_000,
        pattern=r"^[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*$",
        description="`partition:offset` pairs, as `cursor` of an answer or the id of an event.",
        examples=["0:42"],
    ),
]


class Read(Body, kw_only=True):
    """Where to read from and how much. Without a partition, all of them, oldest message first."""

    partition: PartitionNumber | None = None
    offset: Annotated[Offset | None, Meta(description="Needs a partition.")] = None
    from_: Annotated[Moment | None, Meta(description="Where to begin; `earliest` by default.")] = (
        field(name="from", default=None)
    )
    until: Annotated[Moment | None, Meta(description="Where to end; else at the newest.")] = None
    cursor: Cursor | None = None
    limit: Limit = 100
    wait_ms: WaitMs = 0
    isolation: Isolation = "committed"
    encoding: ReadEncoding = "utf8"


class Messages(Answer, kw_only=True):
    """A page of messages. `cursor` is where the next page begins."""

    messages: list[Message]
    cursor: str
    damaged: list[Damage] = []


class ReadOne(Body, kw_only=True):
    isolation: Isolation = "committed"
    encoding: ReadEncoding = "utf8"


class Stream(Body, kw_only=True):
    """Where a stream begins; `Last-Event-ID`, if the client sends one, goes before."""

    partition: PartitionNumber | None = None
    offset: Annotated[Offset | None, Meta(description="Needs a partition.")] = None
    from_: Annotated[Moment | None, Meta(description="Where to begin; `latest` by default.")] = (
        field(name="from", default=None)
    )
    cursor: Cursor | None = None
    isolation: Isolation = "committed"
    encoding: ReadEncoding = "utf8"
