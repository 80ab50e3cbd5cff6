"""Receiving and settling, one rule after the other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery import QueueSettings, check_queue_settings, peek, stats
from goqueue.delivery.settling import backoff_ms
from goqueue.model.errors import InvalidGroupSettings
from tests.unit.delivery.desk import Desk, Topic, errors, receipts
from tests.unit.effort import steps_of


def desk(**settings: object) -> Desk:
    values: dict[str, object] = {"backoff_jitter": 0.0, **settings}
    return Desk(settings=check_queue_settings(values))


def states(one: Desk, count: int, partition: int = 0) -> list[str]:
    return [each.state for each in peek(one.queue, partition, range(count))]


# Leases


def test_a_leased_message_is_with_one_consumer_and_an_acked_one_never_comes_back() -> None:
    one = desk()
    one.topic.produce(5)
    first = one.receive(3)
    assert [(each.offset, each.attempt) for each in first] == [(0, 1), (1, 1), (2, 1)]
    assert one.offsets(10, consumer="bert") == [3, 4]
    assert errors(one.ack(first)) == [None] * 3
    one.pass_time(100_000)
    assert one.offsets() == [3, 4]
    one.open()
    assert one.offsets() == []
    one.pass_time(one.settings.visibility_ms)
    assert one.offsets() == [3, 4]


def test_many_acks_out_of_order_collapse() -> None:
    one = desk()
    one.topic.produce(1000)
    deliveries = one.receive(1000)
    random.Random(1).shuffle(deliveries)
    for each in deliveries:
        one.ack([each])
    ledger = one.queue.partitions[0].ledger
    assert (ledger.floor, len(ledger.done)) == (1000, 0)


def test_an_expired_lease_comes_back_at_once_as_the_next_attempt() -> None:
    one = desk(visibility_ms=30_000)
    one.topic.produce(2)
    deliveries = one.receive()
    one.pass_time(29_999)
    assert one.receive() == []
    assert one.next_wake_ms() == one.topic.now_ms + 1
    one.pass_time(1)
    assert errors(one.ack(deliveries)) == ["stale_receipt"] * 2
    assert [(each.offset, each.attempt) for each in one.receive()] == [(0, 2), (1, 2)]


def test_a_lease_is_over_on_time_even_before_anybody_has_cleaned_up() -> None:
    one = desk(visibility_ms=1000)
    one.topic.produce(1)
    deliveries = one.receive()
    one.topic.now_ms += 1000
    assert errors(one.ack(deliveries)) == ["stale_receipt"]


def test_an_extended_message_keeps_its_receipt_and_the_others_their_time() -> None:
    one = desk(visibility_ms=1000)
    one.topic.produce(3)
    deliveries = one.receive()
    one.pass_time(500)
    assert errors(one.extend(deliveries[1:2], 5000)) == [None]
    one.pass_time(500)
    assert one.offsets() == [0, 2]
    one.pass_time(1000)
    assert one.offsets() == [0, 2]
    one.open()
    assert one.offsets() == []
    assert errors(one.ack(deliveries[1:2])) == [None]
    one.pass_time(1000)
    assert one.note_dead_lettered == []
    one.discard()
    assert [offset for _, offset, _, _ in one.note_dead_lettered] == [0, 2]


def test_a_whole_lease_is_extended_and_can_be_shortened() -> None:
    one = desk(visibility_ms=1000)
    one.topic.produce(2)
    deliveries = one.receive()
    one.extend(deliveries, 10_000)
    one.pass_time(5000)
    assert one.receive() == []
    one.extend(deliveries[:1], 100)
    assert one.next_wake_ms() == one.topic.now_ms + 100
    one.pass_time(100)
    assert one.offsets() == [0]
    assert errors(one.ack(deliveries)) == ["stale_receipt", None]


def test_extending_again_and_again_leaves_one_entry_to_look_at() -> None:
    one = desk(visibility_ms=1000)
    one.topic.produce(100)
    deliveries = one.receive(100)
    for _ in range(50):
        one.pass_time(10)
        for each in deliveries:
            one.extend([each], 1000)
    assert len(one.queue.leases._expiries) <= 2


# Receipts


def test_bad_receipts_harm_nobody_and_each_has_its_own_answer() -> None:
    topic = Topic()
    one, other = Desk(topic, number=1), Desk(topic, number=2, group="other")
    topic.produce(3)
    mine, theirs = one.receive(), other.receive()
    forged = mine[1].receipt[:39] + ("A" if mine[1].receipt[39] != "A" else "B")
    forged += mine[1].receipt[40:]
    results = one.queue.settling.ack(
        topic.now_ms, [mine[0].receipt, "nonsense", theirs[1].receipt, forged, mine[0].receipt]
    )
    assert errors(results) == [
        None,
        "invalid_receipt",
        "invalid_receipt",
        "invalid_receipt",
        None,  # It is done, by the same receipt.
    ]
    assert states(one, 3) == ["done", "leased", "leased"]
    assert states(other, 3) == ["leased"] * 3


@pytest.mark.parametrize("key_order", [False, True])
def test_a_receipt_of_an_earlier_life_is_good_until_its_time(key_order: bool) -> None:
    one = desk(key_order=key_order, visibility_ms=1000)
    for key in (b"a", b"b", b"c", b"d", b"e"):
        one.topic.produce(1, key=key)
    old = one.receive()
    one.pass_time(400)
    one.open()
    assert one.receive() == []
    assert errors(one.ack(old[:1])) == [None]
    assert errors(one.nack(old[1:2], 0)) == [None]
    assert errors(one.reject(old[2:3])) == [None]
    assert errors(one.extend(old[3:4], 5000)) == [None]
    assert [(each.offset, each.attempt) for each in one.receive()] == [(1, 2)]
    one.discard()
    one.open()
    one.pass_time(600)
    assert [(each.offset, each.attempt) for each in one.receive()] == [(4, 2)]
    assert states(one, 5) == ["done", "leased", "done", "leased", "leased"]


def test_a_settled_message_stays_settled_whoever_asks_again() -> None:
    """A call whose answer was lost is made again, also of the next owner."""
    one = desk(backoff_ms=0)
    one.topic.produce(3)
    acked, nacked, rejected = one.receive()
    one.ack([acked])
    one.nack([nacked], 0)
    one.reject([rejected])
    assert errors(one.reject([rejected])) == ["dead_lettering"], "it is not settled yet"
    one.discard()
    for _ in range(2):
        assert errors(one.ack([acked])) == [None]
        assert errors(one.nack([nacked], 0)) == [None]
        assert errors(one.reject([rejected])) == [None]
        assert errors(one.ack([rejected])) == ["stale_receipt"]
        assert errors(one.reject([acked])) == ["stale_receipt"]
        one.write_out()
        one.save()
        one.open()
    assert [(each.offset, each.attempt) for each in one.receive()] == [(1, 2)]
    assert errors(one.nack([nacked], 0)) == [None]
    assert errors(one.ack([nacked])) == ["stale_receipt"], "somebody else has it"


def test_what_nobody_has_seen_is_given_back_and_not_counted() -> None:
    one = desk()
    one.topic.produce(3)
    one.receive()
    one.queue.release(list(one.queue.leases), one.topic.now_ms)
    one.save()
    for _ in range(2):
        assert [one.queue.limits.unacked.total, *states(one, 3)] == [0, "ready", "ready", "ready"]
        one.open()
    assert [(each.offset, each.attempt) for each in one.receive()] == [(0, 1), (1, 1), (2, 1)]


def test_a_snapshot_keeps_leases_with_their_times() -> None:
    one = desk(visibility_ms=1000)
    one.topic.produce(2, lane=1)
    one.topic.produce(4, lane=3)
    held = one.receive()
    one.ack(held[:1])
    one.extend(held[1:2], 3000)
    one.journal.clear()
    one.write_out()
    one.save()
    one.open()
    assert one.receive() == []
    assert stats(one.queue, one.topic.now_ms).in_flight == 5
    one.pass_time(1000)
    assert sorted(one.offsets()) == [2, 3, 4, 5]
    assert errors(one.ack(held[1:2])) == [None]


# Retries and dead letters


def test_a_nacked_message_rests_longer_each_time_and_then_dies() -> None:
    one = desk(deliveries_max=3, backoff_ms=1000, backoff_factor=2.0)
    one.topic.produce(1)
    for rest in (1000, 2000):
        one.nack(one.receive())
        one.pass_time(rest - 1)
        assert one.receive() == []
        one.pass_time(1)
    (last,) = one.receive()
    assert last.attempt == 3
    (settled,) = one.nack([last])
    assert settled.dead_letter is not None
    assert states(one, 1) == ["dead_lettering"]
    one.discard()
    assert one.note_dead_lettered == [(0, 0, "deliveries_exhausted", 3)]
    assert states(one, 1) == ["done"]
    one.pass_time(1_000_000)
    assert one.receive() == []


def test_attempts_survive_a_crash_so_that_a_poisoned_message_dies_in_the_end() -> None:
    one = desk(deliveries_max=3, visibility_ms=1000)
    one.topic.produce(1)
    for attempt in (1, 2, 3):
        assert [each.attempt for each in one.receive()] == [attempt]
        one.pass_time(1000)
        if attempt < 3:
            one.open()
    one.discard()
    assert one.note_dead_lettered == [(0, 0, "deliveries_exhausted", 3)]


def test_a_nack_may_name_its_own_delay() -> None:
    one = desk()
    one.topic.produce(1)
    one.nack(one.receive(), 12_345)
    assert one.next_wake_ms() == one.topic.now_ms + 12_345
    (state,) = peek(one.queue, 0, range(1))
    assert (state.state, state.due_ms, state.attempts) == (
        "retrying",
        one.topic.now_ms + 12_345,
        1,
    )


def test_a_rejected_message_dies_at_once_with_the_reason_of_its_consumer() -> None:
    one = desk()
    one.topic.produce(2)
    one.reject(one.receive(1), "cannot be parsed")
    one.discard()
    assert one.note_dead_lettered == [(0, 0, "cannot be parsed", 1)]
    one.open()
    assert one.offsets() == [1]


def test_a_dead_letter_that_was_not_written_before_the_crash_is_delivered_again() -> None:
    one = desk()
    one.topic.produce(1)
    one.reject(one.receive())
    one.open()
    assert one.offsets() == [0]


def test_due_retries_come_first_in_the_order_of_their_times() -> None:
    one = desk()
    one.topic.produce(4)
    a, b, c = one.receive(3)
    one.nack([a], 300)
    one.nack([b], 100)
    one.nack([c], 200)
    one.pass_time(300)
    assert one.offsets() == [1, 2, 0, 3]


def test_backoff_grows_to_its_cap_and_is_spread_out() -> None:
    settings = QueueSettings(backoff_ms=1000, backoff_factor=2.0, backoff_ms_max=60_000)
    source = random.Random(3)
    for attempts, rest in ((1, 1000), (2, 2000), (5, 16_000), (7, 60_000), (1000, 60_000)):
        drawn = [backoff_ms(settings, attempts, source) for _ in range(200)]
        assert min(drawn) >= rest * 0.8
        assert max(drawn) <= min(60_000, rest * 1.2)
        assert len(set(drawn)) > 50


def test_too_many_waiting_retries_hold_back_new_messages_and_not_the_retries() -> None:
    one = desk(retrying_max=3)
    one.topic.produce(10)
    one.nack(one.receive(3), 1000)
    assert one.receive() == []
    one.pass_time(1000)
    assert one.offsets(3) == [0, 1, 2]
    assert one.offsets(3) == [3, 4, 5]


# Time to live, gaps


def test_a_message_whose_life_is_over_is_never_delivered() -> None:
    one = desk()
    one.topic.produce(2, ttl_ms=1000)
    one.topic.produce(1)
    assert one.offsets(1) == [0]
    one.pass_time(1000)
    assert one.offsets() == [2]
    assert one.queue.totals.ttl_expired == 1
    one.pass_time(30_000)
    assert one.offsets() == [2], "the retry of a message whose life is over was delivered"
    assert one.queue.totals.ttl_expired == 2


def test_offsets_without_a_record_are_passed_over_for_good() -> None:
    one = desk()
    one.topic.produce(5)
    one.topic.gone |= {(0, 1), (0, 3)}
    assert one.offsets() == [0, 2, 4]
    assert one.queue.totals.skipped == 2
    one.open()
    one.pass_time(one.settings.visibility_ms)
    assert one.offsets() == [0, 2, 4]


def test_what_was_chosen_and_not_read_can_be_chosen_again_at_once() -> None:
    one = desk()
    one.topic.produce(4)
    assert one.queue.choose(one.topic.now_ms, "anna", 3)
    assert one.queue.lease(one.topic.now_ms, "anna", [], visibility_ms=1000) == []
    assert stats(one.queue, one.topic.now_ms).ready == 4
    assert [(each.offset, each.attempt) for each in one.receive()] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),
    ]


# Back-pressure


def test_a_consumer_and_a_group_hold_no_more_than_they_may() -> None:
    one = desk(unacked_max=5, consumer_unacked_max=3)
    one.topic.produce(10)
    first = one.receive(consumer="anna")
    assert [each.offset for each in first] == [0, 1, 2]
    assert one.receive(consumer="anna") == []
    assert one.offsets(consumer="bert") == [3, 4]
    assert one.receive(consumer="carl") == []
    one.ack(first[:1])
    assert one.offsets(consumer="anna") == [5]


def test_dead_letters_on_their_way_count_as_out() -> None:
    one = desk(unacked_max=2)
    one.topic.produce(10)
    one.reject(one.receive())
    assert one.receive() == []
    one.discard()
    assert one.offsets() == [2, 3]


# Per-key order


def test_a_busy_key_waits_and_others_go_on() -> None:
    one = desk(key_order=True)
    for key in (b"a", b"a", b"b", b"a", None, None):
        one.topic.produce(key=key)
    first = one.receive()
    assert [each.offset for each in first] == [0, 2, 4, 5]
    assert states(one, 4) == ["leased", "parked", "leased", "parked"]
    one.ack(first[:1])
    second = one.receive()
    assert [each.offset for each in second] == [1]
    one.nack(second, 1000)
    assert one.receive() == [], "a key whose message waits for a retry is busy"
    one.pass_time(1000)
    assert one.offsets() == [1]


def test_keys_that_wait_for_a_retry_are_still_busy_after_a_crash() -> None:
    one = desk(key_order=True)
    for key in (b"a", b"a", b"b"):
        one.topic.produce(key=key)
    first = one.receive()
    one.nack(first[:1], 60_000)
    one.open()
    assert one.offsets() == []
    one.ack(first[1:])
    one.pass_time(60_000)
    one.ack(one.receive(1))
    assert one.offsets(1) == [1]


def test_a_key_is_free_again_when_its_message_dies_or_expires() -> None:
    one = desk(key_order=True)
    one.topic.produce(1, key=b"a")
    one.topic.produce(1, key=b"a", ttl_ms=10)
    one.topic.produce(1, key=b"a")
    one.reject(one.receive())
    assert one.receive() == []
    one.discard()
    one.pass_time(100)
    assert one.receive() == []  # the second is over when it is looked at
    assert one.offsets() == [2]


def test_parked_messages_are_bounded_and_choosing_goes_on_when_they_are_fewer() -> None:
    topic = Topic(2)
    one = Desk(topic, QueueSettings(key_order=True, parked_max=5))
    topic.produce(100, key=b"hot")
    topic.produce(1, key=b"cold")
    topic.produce(1, partition=1, key=b"cold")
    held = one.receive(7)
    assert stats(one.queue, topic.now_ms).partitions[0].parked >= 5
    assert [(each.partition, each.offset) for each in one.receive(7)] == [(1, 0)]
    seen = [each.offset for each in held]
    for _ in range(200):
        one.ack(held)
        held = one.receive(7)
        seen += [each.offset for each in held if each.partition == 0]
    assert [offset for offset in seen if offset != 100] == list(range(100))
    assert seen.count(100) == 1


# Moving about


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_rewind_delivers_done_messages_again(is_restarted: bool) -> None:
    one = desk()
    one.topic.produce(10)
    one.ack(one.receive())
    one.queue.rewind(0, 4, one.topic.now_ms)
    one.save()
    if is_restarted:
        one.open()
    assert [(each.offset, each.attempt) for each in one.receive()] == [
        (offset, 1) for offset in range(4, 10)
    ]


def test_a_rewind_voids_the_leases_from_there_on_and_keeps_what_is_under_way_before() -> None:
    one = desk()
    one.topic.produce(6)
    deliveries = one.receive(5)
    one.nack(deliveries[1:2], 1000)
    one.queue.rewind(0, 3, one.topic.now_ms)
    one.save()
    assert errors(one.ack(deliveries[3:])) == ["stale_receipt"] * 2
    assert errors(one.ack(deliveries[:1])) == [None]
    assert one.offsets() == [3, 4, 5]
    one.pass_time(1000)
    assert one.offsets() == [1]
    one.open()
    assert one.offsets() == []
    one.pass_time(one.settings.visibility_ms)
    assert sorted(one.offsets()) == [1, 2, 3, 4, 5]


def test_a_rewind_forward_skips_what_was_not_handed_out() -> None:
    one = desk()
    one.topic.produce(10)
    held = one.receive(2)
    one.queue.rewind(0, 7, one.topic.now_ms)
    one.save()
    assert one.offsets() == [7, 8, 9]
    assert errors(one.ack(held)) == [None, None]
    one.open()
    one.pass_time(one.settings.visibility_ms)
    assert one.offsets() == [7, 8, 9]


def test_a_rewind_stays_within_the_log() -> None:
    one = desk()
    one.topic.produce(5)
    one.topic.starts[0] = 2
    one.queue.partitions[0].start_moved(2, one.topic.now_ms)
    one.queue.rewind(0, 0, one.topic.now_ms)
    assert one.offsets() == [2, 3, 4]
    one.queue.rewind(0, 5, one.topic.now_ms)
    assert one.receive() == []
    one.topic.produce(1)
    assert one.offsets() == [5]


def test_a_purge_finishes_everything_also_what_is_out() -> None:
    one = desk()
    one.topic.produce(10)
    held = one.receive(3)
    one.nack(one.receive(2))
    one.queue.purge([one.topic.end(0)])
    one.save()
    assert errors(one.ack(held)) == [None] * 3, "they are done"
    one.topic.produce(1)
    assert one.offsets() == [10]
    one.pass_time(one.settings.visibility_ms)
    one.open()
    assert one.offsets() == [10]
    assert one.queue.limits.unacked.total == 1


def test_a_group_may_start_with_what_comes_and_a_new_partition_is_read_from_its_start() -> None:
    one = desk()
    one.topic.produce(5)
    one.queue.purge([one.topic.end(0)])
    one.save()
    one.topic.produce(1)
    one.topic.grow()
    one.topic.produce(2, partition=1)
    one.open()
    assert sorted((each.partition, each.offset) for each in one.receive()) == [
        (0, 5),
        (1, 0),
        (1, 1),
    ]


def test_retention_takes_what_nobody_received() -> None:
    one = desk()
    one.topic.produce(10)
    held = one.receive(2)
    one.nack(one.receive(1), 1000)
    one.topic.starts[0] = 6
    one.queue.partitions[0].start_moved(6, one.topic.now_ms)
    one.topic.indexes[0].forget_before(6)
    assert stats(one.queue, one.topic.now_ms).ready == 4
    one.pass_time(1000)
    assert one.offsets() == [6, 7, 8, 9]
    assert errors(one.nack(held)) == [None, None], "nothing is left to retry, and nobody minds"
    one.pass_time(10_000)
    assert one.receive() == []


def test_messages_with_the_offsets_of_a_lost_tail_are_delivered() -> None:
    one = desk()
    one.topic.produce(10)
    one.ack(one.receive(10))
    del one.topic.keys[0][4:]
    one.topic.indexes[0].__init__()  # type: ignore[misc]
    one.topic.indexes[0].note(0, 3, 2)
    one.open()
    one.topic.produce(3)
    assert one.offsets() == [4, 5, 6]
    one.pass_time(one.settings.visibility_ms)
    one.open()
    assert one.offsets() == [4, 5, 6], "the journal remembers that the tail was lost"


# Looking


def test_peek_tells_who_has_a_message_until_when() -> None:
    one = desk(visibility_ms=30_000)
    one.topic.produce(3, lane=1)
    one.ack(one.receive(1))
    one.receive(1, consumer="bert")
    done, leased, ready, nowhere = peek(one.queue, 0, range(4))
    assert (done.state, ready.state, nowhere.state) == ("done", "ready", "not_there")
    assert (leased.consumer, leased.until_ms, leased.attempts, leased.lane) == (
        "bert",
        one.topic.now_ms + 30_000,
        1,
        "high",
    )


def test_statistics_add_up() -> None:
    topic = Topic(2)
    one = Desk(topic)
    topic.produce(4, lane=0)
    topic.produce(6, partition=1)
    one.ack(one.receive(2))
    one.nack(one.receive(1), 1000)
    one.receive(1)
    topic.now_ms += 500
    figures = stats(one.queue, topic.now_ms)
    assert (figures.ready, figures.in_flight, figures.retrying) == (6, 1, 1)
    assert figures.lanes[0].in_total + figures.lanes[2].in_total == 10
    assert sum(lane.out_total for lane in figures.lanes) == 4
    assert sum(lane.in_flight for lane in figures.lanes) == 1
    assert max(lane.oldest_age_ms for lane in figures.lanes) == 500
    assert (figures.totals.delivered, figures.totals.acked, figures.totals.nacked) == (4, 2, 1)


# Settings


@pytest.mark.parametrize(
    "values",
    [
        {"visibility_ms": 0},
        {"deliveries_max": -1},
        {"deliveries_max": 1001},
        {"backoff_jitter": 1.5},
        {"start": "middle"},
        {"colour": "red"},
        {"unacked_max": "many"},
    ],
)
def test_settings_out_of_range_are_refused_by_name(values: dict[str, object]) -> None:
    with pytest.raises(InvalidGroupSettings, match=next(iter(values))):
        check_queue_settings(values)


def test_receipts_of_one_call_are_all_different() -> None:
    one = desk()
    one.topic.produce(100)
    assert len(set(receipts(one.receive(100)))) == 100


@given(st.lists(st.integers(0, 24), max_size=60), st.integers(1, 9))
def test_acks_in_any_order_and_number_settle_what_each_would_settle_alone(
    order: list[int], at_once: int
) -> None:
    together, alone = desk(), desk()
    deliveries = []
    for one in (together, alone):
        one.topic.produce(20)
        deliveries.append([each for _ in range(4) for each in one.receive(5)])
        stranger = deliveries[-1][0]._replace(receipt=deliveries[-1][0].receipt[:-1] + "_")
        nonsense = deliveries[-1][0]._replace(receipt="nonsense")
        deliveries[-1] += [stranger, nonsense, *deliveries[-1][:3]]
    for start in range(0, len(order), at_once):
        some = order[start : start + at_once]
        outcome = errors(together.ack([deliveries[0][place] for place in some]))
        expected = [errors(alone.ack([deliveries[1][place]]))[0] for place in some]
        assert outcome == expected
    assert together.queue.partitions[0].ledger == alone.queue.partitions[0].ledger
    assert stats(together.queue, 0) == stats(alone.queue, 0)


def test_a_message_with_a_time_of_its_own_is_not_acked_along_with_the_others() -> None:
    one = desk(visibility_ms=1000)
    one.topic.produce(4)
    deliveries = one.receive()
    one.extend([deliveries[1]], 100)
    one.topic.now_ms += 500
    assert errors(one.ack(deliveries)) == [None, "stale_receipt", None, None]


def test_two_receipts_that_are_sent_as_one_text_are_none() -> None:
    one = desk()
    one.topic.produce(4)
    held = one.receive()
    joined = held[2]._replace(receipt=f"{held[2].receipt} {held[3].receipt}")
    assert errors(one.ack([*held[:2], joined])) == [None, None, "invalid_receipt"]
    assert states(one, 4) == ["done", "done", "leased", "leased"]


def test_acks_among_many_holes_are_as_much_work_as_among_few() -> None:
    def steps_beside(held_count: int) -> int:
        one = desk(unacked_max=100_000, consumer_unacked_max=100_000)
        one.topic.produce(2 * held_count)
        held = []
        for _ in range(held_count // 50):
            received = one.receive(100)
            one.ack(received[1::2])
            held.append(received[20])
        some = receipts(held[:: len(held) // 20][:20])
        settled, steps = steps_of(lambda: one.queue.settling.ack(one.topic.now_ms, some))
        assert errors(settled) == [None] * 20
        return steps

    assert steps_beside(20_000) < 1.2 * steps_beside(1_000)


def test_a_retry_that_is_due_is_ready_although_nobody_asks() -> None:
    """Otherwise a queue whose consumers have all died would look empty."""
    one = desk(visibility_ms=30_000, backoff_ms=0)
    one.topic.produce(2)
    one.receive(1)
    one.nack(one.receive(1), 1000)
    one.topic.now_ms += 30_000
    one.queue.expire(one.topic.now_ms)
    [row] = stats(one.queue, one.topic.now_ms).partitions
    assert (row.ready, row.in_flight, row.retrying) == (2, 0, 0)
    assert row.oldest_age_ms == 30_000
