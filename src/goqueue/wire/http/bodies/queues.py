"""Queue groups: messages are leased, acknowledged, and come again if they are not."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from goqueue.broker.gate.queues import LaneStats, PartitionStats, QueueSettings, Totals
from goqueue.wire.carrier.bodies import Answer, Body
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
    Meta(ge=1, le=12 * 3600 * 1000, description="How long a message stays with its consumer."),
]
MessageState = Literal[
    "ready", "leased", "prepared", "retrying", "parked", "dead_lettering", "done", "not_there"
]


class PutGroup(Body, kw_only=True):
    """Make a group or replace its settings.

    A queue group has `settings`: those that are not named have their default. Without `settings`
    a group that exists stays as it is. A stream group begins in `topics` at `start`, where it has
    not committed anything yet.
    """

    kind: GroupKind = "queue"
    settings: QueueSettings | None = None
    topics: Annotated[list[TopicName], Meta(max_length=TOPICS_MAX)] = []
    start: Start = "earliest"


class ChangeGroup(Body, kw_only=True):
    """A setting that is `null` goes back to its default; one that is not named stays."""

    settings: Annotated[
        dict[str, str | bool | int | float | None], Meta(examples=[{"visibility_ms": 60_000}])
    ]


class StreamGroup(Answer, kw_only=True, tag_field="kind", tag="stream"):
    """A stream group: its members share the partitions and commit offsets."""

    name: str
    state: str
    epoch: int
    assignor: str
    members: list[GroupMember]


class QueueGroup(Answer, kw_only=True, tag_field="kind", tag="queue"):
    """A queue group: whoever receives a message has it alone, until it is acknowledged."""

    name: str
    settings: QueueSettings
    topics: Annotated[list[str], Meta(description="Those it has received from.")]


class Receive(Body, kw_only=True):
    """Take messages for a while. A group that does not exist is made."""

    topic: TopicName
    acks: Annotated[
        list[Receipt],
        Meta(
            max_length=MESSAGES_MAX,
            description=(
                "Of earlier messages that are done: they are acknowledged first, and the answer "
                "tells the result of each. It waits until that is durable, as that to `ack` does."
            ),
        ),
    ] = []
    max_messages: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)] = 10
    wait_ms: WaitMs = 0
    visibility_ms: Annotated[
        VisibilityMs | None, Meta(description="By default the group's setting.")
    ] = None
    consumer: Annotated[
        MemberId | None, Meta(description="Who receives; by default the client's address.")
    ] = None
    encoding: ReadEncoding = "utf8"
    bodies: Annotated[
        bool,
        Meta(
            description=(
                "`false` leaves the contents out: keys and values are null, headers empty. For "
                "consumers that read them elsewhere, by partition and offset."
            )
        ),
    ] = True


class ReceivedMessage(Message, gc=False):
    """A message that is held until `leased_until`, and the receipt that proves it."""

    receipt: str
    priority: Priority
    attempt: Annotated[int, Meta(description="1 at the first delivery.")]
    leased_until: int


class ReceiptResult(Answer, omit_defaults=True, gc=False):
    """The outcome for one receipt; without a problem it was accepted."""

    receipt: str
    problem: Problem | UnsetType = UNSET


class Settled(Answer, kw_only=True):
    """A result for each receipt, in the order they were sent."""

    results: list[ReceiptResult]
    failed: Annotated[int, Meta(description="How many receipts were not accepted.")]


class Received(Answer, kw_only=True):
    """The messages, and what became of the `acks` that came with the call."""

    acks: Settled | UnsetType = UNSET
    messages: list[ReceivedMessage]


class Ack(Body, kw_only=True):
    """These messages are done."""

    receipts: Receipts


class Nack(Body, kw_only=True):
    """These messages shall come again, after `delay_ms` or after the group's backoff."""

    receipts: Receipts
    delay_ms: Annotated[int, Meta(ge=0, le=12 * 3600 * 1000)] | None = None


class Reject(Body, kw_only=True):
    """These messages go to the dead-letter topic."""

    receipts: Receipts
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] = "rejected"


class Extend(Body, kw_only=True):
    """Keep these messages for longer, counted from now."""

    receipts: Receipts
    visibility_ms: VisibilityMs | None = None


class Peek(Body, kw_only=True):
    """What to look at; by default the first messages of each partition that are not done.

    The answer ends after some 4 MiB of messages, and has one at least.
    """

    topic: TopicName
    partition: Annotated[PartitionNumber | None, Meta(description="By default all.")] = None
    offset: Annotated[
        Offset | None,
        Meta(description="Begin there and show also what is done; needs a partition."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=PEEK_MAX)] = 10
    encoding: ReadEncoding = "utf8"


class PeekedMessage(Message, kw_only=True):
    """A message and what has become of it in this group."""

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
    """Deliver again from a moment or from offsets on, whatever was acknowledged; one of the two."""

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


class Purge(Body, kw_only=True):
    topic: TopicName


class Moved(Answer, kw_only=True):
    """Where each partition goes on."""

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
                "Of those in flight: acknowledged in a transaction that has not ended; nobody "
                "receives them until it has."
            )
        ),
    ]
    delayed: Annotated[
        int, Meta(description="Held back since they were stored, as the group's `delay_ms` says.")
    ]
    totals: Annotated[Totals, Meta(description="Since the node was started.")]
    lanes: list[LaneStats]
    partitions: list[PartitionStats]


class LaneOfTopic(Answer, kw_only=True):
    lane: Priority
    weight: int
    stored: Annotated[int, Meta(description="Messages in this lane that the topic keeps.")]
    stored_by_partition: list[int]


class LanesOfGroup(Answer, kw_only=True):
    group: str
    lanes: list[LaneStats]


class Lanes(Answer, kw_only=True):
    topic: str
    strict: Annotated[bool, Meta(description="A lower lane waits until the higher are empty.")]
    starvation_ms: Annotated[int, Meta(description="No lane waits longer than about this.")]
    lanes: list[LaneOfTopic]
    groups: list[LanesOfGroup]
