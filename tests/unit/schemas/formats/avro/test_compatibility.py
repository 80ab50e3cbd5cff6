"""Which changes of an Avro schema are accepted in which direction; the avro library agrees."""

from __future__ import annotations

import json

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from goqueue.schemas.formats import (
    ResolvedReference,
    Schema,
    SchemaKind,
    incompatibilities,
    parse,
)


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: object, **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: object) -> dict[str, object]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size}


A = field("a", "string")
TREE = record(field("v", "int"), field("next", ["null", "R"]))
TREE_LONG = record(field("v", "long"), field("next", ["null", "R"]))
LOGICAL = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}

# Older, newer, and the rules that the newer breaks as a reader and the older as a reader.
BOTH, BACKWARD, FORWARD, NONE = (True, True), (True, False), (False, True), (False, False)
CASES = [
    ("same", record(A), record(A), BOTH),
    ("field with a default added", record(A), record(A, field("b", "int", default=1)), BOTH),
    ("field without a default added", record(A), record(A, field("b", "int")), FORWARD),
    ("field without a default removed", record(A, field("b", "int")), record(A), BACKWARD),
    ("field renamed", record(field("a", "int")), record(field("b", "int")), NONE),
    (
        "field renamed with an alias",
        record(field("a", "int")),
        record(field("b", "int", aliases=["a"])),
        BACKWARD,
    ),
    (
        "field renamed with an alias and a default before",
        record(field("a", "int", default=0)),
        record(field("b", "int", aliases=["a"])),
        BOTH,
    ),
    ("nullable field with default null", record(A), record(A, field("b", ["null", "int"], default=None)), BOTH),
    ("nullable field without default", record(A), record(A, field("b", ["null", "int"])), FORWARD),
    ("fields in another order", record(A, field("b", "int")), record(field("b", "int"), A), BOTH),
    ("doc changed", record(A, doc="x"), record(A, doc="y"), BOTH),
    ("int to long", "int", "long", BACKWARD),
    ("int to float", "int", "float", BACKWARD),
    ("int to double", "int", "double", BACKWARD),
    ("long to float", "long", "float", BACKWARD),
    ("long to double", "long", "double", BACKWARD),
    ("float to double", "float", "double", BACKWARD),
    ("string to bytes", "string", "bytes", BOTH),
    ("int to string", "int", "string", NONE),
    ("int to boolean", "int", "boolean", NONE),
    ("double to string", "double", "string", NONE),
    ("null to int", "null", "int", NONE),
    ("bytes to fixed", "bytes", fixed(4), NONE),
    ("string to enum", "string", enum("A"), NONE),
    ("record to map", record(A), {"type": "map", "values": "string"}, NONE),
    ("array to map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, NONE),
    ("array items widened", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}, BACKWARD),
    ("array items changed", {"type": "array", "items": "int"}, {"type": "array", "items": "string"}, NONE),
    ("map values widened", {"type": "map", "values": "float"}, {"type": "map", "values": "double"}, BACKWARD),
    ("map values changed", {"type": "map", "values": "int"}, {"type": "map", "values": "null"}, NONE),
    ("enum symbol added", enum("A"), enum("A", "B"), BACKWARD),
    ("enum symbol removed", enum("A", "B"), enum("A"), FORWARD),
    ("enum symbols in another order", enum("A", "B"), enum("B", "A"), BOTH),
    ("enum symbol removed, with a default", enum("A", "B"), enum("A", default="A"), BOTH),
    ("enum symbol added, older has a default", enum("A", default="A"), enum("A", "B"), BOTH),
    ("enum renamed", enum("A"), {"type": "enum", "name": "X", "symbols": ["A"]}, NONE),
    ("fixed the same", fixed(4), fixed(4), BOTH),
    ("fixed resized", fixed(4), fixed(8), NONE),
    ("fixed renamed", fixed(4), fixed(4, "G"), NONE),
    ("type to union with it", "int", ["null", "int"], BACKWARD),
    ("union to one of its types", ["null", "int"], "int", FORWARD),
    ("union branch added", ["null", "int"], ["null", "int", "string"], BACKWARD),
    ("union branch removed", ["null", "int", "string"], ["null", "int"], FORWARD),
    ("union in another order", ["null", "int"], ["int", "null"], BOTH),
    ("union branch widened", ["null", "int"], ["null", "long"], BACKWARD),
    ("union branch changed", ["null", "int"], ["null", "boolean"], NONE),
    ("type to union without it", "string", ["null", "int"], NONE),
    ("type to union that widens it", "int", ["null", "double"], BACKWARD),
    ("empty union", [], ["int"], BACKWARD),
    ("record renamed", record(A), record(A, name="S"), NONE),
    ("record renamed with an alias", record(A), record(A, name="S", aliases=["R"]), BACKWARD),
    ("record moved to a namespace", record(A), record(A, namespace="n"), BOTH),
    ("inner record gains a default", record(field("i", record(A, name="I"))), record(field("i", record(A, field("b", "int", default=1), name="I"))), BOTH),
    ("inner record gains no default", record(field("i", record(A, name="I"))), record(field("i", record(A, field("b", "int"), name="I"))), FORWARD),
    ("recursive the same", TREE, TREE, BOTH),
    ("recursive widened", TREE, TREE_LONG, BACKWARD),
    ("logical type added", "long", LOGICAL, BOTH),
    ("logical type changed", LOGICAL, {"type": "long", "logicalType": "timestamp-micros"}, BOTH),
    ("int to logical long", "int", LOGICAL, BACKWARD),
    ("decimal added to bytes", "bytes", DECIMAL, BOTH),
    ("decimal scale changed", DECIMAL, DECIMAL | {"scale": 1}, BOTH),
    ("record in a union gains a default", ["null", record(A)], ["null", record(A, field("b", "int", default=1))], BOTH),
    ("record in a union gains no default", ["null", record(A)], ["null", record(A, field("b", "int"))], FORWARD),
    ("default of record kind", record(A), record(A, field("i", record(field("x", "int"), name="I"), default={"x": 1})), BOTH),
    ("array default", record(A), record(A, field("i", {"type": "array", "items": "int"}, default=[])), BOTH),
]  # fmt: skip


def avro_schema(document: object) -> Schema:
    return parse(SchemaKind.AVRO, json.dumps(document))


@pytest.mark.parametrize(
    ("older", "newer", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_evolution_is_judged_in_both_directions(
    older: object, newer: object, expected: tuple[bool, bool]
) -> None:
    before, after = avro_schema(older), avro_schema(newer)
    backward = incompatibilities(reader=after, writer=before)
    forward = incompatibilities(reader=before, writer=after)
    assert (not backward, not forward) == expected, (backward, forward)
    assert all(" at $" in text for text in backward + forward)


@pytest.mark.parametrize(
    ("older", "newer"), [case[1:3] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_avro_library_comes_to_the_same_verdict(older: object, newer: object) -> None:
    before, after = (avro.schema.parse(json.dumps(each)) for each in (older, newer))
    for reader, writer, ours in (
        (after, before, (avro_schema(newer), avro_schema(older))),
        (before, after, (avro_schema(older), avro_schema(newer))),
    ):
        theirs = ReaderWriterCompatibilityChecker().get_compatibility(reader, writer)
        is_compatible = theirs.compatibility is SchemaCompatibilityType.compatible
        assert is_compatible == (not incompatibilities(reader=ours[0], writer=ours[1]))


def test_a_fault_names_its_path_and_rule() -> None:
    older = avro_schema(record(field("items", {"type": "array", "items": record(A, name="I")})))
    inner = record(A, field("b", "int"), name="I")
    newer = avro_schema(record(field("items", {"type": "array", "items": inner})))
    [text] = incompatibilities(reader=newer, writer=older)
    assert text.startswith("READER_FIELD_MISSING_DEFAULT_VALUE at $.items.items.b: ")


def test_types_of_references_are_compared_too() -> None:
    root = '{"type":"record","name":"R","fields":[{"name":"i","type":"n.I"}]}'
    narrow = '{"type":"record","name":"I","namespace":"n","fields":[{"name":"x","type":"int"}]}'
    wide = narrow.replace('"int"', '"long"')
    before = parse(SchemaKind.AVRO, root, [ResolvedReference("n.I", narrow)])
    after = parse(SchemaKind.AVRO, root, [ResolvedReference("n.I", wide)])
    assert before.canonical == after.canonical
    assert incompatibilities(reader=after, writer=before) == []
    assert incompatibilities(reader=before, writer=after) == [
        "TYPE_MISMATCH at $.i.x: the reader's type int cannot read the writer's type long"
    ]


def test_many_types_that_all_mention_each_other_are_compared_in_bounded_time() -> None:
    types: list[object] = []
    for index in range(120):
        inner = [field(f"f{other}", ["null", f"T{other}"]) for other in range(index + 1)]
        types.append(record(*inner, name=f"T{index}"))
    newer = [*types, "int"]
    assert incompatibilities(reader=avro_schema(newer), writer=avro_schema(types)) in (
        [],
        ["TOO_COMPLEX: the schemas are too large or too deeply nested to be compared"],
    )


def test_kinds_do_not_mix() -> None:
    other = parse(SchemaKind.JSON, "{}")
    assert incompatibilities(reader=avro_schema("int"), writer=other) == [
        "KIND_CHANGED: JSON data cannot be read with a schema of AVRO"
    ]
