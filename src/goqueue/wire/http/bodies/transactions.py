"""Transactions: what is done in one counts when it is committed, all of it or nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.bodies.groups import Commit
from goqueue.wire.http.bodies.messages import Publish
from goqueue.wire.http.fields import (
    INT32_MAX,
    INT64_MAX,
    MESSAGES_MAX,
    GroupName,
    Receipts,
    TopicName,
    TransactionId,
)

TransactionalId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=249,
        description=(
            "A name of the one who writes. Beginning another transaction under it aborts the last "
            "one and turns its writer away; so give each writer a name that it keeps."
        ),
        examples=["billing-3"],
    ),
]
TransactionState = Literal[
    "empty",
    "ongoing",
    "prepared",
    "prepare_commit",
    "prepare_abort",
    "complete_commit",
    "complete_abort",
    "dead",
]


class Begin(Body, kw_only=True):
    """Begin a transaction."""

    transactional_id: Annotated[
        TransactionalId | None, Meta(description="By default the node makes one up.")
    ] = None
    timeout_ms: Annotated[
        int,
        Meta(ge=1, le=INT32_MAX, description="It is aborted if it has not ended by then."),
    ] = 60_000


class Begun(Answer, kw_only=True):
    """A transaction, and the id under which it is used from now on."""

    id: TransactionId
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int


class ListTransactions(Body, kw_only=True):
    """Which transactions; each filter that is given must be met."""

    state: TransactionState | None = None
    prefix: Annotated[
        str, Meta(max_length=255, description="Only transactional ids that begin so.")
    ] = ""
    producer_id: Annotated[int, Meta(ge=0, le=INT64_MAX)] | None = None
    older_than_ms: Annotated[
        Annotated[int, Meta(ge=0, le=INT64_MAX)] | None,
        Meta(description="Only those that have been open for longer."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class Participant(Answer, kw_only=True):
    topic: str
    partition: int


class Transaction(Answer, kw_only=True):
    """The newest transaction of a transactional id."""

    id: TransactionId
    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at: Annotated[int | None, Meta(description="Null when none is open.")]
    updated_at: int
    participants: Annotated[
        list[Participant],
        Meta(
            description=(
                "What it has written to. Internal topics stand for offsets, acknowledgements and "
                "delayed messages."
            )
        ),
    ]


class TransactionShown(Transaction, kw_only=True):
    superseded: Annotated[
        bool,
        Meta(
            description=(
                "Another transaction has been begun under the transactional id since, or this one "
                "timed out; what is shown is the newest."
            )
        ),
    ]


class Transactions(Answer, kw_only=True):
    transactions: list[Transaction]
    total: Annotated[int, Meta(description="How many there are, also beyond the limit.")]


class PublishTo(Publish, kw_only=True, gc=False):
    """One message and its topic."""

    topic: TopicName


class PublishInTransaction(Body, kw_only=True):
    """Messages of any topics. All of them are stored, or, if one is refused, none."""

    messages: Annotated[list[PublishTo], Meta(min_length=1, max_length=MESSAGES_MAX)]


class CommitOffsets(Commit, kw_only=True):
    """Offsets of a stream group, which count with the commit."""

    group: GroupName


class AckInTransaction(Body, kw_only=True):
    """These messages of a queue group are done if the transaction is committed.

    Until it ends nobody receives them. An abort lets them come again at once, and counts as a
    delivery that came to nothing.
    """

    group: GroupName
    receipts: Receipts


class Ended(Answer, kw_only=True):
    """The outcome, which every reader can see."""

    id: TransactionId
    outcome: Literal["committed", "aborted"]
