"""Due times: the earliest message of a partition and of all, whatever was taken in between."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from goqueue.delivery.due_times import DueTimes


@dataclass
class Partition:
    waiting: dict[int, int] = field(default_factory=dict)


def test_due_times_agree_with_a_sorted_list_through_random_changes() -> None:
    chance = random.Random(4)
    partitions = [Partition() for _ in range(4)]
    times = DueTimes(partitions)
    for _ in range(5000):
        number, offset = chance.randrange(4), chance.randrange(50)
        waiting = partitions[number].waiting
        action = chance.random()
        if action < 0.5 and offset not in waiting:
            waiting[offset] = chance.randrange(100)
            times.add(number, offset, waiting[offset])
        elif action < 0.7:
            waiting.pop(offset, None)
        elif (first := times.first(number if action < 0.85 else None)) is not None:
            times.take(first.partition)
            assert partitions[first.partition].waiting.pop(first.offset) == first.due_ms
        everything = [
            (due_ms, one, place)
            for one, partition in enumerate(partitions)
            for place, due_ms in partition.waiting.items()
        ]
        assert times.first() == min(everything, default=None)
        of_one = [entry for entry in everything if entry[1] == number]
        assert times.first(number) == min(of_one, default=None)


def test_entries_of_many_retries_do_not_pile_up() -> None:
    partition = Partition()
    times = DueTimes([partition])
    for turn in range(1000):
        partition.waiting[1] = turn
        times.add(0, 1, turn)
        first = times.first()
        assert first is not None
        times.take(0)
        del partition.waiting[1]
    assert times.first() is None
    assert not times._heads


def test_the_next_time_is_the_first_that_has_not_come() -> None:
    partitions = [Partition({1: 10}), Partition({1: 30})]
    times = DueTimes(partitions)
    times.add(0, 1, 10)
    times.add(1, 1, 30)
    assert times.next_after_ms(5) == 10
    assert times.next_after_ms(10) == 30
    assert times.next_after_ms(30) is None
