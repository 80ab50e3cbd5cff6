"""One suite for the real disk and the simulated one, so that the one can stand for the other."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from goqueue.model.errors import InvalidSettings
from goqueue.runtime.data_folder import explained
from goqueue.runtime.disk import LocalDisk
from goqueue.storage.disk import Disk
from tests.simulation.disk import SimulatedDisk


@pytest.fixture(params=["local", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return LocalDisk(str(tmp_path)) if request.param == "local" else SimulatedDisk()


def test_what_is_appended_is_read_back(disk: Disk) -> None:
    file = disk.create("a/b/one")
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    assert file.size() == 11
    assert file.read(0, 11) == b"hello world"
    assert file.read(6, 100) == b"world"
    assert file.read(11, 5) == b""
    assert disk.open("a/b/one").read(0, 5) == b"hello"
    assert disk.read_whole("a/b/one") == b"hello world"


def test_what_is_in_memory_is_read_at_once_and_nothing_else(disk: Disk) -> None:
    file = disk.create("one")
    file.append(b"hello world")
    assert file.read_at_once(6, 5) == b"world"
    assert file.read_at_once(6, 6) is None, "the file ends before"
    assert file.read_at_once(20, 1) is None


def test_what_has_left_memory_is_not_waited_for(tmp_path: Path) -> None:
    file = LocalDisk(str(tmp_path)).create("one")
    file.append(b"x" * 100_000)
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.read_at_once(50_000, 100) is not None:
        pytest.skip("this file system keeps everything in memory")
    file.prefetch(50_000, 100)
    assert file.read(50_000, 100) == b"x" * 100
    assert file.read_at_once(50_000, 100) == b"x" * 100


def test_a_file_system_that_cannot_tell_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    file = LocalDisk(str(tmp_path)).create("one")
    file.append(b"hello world")
    assert file.read_at_once(6, 5) == b"world"
    assert file.read_at_once(6, 6) is None


def test_a_lazy_file_exists_from_its_first_use_on(disk: Disk) -> None:
    file = disk.create("folder/lazy", lazily=True)
    assert not disk.exists("folder/lazy")
    assert file.size() == 0
    file.append(b"x")
    assert disk.exists("folder/lazy")
    assert file.size() == 1


def test_creating_a_file_that_exists_empties_it(disk: Disk) -> None:
    disk.create("one").append(b"old")
    assert disk.create("one").size() == 0


def test_opening_a_file_that_is_not_there_fails_at_its_first_use(disk: Disk) -> None:
    file = disk.open("nowhere")
    with pytest.raises(FileNotFoundError):
        file.read(0, 1)
    with pytest.raises(FileNotFoundError):
        file.size()
    with pytest.raises(FileNotFoundError):
        disk.read_whole("nowhere")


def test_overwriting_and_truncating_change_the_middle_and_the_end(disk: Disk) -> None:
    file = disk.create("one")
    file.append(b"0123456789")
    file.overwrite(2, b"ab")
    file.truncate(5)
    file.append(b"!")
    assert file.read(0, 100) == b"01ab4!"


def test_a_closed_file_opens_again_at_its_next_use(disk: Disk) -> None:
    file = disk.create("one")
    file.append(b"abc")
    file.sync()
    file.close()
    file.append(b"def")
    assert file.read(0, 6) == b"abcdef"


def test_names_are_listed_renamed_and_removed(disk: Disk) -> None:
    for name in ("f/b", "f/a", "f/sub/c"):
        disk.create(name)
    assert disk.list("f") == ["a", "b", "sub"]
    assert disk.list("nowhere") == []
    disk.rename("f/a", "f/b")
    assert disk.list("f") == ["b", "sub"]
    disk.remove("f/b")
    assert not disk.exists("f/b")
    with pytest.raises(FileNotFoundError):
        disk.remove("f/b")
    disk.remove_tree("f")
    assert not disk.exists("f")
    with pytest.raises(FileNotFoundError):
        disk.remove_tree("f")


def test_a_retired_file_is_read_on_after_another_took_its_name(disk: Disk) -> None:
    old = disk.create("one")
    old.append(b"old")
    disk.create("two").append(b"new")
    old.retire()
    disk.rename("two", "one")
    old.close()
    assert old.read(0, 3) == b"old"
    assert old.size() == 3
    assert disk.open("one").read(0, 3) == b"new"
    disk.remove("one")
    old.sync()
    assert old.read(0, 3) == b"old"


def test_a_small_file_is_replaced_as_a_whole(disk: Disk) -> None:
    disk.replace_whole("f/state", b"first, and longer")
    disk.replace_whole("f/state", b"second")
    assert disk.read_whole("f/state") == b"second"
    disk.replace_whole("f/state", b"third", is_durable=False)
    assert disk.read_whole("f/state") == b"third"
    assert disk.list("f") == ["state"]


def test_syncing_a_folder_that_is_not_there_fails(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.sync_folder("nowhere")


def test_there_is_room(disk: Disk) -> None:
    assert disk.free_bytes() > 0


def test_a_real_disk_keeps_few_files_open_and_none_of_the_pinned_ones_closes(
    tmp_path: Path,
) -> None:
    disk = LocalDisk(str(tmp_path), open_files_max=4)
    pinned = disk.create("pinned")
    pinned.append(b"x")
    pinned.pin()
    descriptor = pinned.fileno()
    files = [disk.create(f"f{number}") for number in range(20)]
    for file in files:
        file.append(b"y")
    assert pinned.fileno() == descriptor
    pinned.close()
    assert pinned.fileno() == descriptor
    assert [file.read(0, 1) for file in files] == [b"y"] * 20
    open_now = sum(1 for file in files if file._fd >= 0)
    assert open_now <= 4
    pinned.unpin()
    pinned.close()
    assert pinned.read(0, 1) == b"x"


def test_threads_that_sync_take_no_descriptor_from_the_event_loop(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path), open_files_max=1)
    mine, others = disk.create("mine"), disk.create("others")
    mine.append(b"m")
    descriptor = mine.fileno()
    thread = threading.Thread(target=others.sync)
    thread.start()
    thread.join()
    assert mine.fileno() == descriptor


def test_half_of_the_descriptors_go_round_whatever_wants_to_be_pinned(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path), open_files_max=4)
    files = [disk.create(f"{number}") for number in range(4)]
    assert [one.try_pin() for one in files] == [True, True, False, False]
    assert files[0].try_pin(), "it is open anyway"
    files[2].pin()  # Whoever must have it gets it.
    assert disk.pinned == 3
    for one in (files[0], files[0], files[1], files[2]):
        one.unpin()
    assert disk.pinned == 0
    assert files[3].try_pin()


def test_a_file_that_cannot_be_opened_is_not_pinned(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    missing = disk.open("missing")
    with pytest.raises(FileNotFoundError):
        missing.pin()
    assert (missing.is_pinned, disk.pinned) == (False, 0)


def test_an_error_of_reading_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bad sector: the operating system names only a descriptor."""
    file = LocalDisk(str(tmp_path)).create("a/one")
    file.append(b"x")

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    with (
        pytest.raises(InvalidSettings, match=r"Input/output error \(a/one\).*dmesg"),
        explained(tmp_path),
    ):
        file.read(0, 1)
