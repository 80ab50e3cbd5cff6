"""The audit file: whole lines, private, rotated by size, and found again when it was moved."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goqueue.runtime.audit_file import AuditFile
from tests.simulation.clock import VirtualClock


class AtOnce(VirtualClock):
    """Runs blocking work immediately."""

    def run_blocking(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        try:
            value = work()
        except Exception as error:
            done(None, error)
        else:
            done(value, None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def file_at(path: Path, *, bytes_max: int = 1 << 20, files_max: int = 3) -> AuditFile:
    import random

    return AuditFile(AtOnce(random.Random(0)), path, bytes_max=bytes_max, files_max=files_max)


def write(file: AuditFile, *texts: bytes) -> Exception | None:
    errors: list[Exception | None] = []
    file.write(texts).then(lambda _, error: errors.append(error))
    [error] = errors
    return error


def test_each_event_is_a_line_that_only_the_owner_can_read(path: Path) -> None:
    file = file_at(path)
    assert write(file, b"1", b"2") is None
    assert write(file, b"3") is None
    assert path.read_bytes() == b"1\n2\n3\n"
    assert path.stat().st_mode & 0o777 == 0o600
    file.close()


def test_a_large_file_is_renamed_and_the_oldest_goes(path: Path) -> None:
    file = file_at(path, bytes_max=25)
    for number in range(10):
        write(file, b"event-%02d" % number, b"x")
    names = sorted(one.name for one in path.parent.iterdir())
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    for one in path.parent.iterdir():
        assert one.stat().st_size <= 25
        assert one.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().endswith(b"event-09\nx\n")
    older = path.with_name("audit.jsonl.1").read_bytes()
    assert older.endswith(b"event-07\nx\n")
    file.close()


def test_with_one_file_the_old_one_goes(path: Path) -> None:
    file = file_at(path, bytes_max=10, files_max=1)
    write(file, b"12345678")
    write(file, b"abcdefgh")
    assert path.read_bytes() == b"abcdefgh\n"
    assert len(list(path.parent.iterdir())) == 1
    file.close()


def test_a_file_that_was_moved_or_removed_is_begun_anew(path: Path) -> None:
    file = file_at(path)
    write(file, b"1")
    moved = path.with_name("moved")
    path.rename(moved)
    write(file, b"2")
    path.unlink()
    write(file, b"3")
    assert moved.read_bytes() == b"1\n"
    assert path.read_bytes() == b"3\n"
    file.close()


def test_a_failed_write_leaves_no_half_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_at(path)
    write(file, b"first")
    real, calls = os.write, iter([5])

    def failing(descriptor: int, data: memoryview) -> int:
        for length in calls:
            return real(descriptor, data[:length])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing)
        assert isinstance(write(file, b"second event"), OSError)
    assert path.read_bytes() == b"first\n"
    assert write(file, b"second event") is None
    assert path.read_bytes() == b"first\nsecond event\n"
    file.close()


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    file = file_at(tmp_path / "absent" / "audit.jsonl")
    assert isinstance(write(file, b"1"), FileNotFoundError)
