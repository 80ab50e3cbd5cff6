"""Transactions in one partition: nobody sees what is not decided, or was decided against."""

from __future__ import annotations

import pytest

from goqueue.model.batch import decode_marker
from goqueue.model.errors import (
    DuplicateSequence,
    FencedProducer,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageFailed,
    TransactionAbortable,
    TransactionCoordinatorFenced,
)
from goqueue.partition import Appended, OpenTransaction, Partition
from goqueue.partition import transactions as transactions_module
from goqueue.storage.aborted import find_aborted
from tests.unit.partition.simulated_partition import NOW_MS
from tests.unit.partition.till import SMALL, Till, known, truth

LAST = (1 << 31) - 1


def send(till: Till, first: int, *values: str) -> Appended:
    """Producer 1 writes a batch of its transaction that begins with the number `first`."""
    return till.append(
        *values,
        producer_id=1,
        producer_epoch=till.epochs.setdefault(1, 0),
        base_sequence=first,
        is_transactional=True,
    )


class Waiting:
    def __init__(self) -> None:
        self.stable: list[int] = []

    def partition_advanced(self, partition: Partition) -> None:
        self.stable.append(partition.last_stable_offset)


# The last stable offset


def test_an_open_transaction_holds_readers_of_committed_records_back() -> None:
    till = Till()
    till.append("plain")
    till.write(1, "a", "b")
    till.append("later")
    till.sync()
    assert till.partition.high_watermark == 4
    assert till.partition.last_stable_offset == 1
    assert till.committed() == ["plain"]
    assert till.values() == ["plain", "a", "b", "later"], "others see everything at once"


def test_a_commit_shows_all_of_the_transaction_and_what_came_after_it() -> None:
    till = Till()
    till.write(1, "a")
    till.append("between")
    till.write(1, "b")
    till.commit(1)
    till.sync()
    assert till.committed() == ["a", "between", "b"]
    assert till.partition.last_stable_offset == till.partition.high_watermark == 4


def test_an_abort_shows_none_of_it() -> None:
    till = Till()
    till.write(1, "a")
    till.append("between")
    till.write(1, "b")
    till.abort(1)
    till.sync()
    assert till.committed() == ["between"]
    assert [tuple(one) for one in find_aborted(till.partition.log, 0, 4)] == [(1, 0, 3, 4)]


def test_nothing_is_decided_before_the_marker_is_committed_itself() -> None:
    till = Till()
    till.write(1, "a")
    till.sync()
    till.commit(1)
    assert till.partition.last_stable_offset == 0
    assert till.committed() == []
    till.sync()
    assert till.partition.last_stable_offset == 2


def test_the_oldest_of_several_transactions_counts() -> None:
    till = Till(waits_for_sync=False)
    for producer in (1, 2, 3):
        till.write(producer, f"of {producer}")
    till.commit(2)
    assert till.partition.last_stable_offset == 0
    till.commit(1)
    assert till.partition.last_stable_offset == 2
    till.abort(3)
    assert till.committed() == ["of 1", "of 2"]


def test_a_producer_may_be_in_its_next_transaction_while_the_last_one_is_not_committed() -> None:
    till = Till()
    till.write(1, "a")
    till.abort(1)
    till.write(1, "b")
    assert till.partition.last_stable_offset == 0
    till.sync()
    assert till.partition.last_stable_offset == 2
    assert till.committed() == []
    till.commit(1)
    till.sync()
    assert till.committed() == ["b"]


def test_whoever_waits_is_woken_when_the_decision_is_committed() -> None:
    till = Till()
    till.write(1, "a")
    till.sync()
    waiting = Waiting()
    till.partition.watchers[waiting] = None
    till.commit(1)
    assert waiting.stable == []
    till.sync()
    assert waiting.stable == [2]


# What may be written


def test_the_partition_tells_what_a_producer_has_open() -> None:
    till = Till()
    till.epochs[1] = 4
    assert till.partition.transactions.get(1) is None
    till.write(1, "a")
    till.append("other")
    till.write(1, "b", "c")
    assert till.partition.transactions.get(1) == OpenTransaction(1, 4, 0, 3)
    till.commit(1)
    assert till.partition.transactions.get(1) is None


def test_a_producer_does_not_write_outside_of_its_open_transaction() -> None:
    till = Till()
    till.write(1, "a")
    with pytest.raises(InvalidTransactionState, match="has a transaction open in orders/0"):
        till.write(1, "b", is_transactional=False)
    till.commit(1)
    assert till.write(1, "b", is_transactional=False).base_offset == 2


def test_a_repeated_batch_is_stored_once() -> None:
    till = Till()
    first = till.write(1, "a")
    assert send(till, 0, "a") == first


@pytest.mark.parametrize("restart", ["none", "crash", "stop"])
@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize(("first", "count"), [(2, 3), (2, 2), (2, 4), (0, 2), (0, 5), (4, 1)])
def test_a_batch_with_numbers_of_an_ended_transaction_is_not_taken_for_stored(
    first: int, count: int, is_commit: bool, restart: str
) -> None:
    till = Till()
    till.write(1, "a", "b")
    till.write(1, "c", "d", "e")
    till.end(1, is_commit=is_commit)
    till.sync()
    if restart == "crash":
        till.crash()
    elif restart == "stop":
        till.reopen(till.stop())
    values = [f"new {number}" for number in range(count)]
    with pytest.raises(OutOfOrderSequence, match="a transaction that has ended; 5 is expected"):
        send(till, first, *values)
    assert till.partition.transactions.get(1) is None, "a refused batch opens nothing"
    till.epochs[1] = 1  # as after such an error
    till.write(1, *values)
    till.commit(1)
    till.sync()
    assert till.committed() == [*("abcde" if is_commit else ""), *values]


def test_a_repetition_within_a_transaction_is_a_duplicate_after_one_that_has_ended() -> None:
    till = Till()
    till.write(1, "a")
    till.abort(1)
    sent = [till.write(1, value) for value in "bcdefgh"]
    assert send(till, 7, "h") == sent[-1]
    with pytest.raises(DuplicateSequence):
        send(till, 1, "b")  # too long ago to be remembered, but in this transaction
    with pytest.raises(OutOfOrderSequence):
        send(till, 0, "a")


def test_numbers_of_an_ended_transaction_are_recognised_across_the_wrap() -> None:
    till = Till()
    send(till, LAST - 1, "a", "b", "c")
    till.abort(1)
    for sequence in (LAST - 1, LAST, 0):
        with pytest.raises(OutOfOrderSequence, match="has ended; 1 is expected"):
            send(till, sequence, "d")
    assert send(till, 1, "d").base_offset == 4


def test_a_marker_of_a_newer_epoch_fences_the_old_one() -> None:
    till = Till()
    till.write(1, "a")
    till.epochs[1] = 1
    till.abort(1)
    till.epochs[1] = 0
    with pytest.raises(FencedProducer, match="epoch 1 has taken over"):
        till.write(1, "b")
    with pytest.raises(FencedProducer):
        till.commit(1)
    till.epochs[1] = 1
    assert till.write(1, "c").base_offset == 2
    till.commit(1)
    till.sync()
    assert till.committed() == ["c"]


def test_after_a_marker_of_a_new_epoch_sequence_numbers_begin_with_zero() -> None:
    till = Till()
    till.write(1, "a")
    till.epochs[1] = 1
    till.abort(1)
    with pytest.raises(OutOfOrderSequence, match="but 0 is expected"):
        till.append("c", producer_id=1, producer_epoch=1, base_sequence=1, is_transactional=True)


def test_a_marker_of_the_same_epoch_leaves_the_sequence_numbers_as_they_are() -> None:
    till = Till()
    till.write(1, "a", "b")
    till.commit(1)
    again = till.append(
        "c", producer_id=1, producer_epoch=0, base_sequence=2, is_transactional=True
    )
    assert again.base_offset == 3


def test_a_marker_fences_even_where_nothing_was_written() -> None:
    till = Till()
    till.epochs[1] = 3
    assert till.abort(1).base_offset == 0
    till.epochs[1] = 2
    with pytest.raises(FencedProducer):
        till.write(1, "a")
    assert find_aborted(till.partition.log, 0, 1) == []


def test_an_old_coordinator_is_turned_away() -> None:
    till = Till()
    till.write(1, "a")
    till.end(1, is_commit=True, coordinator_epoch=5)
    till.write(1, "b")
    with pytest.raises(TransactionCoordinatorFenced, match="5 has taken over"):
        till.end(1, is_commit=False, coordinator_epoch=4)
    assert till.partition.transactions.get(1) is not None


def test_a_repeated_marker_finds_itself() -> None:
    till = Till()
    till.write(1, "a")
    first = till.abort(1)
    assert till.abort(1) == first
    assert till.partition.end_offset == 2
    till.sync()
    outcome: list[object] = []
    till.partition.when_committed(till.abort(1).last_offset, outcome.append)
    assert outcome == [None]


def test_the_marker_in_the_log_says_who_decided_what() -> None:
    till = Till()
    till.write(1, "a")
    till.end(1, is_commit=True, coordinator_epoch=8)
    (_, _), (header, batch) = till.partition.log.batches(0, until_offset=2)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 0, -1)
    assert decode_marker(batch) == (True, 8)
    assert till.partition.records_in == 1, "a marker is nobody's record"


def test_one_transaction_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_module, "OPEN_MAX", 2)
    till = Till()
    till.write(1, "a")
    till.write(2, "b")
    with pytest.raises(TransactionAbortable, match="which is the limit"):
        till.write(3, "c")
    till.write(1, "more")
    till.commit(2)
    till.write(3, "c")


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    till = Till()
    till.write(1, "a")
    till.write(2, "b")
    till.commit(2)
    till.partition.history.expire_producers(before_ms=NOW_MS + 1, states_max=10)
    assert [one.producer_id for one in till.partition.producers] == [1]
    till.partition.history.expire_producers(before_ms=0, states_max=0)
    assert [one.producer_id for one in till.partition.producers] == [1]


# Reading


def test_an_aborted_transaction_is_told_to_those_whose_part_of_the_log_it_touches() -> None:
    till = Till(SMALL, waits_for_sync=False)
    till.write(1, "a" * 300)
    for number in range(20):
        till.append(f"{number}" * 50)
    till.write(1, "b")
    till.abort(1)
    for number in range(20):
        till.append(f"{number}" * 50)
    assert len(till.partition.log.segments) > 3
    (aborted,) = find_aborted(till.partition.log, 0, 1)
    assert (aborted.first_offset, aborted.last_offset) == (0, 22)
    assert find_aborted(till.partition.log, 10, 12) == [aborted], "it was going on"
    assert find_aborted(till.partition.log, 22, 23) == [aborted]
    assert find_aborted(till.partition.log, 23, 43) == []


def test_a_search_by_time_passes_over_markers_and_stops_at_what_is_not_decided() -> None:
    till = Till(waits_for_sync=False)
    till.write(1, "a")
    till.now_ms += 1000
    till.commit(1)
    newest = till.partition.find_newest()
    assert newest is not None
    assert newest.offset == 0
    assert till.partition.find_timestamp(NOW_MS + 500) is None
    till.now_ms += 1000
    till.write(1, "b")
    found = till.partition.find_timestamp(NOW_MS + 500)
    assert found is not None
    assert found.offset == 2
    assert till.partition.find_timestamp(NOW_MS + 500, is_committed_only=True) is None
    till.commit(1)
    found = till.partition.find_timestamp(NOW_MS + 500, is_committed_only=True)
    assert found is not None
    assert found.offset == 2


# Forgetting


def test_records_that_are_deleted_do_not_hold_readers_back() -> None:
    till = Till(waits_for_sync=False)
    till.write(1, "a")
    till.append("later")
    waiting = Waiting()
    till.partition.watchers[waiting] = None
    till.partition.retention.delete_before(1)
    assert waiting.stable == [2]
    assert till.committed() == ["later"]


def test_what_is_left_of_a_transaction_whose_beginning_is_deleted_is_still_undecided() -> None:
    till = Till(waits_for_sync=False)
    till.write(1, "a")
    till.write(1, "b")
    till.append("later")
    till.partition.retention.delete_before(1)
    assert till.partition.last_stable_offset == 1
    till.abort(1)
    assert till.committed() == ["later"]


def test_a_truncation_opens_the_transactions_again_whose_markers_it_takes() -> None:
    till = Till(SMALL, waits_for_sync=False)
    till.write(1, "a")
    till.write(2, "b")
    till.commit(1)
    till.abort(2)
    till.write(3, "c")
    till.sync()
    till.partition.replica.truncate(2, StorageFailed("gone"), now_ms=NOW_MS)
    assert till.partition.end_offset == till.partition.high_watermark == 2
    assert known(till.partition) == truth(till.partition)
    assert sorted(one.producer_id for one in till.partition.transactions) == [1, 2]
    till.abort(1)
    till.commit(2)
    assert till.committed() == ["b"]


def test_a_truncation_tells_those_who_wait_for_what_it_takes() -> None:
    till = Till()
    till.append("a")
    first = till.ack(0)
    till.append("b")
    second = till.ack(1)
    error = StorageFailed("gone")
    till.partition.replica.truncate(1, error, now_ms=NOW_MS)
    assert (first, second) == ([], [error])
    till.sync()
    assert first == [None]
