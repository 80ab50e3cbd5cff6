"""The routes of streaming queries and their epochs; part of the table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import ROUTED, STORING, Operation
from goqueue.wire.http.bodies import queries as bodies
from goqueue.wire.http.handlers import queries

_COORDINATOR = (errors.CoordinatorLoading, errors.CoordinatorNotAvailable, *ROUTED)
_DECIDING = (
    errors.InvalidRequest,
    errors.UnknownTransaction,
    errors.InvalidTransactionState,
    errors.ConcurrentTransactions,
    errors.FencedProducer,
    *_COORDINATOR,
    *STORING,
)

QUERIES = (
    Operation(
        "prepareTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/prepare",
        queries.prepare,
        "Prepare a transaction of a query for the commit of its epoch. Idempotent.",
        area="transactions",
        request=bodies.Prepare,
        answer=bodies.Prepared,
        errors=(
            *_DECIDING,
            errors.InvalidProducerIdMapping,
            errors.InvalidTransactionTimeout,
            errors.TransactionAbortable,
        ),
        example={"timeout_ms": 3_600_000},
    ),
    Operation(
        "openQuery",
        "POST",
        "/v1/queries/{query}/open",
        queries.open_query,
        "Begin a run of a query; earlier runs are fenced, and their transactions aborted.",
        area="queries",
        request=bodies.OpenQuery,
        answer=bodies.Query,
        errors=(
            errors.InvalidRequest,
            errors.ConcurrentTransactions,
            errors.FencedProducer,
            *_COORDINATOR,
            *STORING,
        ),
        example={"run_name": "driver-1"},
    ),
    Operation(
        "showQuery",
        "GET",
        "/v1/queries/{query}",
        queries.show,
        "Show the latest run and the latest epoch of a query.",
        area="queries",
        answer=bodies.Query,
        errors=(errors.UnknownTransaction, *_COORDINATOR),
    ),
    Operation(
        "commitEpoch",
        "POST",
        "/v1/queries/{query}/epochs/{epoch}/commit",
        queries.commit,
        "Commit prepared transactions as one epoch, unless it is committed already. Idempotent.",
        area="queries",
        request=bodies.CommitEpoch,
        answer=bodies.EpochCommitted,
        errors=_DECIDING,
        example={"run": 1, "transactions": ["AQAAAAAAAAAAAAAAAAAAAAAAAA"]},
    ),
)
