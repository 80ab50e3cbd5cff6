"""The steps of a transaction: its state after each of them.

Who may request a step, and when, is decided by the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from goqueue.model.names import TopicPartition
from goqueue.transactions.calls import End, Initialise
from goqueue.transactions.limits import EPOCH_LAST
from goqueue.transactions.records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    Standing,
    nest,
)
from goqueue.transactions.views import TransactionState


def first(call: Initialise, now_ms: int) -> Standing:
    """The state of a transactional id that is new, or was forgotten."""
    return Standing(
        state=TransactionState.EMPTY,
        producer_id=call.new_producer_id,
        epoch=0,
        timeout_ms=call.timeout_ms,
        updated_ms=now_ms,
    )


def taken_over(standing: Standing, call: Initialise, now_ms: int) -> Standing:
    """The next epoch, or the first one of a new producer id when epochs have run out.

    A producer that gives its identity may repeat the call; others cannot be recognised.
    """
    is_last = standing.epoch >= EPOCH_LAST
    return replace(
        _remembering(standing, is_repeatable=call.identity is not None),
        state=TransactionState.EMPTY,
        producer_id=call.new_producer_id if is_last else standing.producer_id,
        epoch=0 if is_last else standing.epoch + 1,
        timeout_ms=call.timeout_ms,
        started_ms=NOT_STARTED,
        updated_ms=now_ms,
    )


def joined(standing: Standing, partitions: Iterable[TopicPartition], now_ms: int) -> Standing:
    """Add participants; the first of them begin the transaction."""
    is_begun = standing.state is TransactionState.ONGOING
    before = standing.partitions if is_begun else ()
    return replace(
        _remembering(standing, is_repeatable=False),
        state=TransactionState.ONGOING,
        participants=nest((*before, *partitions)),
        started_ms=standing.started_ms if is_begun else now_ms,
        updated_ms=now_ms,
    )


def prepared(standing: Standing, timeout_ms: int, now_ms: int) -> Standing:
    """It is fully written, and waits for the commit of its epoch, with its own timeout."""
    return replace(
        _remembering(standing, is_repeatable=False),
        state=TransactionState.PREPARED,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )


def committed_with_epoch(standing: Standing, now_ms: int) -> Standing:
    """The record of its epoch commits it. The producer's next epoch fences this one."""
    return replace(
        _remembering(standing, is_repeatable=False),
        state=TransactionState.PREPARE_COMMIT,
        epoch=standing.epoch + 1,
        updated_ms=now_ms,
    )


def decided(standing: Standing, call: End, now_ms: int) -> Standing:
    """The producer commits or aborts. From here on the outcome is certain."""
    is_last = call.bumps_epoch and standing.epoch >= EPOCH_LAST
    return replace(
        _remembering(standing, is_repeatable=call.bumps_epoch),
        state=(
            TransactionState.PREPARE_COMMIT if call.is_commit else TransactionState.PREPARE_ABORT
        ),
        epoch=standing.epoch + 1 if call.bumps_epoch else standing.epoch,
        next_producer_id=call.new_producer_id if is_last else NO_PRODUCER_ID,
        updated_ms=now_ms,
    )


def fenced_off(standing: Standing, now_ms: int, *, is_own_wish: bool = False) -> Standing:
    """The transaction is aborted without its producer, whose epoch is fenced.

    If the producer itself restarts, it may repeat the call with its current epoch.
    """
    return replace(
        _remembering(standing, is_repeatable=is_own_wish),
        state=TransactionState.PREPARE_ABORT,
        epoch=standing.epoch + 1,
        updated_ms=now_ms,
    )


def completed(standing: Standing, now_ms: int) -> Standing:
    """All participants have the outcome."""
    identity = standing.next_identity
    return replace(
        standing,
        state=(
            TransactionState.COMPLETE_COMMIT
            if standing.is_committing
            else TransactionState.COMPLETE_ABORT
        ),
        producer_id=identity.producer_id,
        epoch=identity.epoch,
        next_producer_id=NO_PRODUCER_ID,
        participants={},
        updated_ms=now_ms,
    )


def _remembering(standing: Standing, *, is_repeatable: bool) -> Standing:
    """Store, or clear, the caller's identity, so that it can repeat the step if the reply is
    lost.
    """
    return replace(
        standing,
        last_producer_id=standing.producer_id if is_repeatable else NO_PRODUCER_ID,
        last_epoch=standing.epoch if is_repeatable else NO_EPOCH,
    )
