"""Groups: what both kinds have in common, and stream groups."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.bodies.messages import Damage, Message
from goqueue.wire.http.fields import (
    INT32_MAX,
    INT64_MAX,
    Limit,
    MemberEpoch,
    MemberId,
    Offset,
    PartitionNumber,
    ReadEncoding,
    Start,
    TopicName,
    WaitMs,
)

TOPICS_MAX = 1000
OFFSETS_MAX = 10_000

GroupKind = Literal["stream", "queue"]
RebalanceTimeoutMs = Annotated[
    int,
    Meta(ge=0, le=INT32_MAX, description="How long the member may take to give up partitions."),
]


class TopicPartitions(Body, kw_only=True):
    topic: TopicName
    partitions: Annotated[list[PartitionNumber], Meta(max_length=10_000)]


Owned = Annotated[list[TopicPartitions], Meta(max_length=TOPICS_MAX)]


class ListGroups(Body, kw_only=True):
    kind: GroupKind | None = None
    prefix: Annotated[str, Meta(max_length=255, description="Only names that begin so.")] = ""


class Group(Answer, kw_only=True):
    name: str
    kind: GroupKind
    state: str


class Groups(Answer, kw_only=True):
    groups: list[Group]


class Join(Body, kw_only=True):
    """A member enters the group and tells which topics it wants to read."""

    topics: Annotated[list[TopicName], Meta(max_length=TOPICS_MAX)] = []
    topic_pattern: Annotated[
        str, Meta(max_length=1024, description="A regular expression that topics must match.")
    ] = ""
    member_id: Annotated[MemberId | None, Meta(description="By default the broker makes one.")] = (
        None
    )
    instance_id: Annotated[
        MemberId | None,
        Meta(description="Keeps the partitions through a restart of the member."),
    ] = None
    rebalance_timeout_ms: RebalanceTimeoutMs = 60_000
    assignor: Annotated[
        Literal["uniform", "sticky", "range", "roundrobin"] | None,
        Meta(description="`uniform` by default."),
    ] = None


class Heartbeat(Body, kw_only=True):
    """The member lives. `owned` confirms what it holds, and so what it has given up."""

    member_id: MemberId
    member_epoch: MemberEpoch
    instance_id: MemberId | None = None
    owned: Owned | None = None
    topics: Annotated[list[TopicName], Meta(max_length=TOPICS_MAX)] | None = None


class Revoke(Body, kw_only=True):
    """The member has stopped reading partitions it was asked for; `owned` is what it kept."""

    member_id: MemberId
    member_epoch: MemberEpoch
    instance_id: MemberId | None = None
    owned: Owned


class Leave(Body, kw_only=True):
    member_id: MemberId
    instance_id: MemberId | None = None
    restarts: Annotated[
        bool, Meta(description="The instance comes back; keep its partitions for a session.")
    ] = False


class Member(Answer, kw_only=True):
    """What the member shall do next. `assignment` is `null` when it has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: list[TopicPartitions] | None


class Left(Answer, kw_only=True):
    member_id: str


class OffsetToCommit(Body, kw_only=True):
    topic: TopicName
    partition: PartitionNumber
    offset: Annotated[Offset, Meta(description="Of the next record to read.")]
    metadata: Annotated[str, Meta(max_length=4096)] = ""


class Commit(Body, kw_only=True):
    """Offsets of a member, or, while the group has none, of anybody."""

    offsets: Annotated[list[OffsetToCommit], Meta(min_length=1, max_length=OFFSETS_MAX)]
    member_id: MemberId | None = None
    member_epoch: MemberEpoch | None = None


class CommitResult(Answer, kw_only=True, omit_defaults=True):
    """The outcome for one partition; without a problem its offset is committed."""

    topic: str
    partition: int
    problem: Problem | UnsetType = UNSET


class Committed(Answer, kw_only=True):
    results: list[CommitResult]
    failed: Annotated[int, Meta(description="How many offsets were not committed.")]


class Reset(Body, kw_only=True):
    """Move the committed offsets of a group that has no members."""

    topic: TopicName
    to: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            description=(
                "`earliest`, `latest`, `offset:42`, a duration before now such as `2h`, a time "
                "such as `2026-01-31T12:00:00Z`, or milliseconds since 1970."
            ),
            examples=["earliest"],
        ),
    ]
    partitions: Annotated[
        Annotated[list[PartitionNumber], Meta(min_length=1, max_length=10_000)] | None,
        Meta(description="By default all."),
    ] = None
    dry_run: Annotated[bool, Meta(description="Only tell what would happen.")] = False


class ResetOffset(Answer, kw_only=True):
    partition: int
    offset_before: int | None
    offset: int


class ResetDone(Answer, kw_only=True):
    topic: str
    dry_run: bool
    offsets: list[ResetOffset]


class Poll(Body, kw_only=True):
    """Read on where this member stands. Polling counts as a heartbeat."""

    member_id: MemberId
    member_epoch: MemberEpoch
    limit: Limit = 100
    wait_ms: Annotated[
        WaitMs, Meta(description="At most a heartbeat interval is waited, so that polls go on.")
    ] = 0
    auto_commit: Annotated[
        bool,
        Meta(
            description=(
                "Commit what earlier polls have handed out, and give up revoked partitions "
                "without being told."
            )
        ),
    ] = False
    start: Annotated[
        Start, Meta(description="Where to begin in a partition without committed offset.")
    ] = "earliest"
    after: Annotated[
        Annotated[int, Meta(ge=0, le=INT64_MAX)] | None,
        Meta(
            description=(
                "`poll` of the last answer that arrived; if a later one was lost, its messages "
                "come again."
            )
        ),
    ] = None
    encoding: ReadEncoding = "utf8"


class PartitionReset(Answer, kw_only=True):
    """Retention has removed what was to be read next; reading went on elsewhere."""

    topic: str
    partition: int
    offset_before: int
    offset: int


class Polled(Answer, kw_only=True):
    poll: Annotated[int, Meta(description="The number of this answer, for the next `after`.")]
    messages: list[Message]
    member_epoch: int
    assignment: list[TopicPartitions] | None
    resets: list[PartitionReset] = []
    damaged: list[Damage] = []


class CommittedOffset(Answer, kw_only=True):
    topic: str
    partition: int
    offset: int
    metadata: str
    committed_at: int


class Offsets(Answer, kw_only=True):
    group: str
    offsets: list[CommittedOffset]


class PartitionLag(Answer, kw_only=True):
    """`lag` is how many offsets are still to be read or to be acknowledged.

    A partition without a committed offset counts from the start of its log. Markers of transactions
    and aborted records after the last record do not count.
    """

    topic: str
    partition: int
    offset: int | None
    end_offset: int
    lag: int


class Lag(Answer, kw_only=True):
    group: str
    kind: GroupKind
    lag: int
    partitions: list[PartitionLag]


class GroupMember(Answer, kw_only=True):
    member_id: str
    instance_id: str | None
    client_host: str
    member_epoch: int
    subscribed_topics: list[str]
    topic_pattern: str
    assigned: list[TopicPartitions]
    target: list[TopicPartitions]


class Assignment(Answer, kw_only=True):
    group: str
    state: str
    epoch: int
    members: list[GroupMember]


class Rebalance(Answer, kw_only=True):
    started_at: int
    duration_ms: int
    reason: str
    partitions_moved: int


class Rebalances(Answer, kw_only=True):
    group: str
    under_way: bool
    count: int
    timeouts: int
    partitions_moved: int
    duration_ms_last: int
    duration_ms_max: int
    duration_ms_total: int
    reasons: dict[str, int]
    history: list[Rebalance]


class GroupOfMember(Body, kw_only=True):
    member_id: MemberId | None = None
