"""How the columns of a typed table grow from run to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines.typing_manifests import TypedManifest, TypedTable
from goqueue.spark.pipelines.typing_schemas import grown_schema
from goqueue.spark.typed.options import ColumnTyping, TypingOptions
from goqueue.spark.typed.table import TypedColumns
from tests.unit.spark.typed.framed import avro_text

OPTIONS = TypingOptions("http://registry.test", {"value": ColumnTyping("orders-value")})


def columns(**fields: Any) -> TypedColumns:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    schema = avro_text({"type": "record", "name": "R", "fields": listed})
    return TypedColumns(OPTIONS, {"value": schema})


def table_of(typed: TypedColumns) -> TypedTable:
    empty = TypedTable(Path("table"), ())
    manifest = TypedManifest(
        number=1,
        run_id="r",
        started_at_ms=0,
        committed_at_ms=0,
        topic="orders",
        schemas={},
        table_schema=grown_schema(empty, typed).json(),
    )
    return TypedTable(Path("table"), (manifest,))


def grown(before: TypedColumns, after: TypedColumns) -> str:
    return grown_schema(table_of(before), after)["value"].dataType.simpleString()


def test_columns_stay_and_new_ones_are_added() -> None:
    assert grown(columns(a="int", b="string"), columns(c="boolean", a="int")) == (
        "struct<a:int,b:string,c:boolean>"
    )


def test_numbers_become_wider_and_never_narrower() -> None:
    inner = {"type": "array", "items": "float"}
    wider = {"type": "array", "items": "double"}
    for before, after in ((("int", inner), ("long", wider)), (("long", wider), ("int", inner))):
        found = grown(columns(a=before[0], b=before[1]), columns(a=after[0], b=after[1]))
        assert found == "struct<a:bigint,b:array<double>>"


def test_a_type_that_no_column_can_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"value\.a is of type int in the table.*string"):
        grown(columns(a="int"), columns(a="string"))
    with pytest.raises(InvalidRequest, match=r"Column value\.a never has a value"):
        table_of(columns(a="null"))
