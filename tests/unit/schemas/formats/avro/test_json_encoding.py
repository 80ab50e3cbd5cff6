"""Avro values as JSON and back, held against fastavro."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.schemas.formats import SchemaKind, SchemaViolation, decoder, encoder, parse

ALL: Any = {
    "type": "record",
    "name": "shop.All",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "half", "type": "float"},
        {"name": "whole", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "suit", "type": {"type": "enum", "name": "Suit", "symbols": ["HEART", "SPADE"]}},
        {"name": "list", "type": {"type": "array", "items": "int"}},
        {"name": "tree", "type": {"type": "map", "values": ["null", "shop.All"]}},
        {"name": "either", "type": ["null", "long", "string", "shop.Suit"]},
    ],
}
INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


def record(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "flag": st.booleans(),
            "small": INT,
            "large": LONG,
            "half": st.floats(width=32),
            "whole": st.floats(),
            "raw": st.binary(max_size=5),
            "text": st.text(max_size=5),
            "four": st.binary(min_size=4, max_size=4),
            "suit": st.sampled_from(["HEART", "SPADE"]),
            "list": st.lists(INT, max_size=3),
            "tree": st.dictionaries(st.text(max_size=3), st.none() | inner, max_size=2),
            "either": st.none() | LONG | st.text(max_size=3),
        }
    )


RECORDS = record(record(st.none()))


def schema(tree: object) -> Any:
    return parse(SchemaKind.AVRO, json.dumps(tree))


def encoded(tree: object, value: object) -> bytes:
    return encoder(schema(tree))(json.dumps(value).encode())


def decoded(tree: object, payload: bytes) -> Any:
    return json.loads(decoder(schema(tree))(payload))


def by_fastavro(tree: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(tree), value)
    return out.getvalue()


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(value=RECORDS)
def test_what_fastavro_writes_is_read_and_written_again(value: Any) -> None:
    payload = by_fastavro(ALL, value)
    text = decoder(schema(ALL))(payload)
    assert encoder(schema(ALL))(text) == payload
    # It cannot write records inside of themselves as JSON.
    flat = {**ALL, "fields": [one for one in ALL["fields"] if one["name"] != "tree"]}
    json_out = io.StringIO()
    fastavro.json_writer(json_out, fastavro.parse_schema(flat), [value])
    ours, theirs = json.loads(text), json.loads(json_out.getvalue())
    for name in ("flag", "small", "large", "raw", "text", "four", "suit", "list", "either"):
        assert ours[name] == theirs[name]


def test_a_float_is_shown_in_the_digits_that_it_needs() -> None:
    for value, shown in (
        (0.1, 0.1),
        (1.5, 1.5),
        (16777217, 16777216.0),
        (3.4028235e38, 3.4028235e38),
    ):
        assert decoded("float", by_fastavro("float", value)) == shown
    for value in (math.nan, math.inf, -math.inf):
        name = decoded("double", by_fastavro("double", value))
        assert encoded("double", name) == by_fastavro("double", value)


def test_a_union_is_written_with_the_name_of_its_type_or_without() -> None:
    union = ["null", "int", {"type": "record", "name": "a.R", "fields": [
        {"name": "x", "type": ["string", "null"]}]}]  # fmt: skip
    assert encoded(union, None) == b"\0"
    assert encoded(union, 5) == encoded(union, {"int": 5}) == b"\x02\x0a"
    plain, tagged = {"x": "y"}, {"a.R": {"x": {"string": "y"}}}
    assert encoded(union, plain) == encoded(union, tagged) == b"\x04\x00\x02y"
    assert decoded(union, b"\x04\x00\x02y") == tagged
    with pytest.raises(SchemaViolation, match="is of no type of the union"):
        encoded(union, "text")
    with pytest.raises(SchemaViolation, match=r"\$\.x.*5 is no string"):
        encoded(union[2], {"x": 5})


def test_a_field_that_is_left_out_has_its_default() -> None:
    tree = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"},
        {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "c", "type": [{"type": "map", "values": "int"}, "null"], "default": {"map": 1}},
    ]}  # fmt: skip
    assert encoded(tree, {"a": 1}) == b"\x02" + b"\x02\xff" + b"\x00" + b"\x02\x06map\x02\x00"
    with pytest.raises(SchemaViolation, match="the field 'a' is missing"):
        encoded(tree, {})
    with pytest.raises(SchemaViolation, match="no field 'z'"):
        encoded(tree, {"a": 1, "z": 2})


@pytest.mark.parametrize(
    ("tree", "text", "reason"),
    [
        ("int", "2147483648", "does not fit into the type int"),
        ("int", "1.0", "is no int"),
        ("int", "true", "is no int"),
        ("long", '"5"', "is no long"),
        ("float", "1e39", "does not fit into the type float"),
        ("double", "NaN", "no JSON number"),
        ("double", "1" + "0" * 400, "does not fit"),
        ("bytes", '"é€"', "one character per byte"),
        ("string", '"\\ud800"', "half of a surrogate pair"),
        ("boolean", "1", "is no boolean"),
        ("null", "0", "is not null"),
        ({"type": "fixed", "name": "F", "size": 2}, '"a"', "1 bytes, but F has 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, '"B"', r"no symbol of the enum E \(A\)"),
        ({"type": "array", "items": "int"}, '[1, "x"]', r"\$\[1\]"),
        ({"type": "map", "values": "int"}, '{"k": "x"}', r"\$\['k'\]"),
        ({"type": "map", "values": "int"}, "[]", "is no object"),
        ("int", "{", "not JSON: .* line 1 column 2"),
        ("int", "[" * 5000, "nested more than"),
        ("long", "9" * 5000, "not JSON"),
    ],
)
def test_what_does_not_fit_is_named(tree: object, text: str, reason: str) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        encoder(schema(tree))(text.encode())


def test_bytes_that_are_not_text_are_not_json() -> None:
    with pytest.raises(SchemaViolation, match="not JSON"):
        encoder(schema("string"))(b'"\xff"')


NESTED = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}


def test_values_nest_as_deep_as_a_validated_one() -> None:
    value: Any = None
    for _ in range(95):
        value = {"n": value}
    payload = encoded(NESTED, value)
    assert encoder(schema(NESTED))(json.dumps(value).encode()) == payload
    with pytest.raises(SchemaViolation, match="nested"):
        decoded(NESTED, b"\x02" * 200 + b"\x00")


def test_few_bytes_cannot_announce_millions_of_items() -> None:
    with pytest.raises(SchemaViolation, match="items without content"):
        decoded({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\x01\x00")


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(payload=st.binary(max_size=40))
def test_any_bytes_are_a_value_or_refused(payload: bytes) -> None:
    try:
        text = decoder(schema(ALL))(payload)
    except SchemaViolation:
        return
    json.loads(text)
