"""The routes of transactions; part of the table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import ROUTED, STORING, Operation
from goqueue.wire.http.bodies import groups as group_bodies
from goqueue.wire.http.bodies import messages as message_bodies
from goqueue.wire.http.bodies import queues as queue_bodies
from goqueue.wire.http.bodies import transactions as bodies
from goqueue.wire.http.handlers import transactions

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
