"""Copies a topic into another with more partitions, preserving the order of each key.

Adding partitions to a topic sends keys to other partitions from then on, and their old records stay
behind. Copying into a new topic moves all records of a key together. A run copies what exists;
repeat it until nothing is left, switch the producers over, and run it one last time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from goqueue.client import ConfigSource, LogClient
from goqueue.model.errors import InvalidRequest, UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.spark import losses
from goqueue.spark.access import Cluster, access_of
from goqueue.spark.connecting import connect
from goqueue.spark.options import ReadOptions
from goqueue.spark.pipelines.copy_progress import Step, all_steps, copied
from goqueue.spark.pipelines.copy_verifying import verify_copy
from goqueue.spark.pipelines.copying import CopyOrder, settle
from goqueue.spark.pipelines.digests import Digest
from goqueue.spark.pipelines.folders import folder_of, locked, write_new
from goqueue.spark.pipelines.jobs import OnProgress
from goqueue.spark.pipelines.replaying import run_copy, topic_frame
from goqueue.spark.pipelines.selection import Selection
from goqueue.spark.planning import Snapshot, look
from goqueue.spark.sink.options import located_http

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAN = "redistribute.json"
_PLAN_VERSION = 2


class RedistributePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Source and target, recorded by the first run; a later one must have the same."""

    format: str = "goqueue-redistribute"
    version: int = _PLAN_VERSION
    copy_id: str = ""  # id of the copy on the broker
    source: str
    source_id: str
    target: str
    target_id: str
    is_marked: bool


@dataclass(frozen=True, slots=True)
class RedistributeResult:
    """What this run copied, and what all runs together have copied."""

    copied: int
    verified: int
    digest: Digest
    partitions: int
    seconds: float


def redistribute(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    state: str | Path,
    *,
    partitions: int | None = None,
    is_marked: bool = False,
    is_verified: bool = True,
    http: str | None = None,
    access: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> RedistributeResult:
    """Copy the new records of `source` into `target`, which is created if it does not exist.

    Keys go to the partitions that every client of the target uses. `http` is the address of the
    broker's HTTP API, requested from the broker if not given. `access` are options for TLS and
    credentials, as those of the data source.
    """
    if source == target:
        raise InvalidRequest("A topic cannot be redistributed into itself; name another target.")
    began = time.monotonic()
    folder, login = folder_of(state), access_of(access)
    with connect(bootstrap, login) as client:
        seen = look(client, ReadOptions(bootstrap=bootstrap, topics=(source,)))
        count = settled_target(client, source, target, partitions)
        wanted = _plan(client, seen, source, target, is_marked)
    with locked(folder):
        plan = settled_plan(folder, wanted)
        order = CopyOrder(
            bootstrap=bootstrap,
            http=located_http(bootstrap, http, login),
            target=target,
            run_id=folder.name,
            copy_id=plan.copy_id,
            state=folder,
            is_marked=is_marked,
            access=login,
        )
        done = _run(spark, seen, source, order, is_verified, on_progress)
    return replace(done, partitions=count, seconds=time.monotonic() - began)


def _run(
    spark: SparkSession,
    seen: Snapshot,
    source: str,
    order: CopyOrder,
    is_verified: bool,
    on_progress: OnProgress | None,
) -> RedistributeResult:
    """Copy what earlier runs have not; the caller fills in the remaining fields."""
    settle(order)
    before = all_steps(order.state)
    starts, ends = open_ranges(seen, before)
    frame = topic_frame(
        spark, Cluster(order.bootstrap, order.access), source, starts=starts, ends=ends
    )
    done, _ = run_copy(spark, frame, Selection(), order, len(starts), on_progress)
    after = all_steps(order.state)
    fresh = {one: steps[len(before.get(one, ())) :] for one, steps in after.items()}
    verified = verify_copy(spark, order, fresh, on_progress=on_progress) if is_verified else 0
    return RedistributeResult(
        copied=done,
        verified=verified,
        digest=copied(after.values()),
        partitions=0,
        seconds=0.0,
    )


def settled_target(client: LogClient, source: str, target: str, partitions: int | None) -> int:
    """Create the target with the settings of the source, or check that it fits."""
    try:
        count = len(client.topics.view(target).partitions)
    except UnknownTopic:
        if partitions is None:
            raise InvalidRequest(
                f"There is no topic {target!r}; say how many partitions it shall have."
            ) from None
        settings = {
            one.name: one.value
            for one in client.topics.describe(source).settings
            if one.source is ConfigSource.TOPIC and one.value is not None
        }
        client.topics.create(target, partition_count=partitions, settings=settings)
        return partitions
    if partitions is not None and count != partitions:
        raise InvalidRequest(
            f"Topic {target!r} has {count} partitions and not {partitions}; name another, or leave "
            "the number out."
        )
    return count


def open_ranges(
    seen: Snapshot, done: Mapping[TopicPartition, list[Step]]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return what is left to copy of each partition: start and end."""
    starts, ends, lost = {}, {}, []
    for partition, kept in seen.kept.items():
        steps = done.get(partition)
        start = steps[-1].offset_next if steps else kept.start
        if start < kept.start:
            lost.append(losses.expired(partition, start, kept.start))
        if start < kept.end:
            starts[partition.partition], ends[partition.partition] = start, kept.end
    losses.report(lost, is_fatal=True)
    return starts, ends


def settled_plan(folder: Path, wanted: RedistributePlan) -> RedistributePlan:
    file = folder / PLAN
    if not file.exists():
        write_new(file, msgspec.json.format(msgspec.json.encode(wanted)))
        return wanted
    plan = msgspec.json.decode(file.read_bytes(), type=RedistributePlan)
    if msgspec.structs.replace(wanted, copy_id=plan.copy_id) != plan:
        raise InvalidRequest(
            f"{folder} belongs to another redistribution: topic {plan.source!r} into "
            f"{plan.target!r}, as they were then; name another folder."
        )
    return plan


def _plan(
    client: LogClient, seen: Snapshot, source: str, target: str, is_marked: bool
) -> RedistributePlan:
    return RedistributePlan(
        source=source,
        source_id=seen.ids[source],
        target=target,
        target_id=client.topics.view(target).id.hex(),
        is_marked=is_marked,
        copy_id=uuid.uuid4().hex,
    )
