"""Transactions."""

from __future__ import annotations

from goqueue.model.errors.base import GoQueueError


class InvalidTransactionState(GoQueueError):
    """A call that is not valid in this state of the transaction; nothing was changed."""

    code = "invalid_transaction_state"


class ConcurrentTransactions(GoQueueError):
    """The last transaction of this id is still being completed."""

    code = "concurrent_transactions"
    retryable = True


class InvalidProducerIdMapping(GoQueueError):
    """The producer id is not that of the transactional id."""

    code = "invalid_producer_id_mapping"


class UnknownTransaction(GoQueueError):
    """The transactional id was never initialised, or has expired."""

    code = "unknown_transaction"


class InvalidTransactionTimeout(GoQueueError):
    code = "invalid_transaction_timeout"


class UnstableOffsetCommit(GoQueueError):
    """An offset is pending in a transaction that has not ended."""

    code = "unstable_offset_commit"
    retryable = True


class TransactionAbortable(GoQueueError):
    """The transaction cannot continue, but the producer can: abort, and begin another."""

    code = "transaction_abortable"


class TransactionCoordinatorFenced(GoQueueError):
    """Markers of a coordinator that has been superseded by another."""

    code = "transaction_coordinator_fenced"
