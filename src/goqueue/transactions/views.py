"""Transactions as callers see them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.tenants import QueryId, Text, TransactionalId


class TransactionState(StrEnum):
    EMPTY = "Empty"  # initialised; nothing written yet
    ONGOING = "Ongoing"
    PREPARED = "Prepared"  # fully written; waits for the commit of its epoch
    PREPARE_COMMIT = "PrepareCommit"  # decided; markers are being written
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"  # forgotten, or about to be


class TransactionView(msgspec.Struct, frozen=True, kw_only=True):
    """The newest transaction of a transactional id."""

    transactional_id: TransactionalId
    state: TransactionState
    identity: ProducerIdentity
    timeout_ms: int
    started_ms: int  # of the open transaction or of the last one; -1 if there was none
    updated_ms: int
    partitions: tuple[TopicPartition, ...]  # the participants, sorted


class QueryView(msgspec.Struct, frozen=True, kw_only=True):
    """A query that commits whole epochs."""

    query_id: QueryId
    run: int
    run_name: Text
    epoch: int  # the newest that is committed; -1 if there is none
    is_closed: bool
    updated_ms: int


class EpochOutcome(msgspec.Struct, frozen=True):
    """The response to the commit of an epoch."""

    epoch: int  # the newest that is committed
    is_repeated: bool  # already committed by other transactions: these are aborted
