"""Scheduled messages are found by their numbers, wherever they lie in their log."""

from __future__ import annotations

import pytest

from goqueue.broker.schedules import log as schedule_log
from goqueue.broker.schedules.log import (
    BATCH_RECORDS_MAX,
    PAGE_NUMBERS,
    OnDisk,
    PositionIndex,
)
from goqueue.broker.schedules.schedules import Delayed
from goqueue.delivery.schedules import number_key, read_message
from goqueue.model.batch import Record
from goqueue.model.errors import CorruptBatch
from goqueue.partition import Partition
from goqueue.storage.disk import File
from tests.simulation.disk import SimulatedFile
from tests.unit.broker.node import Node

DAY_MS = 86_400_000


class SimulatedPartition(Node):
    """A node with one log of schedules, and what is asked of it."""

    def __init__(self) -> None:
        super().__init__(schedules__partitions="1", compaction__check_ms="1000")
        self.create("orders")

    @property
    def partition(self) -> Partition:
        return self.broker.topics.get("__scheduled").partition(0)

    def store(self, *values: bytes) -> list[str]:
        due_ms = self.broker.clock.now_ms() + DAY_MS
        delayed = [Delayed(Record(None, value), due_ms) for value in values]
        return self.wait(self.broker.schedules.schedule("orders", delayed))

    def found(self, ids: list[str]) -> list[bytes | None]:
        return [self.broker.schedules.get(one).value for one in ids]


VALUES = [
    b"small",
    b"",
    b"x" * 500,
    b"y" * 5_000,
    b"z" * 40_000,
    # A value with the bytes of a record in it, that of the first message.
    b"\x00\x00\x00\x10" + number_key(0) + b"\x0cstolen",
    *[b"%d" % one for one in range(300)],
]


@pytest.fixture
def simulated() -> SimulatedPartition:
    return SimulatedPartition()


def test_messages_are_found_in_any_order(simulated: SimulatedPartition) -> None:
    ids = simulated.store(*VALUES)
    assert simulated.found(ids) == VALUES
    assert simulated.found(ids[::-1]) == VALUES[::-1]
    assert simulated.found(ids[::7]) == VALUES[::7]


def test_one_who_has_not_seen_them_written_finds_the_same(simulated: SimulatedPartition) -> None:
    simulated.store(*VALUES)
    positions = PositionIndex(simulated.partition)
    for _ in range(2):  # The second time their positions are known.
        for number in reversed(range(len(VALUES))):
            value = positions.find(number)
            assert value is not None
            assert read_message(value).value == VALUES[number]
    assert positions.find(len(VALUES)) is None


def test_a_place_is_known_with_one_read_of_its_batch(
    simulated: SimulatedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.store(*[b"%d" % one for one in range(BATCH_RECORDS_MAX)])
    searches = []
    search = PositionIndex._search
    monkeypatch.setattr(
        PositionIndex,
        "_search",
        lambda self, number: searches.append(number) or search(self, number),
    )
    positions = PositionIndex(simulated.partition)
    for number in (40, 7, 63, 0):
        positions.find(number)
    assert searches == [40]


def test_who_does_not_wait_for_the_disk_is_told_what_to_fetch(
    simulated: SimulatedPartition,
) -> None:
    simulated.store(*VALUES)
    positions = PositionIndex(simulated.partition)
    positions.find(0)  # This makes the positions of its whole batch known.
    simulated.disk.cold_chance = 1.0
    for number in (0, 4, 2):
        with pytest.raises(OnDisk):
            positions.find(number, may_block=False)
    positions.fetch([0, 2, 4])()
    simulated.disk.cold_chance = 0.0
    for number in (0, 4, 2):
        value = positions.find(number, may_block=False)
        assert value is not None
        assert read_message(value).value == VALUES[number]


def test_messages_that_have_left_memory_are_released_without_a_wait_for_the_disk(
    simulated: SimulatedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"%d" % one for one in range(300)]
    simulated.store(*values)
    cold = simulated.partition.log.active.size
    memory: set[int] = set()  # positions from which a thread has read
    fetch, read = schedule_log._fetch, SimulatedFile.read

    def fetch_for_good(records: list[tuple[File, int, int]]) -> None:
        memory.update(position for _, position, _ in records)
        with monkeypatch.context() as thread:
            thread.setattr(SimulatedFile, "read", read)
            fetch(records)

    def read_warm(file: SimulatedFile, position: int, length: int) -> bytes:
        if file is simulated.partition.log.active.file:
            assert position in memory or position >= cold, "the event loop waits for the disk"
        return read(file, position, length)

    monkeypatch.setattr(schedule_log, "_fetch", fetch_for_good)
    monkeypatch.setattr(SimulatedFile, "read", read_warm)
    simulated.disk.cold_chance = 1.0
    simulated.run_for(DAY_MS + 1_000)
    assert memory
    assert sorted(record.value or b"" for record in simulated.consume("orders")) == sorted(values)


def test_positions_are_not_believed_after_compaction(simulated: SimulatedPartition) -> None:
    ids = simulated.store(*VALUES)
    assert simulated.found(ids) == VALUES
    kept = ids[1::5]
    gone = [one for one in ids if one not in kept]
    assert not any(simulated.wait(simulated.broker.schedules.cancel_many(gone)))
    log = simulated.partition.log
    before, segments = log.size, list(log.segments)
    log.settings.segment_ms = 1
    log.settings.compaction_lag_ms_min = 0
    log.settings.dirty_ratio_min = 0.01
    simulated.run_for(20_000)
    assert log.size < before / 2
    assert log.segments[0] is not segments[0]
    assert simulated.found(kept) == VALUES[1::5]
    assert simulated.found(kept[::-1]) == VALUES[1::5][::-1]


def test_a_damaged_message_is_reported_and_the_others_are_found(
    simulated: SimulatedPartition,
) -> None:
    ids = simulated.store(*[b"%d" % one for one in range(2 * BATCH_RECORDS_MAX)])
    simulated.stop()
    simulated.start()
    segment = simulated.partition.log.segments[0]
    segment.file.overwrite(100, b"\xff\xff")
    with pytest.raises(CorruptBatch):
        simulated.broker.schedules.get(ids[3])
    assert simulated.broker.schedules.get(ids[-1]).value == b"%d" % (len(ids) - 1)


def test_only_so_many_positions_are_kept(
    simulated: SimulatedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_log, "PAGES_MAX", 2)
    simulated.store(b"first")
    positions = PositionIndex(simulated.partition)
    for page in range(5):
        positions._page(page * PAGE_NUMBERS)
    assert list(positions._pages) == [3, 4]
    value = positions.find(0)
    assert value is not None
    assert read_message(value).value == b"first"
