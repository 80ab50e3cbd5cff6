"""Compact: the latest record of each key, of a topic or an archive, as an archive of its own.

The result is a snapshot that stands for all before it. A later run reads the last snapshot and what
the topic has got since, so that the work follows what is new and what is kept, not what ever was.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.options import ReadOptions
from goqueue.spark.pipelines.archive_reading import frame_of, open_archive
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

# Records that lie so near each other are written by one task.
OFFSETS_TOGETHER = 1_000_000


@dataclass(frozen=True, slots=True)
class CompactResult:
    """What one run did; without new records there is no manifest."""

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
    """The record with the largest offset of each key; of several partitions, the youngest.

    Offsets are compared before values are read, so that only values that stay are moved about.
    """
    from pyspark.sql import Window
    from pyspark.sql.functions import col, max, row_number

    keyed = records.where(col("key").isNotNull())
    last = keyed.groupBy("topic", "partition", "key").agg(max("offset").alias("offset"))
    places = ["topic", "partition", "offset"]
    latest = keyed.join(last.select(*places), places, "left_semi")
    # A key moves to another partition when the topic grows; offsets of two cannot be compared.
    newest_first = Window.partitionBy("topic", "key").orderBy(
        col("timestamp").desc(), col("partition").desc()
    )
    latest = latest.withColumn("_rank", row_number().over(newest_first)).where("_rank = 1")
    latest = latest.select(*records.columns)
    if not keeps_tombstones:
        latest = latest.where(col("value").isNotNull())
    if keeps_keyless:
        latest = latest.unionByName(records.where(col("key").isNull()))
    return latest


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
    on_progress: OnProgress | None = None,
) -> CompactResult:
    """Make a new snapshot of the latest records of a topic, or of an archive."""
    if (archive is None) == (topic is None):
        raise InvalidRequest("Name an archive or a topic to compact, one of them.")
    place, began = folder_of(folder), time.time()
    if archive is not None and folder_of(archive) == place:
        raise InvalidRequest("An archive cannot be compacted into itself; name another folder.")
    with locked(place):
        held = load_archive(place)
        refuse_appended(held)
        strays = held.remove_strays()
        source = (
            _archive_source(spark, held, archive)
            if archive is not None
            else _topic_source(spark, held, bootstrap or "", topic or "", fails_on_data_loss)
        )
        manifest = None
        if source is not None:
            latest = latest_per_key(
                source.records, keeps_tombstones=keeps_tombstones, keeps_keyless=keeps_keyless
            )
            with plain_errors(), watched(spark, on_progress):
                pieces = write_snapshot(latest, place, layout)
            manifest = _manifest(held, source, pieces, started_at_ms=int(began * 1000))
            commit(place, manifest)
    return CompactResult(manifest, strays, time.time() - began)


def refuse_appended(held: Archive) -> None:
    if any(one.kind != "snapshot" for one in held.manifests):
        raise InvalidRequest(
            f"{held.folder} holds an archive of every record; name another folder for the latest "
            "record of each key."
        )


def _topic_source(
    spark: SparkSession, held: Archive, bootstrap: str, topic: str, fails_on_data_loss: bool
) -> _Source | None:
    """The last snapshot and what the topic has got since; nothing if there is nothing new."""
    options = ReadOptions(
        bootstrap=bootstrap, topics=(topic,), fails_on_data_loss=fails_on_data_loss
    )
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
        bootstrap,
        topic,
        starts={one.partition.partition: one.start for one in plan.ranges},
        ends={one.partition.partition: one.end for one in plan.ranges},
    )
    records = frame_of(spark, held).unionByName(fresh) if held.manifests else fresh
    ends = [(one.partition, one.topic_id, one.end) for one in plan.ranges]
    return _Source(records, advanced(held.positions, ends), plan.losses)


def _archive_source(spark: SparkSession, held: Archive, archive: str | Path) -> _Source | None:
    source = open_archive(archive)
    if held.manifests and held.positions == source.positions:
        return None
    return _Source(frame_of(spark, source), dict(source.positions))


def write_snapshot(records: DataFrame, folder: Path, layout: Layout) -> list[Piece]:
    """Write records into files of an archive, in order of their places."""
    from pyspark.sql.functions import expr

    ordered = records.repartition(
        "topic", "partition", expr(f"offset div {OFFSETS_TOGETHER}")
    ).sortWithinPartitions("topic", "partition", "offset")
    rows = ordered.mapInArrow(partial(write_rows, folder, layout), "piece binary").collect()
    pieces = [msgspec.json.decode(bytes(row["piece"]), type=Piece) for row in rows]
    return sorted(pieces, key=lambda one: (one.topic, one.partition, one.start))


def write_rows(
    folder: Path, layout: Layout, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task; runs on a worker. A row of the result is a piece as JSON."""
    from goqueue.spark.pipelines.copying import by_source

    schema = archive_schema()
    files: dict[TopicPartition, RecordFiles] = {}
    try:
        for source, rows in by_source(batches):
            if source not in files:
                files[source] = RecordFiles(folder, source, layout, schema)
            columns = [rows[one.name].cast(one.type) for one in schema]
            files[source].add(pa.RecordBatch.from_arrays(columns, schema=schema))
        pieces = [_piece(source, some) for source, some in files.items()]
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
    held: Archive, source: _Source, pieces: list[Piece], *, started_at_ms: int
) -> Manifest:
    return Manifest(
        number=held.number_next,
        run_id=uuid.uuid4().hex,
        kind="snapshot",
        started_at_ms=started_at_ms,
        committed_at_ms=time.time_ns() // 1_000_000,
        positions=source.positions,
        pieces=tuple(pieces),
        losses=source.losses,
    )
