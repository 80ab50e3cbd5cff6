"""The data source `format("goqueue")`: topics as tables and as streams.

    spark.read.format("goqueue").option("subscribe", "orders").load()
    spark.readStream.format("goqueue").option("subscribe", "orders").load()
    rows.write.format("goqueue").option("topic", "orders").mode("append").save()
    rows.writeStream.format("goqueue").option("topic", "orders").start()

Options are those of Spark's Kafka source. A table is a snapshot of its partitions; load it again to
see newer records. Filters are not pushed down: Spark 4.3 caches pushed filters and applies them to
other queries. Give ranges as options, or let `goqueue.spark.ranges` derive them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from goqueue.spark.connecting import connect
from goqueue.spark.options import ReadOptions, read_options
from goqueue.spark.planning import check_complete, chosen_ranges, look, record_bytes, split
from goqueue.spark.portable import Portable
from goqueue.spark.queues.options import is_queue, queue_options, refuse_table
from goqueue.spark.schema import arrow_schema, table_schema
from goqueue.spark.tasks import Task, read_task
from goqueue.spark.typed.table import TypedColumns, TypedStep, load_schemas, typed_table_schema
from goqueue.spark.workers import settle_process

if TYPE_CHECKING:
    import pyarrow as pa


class GoQueueDataSource(Portable, DataSource):
    """The data source that Spark creates from the options of one table or stream."""

    # Looked up when a table is loaded. Spark copies this object, so readers have them too.
    _typed: TypedColumns | None = None

    @classmethod
    def name(cls) -> str:
        return "goqueue"

    def schema(self) -> StructType:
        settle_process()
        if is_queue(self.options):
            from goqueue.spark.queues.tasks import queue_schema

            return queue_schema(has_headers=queue_options(self.options).read.has_headers)
        # Whether this is a table or a stream is not known yet, so only shared options are read.
        options = read_options(self.options, is_streaming=None)
        plain = table_schema(has_headers=options.has_headers, view=options.view)
        typed = self._typed_columns(options)
        return plain if typed is None else typed_table_schema(plain, typed)

    def reader(self, schema: StructType) -> DataSourceReader:
        refuse_table(self.options)
        options = read_options(self.options, is_streaming=False)
        return TableReader(options, schema, self._step(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from goqueue.spark.streams.reader import StreamReader

        if is_queue(self.options):
            from goqueue.spark.queues.reader import QueueStreamReader

            return QueueStreamReader(queue_options(self.options), schema)
        options = read_options(self.options, is_streaming=True)
        return StreamReader(options, schema, self._step(options, schema))

    def _step(self, options: ReadOptions, schema: StructType) -> TypedStep | None:
        typed = self._typed_columns(options)
        return None if typed is None else TypedStep(typed, schema)

    def _typed_columns(self, options: ReadOptions) -> TypedColumns | None:
        if self._typed is None and options.typing is not None:
            self._typed = load_schemas(options.typing)
        return self._typed

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from goqueue.spark.sink.options import write_options
        from goqueue.spark.sink.writers import TableWriter

        return TableWriter(write_options(self.options), schema, is_overwriting=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from goqueue.spark.sink.options import write_options
        from goqueue.spark.sink.writers import StreamWriter

        return StreamWriter(write_options(self.options), schema)


class TableReader(Portable, DataSourceReader):
    """Reads the records that exist now."""

    def __init__(
        self, options: ReadOptions, schema: StructType, step: TypedStep | None = None
    ) -> None:
        self._options = options
        self._step = step
        plain = schema if step is None else step.plain_schema(schema)
        self._schema = arrow_schema(plain, view=options.view)

    def partitions(self) -> Sequence[InputPartition]:
        settle_process()
        options = self._options
        with connect(options.bootstrap, options.access) as client:
            seen = look(client, options)
            check_complete(options, seen)
            ranges = chosen_ranges(client, options, seen)
            tasks = split(ranges, record_bytes(client, seen), options)
        return [Task(one) for one in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition, self._schema, self._step)
