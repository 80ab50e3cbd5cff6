"""Which tables a sink takes, and what its rows become."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from goqueue.model import encode_reference, encoding, packing
from goqueue.model.batch import Record, decode_batch
from goqueue.model.errors import InvalidRequest
from goqueue.model.packing import PackedRecords
from goqueue.spark.sink.rows import check_columns, columns_of

NOW_MS = 77
NOON = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOON_MS = 1_769_860_800_001  # a part of a millisecond counts as a whole one


@pytest.fixture(autouse=True, params=[encoding.encoder, encode_reference])
def encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder of this process, and the plain one."""
    monkeypatch.setattr(packing, "encoder", request.param)


def records(**columns: Any) -> list[Record]:
    """What rows become, without their offsets."""
    arrays = {
        name: one if isinstance(one, pa.Array) else pa.array(one) for name, one in columns.items()
    }
    return records_of(pa.RecordBatch.from_pydict(arrays))


def records_of(rows: pa.RecordBatch) -> list[Record]:
    packed = PackedRecords()
    places = memoryview(array("i", range(len(rows))))
    found = columns_of(rows, now_ms=NOW_MS)
    assert packed.add(found, places, 0, bytes_max=1 << 20, records_max=100) == len(rows)
    return [one._replace(offset=-1) for one in decode_batch(packed.encode())]


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
        {"timestamp": DoubleType()},
        # What sources add to the record itself, and what is nobody's.
        {"offset": LongType(), "timestampType": IntegerType(), "deliveryCount": IntegerType()},
        {"colour": StringType(), "keys": IntegerType(), "values": IntegerType()},
    ],
)
def test_these_tables_can_be_written(columns: dict[str, DataType]) -> None:
    for value in (BinaryType(), StringType()):
        check_columns(table(value=value, **columns), has_topic=True)


def test_a_table_that_cannot_be_written_hears_everything_that_is_wrong() -> None:
    text = refusal(
        key=IntegerType(),
        deliverAt=TimestampType(),
        prority=StringType(),
        headers=MapType(StringType(), BinaryType()),
        has_topic=False,
    )
    for part in (
        "Column 'key' is int; it must be binary or a string.",
        "no column 'deliverAt' in a message; if you mean 'deliver_at'",
        "no column 'prority' in a message; if you mean 'priority'",
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
    assert records(key=["a", None], value=[b"\xff", None]) == [
        Record(b"a", b"\xff", (), NOW_MS),
        Record(None, None, (), NOW_MS),
    ]
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        (found,) = records(value=pa.array(["ä"]).cast(kind))
        assert found.value == "ä".encode()
    assert records(value=pa.array([None], pa.binary()))[0].value is None
    assert records(value=pa.array([b""], pa.large_binary()))[0].value == b""


def test_moments_become_milliseconds_and_what_is_delivered_later_is_never_early() -> None:
    stamps = pa.array([NOON, None], type=pa.timestamp("us", tz="UTC"))
    local = pa.array([NOON.replace(tzinfo=None), None], type=pa.timestamp("us"))
    for column in (stamps, local):
        found = records(value=[b"", b""], timestamp=column)
        assert [one.timestamp_ms for one in found] == [NOON_MS - 1, NOW_MS]
        late, soon = records(value=[b"", b""], deliver_at=column)
        assert late.headers == (("goqueue-deliver-at", b"%d" % NOON_MS),)
        assert soon.headers == ()
    number = pa.array([NOON_MS, None])
    assert [one.timestamp_ms for one in records(value=[b"", b""], timestamp=number)] == [
        NOON_MS,
        NOW_MS,
    ]
    assert records(value=[b""], deliver_at=pa.array([NOON_MS]))[0].headers == (
        ("goqueue-deliver-at", b"%d" % NOON_MS),
    )
    before = pa.array([-1, -1000, -1001], pa.timestamp("us"))
    assert [one.timestamp_ms for one in records(value=[b""] * 3, timestamp=before)] == [0, -1, -1]


def test_a_timestamp_as_a_double_has_seconds() -> None:
    column = pa.array([1.5, 1.0019, None], pa.float64())
    found = records(value=[b""] * 3, timestamp=column)
    assert [one.timestamp_ms for one in found] == [1500, 1001, NOW_MS]
    for wrong in (float("nan"), float("inf"), 1e300):
        with pytest.raises(InvalidRequest, match="seconds"):
            records(value=[b""], timestamp=pa.array([wrong]))


def test_what_is_no_time_is_refused() -> None:
    for wrong in (1 << 62, -(1 << 62)):
        with pytest.raises(InvalidRequest, match="milliseconds since 1970"):
            records(value=[b"", b""], timestamp=[0, wrong])


def test_priority_and_deliver_at_follow_the_headers_of_a_row() -> None:
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None], type=HEADERS
    )
    first, second = records(value=[b"", b""], headers=headers, priority=["high", None])
    assert first.headers == (("a", b"1"), ("a", None), ("goqueue-priority", b"high"))
    assert second.headers == ()
    assert records(value=[b""], priority=[4])[0].headers == (("goqueue-priority", b"4"),)
    assert records(value=[b""], headers=pa.array([None], HEADERS))[0].headers == ()


def test_a_header_without_a_name_is_refused() -> None:
    for wrong in ([{"key": None, "value": b"1"}], [None]):
        with pytest.raises(InvalidRequest, match="has no name"):
            records(value=[b"", b""], headers=pa.array([[], wrong], HEADERS))


CONTENT = st.none() | st.binary(max_size=20)
NAMED = st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": CONTENT}), max_size=3)
TABLE = st.lists(
    st.fixed_dictionaries(
        {
            "key": CONTENT,
            "value": CONTENT,
            "headers": st.none() | NAMED,
            "timestamp": st.none() | st.integers(-(10**15), 10**15),
            "priority": st.none() | st.text(max_size=5),
        }
    ),
    max_size=12,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLE, st.integers(0, 5), st.integers(0, 12), st.booleans())
def test_any_part_of_a_table_becomes_its_records(
    table: list[dict[str, Any]], start: int, length: int, is_wide: bool
) -> None:
    data, text = (pa.large_binary(), pa.large_string()) if is_wide else (pa.binary(), pa.string())
    inside = pa.struct([("key", text), ("value", data)])
    schema = pa.schema(
        [
            pa.field("key", data),
            pa.field("value", data),
            pa.field("headers", pa.large_list(inside) if is_wide else pa.list_(inside)),
            pa.field("timestamp", pa.timestamp("us")),
            pa.field("priority", text),
        ]
    )
    rows = pa.RecordBatch.from_pylist(table, schema=schema).slice(start, length)
    if not len(rows):
        return
    assert records_of(rows) == [expected(row) for row in table[start : start + length]]


def expected(row: dict[str, Any]) -> Record:
    headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
    if row["priority"] is not None:
        headers.append(("goqueue-priority", row["priority"].encode()))
    time_ms = NOW_MS if row["timestamp"] is None else int(Fraction(row["timestamp"], 1000))
    return Record(row["key"], row["value"], tuple(headers), time_ms)
