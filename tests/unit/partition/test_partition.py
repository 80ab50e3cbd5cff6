"""Append, commit, read, forget, and the end of a partition."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.unit.partition.shard import Shelf, batch_of

from goqueue.model.errors import (
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
    UnknownTopic,
)
from goqueue.partition import Partition, PartitionSettings
from goqueue.storage.log import LogSettings

SMALL = PartitionSettings(log=LogSettings(segment_bytes=200))


@dataclass(eq=False)
class Onlooker:
    """Waits for records, and notes where the high watermark was each time it was told."""

    seen: list[int] = field(default_factory=list)

    def partition_advanced(self, partition: Partition) -> None:
        self.seen.append(partition.high_watermark)


# When records count as committed


def test_where_every_write_is_synced_records_are_committed_by_the_sync() -> None:
    shard = Shelf(waits_for_sync=True)
    outcome = shard.ack(shard.append("a").last_offset)
    assert (outcome, shard.partition.high_watermark, shard.values()) == ([], 0, [])
    shard.sync()
    assert (outcome, shard.partition.high_watermark, shard.values()) == ([None], 1, ["a"])


def test_elsewhere_records_are_committed_by_the_write() -> None:
    shard = Shelf(waits_for_sync=False)
    outcome = shard.ack(shard.append("a").last_offset)
    assert (outcome, shard.partition.high_watermark, shard.values()) == ([None], 1, ["a"])
    assert shard.partition.is_dirty
    shard.sync()
    assert not shard.partition.is_dirty


def test_a_sync_commits_what_was_written_before_it_began() -> None:
    shard = Shelf()
    early = shard.ack(shard.append("early").last_offset)
    flush = shard.partition.flush()
    late = shard.ack(shard.append("late").last_offset)
    flush.run()
    shard.partition.flushed(flush)
    assert (early, late) == ([None], [])
    assert shard.values() == ["early"]
    assert shard.partition.is_dirty
    shard.sync()
    assert late == [None]


def test_those_who_wait_are_told_in_the_order_of_their_writes() -> None:
    shard = Shelf()
    told: list[str] = []
    for name in ("first", "second", "third"):
        appended = shard.append(name)
        shard.partition.when_committed(appended.last_offset, lambda _, name=name: told.append(name))
    shard.sync()
    assert told == ["first", "second", "third"]


def test_who_asks_late_is_told_at_once() -> None:
    shard = Shelf()
    appended = shard.append("a")
    shard.sync()
    assert shard.ack(appended.last_offset) == [None]


def test_a_repetition_waits_for_the_sync_of_the_original() -> None:
    shard = Shelf()
    shard.send(0)
    outcome = shard.ack(shard.send(0).last_offset)
    assert outcome == []
    shard.sync()
    assert outcome == [None]


def test_the_high_watermark_never_moves_back() -> None:
    shard = Shelf()
    shard.append("a")
    old = shard.partition.flush()
    shard.append("b")
    shard.sync()
    old.run()
    shard.partition.flushed(old)
    assert shard.partition.high_watermark == 2


def test_onlookers_are_told_of_every_advance() -> None:
    shard = Shelf()
    onlooker = Onlooker()
    shard.partition.watchers[onlooker] = None
    shard.append("a")
    assert onlooker.seen == []
    shard.sync()
    shard.append("b", "c")
    shard.sync()
    assert onlooker.seen == [1, 3]


def test_an_onlooker_may_leave_while_it_is_told() -> None:
    shard = Shelf()

    class Leaver(Onlooker):
        def partition_advanced(self, partition: Partition) -> None:
            super().partition_advanced(partition)
            del partition.watchers[self]

    leavers = [Leaver(), Leaver()]
    shard.partition.watchers.update(dict.fromkeys(leavers))
    shard.append("a")
    shard.sync()
    assert [leaver.seen for leaver in leavers] == [[1], [1]]


def test_every_write_marks_the_partition_dirty() -> None:
    shard = Shelf()
    shard.append("a")
    shard.append("b")
    assert shard.dirty == [shard.partition, shard.partition]


def test_what_was_taken_is_counted() -> None:
    shard = Shelf()
    shard.append("a", "b", "c")
    assert shard.partition.records_in == 3
    assert shard.partition.bytes_in == len(batch_of("a", "b", "c"))


# Reading


def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch() -> None:
    shard = Shelf()
    shard.append("a", "b", "c")
    shard.sync()
    assert [record.offset for record in shard.records(from_offset=2)] == [0, 1, 2]


def test_a_read_at_the_end_returns_nothing_yet() -> None:
    shard = Shelf()
    shard.append("a")
    shard.sync()
    assert shard.partition.read(1, bytes_max=1000) is None
    shard.append("uncommitted")
    assert shard.partition.read(1, bytes_max=1000) is None
    assert shard.partition.read(2, bytes_max=1000) is None


@pytest.mark.parametrize("offset", [-1, 0, 1, 5, 99])
def test_a_read_outside_the_log_is_out_of_range(offset: int) -> None:
    shard = Shelf()
    shard.append("a", "b")
    shard.append("c", "d")
    shard.sync()
    shard.partition.delete_before(2)
    with pytest.raises(OffsetOutOfRange, match="offsets 2 to 4 are"):
        shard.partition.read(offset, bytes_max=1000)


def test_the_first_batch_is_returned_however_large_it_is() -> None:
    shard = Shelf()
    shard.append("a" * 1000)
    shard.append("b")
    shard.sync()
    part = shard.partition.read(0, bytes_max=1)
    assert part is not None
    assert part.length == len(batch_of("a" * 1000))


def test_records_are_found_by_their_time_up_to_the_high_watermark() -> None:
    shard = Shelf()
    for timestamp_ms in (10, 30, 20):
        shard.append("a", timestamp_ms=timestamp_ms)
    shard.sync()
    shard.append("uncommitted", timestamp_ms=40)
    partition = shard.partition
    assert [getattr(partition.find_timestamp(at), "offset", None) for at in (5, 10, 11, 31)] == [
        0,
        0,
        1,
        None,
    ]


def test_the_newest_record_is_the_first_with_the_largest_time() -> None:
    shard = Shelf()
    for timestamp_ms in (10, 30, 20, 30):
        shard.append("a", timestamp_ms=timestamp_ms)
    shard.sync()
    newest = shard.partition.find_newest()
    assert newest is not None
    assert newest.offset == 1


def test_an_empty_partition_has_no_newest_record() -> None:
    assert Shelf().partition.find_newest() is None


# Forgetting


def test_records_before_an_offset_can_be_forgotten() -> None:
    shard = Shelf(SMALL)
    for value in "abcd":
        shard.append(value)
    shard.sync()
    assert shard.partition.delete_before(2) == 2
    assert shard.values() == ["c", "d"]
    assert shard.partition.delete_before(1) == 2, "the start never moves back"


def test_minus_one_forgets_everything_that_is_committed() -> None:
    shard = Shelf()
    shard.append("a")
    shard.sync()
    shard.append("uncommitted")
    assert shard.partition.delete_before(-1) == 1
    shard.sync()
    assert shard.values() == ["uncommitted"]


@pytest.mark.parametrize("offset", [-2, 2, 99])
def test_what_is_not_committed_cannot_be_forgotten(offset: int) -> None:
    shard = Shelf()
    shard.append("a")
    shard.sync()
    shard.append("uncommitted")
    with pytest.raises(OffsetOutOfRange):
        shard.partition.delete_before(offset)


def test_what_is_forgotten_stays_so_after_a_crash() -> None:
    shard = Shelf()
    for value in "abc":
        shard.append(value)
    shard.sync()
    shard.partition.delete_before(2)
    shard.crash()
    assert shard.values() == ["c"]
    assert shard.partition.start_offset == 2


def test_forgetting_on_a_full_disk_is_refused_with_the_reason() -> None:
    shard = Shelf()
    shard.append("a")
    shard.sync()
    shard.disk.fill_after(0)
    with pytest.raises(StorageFull):
        shard.partition.delete_before(1)
    assert shard.values() == ["a"]


# The end


def test_a_failed_sync_acknowledges_nobody_and_ends_writing_but_not_reading() -> None:
    shard = Shelf()
    shard.append("before")
    shard.sync()
    outcome = shard.ack(shard.append("doubtful").last_offset)
    shard.disk.fail_syncs(1)
    flush = shard.partition.flush()
    with pytest.raises(OSError, match="Input/output error") as failure:
        flush.run()
    shard.partition.fail(failure.value)
    assert isinstance(outcome[0], StorageFailed)
    assert not shard.partition.is_dirty
    with pytest.raises(StorageFailed, match=r"Restart the node"):
        shard.append("after")
    assert isinstance(shard.ack(1)[0], StorageFailed)
    assert shard.values() == ["before"]


def test_a_write_that_fails_is_refused_and_leaves_nothing_behind() -> None:
    shard = Shelf()
    shard.append("before")
    shard.disk.fill_after(10)
    with pytest.raises(StorageFull, match="disk of orders/0 is full"):
        shard.send(0)
    shard.disk.make_room()
    assert shard.send(0).base_offset == 1, "the producer's batch was not counted as written"
    shard.sync()
    assert shard.values() == ["before", "0"]


def test_a_deleted_partition_tells_everyone_who_waits_or_asks() -> None:
    shard = Shelf()
    shard.append("before")
    shard.sync()
    outcome = shard.ack(shard.append("waiting").last_offset)
    onlooker = Onlooker()
    shard.partition.watchers[onlooker] = None
    gone = UnknownTopic("orders")
    shard.partition.retire(gone)
    assert outcome == [gone]
    assert onlooker.seen == [1]
    for ask in (
        lambda: shard.append("after"),
        lambda: shard.partition.read(0, bytes_max=1000),
    ):
        with pytest.raises(UnknownTopic):
            ask()


def test_a_sync_that_was_on_its_way_does_not_wake_a_deleted_partition() -> None:
    shard = Shelf()
    outcome = shard.ack(shard.append("a").last_offset)
    flush = shard.partition.flush()
    shard.partition.retire(UnknownTopic("orders"))
    flush.run()
    shard.partition.flushed(flush)
    assert len(outcome) == 1


# Stopping and starting


def test_a_clean_stop_and_start_reads_no_files() -> None:
    shard = Shelf(SMALL)
    for value in "abcdef":
        shard.append(value)
    state = shard.stop()
    shard.disk.bytes_read.clear()
    shard.reopen(state)
    assert not shard.disk.bytes_read
    assert shard.partition.high_watermark == 6
    assert shard.append("g").base_offset == 6
    shard.sync()
    assert shard.values() == list("abcdefg")


@pytest.mark.parametrize("synced", range(4))
def test_a_crash_keeps_what_was_synced_and_nothing_else(synced: int) -> None:
    shard = Shelf(SMALL)
    for number, value in enumerate("abcd"):
        shard.append(value)
        if number + 1 == synced:
            shard.sync()
    shard.crash()
    assert shard.values() == list("abcd")[:synced]
    assert shard.partition.high_watermark == shard.partition.end_offset == synced


def test_a_partition_that_was_never_written_to_is_writable_after_a_clean_stop() -> None:
    shard = Shelf()
    state = shard.stop()
    shard.reopen(state)
    shard.append("first")
    shard.sync()
    assert shard.values() == ["first"]
    shard.crash()
    assert shard.values() == ["first"]
