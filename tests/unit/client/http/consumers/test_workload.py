"""What a queue consumer holds, extends and settles; no clock, no network."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from goqueue.client.http.consumers.workload import (
    ACK,
    GIVE_BACK,
    UNSETTLED_MAX,
    ConsumerSettings,
    Decision,
    Reject,
    Retry,
    Verdict,
    Workload,
    decision_on,
)
from goqueue.client.http.messages import ReceivedMessage
from goqueue.model.errors import StaleReceipt


def message(number: int) -> ReceivedMessage:
    return ReceivedMessage(
        id=f"orders:0:{number}",
        topic="orders",
        partition=0,
        offset=number,
        timestamp_ms=0,
        key=None,
        value=b"",
        receipt=f"r{number}",
        group="billing",
        priority="normal",
        attempt=1,
        lease_until_ms=0,
    )


def workload(**settings: int) -> Workload:
    return Workload(ConsumerSettings(**{"concurrency": 2, "visibility_ms": 3000, **settings}))


def messages(*numbers: int) -> list[ReceivedMessage]:
    return [message(number) for number in numbers]


def begin_all(work: Workload, now_ms: float = 0) -> list[ReceivedMessage]:
    begun = []
    while (one := work.begin(now_ms)) is not None:
        begun.append(one)
    return begun


def settle(work: Workload) -> dict[Decision, list[str]]:
    settled = {}
    while (settlement := work.take_settlement()) is not None:
        settled[settlement.decision] = list(settlement.receipts)
        work.settled(settlement, [None] * len(settlement.receipts))
    return settled


def test_no_more_is_asked_for_than_can_be_held() -> None:
    work = workload(prefetch=3)
    assert work.room() == 5
    work.received(messages(1, 2, 3, 4, 5), 0)
    assert work.room() == 0
    assert begin_all(work) == messages(1, 2)


def test_while_handlers_have_something_to_begin_receives_are_gathered() -> None:
    work = workload(prefetch=6)
    work.received(messages(*range(6)), 0)
    assert work.room() == 0  # two would fit, but four wait
    begin_all(work)
    for one in messages(0, 1):
        work.ended(one, ACK)
    assert work.room() == 4


def test_what_a_handler_raises_decides() -> None:
    assert decision_on(None) == ACK
    assert decision_on(ValueError()) == Decision(Verdict.NACK)
    assert decision_on(Retry(after=1.5)) == Decision(Verdict.NACK, delay_ms=1500)
    assert decision_on(Retry()) == Decision(Verdict.NACK)
    assert decision_on(Reject("torn")) == Decision(Verdict.REJECT, reason="torn")


def test_decisions_of_one_kind_are_told_together() -> None:
    work = workload(concurrency=5)
    work.received(messages(1, 2, 3, 4, 5), 0)
    begin_all(work)
    later, bad = decision_on(Retry(after=1)), decision_on(Reject("bad"))
    for number, decision in ((1, ACK), (2, later), (3, ACK), (4, bad), (5, later)):
        work.ended(message(number), decision)
    assert settle(work) == {ACK: ["r1", "r3"], later: ["r2", "r5"], bad: ["r4"]}
    assert (work.tally.acked, work.tally.nacked, work.tally.rejected) == (2, 2, 1)
    assert work.is_settled


def test_a_stop_gives_back_what_was_not_begun_and_waits_for_the_rest() -> None:
    work = workload()
    work.received(messages(1, 2, 3, 4), 0)
    begin_all(work)
    work.stop()
    assert work.room() == 0
    assert settle(work) == {GIVE_BACK: ["r3", "r4"]}
    work.received(messages(5), 0)  # by a receive that was under way
    assert settle(work) == {GIVE_BACK: ["r5"]}
    work.ended(message(1), ACK)
    assert work.running == {"r2"}
    assert settle(work) == {ACK: ["r1"]}
    assert work.tally.given_back == 3


def test_a_handler_that_does_not_end_is_abandoned_and_its_end_ignored() -> None:
    work = workload()
    work.received(messages(1), 0)
    begin_all(work)
    work.stop()
    assert work.abandon() == messages(1)
    work.ended(message(1), ACK)
    assert settle(work) == {}
    assert work.tally.abandoned == 1
    assert work.leases_to_extend(10_000) == []


def test_leases_are_extended_while_messages_wait_and_run() -> None:
    work = workload(prefetch=1)
    work.received(messages(1, 2, 3), 0)
    begin_all(work)
    assert work.leases_to_extend(999) == []
    assert work.next_extension_ms() == 1000
    receipts = work.leases_to_extend(1000)
    assert receipts == ["r1", "r2", "r3"]
    assert work.extended(receipts, [None] * 3, 1000) == []
    assert work.leases_to_extend(1999) == []
    assert work.leases_to_extend(2000) == receipts


def test_an_extension_that_cannot_be_asked_for_is_tried_again_in_time() -> None:
    work = workload()
    work.received(messages(1), 0)
    work.not_extended(work.leases_to_extend(1000), 1000)
    assert work.leases_to_extend(1249) == []
    assert work.leases_to_extend(1250) == ["r1"]


def test_a_lost_lease_is_told_and_a_waiting_message_is_not_begun() -> None:
    work = workload(concurrency=1, prefetch=1)
    work.received(messages(1, 2), 0)
    begin_all(work)
    stale = StaleReceipt()
    assert work.extended(["r1", "r2", "gone"], [stale, stale, None], 1000) == messages(1, 2)
    work.ended(message(1), ACK)
    assert begin_all(work, 1000) == []
    assert work.leases_to_extend(5000) == []


def test_a_message_that_waited_past_its_lease_belongs_to_others() -> None:
    work = workload(concurrency=1, prefetch=1)
    work.received(messages(1, 2), 0)
    work.begin(0)
    work.ended(message(1), ACK)
    assert work.begin(3000) is None
    assert work.tally.stale == 1


def test_nothing_is_received_while_the_broker_cannot_be_told() -> None:
    work = workload(concurrency=1000)
    for first in range(0, UNSETTLED_MAX, 1000):
        batch = messages(*range(first, first + 1000))
        work.received(batch, 0)
        begin_all(work)
        for one in batch:
            work.ended(one, ACK)
    assert work.room() == 0
    settlement = work.take_settlement()
    assert settlement is not None
    assert not work.is_settled
    assert work.settled(settlement, None) == 0
    assert work.tally.unsettled == UNSETTLED_MAX
    assert work.room() == 1000


def test_late_acks_are_counted_as_stale() -> None:
    work = workload()
    work.received(messages(1, 2), 0)
    begin_all(work)
    for one in messages(1, 2):
        work.ended(one, ACK)
    settlement = work.take_settlement()
    assert settlement is not None
    assert work.settled(settlement, [StaleReceipt(), None]) == 1
    assert (work.tally.acked, work.tally.stale) == (1, 1)


@pytest.mark.parametrize("seed", range(40))
def test_every_message_ends_in_exactly_one_way(seed: int) -> None:
    """Receives, handlers, extensions, settlements and a stop in any order."""
    random = Random(seed)
    concurrency, prefetch = random.randint(1, 5), random.randint(0, 8)
    work = workload(concurrency=concurrency, prefetch=prefetch)
    now_ms, count = 0.0, 0
    running: list[ReceivedMessage] = []
    told: Counter[str] = Counter()
    given_up: set[str] = set()
    for _ in range(400):
        now_ms += random.choice([0, 10, 400])
        room = work.room()
        assert 0 <= room <= concurrency + prefetch
        fresh = messages(*range(count, count + random.randint(0, room)))
        count += len(fresh)
        work.received(fresh, now_ms)
        while (one := work.begin(now_ms)) is not None:
            running.append(one)
        assert len(running) <= concurrency
        if running and random.random() < 0.7:
            ended = running.pop(random.randrange(len(running)))
            work.ended(ended, random.choice([ACK, GIVE_BACK, decision_on(Reject("bad"))]))
        due = work.leases_to_extend(now_ms)
        if due and random.random() < 0.8:
            errors = [StaleReceipt() if random.random() < 0.1 else None for _ in due]
            for lost in work.extended(due, errors, now_ms):
                if lost not in running:
                    given_up.add(lost.receipt)
        if random.random() < 0.6:
            told.update(one for batch in settle(work).values() for one in batch)
        if random.random() < 0.005:
            work.stop()
    work.stop()
    told.update(one for batch in settle(work).values() for one in batch)
    abandoned = {one.receipt for one in work.abandon()}
    assert abandoned == {one.receipt for one in running}
    assert set(told.values()) <= {1}
    assert given_up.isdisjoint(told)
    ends = len(told) + len(abandoned)
    assert ends + work.tally.stale == work.tally.received == count
    assert work.is_settled
    assert work.leases_to_extend(float("inf")) == []
