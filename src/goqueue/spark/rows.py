"""Rows on their way into records: which columns a sink takes, and what they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from goqueue.model.attributes import DELIVER_AT_HEADER, PRIORITY_HEADER
from goqueue.model.batch import Header, Record
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
    "timestamp": _MOMENT,
    "priority": (StringType, *_NUMBER),
    "deliver_at": _MOMENT,
}
_SAID = {
    "topic": "a string",
    "key": "binary or a string",
    "value": "binary or a string",
    "headers": "array<struct<key: string, value: binary>>",
    "partition": "a whole number",
    "timestamp": "a timestamp, or milliseconds since 1970 as a long",
    "priority": "a name such as 'high', or a number from 0 to 4",
    "deliver_at": "a timestamp, or milliseconds since 1970 as a long",
}


class Row(NamedTuple):
    """A record, and where it goes; the partition is None when its key decides."""

    topic: str
    partition: int | None
    record: Record


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """Refuse a table that cannot be written, and say everything that is wrong with it."""
    problems = []
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name not in _KINDS:
            problems.append(
                f"There is no column {field.name!r} in a message; leave it out, or put it into the "
                "value."
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


def rows_of(batch: pa.RecordBatch, topic: str | None, *, now_ms: int) -> Iterator[Row]:
    """The rows of one Arrow batch. `topic` wins over a column, as in Spark's Kafka sink."""
    topics = repeat(topic) if topic is not None else _named(list(_values(batch, "topic")))
    records = map(
        Record,
        _data(batch, "key"),
        _data(batch, "value"),
        _headers(batch),
        _moments(batch, "timestamp", default=now_ms),
    )
    return map(Row, topics, _values(batch, "partition"), records)


def _named(topics: Sequence[str | None]) -> Sequence[str]:
    if not all(topics):
        raise InvalidRequest("A row has no topic: column 'topic' must not be null or empty.")
    return topics  # type: ignore[return-value]


def _values(batch: pa.RecordBatch, name: str) -> Iterable[Any]:
    if name not in batch.schema.names:
        return repeat(None, batch.num_rows)
    return batch.column(name).to_pylist()  # type: ignore[no-any-return]


def _data(batch: pa.RecordBatch, name: str) -> Iterable[bytes | None]:
    if name not in batch.schema.names:
        return repeat(None, batch.num_rows)
    return batch.column(name).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _moments(batch: pa.RecordBatch, name: str, *, default: int | None) -> Iterable[Any]:
    """Milliseconds since 1970; a part of one counts as a whole, so that nothing is early."""
    if name not in batch.schema.names:
        return repeat(default, batch.num_rows)
    column = batch.column(name)
    if not pa.types.is_timestamp(column.type):
        return [default if one is None else one for one in column.to_pylist()]
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
    return [default if one is None else -(-one // 1000) for one in micros]


def _headers(batch: pa.RecordBatch) -> Iterable[tuple[Header, ...]]:
    if not {"headers", "priority", "deliver_at"} & set(batch.schema.names):
        return repeat((), batch.num_rows)
    headers: list[tuple[Header, ...]] = [
        tuple((one["key"], _bytes(one["value"])) for one in some or ())
        for some in _values(batch, "headers")
    ]
    for name, header in (("priority", PRIORITY_HEADER), ("deliver_at", DELIVER_AT_HEADER)):
        if name not in batch.schema.names:
            continue
        is_moment = name == "deliver_at"
        values = _moments(batch, name, default=None) if is_moment else _values(batch, name)
        for place, value in enumerate(values):
            if value is not None:
                headers[place] += ((header, str(value).encode()),)
    return headers


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
