"""Messages that a transaction has acknowledged: nobody's until it ends."""

from __future__ import annotations

import pytest

from goqueue.delivery import (
    NORMAL,
    Ended,
    LaneIndex,
    Ledger,
    Prepared,
    check_queue_settings,
    decode_events,
    encode_events,
    peek,
    stats,
)
from goqueue.delivery.ledger import Retry
from tests.unit.delivery.desk import Desk, Topic, errors


def desk(topic: Topic | None = None, **settings: object) -> Desk:
    values: dict[str, object] = {"backoff_jitter": 0.0, **settings}
    return Desk(topic, settings=check_queue_settings(values))


def states(one: Desk, count: int) -> list[str]:
    return [each.state for each in peek(one.queue, 0, range(count))]


def test_a_prepared_message_is_nobodys_until_a_commit_makes_it_done() -> None:
    one = desk(visibility_ms=1000)
    one.topic.produce(3)
    deliveries = one.receive()
    assert errors(one.prepare(deliveries[:2])) == [None, None]
    one.pass_time(100_000)
    assert one.offsets() == [2]
    assert states(one, 3) == ["prepared", "prepared", "leased"]
    figures = stats(one.queue, one.topic.now_ms)
    assert (figures.in_flight, figures.prepared, figures.ready) == (3, 2, 0)
    one.end(is_commit=True)
    assert states(one, 3) == ["done", "done", "leased"]
    assert stats(one.queue, one.topic.now_ms).prepared == 0


def test_an_abort_is_a_failed_delivery_and_the_message_is_there_at_once() -> None:
    one = desk(deliveries_max=2)
    one.topic.produce(2)
    one.prepare(one.receive())
    one.end(is_commit=False)
    again = one.receive()
    assert [(each.offset, each.attempt) for each in again] == [(0, 2), (1, 2)]
    one.prepare(again[:1])
    one.end(is_commit=False)
    one.discard()
    assert one.note_dead_lettered == [(0, 0, "deliveries_exhausted", 2)]
    assert states(one, 2) == ["done", "leased"]


def test_ends_of_other_transactions_change_nothing() -> None:
    one = desk()
    one.topic.produce(2)
    first, second = one.receive()
    one.prepare([first], producer_id=1)
    one.prepare([second], producer_id=2)
    one.end(3, is_commit=True)
    one.end(2, is_commit=False)
    one.end(2, is_commit=True)
    assert states(one, 2) == ["prepared", "retrying"]
    one.end(1, is_commit=True)
    assert states(one, 2) == ["done", "retrying"]


def test_a_receipt_counts_once_and_what_is_prepared_cannot_be_settled_otherwise() -> None:
    one = desk()
    one.topic.produce(1)
    deliveries = one.receive()
    twice = [*deliveries, *deliveries]
    assert errors(one.prepare(twice)) == [None, None]
    assert errors(one.prepare(deliveries)) == [None], "the transaction has it"
    assert errors(one.prepare(deliveries, producer_id=2)) == ["stale_receipt"]
    for settle in (one.ack, one.nack, one.reject):
        assert errors(settle(deliveries)) == ["stale_receipt"]
    assert errors(one.extend(deliveries, 1000)) == ["stale_receipt"]


def test_nothing_changes_before_the_plan_is_carried_out() -> None:
    one = desk()
    one.topic.produce(1)
    (delivery,) = one.receive()
    plan = one.queue.transactions.plan(one.topic.now_ms, [delivery.receipt], 1)
    assert states(one, 1) == ["leased"]
    assert errors(one.ack([delivery])) == [None]
    assert plan.settled[0].error is None


def test_prepared_messages_leave_less_room_for_others() -> None:
    one = desk(unacked_max=3)
    one.topic.produce(10)
    one.prepare(one.receive(2))
    assert one.offsets() == [2]
    one.open()
    assert one.queue.limits.room_for("anna") == 0
    one.pass_time(one.settings.visibility_ms)
    assert one.queue.limits.room_for("anna") == 1
    assert one.offsets() == [2]
    one.end(is_commit=True)
    assert one.queue.limits.room_for("anna") == 2


def test_a_key_waits_for_the_end_of_the_transaction_that_has_its_message() -> None:
    one = desk(key_order=True)
    one.topic.produce(2, key=b"k")
    one.topic.produce(1, key=b"other")
    first, other = one.receive()
    assert (first.offset, other.offset) == (0, 2)
    one.prepare([first])
    assert one.offsets() == []
    one.open()
    assert one.offsets() == []
    assert states(one, 3) == ["prepared", "parked", "leased"]
    one.end(is_commit=False)
    assert one.offsets() == [0]
    one.pass_time(one.settings.visibility_ms)
    one.open()
    assert one.offsets() == [0, 2]


def test_a_crash_forgets_neither_leases_nor_what_is_prepared() -> None:
    one = desk()
    one.topic.produce(4, lane=1)
    one.topic.produce(4, lane=3)
    deliveries = one.receive(8)
    one.prepare(deliveries[1:6:2])
    prepared = [each.offset for each in deliveries[1:6:2]]
    one.open()
    assert one.offsets() == []
    figures = stats(one.queue, one.topic.now_ms)
    assert (figures.in_flight, figures.prepared) == (8, 3)
    one.end(is_commit=True)
    one.open()
    one.pass_time(one.settings.visibility_ms)
    assert sorted([*one.offsets(), *prepared]) == list(range(8))


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_rewind_takes_back_what_lies_behind_its_target(is_commit: bool) -> None:
    one = desk()
    one.topic.produce(4)
    one.prepare(one.receive())
    one.queue.rewind(0, 2, one.topic.now_ms)
    one.save()
    assert states(one, 4) == ["prepared", "prepared", "ready", "ready"]
    one.end(is_commit=is_commit)
    kept = "done" if is_commit else "retrying"
    assert states(one, 4) == [kept, kept, "ready", "ready"]
    one.open()
    assert states(one, 4) == [kept, kept, "ready", "ready"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_purge_and_retention_finish_what_is_prepared(is_commit: bool) -> None:
    one = desk()
    one.topic.produce(4)
    one.prepare(one.receive(3))
    one.topic.starts[0] = 1
    one.queue.partitions[0].start_moved(1, one.topic.now_ms)
    assert states(one, 4) == ["done", "prepared", "prepared", "ready"]
    one.queue.purge([4])
    one.save()
    assert stats(one.queue, one.topic.now_ms).in_flight == 0
    one.end(is_commit=is_commit)
    assert states(one, 4) == ["done"] * 4
    assert one.offsets() == []


def test_a_log_that_lost_its_tail_takes_prepared_messages_with_it() -> None:
    one = desk()
    one.topic.produce(4)
    one.prepare(one.receive())
    one.topic.keys[0] = one.topic.keys[0][:2]
    one.topic.indexes[0] = LaneIndex()
    one.topic.indexes[0].note(0, 1, NORMAL)
    one.open()
    one.topic.produce(2)
    one.end(is_commit=True)
    assert one.offsets() == [2, 3]


def test_what_is_prepared_is_written_and_read_again() -> None:
    event = Prepared(1 << 40, [(5, Retry(1, 1_700_000_000_000, 7)), (9, Retry(3, 5, 0))])
    assert decode_events(encode_events([event])) == [event]
    with pytest.raises(AssertionError):
        encode_events([Ended(1, is_commit=True)])


def test_a_snapshot_leaves_open_transactions_alone() -> None:
    ledger = Ledger()
    ledger.apply(Prepared(1, [(5, Retry(1, 0))]))
    for part in Ledger(3).snapshot():
        ledger.apply(part)
    assert (ledger.floor, ledger.prepared) == (3, {1: {5: Retry(1, 0)}})
    ledger.apply(Ended(1, is_commit=True))
    assert ledger.is_done(5)
    assert ledger.prepared == {}
