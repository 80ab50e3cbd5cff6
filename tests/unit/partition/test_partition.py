"""Append, commit, read, forget, and the end of a partition."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from goqueue.model.errors import (
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
    UnknownTopic,
)
from goqueue.partition import Partition, PartitionSettings
from goqueue.storage.log import LogSettings
from tests.unit.partition.shelf import Shelf, batch_of

SMALL = PartitionSettings(log=LogSettings(segment_bytes=200))


@dataclass(eq=False)
class Onlooker:
    """Waits for records, and notes where the high watermark was each time it was told."""

    seen: list[int] = field(default_factory=list)

    def partition_advanced(self, partition: Partition) -> None:
        self.seen.append(partition.high_watermark)


# When records count as committed


def test_where_every_write_is_synced_records_are_committed_by_the_sync() -> None:
    shelf = Shelf(waits_for_sync=True)
    outcome = shelf.ack(shelf.append("a").last_offset)
    assert (outcome, shelf.partition.high_watermark, shelf.values()) == ([], 0, [])
    shelf.sync()
    assert (outcome, shelf.partition.high_watermark, shelf.values()) == ([None], 1, ["a"])


def test_elsewhere_records_are_committed_by_the_write() -> None:
    shelf = Shelf(waits_for_sync=False)
    outcome = shelf.ack(shelf.append("a").last_offset)
    assert (outcome, shelf.partition.high_watermark, shelf.values()) == ([None], 1, ["a"])
    assert shelf.partition.is_dirty
    shelf.sync()
    assert not shelf.partition.is_dirty


def test_a_sync_commits_what_was_written_before_it_began() -> None:
    shelf = Shelf()
    early = shelf.ack(shelf.append("early").last_offset)
    flush = shelf.partition.flush()
    late = shelf.ack(shelf.append("late").last_offset)
    flush.run()
    shelf.partition.flushed(flush)
    assert (early, late) == ([None], [])
    assert shelf.values() == ["early"]
    assert shelf.partition.is_dirty
    shelf.sync()
    assert late == [None]


def test_those_who_wait_are_told_in_the_order_of_their_writes() -> None:
    shelf = Shelf()
    told: list[str] = []
    for name in ("first", "second", "third"):
        appended = shelf.append(name)
        shelf.partition.when_committed(appended.last_offset, lambda _, name=name: told.append(name))
    shelf.sync()
    assert told == ["first", "second", "third"]


def test_who_asks_late_is_told_at_once() -> None:
    shelf = Shelf()
    appended = shelf.append("a")
    shelf.sync()
    assert shelf.ack(appended.last_offset) == [None]


def test_a_repetition_waits_for_the_sync_of_the_original() -> None:
    shelf = Shelf()
    shelf.send(0)
    outcome = shelf.ack(shelf.send(0).last_offset)
    assert outcome == []
    shelf.sync()
    assert outcome == [None]


def test_the_high_watermark_never_moves_back() -> None:
    shelf = Shelf()
    shelf.append("a")
    old = shelf.partition.flush()
    shelf.append("b")
    shelf.sync()
    old.run()
    shelf.partition.flushed(old)
    assert shelf.partition.high_watermark == 2


def test_onlookers_are_told_of_every_advance() -> None:
    shelf = Shelf()
    onlooker = Onlooker()
    shelf.partition.watchers[onlooker] = None
    shelf.append("a")
    assert onlooker.seen == []
    shelf.sync()
    shelf.append("b", "c")
    shelf.sync()
    assert onlooker.seen == [1, 3]


def test_an_onlooker_may_leave_while_it_is_told() -> None:
    shelf = Shelf()

    class Leaver(Onlooker):
        def partition_advanced(self, partition: Partition) -> None:
            super().partition_advanced(partition)
            del partition.watchers[self]

    leavers = [Leaver(), Leaver()]
    shelf.partition.watchers.update(dict.fromkeys(leavers))
    shelf.append("a")
    shelf.sync()
    assert [leaver.seen for leaver in leavers] == [[1], [1]]


def test_every_write_marks_the_partition_dirty() -> None:
    shelf = Shelf()
    shelf.append("a")
    shelf.append("b")
    assert shelf.dirty == [shelf.partition, shelf.partition]


def test_what_was_taken_is_counted() -> None:
    shelf = Shelf()
    shelf.append("a", "b", "c")
    assert shelf.partition.records_in == 3
    assert shelf.partition.bytes_in == len(batch_of("a", "b", "c"))


# Reading


def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch() -> None:
    shelf = Shelf()
    shelf.append("a", "b", "c")
    shelf.sync()
    assert [record.offset for record in shelf.records(from_offset=2)] == [0, 1, 2]


def test_a_read_at_the_end_returns_nothing_yet() -> None:
    shelf = Shelf()
    shelf.append("a")
    shelf.sync()
    assert shelf.partition.read(1, bytes_max=1000) is None
    shelf.append("uncommitted")
    assert shelf.partition.read(1, bytes_max=1000) is None
    assert shelf.partition.read(2, bytes_max=1000) is None


@pytest.mark.parametrize("offset", [-1, 0, 1, 5, 99])
def test_a_read_outside_the_log_is_out_of_range(offset: int) -> None:
    shelf = Shelf()
    shelf.append("a", "b")
    shelf.append("c", "d")
    shelf.sync()
    shelf.partition.delete_before(2)
    with pytest.raises(OffsetOutOfRange, match="offsets 2 to 4 are"):
        shelf.partition.read(offset, bytes_max=1000)


def test_the_first_batch_is_returned_however_large_it_is() -> None:
    shelf = Shelf()
    shelf.append("a" * 1000)
    shelf.append("b")
    shelf.sync()
    part = shelf.partition.read(0, bytes_max=1)
    assert part is not None
    assert part.length == len(batch_of("a" * 1000))


def test_records_are_found_by_their_time_up_to_the_high_watermark() -> None:
    shelf = Shelf()
    for timestamp_ms in (10, 30, 20):
        shelf.append("a", timestamp_ms=timestamp_ms)
    shelf.sync()
    shelf.append("uncommitted", timestamp_ms=40)
    partition = shelf.partition
    assert [getattr(partition.find_timestamp(at), "offset", None) for at in (5, 10, 11, 31)] == [
        0,
        0,
        1,
        None,
    ]


def test_the_newest_record_is_the_first_with_the_largest_time() -> None:
    shelf = Shelf()
    for timestamp_ms in (10, 30, 20, 30):
        shelf.append("a", timestamp_ms=timestamp_ms)
    shelf.sync()
    newest = shelf.partition.find_newest()
    assert newest is not None
    assert newest.offset == 1


def test_an_empty_partition_has_no_newest_record() -> None:
    assert Shelf().partition.find_newest() is None


# Forgetting


def test_records_before_an_offset_can_be_forgotten() -> None:
    shelf = Shelf(SMALL)
    for value in "abcd":
        shelf.append(value)
    shelf.sync()
    assert shelf.partition.delete_before(2) == 2
    assert shelf.values() == ["c", "d"]
    assert shelf.partition.delete_before(1) == 2, "the start never moves back"


def test_minus_one_forgets_everything_that_is_committed() -> None:
    shelf = Shelf()
    shelf.append("a")
    shelf.sync()
    shelf.append("uncommitted")
    assert shelf.partition.delete_before(-1) == 1
    shelf.sync()
    assert shelf.values() == ["uncommitted"]


@pytest.mark.parametrize("offset", [-2, 2, 99])
def test_what_is_not_committed_cannot_be_forgotten(offset: int) -> None:
    shelf = Shelf()
    shelf.append("a")
    shelf.sync()
    shelf.append("uncommitted")
    with pytest.raises(OffsetOutOfRange):
        shelf.partition.delete_before(offset)


def test_what_is_forgotten_stays_so_after_a_crash() -> None:
    shelf = Shelf()
    for value in "abc":
        shelf.append(value)
    shelf.sync()
    shelf.partition.delete_before(2)
    shelf.crash()
    assert shelf.values() == ["c"]
    assert shelf.partition.start_offset == 2


def test_forgetting_on_a_full_disk_is_refused_with_the_reason() -> None:
    shelf = Shelf()
    shelf.append("a")
    shelf.sync()
    shelf.disk.fill_after(0)
    with pytest.raises(StorageFull):
        shelf.partition.delete_before(1)
    assert shelf.values() == ["a"]


# The end


def test_a_failed_sync_acknowledges_nobody_and_ends_writing_but_not_reading() -> None:
    shelf = Shelf()
    shelf.append("before")
    shelf.sync()
    outcome = shelf.ack(shelf.append("doubtful").last_offset)
    shelf.disk.fail_syncs(1)
    flush = shelf.partition.flush()
    with pytest.raises(OSError, match="Input/output error") as failure:
        flush.run()
    shelf.partition.fail(failure.value)
    assert isinstance(outcome[0], StorageFailed)
    assert not shelf.partition.is_dirty
    with pytest.raises(StorageFailed, match=r"Restart the node"):
        shelf.append("after")
    assert isinstance(shelf.ack(1)[0], StorageFailed)
    assert shelf.values() == ["before"]


def test_a_write_that_fails_is_refused_and_leaves_nothing_behind() -> None:
    shelf = Shelf()
    shelf.append("before")
    shelf.disk.fill_after(10)
    with pytest.raises(StorageFull, match="No room on the disk for orders/0"):
        shelf.send(0)
    shelf.disk.make_room()
    assert shelf.send(0).base_offset == 1, "the producer's batch was not counted as written"
    shelf.sync()
    assert shelf.values() == ["before", "0"]


def test_a_deleted_partition_tells_everyone_who_waits_or_asks() -> None:
    shelf = Shelf()
    shelf.append("before")
    shelf.sync()
    outcome = shelf.ack(shelf.append("waiting").last_offset)
    onlooker = Onlooker()
    shelf.partition.watchers[onlooker] = None
    gone = UnknownTopic("orders")
    shelf.partition.retire(gone)
    assert outcome == [gone]
    assert onlooker.seen == [1]
    for ask in (
        lambda: shelf.append("after"),
        lambda: shelf.partition.read(0, bytes_max=1000),
    ):
        with pytest.raises(UnknownTopic):
            ask()


def test_a_sync_that_was_on_its_way_does_not_wake_a_deleted_partition() -> None:
    shelf = Shelf()
    outcome = shelf.ack(shelf.append("a").last_offset)
    flush = shelf.partition.flush()
    shelf.partition.retire(UnknownTopic("orders"))
    flush.run()
    shelf.partition.flushed(flush)
    assert len(outcome) == 1


# Stopping and starting


def test_a_clean_stop_and_start_reads_no_files() -> None:
    shelf = Shelf(SMALL)
    for value in "abcdef":
        shelf.append(value)
    state = shelf.stop()
    shelf.disk.bytes_read.clear()
    shelf.reopen(state)
    assert not shelf.disk.bytes_read
    assert shelf.partition.high_watermark == 6
    assert shelf.append("g").base_offset == 6
    shelf.sync()
    assert shelf.values() == list("abcdefg")


@pytest.mark.parametrize("synced", range(4))
def test_a_crash_keeps_what_was_synced_and_nothing_else(synced: int) -> None:
    shelf = Shelf(SMALL)
    for number, value in enumerate("abcd"):
        shelf.append(value)
        if number + 1 == synced:
            shelf.sync()
    shelf.crash()
    assert shelf.values() == list("abcd")[:synced]
    assert shelf.partition.high_watermark == shelf.partition.end_offset == synced


def test_a_partition_that_was_never_written_to_is_writable_after_a_clean_stop() -> None:
    shelf = Shelf()
    state = shelf.stop()
    shelf.reopen(state)
    shelf.append("first")
    shelf.sync()
    assert shelf.values() == ["first"]
    shelf.crash()
    assert shelf.values() == ["first"]
