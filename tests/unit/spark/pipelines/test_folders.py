"""Files are whole or absent, and one run works in a folder at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines import folders
from goqueue.spark.pipelines.folders import (
    FileTaken,
    FolderBusy,
    begin_sync,
    folder_of,
    locked,
    sync_file,
    write_new,
    write_over,
)


def test_a_second_run_is_kept_out_until_the_first_ends(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(FolderBusy, match="Another run works in"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


def test_a_new_file_does_not_replace_another(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "file"
    write_new(file, b"first")
    with pytest.raises(FileTaken):
        write_new(file, b"second")
    assert file.read_bytes() == b"first"
    assert list(file.parent.iterdir()) == [file], "what was not finished is left behind"


def test_a_file_can_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_over(file, b"first")
    write_over(file, b"second")
    assert file.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("text", ["s3://bucket/a", "hdfs://name/a", "  "])
def test_what_is_no_folder_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        folder_of(text)


def test_a_folder_is_a_path_or_a_file_uri(tmp_path: Path) -> None:
    assert folder_of(tmp_path) == folder_of(f"file://{tmp_path}") == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match="is a file"):
        folder_of(tmp_path / "file")


def test_writing_that_begins_early_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows"
    for content in (b"", b"some bytes"):
        file.write_bytes(content)
        begin_sync(file)
        sync_file(file)
        assert file.read_bytes() == content
    monkeypatch.setattr(folders.ctypes, "CDLL", lambda _: object())  # a system without the call
    begin_sync(file)
    with pytest.raises(FileNotFoundError):
        sync_file(tmp_path / "none")
