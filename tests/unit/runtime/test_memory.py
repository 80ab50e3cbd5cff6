"""When cycles are looked for, by the size of the process."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from goqueue.runtime import memory
from goqueue.runtime.memory import MemoryKeeper

MiB = 1 << 20


class Process:
    """A process of a size, and how long a look at all its objects takes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.resident = 100 * MiB
        self.full_look_seconds = 0.1
        self.young_frees = self.full_frees = 0
        self.looks: list[int] = []
        self.free = 0  # in the middle of the heap
        self.trims = 0
        self.trim_seconds = 0.0
        self.keeper = MemoryKeeper(
            self,  # type: ignore[arg-type]
            resident=lambda: self.resident,
            collect=self._collect,
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

    def _collect(self, generation: int) -> None:
        self.looks.append(generation)
        self.resident -= self.full_frees if generation == 2 else self.young_frees
        if generation == 2:
            self.now += self.full_look_seconds


@pytest.fixture
def process() -> Process:
    return Process()


def test_a_process_that_does_not_grow_is_left_alone(process: Process) -> None:
    for _ in range(100):
        process.now += 1
        process.keeper.look()
    process.resident += memory.GROWTH_BYTES - 1
    process.keeper.look()
    assert process.looks == []


def test_growth_has_young_objects_looked_at_and_that_may_be_enough(process: Process) -> None:
    process.young_frees = 60 * MiB
    for _ in range(5):
        process.resident += 60 * MiB
        process.now += 1
        process.keeper.look()
    assert process.looks == [1] * 5


def test_growth_that_stays_has_all_objects_looked_at(process: Process) -> None:
    process.resident += 60 * MiB
    process.keeper.look()
    assert process.looks == [1, 2]
    process.keeper.look()
    assert process.looks == [1, 2], "what is left is in use"


def test_a_look_at_all_takes_a_small_share_of_the_time(process: Process) -> None:
    process.full_look_seconds = 1.0
    for _ in range(1000):
        process.resident += 100 * MiB + process.resident
        process.now += 1
        process.keeper.look()
        process.resident = min(process.resident, 1 << 40)
    assert 1 <= process.looks.count(2) <= 1000 / memory.FULL_COLLECTION_PAUSE + 2


def test_what_could_not_be_looked_for_at_once_is_looked_for_later(process: Process) -> None:
    for _ in range(2):
        process.resident += 60 * MiB
        process.keeper.look()
    assert process.looks == [1, 2, 1]
    process.now += process.full_look_seconds * memory.FULL_COLLECTION_PAUSE
    process.full_frees = 60 * MiB
    process.keeper.look()
    assert process.looks == [1, 2, 1, 2]
    assert process.resident == 160 * MiB


def test_the_size_of_this_process_is_known() -> None:
    assert memory.resident_bytes() > MiB


def test_what_is_freed_after_the_last_look_is_given_back(process: Process) -> None:
    process.resident += 60 * MiB
    process.keeper.look()
    process.free = 60 * MiB  # The process does not grow or shrink by that.
    for _ in range(int(memory.TRIM_SECONDS_MIN) + 1):
        process.now += 1
        process.keeper.look()
    assert process.resident == 100 * MiB
    trims = process.trims
    process.now += 1000
    process.keeper.look()
    assert process.trims == trims, "it is as small as it has ever been"


def test_giving_back_takes_a_small_share_of_the_time(process: Process) -> None:
    process.trim_seconds = 0.1
    process.resident += 60 * MiB
    for _ in range(1000):
        process.now += 1
        process.keeper.look()
    assert 1 <= process.trims <= 1000 / (memory.TRIM_PAUSE * 0.1) + 3


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
