"""The bounds on requests that have not come whole, and on answers that clients do not take."""

from __future__ import annotations

import logging

import pytest

from goqueue.runtime.budgets import (
    SMALL_REQUEST_BYTES_MAX,
    WAITING_FOR_MEMORY_MAX,
    ReceiveBudget,
    UnsentBudget,
    memory_of,
)

BYTES_MAX = 100


class Reader:
    """A connection that holds bytes until it is closed."""

    def __init__(self, budget: UnsentBudget, host: str = "10.0.0.1") -> None:
        self.host = host
        self.is_closed = False
        self._budget = budget

    def close(self) -> None:
        self.is_closed = True
        self._budget.forget(self)


@pytest.fixture
def budget() -> UnsentBudget:
    return UnsentBudget(BYTES_MAX)


def test_up_to_the_bound_nobody_is_closed(budget: UnsentBudget) -> None:
    readers = [Reader(budget) for _ in range(4)]
    for reader in readers:
        budget.add(reader, 25)
    assert budget.bytes_total == 100
    assert not any(reader.is_closed for reader in readers)


def test_beyond_the_bound_those_who_took_nothing_for_longest_are_closed(
    budget: UnsentBudget,
) -> None:
    first, _, third = readers = [Reader(budget) for _ in range(3)]
    for reader in readers:
        budget.add(reader, 30)
    budget.taken(first, 10)
    budget.add(third, 30)
    assert [reader.is_closed for reader in readers] == [False, True, False]
    assert budget.bytes_total == 80


def test_more_than_one_goes_if_one_is_not_enough(budget: UnsentBudget) -> None:
    readers = [Reader(budget) for _ in range(5)]
    for reader in readers[:4]:
        budget.add(reader, 20)
    budget.add(readers[4], 70)
    assert [reader.is_closed for reader in readers] == [True, True, True, False, False]


def test_one_answer_beyond_the_bound_is_sent(budget: UnsentBudget) -> None:
    reader = Reader(budget)
    budget.add(reader, 1000)
    assert not reader.is_closed
    budget.taken(reader, 1000)
    assert budget.bytes_total == 0


def test_what_is_taken_or_closed_is_free_again(budget: UnsentBudget) -> None:
    reader, other = Reader(budget), Reader(budget)
    budget.add(reader, 60)
    budget.add(other, 20)
    budget.taken(reader, 60)
    budget.taken(reader, 0)  # of a part that is not whole yet, when nothing else is left
    other.close()
    assert budget.bytes_total == 0
    budget.add(other, 100)
    assert not reader.is_closed


def test_the_log_says_once_per_client_which_setting_it_was(
    budget: UnsentBudget, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(20):
            budget.add(Reader(budget, host=f"10.0.0.{number % 2}"), 60)
    assert len(caplog.messages) == 2
    assert all("listeners.unsent_bytes_total_max" in text for text in caplog.messages)


def test_a_view_keeps_all_that_it_is_a_view_of() -> None:
    assert memory_of(b"12345") == 5
    assert memory_of(memoryview(b"12345")[4:]) == 5
    assert memory_of(memoryview(bytearray(7))[:0]) == 7


class Sender:
    """A connection that has sent a part of its request."""

    def __init__(self, budget: ReceiveBudget, *, since: float = 0.0) -> None:
        self.host = "10.0.0.1"
        self.receiving_since = since
        self.buffer_bytes = 0
        self.is_idle = False  # Its buffer holds nothing.
        self.is_closed = False
        self._budget = budget

    @property
    def held_bytes(self) -> int:
        return 0 if self.is_idle else self.buffer_bytes

    def grow(self, size: int) -> bool:
        if not self._budget.reserve(self, size):
            return False
        self.buffer_bytes = size
        return True

    def release_buffer(self) -> None:
        if self.buffer_bytes and self.is_idle:
            self._budget.release(self)
            self.buffer_bytes = 0

    def close(self) -> None:
        self.is_closed = self.is_idle = True
        self.release_buffer()
        self._budget.waited(self)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


MiB = 1 << 20


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def receiving(clock: Clock) -> ReceiveBudget:
    return ReceiveBudget(64 * MiB, clock)


def test_buffers_grow_up_to_the_bound_and_are_counted_once(receiving: ReceiveBudget) -> None:
    sender = Sender(receiving)
    assert sender.grow(MiB)
    assert sender.grow(64 * MiB)
    assert receiving.bytes_total == 64 * MiB
    assert not sender.grow(64 * MiB + 1)
    assert not Sender(receiving).grow(1)
    sender.close()
    assert receiving.bytes_total == 0


def test_buffers_that_hold_nothing_make_way(receiving: ReceiveBudget) -> None:
    idle, busy = Sender(receiving), Sender(receiving)
    assert idle.grow(MiB)
    idle.is_idle = True
    assert busy.grow(64 * MiB)
    assert idle.buffer_bytes == 0
    assert receiving.bytes_total == 64 * MiB


def test_an_eighth_is_left_to_small_requests(receiving: ReceiveBudget) -> None:
    first, second, small = Sender(receiving), Sender(receiving), Sender(receiving)
    assert first.grow(30 * MiB)
    assert not second.grow(27 * MiB)
    assert second.grow(26 * MiB)
    assert small.grow(SMALL_REQUEST_BYTES_MAX)


def test_large_requests_get_memory_in_the_order_in_which_they_began(
    receiving: ReceiveBudget,
) -> None:
    holder, early, late = (Sender(receiving, since=float(one)) for one in range(3))
    assert holder.grow(50 * MiB)
    assert not early.grow(20 * MiB)
    assert receiving.may_wait(early)
    assert not late.grow(5 * MiB)
    holder.close()
    assert not late.grow(5 * MiB)
    assert early.grow(20 * MiB)
    receiving.waited(early)
    assert late.grow(5 * MiB)


def test_only_so_many_may_wait(receiving: ReceiveBudget) -> None:
    waiting = [Sender(receiving) for _ in range(WAITING_FOR_MEMORY_MAX)]
    assert all(receiving.may_wait(one) for one in waiting)
    assert not receiving.may_wait(Sender(receiving))
    waiting[0].close()
    assert receiving.may_wait(Sender(receiving))


def test_the_largest_of_the_stalled_is_closed(receiving: ReceiveBudget, clock: Clock) -> None:
    small, large, moving = Sender(receiving), Sender(receiving), Sender(receiving, since=clock.now)
    assert all(one.grow(size * MiB) for one, size in ((small, 1), (large, 5), (moving, 9)))
    receiving.make_room()
    receiving.make_room()  # at once: those who wait have not tried again
    assert [one.is_closed for one in (small, large, moving)] == [False, True, False]
    clock.now += 0.3
    receiving.make_room()
    assert small.is_closed
    assert not moving.is_closed


def test_where_all_wait_the_one_that_began_last_is_closed(
    receiving: ReceiveBudget, clock: Clock
) -> None:
    senders = [Sender(receiving, since=clock.now + one) for one in (0, 2, 1)]
    assert all(sender.grow(10 * MiB) for sender in senders)
    assert all(receiving.may_wait(sender) for sender in senders)
    receiving.make_room()
    assert [one.is_closed for one in senders] == [False, True, False]
