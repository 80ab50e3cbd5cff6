"""Reads an archive, that is, the files its manifests name, and verifies that they are unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines.digests import Digest, digest_of, total
from goqueue.spark.pipelines.folders import folder_of
from goqueue.spark.pipelines.jobs import OnProgress, run_units
from goqueue.spark.pipelines.manifests import (
    Archive,
    ArchivedFile,
    DamagedArchive,
    chosen_files,
    load_archive,
)
from goqueue.spark.pipelines.parquet_files import file_checksum, read_rows
from goqueue.spark.pipelines.selection import Selection, select

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """The result of reading every file again."""

    files: int
    digest: Digest


def read_archive(
    spark: SparkSession,
    folder: str | Path,
    *,
    topics: Sequence[str] | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
) -> DataFrame:
    """Return the records of an archive as it is now, with the columns of the data source.

    Times select files first, and then records.
    """
    held = open_archive(folder)
    records = frame_of(spark, held, topics=topics, from_ms=from_ms, until_ms=until_ms)
    return select(records, Selection(from_ms=from_ms, until_ms=until_ms))


def frame_of(
    spark: SparkSession,
    held: Archive,
    *,
    topics: Sequence[str] | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
) -> DataFrame:
    """Return the files that can hold records of these topics and times, as one table."""
    files = chosen_files(held.pieces, topics=topics, from_ms=from_ms, until_ms=until_ms)
    return _frame_of_files(spark, held, files)


def superseded_frame(spark: SparkSession, held: Archive) -> DataFrame:
    """Return the records of a snapshot that are used only to build the next snapshot."""
    return _frame_of_files(spark, held, chosen_files(held.superseded))


def _frame_of_files(spark: SparkSession, held: Archive, files: Sequence[ArchivedFile]) -> DataFrame:
    from goqueue.spark.schema import table_schema

    if not files:
        return empty_frame(spark)
    schema = table_schema(has_headers=True, view="records")
    # Without a base path Spark derives no columns from folder names.
    return spark.read.schema(schema).parquet(*(str(held.folder / file.path) for file in files))


def empty_frame(spark: SparkSession) -> DataFrame:
    """Return an empty table with all columns."""
    from goqueue.spark.schema import table_schema

    return spark.createDataFrame([], table_schema(has_headers=True, view="records"))


def open_archive(folder: str | Path) -> Archive:
    """Open an existing archive; a folder without manifests is an error."""
    held = load_archive(folder_of(folder))
    if not held.manifests:
        raise InvalidRequest(
            f"{held.folder} holds no archive; make one with `goqueue pipeline run archive`."
        )
    return held


def verify_archive(
    spark: SparkSession, folder: str | Path, *, on_progress: OnProgress | None = None
) -> ArchiveCheck:
    """Read every file again, and compare bytes, counts and sums with the manifests."""
    held = open_archive(folder)
    files = [file for manifest in held.live for file in manifest.files]
    found = run_units(spark, files, partial(check_file, held.folder), on_progress=on_progress)
    hidden = [file for piece in held.superseded for file in piece.files]
    run_units(spark, hidden, partial(check_file, held.folder))
    whole = total(found)
    if whole != held.digest:
        raise DamagedArchive(
            f"{held.folder} holds {whole.records} records with the sum {whole.content}; its "
            f"manifests say {held.digest.records} with the sum {held.digest.content}."
        )
    return ArchiveCheck(len(files) + len(hidden), whole)


def check_file(folder: Path, file: ArchivedFile) -> Digest:
    """Read one file again; runs on a worker."""
    path = folder / file.path
    if not path.exists():
        raise DamagedArchive(f"{path} is missing, though a manifest names it; restore it.")
    if file_checksum(path) != file.crc32c:
        raise DamagedArchive(f"{path} has other bytes than were archived; restore it.")
    found = total(map(digest_of, read_rows(path)))
    if found != file.digest:
        raise DamagedArchive(f"{path} has other records than were archived; restore it.")
    return found
