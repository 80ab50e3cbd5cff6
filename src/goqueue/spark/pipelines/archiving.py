"""Archives the contents of topics in Parquet files that outlive them.

    archive(spark, "127.0.0.1:9092", ["orders"], "/archive/orders")

A run continues where the last one ended, by the offsets in its manifest. It takes committed records
and leaves the rest to the next run. Tasks decode batches and write files where they run; only the
descriptions of the files are returned to the driver, which commits them as one manifest.
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
from goqueue.spark import losses as loss_texts
from goqueue.spark.access import access_of
from goqueue.spark.connecting import connect
from goqueue.spark.losses import report
from goqueue.spark.options import EARLIEST, LATEST, SPLIT_BYTES_DEFAULT, ReadOptions, Start
from goqueue.spark.pipelines.digests import total
from goqueue.spark.pipelines.folders import folder_of, locked
from goqueue.spark.pipelines.jobs import OnProgress, run_units
from goqueue.spark.pipelines.manifests import (
    Archive,
    Manifest,
    Piece,
    TopicPosition,
    advanced,
    commit,
    load_archive,
)
from goqueue.spark.pipelines.parquet_files import LAYOUTS, Layout
from goqueue.spark.planning import OffsetRange, Snapshot, chosen_ranges, look, record_bytes, split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LATENCY_BUCKETS = 48  # the last begins at some four thousand years


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run archives."""

    ranges: tuple[OffsetRange, ...]  # one for each partition with new records
    tasks: tuple[OffsetRange, ...]
    losses: tuple[str, ...]
    options: ReadOptions


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of one run; without new records there is no manifest."""

    manifest: Manifest | None
    strays_removed: int
    seconds: float


def archive(
    spark: SparkSession,
    bootstrap: str,
    topics: Sequence[str],
    folder: str | Path,
    *,
    layout: Layout = "time",
    fails_on_data_loss: bool = True,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    records_per_task_max: int | None = None,
    access: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> ArchiveResult:
    """Append the new records of topics to an archive, as one manifest.

    `access` are options for TLS and credentials, as those of the data source.
    """
    if layout not in LAYOUTS:
        raise InvalidRequest(f"The layout is {layout!r}; give one of {', '.join(LAYOUTS)}.")
    path = folder_of(folder)
    began = time.time()
    options = ReadOptions(
        bootstrap=bootstrap,
        topics=checked_topics(topics),
        has_headers=True,
        fails_on_data_loss=fails_on_data_loss,
        split_bytes=split_bytes,
        records_per_task_max=records_per_task_max,
        access=access_of(access),
    )
    with locked(path):
        held = load_archive(path)
        refuse_snapshot(held)
        strays = held.remove_strays()
        plan = plan_archive(options, held)
        work = partial(archive_piece, plan.options, path, layout)
        pieces = run_units(spark, plan.tasks, work, on_progress=on_progress)
        manifest = None
        if plan.ranges or plan.losses:
            manifest = manifest_of(held, plan, pieces, started_at_ms=int(began * 1000))
            commit(path, manifest)
    return ArchiveResult(manifest, strays, time.time() - began)


def checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in topics if name.strip()))
    if not names:
        raise InvalidRequest("Name at least one topic.")
    return names


def refuse_snapshot(held: Archive) -> None:
    if any(one.kind == "snapshot" for one in held.manifests):
        raise InvalidRequest(
            f"{held.folder} holds the latest record of each key; name another folder to archive "
            "every record."
        )


def plan_archive(options: ReadOptions, held: Archive) -> Plan:
    """Plan the records since the last manifest, split into tasks."""
    with connect(options.bootstrap, options.access) as client:
        seen = look(client, options)
        starts, losses = starting_places(seen, held.positions)
        report(losses, is_fatal=options.fails_on_data_loss)
        options = reading_from(options, starts)
        ranges = chosen_ranges(client, options, seen)
        tasks = split(ranges, record_bytes(client, seen), options)
    return Plan(tuple(ranges), tuple(tasks), tuple(losses), options)


def reading_from(options: ReadOptions, starts: dict[str, dict[int, int]]) -> ReadOptions:
    start = Start(EARLIEST, offsets=starts)
    return replace(options, start=start, end=Start(LATEST))


def starting_places(
    seen: Snapshot, positions: Mapping[str, TopicPosition]
) -> tuple[dict[str, dict[int, int]], list[str]]:
    """Return where to continue in each partition, and which records are lost."""
    starts: dict[str, dict[int, int]] = {}
    lost: list[str] = []
    for partition, kept in seen.kept.items():
        known = positions.get(partition.topic)
        if known is None:
            continue
        if known.topic_id != seen.ids[partition.topic]:
            if (text := loss_texts.recreated(partition.topic)) not in lost:
                lost.append(text)
            continue
        wanted = known.offsets.get(partition.partition)
        if wanted is None:
            continue
        if wanted < kept.start:
            lost.append(loss_texts.expired(partition, wanted, kept.start))
        elif wanted > kept.end:
            lost.append(loss_texts.truncated(partition, wanted, kept.end))
        offset = min(max(wanted, kept.start), kept.end)
        starts.setdefault(partition.topic, {})[partition.partition] = offset
    return starts, lost


def manifest_of(
    held: Archive, plan: Plan, pieces: Sequence[Piece], *, started_at_ms: int
) -> Manifest:
    ends = [(one.partition, one.topic_id, one.end) for one in plan.ranges]
    return Manifest(
        number=held.number_next,
        run_id=uuid.uuid4().hex,
        started_at_ms=started_at_ms,
        committed_at_ms=time.time_ns() // 1_000_000,
        positions=advanced(held.positions, ends),
        pieces=tuple(pieces),
        losses=plan.losses,
    )


def archive_piece(options: ReadOptions, folder: Path, layout: Layout, wanted: OffsetRange) -> Piece:
    """Read an offset range and write its files; runs on a worker."""
    from goqueue.spark.columns import CHUNK_BYTES_LARGE, record_batches
    from goqueue.spark.pipelines.parquet_files import RecordFiles
    from goqueue.spark.reading import read_batches

    schema = archive_schema()
    rows = record_batches(
        read_batches(options, wanted), wanted, schema, chunk_bytes=CHUNK_BYTES_LARGE
    )
    files = RecordFiles(folder, wanted.partition, layout, schema)
    counts = [0] * LATENCY_BUCKETS
    try:
        for batch in rows:
            if len(batch):
                files.add(batch)
                counts = [a + b for a, b in zip(counts, _latencies(batch), strict=True)]
        written = files.close()
    except BaseException:
        files.discard()
        raise
    return Piece(
        topic=wanted.partition.topic,
        partition=wanted.partition.partition,
        start=wanted.start,
        end=wanted.end,
        digest=total(file.digest for file in written),
        files=written,
        latencies=tuple(counts),
    )


def archive_schema() -> pa.Schema:
    """Return the columns of an archive's files: all columns of the data source."""
    from goqueue.spark.schema import arrow_schema, table_schema

    return arrow_schema(table_schema(has_headers=True, view="records"), view="records")


def _latencies(batch: pa.RecordBatch) -> list[int]:
    import pyarrow as pa

    from goqueue.spark.pipelines.parquet_files import latency_counts

    times_us = batch["timestamp"].cast(pa.int64()).to_numpy(zero_copy_only=False)
    return latency_counts([time.time_ns() // 1_000_000 - times_us // 1000], LATENCY_BUCKETS)
