"""Avro: decodes values with fastavro, resolving the writer's schema against the reader's.

fastavro gets schemas without logical types, except for decimals, so that numbers stay numbers until
Arrow converts whole columns to dates and times. Unions become what Spark's `from_avro` makes of
them: with null, a nullable column; otherwise a struct with one field for each branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from io import BytesIO
from operator import itemgetter
from typing import Any
from uuid import UUID

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader

from goqueue.model.errors import InvalidRequest
from goqueue.spark.typed.avro_columns import DecodeColumn, Side, column_reader, read_column
from goqueue.spark.typed.avro_schemas import (
    Node,
    check_decodable,
    fill_defaults,
    is_decimal,
    kind_of,
    parsed,
    self_contained,
)
from goqueue.spark.typed.framing import HEAD_BYTES
from goqueue.spark.typed.registry import SchemaText
from goqueue.spark.typed.shapes import (
    DEPTH_MAX,
    LOCAL_TIMESTAMP,
    TIMESTAMP,
    Array,
    Converted,
    Map,
    Member,
    Plain,
    Shape,
    refuse_recursion,
    struct_of,
)

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_MILLIS = pa.timestamp("ms", tz="UTC")
_LOGICAL: dict[tuple[str, str], Plain] = {
    ("int", "date"): Plain(pa.date32(), (pa.int32(),)),
    ("long", "timestamp-millis"): Plain(TIMESTAMP, (pa.int64(), _MILLIS)),
    ("long", "timestamp-micros"): Plain(TIMESTAMP, (pa.int64(),)),
    ("long", "local-timestamp-millis"): Plain(LOCAL_TIMESTAMP, (pa.int64(), pa.timestamp("ms"))),
    ("long", "local-timestamp-micros"): Plain(LOCAL_TIMESTAMP, (pa.int64(),)),
}
_UUID_BYTES = 16
# Python types that fastavro returns for each kind of type.
_PYTHON: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "fixed": bytes,
    "string": str,
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
}


class AvroReader:
    """The schema that all values of a column are converted to."""

    def __init__(self, schema: SchemaText) -> None:
        self._document, self._named = parsed(schema)
        self._has_names = False
        self.shape = self._shape(self._document, "$", ())
        self._plain = self_contained(self._document, self._named)
        self._id = schema.id

    def decoder(self, writer: SchemaText) -> Callable[[bytes], Any]:
        """Return a function from framed bytes of the writer's schema to values of this one."""
        document, named = parsed(writer)
        check_decodable(document, named, "$", ())
        written = self_contained(document, named)
        has_names = self._has_names
        reader = None
        if writer.id != self._id and written != self._plain:
            reader = parse_schema(self._plain)
            fill_defaults(reader, {})
        schema = parse_schema(written)

        def decode(data: bytes) -> Any:
            source = BytesIO(data)
            source.seek(HEAD_BYTES)
            value = schemaless_reader(source, schema, reader, return_named_type=has_names)
            if (left := len(data) - source.tell()) > 0:
                raise ValueError(f"{left} bytes are left after the value")
            return value

        return decode

    def column_decoder(self, writer: SchemaText) -> DecodeColumn | None:
        """Return the same for many values at once, if a fast path exists."""
        try:
            other = self if writer.id == self._id else AvroReader(writer)
        except InvalidRequest:
            return None  # The error is reported for each value.
        read = column_reader(other.side, self.side)
        return None if read is None else partial(read_column, read)

    @property
    def side(self) -> Side:
        return Side(self._document, self.shape, self._named)

    def _shape(self, node: Node, path: str, above: tuple[str, ...]) -> Shape:
        if isinstance(node, str) and node in self._named:
            node = self._named[node]
        if isinstance(node, list):
            return self._union(node, path, above)
        kind = kind_of(node)
        if kind in ("record", "error"):
            return self._record(node, path, above)
        if kind == "array":
            return Array(self._shape(node["items"], f"{path}[]", above))
        if kind == "map":
            return Map(Plain(pa.string()), self._shape(node["values"], f"{path}{{}}", above))
        return _leaf(node, kind)

    def _record(self, node: Mapping[str, Any], path: str, above: tuple[str, ...]) -> Shape:
        name = node["name"]
        if name in above or len(above) >= DEPTH_MAX:
            raise refuse_recursion(path, name)
        members = [
            Member(
                one["name"],
                self._shape(one["type"], f"{path}.{one['name']}", (*above, name)),
                itemgetter(one["name"]),
            )
            for one in node["fields"]
        ]
        return struct_of(members, path)

    def _union(self, nodes: Sequence[Node], path: str, above: tuple[str, ...]) -> Shape:
        branches = [node for node in nodes if kind_of(node) != "null"]
        if not branches:
            return Plain(pa.null())
        kinds = {kind_of(node) for node in branches}
        wide = {"long": {"int", "long"}, "double": {"float", "double"}}
        for name, alike in wide.items():
            if kinds == alike and not any(isinstance(node, dict) for node in branches):
                return Plain(_PLAIN[name])
        if len(branches) == 1:
            inner = self._shape(branches[0], path, above)
            return Converted(_without_name, inner)
        self._has_names = True
        full = [self._named.get(node, node) if isinstance(node, str) else node for node in branches]
        members = [
            Member(
                f"member{number}",
                self._shape(node, f"{path}.member{number}", above),
                _taker(number),
            )
            for number, node in enumerate(branches)
        ]
        return Converted(_chooser(full, path), struct_of(members, path))


def _without_name(value: Any) -> Any:
    """Return the bare value: fastavro returns named types inside unions as (name, value)."""
    return value[1] if type(value) is tuple else value


def _taker(number: int) -> Callable[[tuple[int, Any]], Any]:
    return lambda chosen: chosen[1] if chosen[0] == number else None


def _chooser(branches: Sequence[Node], path: str) -> Callable[[Any], tuple[int, Any]]:
    """Return the branch of a value, with the value."""
    names = {
        node["name"]: number
        for number, node in enumerate(branches)
        if isinstance(node, dict) and "name" in node
    }

    def choose(value: Any) -> tuple[int, Any]:
        if type(value) is tuple:
            return names[value[0]], value[1]
        # The writer had no union here, or the type has no name.
        for number, node in enumerate(branches):
            if _is_value_of(value, node):
                return number, value
        raise ValueError(f"a value at {path} is of no branch of its union")

    return choose


def _is_value_of(value: Any, node: Node) -> bool:
    kind = kind_of(node)
    if is_decimal(node):
        return isinstance(value, Decimal)
    if kind == "record":
        return isinstance(value, dict) and value.keys() == {one["name"] for one in node["fields"]}
    if kind in ("int", "long") and isinstance(value, bool):
        return False
    return isinstance(value, _PYTHON[kind])


def _leaf(node: Node, kind: str) -> Shape:
    logical = node.get("logicalType") if isinstance(node, dict) else None
    if is_decimal(node):
        return Plain(pa.decimal128(node["precision"], node.get("scale", 0)))
    if logical == "uuid" and kind == "fixed" and node["size"] == _UUID_BYTES:
        return Converted(lambda value: str(UUID(bytes=value)), Plain(pa.string()))
    return _LOGICAL.get((kind, str(logical))) or Plain(_PLAIN[kind])
