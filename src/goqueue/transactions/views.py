"""What transactions look like from outside."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from goqueue.model.names import ProducerIdentity, TopicPartition


class TransactionState(StrEnum):
    EMPTY = "Empty"  # initialised; nothing written yet
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"  # decided; the participants are being told
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"  # forgotten, or about to be


class TransactionView(msgspec.Struct, frozen=True, kw_only=True):
    """The newest transaction of a transactional id."""

    transactional_id: str
    state: TransactionState
    identity: ProducerIdentity
    timeout_ms: int
    started_ms: int  # -1 when none is open
    updated_ms: int
    partitions: tuple[TopicPartition, ...]  # the participants, sorted
