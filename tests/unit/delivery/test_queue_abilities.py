"""What a group may be told besides: no limit of deliveries, late acks, long leases, delays."""

from __future__ import annotations

import pytest

from goqueue.delivery import RECEIVE_MESSAGES_MAX, QueueSettings, stats, stored_queue_settings
from goqueue.delivery.initial_delays import STEPS, InitialDelays
from goqueue.delivery.leases import TAILS, Leases, Receipts, Unacked
from goqueue.delivery.ledger import ATTEMPTS_MAX, Retried, Retry
from goqueue.delivery.settling import LATE_RECEIPTS_MAX, Late, LateReceipts
from goqueue.model.errors import UnsupportedVersion
from tests.unit.delivery.desk import Desk, errors, receipts


def desk(**settings: object) -> Desk:
    values = {"backoff_ms": 0, "backoff_jitter": 0.0, **settings}
    return Desk(None, QueueSettings(**values))  # type: ignore[arg-type]


# Deliveries without limit


def test_without_a_limit_no_message_dies() -> None:
    one = desk(deliveries_max=0)
    one.topic.produce(1)
    for attempt in range(1, 50):
        received = one.receive()
        assert [each.attempt for each in received] == [attempt]
        one.nack(received)
    one.discard()
    assert one.note_dead_lettered == []


def test_a_transaction_that_fails_over_and_over_kills_nothing_either() -> None:
    one = desk(deliveries_max=0)
    one.topic.produce(1)
    for _ in range(5):
        one.prepare(one.receive())
        one.end(is_commit=False)
    one.discard()
    assert (one.note_dead_lettered, one.offsets()) == ([], [0])


def test_attempts_are_counted_up_to_a_bound() -> None:
    one = desk(deliveries_max=0)
    one.topic.produce(1)
    one.queue.partitions[0].record(Retried([(0, Retry(ATTEMPTS_MAX, 0))]))
    one.save()
    one.open()
    assert [each.attempt for each in one.receive()] == [ATTEMPTS_MAX]


# The first delivery


def test_every_delivery_tells_when_the_first_one_was() -> None:
    one = desk(deliveries_max=0)
    one.topic.produce(2)
    first_ms = one.topic.now_ms
    one.nack(one.receive(1))
    one.pass_time(500)
    assert [each.first_ms for each in one.receive()] == [first_ms, first_ms + 500]
    one.pass_time(one.settings.visibility_ms)
    one.open()
    assert [each.first_ms for each in one.receive()] == [first_ms, first_ms + 500]


# Late acks


def test_an_ack_after_the_lease_counts_until_the_message_is_handed_out_again() -> None:
    one = desk(late_acks=True)
    one.topic.produce(2)
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    assert errors(one.ack(first[:1])) == [None]
    assert errors(one.ack(first[:1])) == [None]
    second = one.receive()
    assert [each.offset for each in second] == [1]
    assert errors(one.ack(first[1:])) == [None], "any receipt that it was given with will do"
    assert errors(one.ack(second)) == [None]
    one.open()
    one.pass_time(one.settings.visibility_ms)
    assert one.receive() == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_late_ack_counts_also_after_a_crash(is_known: bool) -> None:
    """Even where a power cut has taken what told of the lease."""
    one = desk(late_acks=True)
    one.topic.produce(3)
    before = len(one.journal)
    first = one.receive(2)
    if is_known:
        one.pass_time(one.settings.visibility_ms)
    else:
        del one.journal[before:]
    one.open()
    assert errors(one.ack(first[:1])) == [None]
    assert one.offsets() == [1, 2]
    one.open()
    one.pass_time(one.settings.visibility_ms)
    assert one.offsets() == [1, 2]


def test_where_keys_have_an_order_only_the_last_receipt_counts_late() -> None:
    one = desk(late_acks=True, key_order=True)
    one.topic.produce(1, key=b"a")
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    second = one.receive()
    assert errors(one.ack(first)) == ["stale_receipt"], "somebody else has it"
    one.pass_time(one.settings.visibility_ms)
    assert errors(one.ack(first)) == ["stale_receipt"]
    one.open()
    assert errors(one.ack(second)) == [None]


def test_a_lease_that_nobody_has_noticed_to_be_over_counts_too() -> None:
    one = desk(late_acks=True)
    one.topic.produce(1)
    first = one.receive()
    one.topic.now_ms += one.settings.visibility_ms
    assert errors(one.ack(first)) == [None]
    assert one.receive() == []


def test_a_message_that_was_given_back_can_be_acked_still() -> None:
    one = desk(late_acks=True)
    one.topic.produce(1)
    first = one.receive()
    one.nack(first, 0)
    assert errors(one.ack(first)) == [None]
    assert one.receive() == []


def test_without_the_setting_a_late_ack_is_refused() -> None:
    one = desk()
    one.topic.produce(1)
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    assert errors(one.ack(first)) == ["stale_receipt"]
    assert one.offsets() == [0]


def test_a_dead_message_cannot_be_acked_late() -> None:
    one = desk(late_acks=True, deliveries_max=1)
    one.topic.produce(1)
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    assert errors(one.ack(first)) == ["dead_lettering"]
    one.discard()
    assert [offset for _, offset, _, _ in one.note_dead_lettered] == [0]
    assert errors(one.ack(first)) == ["stale_receipt"]


def test_a_receipt_of_an_earlier_delivery_is_void_while_a_transaction_has_the_message() -> None:
    one = desk(late_acks=True)
    one.topic.produce(1)
    first = one.receive()
    one.nack(first, 0)
    one.prepare(one.receive())
    assert errors(one.ack(first)) == ["stale_receipt"]
    one.end(is_commit=False)
    assert errors(one.ack(first)) == [None]
    assert one.offsets() == []


def test_a_rewind_voids_receipts_where_acks_must_be_in_time() -> None:
    one = desk()
    one.topic.produce(1)
    first = one.receive()
    one.nack(first, 0)
    one.queue.rewind(0, 0, one.topic.now_ms)
    assert errors(one.ack(first)) == ["stale_receipt"]
    assert one.offsets() == [0]


def test_a_lease_that_is_over_can_be_extended_until_the_message_is_handed_out_again() -> None:
    one = desk(late_acks=True)
    one.topic.produce(2)
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    assert errors(one.extend(first[:1], 5000)) == [None]
    assert one.offsets() == [1], "what is held again was handed out"
    assert errors(one.extend(first[1:], 5000)) == ["stale_receipt"]
    one.pass_time(4999)
    assert one.offsets() == []
    assert errors(one.ack(first[:1])) == [None], "the receipt must stay good"
    one.pass_time(5000)
    assert one.offsets() == []


def test_a_message_that_is_held_again_comes_back_when_its_new_time_is_over() -> None:
    one = desk(late_acks=True)
    one.topic.produce(1)
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    one.extend(first, 2000)
    assert one.queue.leases.next_expiry_ms() == one.topic.now_ms + 2000
    one.pass_time(2000)
    again = one.receive()
    assert [(each.offset, each.attempt) for each in again] == [(0, 2)]


def test_a_message_that_is_held_again_is_so_for_whoever_opens_the_queue_again() -> None:
    one = desk(late_acks=True)
    one.topic.produce(2)
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    one.extend(first[:1], 2000)
    one.open()
    assert one.offsets() == [1]
    one.pass_time(2000)
    assert [(each.offset, each.attempt) for each in one.receive()] == [(0, 2)]


def test_a_late_extension_keeps_to_the_time_a_message_may_be_out_in_all() -> None:
    one = desk(late_acks=True)
    one.topic.produce(1)
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    receipts = [each.receipt for each in first]
    refused = one.queue.settling.extend(
        one.topic.now_ms, receipts, visibility_ms=5000, total_ms_max=one.settings.visibility_ms
    )
    assert errors(refused) == ["lease_too_long"]
    assert one.offsets() == [0]


def test_giving_a_message_back_that_has_come_back_is_no_error() -> None:
    one = desk(late_acks=True)
    one.topic.produce(1)
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    assert errors(one.nack(first, 0)) == [None]
    assert [(each.offset, each.attempt) for each in one.receive()] == [(0, 2)]
    assert errors(one.nack(first, 0)) == [None]
    assert one.receive() == [], "whoever has it now keeps it"


@pytest.mark.parametrize("settings", [{}, {"late_acks": True, "key_order": True}])
def test_elsewhere_a_late_extension_is_refused(settings: dict[str, bool]) -> None:
    one = desk(**settings)
    one.topic.produce(1, key=b"a")
    first = one.receive()
    one.pass_time(one.settings.visibility_ms)
    assert errors(one.extend(first, 5000)) == ["stale_receipt"]
    assert one.offsets() == [0]


def test_late_receipts_are_bounded() -> None:
    late = LateReceipts()
    leases = Leases(Receipts(1), Unacked())
    count = RECEIVE_MESSAGES_MAX
    heads = []
    for first in range(0, LATE_RECEIPTS_MAX + count, count):
        offsets = range(first, first + count)
        lease, _ = leases.grant(
            "anna",
            0,
            offsets,
            b"\x01" * count,
            b"\x02" * count,
            now_ms=0,
            firsts_ms=None,
            until_ms=1,
        )
        heads.append(lease.head)
        for place in range(count):
            late.add(Late(lease, place))
    assert len(late.by_message) == LATE_RECEIPTS_MAX
    assert late.find(heads[0] + TAILS[count - 1]) is None
    assert late.find(heads[1] + TAILS[0]) is not None


# Long leases


def test_a_lease_can_be_bounded_in_all() -> None:
    one = desk()
    one.topic.produce(1)
    first = one.receive()
    one.topic.now_ms += 1000
    now_ms, held = one.topic.now_ms, receipts(first)
    late = one.queue.settling.extend(now_ms, held, visibility_ms=9001, total_ms_max=10_000)
    assert errors(late) == ["lease_too_long"]
    good = one.queue.settling.extend(now_ms, held, visibility_ms=9000, total_ms_max=10_000)
    assert errors(good) == [None]
    one.pass_time(8999)
    assert errors(one.ack(first)) == [None]


# Delays


def test_messages_are_held_back_for_a_while_and_come_in_order() -> None:
    one = desk(delay_ms=1000)
    one.topic.produce(2)
    one.topic.now_ms += 400
    one.topic.produce(1)
    assert one.receive() == []
    figures = stats(one.queue, one.topic.now_ms)
    assert (figures.ready, figures.delayed) == (0, 3)
    assert one.queue.next_visible_ms() == one.topic.now_ms + 600
    one.topic.now_ms += 600
    one.queue.end_initial_delays(one.topic.now_ms)
    assert one.offsets() == [0, 1]
    one.topic.now_ms += 400
    one.queue.end_initial_delays(one.topic.now_ms)
    assert one.offsets() == [2]
    assert one.queue.next_visible_ms() is None


def test_another_delay_goes_for_what_is_there_too() -> None:
    one = desk(delay_ms=1000)
    one.topic.produce(1)
    one.queue.configure(QueueSettings(delay_ms=3000), one.lanes)
    one.topic.now_ms += 1000
    one.queue.end_initial_delays(one.topic.now_ms)
    assert one.receive() == []
    one.queue.configure(QueueSettings(delay_ms=0), one.lanes)
    one.queue.end_initial_delays(one.topic.now_ms)
    assert one.offsets() == [0]


def test_a_delay_that_comes_later_holds_nothing_back_that_could_be_had() -> None:
    one = desk()
    one.topic.produce(1)
    one.queue.configure(QueueSettings(delay_ms=1000), one.lanes)
    one.topic.produce(1)
    assert one.offsets() == [0]
    one.topic.now_ms += 1000
    one.queue.end_initial_delays(one.topic.now_ms)
    assert one.offsets() == [1]


def test_whoever_opens_a_queue_tells_how_old_its_messages_are() -> None:
    initial_delays = InitialDelays([(1000, 10), (1500, 20)])
    initial_delays.note(15, 2000, 1000)  # so far its lanes are known
    assert initial_delays.visible_end(2000, 1000) == 10
    assert initial_delays.next_ms(1000) == 2500
    assert initial_delays.visible_end(2500, 1000) == 15
    initial_delays.note(25, 2600, 1000)
    assert initial_delays.visible_end(2600, 1000) == 20
    assert initial_delays.visible_end(3600, 1000) == 25


@pytest.mark.parametrize("delay_ms", [1, 1000, 900_000])
def test_what_is_remembered_of_arrivals_is_bounded_and_nothing_comes_too_soon(
    delay_ms: int,
) -> None:
    initial_delays = InitialDelays()
    for step in range(10_000):
        now_ms = step * delay_ms // 5000
        initial_delays.note(step + 1, now_ms, delay_ms)
        ripe = initial_delays.visible_end(now_ms, delay_ms)
        assert ripe <= max(0, step + 1 - 5000 + 5000 // max(1, delay_ms))
    assert len(initial_delays._entries) <= STEPS + 2
    assert initial_delays.visible_end(now_ms + delay_ms, delay_ms) == 10_000


def test_stored_settings_of_a_later_release_are_refused_with_what_to_do() -> None:
    with pytest.raises(UnsupportedVersion, match=r"'workers'.*telepathy.*upgrade this node"):
        stored_queue_settings("workers", {"visibility_ms": 1000, "telepathy": True})
    with pytest.raises(UnsupportedVersion, match=r"'workers'.*upgrade this node"):
        stored_queue_settings("workers", {"start": "by_moon_phase"})
