"""Deadlines that move."""

from __future__ import annotations

import random

from goqueue.groups.timers import Timer, Timers


def _ring(timers: Timers, now_ms: int) -> None:
    while (timer := timers.pop_due(now_ms)) is not None:
        timer.fire(now_ms)


def test_timers_fire_in_the_order_of_their_deadlines() -> None:
    timers, fired = Timers(), []
    for name, deadline_ms in (("late", 30), ("early", 10), ("second", 10)):
        timers.arm(Timer(lambda now_ms, name=name: fired.append(name)), deadline_ms)
    assert timers.next_deadline_ms() == 10
    _ring(timers, 20)
    assert fired == ["early", "second"]
    assert timers.next_deadline_ms() == 30


def test_a_deadline_can_move_either_way_or_vanish() -> None:
    timers, fired = Timers(), []
    timer = Timer(fired.append)
    timers.arm(timer, 10)
    timers.arm(timer, 50)
    assert timers.next_deadline_ms() == 50
    timers.arm(timer, 20)
    assert timers.next_deadline_ms() == 20
    timer.cancel()
    assert timers.next_deadline_ms() is None
    timers.arm(timer, 60)
    _ring(timers, 60)
    _ring(timers, 1_000)
    assert fired == [60]


def test_a_timer_may_arm_itself_again() -> None:
    timers, fired = Timers(), []

    def fire(now_ms: int) -> None:
        fired.append(now_ms)
        timers.arm(timer, now_ms + 10)

    timer = Timer(fire)
    timers.arm(timer, 10)
    for now_ms in (5, 10, 15, 20):
        _ring(timers, now_ms)
    assert fired == [10, 20]


def test_random_moves_fire_as_a_plain_table_would() -> None:
    source = random.Random(7)
    timers = Timers()
    fired: list[int] = []
    table: dict[int, int] = {}
    ring = [Timer(lambda now_ms, index=index: fired.append(index)) for index in range(20)]
    for now_ms in range(2_000):
        index = source.randrange(20)
        if source.random() < 0.2:
            ring[index].cancel()
            table.pop(index, None)
        else:
            table[index] = now_ms + source.randint(1, 30)
            timers.arm(ring[index], table[index])
        assert timers.next_deadline_ms() == min(table.values(), default=None)
        due = {index for index, deadline_ms in table.items() if deadline_ms <= now_ms}
        fired.clear()
        _ring(timers, now_ms)
        assert sorted(fired) == sorted(due)
        table = {index: ms for index, ms in table.items() if index not in due}


def test_moving_a_deadline_later_leaves_the_heap_alone() -> None:
    timers = Timers()
    timer = Timer(lambda now_ms: None)
    for deadline_ms in range(1, 10_000):
        timers.arm(timer, deadline_ms)
    assert len(timers._heap) == 1
