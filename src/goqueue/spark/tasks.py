"""What the driver sends to a task, and what the task returns to Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from goqueue.spark.options import ReadOptions
from goqueue.spark.planning import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from goqueue.spark.typed.table import TypedStep


class Task(InputPartition):
    """A range of offsets for one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def _decoder(options: ReadOptions) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return what makes rows of batches."""
    if options.view == "journeys":
        from goqueue.spark.journeys.columns import journey_batches

        return partial(journey_batches, selection=options.events)
    if options.view == "audit":
        from goqueue.spark.audit import audit_batches

        return audit_batches
    from goqueue.spark.columns import header_batches, record_batches

    return header_batches if options.view == "batches" else record_batches


def read_task(
    options: ReadOptions, task: InputPartition, schema: pa.Schema, step: TypedStep | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, typed if there is a step for that.

    Spark reads an empty table with a task of another type.
    """
    # Imported by the worker that reads, not by the driver that plans.
    from goqueue.spark.reading import read_batches

    if isinstance(task, Task):
        decode = _decoder(options)
        batches = decode(read_batches(options, task.wanted), task.wanted, schema)
        yield from batches if step is None else step.apply(batches, task.wanted.partition)
