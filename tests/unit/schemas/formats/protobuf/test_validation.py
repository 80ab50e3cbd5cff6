"""Protobuf payloads: what the library writes is accepted, what is broken is refused with its path."""

from __future__ import annotations

import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from goqueue.schemas.formats import (
    SchemaKind,
    SchemaViolation,
    Validate,
    parse,
    protobuf_validator,
    validator,
)
from goqueue.schemas.formats.protobuf.schema import ProtobufSchema

TEXT = """
syntax = "proto3";
message Order {
  string id = 1;
  int32 count = 2;
  repeated int32 numbers = 3;
  repeated Line lines = 4;
  map<string, Line> by_name = 5;
  fixed32 small = 6;
  double price = 7;
  bytes raw = 8;
  Order parent = 9;
  repeated fixed64 wide = 10;
  message Line { string name = 1; bool is_paid = 2; State state = 3; }
  enum State { NEW = 0; }
}
message Other { int32 a = 1; }
"""
SCHEMA = parse(SchemaKind.PROTOBUF, TEXT)
assert isinstance(SCHEMA, ProtobufSchema)
CHECK = validator(SCHEMA)
ORDER: type[Message] = message_factory.GetMessageClass(SCHEMA.file.message_types_by_name["Order"])


def violation(payload: bytes, text: str = TEXT, indexes: tuple[int, ...] = (0,)) -> SchemaViolation:
    with pytest.raises(SchemaViolation) as caught:
        protobuf_validator(parse(SchemaKind.PROTOBUF, text), indexes)(payload)
    return caught.value


def refusal(check: Validate, payload: bytes) -> SchemaViolation | None:
    try:
        check(payload)
    except SchemaViolation as error:
        return error
    return None


def test_what_the_library_writes_is_accepted() -> None:
    order = ORDER(
        id="é", count=-1, numbers=[1, 2, -3], lines=[{"name": "a", "is_paid": True}],
        by_name={"x": {"name": "y"}}, small=3, price=1.5, raw=b"\xff", parent={"id": "p"}, wide=[1],
    )  # fmt: skip
    CHECK(order.SerializeToString())
    CHECK(memoryview(order.SerializeToString()))
    CHECK(b"")


def test_fields_of_a_newer_schema_are_accepted() -> None:
    CHECK(b"\xfa\x07\x01x")  # field 127, a string
    CHECK(b"\x22\x03\xf8\x07\x01")  # inside a line
    CHECK(b"\x1a\x02\x01\x02\x18\x05")  # packed and not packed together


@pytest.mark.parametrize(
    ("payload", "path", "reason"),
    [
        (b"\x08\x01", "$.id", "comes as a varint"),
        (b"\x12\x01a", "$.count", "comes as a length and bytes"),
        (b"\x0a\x05ab", "$.id", "end inside this field"),
        (b"\x0a\x01\xff", "$.id", "not UTF-8"),
        (b"\x10\x80", "$.count", "end inside a number"),
        (b"\x10" + b"\xff" * 10 + b"\x01", "$.count", "more than 64 bits"),
        (b"\x22\x02\x0a\x00\x22\x02\x10\x80", "$.lines[1].is_paid", "end inside a number"),
        (b"\x22\x02\x08\x01", "$.lines[0].name", "comes as a varint"),
        (b"\x2a\x04\x12\x02\x08\x01", "$.by_name[0].value.name", "comes as a varint"),
        (b"\x4a\x02\x08\x01", "$.parent.id", "comes as a varint"),
        (b"\x1a\x01\x80", "$.numbers", "end inside a number"),
        (b"\x52\x03abc", "$.wide", "in the middle"),
        (b"\x35ab", "$.small", "end inside this field"),
        (b"\x00\x01", "$", "number 0"),
        (b"\xfb\x07", "$", "end inside this group"),
        (b"\x0c", "$.id", "unknown form"),
        (b"\x07", "$", "number 0"),
    ],
)
def test_a_broken_message_is_named(payload: bytes, path: str, reason: str) -> None:
    found = violation(payload)
    assert found.path == path
    assert reason in found.reason


def test_required_fields_are_named() -> None:
    text = 'syntax="proto2"; message M { repeated N n = 1; } message N { required int32 a = 1; }'
    assert violation(b"\x0a\x02\x08\x01\x0a\x00", text).path == "$.n[1].a"


def test_the_message_is_chosen_by_indexes() -> None:
    protobuf_validator(SCHEMA, [1])(b"\x08\x01")
    protobuf_validator(SCHEMA, [])(b"\x0a\x01x")
    assert violation(b"\x0a\x00", indexes=(1,)).path == "$.a"
    assert "lead to no message" in violation(b"", indexes=(7,)).reason


def test_messages_that_never_end_are_refused() -> None:
    payload = b""
    for _ in range(300):
        size = len(payload)
        length = bytes((size,)) if size < 128 else bytes((size & 127 | 128, size >> 7))
        payload = b"\x4a" + length + payload
    assert "levels deep" in violation(payload).reason
    assert "levels deep" in violation(b"\xfb\x07" * 5000).reason


@given(st.binary(max_size=60))
def test_random_bytes_raise_only_violations(payload: bytes) -> None:
    found = refusal(CHECK, payload)
    assert found is None or found.path.startswith("$")


@given(
    st.builds(
        ORDER,
        id=st.text(max_size=5),
        count=st.integers(-(2**31), 2**31 - 1),
        numbers=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
        raw=st.binary(max_size=5),
        lines=st.lists(st.fixed_dictionaries({"name": st.text(max_size=3)}), max_size=3),
    ),
    st.binary(max_size=3),
)
def test_every_message_the_library_can_write_is_accepted(message: Message, more: bytes) -> None:
    CHECK(message.SerializeToString())
    found = refusal(CHECK, message.SerializeToString() + more)
    assert found is None or found.path.startswith("$")
