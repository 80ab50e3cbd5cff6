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
from tests.unit.partition.simulated_partition import SimulatedPartition, batch_of

SMALL = PartitionSettings(log=LogSettings(segment_bytes=200))


@dataclass(eq=False)
class Onlooker:
    """Waits for records, and notes where the high watermark was each time it was told."""

    seen: list[int] = field(default_factory=list)

    def partition_advanced(self, partition: Partition) -> None:
        self.seen.append(partition.high_watermark)


# When records count as committed


def test_where_every_write_is_synced_records_are_committed_by_the_sync() -> None:
    simulated = SimulatedPartition(waits_for_sync=True)
    outcome = simulated.ack(simulated.append("a").last_offset)
    assert (outcome, simulated.partition.high_watermark, simulated.values()) == ([], 0, [])
    simulated.sync()
    assert (outcome, simulated.partition.high_watermark, simulated.values()) == ([None], 1, ["a"])


def test_elsewhere_records_are_committed_by_the_write() -> None:
    simulated = SimulatedPartition(waits_for_sync=False)
    outcome = simulated.ack(simulated.append("a").last_offset)
    assert (outcome, simulated.partition.high_watermark, simulated.values()) == ([None], 1, ["a"])
    assert simulated.partition.durability.is_dirty
    simulated.sync()
    assert not simulated.partition.durability.is_dirty


def test_a_sync_commits_what_was_written_before_it_began() -> None:
    simulated = SimulatedPartition()
    early = simulated.ack(simulated.append("early").last_offset)
    flush = simulated.partition.durability.flush()
    late = simulated.ack(simulated.append("late").last_offset)
    flush.run()
    simulated.partition.durability.flushed(flush)
    assert (early, late) == ([None], [])
    assert simulated.values() == ["early"]
    assert simulated.partition.durability.is_dirty
    simulated.sync()
    assert late == [None]


def test_those_who_wait_are_told_in_the_order_of_their_writes() -> None:
    simulated = SimulatedPartition()
    told: list[str] = []
    for name in ("first", "second", "third"):
        appended = simulated.append(name)
        simulated.partition.when_committed(
            appended.last_offset, lambda _, name=name: told.append(name)
        )
    simulated.sync()
    assert told == ["first", "second", "third"]


def test_who_asks_late_is_told_at_once() -> None:
    simulated = SimulatedPartition()
    appended = simulated.append("a")
    simulated.sync()
    assert simulated.ack(appended.last_offset) == [None]


def test_a_repetition_waits_for_the_sync_of_the_original() -> None:
    simulated = SimulatedPartition()
    simulated.send(0)
    outcome = simulated.ack(simulated.send(0).last_offset)
    assert outcome == []
    simulated.sync()
    assert outcome == [None]


def test_the_high_watermark_never_moves_back() -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    old = simulated.partition.durability.flush()
    simulated.append("b")
    simulated.sync()
    old.run()
    simulated.partition.durability.flushed(old)
    assert simulated.partition.high_watermark == 2


def test_onlookers_are_told_of_every_advance() -> None:
    simulated = SimulatedPartition()
    onlooker = Onlooker()
    simulated.partition.watchers[onlooker] = None
    simulated.append("a")
    assert onlooker.seen == []
    simulated.sync()
    simulated.append("b", "c")
    simulated.sync()
    assert onlooker.seen == [1, 3]


def test_an_onlooker_may_leave_while_it_is_told() -> None:
    simulated = SimulatedPartition()

    class Leaver(Onlooker):
        def partition_advanced(self, partition: Partition) -> None:
            super().partition_advanced(partition)
            del partition.watchers[self]

    leavers = [Leaver(), Leaver()]
    simulated.partition.watchers.update(dict.fromkeys(leavers))
    simulated.append("a")
    simulated.sync()
    assert [leaver.seen for leaver in leavers] == [[1], [1]]


def test_every_write_marks_the_partition_dirty() -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    simulated.append("b")
    assert simulated.dirty == [simulated.partition, simulated.partition]


def test_what_was_taken_is_counted() -> None:
    simulated = SimulatedPartition()
    simulated.append("a", "b", "c")
    assert simulated.partition.records_in == 3
    assert simulated.partition.bytes_in == len(batch_of("a", "b", "c"))


# Reading


def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch() -> None:
    simulated = SimulatedPartition()
    simulated.append("a", "b", "c")
    simulated.sync()
    assert [record.offset for record in simulated.records(from_offset=2)] == [0, 1, 2]


def test_a_read_at_the_end_returns_nothing_yet() -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    simulated.sync()
    assert simulated.partition.read(1, bytes_max=1000) is None
    simulated.append("uncommitted")
    assert simulated.partition.read(1, bytes_max=1000) is None
    assert simulated.partition.read(2, bytes_max=1000) is None


@pytest.mark.parametrize("offset", [-1, 0, 1, 5, 99])
def test_a_read_outside_the_log_is_out_of_range(offset: int) -> None:
    simulated = SimulatedPartition()
    simulated.append("a", "b")
    simulated.append("c", "d")
    simulated.sync()
    simulated.partition.retention.delete_before(2)
    with pytest.raises(OffsetOutOfRange, match="offsets 2 to 4 are"):
        simulated.partition.read(offset, bytes_max=1000)


def test_the_first_batch_is_returned_however_large_it_is() -> None:
    simulated = SimulatedPartition()
    simulated.append("a" * 1000)
    simulated.append("b")
    simulated.sync()
    part = simulated.partition.read(0, bytes_max=1)
    assert part is not None
    assert part.length == len(batch_of("a" * 1000))


def test_records_are_found_by_their_time_up_to_the_high_watermark() -> None:
    simulated = SimulatedPartition()
    for timestamp_ms in (10, 30, 20):
        simulated.append("a", timestamp_ms=timestamp_ms)
    simulated.sync()
    simulated.append("uncommitted", timestamp_ms=40)
    partition = simulated.partition
    assert [getattr(partition.find_timestamp(at), "offset", None) for at in (5, 10, 11, 31)] == [
        0,
        0,
        1,
        None,
    ]


def test_the_newest_record_is_the_first_with_the_largest_time() -> None:
    simulated = SimulatedPartition()
    for timestamp_ms in (10, 30, 20, 30):
        simulated.append("a", timestamp_ms=timestamp_ms)
    simulated.sync()
    newest = simulated.partition.find_newest()
    assert newest is not None
    assert newest.offset == 1


def test_an_empty_partition_has_no_newest_record() -> None:
    assert SimulatedPartition().partition.find_newest() is None


# Forgetting


def test_records_before_an_offset_can_be_forgotten() -> None:
    simulated = SimulatedPartition(SMALL)
    for value in "abcd":
        simulated.append(value)
    simulated.sync()
    assert simulated.partition.retention.delete_before(2) == 2
    assert simulated.values() == ["c", "d"]
    assert simulated.partition.retention.delete_before(1) == 2, "the start never moves back"


def test_minus_one_forgets_everything_that_is_committed() -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    simulated.sync()
    simulated.append("uncommitted")
    assert simulated.partition.retention.delete_before(-1) == 1
    simulated.sync()
    assert simulated.values() == ["uncommitted"]


@pytest.mark.parametrize("offset", [-2, 2, 99])
def test_what_is_not_committed_cannot_be_forgotten(offset: int) -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    simulated.sync()
    simulated.append("uncommitted")
    with pytest.raises(OffsetOutOfRange):
        simulated.partition.retention.delete_before(offset)


def test_what_is_forgotten_stays_so_after_a_crash() -> None:
    simulated = SimulatedPartition()
    for value in "abc":
        simulated.append(value)
    simulated.sync()
    simulated.partition.retention.delete_before(2)
    simulated.crash()
    assert simulated.values() == ["c"]
    assert simulated.partition.start_offset == 2


def test_forgetting_on_a_full_disk_is_refused_with_the_reason() -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    simulated.sync()
    simulated.disk.fill_after(0)
    with pytest.raises(StorageFull):
        simulated.partition.retention.delete_before(1)
    assert simulated.values() == ["a"]


# The end


def test_a_failed_sync_acknowledges_nobody_and_ends_writing_but_not_reading() -> None:
    simulated = SimulatedPartition()
    simulated.append("before")
    simulated.sync()
    outcome = simulated.ack(simulated.append("doubtful").last_offset)
    simulated.disk.fail_syncs(1)
    flush = simulated.partition.durability.flush()
    with pytest.raises(OSError, match="Input/output error") as failure:
        flush.run()
    simulated.partition.fail(failure.value)
    assert isinstance(outcome[0], StorageFailed)
    assert not simulated.partition.durability.is_dirty
    with pytest.raises(StorageFailed, match=r"Restart the node"):
        simulated.append("after")
    assert isinstance(simulated.ack(1)[0], StorageFailed)
    assert simulated.values() == ["before"]


def test_a_write_that_fails_is_refused_and_leaves_nothing_behind() -> None:
    simulated = SimulatedPartition()
    simulated.append("before")
    simulated.disk.fill_after(10)
    with pytest.raises(StorageFull, match="disk of orders/0 is full"):
        simulated.send(0)
    simulated.disk.make_room()
    assert simulated.send(0).base_offset == 1, "the producer's batch was not counted as written"
    simulated.sync()
    assert simulated.values() == ["before", "0"]


def test_a_deleted_partition_tells_everyone_who_waits_or_asks() -> None:
    simulated = SimulatedPartition()
    simulated.append("before")
    simulated.sync()
    outcome = simulated.ack(simulated.append("waiting").last_offset)
    onlooker = Onlooker()
    simulated.partition.watchers[onlooker] = None
    gone = UnknownTopic("orders")
    simulated.partition.retire(gone)
    assert outcome == [gone]
    assert onlooker.seen == [1]
    for ask in (
        lambda: simulated.append("after"),
        lambda: simulated.partition.read(0, bytes_max=1000),
    ):
        with pytest.raises(UnknownTopic):
            ask()


def test_a_sync_that_was_on_its_way_does_not_wake_a_deleted_partition() -> None:
    simulated = SimulatedPartition()
    outcome = simulated.ack(simulated.append("a").last_offset)
    flush = simulated.partition.durability.flush()
    simulated.partition.retire(UnknownTopic("orders"))
    flush.run()
    simulated.partition.durability.flushed(flush)
    assert len(outcome) == 1


# Stopping and starting


def test_a_clean_stop_and_start_reads_no_files() -> None:
    simulated = SimulatedPartition(SMALL)
    for value in "abcdef":
        simulated.append(value)
    state = simulated.stop()
    simulated.disk.bytes_read.clear()
    simulated.reopen(state)
    assert not simulated.disk.bytes_read
    assert simulated.partition.high_watermark == 6
    assert simulated.append("g").base_offset == 6
    simulated.sync()
    assert simulated.values() == list("abcdefg")


@pytest.mark.parametrize("synced", range(4))
def test_a_crash_keeps_what_was_synced_and_nothing_else(synced: int) -> None:
    simulated = SimulatedPartition(SMALL)
    for number, value in enumerate("abcd"):
        simulated.append(value)
        if number + 1 == synced:
            simulated.sync()
    simulated.crash()
    assert simulated.values() == list("abcd")[:synced]
    assert simulated.partition.high_watermark == simulated.partition.end_offset == synced


def test_a_partition_that_was_never_written_to_is_writable_after_a_clean_stop() -> None:
    simulated = SimulatedPartition()
    state = simulated.stop()
    simulated.reopen(state)
    simulated.append("first")
    simulated.sync()
    assert simulated.values() == ["first"]
    simulated.crash()
    assert simulated.values() == ["first"]
