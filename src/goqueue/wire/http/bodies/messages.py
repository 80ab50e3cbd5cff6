"""Messages: published, read one by one and as a stream.

A request carries many of them, so their structs are not tracked by the garbage collector: they
contain no cycles and are short-lived. Those of responses are constructed by position, which costs
half as much as by name.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType, field

from goqueue.wire.carrier.bodies import Answer, BatchAnswer, Body
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
TRACE_PARENT = "traceparent"  # of W3C Trace Context; the same as a header of a request or a record
Text = Annotated[str, Meta(description="In the encoding given beside it.")]


class Header(Body, kw_only=True, gc=False):
    """One header; a list of them keeps their order and allows repeats."""

    name: Annotated[str, Meta(min_length=1, max_length=1000, examples=["trace"])]
    value: Text | None
    encoding: Encoding = "utf8"


class Publish(Body, kw_only=True, gc=False):
    """One message, with a `value` or with `json`.

    A `null` value is a tombstone: compaction removes the key.
    """

    value: Annotated[Text | UnsetType | None, Meta(examples=["hello"])] = UNSET
    json: Annotated[
        Raw | UnsetType,
        Meta(
            description=(
                "The value as JSON, instead of `value`. It is stored as it is written, without "
                "white space between its parts: numbers, strings and the order of members do not "
                "change. `null` is stored as the text `null`."
            ),
            examples=[{"total": 12}],
        ),
    ] = UNSET
    key: Text | None = None
    key_json: Annotated[
        Raw | UnsetType, Meta(description="The key as JSON, instead of `key`; stored like `json`.")
    ] = UNSET
    value_encoding: Encoding = "utf8"
    key_encoding: Encoding = "utf8"
    headers: Annotated[list[Header], Meta(max_length=HEADERS_MAX)] = []
    priority: Annotated[
        Priority | None, Meta(description="Priority lane; `normal` by default.")
    ] = None
    delay_ms: Annotated[DurationMs | None, Meta(description="Deliver after this delay.")] = None
    deliver_at: Annotated[
        Timestamp | str | None,
        Meta(
            description="Deliver at this time: milliseconds since 1970 or RFC 3339. A time in "
            "the past means at once; the result then has an offset and no `schedule_id`."
        ),
    ] = None
    ttl_ms: Annotated[
        DurationMs | None,
        Meta(description="Time to live: queue groups do not receive it after this."),
    ] = None
    partition: Annotated[PartitionNumber | None, Meta(description="By default chosen by key.")] = (
        None
    )
    timestamp: Annotated[Timestamp | None, Meta(description="By default the time of arrival.")] = (
        None
    )

    @property
    def trace_header(self) -> bytes:
        """Its own `traceparent`; empty if it has none."""
        for one in self.headers:
            if one.name == TRACE_PARENT:
                return (one.value or "").encode()
        return b""


class PublishOne(Publish, kw_only=True, gc=False):
    """One message, and when it is acknowledged."""

    acks: Annotated[
        Acks,
        Meta(
            description=(
                "`all` and `leader` respond when the message is as durable as the node guarantees; "
                "`none` when it is written but perhaps not synced."
            )
        ),
    ] = "all"


class PublishMany(Body, kw_only=True):
    """Messages of one topic; each has its own result."""

    messages: Annotated[list[Publish], Meta(min_length=1, max_length=MESSAGES_MAX)]
    acks: Acks = "all"

    @property
    def trace_header(self) -> bytes:
        """The `traceparent` of the first message."""
        return self.messages[0].trace_header


class Published(Answer, omit_defaults=True, gc=False):
    """The position of a message, or the schedule id of a delayed one."""

    topic: str
    id: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    schedule_id: str | UnsetType = UNSET
    deliver_at: int | UnsetType = UNSET


class PublishResult(Answer, omit_defaults=True, gc=False):
    """The result for one message of a batch: what was published, or why it was not."""

    published: Published | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class PublishedMany(BatchAnswer, kw_only=True):
    """One result per message, in the order of the request."""

    results: list[PublishResult]
    failed: Annotated[int, Meta(description="Number of messages that were not published.")]


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
    """Damaged records, which were skipped."""

    partition: int
    offset: int
    next_offset: int
    detail: str


Cursor = Annotated[
    str,
    Meta(
        max_length=32_000,
        pattern=r"^[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*$",
        description="`partition:offset` pairs: the `cursor` of a response, or the id of an event.",
        examples=["0:42"],
    ),
]


class Read(Body, kw_only=True):
    """Where to read from and how much; without a partition, all of them, oldest message first."""

    partition: PartitionNumber | None = None
    offset: Annotated[Offset | None, Meta(description="Needs a partition.")] = None
    from_: Annotated[Moment | None, Meta(description="Where to start; `earliest` by default.")] = (
        field(name="from", default=None)
    )
    until: Annotated[
        Moment | None, Meta(description="Where to end; by default at the latest message.")
    ] = None
    cursor: Cursor | None = None
    limit: Limit = 100
    wait_ms: WaitMs = 0
    isolation: Isolation = "committed"
    encoding: ReadEncoding = "utf8"


class Messages(Answer, kw_only=True):
    """A page of messages. `cursor` is the start of the next page."""

    messages: list[Message]
    cursor: str
    damaged: list[Damage] = []


_Exact = Annotated[str, Meta(max_length=10_000)]
_Part = Annotated[str, Meta(min_length=1, max_length=10_000)]
_HeaderName = Annotated[str, Meta(min_length=1, max_length=1000)]
TraceId = Annotated[
    Annotated[str, Meta(min_length=32, max_length=64)] | None,
    Meta(
        description="In a header `traceparent` or `AWSTraceHeader`: 32 hexadecimal digits.",
        examples=["0af7651916cd43dd8448eb211c80319c"],
    ),
]


class Search(Body, kw_only=True):
    """Conditions on messages, all of which hold, and where to search."""

    key: Annotated[_Exact | None, Meta(description="The whole key.")] = None
    trace_id: TraceId = None
    header: Annotated[_HeaderName | None, Meta(description="The name of a header.")] = None
    header_value: Annotated[_Exact | None, Meta(description="The whole value of that header.")] = (
        None
    )
    text: Annotated[
        _Part | None, Meta(description="In the key, the value or the value of a header.")
    ] = None
    partition: PartitionNumber | None = None
    from_: Annotated[Moment | None, Meta(description="Where to start; `earliest` by default.")] = (
        field(name="from", default=None)
    )
    until: Annotated[Moment | None, Meta(description="Where to end; by default at the end.")] = None
    cursor: Cursor | None = None
    limit: Limit = 100
    encoding: ReadEncoding = "utf8"


class Found(Answer, kw_only=True):
    """Messages, the oldest first. A page may be empty before the end of the search."""

    messages: list[Message]
    cursor: Annotated[str, Meta(description="Where the search goes on; empty at its end.")]
    read_bytes: int
    skipped_bytes: Annotated[int, Meta(description="Which filters of keys ruled out.")]


class ReadOne(Body, kw_only=True):
    isolation: Isolation = "committed"
    encoding: ReadEncoding = "utf8"


class Stream(Body, kw_only=True):
    """Where a stream starts; a `Last-Event-ID` header has precedence."""

    partition: PartitionNumber | None = None
    offset: Annotated[Offset | None, Meta(description="Needs a partition.")] = None
    from_: Annotated[Moment | None, Meta(description="Where to start; `latest` by default.")] = (
        field(name="from", default=None)
    )
    cursor: Cursor | None = None
    isolation: Isolation = "committed"
    encoding: ReadEncoding = "utf8"
