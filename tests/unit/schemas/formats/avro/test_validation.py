"""Avro payloads: what the library writes is accepted, what is broken is refused with its path."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats import (
    ResolvedReference,
    SchemaKind,
    SchemaViolation,
    Validate,
    parse,
    record_name,
    validator,
)

ORDER = {
    "type": "record", "name": "shop.Order", "fields": [
        {"name": "id", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "weight", "type": "float"},
        {"name": "is_paid", "type": "boolean"},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "attributes", "type": {"type": "map", "values": "bytes"}},
        {"name": "parent", "type": ["null", "Order"]},
    ],
}  # fmt: skip
CHECK = validator(parse(SchemaKind.AVRO, json.dumps(ORDER)))


def order(**changes: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "id": "o-1", "count": -3, "price": 1.5, "weight": 0.5, "is_paid": True, "placed": 1700000000000,
        "state": "DONE", "hash": b"abcd", "tags": ["a", "b"], "attributes": {"k": b"v"}, "parent": None,
    }  # fmt: skip
    return plain | changes


def encoded(schema: Any, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


PAYLOAD = encoded(ORDER, order())


def violation(schema: object, payload: bytes) -> SchemaViolation:
    with pytest.raises(SchemaViolation) as caught:
        validator(parse(SchemaKind.AVRO, json.dumps(schema)))(payload)
    return caught.value


def refusal(check: Validate, payload: bytes) -> SchemaViolation | None:
    try:
        check(payload)
    except SchemaViolation as error:
        return error
    return None


def test_what_the_library_writes_is_accepted() -> None:
    CHECK(PAYLOAD)
    CHECK(memoryview(encoded(ORDER, order(parent=order(tags=[])))))


@pytest.mark.parametrize("end", range(len(PAYLOAD)))
def test_a_cut_payload_is_refused_with_the_path_of_the_field(end: int) -> None:
    with pytest.raises(SchemaViolation) as caught:
        CHECK(PAYLOAD[:end])
    assert caught.value.path.startswith("$.")


def test_bytes_after_the_value_are_refused() -> None:
    with pytest.raises(SchemaViolation, match="1 bytes follow"):
        CHECK(PAYLOAD + b"\0")


@pytest.mark.parametrize(
    ("schema", "payload", "path", "reason"),
    [
        (["null", "int"], b"\x01", "$", "branch -1"),
        (["null", "int"], b"\x04", "$", "branch 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "$", "symbol 1"),
        ("boolean", b"\x02", "$", "not 2"),
        ("int", b"\xff\xff\xff\xff\xff\x01", "$", "does not fit into an int"),
        ("long", b"\xff" * 10 + b"\x01", "$", "more than 64 bits"),
        ("string", b"\x02\xff", "$", "not UTF-8"),
        ("string", b"\x01", "$", "a length of -1"),
        ({"type": "array", "items": "int"}, b"\x04\x02\x80", "$[1]", "end inside"),
        ({"type": "map", "values": "int"}, b"\x02\x02k\x80", "$['k']", "end inside"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f", "$", "items are announced"),
        ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00", "$", "another size"),
    ],
)
def test_a_broken_value_is_named(schema: object, payload: bytes, path: str, reason: str) -> None:
    found = violation(schema, payload)
    assert found.path == path
    assert reason in found.reason


def test_the_path_goes_through_records_and_arrays() -> None:
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "rows", "type": {"type": "array", "items": {
            "type": "record", "name": "Row", "fields": [{"name": "flag", "type": "boolean"}]}}}]}  # fmt: skip
    assert violation(schema, b"\x04\x01\x07\x00").path == "$.rows[1].flag"


def test_a_list_that_never_ends_is_refused_instead_of_crashing() -> None:
    schema = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    assert "levels deep" in violation(schema, b"\x02" * 1_000_000 + b"\x00").reason


def test_items_without_bytes_cost_nothing_whatever_their_count() -> None:
    check = validator(parse(SchemaKind.AVRO, '{"type":"array","items":"null"}'))
    check(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00")


def test_blocks_with_sizes_are_accepted() -> None:
    validator(parse(SchemaKind.AVRO, '{"type":"array","items":"int"}'))(b"\x03\x04\x02\x04\x00")


@given(st.binary(max_size=200))
def test_random_bytes_raise_only_violations(payload: bytes) -> None:
    found = refusal(CHECK, payload)
    assert found is None or found.path.startswith("$")


@given(
    st.builds(
        order,
        id=st.text(max_size=20),
        count=st.integers(-(2**31), 2**31 - 1),
        placed=st.integers(-(2**40), 2**40),
        tags=st.lists(st.text(max_size=5), max_size=5),
        attributes=st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=5),
    )
)
def test_every_value_the_library_can_write_is_accepted(value: dict[str, object]) -> None:
    plain = json.loads(json.dumps(ORDER))
    plain["fields"][5]["type"] = "long"
    CHECK(encoded(plain, value))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[[[", "not JSON"),
        ("1", "a name, an object or an array"),
        ('"strin"', "no type called 'strin'"),
        ("strin", "no type called 'strin'"),
        ('{"type":"record","name":"R"}', "'fields'"),
        ('{"type":"record","name":"a b","fields":[]}', "is no name"),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}', "two fields"),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":"s"}]}', "$.x.default"),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":1e3}]}', "$.x.default"),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":["null","int"],"default":"s"}]}', "no type of the union"),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":"int","order":"up"}]}', "'order'"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "differ"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "none of the symbols"),
        ('{"type":"enum","name":"E","symbols":["a-b"]}', "is no symbol"),
        ('{"type":"fixed","name":"F","size":-1}', "'size'"),
        ('{"type":"array"}', "'items'"),
        ('{"type":"map"}', "'values'"),
        ('["int","int"]', "'int' twice"),
        ('["int",["null"]]', "directly contain a union"),
        ('{"type":"record","name":"int","fields":[]}', "is taken"),
        ('[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]', "is taken"),
        ('{"name":"x"}', "'type'"),
        ('{"a":1,"a":2}', "two members"),
        ('{"type":"int","x":NaN}', "NaN"),
        ('{"type":"int","x":' + "9" * 500 + "}", "digits"),
        ('{"type":"int","x":"\\ud800"}', "Unicode"),
        ('{"type":"array","items":' * 200 + '"int"' + "}" * 200, "levels deep"),
        ('"' + " " * 1024 * 1024 + '"', "bytes; at most"),
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(SchemaKind.AVRO, text)
    assert reason in str(caught.value)
    assert str(caught.value).endswith(".")


def test_types_chained_by_names_have_a_bound() -> None:
    chain: object = "int"
    references = []
    for index in range(500):
        chain = {"type": "record", "name": f"T{index}", "fields": [{"name": "n", "type": chain}]}
        references.append(ResolvedReference(f"T{index}", json.dumps(chain)))
        chain = f"T{index}"
    with pytest.raises(InvalidSchema, match="levels deep"):
        parse(SchemaKind.AVRO, json.dumps(chain), references)


@pytest.mark.parametrize(
    ("text", "canonical", "normalized"),
    [
        ("string", '"string"', '"string"'),
        (' { "type" : "string" } ', '"string"', '"string"'),
        (
            '{"name":"a.R","type":"record","z":1,"b":2,"fields":[{"type":{"type":"int"},"name":"x"}]}',
            '{"type":"record","name":"R","namespace":"a","fields":[{"name":"x","type":"int"}],"z":1,"b":2}',
            '{"type":"record","name":"a.R","fields":[{"name":"x","type":"int"}],"b":2,"z":1}',
        ),
        (
            '{"type":"long","logicalType":"timestamp-millis"}',
            '{"type":"long","logicalType":"timestamp-millis"}',
            '{"type":"long","logicalType":"timestamp-millis"}',
        ),
    ],
)
def test_one_schema_has_one_canonical_form(text: str, canonical: str, normalized: str) -> None:
    schema = parse(SchemaKind.AVRO, text)
    assert schema.text == text
    assert schema.canonical == canonical
    assert schema.normalized == normalized
    again = parse(SchemaKind.AVRO, schema.canonical)
    assert (again.canonical, again.normalized) == (canonical, normalized)


def test_documentation_defaults_and_aliases_make_schemas_differ() -> None:
    plain = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
    seen = {
        parse(SchemaKind.AVRO, json.dumps(each)).canonical
        for each in (
            plain,
            plain | {"doc": "d"},
            plain | {"aliases": ["S"]},
            plain | {"fields": [{"name": "x", "type": "int", "default": 1}]},
            plain | {"fields": [{"name": "x", "type": "int", "aliases": ["y"]}]},
        )
    }
    assert len(seen) == 5


def test_the_record_name_is_the_full_name() -> None:
    assert record_name(parse(SchemaKind.AVRO, json.dumps(ORDER))) == "shop.Order"


def test_names_of_references_can_be_used_and_are_not_repeated() -> None:
    inner = '{"type":"record","name":"I","namespace":"n","fields":[]}'
    outer = '{"type":"record","name":"O","namespace":"n","fields":[{"name":"i","type":"I"}]}'
    root = '{"type":"record","name":"R","fields":[{"name":"o","type":"n.O"},{"name":"i","type":"n.I"}]}'
    reference = ResolvedReference("n.O", outer, (ResolvedReference("n.I", inner),))
    schema = parse(SchemaKind.AVRO, root, [reference])
    assert schema.canonical == root
    validator(schema)(b"")
