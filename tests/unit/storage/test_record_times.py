"""The time of the first record from an offset on, looked up beside the log."""

from __future__ import annotations

import random

import pytest

from goqueue.model.batch import (
    LOG_APPEND_TIME,
    Record,
    encode_batch,
    encode_marker,
    read_header,
    stamp,
    stamp_append_time,
)
from goqueue.model.compression import Compression
from goqueue.storage.log import Log, LogSettings
from goqueue.storage.record_times import NOTHING_MS, UNKNOWN_MS, find_time, search_for
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import NOW_MS, append, open_log


def time_at(log: Log, disk: SimulatedDisk, offset: int) -> int:
    return find_time(disk, search_for(log, offset, until=log.end_offset))


def fill(log: Log, rng: random.Random, batches: int) -> list[int]:
    """Append batches of records at any times; the time of each offset."""
    times: list[int] = []
    for _ in range(batches):
        mine = [NOW_MS + rng.randint(-10_000, 10_000) for _ in range(rng.randint(1, 5))]
        codec = rng.choice([Compression.NONE, Compression.GZIP])
        append(log, [Record(b"k", b"v" * 30, (), one) for one in mine], codec=codec)
        times += mine
    return times


def append_marker(log: Log) -> None:
    marker = encode_marker(
        is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    stamp(marker, base_offset=log.end_offset, leader_epoch=0)
    log.append(memoryview(marker), read_header(marker), now_ms=NOW_MS)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_that_of_the_record_itself(seed: int) -> None:
    disk, rng = SimulatedDisk(seed), random.Random(seed)
    log = open_log(disk)
    times = fill(log, rng, 150)
    assert len(log.segments) > 3
    assert [time_at(log, disk, offset) for offset in range(len(times))] == times


def test_it_is_found_by_an_index_in_memory_and_by_one_in_a_file() -> None:
    disk = SimulatedDisk(1)
    log = open_log(disk, LogSettings(segment_bytes=1 << 20, index_interval_bytes=256))
    times = fill(log, random.Random(1), 200)
    assert log.active.indexes.offsets.pending
    found = [time_at(log, disk, offset) for offset in range(len(times))]
    log.active.indexes.write_all()
    assert not log.active.indexes.offsets.pending
    assert found == [time_at(log, disk, offset) for offset in range(len(times))] == times


def test_nothing_is_read_before_the_thread_begins() -> None:
    disk = SimulatedDisk(1)
    log = open_log(disk)
    fill(log, random.Random(1), 150)
    reads: list[str] = []
    opened = disk.open
    disk.open = lambda path: reads.append(path) or opened(path)  # type: ignore[method-assign,func-returns-value]
    search = search_for(log, 10, until=log.end_offset)
    assert reads == []
    assert find_time(disk, search) > 0
    assert reads != []


def test_markers_are_no_records() -> None:
    disk = SimulatedDisk(1)
    log = open_log(disk)
    append(log, [Record(None, b"a", (), NOW_MS)])
    append_marker(log)
    append_marker(log)
    assert time_at(log, disk, 1) == NOTHING_MS
    append(log, [Record(None, b"b", (), NOW_MS + 7)])
    assert time_at(log, disk, 1) == NOW_MS + 7


def test_records_from_the_end_on_do_not_count() -> None:
    disk = SimulatedDisk(1)
    log = open_log(disk)
    times = fill(log, random.Random(1), 10)
    assert find_time(disk, search_for(log, 3, until=3)) == NOTHING_MS
    assert time_at(log, disk, len(times)) == NOTHING_MS


def test_with_append_time_it_is_that_of_the_batch() -> None:
    disk = SimulatedDisk(1)
    log = open_log(disk)
    batch = encode_batch([Record(None, b"a", (), 5), Record(None, b"b", (), 6)])
    stamp(batch, base_offset=0, leader_epoch=0)
    stamp_append_time(batch, NOW_MS)
    assert read_header(batch).attributes & LOG_APPEND_TIME
    log.append(memoryview(batch), read_header(batch), now_ms=NOW_MS)
    assert [time_at(log, disk, offset) for offset in (0, 1)] == [NOW_MS, NOW_MS]


def test_without_the_files_there_is_no_answer() -> None:
    disk = SimulatedDisk(1)
    log = open_log(disk)
    times = fill(log, random.Random(1), 150)
    search = search_for(log, 0, until=log.end_offset)
    for segment in log.take_segments(len(log.segments) - 1):
        segment.remove()
    assert find_time(disk, search) == UNKNOWN_MS
    assert time_at(log, disk, len(times) - 1) == times[-1]
