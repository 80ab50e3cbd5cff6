"""What survives a crash, what waits for the disk, and what happens when it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidTransactionState,
    UnsupportedVersion,
)
from goqueue.transactions import Coordinator, TransactionState
from goqueue.transactions.deadlines import Deadlines
from goqueue.transactions.limits import FAILED_WRITE_REST_MS
from goqueue.transactions.records import decode_key, decode_query, decode_standing, encode_key
from tests.unit.transactions.desk import BILLS, ORDERS, TIMEOUT_MS, Desk


def test_a_decision_is_carried_out_after_a_restart() -> None:
    for is_commit in (True, False):
        desk = Desk()
        desk.are_markers_slow = True
        identity = desk.begin(ORDERS, BILLS)
        desk.end(identity, is_commit=is_commit)
        desk.restart()
        desk.finish_markers()
        assert desk.marked == [(BILLS, identity, is_commit), (ORDERS, identity, is_commit)]
        assert desk.end(identity, is_commit=is_commit).error is None
        assert desk.end(identity, is_commit=not is_commit).error is InvalidTransactionState


def test_every_log_that_a_crash_can_leave_leads_to_a_whole_end() -> None:
    whole = Desk()
    identity = whole.begin(ORDERS, BILLS)
    whole.end(identity)
    for length in range(1, len(whole.log) + 1):
        desk = Desk()
        desk.log = whole.log[:length]
        desk.restart()
        desk.wait(TIMEOUT_MS)
        outcomes = {is_commit for _, _, is_commit in desk.marked}
        assert len(outcomes) <= 1
        assert len(desk.marked) in (0, 2)
        assert desk.view.partitions == ()


def test_a_decision_that_cannot_be_written_is_not_made() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    desk.is_disk_slow = True
    ended, waiting = desk.end(identity), desk.end(identity, waits=True)
    desk.fail_write()
    assert (ended.error, waiting.error) == (CoordinatorNotAvailable, CoordinatorNotAvailable)
    assert desk.refusal(identity) is None
    assert desk.marked == []
    assert desk.end(identity, is_commit=False).is_waiting
    desk.finish_writes()
    assert desk.marked == [(ORDERS, identity, False)]


def test_a_completion_that_cannot_be_written_is_written_later() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    desk.are_markers_slow = True
    waiting = desk.end(identity, waits=True)
    desk.is_disk_slow = True
    desk.finish_markers()
    assert waiting.result == identity, "all participants know; more is not waited for"
    desk.fail_write()
    length = len(desk.log)
    desk.wait(FAILED_WRITE_REST_MS - 1)
    assert desk.unwritten == []
    desk.wait(1)
    desk.finish_writes()
    assert len(desk.log) == length + 1
    assert desk.state is TransactionState.COMPLETE_COMMIT
    assert len(desk.marked) == 1


def test_a_time_out_that_cannot_be_written_is_tried_again() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    desk.is_disk_slow = True
    desk.wait(TIMEOUT_MS)
    desk.fail_write()
    assert desk.refusal(identity) is None
    desk.wait(FAILED_WRITE_REST_MS)
    desk.finish_writes()
    assert desk.state is TransactionState.COMPLETE_ABORT


def test_what_rests_on_a_write_that_fails_fails_with_it() -> None:
    desk = Desk()
    identity = desk.initialise()
    desk.is_disk_slow = True
    first, second = desk.add(identity, ORDERS), desk.add(identity, BILLS)
    again = desk.add(identity, ORDERS)
    desk.fail_write()
    errors = (first.error, second.error, again.error)
    assert errors == (CoordinatorNotAvailable,) * 3
    assert desk.unwritten == []
    assert desk.state is TransactionState.EMPTY


def test_what_is_asked_during_a_write_is_written_at_once_afterwards() -> None:
    desk = Desk()
    identity = desk.initialise()
    desk.is_disk_slow = True
    answers = [desk.add(identity, ORDERS), desk.add(identity, BILLS)]
    assert len(desk.unwritten) == 1
    desk.finish_writes()
    assert all(not one.is_waiting for one in answers)
    assert desk.view.partitions == (BILLS, ORDERS)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("are_markers_slow", [False, True])
def test_who_keeps_its_epoch_is_told_of_an_end_again_only_by_who_can_write(
    *, waits: bool, are_markers_slow: bool
) -> None:
    desk = Desk()
    desk.are_markers_slow = are_markers_slow
    identity = desk.begin(ORDERS)
    desk.end(identity)
    desk.is_disk_slow = True
    refused, again = desk.end(identity, waits=waits), desk.end(identity, waits=waits)
    desk.finish_markers()
    assert (refused.is_waiting, again.is_waiting) == (True, True)
    desk.fail_write()
    assert refused.error is again.error is CoordinatorNotAvailable
    desk.wait(FAILED_WRITE_REST_MS // 2)
    again = desk.end(identity, waits=waits)
    assert again.is_waiting
    desk.wait(FAILED_WRITE_REST_MS // 2)
    desk.finish_writes()
    assert again.result == identity
    assert desk.marked == [(ORDERS, identity, True)]


def test_that_a_partition_takes_part_is_told_again_only_by_who_can_write() -> None:
    desk = Desk()
    identity = desk.begin(ORDERS)
    before = desk.view
    desk.is_disk_slow = True
    again = desk.add(identity, ORDERS)
    assert again.is_waiting
    desk.finish_writes()
    assert (again.is_waiting, again.error) == (False, None)
    assert desk.view == before
    again = desk.add(identity, ORDERS)
    desk.fail_write()
    assert again.error is CoordinatorNotAvailable
    assert desk.refusal(identity) is None


def test_what_is_written_again_is_not_marked_again() -> None:
    desk = Desk()
    desk.are_markers_slow = True
    identity = desk.begin(ORDERS, BILLS)
    desk.end(identity)
    assert desk.end(identity).result == identity
    assert len(desk.unmarked) == 1
    desk.finish_markers()
    assert len(desk.marked) == 2
    assert desk.state is TransactionState.COMPLETE_COMMIT


def test_nothing_is_answered_while_loading() -> None:
    coordinator = Coordinator(Desk().settings)
    with pytest.raises(CoordinatorLoading):
        coordinator.check_ready()
    assert coordinator.next_deadline_ms() is None


def test_records_of_others_are_passed_over() -> None:
    assert decode_key(encode_key("größe")) == "größe"
    assert decode_key(b"") is None
    assert decode_key(b"\x00\x00\x00\x01a") is None
    assert decode_key(encode_key("ab") + b"c") is None
    assert decode_key(encode_key("a")[:-1] + b"\xff") is None
    assert decode_standing(b"") is None
    assert decode_standing(b"\x01rest") is None
    coordinator = Coordinator(Desk().settings)
    coordinator.replay(b"other", b"value")
    assert len(coordinator) == 0


@pytest.mark.parametrize("decode", [decode_standing, decode_query])
def test_values_of_a_later_version_are_not_taken_for_deletions(
    decode: Callable[[bytes], object],
) -> None:
    with pytest.raises(UnsupportedVersion, match=r"version 7.*upgrade this node"):
        decode(b"\x07rest")


def test_a_deadline_that_moves_passes_once_at_its_last_place() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 100)
    deadlines.set("a", 300)
    deadlines.set("b", 200)
    assert deadlines.next_ms() == 200
    assert [deadlines.pop_due(250), deadlines.pop_due(250)] == ["b", None]
    deadlines.set("a", 150)
    assert deadlines.next_ms() == 150
    deadlines.set("a", None)
    assert deadlines.next_ms() is None
    deadlines.set("a", 120)
    assert [deadlines.pop_due(1000), deadlines.pop_due(1000)] == ["a", None]
