"""The bound on answers that clients do not take."""

from __future__ import annotations

import logging

import pytest

from goqueue.runtime.sockets import UnsentBudget, memory_of

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
