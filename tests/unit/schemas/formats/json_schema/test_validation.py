"""JSON payloads and JSON Schemas: paths of violations, drafts, references, and hostile input."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats import (
    ResolvedReference,
    Schema,
    SchemaKind,
    SchemaViolation,
    parse,
    record_name,
    validator,
)

NEWEST = "https://json-schema.org/draft/2020-12/schema"
ORDER = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}},
        },
    },
    "required": ["id"],
    "additionalProperties": False,
}


def json_schema(document: object, references: tuple[ResolvedReference, ...] = ()) -> Schema:
    return parse(SchemaKind.JSON, json.dumps(document), references)


def violation(schema: Schema, payload: object) -> SchemaViolation:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    with pytest.raises(SchemaViolation) as caught:
        validator(schema)(data)
    return caught.value


@pytest.mark.parametrize(
    ("payload", "path", "reason"),
    [
        ({"id": 1}, "$.id", 'not of type "string"'),
        ({"id": "a", "lines": [{"count": 1}, {"count": 0}]}, "$.lines[1].count", "minimum of 1"),
        ({}, "$", '"id" is a required property'),
        ({"id": "a", "x": 1}, "$", "'x'"),
        ([], "$", "object"),
        (b"{", "$", "not JSON"),
        (b"", "$", "not JSON"),
        (b'{"id": "\xff"}', "$", "not JSON"),
        (b"NaN", "$", "not JSON"),
    ],
)
def test_a_violation_names_the_path(payload: object, path: str, reason: str) -> None:
    found = violation(json_schema(ORDER), payload)
    assert found.path == path
    assert reason in found.reason


def test_what_obeys_is_accepted() -> None:
    check = validator(json_schema(ORDER))
    check(b'{"id": "a", "lines": [{"count": 2, "more": true}]}')
    check(memoryview(b'{"id": "a"}'))


@pytest.mark.parametrize(
    ("draft", "schema", "good", "bad"),
    [
        ("http://json-schema.org/draft-04/schema#", {"maximum": 5, "exclusiveMaximum": True}, 4, 5),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMaximum": 5}, 4, 5),
        ("http://json-schema.org/draft-07/schema#", {"items": [{"type": "string"}]}, ["a"], [1]),
        ("https://json-schema.org/draft/2019-09/schema", {"dependentRequired": {"a": ["b"]}}, {}, {"a": 1}),
        ("https://json-schema.org/draft/2020-12/schema", {"prefixItems": [{"type": "string"}]}, ["a"], [1]),
    ],
)  # fmt: skip
def test_drafts_have_their_own_words(draft: str, schema: dict[str, object], good: object, bad: object) -> None:  # fmt: skip
    made = json_schema({"$schema": draft, **schema})
    validator(made)(json.dumps(good).encode())
    violation(made, bad)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"$schema": "https://json-schema.org/draft-07/schema"},
        {"$schema": "http://nowhere/"},
    ],
    ids=str,
)
def test_a_schema_that_names_no_known_draft_is_draft_7(document: dict[str, object]) -> None:
    document |= {"items": [{"type": "string"}], "dependencies": {"a": ["b"]}}
    schema = json_schema(document)
    validator(schema)(b'["a", 1]')
    assert violation(schema, [1]).path == "$[0]"
    assert violation(schema, {"a": 1}).path == "$"


def test_a_schema_of_the_newest_draft_has_no_positional_items() -> None:
    with pytest.raises(InvalidSchema, match="is not of types"):
        json_schema({"$schema": NEWEST, "items": [{"type": "string"}]})


@pytest.mark.parametrize(
    ("root", "name", "text"),
    [
        ({"properties": {"x": {"$ref": "other.json"}}}, "other.json", {"type": "string"}),
        ({"$id": "http://a.b/c/d.json", "properties": {"x": {"$ref": "other.json"}}}, "other.json", {"type": "string"}),
        ({"properties": {"x": {"$ref": "http://a.b/o"}}}, "http://a.b/o", {"type": "string"}),
        ({"properties": {"x": {"$ref": "http://a.b/o"}}}, "whatever", {"$id": "http://a.b/o", "type": "string"}),
        ({"properties": {"x": {"$ref": "o.json#/$defs/s"}}}, "o.json", {"$defs": {"s": {"type": "string"}}}),
        ({"$schema": NEWEST, "properties": {"x": {"$ref": "o.json#s"}}}, "o.json", {"$schema": NEWEST, "$defs": {"s": {"$anchor": "s", "type": "string"}}}),
        ({"properties": {"x": {"$ref": "o.json#s"}}}, "o.json", {"definitions": {"s": {"$id": "#s", "type": "string"}}}),
        ({"properties": {"x": {"$ref": "com.example.Other"}}}, "com.example.Other", {"type": "string"}),
    ],
)  # fmt: skip
def test_references_are_found_by_name_and_by_id(root: object, name: str, text: object) -> None:
    schema = json_schema(root, (ResolvedReference(name, json.dumps(text)),))
    validator(schema)(b'{"x": "a"}')
    assert violation(schema, {"x": 1}).path == "$.x"


def test_references_may_have_references() -> None:
    inner = ResolvedReference("inner.json", '{"type": "string"}')
    outer = ResolvedReference("outer.json", '{"items": {"$ref": "inner.json"}}', (inner,))
    schema = json_schema({"properties": {"x": {"$ref": "outer.json"}}}, (outer,))
    assert violation(schema, {"x": ["a", 1]}).path == "$.x[1]"


def test_the_record_name_is_the_title() -> None:
    assert record_name(json_schema(ORDER)) == "Order"
    assert record_name(json_schema({})) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[]", "an object, or true or false"),
        ('"x"', "an object, or true or false"),
        ('{"type": "strin"}', "Invalid JSON Schema"),
        ('{"minLength": -1}', "Invalid JSON Schema"),
        ('{"pattern": "("}', "Invalid JSON Schema"),
        ('{"properties": []}', "Invalid JSON Schema"),
        ('{"$ref": "#/nowhere"}', "leads to nothing"),
        ('{"$ref": "#nowhere"}', "anchor"),
        ('{"$ref": "http://example.com/schema"}', "Nothing is fetched"),
        ('{"$ref": "file:///etc/passwd"}', "Nothing is fetched"),
        ('{"$ref": "#"}', "refers to itself"),
        ('{"allOf": [{"$ref": "#"}]}', "refers to itself"),
        ('{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "refers to itself"),
        ('{"not":' * 200 + "{}" + "}" * 200, "levels deep"),
        ('{"title": "' + "x" * 1024 * 1024 + '"}', "bytes; at most"),
        ('{"pattern": "(?:a{1000}){1000}"}', "Invalid JSON Schema"),
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(SchemaKind.JSON, text)
    assert reason in str(caught.value)
    assert str(caught.value).endswith(".")


def test_branches_that_double_the_work_are_refused() -> None:
    definitions: dict[str, object] = {"d40": {"type": "null"}}
    for index in range(40):
        definitions[f"d{index}"] = {"anyOf": [{"$ref": f"#/$defs/d{index + 1}"}] * 2}
    with pytest.raises(InvalidSchema, match="too many branches"):
        json_schema({"$defs": definitions, "$ref": "#/$defs/d0"})


def test_long_chains_of_references_are_refused() -> None:
    definitions: dict[str, object] = {"d5000": True}
    for index in range(5000):
        definitions[f"d{index}"] = {"$ref": f"#/$defs/d{index + 1}"}
    with pytest.raises(InvalidSchema, match="levels deep"):
        json_schema({"$defs": definitions, "$ref": "#/$defs/d0"})


def test_levels_that_double_the_work_bound_the_depth_of_payloads() -> None:
    schema = json_schema(
        {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}], "type": "array"}
    )
    assert "levels deep" in violation(schema, b"[" * 60 + b"1" + b"]" * 60).reason
    assert violation(schema, b"[" * 10 + b"1" + b"]" * 10).path


def test_trees_of_plain_recursion_may_be_deep() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "v": {"type": "integer"}}}
    check = validator(json_schema(tree))
    payload = b'{"left":' * 150 + b'{"v":1}' + b"}" * 150
    check(payload)
    assert violation(json_schema(tree), payload.replace(b"1", b'"x"')).path.endswith(".left.v")


def test_a_payload_that_is_too_deep_is_refused() -> None:
    assert "levels deep" in violation(json_schema({}), b"[" * 100_000 + b"]" * 100_000).reason


def test_a_catastrophic_pattern_ends() -> None:
    schema = json_schema({"type": "string", "pattern": "^(a+)+(?=x)$"})
    violation(schema, "a" * 5000 + "b")


def test_members_in_another_order_are_the_same_only_when_normalized() -> None:
    one, other = (parse(SchemaKind.JSON, text) for text in ('{"a":1, "b":2}', '{"b":2,"a":1}'))
    assert one.canonical == '{"a":1,"b":2}'
    assert one.canonical != other.canonical
    assert one.normalized == other.normalized


@settings(deadline=None)  # the first call loads the libraries
@given(st.text(max_size=60))
def test_random_text_raises_only_invalid_schema(text: str) -> None:
    for kind in SchemaKind:
        with contextlib.suppress(InvalidSchema):
            parse(kind, text)


_WORDS = st.sampled_from(
    ["type", "items", "properties", "$ref", "anyOf", "allOf", "not", "$id", "$defs", "required", "enum",
     "name", "fields", "symbols", "record", "string", "int", "#", "#/x", "null", "pattern", "values"]
)  # fmt: skip
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=25,
)


@given(_DOCUMENTS)
def test_random_documents_are_schemas_with_one_form_or_invalid(document: object) -> None:
    for kind in (SchemaKind.AVRO, SchemaKind.JSON):
        try:
            schema = parse(kind, json.dumps(document))
        except InvalidSchema:
            continue
        again = parse(kind, schema.canonical)
        assert again.canonical == schema.canonical
        assert again.normalized == schema.normalized
        assert parse(kind, schema.normalized).normalized == schema.normalized
        with contextlib.suppress(SchemaViolation):
            validator(schema)(b'{"type": [1, "x"]}')


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SchemaKind.JSON, '"\\' * 300_000),
        (SchemaKind.JSON, '{"' * 300_000),
        (SchemaKind.AVRO, "[" * 1_000_000),
        (SchemaKind.PROTOBUF, '"\\' * 300_000),
        (SchemaKind.PROTOBUF, "/*" * 300_000),
        (SchemaKind.PROTOBUF, "message A { oneof o { " * 30_000),
    ],
)
def test_texts_made_to_be_slow_are_refused_soon(kind: SchemaKind, text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(kind, text)
