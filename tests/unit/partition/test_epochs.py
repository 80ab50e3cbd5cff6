"""Leader epochs: which leader wrote which part of the log, for clients that lost theirs."""

from __future__ import annotations

import pytest

from goqueue.model.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from goqueue.partition import PartitionSettings
from goqueue.partition import durability as durability_module
from goqueue.partition.epochs import LeaderEpochs
from goqueue.storage.log import LogSettings
from tests.unit.partition.simulated_partition import SimulatedPartition

ENTRIES = [(0, 0), (2, 10), (5, 30)]


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (0, 10)),
        (2, (2, 30)),
        (4, (2, 30)),
        (5, (5, 50)),
        (9, (5, 50)),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(epoch: int, end: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).end_offset(epoch, log_end=50) == end


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (29, 2), (30, 5), (99, 5)])
def test_every_offset_was_written_in_one_epoch(offset: int, epoch: int) -> None:
    assert LeaderEpochs(ENTRIES).epoch_of(offset) == epoch


def test_nothing_is_known_of_an_empty_log() -> None:
    epochs = LeaderEpochs()
    assert (epochs.latest, epochs.epoch_of(0)) == (-1, -1)
    assert epochs.end_offset(0, log_end=0) == (-1, -1)


def test_an_epoch_begins_once_and_never_goes_back() -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert not epochs.note(5, 40)
    assert not epochs.note(3, 40)
    assert epochs.note(6, 40)
    assert epochs.entries == [*ENTRIES, (6, 40)]


def test_epochs_are_saved_again_only_when_they_have_changed() -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert epochs.unsaved is None
    epochs.note(6, 40)
    unsaved = epochs.unsaved
    assert unsaved == [*ENTRIES, (6, 40)]
    epochs.note(7, 50)
    assert unsaved == [*ENTRIES, (6, 40)], "a thread may be writing it"
    epochs.set_saved(unsaved)
    assert epochs.unsaved == epochs.entries
    epochs.set_saved(epochs.entries)
    assert epochs.unsaved is None


def test_the_first_epoch_alone_needs_no_file_unless_there_is_one() -> None:
    epochs = LeaderEpochs()
    epochs.note(0, 0)
    assert epochs.unsaved is None
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate(1)
    assert not epochs.is_saved


@pytest.mark.parametrize(("offset", "left"), [(31, 3), (30, 2), (11, 2), (10, 1), (1, 1), (0, 0)])
def test_a_truncation_forgets_the_epochs_that_begin_there(offset: int, left: int) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate(offset)
    assert epochs.entries == ENTRIES[:left]


@pytest.mark.parametrize(("start", "left"), [(0, 3), (9, 3), (10, 2), (29, 2), (30, 1), (99, 1)])
def test_a_new_start_forgets_the_epochs_that_ended_before_it(start: int, left: int) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.advance_start(start)
    assert epochs.entries == ENTRIES[-left:]


# Of a partition


def test_every_batch_bears_the_epoch_of_its_leader() -> None:
    simulated = SimulatedPartition(leader_epoch=4)
    simulated.append("a", "b")
    simulated.sync()
    assert [one.leader_epoch for one in simulated.partition.log.headers(0)] == [4]
    assert simulated.partition.epochs.entries == [(4, 0)]


def test_epochs_are_known_again_after_a_crash() -> None:
    simulated = SimulatedPartition()
    for epoch in (0, 1, 3):
        simulated.leader_epoch = epoch
        simulated.crash()
        simulated.append("a", "b")
        simulated.sync()
    simulated.crash()
    assert simulated.partition.epochs.entries == [(0, 0), (1, 2), (3, 4)]
    assert simulated.partition.replica.epoch_end(1) == (1, 4)
    assert simulated.partition.replica.epoch_end(3) == (3, 6)


def test_epochs_are_known_again_though_a_snapshot_spares_reading_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 1)
    simulated = SimulatedPartition()
    for epoch in (0, 1, 3):
        simulated.leader_epoch = epoch
        simulated.crash()
        simulated.append("a", "b")
        simulated.sync()
        simulated.append("c")
        simulated.sync()
        simulated.keep_snapshot()
    simulated.crash()
    assert simulated.partition.epochs.entries == [(0, 0), (1, 3), (3, 6)]


def test_the_first_epoch_begins_at_the_first_offset_though_a_snapshot_hides_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 1)
    simulated = SimulatedPartition(PartitionSettings(log=LogSettings(index_interval_bytes=1)))
    for value in "abcd":
        simulated.append(value)
        simulated.sync()
    simulated.keep_snapshot()
    simulated.crash()
    assert simulated.partition.end_offset == 4
    assert simulated.partition.epochs.entries == [(0, 0)]


def test_an_epoch_whose_records_were_lost_is_lost_with_them() -> None:
    simulated = SimulatedPartition()
    simulated.append("a")
    simulated.sync()
    simulated.leader_epoch = 1
    simulated.crash()
    simulated.append("never synced")
    simulated.crash()
    assert simulated.partition.epochs.entries == [(0, 0)]


def test_epochs_survive_a_clean_stop() -> None:
    simulated = SimulatedPartition(leader_epoch=2)
    simulated.append("a")
    state = simulated.stop()
    simulated.leader_epoch = 3
    simulated.reopen(state)
    simulated.append("b")
    assert simulated.partition.epochs.entries == [(2, 0), (3, 1)]


def test_a_saved_epoch_that_replaced_another_is_saved_too() -> None:
    simulated = SimulatedPartition(leader_epoch=1)
    simulated.append("a")
    simulated.partition.leader_epoch = 2
    simulated.append("b")
    simulated.sync()
    simulated.partition.retention.delete_before(1)
    assert simulated.partition.epochs.entries == [(2, 1)]
    simulated.partition.leader_epoch = 3
    simulated.append("c")
    simulated.sync()
    saved = simulated.disk.read_whole("logs/orders/0/leader-epochs")
    assert saved.endswith(b"\x92\x92\x02\x01\x92\x03\x02"), "[[2, 1], [3, 2]]"


def test_a_client_of_an_older_leader_is_fenced_and_one_of_a_newer_asked_to_wait() -> None:
    partition = SimulatedPartition(leader_epoch=3).partition
    partition.check_epoch(-1)
    partition.check_epoch(3)
    with pytest.raises(FencedLeaderEpoch, match="Epoch 2 of orders/0 is over; 3 is current"):
        partition.check_epoch(2)
    with pytest.raises(UnknownLeaderEpoch, match="Epoch 4"):
        partition.check_epoch(4)


def test_an_epoch_that_was_found_in_the_log_is_saved_before_a_snapshot_hides_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 1)
    settings = PartitionSettings(log=LogSettings(index_interval_bytes=1))
    simulated = SimulatedPartition(settings, leader_epoch=1)
    simulated.append("a")
    simulated.partition.log.active.file.sync()
    simulated.crash()  # in the middle of a flush: the records are safe, the epochs are not saved
    assert simulated.partition.epochs.entries == [(1, 0)]
    for value in "bcd":
        simulated.append(value)
        simulated.sync()
    simulated.keep_snapshot()
    simulated.crash()
    assert simulated.partition.epochs.entries == [(1, 0)]
