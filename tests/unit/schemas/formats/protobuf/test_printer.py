"""The reading of .proto texts, held against protoc, and what clients send instead of texts."""

from __future__ import annotations

import base64
import contextlib
import importlib.resources
from pathlib import Path

import pytest
from confluent_kafka.schema_registry.common.protobuf import _schema_to_str, _str_to_proto
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from google.protobuf import descriptor_pb2
from google.type import money_pb2
from grpc_tools import protoc
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats import (
    ResolvedReference,
    Schema,
    SchemaKind,
    SchemaViolation,
    parse,
    protobuf_serialized,
    record_name,
)
from goqueue.schemas.formats.protobuf import well_known

FULL_2 = r"""
syntax = "proto2";
package shop.v1;
import public "google/protobuf/timestamp.proto";
import weak 'google/protobuf/any.proto';
/* A block
   comment */
option java_package = "com." "shop";
option optimize_for = SPEED;
option java_multiple_files = true;
message Order {
  option deprecated = true;
  required string id = 0x1 [json_name = "ID", deprecated = true];
  optional int32 count = 2 [default = -0x10];
  optional double price = 3 [default = 1.5e3];
  optional float nan = 4 [default = nan];
  optional double low = 5 [default = -inf];
  optional bool is_paid = 6 [default = true];
  optional string text = 7 [default = "a\n\x41\101\"\u00e9'\\"];
  optional bytes raw = 8 [default = "\000\xff\t'q"];
  optional State state = 9 [default = DONE];
  repeated int32 packed = 10 [packed = true, (shop.v1.note) = "packed"];
  repeated group Line = 11 { optional int32 amount = 1; optional .shop.v1.Order back = 2; }
  oneof choice { string a = 12; group Box = 13 { optional int32 x = 1; } Inner b = 14; }
  map<string, Inner> by_name = 15;
  map<int64, State> by_number_2 = 16;
  message Inner { optional google.protobuf.Timestamp at = 1; enum Kind { X = 0; Y = -1; } optional Kind kind = 2; }
  enum State { option allow_alias = true; NEW = 0; DONE = 1; FINISHED = 1 [deprecated = true]; reserved 5, 7 to 9, 100 to max; reserved "OLD"; }
  reserved 20, 30 to 40, 1000 to 2000;
  reserved "foo", "bar";
  extensions 100 to 199, 500;
  extend Order { optional int32 nested_extension = 150; }
  optional .google.protobuf.Any any = 17;
  optional int32 message = 18; optional string option_ = 19;
}
import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { optional string note = 50001; optional Detail detail = 50002; repeated int32 many = 50003; }
message Detail { optional string why = 1; repeated int32 numbers = 2; optional Detail more = 3; }
extend Order { optional string later = 100 [(note) = "x", (detail).why = "because", (detail).more = { numbers: [1, 2] more { why: "deep" } }, (many) = 1, (many) = 2]; };
service Orders {
  option deprecated = true;
  rpc Place (Order) returns (.shop.v1.Detail);
  rpc Watch (stream Order) returns (stream Order.Inner) { option deprecated = true; option idempotency_level = IDEMPOTENT; };
}
;
"""
FULL_3 = """
syntax = "proto3";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Event {
  optional string id = 1;
  string_list list = 2;
  message string_list { repeated string values = 1; }
  oneof _odd { int32 first = 3; }
  optional Event parent = 4;
  google.protobuf.StringValue name = 5;
  map<bool, google.protobuf.Value> facts = 6;
  repeated sint64 deltas = 7 [packed = false];
  Level level = 8;
  reserved 50 to max;
}
enum Level { UNKNOWN = 0; HIGH = 1; }
"""
EDITION = """
edition = "2023";
package e;
option features.field_presence = IMPLICIT;
message M { int32 a = 1 [features.field_presence = EXPLICIT]; repeated int32 b = 2; reserved foo; }
"""


def proto(text: str, references: tuple[ResolvedReference, ...] = ()) -> Schema:
    return parse(SchemaKind.PROTOBUF, text, references)


def compiled(text: str, folder: Path) -> descriptor_pb2.FileDescriptorProto:
    """What protoc makes of a text."""
    (folder / "default").write_text(text, encoding="utf-8")
    known = str(importlib.resources.files("grpc_tools") / "_proto")
    out = folder / "out"
    assert protoc.main(["protoc", f"-I{folder}", f"-I{known}", f"-o{out}", "default"]) == 0
    [file] = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    return file


def descriptor(schema: Schema) -> descriptor_pb2.FileDescriptorProto:
    data = base64.b64decode(protobuf_serialized(schema))
    return descriptor_pb2.FileDescriptorProto.FromString(data)


@pytest.mark.parametrize("text", [FULL_2, FULL_3, EDITION], ids=["proto2", "proto3", "edition"])
def test_our_descriptor_is_the_one_of_protoc(text: str, tmp_path: Path) -> None:
    ours, theirs = descriptor(proto(text)), compiled(text, tmp_path)
    sent = base64.b64encode(theirs.SerializeToString()).decode()
    assert proto(sent).canonical == proto(text).canonical
    for file in (ours, theirs):
        for message in file.message_type:
            _without_derived(message)
        for field in file.extension:
            field.ClearField("json_name")
    assert str(ours) == str(theirs)


def _without_derived(message: descriptor_pb2.DescriptorProto) -> None:
    """Take away names that follow from others, which one of the two may leave out."""
    for field in (*message.field, *message.extension):
        if field.json_name != "ID":
            field.ClearField("json_name")
    for inner in message.nested_type:
        _without_derived(inner)


@pytest.mark.parametrize("text", [FULL_2, FULL_3, EDITION], ids=["proto2", "proto3", "edition"])
def test_the_canonical_text_means_the_same_and_stays_as_it_is(text: str) -> None:
    schema = proto(text)
    for form in (schema.canonical, protobuf_serialized(schema).decode()):
        again = proto(form)
        assert again.canonical == schema.canonical
        assert again.normalized == schema.normalized
        assert descriptor(again) == descriptor(schema)
    assert proto(schema.normalized).normalized == schema.normalized


def test_order_of_imports_options_and_fields_is_normalized() -> None:
    one = 'syntax="proto3"; import "google/protobuf/any.proto"; import "google/protobuf/struct.proto"; option java_package="a"; option go_package="b"; message M { int32 a = 1; int32 b = 2; }'
    other = 'syntax="proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto"; option go_package="b"; option java_package="a"; message M { int32 b = 2; int32 a = 1; }'
    assert proto(one).canonical != proto(other).canonical
    assert proto(one).normalized == proto(other).normalized


def test_what_the_stock_serializer_registers_is_read() -> None:
    sent = _schema_to_str(money_pb2.DESCRIPTOR)
    schema = proto(sent)
    assert record_name(schema) == "google.type.Money"
    assert "message Money" in schema.text
    back = _str_to_proto("default", protobuf_serialized(schema).decode())
    assert back.message_type == descriptor(proto(schema.text)).message_type


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("google/protobuf/timestamp.proto", "google.protobuf.Timestamp"),
        ("google/protobuf/struct.proto", "google.protobuf.Struct"),
        ("google/type/date.proto", "google.type.Date"),
        ("google/type/datetime.proto", "google.type.DateTime"),
        ("confluent/meta.proto", "confluent.Meta"),
        ("confluent/type/decimal.proto", "confluent.type.Decimal"),
        ("confluent/types/decimal.proto", "confluent.type.Decimal"),
        ("confluent/type/variant.proto", "confluent.type.Variant"),
    ],
)
def test_files_that_clients_take_for_granted_are_there(name: str, used: str) -> None:
    schema = proto(f'syntax = "proto3"; import "{name}"; message M {{ {used} a = 1; }}')
    assert descriptor(schema).message_type[0].field[0].type_name == f".{used}"


@pytest.mark.parametrize("module", [meta_pb2, decimal_pb2])
def test_the_files_of_confluent_are_those_that_its_client_has(module: object) -> None:
    file = module.DESCRIPTOR  # type: ignore[attr-defined]
    theirs = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(theirs)
    known = well_known.find(file.name)
    assert known is not None
    again = descriptor(proto(base64.b64encode(known.SerializeToString()).decode()))
    for made in (again, theirs):
        made.ClearField("name")
        for message in made.message_type:
            _without_derived(message)
        for field in made.extension:
            field.ClearField("json_name")
    assert again == theirs


def test_references_are_imports_by_name_and_may_have_references() -> None:
    inner = ResolvedReference(
        "inner.proto", 'syntax="proto3"; package i; message I { int32 a = 1; }'
    )
    outer_text = 'syntax="proto3"; package o; import "inner.proto"; message O { i.I i = 1; }'
    outer = ResolvedReference("outer.proto", outer_text, (inner,))
    root = 'syntax="proto3"; import "outer.proto"; message M { o.O o = 1; }'
    assert proto(root, (outer,)).canonical.endswith("message M {\n  .o.O o = 1;\n}\n")
    sent = protobuf_serialized(proto(outer_text, (inner,))).decode()
    assert proto(root, (ResolvedReference("outer.proto", sent, (inner,)),))


def test_message_indexes_lead_to_messages_and_survive_the_canonical_form() -> None:
    text = 'syntax="proto3"; message A {} message B { message C {} map<string, D> d = 1; message D { message E {} } }'
    for form in (text, proto(text).canonical, proto(text).normalized):
        schema = proto(form)
        assert record_name(schema) == "A"
        assert record_name(schema, [1, 0]) == "B.C"
        assert record_name(schema, [1, 2, 0]) == "B.D.E"
    for indexes in ([2], [1, 3], [-1], [0, 0]):
        with pytest.raises(SchemaViolation, match="lead to no message"):
            record_name(proto(text), indexes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "declares nothing"),
        ("message {", "line 1 column 9: expected a name"),
        ('syntax="proto3";\nmessage A { int32 a = 1 }', "line 2 column 25: expected ';'"),
        ('syntax="proto4";', "'proto4'"),
        ('edition="2050";', "'2050'"),
        ('syntax="proto3"; message A { B b = 1; }', "'B'"),
        ('syntax="proto3"; message A { int32 b = 1; int32 c = 1; }', "duplicate field number"),
        ('syntax="proto3"; message A { int32 b = 1; int32 b = 2; }', "duplicate"),
        ('syntax="proto3"; message A { int32 b = 0; }', "no field number"),
        ('syntax="proto3"; message A { int32 b = 19500; }', "no field number"),
        ('syntax="proto3"; message A { int32 b = 99999999999; }', "no field number"),
        ('syntax="proto3"; message A { int32 b = 1; reserved 1; }', "reserved number"),
        ('syntax="proto3"; message A { int32 b = 1; reserved "b"; }', "reserved name"),
        ('syntax="proto3"; message A { required int32 b = 1; }', "required"),
        ('syntax="proto2"; message A { int32 b = 1; }', "which proto2 needs"),
        ('syntax="proto3"; message A { int32 b = 1 [default = 3]; }', "option default"),
        ('syntax="proto3"; message A { map<float, int32> b = 1; }', "type for keys"),
        ('syntax="proto3"; message A { repeated map<string, int32> b = 1; }', "a map may not have a label"),
        ('syntax="proto3"; message A { oneof o {} }', "has no fields"),
        ('syntax="proto3"; message A { optional group B = 1 {} }', "only proto2 has groups"),
        ('syntax="proto3"; message A {} message A {}', "duplicate"),
        ('syntax="proto3"; enum E { A = 1; }', "must be zero"),
        ('syntax="proto3"; enum E { A = 0; B = 0; }', "allow_alias"),
        ('syntax="proto3"; enum E {}', "no values"),
        ('syntax="proto3"; message A { int32 a=1 [nope=3]; }', "no option nope"),
        ('syntax="proto3"; option java_package = 3;', "java_package"),
        ('syntax="proto3"; import "x.proto";', "'x.proto' leads to no schema"),
        ('syntax="proto3"; import "google/protobuf/../../os.proto";', "leads to no schema"),
        ('syntax="proto3"; import "google/protobuf/nope.proto";', "leads to no schema"),
        ('syntax="proto3"; message A { string a = 1; } "', "cannot read"),
        ('syntax="proto3"; option java_package = "\\q";', "escape"),
        ("message A {" * 3000 + "}" * 3000, "levels deep"),
        ('syntax="proto3"; option (a) = ' + "{ a " * 3000, "nested too deeply"),
        ("//" + "x" * 1024 * 1024, "bytes; at most"),
        (base64.b64encode(b"\x12\x01a\x62\x06proto3").decode(), "declares nothing"),
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        proto(text)
    assert reason in str(caught.value)
    assert str(caught.value).endswith(".")


def test_imports_in_a_circle_are_refused() -> None:
    a = ResolvedReference("a.proto", 'syntax="proto3"; import "b.proto";')
    b = ResolvedReference("b.proto", 'syntax="proto3"; import "a.proto";')
    with pytest.raises(InvalidSchema, match="circle"):
        proto('syntax="proto3"; import "a.proto"; message M {}', (a, b))


_WORDS = st.sampled_from(
    ["message", "enum", "oneof", "map", "<", ">", "string", "int32", "a", "B", "=", "1", "2", "{", "}", ";",
     "reserved", "to", "max", "option", "(", ")", "repeated", "optional", "extend", "[", "]", ",", '"x"',
     "import", "package", "service", "rpc", "returns", "stream", "-", ".", "group", "default", "json_name"]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(_WORDS, max_size=30), st.sampled_from(["", 'syntax="proto3";', 'edition="2023";']))
def test_random_words_are_a_schema_with_one_form_or_invalid(words: list[str], head: str) -> None:
    try:
        schema = proto(f"{head} {' '.join(words)}")
    except InvalidSchema:
        return
    assert proto(schema.canonical).canonical == schema.canonical


_NAMES = st.sampled_from(["a", "b", "c_d", "e1"])
_TYPES = st.sampled_from(["int32", "string", "M", "E", "google.protobuf.Any", "map<string, M>", "map<int32, E>"])  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.tuples(_TYPES, _NAMES, st.integers(1, 30), st.booleans()), max_size=6))
def test_random_messages_have_one_form(fields: list[tuple[str, str, int, bool]]) -> None:
    body = "".join(
        f"{'optional ' if is_optional and 'map' not in kind else ''}{kind} {name} = {number};"
        for kind, name, number, is_optional in fields
    )
    text = f'syntax="proto3"; import "google/protobuf/any.proto"; message M {{ {body} }} enum E {{ X = 0; }}'
    names, numbers = ({field[place] for field in fields} for place in (1, 2))
    if min(len(names), len(numbers)) < len(fields):
        with pytest.raises(InvalidSchema, match="duplicate"):
            proto(text)
        return
    schema = proto(text)
    again = proto(schema.canonical)
    assert descriptor(again) == descriptor(schema)
    assert proto(protobuf_serialized(schema).decode()).canonical == schema.canonical


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_random_descriptors_raise_only_invalid_schema(data: bytes) -> None:
    with contextlib.suppress(InvalidSchema):
        proto(base64.b64encode(data).decode())
