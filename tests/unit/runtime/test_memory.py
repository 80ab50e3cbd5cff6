"""When cycles are looked for, by the size of the process."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from goqueue.runtime import memory
from goqueue.runtime.memory import MemoryKeeper

MiB = 1 << 20


class Process:
    """A process of a size, with a collector, and how long that takes to look at all objects."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.resident = 100 * MiB
        self.look_seconds = 0.1
        self.young_frees = self.old_frees = self.excluded_frees = 0
        self.looks: list[int | str] = []
        self.old = 0  # objects
        self.free = 0  # in the middle of the heap
        self.trims = 0
        self.trim_seconds = 0.0
        self.keeper = MemoryKeeper(
            self,  # type: ignore[arg-type]
            resident=lambda: self.resident,
            collector=self,
            give_back=self._give_back,
        )

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Any) -> Any:
        raise AssertionError("the test says when to look")

    def _give_back(self) -> None:
        self.trims += 1
        self.now += self.trim_seconds
        self.resident -= self.free
        self.free = 0

    def collect(self, generation: int) -> None:
        self.looks.append(generation)
        self.resident -= self.old_frees if generation == 2 else self.young_frees
        if generation == 2:
            self.now += self.look_seconds

    def count_old(self) -> int:
        return self.old

    def exclude(self) -> None:
        self.looks.append("exclude")
        self.old = 0

    def include(self) -> None:
        self.looks.append("include")
        self.old_frees = self.excluded_frees

    def grow(self, size: int) -> None:
        self.resident += size
        self.now += 1
        self.keeper.look()


@pytest.fixture
def process() -> Process:
    return Process()


def test_a_process_that_does_not_grow_is_left_alone(process: Process) -> None:
    for _ in range(100):
        process.grow(0)
    process.grow(memory.GROWTH_BYTES - 1)
    assert process.looks == []


def test_growth_has_young_objects_looked_at_and_that_may_be_enough(process: Process) -> None:
    process.young_frees = 60 * MiB
    for _ in range(5):
        process.grow(60 * MiB)
    assert process.looks == [1] * 5


def test_growth_that_stays_has_old_objects_looked_at(process: Process) -> None:
    process.grow(60 * MiB)
    assert process.looks == [1, 2]
    process.grow(0)
    assert process.looks == [1, 2], "what is left is in use"


def test_looks_at_old_objects_take_a_small_share_of_the_time(process: Process) -> None:
    process.look_seconds = 1.0
    for _ in range(1000):
        process.grow(100 * MiB + process.resident // 2)
        process.resident = min(process.resident, 1 << 40)
    # One at old objects and one at all.
    assert 1 <= process.looks.count(2) <= 2 * (1000 / memory.COLLECTION_PAUSE + 2)


def test_what_could_not_be_looked_for_at_once_is_looked_for_later(process: Process) -> None:
    process.grow(40 * MiB)
    process.grow(40 * MiB)
    assert process.looks == [1, 2, 1]
    process.now += process.look_seconds * memory.COLLECTION_PAUSE
    process.old_frees = 40 * MiB
    process.grow(0)
    assert process.looks == [1, 2, 1, 2]
    assert process.resident == 140 * MiB


def test_many_old_objects_are_looked_at_once_and_not_again(process: Process) -> None:
    process.old = memory.OLD_OBJECTS_MAX
    process.grow(0)
    assert process.looks == [], "so few take no time"
    process.old = memory.OLD_OBJECTS_MAX + 1
    process.grow(0)
    assert process.looks == [2, "exclude"]
    process.grow(0)
    assert process.looks == [2, "exclude"]


def test_more_than_can_be_looked_at_in_a_moment_are_not_looked_at(process: Process) -> None:
    process.old = memory.OLD_OBJECTS_COLLECTED_MAX + 1
    process.grow(0)
    assert process.looks == ["exclude"]


def test_looks_before_objects_are_excluded_take_a_small_share_of_the_time_too(
    process: Process,
) -> None:
    process.look_seconds = 1.0
    for _ in range(1000):
        process.old = memory.OLD_OBJECTS_COLLECTED_MAX
        process.grow(0)
    assert process.looks.count("exclude") == 1000
    assert 1 <= process.looks.count(2) <= 1000 / memory.COLLECTION_PAUSE + 2


def test_all_objects_are_looked_at_when_the_process_has_doubled(process: Process) -> None:
    process.grow(200 * MiB)
    assert "include" not in process.looks, "a small process is not worth it"
    process.grow(55 * MiB)
    process.looks.clear()
    process.excluded_frees = 56 * MiB
    process.grow(1 * MiB)
    assert process.looks == ["include", 2, "exclude"]
    assert process.resident == 300 * MiB, "a cycle of excluded objects is found after all"
    process.looks.clear()
    process.excluded_frees = process.old_frees = 0
    process.now += process.look_seconds * memory.COLLECTION_PAUSE
    process.grow(299 * MiB)
    assert "include" not in process.looks
    process.grow(1 * MiB)
    assert "include" in process.looks


def test_the_size_of_this_process_is_known() -> None:
    assert memory.resident_bytes() > MiB


def test_what_is_freed_after_the_last_look_is_given_back(process: Process) -> None:
    process.grow(60 * MiB)
    process.free = 60 * MiB  # The process does not grow or shrink by that.
    for _ in range(int(memory.TRIM_SECONDS_MIN) + 1):
        process.grow(0)
    assert process.resident == 100 * MiB
    trims = process.trims
    process.now += 1000
    process.grow(0)
    assert process.trims == trims, "it is as small as it has ever been"


def test_giving_back_takes_a_small_share_of_the_time(process: Process) -> None:
    process.trim_seconds = 0.1
    process.resident += 60 * MiB
    for _ in range(1000):
        process.grow(0)
    assert 1 <= process.trims <= 1000 / (memory.TRIM_PAUSE * 0.1) + 3


class Cycle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_a_look_at_old_objects_is_bounded_and_finds_cycles_that_are_not_excluded() -> None:
    collector = memory.PythonCollector()
    gc.collect()
    gc.freeze()
    try:
        kept = [[number] for number in range(10_000)]
        cycle = Cycle()
        excluded, found = weakref.ref(cycle), weakref.ref(Cycle())
        collector.collect(1)
        collector.collect(1)
        assert 10_000 <= collector.count_old() <= 11_000
        collector.exclude()
        assert collector.count_old() == 0
        del cycle
        assert collector.collect(2) == 0
        assert (excluded() is None, found() is None) == (False, True)
        collector.include()
        collector.collect(2)
        assert excluded() is None
        kept.pop()
    finally:
        gc.unfreeze()


def test_python_does_not_look_at_all_objects_by_itself() -> None:
    """That took seconds of all requests while 100,000 groups were created, whatever the pause."""
    full: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            full.append(phase)

    thresholds = gc.get_threshold()
    gc.freeze()
    gc.collect()  # so that new objects are more than a quarter of the older ones
    gc.callbacks.append(note)
    gc.set_threshold(100, *memory.GC_THRESHOLDS[1:])
    try:
        kept = [[number] for number in range(100_000)]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(note)
        gc.unfreeze()
    assert len(kept) == 100_000
    assert full == []
