"""Small files: whole, or recognised as damaged or as those of another version."""

from __future__ import annotations

import pytest

from goqueue.model.errors import StorageFailed
from goqueue.storage.framed import read_framed, read_framed_or_refuse, write_framed
from tests.simulation.disk import SimulatedDisk

PATH = "meta/thing"


def written(version: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(1)
    write_framed(disk, PATH, magic=b"GQTT", version=version, body=[1, 2, 3])
    return disk


def read(disk: SimulatedDisk) -> list[int] | None:
    return read_framed(disk, PATH, magic=b"GQTT", version=1, body=list[int])


def read_or_refuse(disk: SimulatedDisk) -> list[int] | None:
    return read_framed_or_refuse(
        disk, PATH, magic=b"GQTT", version=1, body=list[int], remedy="Restore it."
    )


def test_a_file_that_is_missing_is_nothing_to_complain_about() -> None:
    assert read(SimulatedDisk(1)) is None
    assert read_or_refuse(SimulatedDisk(1)) is None


def test_a_whole_file_is_read() -> None:
    assert read(written()) == read_or_refuse(written()) == [1, 2, 3]


def test_any_damage_is_found_and_not_taken_for_a_missing_file() -> None:
    whole = written().read_whole(PATH)
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for at in range(len(whole))
        if at not in (4, 5)  # the version
    ]
    for data in damaged:
        disk = SimulatedDisk(1)
        disk.replace_whole(PATH, data)
        assert read(disk) is None
        with pytest.raises(StorageFailed, match=r"meta/thing is damaged\. Restore it\."):
            read_or_refuse(disk)


def test_another_version_is_refused_as_such() -> None:
    assert read(written(version=2)) is None
    text = r"format version 2, and this GoQueue reads version 1; run the release .* Restore it\."
    with pytest.raises(StorageFailed, match=text):
        read_or_refuse(written(version=2))


def test_a_body_of_another_shape_is_refused() -> None:
    disk = SimulatedDisk(1)
    write_framed(disk, PATH, magic=b"GQTT", version=1, body="text")
    assert read(disk) is None
    with pytest.raises(StorageFailed, match="damaged"):
        read_or_refuse(disk)
