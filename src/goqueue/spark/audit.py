"""The audit log as a table: the attributes of its events as typed columns.

Events are JSON objects, one in the value of each record of `__audit`. Arrow parses many of them at
once; no record becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from goqueue.spark.columns import record_batches

if TYPE_CHECKING:
    from goqueue.client import RawBatch
    from goqueue.spark.planning import OffsetRange

_TEXT = pa.string()
_NUMBER = pa.int64()
_NAMED = pa.struct([pa.field("type", _TEXT), pa.field("name", _TEXT)])

# Columns of events: the attribute of OCSF that each shows, and how that is written in JSON.
PATHS: dict[str, tuple[str, pa.DataType]] = {
    "time": ("time", _NUMBER),
    "class": ("class_name", _TEXT),
    "activity": ("activity_name", _TEXT),
    "severity": ("severity", _TEXT),
    "user": ("actor.user.name", _TEXT),
    "tenant": ("metadata.tenant_uid", _TEXT),
    "address": ("src_endpoint.ip", _TEXT),
    "listener": ("dst_endpoint.svc_name", _TEXT),
    "node": ("dst_endpoint.name", _TEXT),
    "clientId": ("actor.app_name", _TEXT),
    "operation": ("api.operation", _TEXT),
    "action": ("unmapped.action", _TEXT),
    "resources": ("resources", pa.list_(_NAMED)),
    "outcome": ("unmapped.outcome", _TEXT),
    "status": ("status", _TEXT),
    "statusCode": ("status_code", _TEXT),
    "statusDetail": ("status_detail", _TEXT),
    "count": ("count", _NUMBER),
    "startTime": ("start_time", _NUMBER),
    "endTime": ("end_time", _NUMBER),
    "uid": ("metadata.uid", _TEXT),
}
_OF_RECORDS = ("partition", "offset", "timestamp")


def audit_batches(
    batches: Iterable[RawBatch], wanted: OffsetRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of the events of a partition, in chunks."""
    plain = pa.schema(
        [
            pa.field("value", pa.binary()),
            *(schema.field(name) for name in schema.names if name in _OF_RECORDS),
        ]
    )
    for chunk in record_batches(batches, wanted, plain):
        if chunk.num_rows:
            yield _typed(chunk, schema)


def _typed(chunk: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    events = _parse(chunk.column("value"))
    arrays = [
        chunk.column(field.name)
        if field.name in _OF_RECORDS
        else _column(events, field.name, field.type)
        for field in schema
    ]
    if not arrays:  # Only the number of rows is requested.
        rows = pa.Array.from_buffers(pa.struct([]), chunk.num_rows, [None])
        return pa.RecordBatch.from_struct_array(rows)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _parse(values: pa.Array) -> pa.Table:
    from pyarrow import json

    lines = b"\n".join(pc.fill_null(values, b"{}").to_numpy(zero_copy_only=False))
    return json.read_json(
        BytesIO(lines),
        read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=json.ParseOptions(
            explicit_schema=_JSON_SCHEMA, unexpected_field_behavior="ignore"
        ),
    )


def _column(events: pa.Table, name: str, wanted: pa.DataType) -> pa.Array:
    first, *rest = PATHS[name][0].split(".")
    column = events.column(first).combine_chunks()
    if rest:
        column = pc.struct_field(column, rest)
    if name == "count":
        column = pc.fill_null(column, 1)
    if pa.types.is_timestamp(wanted):
        column = column.cast(pa.timestamp("ms", tz="UTC"))
    return column.cast(wanted)


def _json_schema() -> pa.Schema:
    """Return the schema of the attributes that are read, nested as they are in events."""
    tree: dict[str, Any] = {}
    for path, kind in PATHS.values():
        *parents, last = path.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = kind
    return pa.schema(_fields(tree))


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind)
        for name, kind in tree.items()
    ]


_JSON_SCHEMA = _json_schema()
