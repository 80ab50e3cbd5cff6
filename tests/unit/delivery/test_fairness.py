"""Fair shares: a tenant with much in flight lets others go first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.delivery import QueueSettings, check_queue_settings, stats
from goqueue.delivery.fairness import (
    ASIDE_MAX,
    HANDLED_MIN,
    IDLE_MAX,
    NOISY_OUT_MIN,
    PERIOD_MS,
    STALE_MAX,
    TURN,
    Fading,
    Message,
    Tenants,
)
from goqueue.model.errors import InvalidGroupSettings
from tests.unit.delivery.desk import Desk, Topic

NOISY, QUIET = b"noisy", b"quiet"


def desk(partition_count: int = 1, **values: object) -> Desk:
    told = {"backoff_ms": 0, "backoff_jitter": 0.0, "deliveries_max": 0, **values}
    return Desk(Topic(partition_count), QueueSettings(fair_keys=True, **told))  # type: ignore[arg-type]


def keys(one: Desk, count: int = 10) -> list[bytes | None]:
    return [one.topic.keys[each.partition][each.offset] for each in one.receive(count)]


# A queue


def test_a_quiet_tenant_does_not_wait_for_the_backlog_of_a_noisy_one() -> None:
    one = desk()
    one.topic.produce(1000, key=NOISY)
    one.topic.produce(10, key=QUIET)
    assert keys(one, NOISY_OUT_MIN) == [NOISY] * NOISY_OUT_MIN
    received = [keys(one), keys(one)]
    assert received[0].count(QUIET) + received[1].count(QUIET) == 10
    assert all(len(each) == 10 for each in received), "there was enough for everybody"


def test_one_consumer_that_acks_at_once_is_fair_too() -> None:
    """Nothing much is in flight then, but the noisy tenant has had all of the time."""
    one = desk()
    one.topic.produce(1000, key=NOISY)
    one.topic.produce(10, key=QUIET)
    for count in range(HANDLED_MIN // 10):
        batch = one.receive()
        assert [one.topic.keys[0][each.offset] for each in batch] == [NOISY] * 10, count
        one.topic.now_ms += 20
        one.ack(batch)
    received = [keys(one), keys(one)]
    assert received[0].count(QUIET) + received[1].count(QUIET) == 10


def test_a_far_backlog_is_passed_in_a_few_receives() -> None:
    one = desk()
    one.topic.produce(5000, key=NOISY)
    one.topic.produce(1, key=QUIET)
    receives = next(count for count in range(1, 20) if QUIET in keys(one))
    assert receives <= 9


def test_messages_of_a_tenant_keep_their_order() -> None:
    one = desk(unacked_max=10_000)
    for number in range(600):
        one.topic.produce(1, key=QUIET if number % 7 == 0 else NOISY)
    received: dict[bytes | None, list[int]] = {}
    while batch := one.receive():
        for each in batch:
            received.setdefault(one.topic.keys[0][each.offset], []).append(each.offset)
    assert sum(map(len, received.values())) == 600
    assert all(offsets == sorted(offsets) for offsets in received.values())


def test_messages_without_a_key_are_never_noisy() -> None:
    one = desk()
    one.topic.produce(500)
    one.topic.produce(5, key=QUIET)
    offsets = [offset for _ in range(51) for offset in one.offsets()]
    assert offsets == list(range(505))
    assert one.queue.fairness.tenants.aside_count == 0


def test_a_queue_that_never_sees_a_key_keeps_no_tenants() -> None:
    one = desk()
    one.topic.produce(100)
    one.ack(one.receive(50))
    assert len(one.queue.fairness.tenants) == 0
    assert [lease.tenants for lease in one.queue.leases] == []
    one.receive(50)
    assert [lease.tenants for lease in one.queue.leases] == [None]


def test_of_noisy_tenants_the_one_with_the_least_in_flight_goes_first() -> None:
    one = desk()
    one.topic.produce(200, key=b"a")
    one.topic.produce(200, key=b"b")
    assert keys(one, 60) == [b"a"] * NOISY_OUT_MIN + [b"b"] * NOISY_OUT_MIN
    taken = one.receive(20)
    assert [one.topic.keys[0][each.offset] for each in taken].count(b"a") == 10
    one.ack([each for each in taken if one.topic.keys[0][each.offset] == b"b"])
    assert keys(one, 10).count(b"b") == 10


def test_a_noisy_tenant_does_not_starve_while_others_never_end() -> None:
    """Each of the others has little in flight, and there are many of them."""
    one = desk(unacked_max=100_000, consumer_unacked_max=100_000)
    one.topic.produce(NOISY_OUT_MIN + 5, key=NOISY)
    assert keys(one, NOISY_OUT_MIN) == [NOISY] * NOISY_OUT_MIN
    received: list[bytes | None] = []
    for number in range(10 * TURN):
        one.topic.produce(1, key=b"%d" % number)
        received += keys(one, 1)
    assert received.count(NOISY) == 5


def test_nobody_is_set_aside_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all that is ready goes to the consumer anyway there is nothing to share."""
    monkeypatch.setattr(Tenants, "set_aside", None)
    one = desk()
    for _ in range(20):
        one.topic.produce(10, key=NOISY)
        assert keys(one) == [NOISY] * 10


def test_what_is_set_aside_counts_as_ready() -> None:
    one = desk()
    one.topic.produce(200, key=NOISY)
    one.receive(NOISY_OUT_MIN)
    one.receive(10)
    assert one.queue.fairness.tenants.aside_count > 0
    figures = stats(one.queue, one.topic.now_ms)
    assert (figures.ready, figures.in_flight) == (200 - NOISY_OUT_MIN - 10, NOISY_OUT_MIN + 10)


def test_a_restart_begins_anew_with_everything_that_was_set_aside() -> None:
    one = desk()
    one.topic.produce(200, key=NOISY)
    one.topic.produce(3, key=QUIET)
    one.receive(NOISY_OUT_MIN)
    one.ack(one.receive(10))
    one.open()
    one.pass_time(one.settings.visibility_ms)
    received: list[int] = []
    while batch := one.offsets(50):
        received += batch
    assert sorted(received) == [
        offset for offset in range(203) if not one.queue.partitions[0].ledger.is_done(offset)
    ]
    assert len(received) == 193


def test_purge_and_rewind_forget_what_was_set_aside() -> None:
    one = desk()
    one.topic.produce(200, key=NOISY)
    one.receive(NOISY_OUT_MIN + 1)
    one.receive(1)
    one.queue.purge([200])
    assert one.receive() == []
    one.queue.rewind(0, 195, one.topic.now_ms)
    assert sorted(one.offsets()) == [195, 196, 197, 198, 199]
    assert one.receive() == []


def test_without_the_setting_what_was_set_aside_comes_in_the_order_of_the_log() -> None:
    one = desk()
    one.topic.produce(100, key=NOISY)
    one.topic.produce(1, key=QUIET)
    one.receive(NOISY_OUT_MIN)
    one.receive(1)
    one.settings = QueueSettings(fair_keys=False)
    one.queue.configure(one.settings, one.lanes)
    assert one.offsets(100) == list(range(NOISY_OUT_MIN, 100))


def test_fair_shares_and_the_order_of_keys_exclude_each_other() -> None:
    with pytest.raises(InvalidGroupSettings, match="choose one of the two"):
        check_queue_settings({"fair_keys": True, "key_order": True})


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), partition_count=st.integers(1, 3))
def test_everything_is_done_in_the_end(seed: int, partition_count: int) -> None:
    """Tenants of very different sizes, consumers that ack, fail and forget, at random."""
    source = random.Random(seed)
    one = desk(partition_count, visibility_ms=1000)
    tenants = [b"%d" % number for number in range(8)]
    produced = done = 0
    for _ in range(60):
        if source.random() < 0.5:
            key = tenants[min(int(source.expovariate(1.2)), 7)] if source.random() < 0.9 else None
            count = source.randint(1, 60)
            one.topic.produce(count, key=key, partition=source.randrange(partition_count))
            produced += count
        batch = one.receive(source.randint(1, 20))
        end = source.random()
        if end < 0.7:
            one.ack(batch)
            done += len(batch)
        elif end < 0.8:
            one.nack(batch, source.choice([0, 100]))
        one.pass_time(source.choice([0, 10, 300, 1000]))
    one.pass_time(60_000)
    while batch := one.receive(20):
        one.ack(batch)
        done += len(batch)
        one.pass_time(1)
    assert done == produced
    assert stats(one.queue, one.topic.now_ms).ready == 0
    assert one.queue.fairness.tenants.aside_count == 0


# The policy


def test_the_share_of_all_that_is_in_flight_decides() -> None:
    tenants = Tenants()
    tenant = tenants.of(b"a")
    for _ in range(NOISY_OUT_MIN):
        assert not tenants.is_noisy(tenant, tenant.out, 0)
        tenants.hand_out(tenant, is_in_turn=False)
    assert tenants.is_noisy(tenant, NOISY_OUT_MIN, 0)
    assert tenants.is_noisy(tenant, 10 * NOISY_OUT_MIN - 1, 0)
    assert not tenants.is_noisy(tenant, 10 * NOISY_OUT_MIN, 0)


def test_a_tenant_stays_noisy_until_its_backlog_is_worked_off() -> None:
    tenants = Tenants()
    tenant = tenants.of(b"a")
    tenants.set_aside(tenant, (0, 7))
    assert tenants.is_noisy(tenant, 1000, 0)
    assert tenants.next_aside(5, lambda _: True) == [(0, 7)]
    assert not tenants.is_noisy(tenant, 1000, 0)


def test_time_that_was_taken_is_forgotten_after_a_while() -> None:
    tenants = Tenants()
    slow, quick = tenants.of(b"slow"), tenants.of(b"quick")
    for tenant in (slow, quick):
        tenants.hand_out(tenant, is_in_turn=False)
    tenants.spend([slow], 10_000, 0)
    for _ in range(HANDLED_MIN):
        tenants.spend([quick], 10, 0)
    assert tenants.is_noisy(slow, 1000, 0)
    assert not tenants.is_noisy(quick, 1000, 0)
    assert not tenants.is_noisy(slow, 1000, 20 * PERIOD_MS), "too little was handled lately"


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 100 * PERIOD_MS)), max_size=20))
def test_a_fading_sum_is_never_more_than_what_was_added(steps: list[tuple[int, int]]) -> None:
    fading, now_ms, total = Fading(), 0, 0
    for amount, later_ms in steps:
        now_ms += later_ms
        fading.add(amount, now_ms)
        total += amount
        assert amount <= fading.at(now_ms) <= total
        assert fading.at(now_ms + PERIOD_MS) <= fading.at(now_ms) // 2 + 1
        assert fading.at(now_ms + 100 * PERIOD_MS) == 0


def test_memory_is_bounded_however_many_tenants_come() -> None:
    tenants = Tenants(noisy_out_min=1)
    for number in range(IDLE_MAX + 100):
        tenant = tenants.of(b"%d" % number)
        tenants.hand_out(tenant, is_in_turn=False)
        tenants.give_back(tenant)
    assert len(tenants) == IDLE_MAX
    for number in range(ASIDE_MAX):
        assert tenants.has_room
        tenants.set_aside(tenants.of(b"%d" % (number % 5)), (0, number))
    assert not tenants.has_room


def test_the_heap_of_waiting_tenants_stays_short() -> None:
    tenants = Tenants(noisy_out_min=1)
    some = [tenants.of(b"%d" % number) for number in range(3)]
    for tenant in some:
        tenants.set_aside(tenant, (0, 0))
    for step in range(10_000):
        tenant = some[step % 3]
        tenants.hand_out(tenant, is_in_turn=False)
        if step % 2:
            tenants.give_back(tenant)
    assert len(tenants._by_out) <= 2 * 3 + STALE_MAX


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000))
def test_turns_go_to_whoever_has_least_in_flight(seed: int) -> None:
    """The heap of those who wait against a search through all of them."""
    source = random.Random(seed)
    tenants = Tenants()
    some = [tenants.of(b"%d" % number) for number in range(6)]
    gone: set[Message] = set()
    for number in range(300):
        tenant = source.choice(some)
        step = source.random()
        if step < 0.4:
            tenants.set_aside(tenant, (0, number))
        elif step < 0.5:
            gone.update(list(tenant.aside)[:1])
        elif step < 0.7:
            if tenant.out:
                tenants.give_back(tenant)
        else:
            live = [one for one in some if any(place not in gone for place in one.aside)]
            least = min((one.out for one in live), default=None)
            before = {one: list(one.aside) for one in some}
            chosen = tenants.next_aside(1, lambda place: place not in gone)
            owners = [one for one in some for place in chosen if place in before[one]]
            assert [one.out for one in owners] == ([] if least is None else [least])
            for one in owners:
                tenants.hand_out(one, is_in_turn=True)
    left = sum(len(one.aside) for one in some)
    assert tenants.aside_count == left
    assert tenants.are_waiting == (left > 0)
