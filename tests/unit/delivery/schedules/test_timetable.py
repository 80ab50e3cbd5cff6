"""The timetable: everything comes out once its time has come, and not before."""

from __future__ import annotations

import random

import pytest

from goqueue.delivery.schedules.timetable import LEVELS, NEVER_MS, DamagedBucket, Timetable
from tests.simulation.disk import SimulatedDisk

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
FOLDER = "schedules/0"


class Desk:
    """A timetable, the messages that still wait, and the clock."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.now_ms = START_MS
        self.waiting: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.table = self._new()
        self.table.advance(self.now_ms)

    def _new(self) -> Timetable:
        return Timetable(
            self.disk, FOLDER, lambda number, due_ms: self.waiting.get(number) == due_ms
        )

    def add(self, due_ms: int) -> int:
        number = len(self.waiting) + len(self.taken)
        self.waiting[number] = due_ms
        self.table.add(due_ms, number)
        return number

    def go_to(self, now_ms: int) -> None:
        """Let time pass in one step, cascade everything, and take what is due."""
        self.now_ms = now_ms
        self.table.advance(now_ms)
        while self.table.is_cascading:
            self.table.cascade()
        while entries := self.table.take_due(now_ms, self.random.randint(1, 50)):
            for due_ms, number in entries:
                if self.waiting.get(number) != due_ms:
                    continue  # The same entry twice; its owner knows.
                assert due_ms <= now_ms
                del self.waiting[number]
                self.taken[number] = now_ms

    def restart(self) -> None:
        states, dirty = self.table.checkpoint(NEVER_MS)
        serial_next = self.table.serial_next
        for bucket in dirty:
            bucket.sync()
        for path in self.table.take_dropped():
            self.disk.remove(path)
        # What comes after a checkpoint is told again by the log.
        after = [self.some_due_ms() for _ in range(20)]
        for due_ms in after:
            self.table.add(due_ms, -1)
        if self.random.random() < 0.5:
            self.table.flush()
        self.disk.crash()
        self.table = self._new()
        self.table.restore(states, serial_next=serial_next)
        self.table.advance(self.now_ms)

    def some_due_ms(self) -> int:
        span_ms = self.random.choice([1_000, 60_000, DAY_MS, 40 * DAY_MS, 100 * YEAR_MS])
        return self.now_ms + self.random.randint(0, span_ms)


@pytest.mark.seeds(25)
def test_everything_comes_out_once_and_on_time_through_jumps_and_restarts(seed: int) -> None:
    desk = Desk(seed)
    for _ in range(60):
        for _ in range(desk.random.choice([0, 1, 10, 300])):
            desk.add(desk.some_due_ms())
        for number in desk.random.sample(sorted(desk.waiting), len(desk.waiting) // 50):
            del desk.waiting[number]  # cancelled
            desk.taken[number] = -1
        for number in desk.random.sample(sorted(desk.waiting), len(desk.waiting) // 50):
            desk.waiting[number] = desk.some_due_ms()  # moved
            desk.table.add(desk.waiting[number], number)
        step_ms = desk.random.choice([1, 100, 5_000, 70_000, DAY_MS // 24, DAY_MS, 50 * DAY_MS])
        desk.go_to(desk.now_ms + step_ms)
        assert all(due_ms > desk.now_ms for due_ms in desk.waiting.values())
        if desk.random.random() < 0.2:
            desk.restart()
    assert len(desk.disk.list(FOLDER)) < 250
    desk.go_to(desk.now_ms + 101 * YEAR_MS)
    assert not desk.waiting


def test_a_hundred_years_need_few_files() -> None:
    desk = Desk()
    for day in range(0, 100 * 366, 2):
        desk.add(START_MS + day * DAY_MS + 1)
    desk.table.checkpoint(NEVER_MS)
    assert len(desk.disk.list(FOLDER)) < 120


def test_the_next_moment_is_the_next_message_or_the_next_opening() -> None:
    desk = Desk()
    level = LEVELS[0]
    opening_ms = (
        (START_MS + level.lead_ms) // level.size_ms * level.size_ms + level.size_ms - level.lead_ms
    )
    assert START_MS < desk.table.next_ms() <= opening_ms
    desk.add(START_MS + 7)
    assert desk.table.next_ms() == START_MS + 7
    assert desk.table.due_min_ms() == START_MS + 7


def test_the_earliest_due_time_is_known_also_when_it_is_far_away() -> None:
    desk = Desk()
    assert desk.table.due_min_ms() == NEVER_MS
    desk.add(START_MS + 3 * YEAR_MS)
    desk.add(START_MS + 2 * YEAR_MS)
    assert desk.table.due_min_ms() == START_MS + 2 * YEAR_MS


def test_a_bucket_that_is_cascaded_in_part_goes_on_after_a_restart() -> None:
    desk = Desk()
    far_ms = START_MS + 3 * DAY_MS
    for index in range(10_000):
        desk.add(far_ms + index)
    desk.table.flush()
    desk.now_ms = far_ms - DAY_MS // 48
    desk.table.advance(desk.now_ms)
    desk.table.cascade()
    assert desk.table.is_cascading
    desk.restart()
    desk.go_to(far_ms + DAY_MS)
    assert not desk.waiting
    assert len(desk.taken) == 10_000


def test_what_is_listed_is_what_waits_each_entry_once() -> None:
    desk = Desk(3)
    dues_ms = [desk.some_due_ms() for _ in range(3_000)]
    for due_ms in dues_ms:
        desk.add(due_ms)
    listed = []
    for start_ms, blocks in desk.table.sources(0, NEVER_MS):
        for block in blocks:
            entries = list(zip(block[::2], block[1::2], strict=True))
            assert all(due_ms >= start_ms for due_ms, _ in entries)
            listed += entries
    assert sorted(listed) == sorted((due_ms, number) for number, due_ms in desk.waiting.items())


def test_a_damaged_or_missing_file_is_noticed() -> None:
    desk = Desk()
    desk.add(START_MS + YEAR_MS)
    states, dirty = desk.table.checkpoint(NEVER_MS)
    (bucket,) = dirty
    bucket.sync()
    desk.disk.flip_bit(bucket.path, 8 * (bucket.size - 3))
    with pytest.raises(DamagedBucket, match="checksum"):
        desk.go_to(START_MS + 2 * YEAR_MS)
    desk.disk.remove(bucket.path)
    with pytest.raises(DamagedBucket, match="missing"):
        desk._new().restore(states, serial_next=9)


def test_a_full_disk_keeps_entries_in_memory_until_there_is_room() -> None:
    desk = Desk()
    desk.disk.fill_after(100)
    for index in range(9_000):
        desk.add(START_MS + YEAR_MS + index)
    with pytest.raises(OSError, match="space"):
        desk.table.checkpoint(NEVER_MS)
    desk.disk.make_room()
    desk.restart()
    desk.go_to(START_MS + 2 * YEAR_MS)
    assert not desk.waiting


def test_messages_that_are_put_in_together_come_out_like_any_other() -> None:
    one_by_one, together = Desk(1), Desk(1)
    dues_ms = [one_by_one.some_due_ms() for _ in range(3_000)]
    dues_ms += [START_MS + 3 * DAY_MS + number for number in range(3_000)]  # more than a block
    for due_ms in dues_ms:
        one_by_one.add(due_ms)
    together.waiting = dict(enumerate(dues_ms))
    together.table.add_many(0, dues_ms)
    assert together.table.due_min_ms() == one_by_one.table.due_min_ms() == min(dues_ms)
    for step_ms in (1, 1_000, 60_000, DAY_MS, 4 * DAY_MS, YEAR_MS, 101 * YEAR_MS):
        for desk in (one_by_one, together):
            desk.go_to(START_MS + step_ms)
        assert together.taken == one_by_one.taken
    assert len(together.taken) == len(dues_ms)
