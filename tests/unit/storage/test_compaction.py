"""Compaction: the last value of each key stays, offsets never change, a crash harms nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    Record,
    decode_batch,
    read_header,
)
from goqueue.model.compression import Compression
from goqueue.runtime.disk import LocalDisk
from goqueue.storage.compaction import Compaction, plan_compaction
from goqueue.storage.disk import Disk
from goqueue.storage.log import Log, LogSettings
from goqueue.storage.retention import take_expired
from tests.simulation.disk import PowerLost, SimulatedDisk
from tests.unit.storage.logs import FOLDER, NOW_MS, append, open_log, read_readable, recover, sync

RETENTION_MS = 1000
SETTINGS = LogSettings(
    segment_bytes=1200,
    index_interval_bytes=256,
    is_compacting=True,
    is_deleting=False,
    tombstone_retention_ms=RETENTION_MS,
)


def put(log: Log, key: bytes | None, value: bytes | None, **fields: int) -> int:
    """Append one record as one batch; its offset."""
    offset = log.end_offset
    append(log, [Record(key, value, (("h", b"1"),), NOW_MS + offset)], **fields)
    return offset


def close_active(log: Log) -> None:
    log.roll(now_ms=NOW_MS)
    sync(log)


def compact(
    disk: Disk,
    log: Log,
    *,
    now_ms: int = NOW_MS,
    last_offsets: Mapping[int, int] | None = None,
    map_bytes_max: int = 1 << 20,
    is_forced: bool = False,
) -> Compaction | None:
    """Run one whole pass, in small steps."""
    plan = plan_compaction(log, now_ms=now_ms, until_offset=log.end_offset, is_forced=is_forced)
    if plan is None:
        return None
    work = Compaction(
        disk, plan, last_offsets=last_offsets or {}, map_bytes_max=map_bytes_max, step_bytes=300
    )
    _run(work, log)
    return work


def _run(work: Compaction, log: Log) -> None:
    while not work.is_done:
        work.step()
        assert work.apply(log)


def contents(log: Log) -> list[Record]:
    batches, damages = read_readable(log)
    assert damages == []
    _assert_contiguous(log, batches)
    return [record for batch in batches for record in decode_batch(batch)]


def _assert_contiguous(log: Log, batches: Sequence[bytes]) -> None:
    expected = log.segments[0].base_offset
    for batch in batches:
        assert read_header(batch).base_offset == expected
        expected = read_header(batch).next_offset
    assert expected == log.end_offset


def last_of_each_key(records: Sequence[Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in records}


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_the_last_value_of_each_key_stays_at_its_offset(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    for number in range(60):
        put(log, b"key%d" % (number % 7), b"value %d" % number)
    close_active(log)
    before = contents(log)
    work = compact(disk, log)
    assert work is not None
    assert contents(log) == before[-7:]
    assert work.bytes_after < work.bytes_before
    assert log.cleaned_offset == 60
    assert log.end_offset == 60
    assert compact(disk, log) is None


def test_reading_at_an_offset_that_is_gone_gives_what_comes_after_it(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    for number in range(60):
        put(log, b"same", b"value %d" % number)
    close_active(log)
    put(log, b"same", b"newest")
    compact(disk, log)
    for offset in (0, 17, 58):
        part = log.read(offset, bytes_max=1 << 20, until_offset=log.end_offset)
        assert part is not None
        batch = part.read()
        assert read_header(batch).last_offset >= offset
        assert all(record.offset >= offset for record in decode_batch(batch))
    assert [record.value for record in contents(log)] == [b"value 59", b"newest"]


def test_records_without_a_key_and_control_batches_stay(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    put(log, None, b"first")
    put(log, b"\0\0\0\1", b"commit", attributes=CONTROL, producer_id=5)
    put(log, None, b"second")
    put(log, b"\0\0\0\1", b"commit", attributes=CONTROL, producer_id=5)
    close_active(log)
    before = contents(log)
    compact(disk, log)
    assert contents(log) == before


def test_a_tombstone_stays_for_its_time_and_no_older_value_comes_back(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    put(log, b"gone", b"old")
    put(log, b"here", b"value")
    tombstone = put(log, b"gone", None)
    close_active(log)
    compact(disk, log, now_ms=NOW_MS)
    kept = last_of_each_key(contents(log))
    assert kept[b"gone"] == Record(b"gone", None, (("h", b"1"),), NOW_MS + tombstone, tombstone)
    put(log, b"other", b"1")
    close_active(log)
    compact(disk, log, now_ms=NOW_MS + RETENTION_MS - 1, is_forced=True)
    assert b"gone" in last_of_each_key(contents(log))
    put(log, b"other", b"2")
    close_active(log)
    compact(disk, log, now_ms=NOW_MS + RETENTION_MS, is_forced=True)
    assert set(last_of_each_key(contents(log))) == {b"here", b"other"}
    assert log.end_offset == 5


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_keep_their_codec_producer_sequence_and_times(
    disk: SimulatedDisk, codec: Compression
) -> None:
    log = open_log(disk, SETTINGS)
    records = [Record(b"k%d" % n, b"x" * 50, (), NOW_MS - n) for n in range(5)]
    original = append(
        log, records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=40, leader_epoch=3
    )
    append(log, [records[0], records[3]], codec=codec)
    close_active(log)
    compact(disk, log)
    batch = read_readable(log)[0][0]
    was, now = read_header(original), read_header(batch)
    assert now.record_count == 3
    same = ("base_offset", "leader_epoch", "attributes", "last_offset_delta", "producer_id")
    same += ("producer_epoch", "base_sequence", "base_timestamp")
    assert {name: getattr(now, name) for name in same} == {
        name: getattr(was, name) for name in same
    }
    assert now.last_sequence == was.last_sequence
    assert now.max_timestamp == NOW_MS - 1
    assert [(one.offset, one.timestamp_ms) for one in decode_batch(batch)] == [
        (1, NOW_MS - 1),
        (2, NOW_MS - 2),
        (4, NOW_MS - 4),
    ]


def test_log_append_time_survives(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    append(log, [Record(b"a", b"1", (), 5), Record(b"b", None, (), 9)], attributes=LOG_APPEND_TIME)
    put(log, b"a", b"2")
    close_active(log)
    compact(disk, log)
    assert [one.timestamp_ms for one in contents(log)] == [9, NOW_MS + 2]


def test_the_last_batch_of_a_known_producer_stays_as_an_empty_batch(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    for sequence in range(3):
        put(log, b"k", b"v", producer_id=9, producer_epoch=1, base_sequence=sequence)
    put(log, b"k", b"v", producer_id=8, producer_epoch=0, base_sequence=0)
    put(log, b"k", b"last")
    close_active(log)
    compact(disk, log, last_offsets={9: 2})
    headers = [header for header in log.headers(0) if header.producer_id != NO_PRODUCER]
    assert [(one.producer_id, one.base_offset, one.last_sequence) for one in headers] == [(9, 2, 2)]
    assert headers[0].record_count == 0
    assert [record.value for record in contents(log)] == [b"last"]
    put(log, b"k", b"more")
    close_active(log)
    compact(disk, log, last_offsets={}, is_forced=True)
    assert all(header.producer_id == NO_PRODUCER for header in log.headers(0))


def test_small_neighbours_become_one_segment(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    for number in range(200):
        put(log, b"key%d" % (number % 3), b"value %d" % number)
    close_active(log)
    compact(disk, log)
    many = len(log.segments)
    put(log, b"key0", b"again")
    close_active(log)
    compact(disk, log, is_forced=True)
    assert many > 10
    assert len(log.segments) <= 3
    assert all(segment.size <= SETTINGS.segment_bytes for segment in log.segments)


def test_a_map_that_is_too_small_cleans_a_prefix_at_a_time(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    for number in range(300):
        put(log, b"key%d" % (number % 50), b"value %d" % number)
    close_active(log)
    before = contents(log)
    cleaned = [0]
    while compact(disk, log, map_bytes_max=2000, is_forced=True) is not None:
        assert last_of_each_key(contents(log)) == last_of_each_key(before)
        assert log.cleaned_offset > cleaned[-1]
        cleaned.append(log.cleaned_offset)
    assert cleaned[1] < 50
    assert cleaned[-1] == 300


def test_nothing_is_compacted_before_enough_of_it_is_dirty_old_and_closed(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk, SETTINGS)
    put(log, b"a", b"1")
    sync(log)

    def plan(now_ms: int = NOW_MS, until: int = 1000) -> object:
        return plan_compaction(log, now_ms=now_ms, until_offset=until)

    assert plan() is None  # the newest segment grows
    log.roll(now_ms=NOW_MS)
    assert plan() is None  # not durable yet
    sync(log)
    assert plan(until=0) is None  # not committed yet
    assert plan() is not None
    log.settings = LogSettings(is_compacting=True, compaction_lag_ms_min=100)
    assert plan(NOW_MS + 99) is None
    assert plan(NOW_MS + 100) is not None
    log.settings = LogSettings(is_compacting=False)
    assert plan() is None
    log.settings = LogSettings(is_compacting=True)
    compact(disk, log)
    put(log, b"b", b"2" * 10)
    for _ in range(3):
        put(log, b"b", b"2" * 10)
    close_active(log)
    assert plan() is not None
    log.settings = LogSettings(is_compacting=True, dirty_ratio_min=0.9)
    assert plan() is None
    assert plan_compaction(log, now_ms=NOW_MS, until_offset=1000, is_forced=True) is not None
    log.settings = LogSettings(
        is_compacting=True, dirty_ratio_min=0.9, compaction_lag_ms_max=50_000
    )
    assert plan(NOW_MS + 40_000) is None
    assert plan(NOW_MS + 60_000) is not None


def test_a_damaged_segment_is_left_out_and_its_neighbours_are_compacted(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk, SETTINGS)
    for number in range(60):
        put(log, b"key%d" % (number % 7), b"value %d" % number)
    put(log, b"key0", None)
    close_active(log)
    damaged = log.segments[1]
    disk.flip_bit(damaged.file.path, 8 * 40)
    work = compact(disk, log)
    assert work is not None
    assert len(work.reports) == 1
    assert damaged.file.path in work.reports[0]
    assert "byte 0" in work.reports[0]
    assert damaged in log.segments
    batches, damages = read_readable(open_log(disk, SETTINGS))
    assert len(damages) == 1
    records = [record for batch in batches for record in decode_batch(batch)]
    assert last_of_each_key(records)[b"key0"].value is None
    assert not any(read_header(one).has_delete_horizon for one in batches)
    assert len(records) < 30


def test_the_log_is_read_and_written_while_it_is_compacted(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    for number in range(60):
        put(log, b"key%d" % (number % 7), b"value %d" % number)
    close_active(log)
    before = contents(log)
    reader = log.read(3, bytes_max=200, until_offset=log.end_offset)
    assert reader is not None
    headers = log.headers(0)
    next(headers)
    plan = plan_compaction(log, now_ms=NOW_MS, until_offset=log.end_offset)
    assert plan is not None
    work = Compaction(disk, plan, last_offsets={}, step_bytes=100)
    while not work.is_done:
        put(log, b"key1", b"newer")
        work.step()
        assert work.apply(log)
        assert last_of_each_key(contents(log)) == {
            **last_of_each_key(before),
            b"key1": contents(log)[-1],
        }
    assert decode_batch(reader.read())[0].value == b"value 3"
    list(headers)


def test_a_thread_compacts_a_real_disk_while_few_files_may_be_open(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path), open_files_max=3)
    log = open_log(disk, SETTINGS)
    for number in range(120):
        put(log, b"key%d" % (number % 7), b"value %d" % number)
    close_active(log)
    plan = plan_compaction(log, now_ms=NOW_MS, until_offset=log.end_offset)
    assert plan is not None
    work = Compaction(disk, plan, last_offsets={}, step_bytes=5000)
    while not work.is_done:
        thread = threading.Thread(target=work.step)
        thread.start()
        while thread.is_alive():
            put(log, b"key1", b"newer")
            part = log.read(log.end_offset // 2, bytes_max=500, until_offset=log.end_offset)
            assert part is not None
            assert part.read()
        thread.join()
        assert work.apply(log)
    sync(log)
    found = last_of_each_key(contents(log))
    assert {record.value for record in found.values()} >= {b"value 119", b"newer"}
    assert contents(open_log(disk, SETTINGS)) == contents(log)


def test_a_log_that_changed_under_the_pass_is_left_alone(disk: SimulatedDisk) -> None:
    log = open_log(disk, SETTINGS)
    for number in range(60):
        put(log, b"key%d" % (number % 7), b"value %d" % number)
    close_active(log)
    plan = plan_compaction(log, now_ms=NOW_MS, until_offset=log.end_offset)
    assert plan is not None
    work = Compaction(disk, plan, last_offsets={})
    for segment in log.take_segments(1):
        segment.remove()
    with pytest.raises(FileNotFoundError):
        _run(work, log)
    work.abandon()
    plan = plan_compaction(log, now_ms=NOW_MS, until_offset=log.end_offset)
    assert plan is not None
    work = Compaction(disk, plan, last_offsets={})
    while work._replacement is None:
        work.step()
    for segment in log.take_segments(1):
        segment.remove()
    expected = contents(log)
    assert not work.apply(log)
    assert contents(log) == expected
    assert not any("cleaned" in name for name in disk.list(FOLDER))
    assert not any("swap" in name for name in disk.list(FOLDER))


def test_compacting_and_deleting_go_together(disk: SimulatedDisk) -> None:
    log = open_log(
        disk,
        LogSettings(segment_bytes=1200, is_compacting=True, is_deleting=True, retention_ms=1000),
    )
    for number in range(60):
        put(log, b"key%d" % (number % 7), b"value %d" % number)
    close_active(log)
    compact(disk, log)
    assert len(contents(log)) == 7
    expired = take_expired(log, now_ms=NOW_MS + 5000, until_offset=60)
    assert expired
    for segment in expired:
        segment.remove()
    assert contents(log) == []
    assert (log.start_offset, log.end_offset) == (60, 60)


def test_the_cleaned_offset_survives_a_restart_and_follows_a_truncation(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk, SETTINGS)
    for number in range(60):
        put(log, b"key%d" % (number % 7), b"value %d" % number)
    close_active(log)
    compact(disk, log)
    disk.crash()
    log = open_log(disk, SETTINGS)
    assert log.cleaned_offset == 60
    log.truncate(55)
    assert log.cleaned_offset == log.end_offset == 55
    assert open_log(disk, SETTINGS).cleaned_offset == 55
    state = log.close()
    assert Log.reopen(disk, FOLDER, SETTINGS, state).cleaned_offset == 55


def _dirty_log(disk: SimulatedDisk) -> Log:
    log = open_log(disk, SETTINGS)
    for number in range(40):
        put(log, b"key%d" % (number % 7), b"value %d" % number if number % 9 else None)
    close_active(log)
    return log


@pytest.mark.parametrize("survival", [0.0, 0.5, 1.0])
def test_a_crash_at_any_disk_operation_leaves_the_log_as_before_or_as_after(
    survival: float,
) -> None:
    disk = SimulatedDisk()
    log = _dirty_log(disk)
    before = contents(log)
    count = disk.operations
    compact(disk, log)
    after = contents(log)
    total = disk.operations - count
    assert total > 20
    for operation in range(total):
        disk = SimulatedDisk(operation, survival=survival)
        log = _dirty_log(disk)
        disk.crash_at(operation)
        with pytest.raises(PowerLost):
            compact(disk, log)
        disk.crash()
        for again in range(2):
            disk.crash_at(operation % 5 + again)
            try:
                recover(disk, SETTINGS)
            except PowerLost:
                disk.crash()
            disk.crash_at(None)
        log, reports = recover(disk, SETTINGS)
        assert reports == []
        found = contents(log)
        # Segments are swapped one by one, so a pass may have been carried out in part.
        assert set(after) <= set(found) <= set(before) or found == after
        assert last_of_each_key(found) == last_of_each_key(before)
        compact(disk, log)
        assert last_of_each_key(contents(log)) == last_of_each_key(before)


keys = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b"a long key of many bytes" * 2]))
values = st.one_of(st.none(), st.binary(max_size=30))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(keys, values), min_size=1, max_size=4)),
        st.tuples(st.just("compact"), st.sampled_from([300, 5000])),
        st.tuples(st.just("wait"), st.integers(1, 900)),
        st.tuples(st.just("restart"), st.just(None)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(operations, st.integers(0, 1000))
def test_whatever_is_done_the_last_values_are_those_of_a_dictionary(steps, seed) -> None:  # type: ignore[no-untyped-def]
    disk, chance = SimulatedDisk(seed), random.Random(seed)
    log = open_log(disk, SETTINGS)
    expected: dict[bytes, bytes | None] = {}
    keyless: list[Record] = []
    now_ms = NOW_MS
    for name, argument in steps:
        if name == "put":
            records = [Record(key, value, (), now_ms) for key, value in argument]
            base = log.end_offset
            append(log, records, now_ms=now_ms, codec=chance.choice(list(Compression)))
            for delta, record in enumerate(records):
                if record.key is None:
                    keyless.append(record._replace(offset=base + delta))
                else:
                    expected[record.key] = record.value
        elif name == "compact":
            if log.active.size:
                log.roll(now_ms=now_ms)
            sync(log)
            compact(disk, log, now_ms=now_ms, map_bytes_max=argument)
        elif name == "wait":
            now_ms += argument
        else:
            sync(log)
            disk.crash()
            log = open_log(disk, SETTINGS, now_ms=now_ms)
    found = contents(log)
    assert [record for record in found if record.key is None] == keyless
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    latest = {record.key: record.value for record in found if record.key is not None}
    assert {key: value for key, value in latest.items() if value is not None} == {
        key: value for key, value in expected.items() if value is not None
    }
