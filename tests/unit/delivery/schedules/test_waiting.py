"""The table of what waits says what a plain dictionary would, in far less memory."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as some

from goqueue.delivery.schedules.agenda import (
    DENSE_MIN,
    PAGE_NUMBERS,
    RELEASED_PAGES_MAX,
    SPARSE_MAX,
    Released,
    Waiting,
)

RUNS = some.lists(
    some.tuples(
        some.integers(0, 200_000), some.sampled_from([1, 2, 50, 9_000, 70_000]), some.integers(1, 4)
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=60)
@given(RUNS, some.integers(0, 1 << 32), some.floats(0, 1))
def test_it_agrees_with_a_dictionary(
    runs: list[tuple[int, int, int]], seed: int, share: float
) -> None:
    table, model = Waiting(), dict[int, int]()
    first = 0
    for gap, count, topic in runs:
        first += gap
        table.add(first, count, topic)
        model.update(dict.fromkeys(range(first, first + count), topic))
        first += count
    numbers = list(model)
    random.Random(seed).shuffle(numbers)  # a choice of hypothesis for each would take minutes
    for number in numbers[: int(share * len(numbers))]:
        assert table.remove(number) == model.pop(number)
        assert table.remove(number) == 0
    again = Waiting()
    again.load(table.state())
    for one in (table, again):
        assert all(one.get(number) == model.get(number, 0) for number in numbers)
        assert one.get(first + 1) == 0
        assert sum(one.counts().values()) == len(model)


def test_a_page_changes_its_form_with_the_number_of_its_entries() -> None:
    table = Waiting()
    table.add(0, SPARSE_MAX, 7)
    dense_before = [not positions for _, positions, _ in table.state()]
    table.add(SPARSE_MAX, 1, 7)
    dense_after = [not positions for _, positions, _ in table.state()]
    assert (dense_before, dense_after) == ([False], [True])
    for number in range(SPARSE_MAX + 2 - DENSE_MIN):
        table.remove(number)
    assert [not positions for _, positions, _ in table.state()] == [False]
    assert table.get(SPARSE_MAX) == 7


def test_an_empty_table_keeps_nothing() -> None:
    table = Waiting()
    table.add(PAGE_NUMBERS - 1, 2, 1)
    assert len(table.state()) == 2
    assert table.remove(PAGE_NUMBERS - 1) == table.remove(PAGE_NUMBERS) == 1
    assert table.state() == []


def test_few_messages_among_very_many_numbers_stay_small() -> None:
    table = Waiting()
    for number in range(0, 100_000_000, 1_000):
        table.add(number, 1, 1)
    size = sum(len(positions) + len(topics) for _, positions, topics in table.state())
    assert size == 100_000 * 6


def test_released_numbers_are_remembered_up_to_a_bound() -> None:
    released = Released()
    numbers = [3 + page * PAGE_NUMBERS for page in range(RELEASED_PAGES_MAX + 5)]
    for number in numbers:
        released.add(number)
    assert [number in released for number in numbers] == [False] * 5 + [True] * RELEASED_PAGES_MAX
    assert numbers[-1] + 1 not in released
    again = Released(released.state())
    assert numbers[-1] in again
    assert numbers[0] not in again
