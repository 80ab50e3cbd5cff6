"""Reads the messages of a queue task from the log, by their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from goqueue.model.errors import InvalidRequest
from goqueue.spark.planning import OffsetRange
from goqueue.spark.queues.offsets import Run, Share, spans
from goqueue.spark.queues.options import QueueOptions
from goqueue.spark.schema import RECORD_COLUMNS, arrow_schema, table_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

DELIVERIES = StructField("deliveryCount", IntegerType())
PRIORITY = StructField("priority", StringType())
_OWN = {one.name: one for one in (DELIVERIES, PRIORITY)}


class QueueTask(InputPartition):
    """A part of an epoch for one task."""

    def __init__(self, share: Share) -> None:
        super().__init__(share)
        self.share = share


def queue_schema(*, has_headers: bool) -> StructType:
    """Return all columns: those of a table, the delivery count and the priority."""
    records = table_schema(has_headers=has_headers, view="records")
    return StructType([*records.fields, DELIVERIES, PRIORITY])


def check_schema(schema: StructType) -> None:
    """Refuse columns that a queue does not have."""
    for one in schema.fields:
        own = _OWN.get(one.name)
        if own is None and one.name not in RECORD_COLUMNS:
            names = ", ".join((*RECORD_COLUMNS, *_OWN))
            raise InvalidRequest(f"There is no column {one.name!r}; a queue has {names}.")
        if own is not None and own.dataType != one.dataType:
            raise InvalidRequest(
                f"Column {one.name!r} is of type {own.dataType.simpleString()}, not "
                f"{one.dataType.simpleString()}; read it so and cast it."
            )
    arrow_schema(_of_records(schema), view="records")


def _of_records(schema: StructType) -> StructType:
    return StructType([one for one in schema.fields if one.name not in _OWN])


def read_queue_task(
    options: QueueOptions, task: InputPartition, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task. Spark reads an empty epoch with a task of another type."""
    # Imported by the worker that reads, not by the driver that plans.
    from goqueue.spark.columns import record_batches
    from goqueue.spark.reading import read_batches

    if not isinstance(task, QueueTask):
        return
    share = task.share
    columns = _of_records(schema)
    if "offset" not in columns.names:
        # Rows are selected by offset, whether the column is requested or not.
        columns = StructType([*columns.fields, StructField("offset", RECORD_COLUMNS["offset"])])
    decoded = arrow_schema(columns, view="records")
    for first, end in spans(share.runs):
        wanted = OffsetRange(share.partition, first, end, share.topic_id)
        within = [run for run in share.runs if first <= run.first < end]
        for batch in record_batches(read_batches(options.read, wanted), wanted, decoded):
            chosen = choose_rows(batch, within, schema.names)
            if len(chosen):
                yield chosen


def choose_rows(batch: pa.RecordBatch, runs: Sequence[Run], names: Sequence[str]) -> pa.RecordBatch:
    """Select the rows that belong to runs (in order), with delivery count and priority."""
    import numpy as np
    import pyarrow as pa

    offsets = batch.column("offset").to_numpy()
    firsts = np.array([run.first for run in runs], np.int64)
    ends = np.array([run.end for run in runs], np.int64)
    at = np.searchsorted(firsts, offsets, side="right") - 1
    inside = (at >= 0) & (offsets < ends[at])
    if not inside.all():
        batch, at = batch.filter(pa.array(inside)), at[inside]
    columns = [
        _own_column(name, runs, at) if name in _OWN else batch.column(name) for name in names
    ]
    if not columns:  # Only the number of rows is requested.
        rows = pa.Array.from_buffers(pa.struct([]), len(at), [None])
        return pa.RecordBatch.from_struct_array(rows)
    return pa.RecordBatch.from_arrays(columns, list(names))


def _own_column(name: str, runs: Sequence[Run], at: np.ndarray[Any, Any]) -> pa.Array:
    import pyarrow as pa

    if name == DELIVERIES.name:
        values = pa.array([run.deliveries for run in runs], pa.int32())
    else:
        values = pa.array([run.priority for run in runs], pa.string())
    return values.take(pa.array(at))
