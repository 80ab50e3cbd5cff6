"""An archive is what its manifests say, and a crash leaves nothing that counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines.digests import Digest
from goqueue.spark.pipelines.folders import FileTaken
from goqueue.spark.pipelines.manifests import (
    ArchivedFile,
    DamagedArchive,
    Kind,
    Manifest,
    Piece,
    TopicPosition,
    advanced,
    chosen_files,
    commit,
    load_archive,
)

ORDERS = TopicPartition("orders", 0)


def file(name: str, *, records: int = 1, first_ms: int = 0, last_ms: int = 0) -> ArchivedFile:
    return ArchivedFile(
        path=f"data/{name}",
        bytes=10,
        crc32c=0,
        digest=Digest(records, 1, 1),
        first_offset=0,
        last_offset=records - 1,
        timestamp_ms_min=first_ms,
        timestamp_ms_max=last_ms,
    )


def piece(*files: ArchivedFile, topic: str = "orders") -> Piece:
    records = sum(one.digest.records for one in files)
    digest = Digest(records, len(files), len(files))
    return Piece(topic=topic, partition=0, start=0, end=records, digest=digest, files=files)


def manifest(number: int, *files: ArchivedFile, kind: Kind = "append", end: int = 0) -> Manifest:
    return Manifest(
        number=number,
        run_id=f"run-{number}",
        kind=kind,
        started_at_ms=1,
        committed_at_ms=2,
        positions={"orders": TopicPosition(topic_id="id", offsets={0: end})},
        pieces=(piece(*files),),
    )


def touch(folder: Path, *names: str) -> None:
    (folder / "data" / "deep").mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / "data" / name).touch()


def test_manifests_come_back_as_they_were_committed(tmp_path: Path) -> None:
    first, second = manifest(1, file("a", records=3)), manifest(2, file("b", records=4), end=7)
    assert load_archive(tmp_path).number_next == 1
    commit(tmp_path, first)
    commit(tmp_path, second)
    held = load_archive(tmp_path)
    assert held.manifests == (first, second)
    assert held.digest.records == 7
    assert held.positions["orders"].offsets == {0: 7}
    assert held.number_next == 3


def test_two_runs_cannot_commit_the_same_number(tmp_path: Path) -> None:
    commit(tmp_path, manifest(1))
    with pytest.raises(FileTaken):
        commit(tmp_path, manifest(1, file("other")))
    assert load_archive(tmp_path).manifests == (manifest(1),)


def test_files_that_no_manifest_names_are_removed(tmp_path: Path) -> None:
    touch(tmp_path, "a", "deep/stray", "stray")
    commit(tmp_path, manifest(1, file("a")))
    assert load_archive(tmp_path).remove_strays() == 2
    assert [one.name for one in (tmp_path / "data").rglob("*") if one.is_file()] == ["a"]
    assert load_archive(tmp_path).remove_strays() == 0


def test_a_snapshot_stands_for_all_before_it(tmp_path: Path) -> None:
    touch(tmp_path, "a", "b", "c")
    for one in (
        manifest(1, file("a"), kind="snapshot"),
        manifest(2, file("b"), kind="snapshot"),
        manifest(3, file("c")),
    ):
        commit(tmp_path, one)
    held = load_archive(tmp_path)
    assert [one.path for one in chosen_files(held.pieces)] == ["data/b", "data/c"]
    assert held.digest.records == 2
    assert held.remove_strays() == 1


def test_a_missing_manifest_is_noticed(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        commit(tmp_path, manifest(number))
    sorted((tmp_path / "manifests").iterdir())[1].unlink()
    with pytest.raises(DamagedArchive, match="put back the ones that are missing"):
        load_archive(tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is no manifest"),
        ("{}", "is no manifest"),
        ('{"format": "goqueue-archive", "version": 2}', "version 2; this program reads"),
        ('{"format": "goqueue-archive", "version": 1}', "is no manifest"),
    ],
)
def test_what_is_no_manifest_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "000000000001.json").write_text(text)
    with pytest.raises(DamagedArchive, match=complaint):
        load_archive(tmp_path)


def test_what_a_crash_left_of_a_manifest_does_not_count(tmp_path: Path) -> None:
    commit(tmp_path, manifest(1))
    left = tmp_path / "manifests" / "000000000002.json.77.fresh"
    left.write_text("{")
    assert load_archive(tmp_path).manifests == (manifest(1),)
    assert load_archive(tmp_path).remove_strays() == 1
    assert not left.exists()


def test_positions_move_on_and_begin_anew_with_another_topic() -> None:
    before = {
        "orders": TopicPosition(topic_id="old", offsets={0: 5, 1: 6}),
        "other": TopicPosition(topic_id="x", offsets={0: 1}),
    }
    one = TopicPartition("orders", 1)
    assert advanced(before, [(one, "old", 9)])["orders"].offsets == {0: 5, 1: 9}
    after = advanced(before, [(one, "new", 2)])
    assert after["orders"] == TopicPosition(topic_id="new", offsets={1: 2})
    assert after["other"] == before["other"]
    assert before["orders"].offsets == {0: 5, 1: 6}


def test_files_are_chosen_by_topic_and_time() -> None:
    early, late = file("early", first_ms=0, last_ms=9), file("late", first_ms=10, last_ms=19)
    pieces = [piece(early, late), piece(file("other"), topic="other")]

    def names(**conditions: int) -> list[str]:
        found = chosen_files(pieces, topics=["orders"], **conditions)
        return [one.path.removeprefix("data/") for one in found]

    assert names() == ["early", "late"]
    assert names(from_ms=9) == ["early", "late"]
    assert names(from_ms=10) == ["late"]
    assert names(until_ms=10) == ["early"]
    assert names(until_ms=11) == ["early", "late"]
