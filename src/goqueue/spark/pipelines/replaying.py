"""Replays records of an archive, or of a range of a topic, into a topic.

A run has a name and a folder for its state. The first call of a run records its plan; a later call
with the same name completes exactly that plan, and one with different arguments is refused. However
a call ends, the calls of a run together write each record exactly once.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from goqueue.model.errors import InvalidRequest, UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.spark.access import OPEN, Access, Cluster, access_of
from goqueue.spark.connecting import connect
from goqueue.spark.options import ReadOptions, Start
from goqueue.spark.pipelines.archive_reading import empty_frame, frame_of, open_archive
from goqueue.spark.pipelines.copy_progress import all_steps, copied
from goqueue.spark.pipelines.copy_verifying import verify_copy
from goqueue.spark.pipelines.copying import (
    CopyOrder,
    Partitioning,
    check_order,
    copy_frame,
    settle,
)
from goqueue.spark.pipelines.digests import Digest
from goqueue.spark.pipelines.folders import folder_of, locked, write_new
from goqueue.spark.pipelines.jobs import OnProgress, plain_errors, watched
from goqueue.spark.pipelines.manifests import Archive, DamagedArchive
from goqueue.spark.pipelines.selection import Selection, select
from goqueue.spark.planning import chosen_ranges, look
from goqueue.spark.sink.options import located_http

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAN = "replay.json"
REPLAYS = "replays"
_PLAN_VERSION = 2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class SourceRange(msgspec.Struct, frozen=True, kw_only=True):
    """The range to read of one partition of a topic."""

    partition: int
    start: int
    end: int


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a run, recorded before it begins; a later call must have the same."""

    format: str = "goqueue-replay"
    version: int = _PLAN_VERSION
    copy_id: str = ""  # id of the run on the broker; a name can be reused, this id cannot
    source: str  # a folder, or a topic
    is_archive: bool
    manifests: int = 0  # number of the archive's manifests that are replayed
    topic_id: str = ""
    ranges: tuple[SourceRange, ...] = ()
    bootstrap: str
    target: str
    selection: Selection
    keeps_timestamps: bool
    partitioning: Partitioning
    is_marked: bool


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What the run has stored, over all its calls, and the part of this call."""

    run_id: str
    copied: int  # by this call
    present: int  # by earlier calls
    digest: Digest
    verified: int  # records read again in the target and found equal
    unplaced: int
    seconds: float


def replay(
    spark: SparkSession,
    bootstrap: str,
    target: str,
    *,
    run_id: str,
    archive: str | Path | None = None,
    topic: str | None = None,
    state: str | Path | None = None,
    start: Start | None = None,
    end: Start | None = None,
    selection: Selection | None = None,
    keeps_timestamps: bool = True,
    partitioning: Partitioning = "key",
    is_marked: bool = False,
    is_verified: bool = True,
    http: str | None = None,
    access: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> ReplayResult:
    """Replay the selected records of an archive or of a topic, and verify them in the target.

    `http` is the address of the broker's HTTP API, requested from the broker if not given. `access`
    are options for TLS and credentials, as those of the data source; a run may go on with others.
    """
    _check_names(run_id, archive, topic, target)
    wanted = ReplayPlan(
        source=str(folder_of(archive)) if archive is not None else topic or "",
        is_archive=archive is not None,
        bootstrap=bootstrap,
        target=target,
        selection=selection or Selection(),
        keeps_timestamps=keeps_timestamps,
        partitioning=partitioning,
        is_marked=is_marked,
    )
    # Errors are reported before the name of the run is taken.
    cluster = Cluster(bootstrap, access_of(access))
    target_partitions = partition_count(cluster, target)
    select(empty_frame(spark), wanted.selection)
    folder = _state_folder(archive, state, run_id)
    began = time.monotonic()
    with locked(folder):
        plan = settled_plan(folder, wanted, start, end, cluster.access)
        order = _order_of(plan, run_id, folder, cluster, http)
        done = _run(spark, plan, order, target_partitions, is_verified, on_progress)
    return replace(done, seconds=time.monotonic() - began)


def _check_names(run_id: str, archive: str | Path | None, topic: str | None, target: str) -> None:
    if (archive is None) == (topic is None):
        raise InvalidRequest("Name an archive or a topic to replay, one of them.")
    if not _NAME.fullmatch(run_id):
        raise InvalidRequest(
            f"{run_id!r} is not a valid run name; use letters, digits, dots, dashes, underscores."
        )
    if topic is not None and topic == target:
        raise InvalidRequest("A topic cannot be replayed into itself; name another target.")


def _order_of(
    plan: ReplayPlan, run_id: str, folder: Path, cluster: Cluster, http: str | None
) -> CopyOrder:
    return CopyOrder(
        bootstrap=plan.bootstrap,
        http=located_http(cluster.bootstrap, http, cluster.access),
        target=plan.target,
        run_id=run_id,
        copy_id=plan.copy_id,
        state=folder,
        keeps_timestamps=plan.keeps_timestamps,
        partitioning=plan.partitioning,
        is_marked=plan.is_marked,
        access=cluster.access,
    )


def _run(
    spark: SparkSession,
    plan: ReplayPlan,
    order: CopyOrder,
    target_partitions: int,
    is_verified: bool,
    on_progress: OnProgress | None,
) -> ReplayResult:
    """Complete a plan; the caller adds the duration."""
    records, sources = _source_frame(spark, plan, order.access)
    last = max((one.partition for one in sources), default=-1)
    check_order(order, source_partitions=last + 1, target_partitions=target_partitions)
    settle(order)
    counts = run_copy(spark, records, plan.selection, order, len(sources), on_progress)
    steps = all_steps(order.state)
    _check_source(plan, copied(steps.values()))
    verified = verify_copy(spark, order, steps, on_progress=on_progress) if is_verified else 0
    return ReplayResult(
        run_id=order.run_id,
        copied=counts[0],
        present=counts[1],
        digest=copied(steps.values()),
        verified=verified,
        unplaced=sum(step.unplaced for some in steps.values() for step in some),
        seconds=0.0,
    )


def run_copy(
    spark: SparkSession,
    records: DataFrame,
    selection: Selection,
    order: CopyOrder,
    tasks: int,
    on_progress: OnProgress | None,
) -> tuple[int, int]:
    """Copy the selected records; return how many were copied now, and how many existed."""
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise InvalidRequest(
            "With spark.speculation Spark runs a task twice at once, and both would write; set it "
            "to false."
        )
    with plain_errors(), watched(spark, on_progress):
        rows = copy_frame(select(records, selection), order, tasks=tasks).collect()
    return sum(row["copied"] for row in rows), sum(row["present"] for row in rows)


def settled_plan(
    folder: Path,
    wanted: ReplayPlan,
    start: Start | None,
    end: Start | None,
    access: Access = OPEN,
) -> ReplayPlan:
    """Return the plan of the run: recorded by its first call, the same for all others."""
    file = folder / PLAN
    if not file.exists():
        plan = _pinned(wanted, start, end, access)
        write_new(file, msgspec.json.format(msgspec.json.encode(plan)))
        return plan
    plan = msgspec.json.decode(file.read_bytes(), type=ReplayPlan)
    if plan.version != _PLAN_VERSION:
        raise InvalidRequest(
            f"{file} was written by another version of this program; give the new run another name."
        )
    requested = msgspec.structs.replace(
        wanted,
        copy_id=plan.copy_id,
        manifests=plan.manifests,
        topic_id=plan.topic_id,
        ranges=plan.ranges,
    )
    if requested != plan:
        differing = [
            name
            for name in ReplayPlan.__struct_fields__
            if getattr(requested, name) != getattr(plan, name)
        ]
        raise InvalidRequest(
            f"A run of this name was begun with another {', '.join(differing)} ({file}); give the "
            "new run another name."
        )
    return plan


def _pinned(
    wanted: ReplayPlan, start: Start | None, end: Start | None, access: Access
) -> ReplayPlan:
    """Plan the records that exist now: later records belong to another run."""
    wanted = msgspec.structs.replace(wanted, copy_id=uuid.uuid4().hex)
    if wanted.is_archive:
        held = open_archive(wanted.source)
        return msgspec.structs.replace(wanted, manifests=len(held.manifests))
    options = ReadOptions(bootstrap=wanted.bootstrap, topics=(wanted.source,))
    options = replace(options, start=start or options.start, end=end or options.end)
    with connect(wanted.bootstrap, access) as client:
        seen = look(client, options)
        ranges = chosen_ranges(client, options, seen)
    return msgspec.structs.replace(
        wanted,
        topic_id=seen.ids[wanted.source],
        ranges=tuple(
            SourceRange(partition=one.partition.partition, start=one.start, end=one.end)
            for one in ranges
        ),
    )


def _source_frame(
    spark: SparkSession, plan: ReplayPlan, access: Access
) -> tuple[DataFrame, list[TopicPartition]]:
    if plan.is_archive:
        held = _as_planned(plan)
        sources = {TopicPartition(one.topic, one.partition) for one in held.pieces}
        chosen = plan.selection
        frame = frame_of(spark, held, from_ms=chosen.from_ms, until_ms=chosen.until_ms)
        return frame, sorted(sources)
    cluster = Cluster(plan.bootstrap, access)
    check_topic(cluster, plan.source, plan.topic_id)
    sources_there = [TopicPartition(plan.source, one.partition) for one in plan.ranges]
    frame = topic_frame(
        spark,
        cluster,
        plan.source,
        starts={one.partition: one.start for one in plan.ranges},
        ends={one.partition: one.end for one in plan.ranges},
    )
    return frame, sources_there


def topic_frame(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    *,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> DataFrame:
    """Return ranges of a topic with all columns."""
    from goqueue.spark.session import enable

    if not starts:
        return empty_frame(spark)
    reader = enable(spark).read.format("goqueue")
    options = {
        **dict(cluster.access.options),
        "kafka.bootstrap.servers": cluster.bootstrap,
        "assign": _json({topic: sorted(starts)}),
        "startingOffsets": _json({topic: {str(n): at for n, at in starts.items()}}),
        "endingOffsets": _json({topic: {str(n): at for n, at in ends.items()}}),
        "includeHeaders": "true",
    }
    return reader.options(**options).load()


def partition_count(cluster: Cluster, topic: str) -> int:
    """Return the partition count of a topic; a target is never created implicitly."""
    with connect(cluster.bootstrap, cluster.access) as client:
        try:
            return len(client.topics.view(topic).partitions)
        except UnknownTopic:
            raise InvalidRequest(
                f"There is no topic {topic!r}; create it with `goqueue topic create {topic}`."
            ) from None


def check_topic(cluster: Cluster, topic: str, topic_id: str) -> None:
    with connect(cluster.bootstrap, cluster.access) as client:
        if client.topics.view(topic).id.hex() != topic_id:
            raise InvalidRequest(
                f"Topic {topic!r} was deleted and created again since this run began; begin "
                "another run."
            )


def _as_planned(plan: ReplayPlan) -> Archive:
    held = open_archive(plan.source)
    if len(held.manifests) < plan.manifests:
        raise DamagedArchive(
            f"{held.folder} had {plan.manifests} manifests when this run began and has "
            f"{len(held.manifests)} now."
        )
    planned = Archive(held.folder, held.manifests[: plan.manifests])
    if any(one.kind == "snapshot" for one in held.manifests[plan.manifests :]):
        raise InvalidRequest(
            f"{held.folder} was compacted again since this run began, and its old files may be "
            "gone; begin another run."
        )
    return planned


def _check_source(plan: ReplayPlan, found: Digest) -> None:
    """Check that a whole archive that was replayed is what was archived."""
    if not plan.is_archive or plan.selection != Selection():
        return
    expected = _as_planned(plan).digest
    if found != expected:
        raise DamagedArchive(
            f"{plan.source} holds {expected.records} records by its manifests, and {found.records} "
            "with other sums were read; run `goqueue pipeline run verify` on it."
        )


def _state_folder(archive: str | Path | None, state: str | Path | None, run_id: str) -> Path:
    if state is not None:
        return folder_of(state) / run_id
    if archive is None:
        raise InvalidRequest("Name a folder in which a replay of a topic can note how far it is.")
    return folder_of(archive) / REPLAYS / run_id


def _json(tree: object) -> str:
    return msgspec.json.encode(tree).decode()
