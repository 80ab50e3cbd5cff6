"""Prepared transactions, and the one record that commits an epoch of them."""

from __future__ import annotations

import pytest

from goqueue.config import TransactionSettings
from goqueue.model.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    FencedProducer,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    UnknownTransaction,
)
from goqueue.model.names import ProducerIdentity
from goqueue.model.queries import PREFIX, Attempt, read_attempt, routing_name
from goqueue.transactions import (
    CommitEpoch,
    End,
    EpochOutcome,
    Initialise,
    Prepare,
    QueryView,
    TransactionState,
)
from goqueue.transactions.limits import (
    CONCURRENT_WAIT_MS,
    EPOCH_TRANSACTIONS_MAX,
    RUNS_REMEMBERED_MAX,
)
from tests.unit.transactions.desk import BILLS, ORDERS, TIMEOUT_MS, Answer, Desk

QUERY = "totals"
DAY_MS = 24 * 3600 * 1000
COMMITTED = TransactionState.COMPLETE_COMMIT

Prepared = tuple[str, ProducerIdentity]


class QueryDesk(Desk):
    """A coordinator, and the drivers and tasks of one query."""

    attempts = 0

    def open(self, run_name: str = "") -> int:
        view = self.ask("open_query", QUERY, run_name).result
        assert isinstance(view, QueryView), view
        return view.run

    def name(self, run: int, epoch: int) -> str:
        self.attempts += 1
        return Attempt(QUERY, run, epoch, f"task-{self.attempts}").transactional_id

    def ask_begin(self, name: str) -> Answer:
        self._next_producer_id += 1
        call = Initialise(
            transactional_id=name, timeout_ms=TIMEOUT_MS, new_producer_id=self._next_producer_id
        )
        return self.ask("initialise", call)

    def write(self, run: int, epoch: int, *, is_prepared: bool = True) -> Prepared:
        """What one task does."""
        name = self.name(run, epoch)
        identity = self.ask_begin(name).result
        assert self.ask("add_partitions", name, identity, [ORDERS]).error is None
        if is_prepared:
            assert self.prepare((name, identity)).error is None
        return name, identity

    def prepare(self, one: Prepared, timeout_ms: int = DAY_MS) -> Answer:
        name, identity = one
        call = Prepare(transactional_id=name, identity=identity, timeout_ms=timeout_ms)
        return self.ask("prepare", call)

    def commit(self, run: int, epoch: int, *prepared: Prepared, is_last: bool = False) -> Answer:
        call = CommitEpoch(query_id=QUERY, run=run, epoch=epoch, prepared=prepared, is_last=is_last)
        return self.ask("commit_epoch", call)

    @property
    def outcomes(self) -> dict[int, bool]:
        """Of each producer id, whether it was committed; told the same as often as it was told."""
        outcomes: dict[int, bool] = {}
        for _, identity, is_commit in self.marked:
            assert outcomes.setdefault(identity.producer_id, is_commit) == is_commit
        return outcomes

    def is_committed(self, one: Prepared) -> bool | None:
        return self.outcomes.get(one[1].producer_id)


def test_an_epoch_is_committed_as_a_whole_and_its_transactions_are_forgotten() -> None:
    desk = QueryDesk()
    run = desk.open()
    first, second = desk.write(run, 0), desk.write(run, 0)
    assert desk.marked == []
    states = [one.state for one in desk.coordinator.all()]
    assert states == [TransactionState.PREPARED] * 2
    assert desk.commit(run, 0, first, second).result == EpochOutcome(0, is_repeated=False)
    assert desk.is_committed(first)
    assert desk.is_committed(second)
    assert desk.coordinator.all() == []
    assert desk.coordinator.describe_query(QUERY).epoch == 0
    # The markers carry the next epoch of their producers, so partitions turn the tasks away.
    assert {identity.epoch for _, identity, _ in desk.marked} == {first[1].epoch + 1}


def test_an_epoch_without_data_is_committed_too() -> None:
    desk = QueryDesk()
    run = desk.open()
    assert desk.commit(run, 0).result == EpochOutcome(0, is_repeated=False)
    assert desk.commit(run, 3).result == EpochOutcome(3, is_repeated=False)
    assert desk.marked == []


def test_one_record_decides_all_of_them() -> None:
    desk = QueryDesk()
    run = desk.open()
    parts = [desk.write(run, 0) for _ in range(3)]
    desk.is_disk_slow = True
    answer = desk.commit(run, 0, *parts)
    assert len(desk.unwritten) == 1
    assert desk.marked == []
    desk.are_markers_slow = True
    desk.finish_writes()
    assert answer.is_waiting, "not every reader can see it"
    assert len(desk.unmarked) == 3
    desk.finish_markers()
    assert answer.is_waiting, "the log does not say so"
    desk.finish_writes()
    assert answer.result == EpochOutcome(0, is_repeated=False)


def test_a_crash_after_any_record_leaves_all_or_nothing() -> None:
    whole = QueryDesk()
    run = whole.open()
    parts = [whole.write(run, 0) for _ in range(3)]
    before = len(whole.log)
    whole.commit(run, 0, *parts)
    for length in range(len(whole.log) + 1):
        desk = QueryDesk()
        desk.log = whole.log[:length]
        desk.restart()
        if length > before:
            assert desk.commit(run, 0, *parts).result == EpochOutcome(0, is_repeated=False)
            assert set(desk.outcomes.values()) <= {True}
        desk.wait(2 * DAY_MS)
        assert set(desk.outcomes.values()) <= {length > before}
        assert desk.coordinator.all() == []


def test_a_repeated_epoch_aborts_what_it_wrote_this_time() -> None:
    desk = QueryDesk()
    first = desk.open()
    kept = desk.write(first, 0)
    desk.commit(first, 0, kept)
    desk.restart()
    second = desk.open()
    again = [desk.write(second, 0) for _ in range(2)]
    assert desk.commit(second, 0, *again).result == EpochOutcome(0, is_repeated=True)
    assert [desk.is_committed(one) for one in again] == [False, False]
    assert desk.is_committed(kept)
    assert desk.commit(second, 1).result == EpochOutcome(1, is_repeated=False)
    assert desk.commit(second, 0).result == EpochOutcome(1, is_repeated=True)


def test_the_same_commit_may_be_repeated() -> None:
    desk = QueryDesk()
    run = desk.open()
    part = desk.write(run, 0)
    desk.are_markers_slow = True
    asked = [desk.commit(run, 0, part), desk.commit(run, 0, part)]
    assert all(one.is_waiting for one in asked)
    desk.finish_markers()
    asked.append(desk.commit(run, 0, part))
    desk.restart()
    asked.append(desk.commit(run, 0, part))
    assert [one.result for one in asked] == [EpochOutcome(0, is_repeated=False)] * 4
    assert len(desk.marked) == 1


def test_an_older_run_can_neither_commit_nor_begin() -> None:
    desk = QueryDesk()
    old = desk.open()
    prepared, ongoing = desk.write(old, 0), desk.write(old, 0, is_prepared=False)
    new = desk.open()
    assert new == old + 1
    assert desk.commit(old, 0, prepared).error is FencedProducer
    assert desk.ask_begin(desk.name(old, 0)).error is FencedProducer
    assert [desk.is_committed(one) for one in (prepared, ongoing)] == [False, False]
    assert desk.prepare(ongoing).error is not None
    assert desk.commit(new, 0, desk.write(new, 0)).result == EpochOutcome(0, is_repeated=False)


def test_a_run_with_a_name_keeps_its_number_until_another_opens() -> None:
    desk = QueryDesk()
    assert desk.open("blue") == desk.open("blue") == 1
    desk.restart()
    assert desk.open("blue") == 1
    part = desk.write(1, 0)
    desk.open("blue")
    assert desk.is_committed(part) is None, "opening again harms nothing"
    assert desk.open("green") == 2
    assert desk.ask("open_query", QUERY, "blue").error is FencedProducer
    assert desk.is_committed(part) is False
    for number in range(RUNS_REMEMBERED_MAX + 1):
        assert desk.open(f"more-{number}") == number + 3
    assert desk.open() == RUNS_REMEMBERED_MAX + 4
    assert desk.ask("open_query", QUERY, "x" * 201).error is InvalidRequest


def test_what_an_epoch_leaves_behind_is_aborted_with_its_commit() -> None:
    desk = QueryDesk()
    run = desk.open()
    used, left, still_open = (
        desk.write(run, 1),
        desk.write(run, 1),
        desk.write(run, 1, is_prepared=False),
    )
    older, later = desk.write(run, 0), desk.write(run, 2)
    empty = desk.name(run, 1)
    desk.ask_begin(empty)
    desk.commit(run, 1, used)
    outcomes = [desk.is_committed(one) for one in (used, left, still_open, older, later)]
    assert outcomes == [True, False, False, False, None]
    assert [one.transactional_id for one in desk.coordinator.all()] == [later[0]]


def test_prepared_transactions_time_out_by_a_time_of_their_own() -> None:
    desk = QueryDesk()
    run = desk.open()
    ongoing = desk.write(run, 0, is_prepared=False)
    long, short = desk.write(run, 0), desk.write(run, 0, is_prepared=False)
    assert desk.prepare(short, timeout_ms=2 * TIMEOUT_MS).error is None
    desk.wait(TIMEOUT_MS)
    assert [desk.is_committed(one) for one in (ongoing, short, long)] == [False, None, None]
    desk.wait(TIMEOUT_MS)
    desk.restart()
    assert [desk.is_committed(one) for one in (short, long)] == [False, None]
    assert desk.commit(run, 0, long, short).error is InvalidTransactionState
    assert desk.is_committed(long) is None
    desk.wait(DAY_MS)
    assert desk.is_committed(long) is False
    for timeout_ms in (0, DAY_MS + 1):
        other = desk.write(run, 0, is_prepared=False)
        assert desk.prepare(other, timeout_ms=timeout_ms).error is InvalidTransactionTimeout


def test_nothing_is_written_after_the_preparation_and_an_abort_is_possible() -> None:
    desk = QueryDesk()
    run = desk.open()
    part = name, identity = desk.write(run, 0)
    assert desk.prepare(part).error is None, "it may be repeated"
    assert desk.ask("add_partitions", name, identity, [BILLS]).error is InvalidTransactionState
    refusal = desk.coordinator.verify(name, identity, ORDERS)
    assert isinstance(refusal, InvalidTransactionState)

    def end(*, is_commit: bool) -> Answer:
        call = End(transactional_id=name, identity=identity, is_commit=is_commit, bumps_epoch=True)
        return desk.ask("end", call)

    assert end(is_commit=True).error is InvalidTransactionState
    assert end(is_commit=False).error is None
    assert desk.is_committed(part) is False
    assert desk.commit(run, 0, part).error is InvalidTransactionState
    other = desk.write(run, 0)
    assert desk.ask("abort", other[0]).error is None
    assert desk.is_committed(other) is False


def test_a_task_that_takes_a_name_again_aborts_what_was_prepared_under_it() -> None:
    desk = QueryDesk()
    run = desk.open()
    part = desk.write(run, 0)
    assert desk.ask_begin(part[0]).error is None
    assert desk.is_committed(part) is False
    assert desk.commit(run, 0, part).error is InvalidTransactionState


def test_a_record_that_cannot_be_written_decides_nothing() -> None:
    desk = QueryDesk()
    run = desk.open()
    parts = [desk.write(run, 0) for _ in range(2)]
    desk.is_disk_slow = True
    answers = [desk.commit(run, 0, *parts), desk.commit(run, 0, *parts)]
    desk.fail_write()
    assert answers[0].error is CoordinatorNotAvailable
    desk.finish_writes()
    assert answers[1].result == EpochOutcome(0, is_repeated=False), "it waited, and tried itself"
    assert [desk.is_committed(one) for one in parts] == [True, True]


def test_while_the_record_is_on_its_way_nothing_else_ends_its_transactions() -> None:
    desk = QueryDesk()
    run = desk.open()
    part = desk.write(run, 0)
    desk.is_disk_slow = True
    answer = desk.commit(run, 0, part)
    assert desk.ask("abort", part[0]).error is InvalidTransactionState
    taking_over = desk.ask_begin(part[0])
    opening = desk.ask("open_query", QUERY, "")
    desk.wait(CONCURRENT_WAIT_MS)
    assert taking_over.error is opening.error is ConcurrentTransactions
    desk.wait(2 * DAY_MS)
    desk.is_disk_slow = False
    desk.finish_writes()
    assert answer.result == EpochOutcome(0, is_repeated=False)
    assert desk.is_committed(part)


def test_the_next_epoch_waits_until_the_last_is_complete() -> None:
    desk = QueryDesk()
    run = desk.open()
    first, second = desk.write(run, 0), desk.write(run, 1)
    desk.are_markers_slow = True
    one = desk.commit(run, 0, first)
    two = desk.commit(run, 1, second)
    assert one.is_waiting
    assert two.is_waiting
    desk.finish_markers()
    desk.finish_markers()
    assert (one.result.epoch, two.result.epoch) == (0, 1)
    late = desk.write(run, 2)
    desk.commit(run, 2, late)
    too_late = desk.commit(run, 3)
    desk.wait(CONCURRENT_WAIT_MS)
    assert too_late.error is ConcurrentTransactions


def test_only_the_transactions_of_the_epoch_can_be_named() -> None:
    desk = QueryDesk()
    run = desk.open()
    part = desk.write(run, 0)
    other = Attempt("another", run, 0, "x").transactional_id
    for name in ("shop", other, Attempt(QUERY, run + 1, 0, "x").transactional_id):
        assert desk.commit(run, 0, (name, part[1])).error is InvalidRequest
    assert desk.commit(run, 1, part).error is InvalidRequest
    assert desk.commit(run, -1).error is InvalidRequest
    many = [part] * (EPOCH_TRANSACTIONS_MAX + 1)
    assert desk.commit(run, 0, *many).error is InvalidRequest
    ongoing = desk.write(run, 0, is_prepared=False)
    assert desk.commit(run, 0, part, ongoing).error is InvalidTransactionState
    assert desk.commit(run, 0, (part[0], ProducerIdentity(1, 1))).error is InvalidTransactionState
    assert desk.marked == []


def test_what_belongs_to_no_query_cannot_be_prepared() -> None:
    desk = QueryDesk()
    identity = desk.begin(ORDERS)
    assert desk.prepare(("shop", identity)).error is InvalidRequest
    assert desk.ask_begin(f"{PREFIX}{QUERY}~1~0~a").error is UnknownTransaction
    assert desk.ask_begin(f"{PREFIX}no such form").error is InvalidRequest
    assert desk.commit(1, 0).error is UnknownTransaction
    with pytest.raises(UnknownTransaction):
        desk.coordinator.describe_query(QUERY)
    assert desk.ask("open_query", "a~b", "").error is InvalidRequest
    run = desk.open()
    name = desk.name(run, 0)
    unwritten = desk.ask_begin(name).result
    assert desk.prepare((name, unwritten)).error is InvalidTransactionState
    assert len(desk.coordinator) == 3


def test_a_query_is_forgotten_soon_when_it_is_over_and_late_when_it_is_not() -> None:
    settings = TransactionSettings(query_expiration_ms=30 * DAY_MS)
    for is_last, days in ((True, 7), (False, 30)):
        desk = QueryDesk(settings)
        run = desk.open()
        desk.commit(run, 0, desk.write(run, 0), is_last=is_last)
        desk.wait(days * DAY_MS - 1)
        desk.restart()
        assert desk.coordinator.describe_query(QUERY).is_closed == is_last
        desk.wait(1)
        desk.restart()
        assert desk.commit(run, 1).error is UnknownTransaction
        assert len(desk.coordinator) == 0


def test_a_partition_that_lost_its_marker_still_hears_what_the_newest_epoch_decided() -> None:
    desk = QueryDesk()
    run = desk.open()
    part, left = desk.write(run, 0), desk.write(run, 0)
    desk.commit(run, 0, part)
    desk.restart()
    view = desk.coordinator.of_producer(part[1].producer_id)
    assert view is not None
    assert (view.state, view.identity.epoch) == (COMMITTED, part[1].epoch + 1)
    assert desk.coordinator.of_producer(left[1].producer_id) is None


def test_names_say_where_a_transaction_belongs() -> None:
    attempt = Attempt("a.b-c", 3, 17, "task_1")
    assert read_attempt(attempt.transactional_id) == attempt
    assert read_attempt("shop~1~2~3") is None
    assert routing_name("shop~1") == "shop~1"
    assert routing_name(attempt.transactional_id) == routing_name(PREFIX + "a.b-c")
    for wrong in ("a", "a~1", "a~1~2", "a~01~2~x", "a~1~2~x~y", "~1~2~x", f"a~{1 << 63}~1~x"):
        with pytest.raises(InvalidRequest):
            read_attempt(PREFIX + wrong)
