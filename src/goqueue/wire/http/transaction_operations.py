"""The routes of transactions and streaming queries; part of the table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import ROUTED, STORING, Operation
from goqueue.wire.http.bodies import groups as group_bodies
from goqueue.wire.http.bodies import messages as message_bodies
from goqueue.wire.http.bodies import queries as query_bodies
from goqueue.wire.http.bodies import queues as queue_bodies
from goqueue.wire.http.bodies import transactions as bodies
from goqueue.wire.http.handlers import queries, transactions

_COORDINATOR = (errors.CoordinatorLoading, errors.CoordinatorNotAvailable, *ROUTED)
_ONE = (
    errors.UnknownTransaction,
    errors.InvalidTransactionState,
    errors.ConcurrentTransactions,
    errors.InvalidProducerIdMapping,
    errors.FencedProducer,
    errors.TransactionAbortable,
    *_COORDINATOR,
    *STORING,
)

_DECIDING = (
    errors.InvalidRequest,
    errors.UnknownTransaction,
    errors.InvalidTransactionState,
    errors.ConcurrentTransactions,
    errors.FencedProducer,
    *_COORDINATOR,
    *STORING,
)

TRANSACTIONS = (
    Operation(
        "beginTransaction",
        "POST",
        "/v1/transactions",
        transactions.begin,
        "Begin a transaction; an open one of the same transactional id is aborted.",
        area="transactions",
        request=bodies.Begin,
        answer=bodies.Begun,
        status=201,
        errors=(
            errors.InvalidRequest,
            errors.InvalidTransactionTimeout,
            errors.ConcurrentTransactions,
            *_COORDINATOR,
            *STORING,
        ),
        example={"transactional_id": "billing-3", "timeout_ms": 30_000},
    ),
    Operation(
        "listTransactions",
        "GET",
        "/v1/transactions",
        transactions.list_all,
        "List transactions of all front ends.",
        area="transactions",
        request=bodies.ListTransactions,
        answer=bodies.Transactions,
        errors=_COORDINATOR,
    ),
    Operation(
        "showTransaction",
        "GET",
        "/v1/transactions/{transaction_id}",
        transactions.show,
        "Show one transaction and its participants.",
        area="transactions",
        answer=bodies.TransactionShown,
        errors=(errors.UnknownTransaction, *_COORDINATOR),
    ),
    Operation(
        "publishInTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/publish",
        transactions.publish,
        "Publish messages to any topics; they become visible at the commit.",
        area="transactions",
        request=bodies.PublishInTransaction,
        answer=message_bodies.PublishedMany,
        errors=_ONE,
        example={
            "messages": [
                {"topic": "orders", "key": "customer-7", "value": '{"total": 12}'},
                {"topic": "mails", "value": "thank you", "delay_ms": 60_000},
            ]
        },
    ),
    Operation(
        "commitOffsetsInTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/offsets",
        transactions.commit_offsets,
        "Commit offsets of a stream group; they take effect at the commit of the transaction.",
        area="transactions",
        request=bodies.CommitOffsets,
        answer=group_bodies.Committed,
        errors=(
            *_ONE,
            errors.InvalidGroupId,
            errors.UnknownMember,
            errors.FencedInstance,
            errors.StaleMemberEpoch,
            errors.IllegalGeneration,
            errors.RebalanceInProgress,
            errors.GroupNotEmpty,
            errors.GroupKindMismatch,
        ),
        example={
            "group": "billing",
            "offsets": [{"topic": "orders", "partition": 0, "offset": 42}],
        },
    ),
    Operation(
        "ackInTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/ack",
        transactions.ack,
        "Acknowledge messages of a queue group; they are settled at the commit.",
        area="transactions",
        request=bodies.AckInTransaction,
        answer=queue_bodies.Settled,
        errors=(*_ONE, errors.UnknownGroup, errors.InvalidRequest),
        example={"group": "billing", "receipts": ["AQAAAAAAAAAAAAAA"]},
    ),
    Operation(
        "commitTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/commit",
        transactions.commit,
        "Commit; the response is sent when all of it is visible to every reader. Idempotent.",
        area="transactions",
        answer=bodies.Ended,
        errors=_ONE,
    ),
    Operation(
        "abortTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/abort",
        transactions.abort,
        "Abort: nothing becomes visible, acknowledged messages are delivered again. Idempotent.",
        area="transactions",
        answer=bodies.Ended,
        errors=_ONE,
    ),
)

QUERIES = (
    Operation(
        "prepareTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/prepare",
        queries.prepare,
        "Prepare a transaction of a query for the commit of its epoch. Idempotent.",
        area="transactions",
        request=query_bodies.Prepare,
        answer=query_bodies.Prepared,
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
        request=query_bodies.OpenQuery,
        answer=query_bodies.Query,
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
        "listQueries",
        "GET",
        "/v1/queries",
        queries.list_all,
        "List queries with their latest run and epoch.",
        area="queries",
        request=query_bodies.ListQueries,
        answer=query_bodies.Queries,
        errors=_COORDINATOR,
    ),
    Operation(
        "showQuery",
        "GET",
        "/v1/queries/{query}",
        queries.show,
        "Show the latest run and the latest epoch of a query.",
        area="queries",
        answer=query_bodies.Query,
        errors=(errors.UnknownTransaction, *_COORDINATOR),
    ),
    Operation(
        "commitEpoch",
        "POST",
        "/v1/queries/{query}/epochs/{epoch}/commit",
        queries.commit,
        "Commit prepared transactions as one epoch, unless it is committed already. Idempotent.",
        area="queries",
        request=query_bodies.CommitEpoch,
        answer=query_bodies.EpochCommitted,
        errors=_DECIDING,
        example={"run": 1, "transactions": ["AQAAAAAAAAAAAAAAAAAAAAAAAA"]},
    ),
)
