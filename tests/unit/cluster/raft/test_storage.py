"""The quorum's files: what was saved is found again, and what is damaged is never used."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from goqueue.cluster.raft import (
    DamagedQuorumFile,
    Entry,
    EntryKind,
    HardState,
    Members,
    Position,
    RaftState,
    RaftStorage,
    Ready,
    Snapshot,
)
from goqueue.cluster.raft.frames import unmarked
from goqueue.model.errors import StorageFailed, StorageFull
from goqueue.runtime.disk import LocalDisk
from goqueue.storage.disk import Disk
from tests.simulation.disk import PowerLost, SimulatedDisk

MEMBERS = Members((0, 1, 2))
LOG = "quorum/log-00000001"
OPERATIONS_MAX = 200  # of the disk in such a life
MARK_BYTES = 25  # the empty frame after each save


def _entry(index: int, term: int = 1, payload: bytes = b"payload") -> Entry:
    return Entry(index, term, EntryKind.PAYLOAD, payload)


def _opened(disk: Disk) -> RaftStorage:
    storage = RaftStorage(disk, "quorum")
    storage.load()
    return storage


def _loaded(disk: Disk) -> RaftState:
    state = RaftStorage(disk, "quorum").load()
    assert state is not None
    return state


def _begun(disk: Disk) -> RaftStorage:
    storage = RaftStorage(disk, "quorum")
    assert storage.load() is None
    storage.begin(MEMBERS)
    return storage


@pytest.fixture(params=["simulated", "real"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return SimulatedDisk() if request.param == "simulated" else LocalDisk(str(tmp_path))


def test_what_was_saved_is_found_again(disk: Disk) -> None:
    storage = _begun(disk)
    assert _loaded(disk) == RaftState.new(MEMBERS)
    storage.save([Ready(hard_state=HardState(1, 2))])
    storage.save([Ready(entries=[_entry(1), _entry(2)]), Ready(entries=[_entry(3)])])
    storage = _opened(disk)
    storage.save([Ready(hard_state=HardState(2, None), truncate_from=3, entries=[_entry(3, 2)])])
    state = _loaded(disk)
    assert state.hard == HardState(2, None)
    assert state.entries == [_entry(1), _entry(2), _entry(3, 2)]
    assert state.snapshot == Snapshot(Position(0, 0), MEMBERS, b"")


def test_a_snapshot_takes_the_place_of_the_log(disk: Disk) -> None:
    storage = _begun(disk)
    storage.save([Ready(hard_state=HardState(1, 0), entries=[_entry(1), _entry(2), _entry(3)])])
    snapshot = Snapshot(Position(2, 1), MEMBERS, b"state")
    storage.save(
        [
            Ready(
                hard_state=HardState(1, 0),
                snapshot=snapshot,
                base=Position(1, 1),
                entries=[_entry(2), _entry(3)],
            ),
            Ready(entries=[_entry(4)]),
        ]
    )
    state = _loaded(disk)
    assert state == RaftState(
        HardState(1, 0), snapshot, Position(1, 1), [_entry(2), _entry(3), _entry(4)]
    )
    assert disk.list("quorum") == ["log-00000002", "snapshot"]
    _opened(disk).save([Ready(entries=[_entry(5)])])
    assert [entry.index for entry in _loaded(disk).entries] == [2, 3, 4, 5]


def test_nothing_to_save_writes_nothing() -> None:
    disk = SimulatedDisk()
    storage = _begun(disk)
    before = disk.operations
    storage.save([Ready()])
    assert disk.operations == before


# Power


def test_a_crash_at_any_operation_leaves_all_that_was_saved_and_nothing_half() -> None:
    """Of a life with votes, appends, a conflict and both kinds of snapshots."""
    leader_snapshot = Snapshot(Position(20, 3), MEMBERS, b"from the leader" * 100)
    saves = [
        Ready(hard_state=HardState(1, 2)),
        Ready(entries=[_entry(index, payload=bytes(900)) for index in range(1, 10)]),
        Ready(hard_state=HardState(2, 0), truncate_from=8, entries=[_entry(8, 2), _entry(9, 2)]),
        Ready(
            hard_state=HardState(2, 0),
            snapshot=Snapshot(Position(8, 2), MEMBERS, b"own"),
            base=Position(7, 1),
            entries=[_entry(8, 2), _entry(9, 2)],
        ),
        Ready(hard_state=HardState(3, None), snapshot=leader_snapshot, base=Position(20, 3)),
        Ready(entries=[_entry(21, 3)]),
    ]
    states = []
    whole = SimulatedDisk()
    storage = _begun(whole)
    states.append(_loaded(whole))
    for ready in saves:
        storage.save([ready])
        states.append(_loaded(whole))
    # A crash between a snapshot and its log leaves the new snapshot; with a leader's, the log is
    # begun anew at the next start, as it was meant to be.
    own_joined = replace(states[3], snapshot=states[4].snapshot)
    for life in range(4 * OPERATIONS_MAX):
        disk = SimulatedDisk(life % 4)
        done = _live_until(disk, life // 4, saves)
        disk.crash()
        found = RaftStorage(disk, "quorum").load()
        if done < 0:
            assert found in (None, states[0])
            continue
        joined = [own_joined] if done == 3 else []
        assert found in states[done : done + 2] + joined
        assert found is not None
        last = found.base.index + len(found.entries)
        _opened(disk).save([Ready(entries=[_entry(last + 1, 9)])])
        assert _loaded(disk).entries[-1] == _entry(last + 1, 9), "it cannot be lived on with"
        if done == len(saves):
            return
    raise AssertionError("the life never came to its end")


def _live_until(disk: SimulatedDisk, operation: int, saves: list[Ready]) -> int:
    """How many saves were over when the power failed; -1 when not even the beginning was."""
    disk.crash_at(operation)
    done = -1
    try:
        storage = _begun(disk)
        done = 0
        for ready in saves:
            storage.save([ready])
            done += 1
    except PowerLost:
        pass
    return done


def test_a_torn_last_frame_is_cut_off_wherever_it_was_torn() -> None:
    def prepared() -> tuple[SimulatedDisk, int, int]:
        disk = SimulatedDisk()
        storage = _begun(disk)
        storage.save([Ready(hard_state=HardState(1, 1), entries=[_entry(1)])])
        start = len(disk.read_whole(LOG))
        storage.save([Ready(entries=[_entry(2, payload=b"z" * 1_500)])])
        return disk, start, len(disk.read_whole(LOG))

    disk, start, end = prepared()
    data = disk.read_whole(LOG)
    for cut in range(start, end - MARK_BYTES):
        short, zeroed = data[:cut], data[:cut] + bytes(end - MARK_BYTES - cut)
        for torn in (short, zeroed):
            disk.replace_whole(LOG, torn)
            assert _loaded(disk).entries == [_entry(1)], cut
    assert disk.read_whole(LOG) == data[:start]


# Rot


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_flipped_bit_anywhere_in_the_log_is_noticed(is_marked: bool) -> None:
    disk = SimulatedDisk()
    storage = _begun(disk)
    storage.save([Ready(hard_state=HardState(3, 1), entries=[_entry(1)])])
    storage.save([Ready(hard_state=HardState(4, 2), entries=[_entry(2)])])
    good = _loaded(disk)
    data = disk.read_whole(LOG)
    mark_start = len(data) - MARK_BYTES
    if not is_marked:
        data = data[:mark_start]
    for bit in range(8 * len(data)):
        disk.replace_whole(LOG, data)
        disk.flip_bit(LOG, bit)
        try:
            found = _loaded(disk)
        except DamagedQuorumFile:
            continue
        # Only the mark at the end holds nothing.
        assert (found, bit // 8 >= mark_start) == (good, True)


def test_a_flipped_bit_in_a_large_last_frame_is_not_taken_for_a_torn_write() -> None:
    """Whatever it holds: zeros as well, which is what a sector reads as that was never written."""
    disk = SimulatedDisk()
    storage = _begun(disk)
    storage.save([Ready(hard_state=HardState(3, 1), entries=[_entry(1, payload=bytes(1_600))])])
    stored = disk.read_whole(LOG)
    data = stored[: stored.rindex(b"\xf1QRF")]  # The mark after it has not reached the disk.
    disk.replace_whole(LOG, data)
    good = _loaded(disk)
    for bit in range(8 * len(data) - 8 * 1_500, 8 * len(data)):
        disk.replace_whole(LOG, data)
        disk.flip_bit(LOG, bit)
        try:
            found = _loaded(disk)
        except DamagedQuorumFile:
            continue
        # Only the marks of sectors hold nothing.
        assert (found, bit // 8 % 512) == (good, 511), bit


def test_a_write_torn_anywhere_is_followed_by_others_in_the_right_place() -> None:
    disk = SimulatedDisk()
    storage = _begun(disk)
    storage.save([Ready(hard_state=HardState(3, 1), entries=[_entry(1, payload=b"x" * 600)])])
    data = disk.read_whole(LOG)
    last = [Ready(entries=[_entry(2, payload=b"y" * 2_000)])]
    for size in range(len(data) - 300, len(data)):
        disk.replace_whole(LOG, data[:size])
        storage = _opened(disk)
        storage.save([Ready(hard_state=HardState(3, 1), entries=[_entry(1, payload=b"x" * 600)])])
        storage.save(last)
        assert [entry.index for entry in _loaded(disk).entries] == [1, 2], size


def test_a_log_without_marks_is_read_and_gets_them() -> None:
    disk = SimulatedDisk()
    storage = _begun(disk)
    storage.save([Ready(hard_state=HardState(3, 1), entries=[_entry(1, payload=b"x" * 2_000)])])
    good = _loaded(disk)
    data = bytearray(unmarked(disk.read_whole(LOG)))
    data[5] = 1
    disk.replace_whole(LOG, bytes(data))
    storage = RaftStorage(disk, "quorum")
    assert storage.load() == good
    storage.save([Ready(entries=[_entry(2, payload=b"y" * 2_000)])])
    again = RaftStorage(disk, "quorum")
    more = again.load()
    assert more is not None
    assert more.entries == [*good.entries, _entry(2, payload=b"y" * 2_000)]
    again.secure(more)
    assert _loaded(disk) == more
    assert disk.read_whole("quorum/log-00000002")[5] == 2


def test_a_flipped_bit_anywhere_in_the_snapshot_is_noticed() -> None:
    disk = SimulatedDisk()
    _begun(disk)
    for bit in range(8 * len(disk.read_whole("quorum/snapshot"))):
        disk.flip_bit("quorum/snapshot", bit)
        with pytest.raises(DamagedQuorumFile, match="quorum/snapshot"):
            _loaded(disk)
        disk.flip_bit("quorum/snapshot", bit)


def _remove_log(disk: SimulatedDisk) -> None:
    disk.remove(LOG)


def _remove_snapshot(disk: SimulatedDisk) -> None:
    disk.remove("quorum/snapshot")


def _shorten_log(disk: SimulatedDisk) -> None:
    disk.replace_whole(LOG, disk.read_whole(LOG)[:5])


def _keep_only_the_head(disk: SimulatedDisk) -> None:
    disk.replace_whole(LOG, disk.read_whole(LOG)[:18])


def _write_version_3(disk: SimulatedDisk) -> None:
    data = bytearray(disk.read_whole(LOG))
    data[5] = 3
    disk.replace_whole(LOG, bytes(data))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_remove_log, "missing, though a snapshot"),
        (_remove_snapshot, "missing, though a log"),
        (_shorten_log, "shorter than its header"),
        (_keep_only_the_head, "first frame is missing"),
        (_write_version_3, "version 3"),
    ],
)
def test_a_missing_or_foreign_file_is_named(
    damage: Callable[[SimulatedDisk], None], text: str
) -> None:
    disk = SimulatedDisk()
    _begun(disk).save([Ready(hard_state=HardState(1, 1))])
    damage(disk)
    with pytest.raises(DamagedQuorumFile, match=text) as caught:
        _loaded(disk)
    assert "joins again" in str(caught.value)


# Disks that refuse


def test_a_full_disk_refuses_and_the_same_save_works_when_there_is_room() -> None:
    disk = SimulatedDisk()
    storage = _begun(disk)
    storage.save([Ready(entries=[_entry(1)])])
    ready = Ready(hard_state=HardState(1, 1), entries=[_entry(2, payload=bytes(500))])
    for left in (0, 10, 300):
        disk.fill_after(left)
        with pytest.raises(StorageFull, match="free space"):
            storage.save([ready])
    disk.make_room()
    storage.save([ready])
    assert [entry.index for entry in _loaded(disk).entries] == [1, 2]


def test_a_full_disk_at_a_snapshot_is_survived_too() -> None:
    disk = SimulatedDisk()
    storage = _begun(disk)
    storage.save([Ready(hard_state=HardState(1, 1), entries=[_entry(1), _entry(2)])])
    snapshot = Snapshot(Position(2, 1), MEMBERS, bytes(1_000))
    ready = Ready(hard_state=HardState(1, 1), snapshot=snapshot, base=Position(2, 1))
    for left in (0, 500, 1_050):
        disk.fill_after(left)
        with pytest.raises(StorageFull):
            storage.save([ready])
    disk.make_room()
    storage.save([ready])
    assert _loaded(disk) == RaftState(HardState(1, 1), snapshot, Position(2, 1))


def test_after_a_failed_sync_nothing_is_promised_until_a_new_start() -> None:
    disk = SimulatedDisk()
    storage = _begun(disk)
    disk.fail_syncs()
    with pytest.raises(StorageFailed, match="restart"):
        storage.save([Ready(entries=[_entry(1)])])
    with pytest.raises(StorageFailed, match=str(errno.EIO)):
        storage.save([Ready(entries=[_entry(1)])])
    _opened(disk).save([Ready(entries=[_entry(1)])])
