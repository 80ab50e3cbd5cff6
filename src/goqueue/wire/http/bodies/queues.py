"""Queue groups: messages are leased, and delivered again unless they are acknowledged."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from goqueue.broker.gate.areas.queues import LaneStats, PartitionStats, QueueSettings, Totals
from goqueue.wire.carrier.bodies import Answer, BatchAnswer, Body
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.bodies.groups import GroupKind, GroupMember
from goqueue.wire.http.bodies.messages import Message
from goqueue.wire.http.fields import (
    MESSAGES_MAX,
    MemberId,
    Offset,
    PartitionNumber,
    Priority,
    ReadEncoding,
    Receipt,
    Receipts,
    Start,
    TopicName,
    WaitMs,
)

TOPICS_MAX = 1000
PEEK_MAX = 100

VisibilityMs = Annotated[
    int,
    Meta(ge=1, le=12 * 3600 * 1000, description="How long a message is leased to its consumer."),
]
MessageState = Literal[
    "ready", "leased", "prepared", "retrying", "parked", "dead_lettering", "done", "not_there"
]


class PutGroup(Body, kw_only=True):
    """Create a group or replace its settings.

    A queue group has `settings`: those not given get their default. Without `settings` an existing
    group is unchanged. A stream group starts in `topics` at `start`, wherever it has no committed
    offset.
    """

    kind: GroupKind = "queue"
    settings: QueueSettings | None = None
    topics: Annotated[list[TopicName], Meta(max_length=TOPICS_MAX)] = []
    start: Start = "earliest"


class ChangeGroup(Body, kw_only=True):
    """A setting that is `null` is reset to its default; one that is not given is kept."""

    settings: Annotated[
        dict[str, str | bool | int | float | None], Meta(examples=[{"visibility_ms": 60_000}])
    ]


class StreamGroup(Answer, kw_only=True, tag_field="kind", tag="stream"):
    """A stream group: its members divide the partitions and commit offsets."""

    name: str
    state: str
    epoch: int
    assignor: str
    members: list[GroupMember]
    member_count: int


class QueueGroup(Answer, kw_only=True, tag_field="kind", tag="queue"):
    """A queue group: each message is leased to one consumer at a time until it is settled."""

    name: str
    settings: QueueSettings
    topics: Annotated[list[str], Meta(description="Topics it has received from.")]


class Receive(Body, kw_only=True):
    """Lease messages. A group that does not exist is created."""

    topic: TopicName
    acks: Annotated[
        list[Receipt],
        Meta(
            max_length=MESSAGES_MAX,
            description=(
                "Receipts of earlier messages to acknowledge first. The response contains the "
                "result of each, and is sent when that is durable, as for `ack`."
            ),
        ),
    ] = []
    max_messages: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)] = 10
    wait_ms: WaitMs = 0
    visibility_ms: Annotated[
        VisibilityMs | None, Meta(description="By default the group's setting.")
    ] = None
    consumer: Annotated[
        MemberId | None, Meta(description="Name of the consumer; by default the client's address.")
    ] = None
    encoding: ReadEncoding = "utf8"
    bodies: Annotated[
        bool,
        Meta(
            description=(
                "`false` omits the contents: keys and values are null, headers empty. For "
                "consumers that read them elsewhere, by partition and offset."
            )
        ),
    ] = True


class ReceivedMessage(Message, gc=False):
    """A message leased until `leased_until`, with the receipt to settle it."""

    receipt: str
    priority: Priority
    attempt: Annotated[int, Meta(description="1 at the first delivery.")]
    leased_until: int


class ReceiptResult(Answer, omit_defaults=True, gc=False):
    """The result for one receipt; without a problem it was accepted."""

    receipt: str
    problem: Problem | UnsetType = UNSET


class Settled(BatchAnswer, kw_only=True):
    """One result per receipt, in the order of the request."""

    results: list[ReceiptResult]
    failed: Annotated[int, Meta(description="Number of receipts that were not accepted.")]


class Received(Answer, kw_only=True):
    """The messages, and the results of the `acks` in the request."""

    acks: Settled | UnsetType = UNSET
    messages: list[ReceivedMessage]


class Ack(Body, kw_only=True):
    """Acknowledge these messages."""

    receipts: Receipts


class Nack(Body, kw_only=True):
    """Deliver these messages again, after `delay_ms` or after the backoff of the group."""

    receipts: Receipts
    delay_ms: Annotated[int, Meta(ge=0, le=12 * 3600 * 1000)] | None = None


class Reject(Body, kw_only=True):
    """Move these messages to the dead-letter topic."""

    receipts: Receipts
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] = "rejected"


class Extend(Body, kw_only=True):
    """Extend the leases of these messages, counted from now."""

    receipts: Receipts
    visibility_ms: VisibilityMs | None = None


class Peek(Body, kw_only=True):
    """What to show; by default the first unsettled messages of each partition.

    The response is limited to about 4 MiB of messages, but contains at least one.
    """

    topic: TopicName
    partition: Annotated[PartitionNumber | None, Meta(description="By default all.")] = None
    offset: Annotated[
        Offset | None,
        Meta(description="Start at this offset and show settled messages too; needs a partition."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=PEEK_MAX)] = 10
    encoding: ReadEncoding = "utf8"


class PeekedMessage(Message, kw_only=True):
    """A message and its state in this group."""

    priority: Priority
    state: MessageState
    attempts: int
    consumer: str | None
    leased_until: int | None
    due_at: Annotated[int | None, Meta(description="When it may be delivered again.")]


class Peeked(Answer, kw_only=True):
    messages: list[PeekedMessage]


class PartitionOffset(Body, kw_only=True):
    partition: PartitionNumber
    offset: Offset


class Rewind(Body, kw_only=True):
    """Deliver messages again from either a time or offsets, including acknowledged ones."""

    topic: TopicName
    to: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | None,
        Meta(
            description=(
                "`earliest`, `latest`, a duration before now such as `2h`, a time such as "
                "`2026-01-31T12:00:00Z`, or milliseconds since 1970."
            )
        ),
    ] = None
    offsets: Annotated[list[PartitionOffset], Meta(min_length=1, max_length=10_000)] | None = None
    dry_run: Annotated[bool, Meta(description="Only return where partitions would continue.")] = (
        False
    )


class Purge(Body, kw_only=True):
    topic: TopicName


class Moved(Answer, kw_only=True):
    """The next offset of each partition."""

    topic: str
    offsets: list[PartitionOffset]


class QueueOfTopic(Body, kw_only=True):
    topic: TopicName


class Stats(Answer, kw_only=True):
    group: str
    topic: str
    ready: int
    in_flight: int
    retrying: int
    parked: int
    dead_lettering: int
    prepared: Annotated[
        int,
        Meta(
            description=(
                "Part of those in flight: acknowledged in an open transaction; they are not "
                "delivered until it ends."
            )
        ),
    ]
    delayed: Annotated[
        int, Meta(description="Not yet visible, because of the `delay_ms` of the group.")
    ]
    totals: Annotated[Totals, Meta(description="Since the node was started.")]
    lanes: list[LaneStats]
    partitions: list[PartitionStats]


class LaneOfTopic(Answer, kw_only=True):
    lane: Priority
    weight: int
    stored: Annotated[int, Meta(description="Retained messages of the topic in this lane.")]
    stored_by_partition: list[int]


class LanesOfGroup(Answer, kw_only=True):
    group: str
    lanes: list[LaneStats]


class Lanes(Answer, kw_only=True):
    topic: str
    strict: Annotated[bool, Meta(description="A lower lane waits until the higher are empty.")]
    starvation_ms: Annotated[int, Meta(description="Approximate limit of how long a lane waits.")]
    lanes: list[LaneOfTopic]
    groups: list[LanesOfGroup]
