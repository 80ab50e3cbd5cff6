"""The routes of transactions; a part of the one table in `operations`."""

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
        "Begin a transaction; the last one of the same transactional id is aborted.",
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
        "List transactions, of every front end.",
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
        "Show one transaction and what takes part in it.",
        area="transactions",
        answer=bodies.TransactionShown,
        errors=(errors.UnknownTransaction, *_COORDINATOR),
    ),
    Operation(
        "publishInTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/publish",
        transactions.publish,
        "Publish messages to any topics; readers see them after the commit.",
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
        "Commit offsets of a stream group; they count with the commit of the transaction.",
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
        "Acknowledge messages of a queue group; they are done with the commit.",
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
        "Commit; the answer comes when every reader can see all of it. May be repeated.",
        area="transactions",
        answer=bodies.Ended,
        errors=_ONE,
    ),
    Operation(
        "abortTransaction",
        "POST",
        "/v1/transactions/{transaction_id}/abort",
        transactions.abort,
        "Abort; nothing of it is ever seen, and acknowledged messages come again. May be repeated.",
        area="transactions",
        answer=bodies.Ended,
        errors=_ONE,
    ),
)
