"""The steps of a transaction: how it stands after each of them.

Who may ask for a step, and when, is the coordinator's to say.
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
    """A transactional id that nobody has used, or not for long."""
    return Standing(
        state=TransactionState.EMPTY,
        producer_id=call.new_producer_id,
        epoch=0,
        timeout_ms=call.timeout_ms,
        updated_ms=now_ms,
    )


def taken_over(standing: Standing, call: Initialise, now_ms: int) -> Standing:
    """The next epoch, or the first one of a new producer id when epochs have run out.

    A producer that names itself may repeat the call; of others nobody knows who they were.
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
    """Partitions take part; the first of them begin the transaction."""
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
    """All is written. It waits for the commit of its epoch, for a time of its own."""
    return replace(
        _remembering(standing, is_repeatable=False),
        state=TransactionState.PREPARED,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )


def committed_with_epoch(standing: Standing, now_ms: int) -> Standing:
    """The record of its epoch commits it. The next epoch of the producer turns this one away."""
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
    """The transaction is aborted over its producer's head, whose epoch is over.

    When the producer itself starts anew, it may ask again with the epoch that it knows.
    """
    return replace(
        _remembering(standing, is_repeatable=is_own_wish),
        state=TransactionState.PREPARE_ABORT,
        epoch=standing.epoch + 1,
        updated_ms=now_ms,
    )


def completed(standing: Standing, now_ms: int) -> Standing:
    """All participants know the outcome."""
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
    """Remember, or forget, who asks for the step: its answer may be lost, and it asked again."""
    return replace(
        standing,
        last_producer_id=standing.producer_id if is_repeatable else NO_PRODUCER_ID,
        last_epoch=standing.epoch if is_repeatable else NO_EPOCH,
    )
