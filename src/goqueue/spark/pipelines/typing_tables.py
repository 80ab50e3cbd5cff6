"""Writes a topic or an archive as a Parquet table with the columns of its schema.

    typed(spark, "/tables/orders", registry="http://127.0.0.1:8081",
          bootstrap="127.0.0.1:9092", topic="orders")

A run continues where the last one ended. Records that do not conform to their schema are stored
beside the table, as they were read and with the reason. Whichever version a subject has, the table
keeps its columns, and gets new ones.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.access import access_of, registry_access
from goqueue.spark.connecting import connect
from goqueue.spark.losses import report
from goqueue.spark.options import (
    BOOTSTRAP_DEFAULT,
    EARLIEST,
    LATEST,
    SPLIT_BYTES_DEFAULT,
    ReadOptions,
    Start,
)
from goqueue.spark.pipelines.archive_reading import open_archive
from goqueue.spark.pipelines.archiving import archive_schema, starting_places
from goqueue.spark.pipelines.folders import folder_of, locked
from goqueue.spark.pipelines.jobs import OnProgress, run_units
from goqueue.spark.pipelines.manifests import (
    Archive,
    ArchivedFile,
    DamagedArchive,
    TopicPosition,
    advanced,
)
from goqueue.spark.pipelines.typing_manifests import (
    SchemaNote,
    TypedManifest,
    TypedPiece,
    TypedTable,
    commit_table,
    load_table,
)
from goqueue.spark.planning import OffsetRange, chosen_ranges, look, record_bytes, split
from goqueue.spark.typed.options import ColumnTyping, TypingOptions
from goqueue.spark.typed.table import TypedColumns, load_schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class TypedResult:
    """The result of one run; without new records there is no manifest."""

    manifest: TypedManifest | None
    strays_removed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """One file of an archive, as a unit of work."""

    partition: TopicPartition
    file: ArchivedFile


Unit = OffsetRange | ArchivedPart


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one run types, from a topic or the folder of an archive."""

    topic: str
    origin: ReadOptions | Path
    units: tuple[Unit, ...]
    positions: dict[str, TopicPosition]
    archive_id: str = ""
    archive_number: int = 0
    losses: tuple[str, ...] = ()


def typed(
    spark: SparkSession,
    folder: str | Path,
    *,
    registry: str,
    bootstrap: str | None = None,
    topic: str | None = None,
    archive: str | Path | None = None,
    subject: str | None = None,
    version: int | None = None,
    message: str | None = None,
    is_key_typed: bool = False,
    key_subject: str | None = None,
    key_version: int | None = None,
    fails_on_data_loss: bool = True,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    records_per_task_max: int | None = None,
    access: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> TypedResult:
    """Append the new records of a topic, or of an archive, to a typed table, as one manifest.

    The schemas are the latest of TOPIC-value and TOPIC-key, unless others are given; `message`
    selects one of several in a Protobuf file. `access` are options for TLS and credentials, as
    those of the data source; a registry on the host of a broker gets the same login.
    """
    from goqueue.spark.pipelines.typing_schemas import grown_schema

    path, began = folder_of(folder), time.time()
    options = ReadOptions(
        bootstrap=bootstrap or "",
        topics=(topic or "",),
        has_headers=True,
        fails_on_data_loss=fails_on_data_loss,
        split_bytes=split_bytes,
        records_per_task_max=records_per_task_max,
        access=access_of(access),
    )
    at_registry = registry_access(None, options.access, registry, bootstrap or BOOTSTRAP_DEFAULT)
    with locked(path):
        held = load_table(path)
        strays = held.remove_strays()
        plan = _plan(held, options, archive, topic)
        if not plan.units and not plan.losses:
            return TypedResult(None, strays, time.time() - began)
        columns = {"value": ColumnTyping(subject or f"{plan.topic}-value", version, message)}
        if is_key_typed:
            named = key_subject or f"{plan.topic}-key"
            columns["key"] = ColumnTyping(named, key_version, option_prefix="schema.key")
        schemas = load_schemas(TypingOptions(registry.rstrip("/"), columns, access=at_registry))
        schema = grown_schema(held, schemas)
        work = partial(type_unit, plan.origin, schemas, path)
        pieces = run_units(spark, plan.units, work, on_progress=on_progress)
        manifest = _manifest(held, plan, schemas, schema, pieces, int(began * 1000))
        commit_table(path, manifest)
    return TypedResult(manifest, strays, time.time() - began)


def read_typed(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return the table as it is now; columns added later are null in older rows."""
    from goqueue.spark.pipelines.typing_schemas import table_schema_of

    held = open_table(folder)
    schema = table_schema_of(held)
    paths = held.paths()
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)


def read_undecodable(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return the records that did not conform to their schema, as read, with the reasons."""
    from pyspark.sql.types import StringType, StructField, StructType

    from goqueue.spark.schema import table_schema

    plain = table_schema(has_headers=True, view="records")
    schema = StructType([*plain.fields, StructField("reason", StringType())])
    paths = open_table(folder).paths(undecodable=True)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)


def verify_typed(
    spark: SparkSession, folder: str | Path, *, on_progress: OnProgress | None = None
) -> int:
    """Read every file again, compare bytes and rows with the manifests; return the row count."""
    from goqueue.spark.pipelines.typing_files import check_typed_file

    held = open_table(folder)
    work = partial(check_typed_file, held.folder)
    rows = sum(run_units(spark, held.files, work, on_progress=on_progress))
    records = sum(one.digest.records for one in held.manifests)
    if rows != records:
        raise DamagedArchive(f"{held.folder} holds {rows} rows of {records} records.")
    return rows


def type_unit(
    origin: ReadOptions | Path, schemas: TypedColumns, table: Path, unit: Unit
) -> TypedPiece:
    """Type an offset range of a topic, or a file of an archive; runs on a worker."""
    if isinstance(origin, Path):
        assert isinstance(unit, ArchivedPart)
        return type_archived(origin, schemas, table, unit)
    assert isinstance(unit, OffsetRange)
    return type_range(origin, schemas, table, unit)


def type_range(
    options: ReadOptions, schemas: TypedColumns, table: Path, wanted: OffsetRange
) -> TypedPiece:
    from goqueue.spark.columns import record_batches
    from goqueue.spark.pipelines.typing_files import type_records
    from goqueue.spark.reading import read_batches

    batches = record_batches(read_batches(options, wanted), wanted, archive_schema())
    return type_records(
        schemas, table, wanted.partition, batches, start=wanted.start, end=wanted.end
    )


def type_archived(
    source: Path, schemas: TypedColumns, table: Path, part: ArchivedPart
) -> TypedPiece:
    """Check that a file of an archive holds what its manifest describes."""
    from goqueue.spark.pipelines.parquet_files import read_rows
    from goqueue.spark.pipelines.typing_files import type_records

    file = part.file
    batches = read_rows(source / file.path, archive_schema().names)
    piece = type_records(
        schemas,
        table,
        part.partition,
        batches,
        start=file.first_offset,
        end=file.last_offset + 1,
    )
    if piece.digest != file.digest:
        raise DamagedArchive(
            f"{source / file.path} has other records than were archived; restore it."
        )
    return piece


def open_table(folder: str | Path) -> TypedTable:
    """Open an existing table; a folder without manifests is an error."""
    held = load_table(folder_of(folder))
    if not held.manifests:
        raise InvalidRequest(
            f"{held.folder} holds no typed table; make one with `goqueue pipeline run typed`."
        )
    return held


# Plans


def _plan(
    held: TypedTable, options: ReadOptions, archive: str | Path | None, topic: str | None
) -> _Plan:
    if archive is not None:
        return plan_of_archive(held, folder_of(archive), topic)
    if not options.bootstrap or not topic:
        raise InvalidRequest("Name a topic and its broker, or an archive.")
    return plan_of_topic(held, options)


def plan_of_topic(held: TypedTable, options: ReadOptions) -> _Plan:
    """Plan the new records of a topic since the last manifest, split into tasks."""
    topic = options.topics[0]
    _refuse_other_source(held, topic=topic, archive_id="")
    with connect(options.bootstrap, options.access) as client:
        seen = look(client, options)
        starts, losses = starting_places(seen, held.positions)
        report(losses, is_fatal=options.fails_on_data_loss)
        options = replace(options, start=Start(EARLIEST, offsets=starts), end=Start(LATEST))
        ranges = chosen_ranges(client, options, seen)
        units = split(ranges, record_bytes(client, seen), options)
    ends = [(one.partition, one.topic_id, one.end) for one in ranges]
    positions = advanced(held.positions, ends)
    return _Plan(topic, options, tuple(units), positions, losses=tuple(losses))


def plan_of_archive(held: TypedTable, source: Path, topic: str | None) -> _Plan:
    """Return the files of an archive added since the last manifest of the table."""
    found = open_archive(source)
    if any(one.kind == "snapshot" for one in found.manifests):
        raise InvalidRequest(
            f"{source} holds the latest record of each key, and is rewritten by every run; type "
            "the topic, or an archive of it."
        )
    topic = topic or _only_topic(found)
    archive_id = found.manifests[0].run_id
    _refuse_other_source(held, topic=topic, archive_id=archive_id)
    done = held.last.archive_number if held.last else 0
    fresh = [one for one in found.manifests if one.number > done]
    units = [
        ArchivedPart(TopicPartition(piece.topic, piece.partition), file)
        for manifest in fresh
        for piece in manifest.pieces
        if piece.topic == topic
        for file in piece.files
    ]
    number = found.manifests[-1].number
    return _Plan(topic, source, tuple(units), {}, archive_id=archive_id, archive_number=number)


def _only_topic(found: Archive) -> str:
    topics = sorted({piece.topic for piece in found.pieces})
    if len(topics) != 1:
        raise InvalidRequest(
            f"{found.folder} holds the topics {', '.join(topics) or 'of nobody'}; name one of them."
        )
    return topics[0]


def _refuse_other_source(held: TypedTable, *, topic: str, archive_id: str) -> None:
    last = held.last
    if last is None or (last.topic, last.archive_id) == (topic, archive_id):
        return
    source = "an archive" if last.archive_id else "a broker"
    raise InvalidRequest(
        f"{held.folder} is a table of the topic {last.topic} from {source}; name the same source, "
        "or another folder."
    )


def _manifest(
    held: TypedTable,
    plan: _Plan,
    schemas: TypedColumns,
    schema: StructType,
    pieces: Sequence[TypedPiece],
    started_at_ms: int,
) -> TypedManifest:
    return TypedManifest(
        number=held.number_next,
        run_id=uuid.uuid4().hex,
        started_at_ms=started_at_ms,
        committed_at_ms=time.time_ns() // 1_000_000,
        topic=plan.topic,
        schemas={
            column: SchemaNote(subject=one.subject, version=one.version, id=one.id, kind=one.kind)
            for column, one in schemas.schemas.items()
        },
        table_schema=schema.json(),
        positions=plan.positions,
        archive_id=plan.archive_id,
        archive_number=plan.archive_number,
        pieces=tuple(pieces),
        losses=plan.losses,
    )
