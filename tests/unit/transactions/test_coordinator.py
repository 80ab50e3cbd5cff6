"""Who may write in a transaction, and how it ends."""

from __future__ import annotations

import pytest

from goqueue.config import TransactionSettings
from goqueue.model.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    FencedProducer,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    TransactionAbortable,
    UnknownTransaction,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.transactions import EPOCH_LAST, TransactionState, is_match
from goqueue.transactions.limits import CONCURRENT_CALLS_MAX, CONCURRENT_WAIT_MS, PARTICIPANTS_MAX
from tests.unit.transactions.desk import BILLS, NAME, ORDERS, TIMEOUT_MS, Desk

NEXT = {"bumps_epoch": True}


def test_a_commit_reaches_every_participant_and_completes() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS, BILLS)
    assert desk.end(identity).result == identity
    assert desk.marked == [(BILLS, identity, True), (ORDERS, identity, True)]
    assert desk.state is TransactionState.COMPLETE_COMMIT
    assert desk.view.partitions == ()


def test_an_abort_reaches_every_participant_and_completes() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    desk.end(identity, is_commit=False)
    assert desk.marked == [(ORDERS, identity, False)]
    assert desk.state is TransactionState.COMPLETE_ABORT


def test_transactions_of_one_epoch_follow_one_another() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    desk.end(identity)
    assert desk.add(identity, BILLS).error is None
    assert desk.view.partitions == (BILLS,)
    desk.end(identity, is_commit=False)
    assert [is_commit for _, _, is_commit in desk.marked] == [True, False]


def test_an_end_is_answered_when_decided_and_a_waiting_one_when_all_know() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    identity = desk.begin()
    assert not desk.end(identity).is_waiting
    waiting = desk.end(identity, waits=True)
    assert waiting.is_waiting
    desk.finish_markers()
    assert waiting.result == identity


def test_nothing_is_answered_before_it_is_durable() -> None:
    desk = Desk()
    desk.is_disk_slow = True
    initialised = desk.ask_initialise()
    assert initialised.is_waiting
    desk.finish_writes()
    identity = initialised.result
    added = desk.add(identity, ORDERS)
    assert added.is_waiting
    assert desk.refusal(identity) is InvalidTransactionState
    desk.finish_writes()
    assert not added.is_waiting
    assert desk.refusal(identity) is None
    ended = desk.end(identity)
    assert ended.is_waiting
    assert desk.marked == []
    assert desk.refusal(identity) is ConcurrentTransactions
    desk.finish_writes()
    assert not ended.is_waiting
    assert desk.marked


def test_a_partition_is_verified_only_for_its_transaction_and_producer() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    assert desk.refusal(identity) is None
    assert desk.refusal(identity, BILLS) is InvalidTransactionState
    assert desk.refusal(identity._replace(epoch=9)) is FencedProducer
    assert desk.refusal(ProducerIdentity(7, 0)) is InvalidProducerIdMapping
    desk.end(identity)
    assert desk.refusal(identity) is InvalidTransactionState


def test_what_was_never_initialised_has_no_producer() -> None:
    desk = Desk()
    somebody = ProducerIdentity(7, 0)
    assert desk.add(somebody, ORDERS).error is InvalidProducerIdMapping
    assert desk.end(somebody).error is InvalidProducerIdMapping
    with pytest.raises(UnknownTransaction):
        desk.coordinator.describe(NAME)
    assert desk.ask("abort", NAME).error is UnknownTransaction


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    desk = Desk()
    assert desk.ask_initialise(timeout_ms=timeout_ms).error is InvalidTransactionTimeout
    assert len(desk.coordinator) == 0


def test_no_partitions_and_too_many_are_refused() -> None:
    desk = Desk()
    identity = desk.initialise()
    assert desk.add(identity).error is InvalidRequest
    many = [TopicPartition("t", number) for number in range(PARTICIPANTS_MAX + 1)]
    assert desk.add(identity, *many).error is TransactionAbortable
    assert desk.state is TransactionState.EMPTY


# Fencing


def test_a_second_instance_takes_over_and_what_was_open_is_aborted() -> None:
    desk = Desk()
    old = desk.begin(ORDERS)
    new = desk.initialise()
    assert new.producer_id == old.producer_id
    assert new.epoch > old.epoch
    assert [(partition, is_commit) for partition, _, is_commit in desk.marked] == [(ORDERS, False)]
    assert desk.marked[0][1].epoch > old.epoch, "the marker must turn the old epoch away"
    assert desk.add(old, ORDERS).error is FencedProducer
    assert desk.end(old).error is FencedProducer
    assert desk.refusal(old) is FencedProducer


def test_a_new_instance_waits_for_the_last_transaction_but_not_for_long() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    desk.begin(ORDERS)
    patient = desk.ask_initialise()
    assert patient.is_waiting
    desk.wait(CONCURRENT_WAIT_MS - 1)
    assert patient.is_waiting
    desk.wait(1)
    assert patient.error is ConcurrentTransactions
    second = desk.ask_initialise()
    desk.finish_markers()
    assert second.result.epoch == 2


def test_the_next_transaction_waits_for_the_last_one_to_be_completed() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    identity = desk.begin(ORDERS)
    desk.end(identity)
    added = desk.add(identity, BILLS)
    assert added.is_waiting
    desk.finish_markers()
    assert not added.is_waiting
    assert added.error is None
    assert desk.state is TransactionState.ONGOING
    assert desk.view.partitions == (BILLS,)


def test_only_so_many_calls_wait_for_one_transaction() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    identity = desk.begin(ORDERS)
    desk.end(identity)
    waiting = [desk.add(identity, BILLS) for _ in range(CONCURRENT_CALLS_MAX)]
    assert desk.add(identity, BILLS).error is ConcurrentTransactions
    desk.finish_markers()
    assert all(one.error is None and not one.is_waiting for one in waiting)


def test_a_producer_takes_its_next_epoch_and_may_ask_twice() -> None:
    desk = Desk()
    first = desk.initialise()
    second = desk.initialise(first)
    assert second == first._replace(epoch=1)
    assert desk.initialise(first) == second, "the first answer may have been lost"
    assert desk.initialise(second) == first._replace(epoch=2)
    assert desk.ask_initialise(first).error is FencedProducer


def test_a_producer_that_starts_anew_with_something_open_gets_its_next_epoch() -> None:
    desk = Desk()
    old = desk.begin(ORDERS)
    new = desk.initialise(old)
    assert new.epoch == old.epoch + 1
    assert desk.marked[0][2] is False
    assert desk.ask_initialise(ProducerIdentity(999, 0)).error is FencedProducer


def test_a_zombie_cannot_abort_its_successor_by_initialising() -> None:
    desk = Desk()
    old = desk.initialise()
    new = desk.begin(ORDERS)
    assert desk.ask_initialise(old).error is FencedProducer
    assert desk.refusal(new) is None


def test_an_operators_abort_turns_the_producer_away() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    assert not desk.ask("abort", NAME).is_waiting
    assert desk.state is TransactionState.COMPLETE_ABORT
    assert desk.end(identity).error is FencedProducer
    assert desk.ask("abort", NAME).error is InvalidTransactionState


# Time


def test_a_transaction_times_out_on_the_clock_of_its_beginning() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    desk.wait(TIMEOUT_MS - 1)
    desk.add(identity, BILLS)  # Nothing that is done in it gives it more time.
    assert desk.state is TransactionState.ONGOING
    desk.wait(1)
    assert desk.state is TransactionState.COMPLETE_ABORT
    assert {partition for partition, _, _ in desk.marked} == {ORDERS, BILLS}
    assert desk.end(identity).error is FencedProducer


def test_a_restart_does_not_give_a_transaction_more_time() -> None:
    desk = Desk()
    desk.begin(ORDERS)
    desk.now_ms += TIMEOUT_MS // 2
    desk.restart()
    desk.wait(TIMEOUT_MS // 2)
    assert desk.state is TransactionState.COMPLETE_ABORT


def test_what_is_decided_does_not_time_out() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    identity = desk.begin(ORDERS)
    desk.end(identity)
    desk.wait(10 * TIMEOUT_MS)
    assert desk.state is TransactionState.PREPARE_COMMIT
    desk.finish_markers()
    assert desk.marked == [(ORDERS, identity, True)]
    assert desk.state is TransactionState.COMPLETE_COMMIT


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    desk = Desk(TransactionSettings(id_expiration_ms=1_000_000))
    old = desk.begin(ORDERS)
    desk.end(old)
    desk.wait(999_999)
    assert desk.state is TransactionState.COMPLETE_COMMIT
    desk.wait(1)
    with pytest.raises(UnknownTransaction):
        desk.coordinator.describe(NAME)
    assert len(desk.coordinator) == 0
    assert desk.log[-1][1] is None
    desk.restart()
    assert len(desk.coordinator) == 0
    assert desk.initialise().producer_id != old.producer_id
    assert desk.add(old, ORDERS).error is InvalidProducerIdMapping


# Ending, again and again


def test_an_end_may_be_repeated_but_not_changed() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    identity = desk.begin(ORDERS)
    for _ in range(2):
        assert desk.end(identity).result == identity
        assert desk.end(identity, is_commit=False).error is InvalidTransactionState
    desk.finish_markers()
    assert desk.end(identity).result == identity
    assert desk.end(identity, is_commit=False).error is InvalidTransactionState
    assert len(desk.marked) == 1


def test_an_empty_transaction_cannot_be_ended_by_an_old_client() -> None:
    desk = Desk()
    identity = desk.initialise()
    assert desk.end(identity).error is InvalidTransactionState


def test_a_bumped_end_goes_on_with_the_next_epoch_and_may_be_repeated() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    old = desk.begin(ORDERS)
    new = desk.end(old, **NEXT).result
    assert new == old._replace(epoch=old.epoch + 1)
    assert desk.end(old, **NEXT).result == new
    assert desk.end(old, is_commit=False, **NEXT).error is InvalidTransactionState
    desk.finish_markers()
    assert desk.marked == [(ORDERS, new, True)]
    assert desk.end(old, **NEXT).result == new
    assert desk.refusal(old) is FencedProducer
    desk.add(new, BILLS)
    assert desk.end(old, **NEXT).error is FencedProducer


def test_a_bumped_abort_of_nothing_is_fine_and_a_commit_is_not() -> None:
    desk = Desk()
    identity = desk.initialise()
    assert desk.end(identity, **NEXT).error is InvalidTransactionState
    after = desk.end(identity, is_commit=False, **NEXT).result
    assert after.epoch == identity.epoch + 1
    assert desk.end(identity, is_commit=False, **NEXT).result == after
    assert desk.marked == []


def test_epochs_that_run_out_are_followed_by_a_new_producer_id() -> None:
    desk = Desk()
    identity = desk.initialise()
    for _ in range(EPOCH_LAST):
        identity = desk.initialise(identity)
    assert identity.epoch == EPOCH_LAST
    desk.add(identity, ORDERS)
    desk.are_markers_slow = True
    new = desk.end(identity, **NEXT).result
    assert new.producer_id != identity.producer_id
    assert new.epoch == 0
    added = desk.add(new, BILLS)
    assert added.is_waiting
    desk.finish_markers()
    assert desk.marked == [(ORDERS, identity._replace(epoch=EPOCH_LAST + 1), True)]
    assert added.error is None
    desk.are_markers_slow = False
    assert desk.end(new, **NEXT).result == new._replace(epoch=1)


def test_initialising_after_the_last_epoch_gives_a_new_producer_id() -> None:
    desk = Desk()
    identity = desk.initialise()
    for _ in range(EPOCH_LAST):
        identity = desk.initialise(identity)
    new = desk.initialise(identity)
    assert (new.producer_id != identity.producer_id, new.epoch) == (True, 0)
    assert desk.initialise(identity) == new


# Looking


def test_transactions_are_listed_by_state_producer_and_age() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    find = desk.coordinator.all
    assert [one.transactional_id for one in find()] == [NAME]
    assert find(states=[TransactionState.EMPTY]) == []
    assert len(find(states=[TransactionState.ONGOING], producer_ids=[identity.producer_id])) == 1
    assert find(producer_ids=[1]) == []
    assert find(started_before_ms=desk.now_ms) == []
    assert len(find(started_before_ms=desk.now_ms + 1)) == 1
    found = desk.coordinator.of_producer(identity.producer_id)
    assert found is not None
    assert found.partitions == (ORDERS,)
    assert desk.coordinator.of_producer(1) is None


def test_ids_are_matched_as_a_whole() -> None:
    assert is_match("", "anything")
    assert is_match("shop-.*", "shop-1")
    assert not is_match("shop", "shop-1")
    with pytest.raises(InvalidRegularExpression):
        is_match("(", "shop")
    with pytest.raises(InvalidRegularExpression):
        is_match("a" * 2000, "shop")


def test_no_commit_is_decided_while_commits_are_held() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    hold = desk.coordinator.hold
    hold.begin("backup", hold_ms=1_000, now_ms=desk.now_ms)
    assert desk.end(identity).error is CoordinatorLoading
    assert desk.state is TransactionState.ONGOING
    assert hold.end("backup", now_ms=desk.now_ms)
    assert desk.end(identity).result == identity


def test_an_abort_is_decided_while_commits_are_held() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    desk.coordinator.hold.begin("backup", hold_ms=1_000, now_ms=desk.now_ms)
    assert desk.end(identity, is_commit=False).error is None


def test_a_hold_ends_by_itself_and_says_so() -> None:
    desk = Desk()
    hold = desk.coordinator.hold
    hold.begin("backup", hold_ms=1_000, now_ms=desk.now_ms)
    with pytest.raises(CoordinatorLoading, match="Another backup"):
        hold.begin("other", hold_ms=1_000, now_ms=desk.now_ms + 999)
    hold.check(desk.now_ms + 1_000)
    assert not hold.end("backup", now_ms=desk.now_ms + 1_000)


def test_a_commit_counts_as_unfinished_until_every_participant_has_it() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    identity = desk.begin(ORDERS)
    assert not desk.coordinator.is_committing
    desk.end(identity)
    assert desk.coordinator.is_committing
    desk.finish_markers()
    assert not desk.coordinator.is_committing
