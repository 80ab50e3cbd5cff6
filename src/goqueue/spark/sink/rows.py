"""Converts rows to records: which columns a sink accepts, and what they become."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from goqueue.model.attributes import DELIVER_AT_HEADER, PRIORITY_HEADER
from goqueue.model.encode_reference import Column, Columns, HeaderLists
from goqueue.model.errors import InvalidRequest

_DATA = (BinaryType, StringType)
_NUMBER = (IntegerType, LongType, ShortType, ByteType)
_MOMENT = (TimestampType, TimestampNTZType, LongType)
_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": _DATA,
    "value": _DATA,
    "headers": (ArrayType,),
    "partition": _NUMBER,
    "timestamp": (*_MOMENT, DoubleType),
    "priority": (StringType, *_NUMBER),
    "deliver_at": _MOMENT,
}
_SAID = {
    "topic": "a string",
    "key": "binary or a string",
    "value": "binary or a string",
    "headers": "array<struct<key: string, value: binary>>",
    "partition": "a whole number",
    "timestamp": "a timestamp, milliseconds since 1970 as a long, or seconds as a double",
    "priority": "a name such as 'high', or a number from 0 to 4",
    "deliver_at": "a timestamp, or milliseconds since 1970 as a long",
}
# Spark's own Kafka sink ignores columns that it does not know, so that what was read from a topic
# can be written as it is. These two it does not have: misspelled, they would have no effect.
_OWN = ("priority", "deliver_at")
_LIKENESS_MIN = 0.8

_WIDE_TYPES = (pa.large_binary(), pa.large_string())
_DATA_TYPES = (pa.binary(), pa.string(), *_WIDE_TYPES)
_NO_BOUNDS = np.zeros(1, np.int32)
_TIME_MAX_MS = 1 << 61  # the difference of two times still fits into 64 bits
_MICROS_MAX = float(1 << 62)

Times = np.ndarray[Any, np.dtype[np.int64]]


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """Refuse a table that cannot be written, reporting all errors together.

    Columns that no message has are ignored, as by Spark's own Kafka sink.
    """
    problems = []
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name not in _KINDS:
            if near := difflib.get_close_matches(field.name.lower(), _OWN, 1, _LIKENESS_MIN):
                problems.append(
                    f"There is no column {field.name!r} in a message; if you mean {near[0]!r}, "
                    "rename it, else leave it out."
                )
        elif not _fits(field.name, field.dataType):
            problems.append(
                f"Column {field.name!r} is {field.dataType.simpleString()}; it must be "
                f"{_SAID[field.name]}."
            )
    if "value" not in names:
        problems.append("There is no column 'value', which every message has.")
    if not has_topic and "topic" not in names:
        problems.append("Name the topic with the option topic, or in a column 'topic'.")
    if problems:
        columns = ", ".join(_KINDS)
        raise InvalidRequest(f"{' '.join(problems)} A sink takes the columns {columns}.")


def _fits(name: str, kind: DataType) -> bool:
    if not isinstance(kind, _KINDS[name]):
        return False
    if name != "headers":
        return True
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    return isinstance(element["key"].dataType, StringType) and isinstance(
        element["value"].dataType, _DATA
    )


def columns_of(
    rows: pa.RecordBatch, *, now_ms: int | None = None, extras: Sequence[tuple[str, pa.Array]] = ()
) -> Columns:
    """Return the input of the encoder: the buffers of one Arrow batch, as far as possible.

    Rows without a timestamp get `now_ms`. `extras` are additional headers, by name, for the rows
    that have a value.
    """
    default_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return (
        _data(rows, "key"),
        _data(rows, "value"),
        _header_lists(rows),
        tuple((name.encode(), bytes_column(one)) for name, one in (*_own_headers(rows), *extras)),
        _times(rows, default_ms).data,
    )


def bytes_column(array: pa.Array) -> Column:
    """Return the buffers of an array of binary or string values, also of a slice."""
    bounds, data = _bounds(array), array.buffers()[2]
    validity = array.buffers()[0] if array.null_count else None
    return b"" if data is None else memoryview(data), bounds, validity, array.offset


def _data(rows: pa.RecordBatch, name: str) -> Column:
    return _as_data(rows.column(name)) if name in rows.schema.names else None


def _as_data(array: pa.Array) -> Column:
    return bytes_column(array if array.type in _DATA_TYPES else array.cast(pa.binary()))


def _bounds(array: pa.Array) -> memoryview:
    """Return the bounds of the values of an array of binary, string or list values."""
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return _NO_BOUNDS.data
    is_wide = array.type in _WIDE_TYPES or pa.types.is_large_list(array.type)
    numbers = memoryview(buffer).cast("q" if is_wide else "i")
    return numbers[array.offset : array.offset + len(array) + 1]


def _header_lists(rows: pa.RecordBatch) -> HeaderLists:
    if "headers" not in rows.schema.names:
        return None
    lists = rows.column("headers")
    if lists.null_count == len(lists):
        return None
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        lists = lists.cast(pa.list_(lists.type.value_type))
    inside = lists.flatten()  # without values under a null list
    if inside.null_count or inside.field("key").null_count:
        raise InvalidRequest("A header has no name: its key must not be null.")
    names, contents = lists.values.field("key"), lists.values.field("value")
    validity = lists.buffers()[0] if lists.null_count else None
    return _bounds(lists), validity, lists.offset, _as_data(names), _as_data(contents)


def _own_headers(rows: pa.RecordBatch) -> list[tuple[str, pa.Array]]:
    """Return the columns that become headers, as text."""
    found = []
    if "priority" in rows.schema.names:
        found.append((PRIORITY_HEADER, rows.column("priority").cast(pa.string())))
    if "deliver_at" in rows.schema.names:
        found.append((DELIVER_AT_HEADER, _moments(rows.column("deliver_at")).cast(pa.string())))
    return found


def _times(rows: pa.RecordBatch, default_ms: int) -> Times:
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, default_ms, np.int64)
    column = rows.column("timestamp")
    if pa.types.is_floating(column.type):
        column = _from_seconds(column)
    # A part of a millisecond is cut off, as by Spark's own Kafka sink.
    moments = _moments(column, rounding_up=False).fill_null(default_ms)
    times: Times = moments.to_numpy(zero_copy_only=False)
    if len(times) and not -_TIME_MAX_MS <= times.min() <= times.max() <= _TIME_MAX_MS:
        raise _no_time()
    return np.ascontiguousarray(times)


def _from_seconds(column: pa.Array) -> pa.Array:
    """Convert seconds to a timestamp, as Spark casts them."""
    is_absent = column.is_null().to_numpy(zero_copy_only=False)
    micros = column.fill_null(0).to_numpy(zero_copy_only=False) * 1e6
    if not (np.abs(micros) <= _MICROS_MAX).all():
        raise _no_time()
    return pa.array(micros.astype(np.int64), pa.timestamp("us"), mask=is_absent)


def _no_time() -> InvalidRequest:
    return InvalidRequest(
        "A timestamp is no time: column 'timestamp' holds milliseconds since 1970 if it is a "
        "long, and seconds if it is a double."
    )


def _moments(column: pa.Array, *, rounding_up: bool = True) -> pa.Array:
    """Convert to milliseconds since 1970; what is delivered later must not be early."""
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    numbers = micros.fill_null(0).to_numpy(zero_copy_only=False)
    is_absent = micros.is_null().to_numpy(zero_copy_only=False) if micros.null_count else None
    whole = -(-numbers // 1000) if rounding_up else np.sign(numbers) * (np.abs(numbers) // 1000)
    return pa.array(whole, mask=is_absent)
