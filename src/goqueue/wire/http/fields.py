"""The types of fields in bodies and queries, with their ranges."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
WAIT_MS_MAX = 60_000
MESSAGES_MAX = 1000  # published, read or received by one request
DURATION_MS_MAX = 100 * 366 * 24 * 3600 * 1000  # a hundred years

TopicName = Annotated[
    str, Meta(min_length=1, max_length=249, pattern=r"^[a-zA-Z0-9._-]+$", examples=["orders"])
]
GroupName = Annotated[str, Meta(min_length=1, max_length=249, examples=["billing"])]
PartitionNumber = Annotated[int, Meta(ge=0, le=INT32_MAX, description="Number of a partition.")]
PartitionCount = Annotated[int, Meta(ge=1, le=10_000, description="Number of partitions.")]
NodeId = Annotated[int, Meta(ge=0, le=INT32_MAX, description="Number of a node.")]
Offset = Annotated[
    int, Meta(ge=0, le=INT64_MAX, description="Number of a record in its partition.")
]
Timestamp = Annotated[int, Meta(ge=0, le=INT64_MAX, description="Milliseconds since 1970, UTC.")]
WaitMs = Annotated[
    int,
    Meta(ge=0, le=WAIT_MS_MAX, description="How long to wait if there is no message."),
]
DurationMs = Annotated[int, Meta(ge=0, le=DURATION_MS_MAX)]
Limit = Annotated[int, Meta(ge=1, le=MESSAGES_MAX, description="Most messages to return.")]
ListCursor = Annotated[
    str,
    Meta(max_length=1000, description="`cursor` of the last response; by default from the start."),
]
Order = Annotated[Literal["asc", "desc"], Meta(description="Ascending or descending.")]
Match = Annotated[
    str, Meta(max_length=249, description="Only names that contain this text, in any case.")
]
Moment = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        description=(
            "`earliest`, `latest`, a duration before now such as `90s`, `15m`, `2h` or `7d`, a "
            "time such as `2026-01-31T12:00:00Z`, or milliseconds since 1970."
        ),
        examples=["2h"],
    ),
]
RedriveId = Annotated[str, Meta(min_length=1, max_length=100)]
Receipt = Annotated[str, Meta(max_length=200)]
Receipts = Annotated[
    list[Receipt],
    Meta(min_length=1, max_length=MESSAGES_MAX, description="Receipts returned by `receive`."),
]
TransactionId = Annotated[
    str,
    Meta(min_length=1, max_length=400, description="Id returned when the transaction was begun."),
]
QueryId = Annotated[
    str, Meta(min_length=1, max_length=100, pattern=r"^[a-zA-Z0-9._-]+$", examples=["totals"])
]
Epoch = Annotated[int, Meta(ge=0, le=INT64_MAX, description="Number of an epoch of a query.")]
KeyId = Annotated[str, Meta(min_length=1, max_length=128)]
MessageId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=300,
        description="`topic:partition:offset`, or the schedule id of a delayed message.",
    ),
]
ScheduleId = Annotated[str, Meta(min_length=1, max_length=100)]
Priority = Literal["critical", "high", "normal", "low", "background"]
Acks = Literal["all", "leader", "none"]
Encoding = Literal["utf8", "base64"]
Start = Literal["earliest", "latest"]
MemberId = Annotated[str, Meta(min_length=1, max_length=255)]
MemberEpoch = Annotated[
    int, Meta(ge=1, le=INT32_MAX, description="As in the last response to this member.")
]
Isolation = Annotated[
    Literal["committed", "uncommitted"],
    Meta(
        description=(
            "`committed`: only committed transactions, up to the first that is open; "
            "`uncommitted`: open and aborted transactions too."
        )
    ),
]
ReadEncoding = Annotated[
    Encoding,
    Meta(
        description=(
            "`utf8`: text; bytes that are not UTF-8 are base64 and marked as such; "
            "`base64`: everything in base64."
        )
    ),
]
