"""Streaming queries: their transactions become visible one epoch at a time, exactly once."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.fields import (
    INT32_MAX,
    INT64_MAX,
    Epoch,
    Limit,
    ListCursor,
    Match,
    QueryId,
    TransactionId,
)

EPOCH_TRANSACTIONS_MAX = 10_000

Run = Annotated[int, Meta(ge=1, le=INT64_MAX, description="As returned when the query was opened.")]


class Prepare(Body, kw_only=True):
    """Prepare a transaction: it takes no more writes and waits for the commit of its epoch."""

    timeout_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)] | None,
        Meta(
            description=(
                "It is aborted if its epoch is not committed by then; by default it waits as long "
                "as the setting `transactions.prepared_timeout_ms_max` lets it."
            )
        ),
    ] = None


class Prepared(Answer, kw_only=True):
    id: TransactionId


class OpenQuery(Body, kw_only=True):
    """Begin a run of a query; earlier runs are fenced."""

    run_name: Annotated[
        str,
        Meta(
            max_length=200,
            description=(
                "A run with a name may open the query again and keeps its number. Without a "
                "name each call begins another run."
            ),
            examples=["driver-1"],
        ),
    ] = ""


class Query(Answer, kw_only=True):
    query: QueryId
    run: Annotated[
        Run,
        Meta(
            description=(
                "The latest. Its transactions have the transactional ids "
                "`__query~{query}~{run}~{epoch}~{attempt}`, with a unique name for each attempt."
            )
        ),
    ]
    run_name: str
    epoch: Annotated[int | None, Meta(description="The latest committed epoch.")]
    is_closed: bool
    updated_at: int


class ListQueries(Body, kw_only=True):
    match: Match = ""
    limit: Limit = 100
    cursor: ListCursor = ""


class ListedQuery(Query, kw_only=True):
    writers: Annotated[int, Meta(description="Transactions that are open or prepared.")]


class Queries(Answer, kw_only=True):
    """Queries by name; `cursor` is the start of the next page, and empty at the end."""

    queries: list[ListedQuery]
    cursor: str
    total: int


class CommitEpoch(Body, kw_only=True):
    """Commit these prepared transactions as one epoch."""

    run: Run
    transactions: Annotated[
        list[TransactionId],
        Meta(max_length=EPOCH_TRANSACTIONS_MAX, description="All transactions of the epoch."),
    ]
    is_last: Annotated[
        bool, Meta(description="The query has ended; its state may be removed after some days.")
    ] = False


class EpochCommitted(Answer, kw_only=True):
    """The result, which is visible to every reader."""

    query: QueryId
    epoch: Epoch
    outcome: Annotated[
        Literal["committed", "already_committed"],
        Meta(
            description=(
                "`already_committed`: other transactions were committed as this epoch, or a later "
                "one is; the given transactions are aborted."
            )
        ),
    ]
    epoch_newest: Annotated[int, Meta(description="The latest committed epoch.")]
