"""Typed keys and values of a table: the schemas fixed by load(), and the step that types batches.

The schemas are looked up once, when a table is loaded, and are sent to tasks with it. Tasks fetch
only the schemas that records were written with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.typed.options import TypingOptions
from goqueue.spark.typed.registry import Registry, SchemaText, UnknownSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from goqueue.spark.typed.decoding import ColumnDecoder

RETRIES_OF_TASKS_MAX = 8  # the driver has reached this registry, so retrying is worthwhile


class UndecodableRecord(GoQueueError):
    """A record does not conform to the schema of its column."""

    code = "undecodable_record"

    def __init__(self, column: str, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(
            f"The {column} of {partition} at offset {offset} cannot be decoded: {reason}. Read "
            f"with schema.errors=null to have such records with the reason in {column}Error, or "
            "leave them out by offset."
        )


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """The schemas that a table is read with, as of when it was loaded."""

    options: TypingOptions
    schemas: dict[str, SchemaText]  # of key and value, if typed

    def message_of(self, column: str) -> str | None:
        return self.options.columns[column].message


def load_schemas(options: TypingOptions) -> TypedColumns:
    """Fetch the schemas of the columns from the registry."""
    registry = Registry(options.registry, access=options.access)
    found = {}
    for column, wanted in options.columns.items():
        try:
            found[column] = registry.version(wanted.subject, wanted.version)
        except UnknownSchema as error:
            raise InvalidRequest(
                f"The schema of the {column} cannot be had: {error} Name its subject with "
                f"{wanted.option_prefix}.subject, or read without schema.registry."
            ) from error
    return TypedColumns(options, found)


def typed_types(typed: TypedColumns) -> dict[str, DataType]:
    """Return the types of the typed columns, and the columns for errors."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StringType

    from goqueue.spark.typed.decoding import reader_of

    found: dict[str, DataType] = {}
    for column, schema in typed.schemas.items():
        shape = reader_of(schema, typed.message_of(column)).shape
        found[column] = from_arrow_type(shape.arrow, prefer_timestamp_ntz=True)
    if typed.options.keeps_errors:
        found |= {f"{column}Error": StringType() for column in typed.schemas}
    return found


def typed_table_schema(plain: StructType, typed: TypedColumns) -> StructType:
    """Return the columns of a table with the typed ones in place of bytes."""
    from pyspark.sql.types import StructField, StructType

    types = typed_types(typed)
    fields = [StructField(one.name, types.pop(one.name, one.dataType)) for one in plain.fields]
    return StructType([*fields, *(StructField(name, kind) for name, kind in types.items())])


class TypedStep:
    """Converts the batches that are read to those that Spark gets: part of a task."""

    def __init__(self, typed: TypedColumns, schema: StructType) -> None:
        self._typed = typed
        self._names = schema.names
        types = typed_types(typed)
        for one in schema.fields:
            if one.name in types and one.dataType != types[one.name]:
                raise InvalidRequest(
                    f"Column {one.name!r} is of type {types[one.name].simpleString()} by "
                    f"{typed.schemas.get(one.name, 'its registry')}, not "
                    f"{one.dataType.simpleString()}; read it so and cast it."
                )
        self._decoded = [
            column
            for column in typed.schemas
            if column in self._names or f"{column}Error" in self._names
        ]
        self._types = types

    def plain_schema(self, schema: StructType) -> StructType:
        """Return the columns to read: bytes where values are typed, and always the offset."""
        from pyspark.sql.types import StructField, StructType

        from goqueue.spark.schema import RECORD_COLUMNS

        errors = {f"{column}Error" for column in self._typed.schemas}
        fields = [
            StructField(one.name, RECORD_COLUMNS[one.name]) if one.name in self._types else one
            for one in schema.fields
            if one.name not in errors
        ]
        there = {one.name for one in fields}
        needed = [name for name in (*self._decoded, "offset") if name not in there]
        if not self._decoded:
            needed = []
        return StructType([*fields, *(StructField(name, RECORD_COLUMNS[name]) for name in needed)])

    def apply(
        self, batches: Iterable[pa.RecordBatch], partition: TopicPartition
    ) -> Iterator[pa.RecordBatch]:
        """Yield the typed batches of one partition."""
        import pyarrow as pa

        from goqueue.spark.typed.decoding import error_column

        if not self._decoded:
            yield from batches
            return
        keeps_errors = self._typed.options.keeps_errors
        decoders = column_decoders(self._typed, self._decoded)
        for batch in batches:
            columns = {name: batch[name] for name in batch.schema.names}
            for column, decoder in decoders.items():
                columns[column], reasons = decoder.decode(batch[column])
                if reasons and not keeps_errors:
                    row = min(reasons)
                    offset = batch["offset"][row].as_py()
                    raise UndecodableRecord(column, partition, offset, reasons[row])
                if f"{column}Error" in self._names:
                    columns[f"{column}Error"] = error_column(reasons, len(batch))
            yield pa.RecordBatch.from_arrays(
                [columns[name] for name in self._names], names=self._names
            )


def column_decoders(typed: TypedColumns, columns: Iterable[str]) -> dict[str, ColumnDecoder]:
    """Return the decoders of the columns, on a worker."""
    from goqueue.spark.typed.decoding import ColumnDecoder

    registry = Registry(typed.options.registry, RETRIES_OF_TASKS_MAX, typed.options.access)
    return {
        column: ColumnDecoder(typed.schemas[column], registry, typed.message_of(column))
        for column in columns
    }
