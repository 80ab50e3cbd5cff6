"""Which tables a sink takes, and what its rows become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from goqueue.model.batch import Record
from goqueue.model.errors import InvalidRequest
from goqueue.spark.rows import Row, check_columns, rows_of

NOW_MS = 77
NOON = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
NOON_MS = 1_769_860_800_001  # a part of a millisecond counts as a whole one


def rows(option: str | None = "orders", /, **columns: Any) -> list[Row]:
    arrays = {
        name: one if isinstance(one, pa.Array) else pa.array(one) for name, one in columns.items()
    }
    return list(rows_of(pa.RecordBatch.from_pydict(arrays), option, now_ms=NOW_MS))


def refusal(*, has_topic: bool = True, **columns: DataType) -> str:
    with pytest.raises(InvalidRequest) as refused:
        check_columns(table(**columns), has_topic=has_topic)
    return str(refused.value)


def table(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def headers_of(**columns: DataType) -> ArrayType:
    return ArrayType(table(**columns))


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"key": StringType(), "priority": IntegerType()},
        {"partition": IntegerType(), "timestamp": TimestampType(), "deliver_at": TimestampType()},
        {"partition": LongType(), "timestamp": LongType(), "deliver_at": TimestampNTZType()},
        {"headers": headers_of(key=StringType(), value=BinaryType()), "priority": StringType()},
    ],
)
def test_these_tables_can_be_written(columns: dict[str, DataType]) -> None:
    for value in (BinaryType(), StringType()):
        check_columns(table(value=value, **columns), has_topic=True)


def test_a_table_that_cannot_be_written_hears_everything_that_is_wrong() -> None:
    text = refusal(
        key=IntegerType(),
        colour=StringType(),
        headers=MapType(StringType(), BinaryType()),
        has_topic=False,
    )
    for part in (
        "Column 'key' is int; it must be binary or a string.",
        "no column 'colour'",
        "'headers' is map<string,binary>",
        "no column 'value'",
        "option topic",
    ):
        assert part in text
    for wrong in (
        headers_of(name=StringType(), value=BinaryType()),
        headers_of(key=IntegerType(), value=BinaryType()),
        ArrayType(StringType()),
    ):
        assert "'headers'" in refusal(value=BinaryType(), headers=wrong)


def test_text_and_bytes_become_bytes_and_nulls_stay() -> None:
    assert rows(key=["a", None], value=[b"\xff", None]) == [
        Row("orders", None, Record(b"a", b"\xff", (), NOW_MS)),
        Row("orders", None, Record(None, None, (), NOW_MS)),
    ]
    large = pa.array(["ä"], type=pa.large_string())
    assert rows(value=large)[0].record.value == "ä".encode()


def test_rows_name_their_topics_unless_the_option_does() -> None:
    assert [one.topic for one in rows(None, topic=["a", "b"], value=[b"", b""])] == ["a", "b"]
    assert [one.topic for one in rows("c", topic=["a", None], value=[b"", b""])] == ["c", "c"]
    for missing in (None, ""):
        with pytest.raises(InvalidRequest, match="no topic"):
            rows(None, topic=["a", missing], value=[b"", b""])


def test_moments_become_milliseconds_and_never_early_ones() -> None:
    stamps = pa.array([NOON, None], type=pa.timestamp("us", tz="UTC"))
    local = pa.array([NOON.replace(tzinfo=None), None], type=pa.timestamp("us"))
    for column in (stamps, local, pa.array([NOON_MS, None])):
        found = rows(value=[b"", b""], timestamp=column, partition=[2, None])
        assert [(one.record.timestamp_ms, one.partition) for one in found] == [
            (NOON_MS, 2),
            (NOW_MS, None),
        ]
        (late, soon) = rows(value=[b"", b""], deliver_at=column)
        assert late.record.headers == (("goqueue-deliver-at", b"%d" % NOON_MS),)
        assert soon.record.headers == ()


def test_priority_and_deliver_at_follow_the_headers_of_a_row() -> None:
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None],
        type=pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    first, second = rows(value=[b"", b""], headers=headers, priority=["high", None])
    assert first.record.headers == (("a", b"1"), ("a", None), ("goqueue-priority", b"high"))
    assert second.record.headers == ()
    assert rows(value=[b""], priority=[4])[0].record.headers == (("goqueue-priority", b"4"),)
