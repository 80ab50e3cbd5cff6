"""Logs that were cut, flipped, half written and half synced, and what is left of them."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goqueue.model.batch import Record, encode_batch, read_header, stamp
from goqueue.runtime.disk import LocalDisk
from goqueue.storage.damage import Place
from goqueue.storage.log import LogSettings
from tests.simulation.disk import PowerLost, SimulatedDisk
from tests.unit.storage.logs import (
    FOLDER,
    append,
    append_numbered,
    open_log,
    read_all,
    read_readable,
    recover,
    sync,
)

ONE_SEGMENT = LogSettings(index_interval_bytes=256)
FIRST_LOG = f"{FOLDER}/{0:020d}.log"


def test_a_log_cut_at_any_byte_keeps_its_whole_batches_and_goes_on(tmp_path: Path) -> None:
    original = LocalDisk(str(tmp_path / "original"))
    log = open_log(original, ONE_SEGMENT)
    synced = append_numbered(log, 10)
    sync(log)
    batches = synced + append_numbered(log, 2)
    log.active.indexes.write_all()
    log.active.close()
    ends = [sum(map(len, batches[: count + 1])) for count in range(len(batches))]
    for size in range(ends[-3], ends[-1] + 1):
        root = tmp_path / "cut"
        shutil.copytree(tmp_path / "original", root)
        os.truncate(root / FIRST_LOG, size)
        whole = [batch for batch, end in zip(batches, ends, strict=True) if end <= size]
        cut, reports = recover(LocalDisk(str(root)), ONE_SEGMENT)
        assert read_all(cut) == whole
        assert bool(reports) == (size not in ends)
        more = append_numbered(cut, 2)
        assert read_all(cut) == whole + more
        assert cut.end_offset == len(whole) + 2
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def three_segments(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A crashed log: two sealed segments and an open one, of varied batches."""
    root = tmp_path_factory.mktemp("log")
    log = open_log(LocalDisk(str(root)), LogSettings(segment_bytes=2500, index_interval_bytes=256))
    batches: list[bytes] = []
    while len(log.segments) < 3 or log.active.size < 1500:
        batches += append_numbered(log, 1, records=1 + len(batches) % 3)
        if len(batches) % 5 == 0:
            sync(log)
    sync(log)
    log.active.indexes.write_all()
    log.active.close()
    return root, batches


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_one_flipped_bit_costs_at_most_its_own_batch_and_is_reported(
    three_segments: tuple[Path, list[bytes]], data: st.DataObject
) -> None:
    root, batches = three_segments
    names = sorted(name for name in os.listdir(root / FOLDER) if name.endswith(".log"))
    name = data.draw(st.sampled_from(names))
    size = os.path.getsize(root / FOLDER / name)
    bit = data.draw(st.integers(0, size * 8 - 1))
    disk = SimulatedDisk()
    for one in os.listdir(root / FOLDER):
        disk.replace_whole(f"{FOLDER}/{one}", (root / FOLDER / one).read_bytes())
    disk.flip_bit(f"{FOLDER}/{name}", bit)
    hit, position = _batch_at(batches, int(name[:20]), bit // 8)

    log, reports = recover(disk, LogSettings(segment_bytes=2500, index_interval_bytes=256))
    log.epoch_max = 0
    read, damages = read_readable(log, bytes_max=data.draw(st.sampled_from([1, 700, 1 << 20])))

    others = [batch for batch in batches if batch is not hit]
    assert [batch for batch in read if batch in batches] == others
    assert len(read) == len(others)
    assert any(name in text and f"byte {position}" in text for text in reports + damages)


def _batch_at(batches: list[bytes], base_offset: int, byte: int) -> tuple[bytes, int]:
    position = 0
    for batch in batches:
        if read_header(batch).base_offset < base_offset:
            continue
        if position <= byte < position + len(batch):
            return batch, position
        position += len(batch)
    raise AssertionError


@pytest.mark.parametrize("alignment", range(4096 - 70, 4096, 3))
def test_a_flip_near_the_end_of_a_page_is_not_taken_for_an_unwritten_page(alignment: int) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, ONE_SEGMENT)
    overhead = len(encode_batch([Record(b"k", bytes(4000))])) - 4000
    batches = [append(log, [Record(b"k", bytes(alignment - overhead))])]
    hit = len(batches[0])
    batches += append_numbered(log, 5)
    log.active.file.sync()
    disk.flip_bit(FIRST_LOG, (hit + 30) * 8)
    log, reports = recover(disk, ONE_SEGMENT)
    assert read_readable(log)[0] == batches[:1] + batches[2:]
    assert reports


def test_a_damaged_batch_that_holds_batches_does_not_let_them_out() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, ONE_SEGMENT)
    inner = encode_batch([Record(b"inner", b"x")])
    stamp(inner, base_offset=1, leader_epoch=0)
    second = encode_batch([Record(b"inner", b"y")])
    stamp(second, base_offset=2, leader_epoch=0)
    append(log, [Record(b"outer", bytes(inner + second) + b"...")])
    rest = append_numbered(log, 3)
    sync(log)
    disk.flip_bit(FIRST_LOG, 70 * 8)
    log, reports = recover(disk, ONE_SEGMENT)
    assert read_readable(log)[0] == rest
    assert len(reports) == 1


@pytest.mark.parametrize("seed", range(60))
def test_what_was_synced_survives_any_crash_and_nothing_else_is_invented(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    settings_ = LogSettings(segment_bytes=chance.choice([1500, 9000, 60_000]))
    log = open_log(disk, settings_)
    written: list[bytes] = []
    for _ in range(4):
        synced = len(written)
        for _ in range(chance.randint(0, 60)):
            written += append_numbered(
                log, 1, records=chance.randint(1, 3), value_bytes=chance.choice([10, 300, 5000])
            )
            if chance.random() < 0.1:
                sync(log)
                synced = len(written)
            elif chance.random() < 0.05:
                # A sync that ended on the disk but not in the process.
                log.sync_point().sync()
                synced = len(written)
        disk.crash()
        for _ in range(chance.randint(0, 2)):
            disk.crash_at(chance.randint(0, 8))
            try:
                recover(disk, settings_)
            except PowerLost:
                disk.crash()
            disk.crash_at(None)
        log, _ = recover(disk, settings_)
        read, _ = read_readable(log)
        assert read[:synced] == written[:synced]
        positions = [written.index(batch) for batch in read]
        assert positions == sorted(set(positions))
        again, _ = recover(disk, settings_)
        assert read_readable(again)[0] == read
        assert again.end_offset == log.end_offset
        log, written = again, read


def test_recovery_after_a_power_cut_reads_the_tail_and_not_the_log() -> None:
    disk = SimulatedDisk(survival=0.0)
    frequent = LogSettings(segment_bytes=4 << 20, index_interval_bytes=256)
    log = open_log(disk, frequent)
    for _ in range(240):
        append_numbered(log, 100, value_bytes=200)
        sync(log)
    total, active = log.size, log.active.size
    disk.crash()
    disk.bytes_read.clear()
    log, reports = recover(disk, frequent)
    read = sum(count for path, count in disk.bytes_read.items() if path.endswith(".log"))
    assert reports == []
    assert log.end_offset == 24_000
    assert total > 6_000_000
    assert active > 2_000_000
    assert read < 1_400_000  # what is not indexed durably: some 4096 entries


def test_recovery_after_a_process_died_reads_only_what_is_not_indexed() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogSettings(segment_bytes=600_000))
    for _ in range(200):
        append_numbered(log, 10, value_bytes=1000)
        sync(log)
    total = log.size
    disk.bytes_read.clear()
    log, reports = recover(disk, LogSettings(segment_bytes=600_000))
    read = sum(count for path, count in disk.bytes_read.items() if path.endswith(".log"))
    assert (reports, log.end_offset) == ([], 2000)
    assert total > 2_000_000
    assert read < 300_000


def test_a_recovered_tail_is_made_durable_before_anyone_sees_it() -> None:
    disk = SimulatedDisk(survival=0.0)
    log = open_log(disk, ONE_SEGMENT)
    batches = append_numbered(log, 5)
    log, _ = recover(disk, ONE_SEGMENT)  # the process died, the machine did not
    assert read_all(log) == batches
    disk.crash()
    assert read_all(open_log(disk, ONE_SEGMENT)) == batches


def test_a_bit_flipped_in_the_last_batch_of_a_closed_segment_costs_no_later_segment() -> None:
    disk = SimulatedDisk()
    few = LogSettings(segment_bytes=500, index_interval_bytes=256)
    log = open_log(disk, few)
    batches = append_numbered(log, 12)
    for segment in log.segments:
        segment.file.sync()  # durable, but the seals were lost
    first = log.segments[0]
    last = max(first.scan_readable(Place(0, 0)), key=lambda located: located.position)
    disk.flip_bit(first.file.path, (last.position + 40) * 8)
    log, reports = recover(disk, few)
    assert len(reports) == 1
    assert read_readable(log)[0] == [
        batch for batch in batches if read_header(batch).base_offset != last.header.base_offset
    ]


def test_segments_after_a_torn_one_are_dropped() -> None:
    disk = SimulatedDisk()
    few = LogSettings(segment_bytes=500, index_interval_bytes=256)
    log = open_log(disk, few)
    batches = append_numbered(log, 12)
    first = log.segments[0]
    kept = first.size // len(batches[0]) - 1
    first.file.truncate(kept * len(batches[0]))
    log, reports = recover(disk, few)
    assert read_all(log) == batches[:kept]
    assert any("incomplete" in text for text in reports)
    assert disk.list(FOLDER) == [f"{0:020d}.log"]


def test_records_deleted_before_they_were_synced_leave_their_offsets_used() -> None:
    disk = SimulatedDisk(survival=0.0)
    log = open_log(disk, ONE_SEGMENT)
    append_numbered(log, 5)
    sync(log)
    append_numbered(log, 5)
    log.advance_start(8)
    disk.crash()
    log = open_log(disk, ONE_SEGMENT)
    assert (log.start_offset, log.end_offset) == (8, 8)
    append_numbered(log, 1)
    sync(log)
    disk.crash()
    assert [read_header(one).base_offset for one in read_all(open_log(disk))] == [8]
