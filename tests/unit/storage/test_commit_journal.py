"""The commit journal: what was written into it comes back, into the right place, and only that."""

from __future__ import annotations

import pytest

from goqueue.storage.commit_journal import CommitJournal, Tail
from tests.simulation.disk import PAGE_BYTES, PowerLost, SimulatedDisk

FILE_BYTES = 32 << 10
LOG = b"a log".ljust(20)
OTHER = b"another log".ljust(20)
FOLDER = "logs/orders/0"
PATH = f"{FOLDER}/{0:020d}.log"


def journal_on(disk: SimulatedDisk) -> CommitJournal:
    return CommitJournal(disk, file_bytes=FILE_BYTES)


def write(journal: CommitJournal, *tails: Tail) -> None:
    journal.write(journal.frame(list(tails)))


def disk_with(content: bytes, *, survival: float = 0.0) -> SimulatedDisk:
    """A disk with a synced log file; of what is not synced, nothing survives a power cut."""
    disk = SimulatedDisk(survival=survival)
    file = disk.create(PATH)
    file.append(content)
    file.sync()
    return disk


def content_after_redo(disk: SimulatedDisk) -> bytes:
    journal = journal_on(disk)
    assert journal.redo(LOG, FOLDER) == []
    journal.clear()
    disk.crash()
    return disk.read_whole(PATH)


def test_tails_that_the_file_has_lost_are_written_back_in_order() -> None:
    disk = disk_with(b"synced.")
    journal = journal_on(disk)
    write(journal, Tail(LOG, 0, 7, b"one."))
    write(journal, Tail(OTHER, 0, 0, b"not for this log"), Tail(LOG, 0, 11, b"two."))
    disk.crash()
    assert content_after_redo(disk) == b"synced.one.two."


def test_what_the_file_still_has_is_left_and_what_follows_too() -> None:
    disk = disk_with(b"synced.")
    write(journal_on(disk), Tail(LOG, 0, 7, b"one."))
    file = disk.open(PATH)
    file.append(b"one.and more")
    disk.life += 1
    assert content_after_redo(disk) == b"synced.one.and more"


def test_bytes_of_a_page_that_never_reached_the_disk_are_replaced() -> None:
    disk = disk_with(b"synced." + bytes(2))
    write(journal_on(disk), Tail(LOG, 0, 7, b"one."))
    disk.crash()
    assert content_after_redo(disk) == b"synced.one."


def test_a_frame_that_the_power_cut_has_torn_is_not_believed() -> None:
    disk = disk_with(b"synced.")
    journal = journal_on(disk)
    write(journal, Tail(LOG, 0, 7, b"one."))
    disk.crash_at(1)  # The bytes are written, the sync does not come.
    disk.survival = 1.0
    with pytest.raises(PowerLost):
        write(journal, Tail(LOG, 0, 11, bytes(range(256)) * 64))
    disk.crash()
    disk.flip_bit("meta/commit-journal-0", (8192 + 200) * 8)
    disk.survival = 0.0
    assert content_after_redo(disk) == b"synced.one."


def test_a_file_that_was_freed_gives_nothing_back_even_where_old_frames_still_stand() -> None:
    disk = disk_with(b"synced.")
    journal = journal_on(disk)
    for position in range(7, 47, 4):
        write(journal, Tail(LOG, 0, position, b"old."))
    journal.free(journal.switch())
    journal.free(journal.switch())
    write(journal, Tail(LOG, 0, 7, b"new."))
    disk.crash()
    assert content_after_redo(disk) == b"synced.new."


def test_entries_of_both_files_are_taken_in_the_order_they_were_written() -> None:
    disk = disk_with(b"synced.")
    journal = journal_on(disk)
    journal.switch()
    write(journal, Tail(LOG, 0, 7, b"one."))
    journal.switch()
    write(journal, Tail(LOG, 0, 11, b"two."))
    disk.crash()
    assert content_after_redo(disk) == b"synced.one.two."


@pytest.mark.parametrize("operation", range(4))
def test_power_that_fails_while_a_file_is_freed_leaves_it_full_or_empty(operation: int) -> None:
    disk = disk_with(b"synced.", survival=0.5)
    journal = journal_on(disk)
    write(journal, Tail(LOG, 0, 7, b"one."))
    disk.crash_at(operation)
    try:
        journal.free(0)
    except PowerLost:
        disk.crash()
        assert journal_on(disk).is_redone is False
    else:
        disk.crash()
        assert journal_on(disk).is_redone


def test_a_segment_that_retention_has_removed_is_not_brought_back() -> None:
    disk = disk_with(b"synced.")
    write(journal_on(disk), Tail(LOG, 0, 7, b"one."))
    disk.remove(PATH)
    disk.sync_folder(FOLDER)
    journal = journal_on(disk)
    assert journal.redo(LOG, FOLDER) == []
    assert not disk.exists(PATH)


def test_a_hole_before_the_journal_is_reported_and_not_papered_over() -> None:
    disk = disk_with(b"syn")
    write(journal_on(disk), Tail(LOG, 0, 7, b"one."))
    reports = journal_on(disk).redo(LOG, FOLDER)
    assert len(reports) == 1
    assert "byte 3" in reports[0]
    assert disk.read_whole(PATH) == b"syn"


def test_a_journal_that_holds_what_no_log_asks_for_is_empty_after_clearing() -> None:
    disk = disk_with(b"synced.")
    write(journal_on(disk), Tail(OTHER, 0, 0, b"of a deleted topic"))
    journal = journal_on(disk)
    assert not journal.is_redone
    journal.clear()
    assert journal_on(disk).is_redone


def test_room_is_counted_with_what_frames_need_for_themselves() -> None:
    journal = journal_on(SimulatedDisk())
    data = bytes(1000)
    count = 0
    while journal.has_room(2, 2 * len(data)):
        write(journal, Tail(LOG, 0, 0, data), Tail(OTHER, 0, 0, data))
        count += 1
    assert 5 < count <= (FILE_BYTES - 8192) // 2000


# Rot


JOURNAL = "meta/commit-journal-0"


def rotten_journal() -> tuple[SimulatedDisk, int]:
    """Three frames, and where the last of them ends."""
    disk = disk_with(b"synced.")
    journal = journal_on(disk)
    end = 8192
    for number in range(3):
        frame = journal.frame([Tail(LOG, 0, 7 + 4 * number, b"one.")])
        journal.write(frame)
        end += len(frame)
    return disk, end


def test_a_flipped_bit_anywhere_in_a_frame_is_noticed_and_costs_no_other_frame() -> None:
    disk, end = rotten_journal()
    for bit in range(8192 * 8, end * 8):
        disk.flip_bit(JOURNAL, bit)
        journal = journal_on(disk)
        assert journal.is_suspect, bit
        assert len(journal._left[LOG]) == 2, bit
        disk.flip_bit(JOURNAL, bit)
    assert not journal_on(disk).is_suspect


def test_a_flipped_bit_in_the_header_loses_nothing_and_brings_nothing_back() -> None:
    disk, _ = rotten_journal()
    journal = journal_on(disk)
    journal.clear()
    write(journal, Tail(LOG, 0, 7, b"new."))
    for bit in (8 * at + bit for at in (0, 512, 4096, 4608) for bit in range(20 * 8)):
        disk.flip_bit(JOURNAL, bit)
        journal = journal_on(disk)
        assert [tail.data for tail in journal._left[LOG]] == [b"new."], bit
        disk.flip_bit(JOURNAL, bit)


def test_a_journal_that_was_cleared_is_in_doubt_no_longer() -> None:
    disk, _ = rotten_journal()
    disk.flip_bit(JOURNAL, 8192 * 8 + 300)
    journal_on(disk).clear()
    assert not journal_on(disk).is_suspect
    assert journal_on(disk).is_redone


def test_a_journal_that_was_written_and_freed_is_not_in_doubt() -> None:
    disk = disk_with(b"synced.")
    journal = journal_on(disk)
    for size in (900, 40, 300):
        write(journal, Tail(LOG, 0, 7, bytes(range(256)) * (size // 256 + 1)))
    journal.free(0)
    write(journal, Tail(LOG, 0, 7, b"short."))
    assert not journal_on(disk).is_suspect


def test_what_the_disk_cannot_read_of_a_log_is_written_again() -> None:
    disk = disk_with(b"synced.")
    journal = journal_on(disk)
    write(journal, Tail(LOG, 0, 7, b"one."))
    file = disk.open(PATH)
    file.append(b"one.")
    disk.spoil(PATH, 7)
    assert content_after_redo(disk) == b"synced.one."


@pytest.mark.parametrize("page", range(6))
def test_a_journal_that_cannot_be_read_is_suspect_and_gives_the_rest(page: int) -> None:
    disk = disk_with(b"")
    journal = journal_on(disk)
    for number in range(20):
        write(journal, Tail(LOG, 0, 1000 * number, bytes([number]) * 1000))
    disk.spoil(JOURNAL, page * PAGE_BYTES)
    journal = journal_on(disk)
    assert journal.is_suspect
    with pytest.raises(OSError, match=JOURNAL):
        journal.check_readable()
    # The header is in the first page; a frame may begin in one page and end in the next.
    assert len(journal._left[LOG]) >= {0: 0, 1: 20}.get(page, 13)
    journal.clear()
    journal.check_readable()
    write(journal, Tail(LOG, 0, 0, b"new."))
    disk.crash()
    assert [tail.data for tail in journal_on(disk)._left[LOG]] == [b"new."]
    assert not journal_on(disk).is_suspect
