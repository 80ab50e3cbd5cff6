"""JSON documents as columns, by their schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from goqueue.model.errors import InvalidRequest
from goqueue.spark.typed.json_schema import JsonReader
from tests.unit.spark.typed.framed import decoded, head, json_bytes, json_text


class Case(NamedTuple):
    schema: Any
    values: st.SearchStrategy[Any]
    shown: Callable[[Any], Any] = lambda value: value


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
LEAVES = [
    Case({"type": "string"}, TEXTS),
    Case({"type": "integer"}, st.integers(-(2**63), 2**63 - 1)),
    Case({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)),
    Case({"type": ["boolean", "null"]}, st.none() | st.booleans()),
    Case({"enum": ["a", "b"]}, st.sampled_from("ab")),
    Case({"anyOf": [{"type": "integer"}, {"type": "null"}]}, st.none() | st.integers(0, 9)),
    # What has no single type is the JSON itself.
    Case({}, ANYTHING, json.dumps),
    Case({"type": ["string", "integer"]}, TEXTS | st.integers(0, 9), json.dumps),
    Case({"type": "object"}, st.dictionaries(TEXTS, ANYTHING, max_size=2), json.dumps),
]


def shown_by(case: Case, value: Any) -> Any:
    return None if value is None else case.shown(value)


def cases() -> st.SearchStrategy[Case]:
    def deeper(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
        names = st.text(st.characters(min_codepoint=35, exclude_characters="\\"), min_size=1)
        structs = st.dictionaries(names, inner, min_size=1, max_size=4)
        return st.one_of(inner.map(array_of), inner.map(map_of), structs.map(struct_of))

    return st.recursive(st.sampled_from(LEAVES), deeper, max_leaves=8)


def array_of(item: Case) -> Case:
    return Case(
        {"type": "array", "items": item.schema},
        st.lists(item.values, max_size=3),
        lambda values: [shown_by(item, value) for value in values],
    )


def map_of(item: Case) -> Case:
    return Case(
        {"type": "object", "additionalProperties": item.schema},
        st.dictionaries(TEXTS, item.values, max_size=3),
        lambda values: {key: shown_by(item, value) for key, value in values.items()},
    )


def struct_of(members: dict[str, Case]) -> Case:
    members = {name: members[name] for name in {one.lower(): one for one in members}.values()}
    return Case(
        {"type": "object", "properties": {name: one.schema for name, one in members.items()}},
        st.fixed_dictionaries({}, optional={name: one.values for name, one in members.items()}),
        lambda value: {name: shown_by(one, value.get(name)) for name, one in members.items()},
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data(), case=cases())
def test_every_type_comes_back_as_it_was_written(data: st.DataObject, case: Case) -> None:
    values = data.draw(st.lists(case.values, max_size=5))
    schema = json_text(case.schema)
    found, reasons = decoded(schema, [None, *(json_bytes(value) for value in values)])
    assert reasons == {}
    assert found == [None, *(shown_by(case, value) for value in values)]
    arrow = JsonReader(schema).shape.arrow
    assert to_arrow_type(from_arrow_type(arrow), timezone="UTC") == arrow


ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "references"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": ADDRESS}}, {}),
        (
            {
                "properties": {"a": {"$ref": "#place"}},
                "$defs": {"x": {**ADDRESS, "$anchor": "place"}},
            },
            {},
        ),
        ({"properties": {"a": {"$ref": "address.json"}}}, {"address.json": ADDRESS}),
        (
            {"properties": {"a": {"$ref": "http://shop/a.json"}}},
            {"any": {**ADDRESS, "$id": "http://shop/a.json"}},
        ),
        ({"properties": {"a": {"allOf": [{"$ref": "#/d/x"}]}}, "d": {"x": ADDRESS}}, {}),
        ({"properties": {"a": {"oneOf": [{"type": "null"}, ADDRESS]}}}, {}),
    ],
)
def test_references_and_wrappings_lead_to_the_same_column(schema: Any, references: Any) -> None:
    text = json_text(schema, **references)
    assert JsonReader(text).shape.arrow == pa.struct(
        [pa.field("a", pa.struct([pa.field("city", pa.string())]))]
    )
    assert decoded(text, [json_bytes({"a": {"city": "Bern"}})]) == ([{"a": {"city": "Bern"}}], {})


def test_parts_of_all_of_are_one_struct() -> None:
    schema = {
        "allOf": [
            {"properties": {"a": {"type": "integer"}}},
            {"$ref": "#/d/more"},
        ],
        "properties": {"c": {"type": "boolean"}},
        "d": {"more": {"properties": {"b": {"type": "string"}}}},
    }
    value = {"a": 1, "b": "x", "c": True}
    found, _ = decoded(json_text(schema), [json_bytes(value)])
    assert found == [value]


def test_other_versions_are_read_by_the_names_of_fields() -> None:
    new = {"properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    old = json_text({"properties": {"id": {"type": "integer"}, "gone": {"type": "string"}}})
    found, _ = decoded(json_text(new, 2), [json_bytes({"id": 1, "gone": "x"})], old)
    assert found == [{"id": 1, "name": None}]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "truncated"),
        (b'{"id": "7"}', "$.id"),
        (b'{"id": 7.5}', "no whole number"),
        (b'{"id": 99999999999999999999}', "$.id"),
        (b"[]", "object"),
        (b'{"id": 1} x', "trailing"),
        (b"", "truncated"),
        (b'{"tags": ["a", 1]}', "$.tags[1]"),
    ],
)
def test_bad_documents_are_null_and_say_where(data: bytes, reason: str) -> None:
    tags = {"type": "array", "items": {"type": "string"}}
    schema = json_text({"properties": {"id": {"type": "integer"}, "tags": tags}})
    good = json_bytes({"id": 7.0, "tags": ["t"]})
    found, reasons = decoded(schema, [good, head(1) + data, good])
    assert found == [{"id": 7, "tags": ["t"]}, None, {"id": 7, "tags": ["t"]}]
    assert reason in reasons[1]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=5))
def test_random_bytes_are_values_or_reasons(pieces: list[bytes]) -> None:
    found, reasons = decoded(json_text(ADDRESS), [head(1) + piece for piece in pieces])
    assert len(found) == len(pieces)
    for row in reasons:
        assert found[row] is None


def test_schemas_without_an_end_are_refused() -> None:
    node = {"properties": {"next": {"$ref": "#"}}}
    with pytest.raises(InvalidRequest, match=r"recursive: at \$\.next"):
        JsonReader(json_text(node))
    with pytest.raises(InvalidRequest, match="cannot be in the name of a column"):
        JsonReader(json_text({"properties": {'a"b': {"type": "string"}}}))
    with pytest.raises(InvalidRequest, match="not among its references"):
        JsonReader(json_text({"$ref": "elsewhere.json"}))
    with pytest.raises(InvalidRequest, match="leads to no schema"):
        JsonReader(json_text({"$ref": "#/nowhere"}))
