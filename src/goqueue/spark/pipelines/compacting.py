"""Compacts a topic or an archive: the latest record of each key, as an archive of its own.

The result is a snapshot that replaces everything before it. A later run reads the last snapshot and
the newer records of the topic, so the work depends on what is new and what is kept, not on the
whole history.

A key can be in several partitions when partitions were added to a topic. Within a partition offsets
decide, between partitions timestamps do, and with a producer whose clock is behind, the latest
record may change back. So a snapshot also stores, hidden from readers, the newest record of each
key in the other partitions, and the dropped tombstones: an incremental run then gives the same
result as a full run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.access import Cluster, access_of
from goqueue.spark.options import ReadOptions
from goqueue.spark.pipelines.archive_reading import frame_of, open_archive, superseded_frame
from goqueue.spark.pipelines.archiving import archive_schema, plan_archive
from goqueue.spark.pipelines.digests import total
from goqueue.spark.pipelines.folders import folder_of, locked
from goqueue.spark.pipelines.jobs import OnProgress, plain_errors, watched
from goqueue.spark.pipelines.manifests import (
    Archive,
    Manifest,
    Piece,
    TopicPosition,
    advanced,
    commit,
    load_archive,
)
from goqueue.spark.pipelines.parquet_files import Layout, RecordFiles
from goqueue.spark.pipelines.replaying import topic_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Records in the same range of this size are written by one task.
OFFSETS_TOGETHER = 1_000_000
_IS_LATEST = "_is_latest"


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of one run; without new records there is no manifest."""

    manifest: Manifest | None
    strays_removed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Source:
    records: DataFrame
    positions: dict[str, TopicPosition]
    losses: tuple[str, ...] = ()


def latest_per_key(
    records: DataFrame, *, keeps_tombstones: bool = True, keeps_keyless: bool = False
) -> DataFrame:
    """Return the latest record of each key: by offset, between partitions by timestamp."""
    from pyspark.sql.functions import col

    marked = _marked(records, keeps_tombstones=keeps_tombstones, keeps_keyless=keeps_keyless)
    return marked.where(col(_IS_LATEST)).select(*records.columns)


def _marked(records: DataFrame, *, keeps_tombstones: bool, keeps_keyless: bool) -> DataFrame:
    """Return the newest record of each key in each partition, with a column that marks the latest.

    Offsets are compared before values are read, so that only retained values are shuffled.
    """
    from pyspark.sql import Window
    from pyspark.sql.functions import col, lit, max, row_number

    keyed = records.where(col("key").isNotNull())
    last = keyed.groupBy("topic", "partition", "key").agg(max("offset").alias("offset"))
    position_columns = ["topic", "partition", "offset"]
    latest = keyed.join(last.select(*position_columns), position_columns, "left_semi")
    # A key moves when partitions are added; offsets of two partitions cannot be compared.
    newest_first = Window.partitionBy("topic", "key").orderBy(
        col("timestamp").desc(), col("partition").desc()
    )
    is_latest = row_number().over(newest_first) == 1
    if not keeps_tombstones:
        is_latest &= col("value").isNotNull()
    marked = latest.withColumn(_IS_LATEST, is_latest).select(*records.columns, _IS_LATEST)
    if keeps_keyless:
        keyless = records.where(col("key").isNull()).withColumn(_IS_LATEST, lit(True))
        marked = marked.unionByName(keyless)
    return marked


def compact(
    spark: SparkSession,
    folder: str | Path,
    *,
    bootstrap: str | None = None,
    topic: str | None = None,
    archive: str | Path | None = None,
    keeps_tombstones: bool = True,
    keeps_keyless: bool = False,
    layout: Layout = "partition",
    fails_on_data_loss: bool = True,
    access: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> CompactResult:
    """Create a new snapshot of the latest records of a topic, or of an archive.

    `access` are options for TLS and credentials, as those of the data source.
    """
    if (archive is None) == (topic is None):
        raise InvalidRequest("Name an archive or a topic to compact, one of them.")
    path, began = folder_of(folder), time.time()
    if archive is not None and folder_of(archive) == path:
        raise InvalidRequest("An archive cannot be compacted into itself; name another folder.")
    with locked(path):
        held = load_archive(path)
        refuse_appended(held)
        strays = held.remove_strays()
        source = (
            _archive_source(spark, held, archive)
            if archive is not None
            else _topic_source(
                spark,
                held,
                ReadOptions(
                    bootstrap=bootstrap or "",
                    topics=(topic or "",),
                    fails_on_data_loss=fails_on_data_loss,
                    access=access_of(access),
                ),
            )
        )
        manifest = None
        if source is not None:
            marked = _marked(
                source.records, keeps_tombstones=keeps_tombstones, keeps_keyless=keeps_keyless
            )
            with plain_errors(), watched(spark, on_progress):
                written = write_snapshot(marked, path, layout)
            manifest = _manifest(held, source, written, started_at_ms=int(began * 1000))
            commit(path, manifest)
    return CompactResult(manifest, strays, time.time() - began)


def refuse_appended(held: Archive) -> None:
    if any(one.kind != "snapshot" for one in held.manifests):
        raise InvalidRequest(
            f"{held.folder} holds an archive of every record; name another folder for the latest "
            "record of each key."
        )


def _topic_source(spark: SparkSession, held: Archive, options: ReadOptions) -> _Source | None:
    """Return the last snapshot and the newer records of the topic; None if there are none."""
    (topic,) = options.topics
    strangers = set(held.positions) - {topic}
    if strangers:
        raise InvalidRequest(
            f"{held.folder} holds the records of topic {', '.join(sorted(strangers))}; name "
            "another folder."
        )
    plan = plan_archive(options, held)
    if not plan.ranges and not plan.losses:
        return None
    fresh = topic_frame(
        spark,
        Cluster(options.bootstrap, options.access),
        topic,
        starts={one.partition.partition: one.start for one in plan.ranges},
        ends={one.partition.partition: one.end for one in plan.ranges},
    )
    records = fresh
    if held.manifests:
        before = frame_of(spark, held).unionByName(superseded_frame(spark, held))
        records = before.unionByName(fresh)
    ends = [(one.partition, one.topic_id, one.end) for one in plan.ranges]
    return _Source(records, advanced(held.positions, ends), plan.losses)


def _archive_source(spark: SparkSession, held: Archive, archive: str | Path) -> _Source | None:
    source = open_archive(archive)
    if held.manifests and held.positions == source.positions:
        return None
    return _Source(frame_of(spark, source), dict(source.positions))


class WrittenPiece(msgspec.Struct, frozen=True):
    """Files written by one task, and whether they hold the latest records of their keys."""

    piece: Piece
    is_latest: bool


def write_snapshot(marked: DataFrame, folder: Path, layout: Layout) -> list[WrittenPiece]:
    """Write records into files of an archive, in order of their positions."""
    from pyspark.sql.functions import expr

    ordered = marked.repartition(
        "topic", "partition", expr(f"offset div {OFFSETS_TOGETHER}")
    ).sortWithinPartitions("topic", "partition", "offset")
    rows = ordered.mapInArrow(partial(write_rows, folder, layout), "piece binary").collect()
    written = [msgspec.json.decode(bytes(row["piece"]), type=WrittenPiece) for row in rows]
    return sorted(written, key=lambda one: (one.piece.topic, one.piece.partition, one.piece.start))


def write_rows(
    folder: Path, layout: Layout, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task; runs on a worker. Each result row is a piece as JSON."""
    from goqueue.spark.pipelines.copying import by_source

    schema = archive_schema()
    files: dict[tuple[TopicPartition, bool], RecordFiles] = {}
    try:
        for source, rows in by_source(batches):
            for is_latest in (True, False):
                chosen = rows.filter(pc.equal(rows[_IS_LATEST], is_latest))
                if not len(chosen):
                    continue
                if (source, is_latest) not in files:
                    files[source, is_latest] = RecordFiles(folder, source, layout, schema)
                columns = [chosen[one.name].cast(one.type) for one in schema]
                files[source, is_latest].add(pa.RecordBatch.from_arrays(columns, schema=schema))
        pieces = [
            WrittenPiece(_piece(source, some), is_latest)
            for (source, is_latest), some in files.items()
        ]
    except BaseException:
        for some in files.values():
            some.discard()
        raise
    if pieces:
        encoded = [msgspec.json.encode(piece) for piece in pieces]
        yield pa.RecordBatch.from_arrays([pa.array(encoded, pa.binary())], names=["piece"])


def _piece(source: TopicPartition, files: RecordFiles) -> Piece:
    written = files.close()
    return Piece(
        topic=source.topic,
        partition=source.partition,
        start=min(file.first_offset for file in written),
        end=max(file.last_offset for file in written) + 1,
        digest=total(file.digest for file in written),
        files=written,
    )


def _manifest(
    held: Archive, source: _Source, written: list[WrittenPiece], *, started_at_ms: int
) -> Manifest:
    return Manifest(
        number=held.number_next,
        run_id=uuid.uuid4().hex,
        kind="snapshot",
        started_at_ms=started_at_ms,
        committed_at_ms=time.time_ns() // 1_000_000,
        positions=source.positions,
        pieces=tuple(one.piece for one in written if one.is_latest),
        losses=source.losses,
        superseded=tuple(one.piece for one in written if not one.is_latest),
    )
