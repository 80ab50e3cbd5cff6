"""Verifies a copy: reads what it has stored in the target and compares it with the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.spark.access import Cluster
from goqueue.spark.connecting import connect
from goqueue.spark.options import SPLIT_BYTES_DEFAULT, ReadOptions
from goqueue.spark.pipelines.copy_progress import Step, copied, is_within, merged
from goqueue.spark.pipelines.copying import MARK_HEADER, CopyOrder
from goqueue.spark.pipelines.digests import Digest, digest_of, total
from goqueue.spark.pipelines.jobs import OnProgress, run_units
from goqueue.spark.planning import OffsetRange, look, record_bytes, split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ReplayDiffers(GoQueueError):
    """The records in the target differ from those that were replayed."""

    code = "replay_differs"


def verify_copy(
    spark: SparkSession,
    order: CopyOrder,
    steps: Mapping[TopicPartition, Sequence[Step]],
    *,
    on_progress: OnProgress | None = None,
) -> int:
    """Read the stored records again, and compare their number and sums with the source's."""
    expected = copied(steps.values())
    if any(step.unplaced for some in steps.values() for step in some):
        return 0  # Some responses of the broker were lost, so the offsets are unknown.
    stored = merged(one for some in steps.values() for step in some for one in step.stored)
    units = _target_units(order, stored)
    found = total(
        run_units(
            spark,
            units,
            partial(_unit_digest, Cluster(order.bootstrap, order.access)),
            on_progress=on_progress,
        )
    )
    is_equal = found.records == expected.records and found.content == expected.content
    if order.keeps_timestamps:
        is_equal = is_equal and found.timed == expected.timed
    if not is_equal:
        raise ReplayDiffers(
            f"Topic {order.target!r} holds {found.records} of the {expected.records} records of "
            f"run {order.run_id}, with the sum {found.content} instead of {expected.content}. "
            "Retention or compaction may have removed some, or the topic sets timestamps of its "
            "own: compare with --no-keep-timestamps."
        )
    return found.records


def _target_units(
    order: CopyOrder, stored: Mapping[int, list[tuple[int, int]]]
) -> list[tuple[OffsetRange, list[tuple[int, int]]]]:
    """Split the ranges of the target into tasks, each with what the copy has stored in it."""
    if not stored:
        return []
    options = ReadOptions(
        bootstrap=order.bootstrap,
        topics=(order.target,),
        split_bytes=SPLIT_BYTES_DEFAULT,
        access=order.access,
    )
    with connect(order.bootstrap, order.access) as client:
        seen = look(client, options)
        sizes = record_bytes(client, seen)
    spans = [
        OffsetRange(
            TopicPartition(order.target, partition),
            ranges[0][0],
            ranges[-1][1] + 1,
            seen.ids[order.target],
        )
        for partition, ranges in stored.items()
    ]
    return [
        (
            piece,
            [
                one
                for one in stored[piece.partition.partition]
                if one[0] < piece.end and one[1] >= piece.start
            ],
        )
        for piece in split(spans, sizes, options)
    ]


def _unit_digest(cluster: Cluster, unit: tuple[OffsetRange, list[tuple[int, int]]]) -> Digest:
    return target_digest(cluster, *unit) if unit[1] else Digest()


def target_digest(cluster: Cluster, wanted: OffsetRange, ranges: list[tuple[int, int]]) -> Digest:
    """Return the digest of what a copy has stored in a target range; runs on a worker."""
    from goqueue.spark.columns import record_batches
    from goqueue.spark.options import ReadOptions
    from goqueue.spark.pipelines.archiving import archive_schema
    from goqueue.spark.reading import read_batches

    options = ReadOptions(
        bootstrap=cluster.bootstrap,
        topics=(wanted.partition.topic,),
        has_headers=True,
        access=cluster.access,
    )
    found = Digest()
    for batch in record_batches(read_batches(options, wanted), wanted, archive_schema()):
        inside = is_within(batch["offset"].to_numpy(), ranges)
        found += digest_of(without_marks(batch.filter(pa.array(inside))))
    return found


def without_marks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records as they were before they were marked."""
    index = batch.schema.get_field_index("headers")
    headers = batch["headers"]
    if headers.null_count == len(batch):
        return batch
    bare = [
        None
        if row is None or not (kept := [one for one in row if one["key"] != MARK_HEADER])
        else kept
        for row in headers.to_pylist()
    ]
    return batch.set_column(index, batch.schema.field(index), pa.array(bare, headers.type))
