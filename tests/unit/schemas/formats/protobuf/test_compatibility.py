"""Which changes of a Protobuf schema are accepted in which direction."""

from __future__ import annotations

import pytest

from goqueue.schemas.formats import (
    ResolvedReference,
    Schema,
    SchemaKind,
    incompatibilities,
    parse,
)

BOTH, BACKWARD, FORWARD, NONE = (True, True), (True, False), (False, True), (False, False)
TWO, THREE = 'syntax = "proto2";', 'syntax = "proto3";'


def message(body: str, more: str = "") -> str:
    return f"{THREE} message M {{ {body} }} {more}"


def message2(body: str) -> str:
    return f"{TWO} message M {{ {body} }}"


def field(kind: str) -> str:
    return message(f"{kind} a = 1;")


SCALAR_GROUPS = [
    ("int32", "int64", "uint32", "uint64", "bool"),
    ("sint32", "sint64"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("string", "bytes"),
    ("float",),
    ("double",),
]
SCALAR_CASES = [
    (f"{older} to {newer}", field(older), field(newer), BOTH if group is other else NONE)
    for group in SCALAR_GROUPS
    for other in SCALAR_GROUPS
    for older, newer in sorted({(group[0], other[0]), (group[-1], other[0]), (group[0], other[-1])})
    if older != newer
]

# Older, newer, and whether the newer reads the older and the older the newer.
CASES = [
    ("same", field("int32"), field("int32"), BOTH),
    ("comments and blanks", field("int32"), "// x\n" + field("int32").replace(" ", "\n"), BOTH),
    ("field added", message("int32 a = 1;"), message("int32 a = 1; string b = 2;"), BOTH),
    ("field removed and reserved", message("int32 a = 1; string b = 2;"), message('int32 a = 1; reserved 2; reserved "b";'), BOTH),
    ("reserved number used again", message("reserved 2;"), message("string b = 2;"), BOTH),
    ("field renamed", message("int32 a = 1;"), message("int32 b = 1;"), BOTH),
    ("field renumbered", message("int32 a = 1;"), message("int32 a = 2;"), BOTH),
    ("numbers swapped between kinds", message("int32 a = 1; string b = 2;"), message("string b = 1; int32 a = 2;"), NONE),
    ("fields in another order", message("int32 a = 1; string b = 2;"), message("string b = 2; int32 a = 1;"), BOTH),
    ("number to repeated", field("int32"), field("repeated int32"), NONE),
    ("string to repeated", field("string"), field("repeated string"), BOTH),
    ("bytes to repeated", field("bytes"), field("repeated bytes"), BOTH),
    ("message to repeated", message("M a = 1;"), message("repeated M a = 1;"), BOTH),
    ("becomes optional", field("int32"), field("optional int32"), BOTH),
    ("scalar to message", field("int32"), field("M"), NONE),
    ("bytes to message", field("bytes"), field("M"), NONE),
    ("enum to int32", message("E a = 1; enum E { A = 0; }"), message("int32 a = 1; enum E { A = 0; }"), BOTH),
    ("enum to string", message("E a = 1; enum E { A = 0; }"), message("string a = 1; enum E { A = 0; }"), NONE),
    ("enum value added", message("E a = 1; enum E { A = 0; }"), message("E a = 1; enum E { A = 0; B = 1; }"), BOTH),
    ("enum value renamed", message("enum E { A = 0; B = 1; }"), message("enum E { A = 0; C = 1; }"), BOTH),
    ("enum removed", message("enum E { A = 0; }"), message(""), BOTH),
    ("package changed", f"{THREE} package a; message M {{}}", f"{THREE} package b; message M {{}}", NONE),
    ("package added", f"{THREE} message M {{}}", f"{THREE} package b; message M {{}}", NONE),
    ("package changed, fields of its own types", f"{THREE} package a; message M {{ M m = 1; }}", f"{THREE} package b; message M {{ M m = 1; }}", NONE),
    ("message added", message(""), message("", "message N {}"), BACKWARD),
    ("message removed", message("", "message N {}"), message(""), FORWARD),
    ("message renamed", message("", "message N {}"), message("", "message O {}"), NONE),
    ("messages in another order", message("", "message N {}"), f"{THREE} message N {{}} message M {{}}", BOTH),
    ("inner message added", message(""), message("message I {}"), BACKWARD),
    ("inner message removed", message("message I {}"), message(""), FORWARD),
    ("inner message's field changed", message("message I { int32 a = 1; } I i = 1;"), message("message I { string a = 1; } I i = 1;"), NONE),
    ("field of another message", message("N a = 1;", "message N {} message O {}"), message("O a = 1;", "message N {} message O {}"), NONE),
    ("recursive", message("M m = 1; int32 a = 2;"), message("M m = 1; int64 a = 2;"), BOTH),
    # Maps
    ("map the same", field("map<string, int32>"), field("map<string, int32>"), BOTH),
    ("map value of one group", field("map<string, int32>"), field("map<string, int64>"), BOTH),
    ("map value changed", field("map<string, int32>"), field("map<string, string>"), NONE),
    ("map key changed", field("map<string, int32>"), field("map<int32, int32>"), NONE),
    ("map to message", field("map<string, int32>"), message("repeated N a = 1;", "message N { string key = 1; int32 value = 2; }"), (False, False)),
    ("map to scalar", field("map<string, int32>"), field("int32"), NONE),
    ("map renamed", message("map<string, int32> a = 1;"), message("map<string, int32> b = 1;"), BOTH),
    # Oneofs
    ("oneof added around one field", message("int32 a = 1;"), message("oneof o { int32 a = 1; }"), BOTH),
    ("oneof added around two fields", message("int32 a = 1; int32 b = 2;"), message("oneof o { int32 a = 1; int32 b = 2; }"), BACKWARD[::-1]),
    ("oneof added around an old and a new field", message("int32 a = 1;"), message("oneof o { int32 a = 1; int32 b = 2; }"), BACKWARD),
    ("field moved into an existing oneof", message("int32 a = 1; oneof o { int32 b = 2; }"), message("oneof o { int32 a = 1; int32 b = 2; }"), FORWARD),
    ("new field in an existing oneof", message("oneof o { int32 b = 2; }"), message("oneof o { int32 a = 1; int32 b = 2; }"), BACKWARD),
    ("field removed from a oneof", message("oneof o { int32 a = 1; int32 b = 2; }"), message("oneof o { int32 b = 2; }"), FORWARD),
    ("field moved out of a oneof", message("oneof o { int32 a = 1; int32 b = 2; }"), message("int32 a = 1; oneof o { int32 b = 2; }"), BACKWARD),
    ("oneof dissolved", message("oneof o { int32 a = 1; int32 b = 2; }"), message("int32 a = 1; int32 b = 2;"), BACKWARD),
    ("oneof renamed", message("oneof o { int32 a = 1; int32 b = 2; }"), message("oneof p { int32 a = 1; int32 b = 2; }"), BOTH),
    ("field moved into a oneof that was renamed", message("int32 a = 1; oneof o { int32 b = 2; }"), message("oneof p { int32 a = 1; int32 b = 2; }"), FORWARD),
    ("field of a deleted oneof moved into another", message("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"), message("oneof p { int32 a = 1; int32 b = 2; }"), FORWARD),
    ("two oneofs merged into a new one", message("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"), message("oneof q { int32 a = 1; int32 b = 2; }"), FORWARD),
    ("field of a oneof moved into a new one", message("oneof o { int32 a = 1; int32 b = 2; }"), message("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"), BACKWARD),
    ("field dropped while its oneof is renamed", message("oneof o { int32 a = 1; int32 b = 2; }"), message("oneof p { int32 a = 1; }"), FORWARD),
    ("oneof deleted with all its fields", message("int32 x = 9; oneof o { int32 a = 1; int32 b = 2; }"), message("int32 x = 9;"), BOTH),
    ("type changed while the oneof is renamed", message("oneof o { int32 a = 1; }"), message("oneof p { string a = 1; }"), NONE),
    ("oneof field's type changed", message("oneof o { int32 a = 1; }"), message("oneof o { string a = 1; }"), NONE),
    # proto2
    ("required added", message2(""), message2("required int32 a = 1;"), NONE),
    ("optional added", message2(""), message2("optional int32 a = 1;"), BOTH),
    ("optional to required", message2("optional int32 a = 1;"), message2("required int32 a = 1;"), FORWARD),
    ("default changed", message2("optional int32 a = 1 [default = 1];"), message2("optional int32 a = 1 [default = 2];"), BOTH),
    ("group to message", message2("optional group A = 1 {}"), message2("optional A a = 1; message A {}"), NONE),
    ("group's field changed", message2("optional group A = 1 { optional int32 x = 1; }"), message2("optional group A = 1 { optional string x = 1; }"), NONE),
    ("proto2 to proto3", message2("optional int32 a = 1;"), field("int32"), BOTH),
    *SCALAR_CASES,
]  # fmt: skip


def proto(text: str) -> Schema:
    return parse(SchemaKind.PROTOBUF, text)


@pytest.mark.parametrize(("older", "newer", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])  # fmt: skip
def test_evolution_is_judged_in_both_directions(
    older: str, newer: str, expected: tuple[bool, bool]
) -> None:
    before, after = proto(older), proto(newer)
    backward = incompatibilities(reader=after, writer=before)
    forward = incompatibilities(reader=before, writer=after)
    assert (not backward, not forward) == expected, (backward, forward)
    assert all(" at #/" in text for text in backward + forward)


def test_a_fault_names_its_path_and_rule() -> None:
    older = proto(message("message I { message J { int32 a = 1; } J j = 1; } I i = 1;"))
    newer = proto(message("message I { message J { string b = 1; } J j = 1; } I i = 1;"))
    assert incompatibilities(reader=newer, writer=older) == [
        "FIELD_SCALAR_KIND_CHANGED at #/M/I/J/a: field 1 was int32 and is string"
    ]


def test_imported_messages_are_compared_too() -> None:
    root = f'{THREE} import "other.proto"; message M {{ o.Other a = 1; }}'
    narrow = f"{THREE} package o; message Other {{ int32 x = 1; }}"
    changed = narrow.replace("int32", "string")
    before = parse(SchemaKind.PROTOBUF, root, [ResolvedReference("other.proto", narrow)])
    after = parse(SchemaKind.PROTOBUF, root, [ResolvedReference("other.proto", changed)])
    assert incompatibilities(reader=before, writer=before) == []
    [text] = incompatibilities(reader=after, writer=before)
    assert "FIELD_SCALAR_KIND_CHANGED at #/M/a/x" in text
