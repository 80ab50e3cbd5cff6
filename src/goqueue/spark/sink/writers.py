"""Writes tables and streams: each job, or each epoch of a stream, becomes visible atomically, once.

Tasks write in their own transactions and leave them prepared; the driver commits with one call,
which the broker keys on the query and the epoch. Spark creates a new writer for every step,
possibly in a new process, so what a step needs is in its options, its task or its messages.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.spark.portable import Portable
from goqueue.spark.sink.options import WriteOptions, located
from goqueue.spark.sink.rows import check_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from goqueue.spark.sink.tasks import Part

# Local properties in which Spark passes a task its stream, epoch and run.
_QUERY_ID = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"  # the run id of a stream, new for each start


@dataclass
class Written(WriterCommitMessage):
    """What one task has written, and for which run."""

    query_id: str
    run: int
    epoch: int
    transaction_id: str | None  # None: there was nothing to write, or nothing to commit


class TableWriter(Portable, DataSourceArrowWriter):
    """Writes a table. A job is a query of one epoch."""

    def __init__(self, options: WriteOptions, schema: StructType, *, is_overwriting: bool) -> None:
        if is_overwriting:
            raise InvalidRequest(
                "A topic cannot be overwritten, only written to; use the mode append, and delete "
                "the records before if they are to go."
            )
        check_columns(schema, has_topic=options.topic is not None)
        self._options = located(options)
        self._query_id = f"job-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from goqueue.spark.sink.tasks import Part, write_part

        part = Part(self._query_id, run_name=self._query_id, epoch=0)
        return write_part(self._options, part, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _commit(self._options, messages, is_last=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _abort(self._options, [self._query_id])


class StreamWriter(Portable, DataSourceStreamArrowWriter):
    """Writes a stream, epoch after epoch.

    In the mode complete, Spark asks for overwriting; each epoch has the whole result then, and is
    appended, as by Spark's own Kafka sink.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, has_topic=options.topic is not None)
        self._options = located(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from goqueue.spark.sink.tasks import write_part

        return write_part(self._options, _current_part(self._options), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _commit(self._options, messages, is_last=False)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _abort(self._options, {one.query_id for one in _written(messages)})


def _current_part(options: WriteOptions) -> Part:
    from pyspark import TaskContext

    from goqueue.spark.sink.tasks import Part

    context = TaskContext.get()
    assert context is not None, "a task has a context"
    query_id, epoch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_EPOCH)
    if not options.is_exactly_once:
        return Part(query_id or "", run_name="", epoch=int(epoch or 0))
    if query_id is None or epoch is None:
        raise InvalidRequest(
            "Spark does not say which stream and which epoch this is, so it could not be written "
            "exactly once; write with option delivery=at-least-once."
        )
    return Part(query_id, run_name=context.getLocalProperty(_RUN_ID) or query_id, epoch=int(epoch))


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return the messages of tasks that have something to commit."""
    found = [one for one in messages if isinstance(one, Written)]
    return [one for one in found if one.transaction_id is not None]


def _commit(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], *, is_last: bool
) -> None:
    from goqueue.spark.sink.tasks import control

    written = _written(messages)
    if not written:
        return
    runs = {(one.query_id, one.run, one.epoch) for one in written}
    if len(runs) != 1:
        raise InvalidRequest(
            f"Tasks wrote for different runs of the query ({sorted(runs)}); it is started twice."
        )
    ((query_id, run, epoch),) = runs
    with control(options.http, options.access) as client:
        client.queries.commit(
            query_id,
            epoch,
            run=run,
            transactions=[one.transaction_id for one in written if one.transaction_id],
            is_last=is_last,
        )


def _abort(options: WriteOptions, query_ids: Collection[str]) -> None:
    """Abort everything that was written, also by tasks that were killed or are still running.

    They belong to a run that ends when another begins. What cannot be aborted now is aborted when
    the query restarts, or times out; the original error must not be hidden.
    """
    from goqueue.spark.sink.tasks import control

    if not query_ids or not options.is_exactly_once:
        return
    with control(options.http, options.access) as client, contextlib.suppress(GoQueueError):
        for query_id in query_ids:
            client.queries.describe(query_id)  # A query that was never opened has nothing to abort.
            client.queries.open(query_id)
