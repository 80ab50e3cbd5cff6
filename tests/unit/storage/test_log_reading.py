"""Readers that go on where they stopped: found without a search, and never where nothing begins."""

from __future__ import annotations

from bisect import bisect_right

import pytest

from goqueue.model.batch import Record, encode_batch, read_header, stamp
from goqueue.model.errors import CorruptBatch
from goqueue.storage.index import DamagedIndex, OffsetIndex
from goqueue.storage.log import Log, LogSettings
from goqueue.storage.segment import _STARTS_MAX
from tests.simulation.disk import SimulatedDisk
from tests.unit.effort import steps_of
from tests.unit.storage.logs import append, append_numbered, open_log, read_all

LONG = LogSettings(segment_bytes=1 << 20, index_interval_bytes=100)


def _steps_of_going_on(batches: int) -> int:
    log = open_log(SimulatedDisk(), LONG)
    append_numbered(log, batches)
    assert log.read(0, bytes_max=1 << 20, until_offset=batches) is not None
    more = append_numbered(log, 1)
    part, steps = steps_of(
        lambda: log.read(batches, bytes_max=1 << 20, until_offset=log.end_offset)
    )
    assert part is not None
    assert part.read() == more[0]
    return steps


def test_going_on_is_no_more_work_in_a_long_log() -> None:
    assert _steps_of_going_on(1500) == _steps_of_going_on(3)


def test_only_so_many_places_are_remembered() -> None:
    log = open_log(SimulatedDisk(), LONG)
    batches = append_numbered(log, 5 * _STARTS_MAX)
    assert read_all(log, bytes_max=1) == batches
    assert len(log.active._starts) == _STARTS_MAX


def test_a_record_is_not_taken_for_the_batch_that_began_there_before_a_cut() -> None:
    log = open_log(SimulatedDisk(), LONG)
    batches = append_numbered(log, 8)
    assert read_all(log, bytes_max=1) == batches
    log.truncate(3)
    # The new batch has, in a record, what looks like the batch with offset 5 at its old place.
    looks = encode_batch([Record(b"k", b"not a batch")])
    stamp(looks, base_offset=5, leader_epoch=0)
    contents = bytes(looks) + (6).to_bytes(8, "big")
    distance = sum(map(len, batches[3:5]))
    for filler in range(distance):
        value = b"." * filler + contents
        batch = encode_batch([Record(None, value), Record(None, b""), Record(None, b"")])
        if batch.index(contents) == distance:
            break
    stamp(batch, base_offset=3, leader_epoch=0)
    assert bytes(batch).index(contents) == distance
    log.append(memoryview(batch), read_header(batch), now_ms=1)
    part = log.read(5, bytes_max=1 << 20, until_offset=6)
    assert part is not None
    assert (part.offset, part.read()) == (3, bytes(batch))


@pytest.mark.parametrize("at", [0, 7, 11, 16])
def test_damage_at_a_remembered_place_is_noticed(at: int) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LONG)
    batches = append_numbered(log, 9)
    assert log.read(0, bytes_max=1 << 20, until_offset=4) is not None
    position = sum(map(len, batches[:4]))
    disk.flip_bit(log.active.file.path, 8 * (position + at) + 4)
    with pytest.raises(CorruptBatch, match=f"byte {position}, offset 4") as caught:
        log.read(4, bytes_max=1 << 20, until_offset=9)
    assert caught.value.next_offset == 5


def test_a_place_is_remembered_up_to_the_high_watermark_and_in_every_segment() -> None:
    log = open_log(SimulatedDisk(), LogSettings(segment_bytes=700, index_interval_bytes=100))
    batches: list[bytes] = []
    found: list[bytes] = []
    for number in range(1, 40):
        batches += append_numbered(log, 1 + number % 3)
        until = len(batches) - number % 2
        while len(found) < until:
            part = log.read(len(found), bytes_max=300, until_offset=until)
            assert part is not None
            found += _split(part.read())
    assert found == batches[: len(found)]
    assert len(log.segments) > 5


def _split(data: bytes) -> list[bytes]:
    batches, at = [], 0
    while at < len(data):
        size = read_header(data, at).size
        batches.append(data[at : at + size])
        at += size
    return batches


@pytest.mark.parametrize("count", [0, 1, 511, 513, 1500])
@pytest.mark.parametrize("waiting", [0, 1, 700])
def test_an_entry_is_found_in_the_file_and_in_memory(count: int, waiting: int) -> None:
    disk = SimulatedDisk()
    index = OffsetIndex(disk, "index")
    positions = [10 * number + number % 7 for number in range(count)]
    for number, position in enumerate(positions):
        index.add(number, position)
    index.write_pending(max(0, count - waiting))
    for target in range(-1, 10 * count + 20, 37):
        assert index.floor_number(target, by=1) == bisect_right(positions, target) - 1
    # A look makes no file where there is none: on a full disk it could not.
    assert disk.exists("index") == (count > waiting)


def test_a_damaged_entry_is_not_searched_by() -> None:
    disk = SimulatedDisk()
    index = OffsetIndex(disk, "index")
    for number in range(1000):
        index.add(number, 10 * number)
    index.write_pending(1000)
    size = len(disk.read_whole("index"))
    for bit in range(size * 8 - 1, 24 * 8, -1999):
        disk.flip_bit("index", bit)
        try:
            assert index.floor_number(7770, by=1) == 777
        except DamagedIndex:
            pass
        disk.flip_bit("index", bit)
    assert index.floor_number(7770, by=1) == 777


def test_a_reopened_log_forgets_the_places_and_finds_them_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LONG)
    batches = append_numbered(log, 20)
    assert read_all(log, bytes_max=300) == batches
    state = log.close()
    again = Log.reopen(disk, log.folder, LONG, state)
    assert read_all(again, bytes_max=300) == batches
    append(again, [Record(None, b"more")])
    assert len(read_all(again)) == 21
