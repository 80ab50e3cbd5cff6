"""A partition as one of several copies: what it takes, what it forgets, what survives a crash."""

from __future__ import annotations

import errno
import os

import pytest

from goqueue.model.errors import CorruptBatch, FencedLeaderEpoch, NotLeader, StorageFailed
from goqueue.partition import Partition, PartitionSettings, recover_partition
from goqueue.partition.epochs import LeaderEpochs
from goqueue.storage.log import LogSettings
from tests.unit.partition.simulated_partition import (
    FOLDER,
    NAME,
    NOW_MS,
    SimulatedPartition,
    batch_of,
)
from tests.unit.partition.till import SMALL, Till, known, truth

ERROR = StorageFailed("gone")


class Copy(SimulatedPartition):
    """A follower of node 1 in epoch 3."""

    is_sole = False

    def __init__(self, settings: PartitionSettings | None = None) -> None:
        self.cuts: list[int] = []  # how much there was before something was cut off
        super().__init__(settings)

    def _recover(self) -> Partition:
        partition, self.reports = recover_partition(
            NAME,
            self.disk,
            FOLDER,
            self.settings,
            key=bytes(20),
            leader_epoch=0,
            waits_for_sync=True,
            mark_dirty=self.dirty.append,
            now_ms=NOW_MS,
            is_replica=True,
            is_sole=self.is_sole,
            before_cut=lambda: self.cuts.append(self.size),
        )
        self.was_doubted = partition.replica.is_suspect
        partition.replica.become_follower(3, leader=1)
        return partition

    @property
    def size(self) -> int:
        """Of the first segment, as it is on disk."""
        return len(self.disk.read_whole(f"{FOLDER}/{0:020d}.log"))

    def take(self, *batches: bytearray) -> None:
        self.partition.replica.append(memoryview(b"".join(batches)), now_ms=NOW_MS)


def stamped(*values: str, offset: int, epoch: int) -> bytearray:
    return batch_of(*values, base_offset=offset, leader_epoch=epoch)


def test_batches_keep_their_offsets_and_epochs() -> None:
    copy = Copy()
    copy.take(stamped("a", "b", offset=0, epoch=1), stamped("c", offset=2, epoch=3))
    assert copy.partition.end_offset == 3
    assert copy.partition.epochs.entries == [(1, 0), (3, 2)]
    assert copy.partition.high_watermark == 0


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (1, 2), (3, 2), (2, 1), (2, 4)], ids=str)
def test_what_does_not_fit_the_end_is_refused(offset: int, epoch: int) -> None:
    copy = Copy()
    copy.take(stamped("a", "b", offset=0, epoch=2))
    with pytest.raises(CorruptBatch):
        copy.take(stamped("c", offset=offset, epoch=epoch))
    assert copy.partition.end_offset == 2


def test_what_comes_before_a_damaged_batch_is_kept() -> None:
    copy = Copy()
    bad = stamped("b", offset=1, epoch=1)
    bad[-1] ^= 1
    with pytest.raises(CorruptBatch):
        copy.take(stamped("a", offset=0, epoch=1), bad)
    assert copy.partition.end_offset == 1


@pytest.mark.parametrize("length", [1, 60, 70])
def test_half_a_batch_is_refused(length: int) -> None:
    copy = Copy()
    with pytest.raises(CorruptBatch):
        copy.take(stamped("a", offset=0, epoch=1)[:length])


def test_a_replica_takes_no_writes_before_it_leads() -> None:
    copy = Copy()
    with pytest.raises(NotLeader):
        copy.append("a")
    with pytest.raises(NotLeader):
        copy.partition.write(memoryview(batch_of("a")), now_ms=NOW_MS)
    copy.partition.replica.become_leader(4)
    assert copy.append("a").base_offset == 0


def test_nobody_leads_in_an_epoch_that_has_records_already() -> None:
    copy = Copy()
    copy.take(stamped("a", offset=0, epoch=3))
    with pytest.raises(FencedLeaderEpoch):
        copy.partition.replica.become_leader(3)
    with pytest.raises(FencedLeaderEpoch):
        copy.partition.replica.become_follower(2, leader=2)


def test_a_followers_high_watermark_is_the_leaders_as_far_as_it_has_come() -> None:
    copy = Copy()
    copy.take(stamped("a", "b", offset=0, epoch=1))
    copy.partition.replica.follow(high_watermark=1, start_offset=0)
    assert copy.partition.high_watermark == 1
    copy.partition.replica.follow(high_watermark=9, start_offset=0)
    assert copy.partition.high_watermark == 2
    copy.partition.replica.follow(high_watermark=0, start_offset=0)
    assert copy.partition.high_watermark == 2, "a new leader may not know yet"


def test_a_restarted_replica_counts_as_committed_only_what_it_knows_to_be() -> None:
    copy = Copy()
    copy.take(stamped("a", "b", offset=0, epoch=1))
    copy.partition.replica.follow(high_watermark=1, start_offset=0)
    copy.sync()
    copy.crash()
    assert (copy.partition.end_offset, copy.partition.high_watermark) == (2, 0)
    copy.partition.replica.follow(high_watermark=1, start_offset=0)
    copy.partition.durability._snapshot_at = 0
    copy.take(stamped("c", offset=2, epoch=1))
    copy.sync()
    copy.keep_snapshot()
    copy.crash()
    assert (copy.partition.end_offset, copy.partition.high_watermark) == (3, 1)


def test_a_lone_copy_is_opened_as_before() -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    simulated.sync()
    simulated.crash()
    assert simulated.partition.high_watermark == 1
    simulated.append("b")
    simulated.sync()
    assert simulated.partition.high_watermark == 2


def test_a_replica_cuts_off_a_torn_batch_with_whatever_follows() -> None:
    copy = Copy()
    copy.take(stamped("a", offset=0, epoch=1))
    copy.sync()
    size = copy.partition.log.active.size
    copy.take(stamped("b", offset=1, epoch=1), stamped("c", offset=2, epoch=1))
    path = copy.partition.log.active.file.path
    copy.partition.log.active.file.sync()  # All of it reached the disk, but for one bit.
    copy.disk.flip_bit(path, 8 * (size + 70))
    copy.crash()
    assert copy.partition.end_offset == 1
    assert copy.partition.replica.damaged_from is None
    assert any("truncated offsets 1 to 3" in report for report in copy.reports)


def test_a_replica_cuts_there_also_if_its_last_batch_is_torn_as_well() -> None:
    copy = Copy()
    for number in range(4):
        copy.take(stamped("a", offset=number, epoch=1))
    active = copy.partition.log.active
    active.file.sync()
    size = active.size // 4
    copy.disk.flip_bit(active.file.path, 8 * (size + 70))
    copy.disk.flip_bit(active.file.path, 8 * (3 * size + 70))
    copy.crash()
    assert copy.partition.end_offset == 1


def test_a_lone_copy_keeps_what_follows_a_torn_batch() -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    size = simulated.partition.log.active.size
    simulated.append("b")
    simulated.append("c")
    simulated.sync()
    simulated.disk.flip_bit(simulated.partition.log.active.file.path, 8 * (size + 70))
    simulated.crash()
    assert simulated.partition.end_offset == 3
    assert simulated.partition.replica.damaged_from == 1


def test_index_entries_of_what_was_cut_off_do_not_come_back() -> None:
    """They would let recovery trust bytes that were never synced."""
    copy = Copy(PartitionSettings(log=LogSettings(index_interval_bytes=100)))
    for number in range(100):
        copy.take(stamped(f"{number:03}", offset=number, epoch=1))
        copy.sync()
    index = copy.partition.log.active.indexes.offsets
    assert index.file is not None
    index.file.sync()
    written = len(index) - index.pending
    assert written > 10
    copy.partition.replica.begin_truncation()
    copy.partition.replica.truncate(5, ERROR, now_ms=NOW_MS)
    copy.crash()
    assert len(copy.partition.log.active.indexes.offsets) <= 5


def test_epochs_that_were_cut_off_do_not_come_back() -> None:
    copy = Copy()
    copy.take(stamped("a", offset=0, epoch=1), stamped("b", offset=1, epoch=3))
    copy.sync()
    copy.partition.replica.truncate(1, ERROR, now_ms=NOW_MS)
    copy.take(stamped("c", offset=1, epoch=2))
    copy.partition.log.active.file.sync()
    copy.crash()
    assert copy.partition.epochs.entries == [(1, 0), (2, 1)]


def test_an_epoch_takes_the_place_of_later_ones_that_claim_its_offsets() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (3, 20)])
    assert epochs.note(5, 15)
    assert epochs.entries == [(1, 0), (2, 10), (5, 15)]
    assert not LeaderEpochs().note(-1, 0)


def test_a_copy_that_begins_anew_forgets_its_producers_and_epochs() -> None:
    copy = Copy()
    copy.partition.replica.become_leader(4)
    copy.send(0)
    copy.partition.durability._snapshot_at = 0
    copy.sync()
    copy.keep_snapshot()
    copy.partition.replica.become_follower(5, leader=1)
    copy.partition.replica.restart(50, now_ms=NOW_MS)
    for _ in range(2):
        partition = copy.partition
        assert (partition.start_offset, partition.end_offset) == (50, 50)
        assert (partition.epochs.entries, len(partition.producers)) == ([], 0)
        copy.crash()


def test_whoever_waits_for_a_record_that_is_cut_off_is_told_in_whatever_order_they_came() -> None:
    simulated = SimulatedPartition()
    for value in "abc":
        simulated.append(value)
    last, first, middle = simulated.ack(2), simulated.ack(0), simulated.ack(1)
    simulated.partition.replica.truncate(1, ERROR, now_ms=NOW_MS)
    assert (last, middle, first) == ([ERROR], [ERROR], [])


def test_a_followers_old_segments_go_when_the_leaders_log_begins_later() -> None:
    copy = Copy(SMALL)
    for number in range(30):
        copy.take(stamped(f"{number}" * 20, offset=number, epoch=1))
    copy.sync()
    assert copy.partition.retention.take_expired(now_ms=NOW_MS + 10**12) == [], (
        "time is the leader's"
    )
    copy.partition.replica.follow(high_watermark=30, start_offset=20)
    for segment in copy.partition.retention.take_expired(now_ms=NOW_MS):
        segment.remove()
    assert copy.partition.log.segments[0].base_offset > 10
    copy.crash()
    assert copy.partition.start_offset == 20


def test_a_crash_amid_the_removal_of_old_segments_does_not_bring_them_back() -> None:
    simulated = SimulatedPartition(
        PartitionSettings(log=LogSettings(segment_bytes=300, retention_bytes=600)), survival=0.5
    )
    for number in range(40):
        simulated.append(f"{number}" * 20)
    simulated.sync()
    for segment in simulated.partition.retention.take_expired(now_ms=NOW_MS):
        segment.remove()
    start = simulated.partition.start_offset
    assert start > 20
    simulated.crash()
    assert simulated.partition.start_offset == start
    assert simulated.records()[0].offset == start


def test_the_rest_of_a_half_deleted_batch_still_belongs_to_its_transaction() -> None:
    till = Till()
    till.write(1, "a", "b", "c")
    till.sync()
    till.partition.retention.delete_before(2)
    till.crash()
    assert till.partition.last_stable_offset == 2
    till.abort(1)
    till.sync()
    till.crash()
    assert till.committed() == []
    assert known(till.partition).aborted == truth(till.partition).aborted


def test_a_producer_of_which_only_a_marker_is_left_goes_on_with_its_sequence() -> None:
    till = Till()
    till.write(1, "a", "b")
    till.abort(1)
    till.sync()
    till.partition.retention.delete_before(2)
    till.crash()
    state = till.partition.producers.get(1)
    assert state is not None
    assert state.batches == []
    appended = till.append(
        "c", producer_id=1, producer_epoch=0, base_sequence=2, is_transactional=True
    )
    assert appended.base_offset == 3


def test_a_log_cut_between_two_segments_keeps_what_is_written_there_afterwards() -> None:
    """The seal of the segment that becomes the last again would hide it after a crash."""
    copy = Copy(PartitionSettings(log=LogSettings(segment_bytes=150, index_interval_bytes=10_000)))
    copy.take(stamped("a", offset=0, epoch=1), stamped("b", offset=1, epoch=1))
    copy.take(stamped("c", offset=2, epoch=1))
    copy.sync()
    boundary = copy.partition.log.segments[-1].base_offset
    assert copy.partition.log.segments[-2].is_sealed
    copy.partition.replica.truncate(boundary, ERROR, now_ms=NOW_MS)
    copy.partition.log.settings.segment_bytes = 10_000
    copy.take(stamped("d", offset=boundary, epoch=2))
    copy.sync()
    copy.partition.log.roll(now_ms=NOW_MS)
    copy.partition.log.active.file.sync()
    copy.disk.survival = 1.0
    copy.crash()
    assert copy.partition.end_offset == boundary + 1
    assert copy.partition.replica.damaged_from is None


def test_a_crash_amid_such_a_cut_hides_nothing_either() -> None:
    copy = Copy(PartitionSettings(log=LogSettings(segment_bytes=150, index_interval_bytes=10_000)))
    for number in range(3):
        copy.take(stamped("a", offset=number, epoch=1))
    copy.sync()
    for segment in copy.partition.log.segments[:-1]:
        for index in (segment.indexes.offsets, segment.indexes.times):
            assert index.file is not None
            index.file.sync()
    boundary = copy.partition.log.segments[-1].base_offset
    copy.partition.log._drop(copy.partition.log.segments[-1:])
    copy.crash()
    assert copy.partition.end_offset == boundary
    copy.partition.log.settings.segment_bytes = 10_000
    copy.take(stamped("d", offset=boundary, epoch=2))
    copy.sync()
    copy.partition.log.roll(now_ms=NOW_MS)
    copy.partition.log.active.file.sync()
    copy.crash()
    assert copy.partition.end_offset == boundary + 1
    assert copy.partition.replica.damaged_from is None


def test_a_cut_that_is_given_up_leaves_nothing_unsynced() -> None:
    copy = Copy()
    copy.take(stamped("a", offset=0, epoch=1))
    copy.partition.replica.begin_truncation()
    assert not copy.partition.durability.is_dirty, "rounds pass it over from now on"
    copy.dirty.clear()
    copy.partition.replica.become_leader(4)
    assert copy.partition.durability.is_dirty
    assert copy.dirty == [copy.partition], "and nobody else would ask for another one"


# Doubts


def test_a_replica_is_in_doubt_once_something_is_cut_off_which_is_said_before() -> None:
    copy = Copy()
    copy.take(stamped("a", offset=0, epoch=1), stamped("b", offset=1, epoch=1))
    copy.sync()
    assert not copy.was_doubted
    size = copy.size
    copy.disk.flip_bit(f"{FOLDER}/{0:020d}.log", 8 * size - 1)
    copy.crash()
    assert copy.was_doubted
    assert copy.cuts == [size]
    assert copy.partition.replica.whole_until == (1, 1)
    copy.crash()
    assert not copy.was_doubted  # The log does not show any more that it was cut.


def test_a_replica_is_in_doubt_until_there_is_a_leader() -> None:
    copy = Copy()
    partition = copy.partition
    partition.replica.is_suspect = True
    partition.replica.become_follower(4, leader=-1)
    assert partition.replica.is_suspect
    partition.replica.become_follower(5, leader=2)
    assert not partition.replica.is_suspect
    partition.replica.is_suspect = True
    partition.replica.become_leader(6)
    assert not partition.replica.is_suspect


def test_a_replica_that_nobody_else_has_keeps_what_follows_damage() -> None:
    copy = Copy()
    copy.take(*(stamped("a", offset=number, epoch=1) for number in range(3)))
    copy.sync()
    copy.disk.flip_bit(f"{FOLDER}/{0:020d}.log", 8 * (copy.size // 3 + 70))
    copy.is_sole = True
    copy.crash()
    assert copy.partition.end_offset == 3
    assert copy.partition.replica.whole_until == (1, 1)
    assert not copy.was_doubted


def test_epochs_that_have_rotted_are_learnt_from_the_log() -> None:
    copy = Copy()
    copy.take(stamped("a", offset=0, epoch=1), stamped("b", offset=1, epoch=3))
    copy.partition.durability._snapshot_at = 0
    copy.sync()
    copy.keep_snapshot()
    copy.disk.flip_bit(f"{FOLDER}/leader-epochs", 100)
    copy.crash()
    assert copy.partition.epochs.entries == [(1, 0), (3, 1)]


def test_a_copy_knows_of_damage_that_is_found_while_it_leads() -> None:
    copy = Copy()
    copy.take(*(stamped("a", offset=number, epoch=number + 1) for number in range(3)))
    copy.sync()
    partition = copy.partition
    partition.replica.become_leader(9)
    partition.log.active.trusted_from = partition.log.active.size
    copy.disk.flip_bit(f"{FOLDER}/{0:020d}.log", 8 * (copy.size // 3 + 70))
    assert partition.replica.first_damage is None
    found = partition.replica.read(1, bytes_max=1)
    assert found is not None
    with pytest.raises(CorruptBatch):
        found.read()
    assert partition.replica.first_damage == 1
    assert partition.replica.whole_until == (1, 1)
    partition.replica.note_damage(0)
    assert partition.replica.whole_until == (-1, 0)
    partition.replica.become_follower(10, leader=1)
    assert partition.replica.damaged_from == 0


def test_what_the_disk_cannot_read_is_damage_and_other_errors_may_pass() -> None:
    copy = Copy()
    copy.take(*(stamped("a", offset=number, epoch=1) for number in range(3)))
    copy.sync()
    partition = copy.partition
    busy, broken = (OSError(code, os.strerror(code)) for code in (errno.EMFILE, errno.EIO))
    assert isinstance(partition.unreadable(busy, 1), StorageFailed)
    assert partition.replica.first_damage is None
    assert isinstance(partition.unreadable(broken, 1), StorageFailed)
    # All of it is on one page, which is what a bad sector takes.
    assert partition.replica.first_damage == 0
