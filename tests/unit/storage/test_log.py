"""A log in daily life: rolling, reading, looking up times, forgetting, truncating, a full disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from goqueue.model.batch import Record, read_header
from goqueue.model.errors import CorruptBatch
from goqueue.runtime.disk import LocalDisk
from goqueue.storage.disk import Disk
from goqueue.storage.index import SegmentIndexes
from goqueue.storage.log import Log, LogSettings
from goqueue.storage.retention import is_active_expired, is_roll_due, take_expired
from goqueue.storage.timestamps import find_newest, find_timestamp
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import (
    FOLDER,
    NOW_MS,
    SMALL,
    append,
    append_numbered,
    open_log,
    read_all,
    read_readable,
    recover,
    sync,
)

FOREVER = LogSettings(segment_bytes=4000, index_interval_bytes=256, is_deleting=False)


@pytest.fixture(params=["local", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return LocalDisk(str(tmp_path)) if request.param == "local" else SimulatedDisk()


def test_a_new_log_is_empty_and_makes_no_files(disk: Disk) -> None:
    log, reports = recover(disk)
    assert (log.start_offset, log.end_offset, log.size, reports) == (0, 0, 0, [])
    assert log.read(0, bytes_max=100, until_offset=0) is None
    assert find_timestamp(log, 0, until_offset=0) is None
    assert find_newest(log, until_offset=0) is None
    assert disk.list(FOLDER) == []


def test_batches_come_back_byte_for_byte_in_slices_of_any_size(disk: Disk) -> None:
    log = open_log(disk)
    batches = append_numbered(log, 100, records=2)
    for bytes_max in (1, 500, 1 << 20):
        assert read_all(log, bytes_max=bytes_max) == batches
    state = log.close()
    assert read_all(Log.reopen(disk, FOLDER, SMALL, state)) == batches
    assert read_all(open_log(disk)) == batches


def test_a_slice_holds_whole_batches_within_its_bound_and_at_least_one(disk: Disk) -> None:
    log = open_log(disk)
    batches = append_numbered(log, 30, records=3)
    for offset in range(log.end_offset):
        for until in (offset - offset % 3 + 3, 60, log.end_offset):
            if until <= offset:
                continue
            part = log.read(offset, bytes_max=400, until_offset=until)
            assert part is not None
            assert part.read().startswith(batches[offset // 3])
            assert part.length <= max(400, len(batches[offset // 3]))
            assert part.offset == offset - offset % 3
    assert log.read(10, bytes_max=100, until_offset=9) is None


def test_a_segment_is_closed_when_it_is_full_or_old(disk: Disk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1000, segment_ms=60_000))
    append_numbered(log, 30)
    assert len(log.segments) > 1
    assert all(segment.size <= 1000 for segment in log.segments)
    count = len(log.segments)
    assert not is_roll_due(log, NOW_MS + 59_999)
    assert is_roll_due(log, NOW_MS + 60_000)
    append_numbered(log, 1, now_ms=NOW_MS + 60_000)
    assert len(log.segments) == count + 1
    assert [name for name in disk.list(FOLDER) if name.endswith(".log")] == [
        f"{segment.base_offset:020d}.log" for segment in log.segments
    ]


def test_a_segment_of_a_compacted_log_is_closed_before_its_records_are_due(disk: Disk) -> None:
    log = open_log(disk, LogSettings(is_compacting=True, compaction_lag_ms_max=500))
    append_numbered(log, 1)
    assert not is_roll_due(log, NOW_MS + 499)
    assert is_roll_due(log, NOW_MS + 500)


def test_times_lead_to_the_first_record_that_is_new_enough(disk: Disk) -> None:
    log = open_log(disk, FOREVER)
    times = [(number * 37) % 1000 for number in range(300)]
    for start in range(0, 300, 3):
        append(log, [Record(None, b"x" * 20, (), time) for time in times[start : start + 3]])
    sync(log)
    for one in (log, open_log(disk, FOREVER)):
        for wanted in (*range(0, 1100, 13), 999, 1000):
            found = find_timestamp(one, wanted, until_offset=300)
            expected = next((n for n, time in enumerate(times) if time >= wanted), None)
            assert (None if found is None else found.offset) == expected
        newest = find_newest(one, until_offset=300)
        assert newest is not None
        assert newest.offset == times.index(max(times))
        assert find_timestamp(one, 0, until_offset=0) is None
    log.advance_start(times.index(max(times)) + 1)
    found = find_timestamp(log, 0, until_offset=300)
    assert found is not None
    assert found.offset == log.start_offset


def test_retention_by_time_forgets_whole_segments_of_old_records(disk: Disk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1000, retention_ms=1000))
    for number in range(40):
        append_numbered(log, 1, now_ms=NOW_MS + number * 100)
    assert take_expired(log, now_ms=NOW_MS + 1000, until_offset=40) == []
    taken = take_expired(log, now_ms=NOW_MS + 3000, until_offset=40)
    assert taken
    assert all(segment.max_timestamp < NOW_MS + 2000 for segment in taken)
    assert log.segments[0].max_timestamp >= NOW_MS + 2000
    assert log.start_offset == log.segments[0].base_offset == taken[-1].end_offset
    for segment in taken:
        segment.remove()
    assert open_log(disk).start_offset == log.start_offset
    assert take_expired(log, now_ms=NOW_MS + 9000, until_offset=log.start_offset) == []
    assert not is_active_expired(log, NOW_MS + 4800)
    assert is_active_expired(log, NOW_MS + 5000)


def test_retention_by_size_keeps_at_least_what_was_asked_for(disk: Disk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1000, retention_ms=-1, retention_bytes=3000))
    append_numbered(log, 100)
    assert log.size > 6000
    take_expired(log, now_ms=NOW_MS, until_offset=100)
    assert 3000 <= log.size < 4000
    log.settings = LogSettings(retention_ms=-1, retention_bytes=0, is_deleting=False)
    assert take_expired(log, now_ms=NOW_MS, until_offset=100) == []


def test_deleted_records_stay_deleted_and_their_segments_go(disk: Disk) -> None:
    log = open_log(disk, FOREVER)
    batches = append_numbered(log, 100)
    log.advance_start(50)
    assert read_all(log) == batches[50:]
    for segment in take_expired(log, now_ms=NOW_MS, until_offset=100):
        segment.remove()
    sync(log)
    assert log.segments[0].base_offset <= 50 < log.segments[0].end_offset
    log = open_log(disk, FOREVER)
    assert log.start_offset == 50
    assert read_all(log) == batches[50:]


def test_a_segment_that_retention_took_while_it_was_to_be_synced_does_no_harm(disk: Disk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=500, retention_ms=-1, retention_bytes=0))
    append_numbered(log, 20)
    point = log.sync_point()
    taken = take_expired(log, now_ms=NOW_MS, until_offset=20)
    assert len(taken) > 1
    for segment in taken:
        segment.remove()
    point.sync()
    log.synced(point)
    sync(log)
    assert [name for name in disk.list(FOLDER) if name.endswith(".log")] == [
        f"{log.active.base_offset:020d}.log"
    ]


def test_a_slice_of_a_removed_segment_is_read_to_its_end(disk: Disk) -> None:
    log = open_log(disk, SMALL)
    batches = append_numbered(log, 100)
    part = log.read(0, bytes_max=1 << 20, until_offset=100)
    assert part is not None
    for segment in log.take_segments(1):
        segment.remove()
    assert part.read().startswith(batches[0])


@pytest.mark.parametrize("offset", [0, 1, 50, 99, 100])
def test_a_truncated_log_goes_on_from_where_it_was_cut(disk: Disk, offset: int) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1000, index_interval_bytes=256))
    batches = append_numbered(log, 50, records=2)
    sync(log)
    log.truncate(offset)
    kept = batches[: offset // 2]
    assert log.end_offset == len(kept) * 2
    assert read_all(log) == kept
    kept += append_numbered(log, 20, records=2, value_bytes=33)
    sync(log)
    assert read_all(log) == kept
    assert read_all(open_log(disk)) == kept


def test_the_end_of_a_log_is_that_of_its_newest_segment_even_if_a_truncation_fails(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk)
    append_numbered(log, 40)
    assert log.end_offset == log.active.end_offset == 40
    base = log.active.base_offset
    monkeypatch.setattr(SegmentIndexes, "keep", lambda _, count: _fail(count))
    with pytest.raises(OSError, match="Input/output"):
        log.truncate(base + 1)
    assert log.end_offset == log.active.end_offset == base + 1


def test_a_truncation_is_not_undone_by_a_crash() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed)
        few = LogSettings(segment_bytes=1000, index_interval_bytes=256)
        log = open_log(disk, few)
        batches = append_numbered(log, 50)
        sync(log)
        sync(log)
        log.truncate(23)
        kept = batches[:23] + append_numbered(log, 40, value_bytes=44)
        sync(log)
        unsynced = append_numbered(log, 3)
        disk.crash()
        found = read_readable(open_log(disk, few))[0]
        assert found[:63] == kept
        assert all(batch in unsynced for batch in found[63:])


def test_a_log_truncated_before_its_start_begins_again_there(disk: Disk) -> None:
    log = open_log(disk, SMALL)
    log.restart(500, now_ms=NOW_MS)
    append_numbered(log, 10)
    log.truncate(100)
    assert (log.start_offset, log.end_offset) == (100, 100)
    batches = append_numbered(log, 1)
    sync(log)
    log = open_log(disk, SMALL)
    assert (log.start_offset, read_all(log)) == (100, batches)


def test_a_restart_survives_a_crash_at_any_moment() -> None:
    for operation in range(40):
        disk = SimulatedDisk(operation)
        few = LogSettings(segment_bytes=1000, index_interval_bytes=256)
        log = open_log(disk, few)
        batches = append_numbered(log, 30)
        sync(log)
        disk.crash_at(operation)
        try:
            log.restart(1000, now_ms=NOW_MS)
            is_finished = True
        except BaseException:
            is_finished = False
        disk.crash()
        log, reports = recover(disk, few)
        assert reports == []
        found = read_all(log)
        assert found in ([], batches)
        assert log.end_offset == (30 if found else 1000)
        if is_finished:
            assert found == []
            break
    else:
        pytest.fail("a restart takes forty operations")


def test_a_full_disk_refuses_a_write_and_takes_the_next_when_there_is_room() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SMALL)
    batches = append_numbered(log, 5)
    size = log.size
    for room in (0, 1, 60, 89):
        disk.fill_after(room)
        with pytest.raises(OSError, match="No space") as caught:
            append_numbered(log, 1)
        assert caught.value.errno == errno.ENOSPC
        assert log.active.file.size() == log.size == size
        assert read_all(log) == batches
    disk.make_room()
    batches += append_numbered(log, 5)
    sync(log)
    assert read_all(log) == read_all(open_log(disk)) == batches


def test_a_disk_too_full_for_indexes_loses_nothing() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogSettings(segment_bytes=20_000, index_interval_bytes=100))
    batches = append_numbered(log, 150)
    disk.fill_after(10)
    sync(log)
    with pytest.raises(OSError, match="No space"):
        append_numbered(log, 150)
    sync(log)
    assert read_all(log) == batches
    disk.make_room()
    batches += append_numbered(log, 300)
    sync(log)
    assert read_all(log) == batches
    log, reports = recover(disk)
    assert (read_all(log), reports) == (batches, [])


def test_what_a_failed_write_left_behind_never_gets_into_the_log() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SMALL)
    batches = append_numbered(log, 2)
    disk.fill_after(30)
    file = log.active.file
    truncate, file.truncate = file.truncate, _fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="Input/output"):
        append_numbered(log, 1)
    disk.make_room()
    with pytest.raises(OSError, match="Input/output"):
        append_numbered(log, 1)
    file.truncate = truncate  # type: ignore[method-assign]
    batches += append_numbered(log, 2)
    sync(log)
    assert read_all(open_log(disk)) == batches


def _fail(size: int) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_batch_of_an_epoch_that_cannot_be_is_damage(disk: Disk) -> None:
    log = open_log(disk, SMALL)
    good = append_numbered(log, 2)
    append(log, [Record(b"k", b"v")], leader_epoch=70)
    good += append_numbered(log, 1)
    log.epoch_max = 3
    sync(log)
    log = open_log(disk, SMALL)
    assert len(read_all(log)) == 4
    log.epoch_max = 3
    batches, damages = read_readable(log)
    assert batches == good
    assert len(damages) == 1


def test_damage_ends_a_slice_and_names_where_to_go_on() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, FOREVER)
    batches = append_numbered(log, 60)
    sync(log)
    segment = log.segments[0]
    position = sum(map(len, batches[:10]))
    state = log.close()
    disk.flip_bit(segment.file.path, (position + 70) * 8)
    log = Log.reopen(disk, FOLDER, FOREVER, state)
    part = log.read(0, bytes_max=1 << 20, until_offset=60)
    assert part is not None
    assert part.read() == b"".join(batches[:10])
    part = log.read(10, bytes_max=1 << 20, until_offset=60)
    assert part is not None
    with pytest.raises(CorruptBatch, match=f"byte {position}, offset 10") as caught:
        part.read()
    assert caught.value.position == position
    assert caught.value.next_offset == 11
    assert [header.base_offset for header in log.headers(0)] == list(range(60))
    assert read_header(batches[11]).base_offset == 11


def test_damage_across_the_start_of_a_log_counts_until_all_of_it_is_deleted() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    first, *_ = [append_numbered(log, 1, records=count)[0] for count in (1, 3, 1)]
    sync(log)
    disk.flip_bit(log.active.file.path, 8 * (len(first) + 70))
    log.active.trusted_from = log.active.size
    assert len(read_readable(log)[1]) == 1
    assert log.damaged_from == 1
    log.advance_start(3)
    assert log.damaged_from == 3
    log.advance_start(4)
    assert log.damaged_from is None


def test_what_is_written_after_a_damaged_last_batch_can_be_read() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    batches = append_numbered(log, 3)
    sync(log)
    log.active.trusted_from = log.active.size
    disk.flip_bit(log.active.file.path, 8 * log.active.size - 1)
    found, damages = read_readable(log)
    assert (found, len(damages)) == (batches[:2], 1)
    assert log.damaged_from == 2
    more = append_numbered(log, 2)
    found, damages = read_readable(log)
    assert (found, len(damages)) == (batches[:2] + more, 1)
    assert "readable again from offset 3" in damages[0]


def test_headers_and_times_step_over_damage() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, FOREVER)
    batches = append_numbered(log, 60)
    sync(log)
    for number in (3, 10):
        position = sum(map(len, batches[:number]))
        disk.flip_bit(log.segments[0].file.path, (position + 9) * 8)
    log = open_log(disk, FOREVER)
    assert [header.base_offset for header in log.headers(0)] == [
        offset for offset in range(60) if offset not in (3, 10)
    ]
    assert [header.base_offset for header in log.headers(10)][:2] == [11, 12]
    found = find_timestamp(log, NOW_MS, until_offset=60)
    assert found is not None
    assert found.offset == 0
    assert find_timestamp(log, NOW_MS + 1, until_offset=60) is None


def test_batches_that_somebody_acts_on_are_verified_though_this_process_wrote_them() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append_numbered(log, 3)
    disk.flip_bit(log.active.file.path, 8 * log.active.size - 1)
    with pytest.raises(CorruptBatch):
        list(log.batches(0, until_offset=3))
    assert [header.base_offset for header, _ in log.batches(0, until_offset=2)] == [0, 1]
