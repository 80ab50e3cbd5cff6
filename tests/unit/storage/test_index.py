"""Indexes that are missing, damaged or too short are built again and nobody notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.model.batch import Record
from goqueue.storage.log import Log, LogSettings
from goqueue.storage.timestamps import find_timestamp
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import FOLDER, append, open_log, read_all, sync

SETTINGS = LogSettings(segment_bytes=4000, index_interval_bytes=200)
INDEX = f"{FOLDER}/{0:020d}.index"
TIMES = f"{FOLDER}/{0:020d}.timeindex"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def _fill(disk: SimulatedDisk) -> list[bytes]:
    log = open_log(disk, SETTINGS)
    batches = [append(log, [Record(b"k", b"v" * 20, (), 1000 + n)]) for n in range(120)]
    sync(log)
    sync(log)
    return batches


def _check(log: Log, batches: list[bytes]) -> None:
    assert read_all(log, bytes_max=300) == batches
    for number in range(0, 120, 7):
        found = find_timestamp(log, 1000 + number, until_offset=120)
        assert found is not None
        assert found.offset == number
    assert log.segments[0].max_timestamp == 999 + log.segments[0].end_offset


def _remove(path: str) -> Callable[[SimulatedDisk], None]:
    return lambda disk: disk.remove(path)


def _cut(path: str, size: int) -> Callable[[SimulatedDisk], None]:
    return lambda disk: disk.open(path).truncate(size)


def _zero(path: str, start: int, length: int) -> Callable[[SimulatedDisk], None]:
    return lambda disk: disk.open(path).overwrite(start, bytes(length))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(make(path, *arguments), id=f"{make.__name__}{arguments} {path[-9:]}")
        for path in (INDEX, TIMES)
        for make, arguments in (
            (_remove, ()),
            (_cut, (0,)),
            (_cut, (5,)),
            (_cut, (60,)),
            (_cut, (61,)),
            (_zero, (0, 20)),
            (_zero, (40, 60)),
            (_zero, (6, 1)),
        )
    ],
)
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_damaged_index_is_built_again(
    disk: SimulatedDisk, damage: Callable[[SimulatedDisk], None], is_clean: bool
) -> None:
    batches = _fill(disk)
    state = open_log(disk, SETTINGS).close()
    damage(disk)
    reopened = Log.reopen(disk, FOLDER, SETTINGS, state)
    log = reopened if is_clean else open_log(disk, SETTINGS)
    _check(log, batches)
    _check(open_log(disk, SETTINGS), batches)


@pytest.mark.parametrize("path", [INDEX, TIMES])
def test_a_bit_flipped_anywhere_in_an_index_changes_no_answer(
    disk: SimulatedDisk, path: str
) -> None:
    batches = _fill(disk)
    size = len(disk.read_whole(path))
    for bit in range(0, size * 8, 5):
        disk.flip_bit(path, bit)
        log = open_log(disk, SETTINGS)
        part = log.read(13, bytes_max=300, until_offset=120)
        assert part is not None
        assert part.read().startswith(batches[13])
        found = find_timestamp(log, 1013, until_offset=120)
        assert found is not None
        assert found.offset == 13
        if bit % 200 == 0:
            _check(log, batches)
        log.close()
        log.segments[0]._rebuild_indexes()
        log.segments[0].close()


def test_a_rebuilt_index_is_written_and_not_built_twice(disk: SimulatedDisk) -> None:
    batches = _fill(disk)
    disk.remove(INDEX)
    _check(open_log(disk, SETTINGS), batches)
    assert disk.exists(INDEX)
    log = open_log(disk, SETTINGS)
    disk.bytes_read.clear()
    log.read(5, bytes_max=100, until_offset=120)
    assert disk.bytes_read[f"{FOLDER}/{0:020d}.log"] < log.segments[0].size * 2


def test_an_index_on_disk_never_speaks_of_bytes_that_were_not_synced() -> None:
    disk = SimulatedDisk(survival=0.0)
    log = open_log(disk, LogSettings(index_interval_bytes=100))
    for _ in range(100):
        append(log, [Record(b"k", b"v" * 50)])
    assert not disk.exists(INDEX)
    point = log.sync_point()
    point.sync()
    for _ in range(100):
        append(log, [Record(b"k", b"v" * 50)])
    log.synced(point)
    index = log.active.indexes.offsets
    entries = [index[number] for number in range(len(index) - index.pending)]
    assert entries
    assert all(position < point.position for _, position in entries)
