"""Files of typed tables: all records are in one of two, whatever they hold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines.archiving import archive_schema
from goqueue.spark.pipelines.manifests import DamagedArchive
from goqueue.spark.pipelines.typing_files import check_typed_file, type_records
from goqueue.spark.pipelines.typing_manifests import (
    TypedManifest,
    TypedPiece,
    commit_table,
    load_table,
)
from goqueue.spark.typed.options import ColumnTyping, TypingOptions
from goqueue.spark.typed.table import TypedColumns
from tests.unit.spark.typed.framed import avro_bytes, avro_text

ORDER = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "int"}]}
OPTIONS = TypingOptions("http://registry.test", {"value": ColumnTyping("orders-value")})
TYPED = TypedColumns(OPTIONS, {"value": avro_text(ORDER)})
PLACE = TopicPartition("a/b", 2)


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    rows = [
        {"value": value, "topic": "a/b", "partition": 2, "offset": number, "timestamp": number}
        for number, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=archive_schema())


def run(folder: Path, *values: list[bytes | None]) -> TypedPiece:
    return type_records(TYPED, folder, PLACE, map(batch, values), start=0, end=9)


def manifest(number: int, *pieces: TypedPiece) -> TypedManifest:
    return TypedManifest(
        number=number,
        run_id="r",
        started_at_ms=0,
        committed_at_ms=0,
        topic="a/b",
        schemas={},
        table_schema="{}",
        pieces=pieces,
    )


def test_rows_and_letters_together_are_the_records(tmp_path: Path) -> None:
    good = avro_bytes(ORDER, {"id": 7})
    piece = run(tmp_path, [good, b"bad", None], [b"worse"], [good])
    assert (piece.digest.records, piece.rows, piece.undecodable_rows) == (5, 3, 2)
    rows = pq.read_table(tmp_path / piece.files[0].path, partitioning=None).to_pylist()
    assert [(row["offset"], row["value"]) for row in rows] == [
        (0, {"id": 7}),
        (2, None),
        (0, {"id": 7}),
    ]
    letters = pq.read_table(tmp_path / piece.undecodable[0].path, partitioning=None).to_pylist()
    assert [row["value"] for row in letters] == [b"bad", b"worse"]
    assert all(row["reason"].startswith("value: it does not begin") for row in letters)
    assert piece.files[0].path.startswith("data/topic=a%2Fb/partition=2/00002-")
    assert check_typed_file(tmp_path, piece.files[0]) == 3


def test_a_file_that_would_be_empty_is_not_written(tmp_path: Path) -> None:
    piece = run(tmp_path, [b"bad"])
    assert (piece.files, piece.undecodable_rows) == ((), 1)
    assert run(tmp_path / "none").files == ()


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def batches() -> object:
        yield batch([avro_bytes(ORDER, {"id": 1}), b"bad"])
        raise OSError("the broker is gone")

    with pytest.raises(OSError, match="gone"):
        type_records(TYPED, tmp_path, PLACE, batches(), start=0, end=2)  # type: ignore[arg-type]
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_files_that_are_not_what_was_written_are_found(tmp_path: Path) -> None:
    [file] = run(tmp_path, [avro_bytes(ORDER, {"id": 1})]).files
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DamagedArchive, match="other bytes"):
        check_typed_file(tmp_path, file)
    path.unlink()
    with pytest.raises(DamagedArchive, match="is missing"):
        check_typed_file(tmp_path, file)


def test_a_table_is_what_its_manifests_name(tmp_path: Path) -> None:
    kept = run(tmp_path, [avro_bytes(ORDER, {"id": 1}), b"bad"])
    stray = run(tmp_path, [avro_bytes(ORDER, {"id": 2}), b"worse"])
    commit_table(tmp_path, manifest(1, kept))
    held = load_table(tmp_path)
    assert held.remove_strays() == 2
    assert held.paths() == [str(tmp_path / kept.files[0].path)]
    assert held.paths(undecodable=True) == [str(tmp_path / kept.undecodable[0].path)]
    assert not (tmp_path / stray.files[0].path).exists()
    assert (held.number_next, held.last) == (2, manifest(1, kept))
    commit_table(tmp_path, manifest(3))
    with pytest.raises(DamagedArchive, match="numbered 1 to 2 and are 1, 3"):
        load_table(tmp_path)


def test_an_archive_is_not_taken_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "000000000001.json").write_text(
        '{"format": "goqueue-archive", "version": 1}'
    )
    with pytest.raises(DamagedArchive, match="is goqueue-archive version 1"):
        load_table(tmp_path)
