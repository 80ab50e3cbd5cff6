"""Browsing a topic: what to look for, and what the events of the stream contain."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.bodies.messages import Cursor, Message, Stream, TraceId
from goqueue.wire.http.fields import Limit, Moment, Offset, PartitionNumber, ReadEncoding

SCAN_BYTES = 256 << 20
SCAN_BYTES_MAX = 16 << 30
VALUE_BYTES = 64 << 10
VALUE_BYTES_MAX = 16 << 20
PATTERN_LENGTH_MAX = 1000
RATE_MAX = 100_000  # messages per second of a stream that is sampled

_Exact = Annotated[str, Meta(max_length=10_000)]
_Part = Annotated[str, Meta(min_length=1, max_length=10_000)]
_HeaderName = Annotated[str, Meta(min_length=1, max_length=1000)]
WholeKey = Annotated[_Exact | None, Meta(description="The whole key.")]
HeaderName = Annotated[_HeaderName | None, Meta(description="The name of a header.")]
HeaderValue = Annotated[_Exact | None, Meta(description="The whole value of that header.")]
TextPart = Annotated[
    _Part | None, Meta(description="In the key, the value or the value of a header.")
]
Pattern = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=PATTERN_LENGTH_MAX,
        description="A regular expression (RE2) for the key, the value or the value of a header.",
    ),
]
CutBytes = Annotated[int, Meta(ge=0, le=VALUE_BYTES_MAX)]
ValueBytes = Annotated[
    CutBytes,
    Meta(
        description=(
            "Longer values are cut. With a large `limit` they are cut shorter, so that a page has "
            "at most 32 MiB of them."
        ),
    ),
]


class Browse(Body, kw_only=True):
    """Where to look, and for what: all conditions hold."""

    key: WholeKey = None
    header: HeaderName = None
    header_value: HeaderValue = None
    text: TextPart = None
    regex: Pattern | None = None
    trace_id: TraceId = None
    order: Annotated[
        Literal["newest", "oldest"], Meta(description="Which messages come first.")
    ] = "newest"
    partition: Annotated[PartitionNumber | None, Meta(description="By default all.")] = None
    offset: Annotated[
        Offset | None,
        Meta(description="Needs a partition: the first message, or with `newest` the last."),
    ] = None
    from_: Annotated[Moment | None, Meta(description="Only messages that are not older.")] = field(
        name="from", default=None
    )
    until: Annotated[Moment | None, Meta(description="Only older messages.")] = None
    cursor: Annotated[
        Cursor | None,
        Meta(description="`cursor` of the last event; repeat the other options unchanged."),
    ] = None
    limit: Limit = 100
    scan_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=SCAN_BYTES_MAX,
            description="About how many bytes of the log to scan; then the stream ends.",
        ),
    ] = SCAN_BYTES
    encoding: ReadEncoding = "utf8"
    value_bytes: ValueBytes = VALUE_BYTES


class Tail(Stream, kw_only=True):
    """Where a stream starts, and conditions on its messages, all of which hold."""

    key: WholeKey = None
    trace_id: TraceId = None
    header: HeaderName = None
    header_value: HeaderValue = None
    text: TextPart = None
    regex: Pattern | None = None
    sample_per_s: Annotated[
        Annotated[int, Meta(ge=1, le=RATE_MAX)] | None,
        Meta(
            description=(
                "Send at most so many messages in a second. An event `skipped` says how many "
                "were left out."
            )
        ),
    ] = None
    value_bytes: Annotated[
        CutBytes | None,
        Meta(
            description=(
                "Longer values are cut, and each message has `value_bytes` and `is_cut`. "
                "By default values are whole."
            )
        ),
    ] = None


class BrowsedMessage(Message, gc=False):
    """A message, of which the value may be cut."""

    value_bytes: int
    is_cut: bool


Reason = Literal["limit", "end", "budget"]  # why a stream ended


class Phase(Answer, kw_only=True):
    phase: Literal["looking_up", "scanning"]


class Progress(Answer, kw_only=True):
    """How far a scan is. Its cursor is where a scan could continue."""

    messages: int
    scanned_bytes: int
    skipped_bytes: int
    share: float | None
    cursor: str


class Browsed(Answer, kw_only=True):
    """The end of a stream. Without a cursor there is nothing more to find."""

    reason: Reason
    messages: int
    scanned_bytes: int
    skipped_bytes: int
    elapsed_ms: int
    cursor: str


class Skipped(Answer, kw_only=True):
    messages: Annotated[int, Meta(description="Messages of the tail that were not sent.")]
