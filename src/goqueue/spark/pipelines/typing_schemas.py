"""The columns of a typed table over time: existing columns are kept, and new ones are added.

Spark reads older files with the schema of the whole table: columns that a file lacks are null, and
numbers are widened.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StructField,
    StructType,
)

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines.typing_manifests import TypedTable
from goqueue.spark.schema import table_schema
from goqueue.spark.typed.table import TypedColumns, typed_table_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

# The second type holds all values of the first.
_WIDER: tuple[tuple[DataType, DataType], ...] = (
    (IntegerType(), LongType()),
    (FloatType(), DoubleType()),
)


def grown_schema(held: TypedTable, typed: TypedColumns) -> StructType:
    """Return the columns of the table after a run with these schemas, or raise if impossible."""
    plain = table_schema(has_headers=True, view="records")
    new = typed_table_schema(plain, typed)
    _check_storable(new, "")
    if held.last is None:
        return new
    try:
        return _joined_structs(table_schema_of(held), new, "")
    except _Differs as error:
        raise InvalidRequest(
            f"{error} Pin an older version of the schema, or name another folder for the table."
        ) from None


def table_schema_of(held: TypedTable) -> StructType:
    """Return the current columns of a table."""
    assert held.last is not None
    return StructType.fromJson(json.loads(held.last.table_schema))


class _Differs(Exception):
    """Two types that one column cannot have."""


def _joined(old: DataType, new: DataType, path: str) -> DataType:
    if old == new:
        return old
    for narrow, wide in _WIDER:
        if {type(old), type(new)} == {type(narrow), type(wide)}:
            return wide
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _joined_structs(old, new, path)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_joined(old.elementType, new.elementType, f"{path}[]"))
    if isinstance(old, MapType) and isinstance(new, MapType) and old.keyType == new.keyType:
        return MapType(old.keyType, _joined(old.valueType, new.valueType, f"{path}{{}}"))
    raise _Differs(
        f"Column {path} is of type {old.simpleString()} in the table, and of type "
        f"{new.simpleString()} by the schema."
    )


def _joined_structs(old: StructType, new: StructType, path: str) -> StructType:
    theirs = {one.name: one for one in new.fields}
    fields = []
    for one in old.fields:
        other = theirs.pop(one.name, one)
        inner = f"{path}.{one.name}" if path else one.name
        fields.append(StructField(one.name, _joined(one.dataType, other.dataType, inner)))
    return StructType([*fields, *theirs.values()])


def _check_storable(kind: DataType, path: str) -> None:
    """Refuse types that Parquet cannot store."""
    if isinstance(kind, NullType) or (isinstance(kind, StructType) and not kind.fields):
        raise InvalidRequest(
            f"Column {path} never has a value by its schema, and Parquet cannot store such a "
            "column; give the type something to hold, or use the data source with schema.registry."
        )
    for name, inner in _inside(kind):
        _check_storable(inner, f"{path}.{name}" if path else name)


def _inside(kind: DataType) -> Iterable[tuple[str, DataType]]:
    if isinstance(kind, StructType):
        return [(one.name, one.dataType) for one in kind.fields]
    if isinstance(kind, ArrayType):
        return [("[]", kind.elementType)]
    return [("{}", kind.valueType)] if isinstance(kind, MapType) else []
