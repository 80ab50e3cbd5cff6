"""The columns of a table, as Spark types and as the Arrow types that Spark requires.

Spark compares the Arrow schema of a task's first batch with its own exactly: plain `binary` and
`string`, all nullable, times in microseconds of UTC, the child of a list named `element`.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from goqueue.model.errors import InvalidRequest

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS = ArrayType(_HEADER)

RECORD_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
BATCH_COLUMNS: dict[str, DataType] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "firstOffset": LongType(),
    "lastOffset": LongType(),
    "records": IntegerType(),
    "bytes": IntegerType(),
    "codec": StringType(),
    "firstTimestamp": TimestampType(),
    "lastTimestamp": TimestampType(),
    "producerId": LongType(),
    "producerEpoch": ShortType(),
    "firstSequence": IntegerType(),
    "leaderEpoch": IntegerType(),
    "isTransactional": BooleanType(),
}

_NAMED = StructType([StructField("type", StringType()), StructField("name", StringType())])
AUDIT_COLUMNS: dict[str, DataType] = {
    "time": TimestampType(),
    "class": StringType(),
    "activity": StringType(),
    "severity": StringType(),
    "user": StringType(),
    "tenant": StringType(),
    "address": StringType(),
    "listener": StringType(),
    "node": StringType(),
    "clientId": StringType(),
    "operation": StringType(),
    "action": StringType(),
    "resources": ArrayType(_NAMED),
    "outcome": StringType(),
    "status": StringType(),
    "statusCode": StringType(),
    "statusDetail": StringType(),
    "count": LongType(),
    "startTime": TimestampType(),
    "endTime": TimestampType(),
    "uid": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
}
JOURNEY_COLUMNS: dict[str, DataType] = {
    "tenant": StringType(),
    "topic": StringType(),
    "topicId": StringType(),
    "partition": IntegerType(),
    "firstOffset": LongType(),
    "endOffset": LongType(),
    "count": LongType(),
    "kind": StringType(),
    "time": TimestampType(),
    "lastTime": TimestampType(),
    "node": IntegerType(),
    "group": StringType(),
    "consumer": StringType(),
    "principal": StringType(),
    "clientId": StringType(),
    "listener": StringType(),
    "reason": StringType(),
    "attempt": IntegerType(),
    "replicas": IntegerType(),
    "bytes": LongType(),
    "dueTime": TimestampType(),
    "linkTenant": StringType(),
    "linkTopic": StringType(),
    "linkPartition": IntegerType(),
    "linkOffset": LongType(),
    "isRecovered": BooleanType(),
    "journalPartition": IntegerType(),
    "journalOffset": LongType(),
}
_COLUMNS = {
    "records": RECORD_COLUMNS,
    "batches": BATCH_COLUMNS,
    "audit": AUDIT_COLUMNS,
    "journeys": JOURNEY_COLUMNS,
}

_ARROW: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    StringType: pa.string(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def table_schema(*, has_headers: bool, view: str) -> StructType:
    """Return all columns of a table, in the order of Spark's Kafka source."""
    columns = _COLUMNS[view]
    return StructType(
        [
            StructField(name, kind)
            for name, kind in columns.items()
            if name != "headers" or has_headers
        ]
    )


def arrow_schema(schema: StructType, *, view: str) -> pa.Schema:
    """Return the Arrow schema of the requested columns, as a task must return them."""
    columns = _COLUMNS[view]
    for one in schema.fields:
        if one.name not in columns:
            raise InvalidRequest(
                f"There is no column {one.name!r}; a table has {', '.join(columns)}."
            )
        if one.dataType != columns[one.name]:
            raise InvalidRequest(
                f"Column {one.name!r} is of type {columns[one.name].simpleString()}, not "
                f"{one.dataType.simpleString()}; read it so and cast it."
            )
    return pa.schema([pa.field(one.name, _arrow_type(one.dataType)) for one in schema.fields])


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType)))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(one.name, _arrow_type(one.dataType)) for one in kind.fields])
    return _ARROW[type(kind)]
