"""One receive may have several messages of a key, which nobody else has then."""

from __future__ import annotations

import pytest

from goqueue.delivery import QueueSettings, peek
from goqueue.delivery.key_order import OFFERED_MAX
from tests.unit.delivery.desk import Desk, Topic, errors


def desk(topic: Topic | None = None, **settings: object) -> Desk:
    values = {
        "key_order": True,
        "key_batches": True,
        "backoff_ms": 0,
        "backoff_jitter": 0.0,
        **settings,
    }
    return Desk(topic, QueueSettings(**values))  # type: ignore[arg-type]


def states(one: Desk, count: int) -> list[str]:
    return [state.state for state in peek(one.queue, 0, range(count))]


def test_a_receive_has_all_of_a_key_and_others_have_none_of_it() -> None:
    one = desk()
    for key in (b"a", b"a", b"b", b"a"):
        one.topic.produce(key=key)
    assert one.offsets(2) == [0, 1]
    assert one.offsets(10) == [2]
    assert states(one, 4) == ["leased", "leased", "leased", "parked"]


def test_a_key_goes_on_when_all_that_were_out_are_settled() -> None:
    one = desk()
    one.topic.produce(5, key=b"a")
    first = one.receive(3)
    one.ack(first[1:])
    assert one.receive() == [], "one is still out"
    one.ack(first[:1])
    assert one.offsets() == [3, 4]


def test_what_came_back_comes_first_and_in_order() -> None:
    one = desk()
    one.topic.produce(5, key=b"a")
    first = one.receive(3)
    one.nack(first[2:], 0)
    one.ack(first[1:2])
    assert one.receive() == [], "the first is still out"
    one.nack(first[:1], 0)
    again = one.receive()
    assert [(each.offset, each.attempt) for each in again] == [(0, 2), (2, 2), (3, 1), (4, 1)]


def test_a_message_that_rests_holds_up_later_ones_of_its_key_alone() -> None:
    one = desk()
    one.topic.produce(2, key=b"a")
    one.topic.produce(1, key=b"b")
    first = one.receive()
    one.nack(first[:1], 5000)
    one.nack(first[1:], 0)
    assert one.offsets() == [2]
    one.pass_time(5000)
    assert one.offsets() == [0, 1]


@pytest.mark.parametrize("count", [3, OFFERED_MAX + 3])
def test_leases_that_end_bring_a_key_back_in_order(count: int) -> None:
    one = desk()
    one.topic.produce(count, key=b"a")
    assert one.offsets(count) == list(range(count))
    one.pass_time(one.settings.visibility_ms)
    seen: list[int] = []
    while received := one.receive(100):
        seen += [each.offset for each in received]
        one.ack(received)
    assert seen == list(range(count))


def test_two_receives_of_what_came_back_do_not_share_a_key() -> None:
    one = desk()
    one.topic.produce(4, key=b"a")
    one.nack(one.receive(), 0)
    second = one.receive(1)
    assert [each.offset for each in second] == [0]
    assert one.receive() == []
    one.ack(second)
    assert one.offsets() == [1, 2, 3]


def test_a_receive_takes_as_many_of_a_key_as_it_can_before_the_next() -> None:
    one = desk()
    for key in (b"a", b"b", b"a", b"b", b"a", b"c"):
        one.topic.produce(1, key=key)
    assert one.offsets(4) == [0, 1, 2, 4], "three of one key, and the first of the next"
    assert one.offsets(4) == [5], "the other keys are busy"


def test_others_have_what_was_looked_at_and_left() -> None:
    one = desk()
    for key in (b"a", b"b", b"a", b"b"):
        one.topic.produce(1, key=key)
    first = one.receive(1)
    assert [each.offset for each in first] == [0]
    assert one.offsets(1) == [1]
    assert one.offsets(1) == []
    one.ack(first)
    assert one.offsets(2) == [2]


@pytest.mark.parametrize("is_reopened", [False, True])
def test_an_earlier_message_that_came_back_goes_again_while_later_ones_are_out(
    is_reopened: bool,
) -> None:
    one = desk()
    one.topic.produce(4, key=b"a")
    first, second, third = one.receive(3)
    one.nack([second], 0)
    assert one.receive() == [], "the first is with somebody else"
    one.nack([first], 0)
    if is_reopened:
        one.open()
    again = one.receive()
    assert [(each.offset, each.attempt) for each in again] == [(0, 2), (1, 2)]
    assert one.receive() == [], "the third is out, and the fourth comes after it"
    one.ack(again)
    assert one.receive() == []
    one.ack([third])
    assert one.offsets() == [3]


def test_after_a_crash_nothing_overtakes_what_was_out_before_it() -> None:
    one = desk()
    one.topic.produce(4, key=b"a")
    first = one.receive(3)
    one.nack(first[2:], 0)
    one.open()
    assert one.receive() == [], "its key is busy, also for whoever opens the queue again"
    one.pass_time(one.settings.visibility_ms)
    received = one.receive()
    assert [each.offset for each in received] == [0, 1, 2, 3]
    assert [each.attempt for each in received] == [2, 2, 2, 1]


def test_after_a_crash_nothing_overtakes_what_a_transaction_gave_back() -> None:
    one = desk()
    one.topic.produce(3, key=b"a")
    first = one.receive()
    one.prepare(first[:1])
    one.nack(first[1:], 0)
    one.open()
    assert one.receive() == []
    one.end(is_commit=False)
    assert one.offsets() == [0, 1, 2]


def test_dead_letters_hold_up_their_key_until_they_are_buried() -> None:
    one = desk(deliveries_max=1)
    one.topic.produce(4, key=b"a")
    first = one.receive(2)
    one.nack(first, 0)
    assert one.receive() == []
    one.discard()
    assert one.offsets() == [2, 3]


@pytest.mark.parametrize("key_batches", [False, True])
def test_a_key_is_free_when_retention_has_taken_what_was_out(key_batches: bool) -> None:
    one = desk(key_batches=key_batches)
    one.topic.produce(2, key=b"a")
    first = one.receive(1)
    one.topic.starts[0] = 1
    one.queue.partitions[0].start_moved(1, one.topic.now_ms)
    assert errors(one.nack(first, 0)) == [None]
    assert one.offsets() == [1]


def test_the_setting_changes_when_nothing_is_under_way() -> None:
    one = desk(key_batches=False)
    one.topic.produce(3, key=b"a")
    first = one.receive()
    one.settings = QueueSettings(key_order=True, key_batches=True)
    one.queue.configure(one.settings, one.lanes)
    one.ack(first)
    assert one.offsets() == [1], "what is under way goes on as it began"
    one.pass_time(one.settings.visibility_ms)
    one.open()
    assert one.offsets() == [1, 2]
