"""Values as serializers of a registry frame them, and registries that are not there."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from goqueue.spark.typed.decoding import ColumnDecoder
from goqueue.spark.typed.registry import ReferenceText, SchemaText, UnknownSchema


class FakeRegistry:
    """A registry that knows these schemas, and notes what it is asked."""

    def __init__(self, *schemas: SchemaText) -> None:
        self._known = {one.id: one for one in schemas}
        self.asked: list[int] = []

    def by_id(self, schema_id: int) -> SchemaText:
        self.asked.append(schema_id)
        if schema_id not in self._known:
            raise UnknownSchema(f"There is no schema {schema_id}.")
        return self._known[schema_id]


def avro_text(schema: Any, schema_id: int = 1, **references: Any) -> SchemaText:
    named = tuple(ReferenceText(name, json.dumps(one)) for name, one in references.items())
    return SchemaText("AVRO", schema_id, json.dumps(schema), named, "orders-value", schema_id)


def json_text(schema: Any, schema_id: int = 1, **references: Any) -> SchemaText:
    named = tuple(ReferenceText(name, json.dumps(one)) for name, one in references.items())
    return SchemaText("JSON", schema_id, json.dumps(schema), named, "orders-value", schema_id)


def head(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def avro_bytes(schema: Any, value: Any, schema_id: int = 1) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return head(schema_id) + out.getvalue()


def json_bytes(value: Any, schema_id: int = 1) -> bytes:
    return head(schema_id) + json.dumps(value).encode()


def decoded(
    reader: SchemaText, values: list[bytes | None], *writers: SchemaText, message: str | None = None
) -> tuple[list[Any], dict[int, str]]:
    """Values of Python, and what is wrong with the others."""
    decoder = ColumnDecoder(reader, FakeRegistry(*writers), message)
    column, reasons = decoder.decode(pa.array(values, pa.binary()))
    assert column.type == decoder.shape.arrow
    column.validate(full=True)
    return column.to_pylist(maps_as_pydicts="strict"), reasons
