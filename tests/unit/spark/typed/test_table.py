"""The step that types the batches of a task."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.schema import arrow_schema, table_schema
from goqueue.spark.typed.options import ColumnTyping, TypingOptions
from goqueue.spark.typed.table import (
    TypedColumns,
    TypedStep,
    UndecodableRecord,
    typed_table_schema,
)
from tests.unit.spark.typed.framed import avro_bytes, avro_text

ORDER = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "int"}]}
PLAIN = table_schema(has_headers=False, view="records")
PLACE = TopicPartition("orders", 3)
GOOD = avro_bytes(ORDER, {"id": 7})


def columns(*, keeps_errors: bool = False, key: bool = False) -> TypedColumns:
    wanted = {"value": ColumnTyping("orders-value")}
    schemas = {"value": avro_text(ORDER)}
    if key:
        wanted["key"], schemas["key"] = ColumnTyping("orders-key"), avro_text("string")
    return TypedColumns(TypingOptions("http://registry.test", wanted, keeps_errors), schemas)


def applied(typed: TypedColumns, schema: StructType, values: list[Any]) -> list[dict[str, Any]]:
    """What a task makes of records with these values, through a pickle as Spark sends it."""
    step = pickle.loads(pickle.dumps(TypedStep(typed, schema)))
    read = arrow_schema(step.plain_schema(schema), view="records")
    rows = {
        "key": [avro_bytes("string", "k")] * len(values),
        "value": values,
        "offset": list(range(40, 40 + len(values))),
    }
    arrays = [
        pa.array(rows[one.name], one.type) if one.name in rows else pa.nulls(len(values), one.type)
        for one in read
    ]
    [batch] = step.apply([pa.RecordBatch.from_arrays(arrays, schema=read)], PLACE)
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def test_typed_columns_stand_where_bytes_stood() -> None:
    schema = typed_table_schema(PLAIN, columns(key=True))
    assert schema.names == PLAIN.names
    rows = applied(columns(key=True), schema, [GOOD, None])
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == [
        ("k", {"id": 7}, 40),
        ("k", None, 41),
    ]


def test_a_record_that_cannot_be_decoded_is_named() -> None:
    with pytest.raises(UndecodableRecord) as caught:
        applied(columns(), typed_table_schema(PLAIN, columns()), [GOOD, b"bad", b"worse"])
    assert "The value of orders/3 at offset 41 cannot be decoded" in str(caught.value)
    assert "schema.errors=null" in str(caught.value)


def test_reasons_are_a_column_if_they_are_asked_for() -> None:
    typed = columns(keeps_errors=True)
    schema = typed_table_schema(PLAIN, typed)
    assert schema.names == [*PLAIN.names, "valueError"]
    rows = applied(typed, schema, [GOOD, b"bad", None])
    assert [row["value"] for row in rows] == [{"id": 7}, None, None]
    assert [row["valueError"] is None for row in rows] == [True, False, True]
    alone = applied(typed, StructType([StructField("valueError", StringType())]), [b"bad"])
    assert "zero byte" in alone[0]["valueError"]


def test_what_is_not_asked_for_is_not_decoded() -> None:
    schema = StructType([PLAIN["offset"]])
    assert TypedStep(columns(), schema).plain_schema(schema) == schema
    assert applied(columns(), schema, [b"bad"]) == [{"offset": 40}]


def test_another_type_than_the_schema_has_is_refused() -> None:
    schema = StructType([PLAIN["value"]])
    with pytest.raises(InvalidRequest, match=r"'value' is of type struct<id:int> by version 1"):
        TypedStep(columns(), schema)
