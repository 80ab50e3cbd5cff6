"""Records of a task end up in the files of their hours, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines import parquet_files
from goqueue.spark.pipelines.archiving import archive_schema
from goqueue.spark.pipelines.digests import digest_of, total
from goqueue.spark.pipelines.parquet_files import (
    HOUR_MS,
    Layout,
    RecordFiles,
    file_checksum,
    folder_name,
    latency_counts,
    read_rows,
)
from tests.unit.spark.pipelines.rows import batch

ORDERS = TopicPartition("orders/eu", 3)


def files_in(folder: Path, layout: Layout) -> RecordFiles:
    return RecordFiles(folder, ORDERS, layout, archive_schema())


def test_each_hour_has_its_file(tmp_path: Path) -> None:
    rows = batch(
        [{"timestamp": hour * HOUR_MS, "offset": n} for n, hour in enumerate((0, 1, 0, 25))]
    )
    files = files_in(tmp_path, "time")
    files.add(rows)
    written = files.close()
    assert [str(Path(one.path).parent) for one in written] == [
        "data/topic=orders%2Feu/date=1970-01-01/hour=00",
        "data/topic=orders%2Feu/date=1970-01-01/hour=01",
        "data/topic=orders%2Feu/date=1970-01-02/hour=01",
    ]
    assert [(one.first_offset, one.last_offset) for one in written] == [(0, 2), (1, 1), (3, 3)]
    assert [one.timestamp_ms_max // HOUR_MS for one in written] == [0, 1, 25]
    assert total(one.digest for one in written) == digest_of(rows)


def test_a_file_holds_what_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "ROW_GROUP_BYTES", 1000)
    files = files_in(tmp_path, "partition")
    added = [
        batch([{"offset": first + n, "headers": [{"key": "a", "value": None}]} for n in range(10)])
        for first in range(0, 100, 10)
    ]
    for rows in added:
        files.add(rows)
    (written,) = files.close()
    found = list(read_rows(tmp_path / written.path))
    assert [n for rows in found for n in rows["offset"].to_pylist()] == list(range(100))
    assert len(found) > 1
    assert total(map(digest_of, found)) == total(map(digest_of, added)) == written.digest
    assert file_checksum(tmp_path / written.path) == written.crc32c


def test_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "FILES_OPEN_MAX", 2)
    files = files_in(tmp_path, "time")
    hours = [0, 1, 2, 0, 1, 2]
    for number, hour in enumerate(hours):
        files.add(batch([{"timestamp": hour * HOUR_MS, "offset": number}]))
        assert len(files._open) <= 2
    assert sorted(one.first_offset for one in files.close()) == list(range(6))


def test_held_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "HELD_BYTES_MAX", 2000)
    files = files_in(tmp_path, "time")
    for number in range(50):
        files.add(batch([{"timestamp": number % 5 * HOUR_MS, "value": b"x" * 300}]))
        assert sum(one.waiting_bytes for one in files._open.values()) <= 2000
    assert sum(one.digest.records for one in files.close()) == 50


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    files = files_in(tmp_path, "time")
    files.add(batch([{}, {"timestamp": HOUR_MS}]))
    files.discard()
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


@pytest.mark.parametrize(
    ("hour", "name"),
    [
        (0, "date=1970-01-01/hour=00"),
        (-1, "date=1969-12-31/hour=23"),
        (((1 << 63) - 1) // 1000 // HOUR_MS, "date=294247-01-10/hour=04"),
    ],
)
def test_any_time_has_a_folder(hour: int, name: str) -> None:
    assert folder_name(TopicPartition("a", 0), "time", hour) == f"topic=a/{name}"


def test_latencies_are_counted_by_powers_of_two() -> None:
    assert latency_counts([np.array([-5, 0, 1, 2, 3, 4, 7, 8, 10**15])], 5) == [2, 1, 2, 2, 2]


@pytest.mark.parametrize(("size", "is_apart"), [(100, True), (1000, False)])
def test_lengths_of_short_values_stand_apart(tmp_path: Path, size: int, is_apart: bool) -> None:
    files = files_in(tmp_path, "partition")
    files.add(batch([{"key": b"k", "value": b"v" * size, "offset": 5}]))
    (written,) = files.close()
    group = pq.ParquetFile(tmp_path / written.path).metadata.row_group(0)
    columns = {one.path_in_schema: one for one in map(group.column, range(group.num_columns))}
    assert ("DELTA_LENGTH_BYTE_ARRAY" in columns["value"].encodings) == is_apart
    assert not columns["value"].is_stats_set
    assert columns["offset"].statistics.min == 5
