"""Which changes of a JSON Schema are accepted in which direction."""

from __future__ import annotations

import json

import pytest

from goqueue.schemas.formats import (
    ResolvedReference,
    Schema,
    SchemaKind,
    incompatibilities,
    parse,
)

BOTH, BACKWARD, FORWARD, NONE = (True, True), (True, False), (False, True), (False, False)
S: dict[str, object] = {"type": "string"}
I: dict[str, object] = {"type": "integer"}  # noqa: E741
N: dict[str, object] = {"type": "number"}
NULL: dict[str, object] = {"type": "null"}
NEWEST: dict[str, object] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def opened(
    *, required: object = (), more: object = True, **properties: object
) -> dict[str, object]:
    made: dict[str, object] = {"type": "object", "properties": properties}
    if required:
        made["required"] = required
    if more is not True:
        made["additionalProperties"] = more
    return made


def closed(*, required: object = (), **properties: object) -> dict[str, object]:
    return opened(required=required, more=False, **properties)


def array(**words: object) -> dict[str, object]:
    return {"type": "array", **words}


LIST = {
    "type": "object",
    "properties": {"next": {"$ref": "#"}, "v": I},
    "additionalProperties": False,
}
LIST_WIDE = {
    "type": "object",
    "properties": {"next": {"$ref": "#"}, "v": N},
    "additionalProperties": False,
}

# Older, newer, and whether the newer reads the older and the older the newer.
CASES: list[tuple[str, object, object, tuple[bool, bool]]] = [
    ("same", opened(a=S), opened(a=S), BOTH),
    ("title, description, default and id changed", S | {"title": "a", "description": "x", "default": "d"}, S | {"title": "b", "$id": "http://x.y/z"}, BOTH),
    ("anything to something", {}, S, FORWARD),
    ("true to something", True, S, FORWARD),
    ("something to nothing", S, False, FORWARD),
    # Types
    ("integer to number", I, N, BACKWARD),
    ("string to integer", S, I, NONE),
    ("type to list with it", S, {"type": ["string", "null"]}, BACKWARD),
    ("list to other list", {"type": ["string", "null"]}, {"type": ["string", "integer"]}, NONE),
    ("list of integer to number", {"type": ["integer", "null"]}, {"type": ["number", "null"]}, BACKWARD),
    ("type dropped", S, {}, BACKWARD),
    # Objects: open, closed, partly open
    ("property added to an open object", opened(a=S), opened(a=S, b=S), FORWARD),
    ("property that may be anything added to an open object", opened(a=S), opened(a=S, b={}), BOTH),
    ("property removed from an open object", opened(a=S, b=S), opened(a=S), BACKWARD),
    ("optional property added to a closed object", closed(a=S), closed(a=S, b=S), BACKWARD),
    ("required property added to a closed object", closed(a=S), closed(a=S, b=S, required=["b"]), NONE),
    ("required property with default added to a closed object", closed(a=S), closed(a=S, b=S | {"default": ""}, required=["b"]), BACKWARD),
    ("property removed from a closed object", closed(a=S, b=S), closed(a=S), FORWARD),
    ("property that was never allowed removed from a closed object", closed(a=S, b=False), closed(a=S), BOTH),
    ("property covered by the rest added", opened(a=S, more=S), opened(a=S, b=S, more=S), BOTH),
    ("required property covered by the rest added", opened(a=S, more=S), opened(a=S, b=S, more=S, required=["b"]), FORWARD),
    ("required property with default covered by the rest added", opened(a=S, more=S), opened(a=S, b=S | {"default": ""}, more=S, required=["b"]), BOTH),
    ("required property covered by what is unevaluated added", NEWEST | opened(a=S) | {"unevaluatedProperties": S}, NEWEST | opened(a=S, b=S, required=["b"]) | {"unevaluatedProperties": S}, FORWARD),
    ("closed by a keyword that draft 7 ignores", opened(a=S), opened(a=S) | {"unevaluatedProperties": False}, BOTH),
    ("optional property added beside a keyword that draft 7 ignores", opened(a=S) | {"unevaluatedProperties": False}, opened(a=S, b=S) | {"unevaluatedProperties": False}, FORWARD),
    ("property not covered by the rest added", opened(a=S, more=S), opened(a=S, b=I, more=S), NONE),
    ("property wider than the rest added", opened(a=S, more=I), opened(a=S, b=N, more=I), BACKWARD),
    ("property covered by the rest removed", opened(a=S, b=S, more=S), opened(a=S, more=S), BOTH),
    ("property not covered by the rest removed", opened(a=S, b=I, more=S), opened(a=S, more=S), NONE),
    ("property covered by a pattern removed", closed(a=S, x_1=S) | {"patternProperties": {"^x_": S}}, closed(a=S) | {"patternProperties": {"^x_": S}}, BOTH),
    ("property not covered by a pattern removed", closed(a=S, x_1=I) | {"patternProperties": {"^x_": S}}, closed(a=S) | {"patternProperties": {"^x_": S}}, NONE),
    ("object opened", closed(a=S), opened(a=S), BACKWARD),
    ("object closed", opened(a=S), closed(a=S), FORWARD),
    ("rest narrowed", opened(a=S), opened(a=S, more=S), FORWARD),
    ("rest widened", opened(a=S, more=I), opened(a=S, more=N), BACKWARD),
    ("rest changed", opened(a=S, more=I), opened(a=S, more=S), NONE),
    ("pattern added to an open object", opened(a=S), opened(a=S) | {"patternProperties": {"^x": S}}, FORWARD),
    ("pattern added to a closed object", closed(a=S), closed(a=S) | {"patternProperties": {"^x": S}}, BACKWARD),
    ("pattern's schema widened", closed() | {"patternProperties": {"^x": I}}, closed() | {"patternProperties": {"^x": N}}, BACKWARD),
    ("property's type widened", opened(a=I), opened(a=N), BACKWARD),
    ("property's type changed", opened(a=I), opened(a=S), NONE),
    ("inner property's type changed", opened(a=opened(b=I)), opened(a=opened(b=S)), NONE),
    ("property becomes required", opened(a=S), opened(a=S, required=["a"]), FORWARD),
    ("property with default becomes required", opened(a=S), opened(a=S | {"default": "x"}, required=["a"]), BOTH),
    ("property no longer required", opened(a=S, required=["a"]), opened(a=S), BACKWARD),
    ("unlisted property becomes required", opened(a=S), opened(a=S, required=["z"]), FORWARD),
    ("min properties added", opened(), opened() | {"minProperties": 1}, FORWARD),
    ("min properties decreased", opened() | {"minProperties": 2}, opened() | {"minProperties": 1}, BACKWARD),
    ("max properties decreased", opened() | {"maxProperties": 2}, opened() | {"maxProperties": 1}, FORWARD),
    ("dependency added", NEWEST | opened(a=S, b=S), NEWEST | opened(a=S, b=S) | {"dependentRequired": {"a": ["b"]}}, FORWARD),
    ("dependency extended", NEWEST | opened() | {"dependentRequired": {"a": ["b"]}}, NEWEST | opened() | {"dependentRequired": {"a": ["b", "c"]}}, FORWARD),
    ("dependency changed", NEWEST | opened() | {"dependentRequired": {"a": ["b"]}}, NEWEST | opened() | {"dependentRequired": {"a": ["c"]}}, NONE),
    ("dependent schema added", NEWEST | opened(), NEWEST | opened() | {"dependentSchemas": {"a": opened(required=["b"])}}, FORWARD),
    ("dependent schema relaxed", NEWEST | opened() | {"dependentSchemas": {"a": opened(required=["b"])}}, NEWEST | opened() | {"dependentSchemas": {"a": opened()}}, BACKWARD),
    # Strings and numbers
    ("max length increased", S | {"maxLength": 5}, S | {"maxLength": 6}, BACKWARD),
    ("max length added", S, S | {"maxLength": 6}, FORWARD),
    ("min length increased", S | {"minLength": 5}, S | {"minLength": 6}, FORWARD),
    ("min length zero added", S, S | {"minLength": 0}, BOTH),
    ("pattern of a string added", S, S | {"pattern": "^a"}, FORWARD),
    ("pattern of a string changed", S | {"pattern": "^b"}, S | {"pattern": "^a"}, NONE),
    ("maximum increased", N | {"maximum": 5}, N | {"maximum": 5.5}, BACKWARD),
    ("minimum increased", N | {"minimum": 5}, N | {"minimum": 6}, FORWARD),
    ("exclusive maximum added", N, N | {"exclusiveMaximum": 6}, FORWARD),
    ("exclusive minimum decreased", N | {"exclusiveMinimum": 6}, N | {"exclusiveMinimum": 5}, BACKWARD),
    ("multiple reduced", I | {"multipleOf": 10}, I | {"multipleOf": 5}, BACKWARD),
    ("multiple changed", I | {"multipleOf": 10}, I | {"multipleOf": 3}, NONE),
    ("multiple added", I, I | {"multipleOf": 3}, FORWARD),
    # Values
    ("enum extended", {"enum": ["a"]}, {"enum": ["a", "b"]}, BACKWARD),
    ("enum changed", {"enum": ["a", "c"]}, {"enum": ["a", "b"]}, NONE),
    ("enum added", S, S | {"enum": ["a"]}, FORWARD),
    ("const to enum with it", {"const": "a"}, {"enum": ["a", "b"]}, BACKWARD),
    ("const changed", {"const": "a"}, {"const": "b"}, NONE),
    ("enum to its type", {"enum": ["a", "b"]}, S, BACKWARD),
    # Arrays
    ("items widened", array(items=I), array(items=N), BACKWARD),
    ("items changed", array(items=I), array(items=S), NONE),
    ("items described", array(), array(items=S), FORWARD),
    ("max items increased", array(maxItems=1), array(maxItems=2), BACKWARD),
    ("min items added", array(), array(minItems=1), FORWARD),
    ("uniqueness added", array(), array(uniqueItems=True), FORWARD),
    ("contains added", array(), array(contains=S), FORWARD),
    ("first item added to an open array", NEWEST | array(prefixItems=[S]), NEWEST | array(prefixItems=[S, I]), FORWARD),
    ("first item added to a closed array", NEWEST | array(prefixItems=[S], items=False), NEWEST | array(prefixItems=[S, I], items=False), BACKWARD),
    ("first item removed from a closed array", NEWEST | array(prefixItems=[S, I], items=False), NEWEST | array(prefixItems=[S], items=False), FORWARD),
    ("further items refused", array(prefixItems=[S]), array(prefixItems=[S], items=False), FORWARD),
    # Combinations
    ("oneOf branch added", {"oneOf": [S, I]}, {"oneOf": [S, I, NULL]}, BACKWARD),
    ("oneOf branches in another order", {"oneOf": [S, I]}, {"oneOf": [I, S]}, BOTH),
    ("oneOf branch widened", {"oneOf": [S, I]}, {"oneOf": [S, N]}, BACKWARD),
    ("oneOf branch changed", {"oneOf": [S, I]}, {"oneOf": [S, NULL]}, NONE),
    ("anyOf branch removed", {"anyOf": [S, I]}, {"anyOf": [S]}, FORWARD),
    ("oneOf to anyOf", {"oneOf": [S, I]}, {"anyOf": [S, I]}, BACKWARD),
    ("type to oneOf with it", S, {"oneOf": [NULL, S]}, BACKWARD),
    ("type to oneOf without it", S, {"oneOf": [NULL, I]}, NONE),
    ("oneOf to list of types", {"oneOf": [NULL, S]}, {"type": ["null", "string"]}, BACKWARD),
    ("oneOf to narrower type", {"oneOf": [NULL, S]}, S, FORWARD),
    ("allOf branch added", {"allOf": [{"maxLength": 5}], **S}, {"allOf": [{"maxLength": 5}, {"minLength": 1}], **S}, FORWARD),
    ("allOf written out", {"allOf": [opened(a=S), opened(b=I)]}, opened(a=S, b=I), BOTH),
    ("allOf that contradicts kept", {"allOf": [S | {"pattern": "a"}, {"pattern": "b"}]}, {"allOf": [S | {"pattern": "a"}]}, BACKWARD),
    ("not added", S, S | {"not": {"const": "a"}}, FORWARD),
    ("not narrowed", {"not": {"enum": ["a", "b"]}}, {"not": {"enum": ["a"]}}, BACKWARD),
    ("not dropped", {"not": S}, {}, BACKWARD),
    ("condition added", opened(a=S), opened(a=S) | {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, FORWARD),
    # References
    ("reference instead of the schema", opened(a=S), {"$defs": {"x": S}, **opened(a={"$ref": "#/$defs/x"})}, BOTH),
    ("what is referred to widened", {"$defs": {"x": I}, **opened(a={"$ref": "#/$defs/x"})}, {"$defs": {"x": N}, **opened(a={"$ref": "#/$defs/x"})}, BACKWARD),
    ("recursive the same", LIST, LIST, BOTH),
    ("recursive widened", LIST, LIST_WIDE, BACKWARD),
    # Draft 4 and 7 words
    ("draft 7 items list extended", {"$schema": "http://json-schema.org/draft-07/schema#", **array(items=[S], additionalItems=False)}, {"$schema": "http://json-schema.org/draft-07/schema#", **array(items=[S, I], additionalItems=False)}, BACKWARD),
    ("draft 4 exclusive limit added", {"$schema": "http://json-schema.org/draft-04/schema#", **N, "maximum": 5}, {"$schema": "http://json-schema.org/draft-04/schema#", **N, "maximum": 5, "exclusiveMaximum": True}, FORWARD),
    ("dependency added without a named draft", opened(), opened() | {"dependencies": {"a": ["b"]}}, FORWARD),
    ("additional items without items closed", {"$schema": "http://json-schema.org/draft-07/schema#", **array(additionalItems=True)}, {"$schema": "http://json-schema.org/draft-07/schema#", **array(additionalItems=False)}, FORWARD),
    ("additional items without items changed", {**array(additionalItems=S)}, {**array(additionalItems=I)}, NONE),
    ("additional items without items narrowed", {**array()}, {**array(additionalItems=S)}, FORWARD),
    ("additional items without items in a draft that has none", {"$schema": "https://json-schema.org/draft/2020-12/schema", **array(additionalItems=True)}, {"$schema": "https://json-schema.org/draft/2020-12/schema", **array(additionalItems=False)}, BOTH),
    ("additional items beside items of all kinds", {"$schema": "http://json-schema.org/draft-07/schema#", **array(additionalItems=S, items=S)}, {"$schema": "http://json-schema.org/draft-07/schema#", **array(additionalItems=I, items=S)}, BOTH),
    ("positional item added without a named draft", array(items=[S], additionalItems=False), array(items=[S, I], additionalItems=False), BACKWARD),
    ("prefixItems without a named draft", array(prefixItems=[S]), array(prefixItems=[I]), BOTH),
    ("one branch to several", {"anyOf": [S]}, {"oneOf": [I, S]}, BACKWARD),
    ("all of several to any of them", {"allOf": [{"minLength": 1}, {"minLength": 2}]}, {"anyOf": [{"minLength": 2}]}, BOTH),
    ("draft 7 dependency added", {"$schema": "http://json-schema.org/draft-07/schema#", **opened()}, {"$schema": "http://json-schema.org/draft-07/schema#", **opened(), "dependencies": {"a": ["b"]}}, FORWARD),
]  # fmt: skip


def json_schema(document: object) -> Schema:
    return parse(SchemaKind.JSON, json.dumps(document))


@pytest.mark.parametrize(("older", "newer", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])  # fmt: skip
def test_evolution_is_judged_in_both_directions(
    older: object, newer: object, expected: tuple[bool, bool]
) -> None:
    before, after = json_schema(older), json_schema(newer)
    backward = incompatibilities(reader=after, writer=before)
    forward = incompatibilities(reader=before, writer=after)
    assert (not backward, not forward) == expected, (backward, forward)
    assert all(" at #" in text for text in backward + forward)


def test_a_fault_names_its_path_and_rule() -> None:
    before = json_schema(opened(a=opened(b=array(items=opened(c=I)))))
    after = json_schema(opened(a=opened(b=array(items=opened(c=S)))))
    assert incompatibilities(reader=after, writer=before) == [
        "TYPE_CHANGED at #/properties/a/properties/b/items/properties/c/type: integer became string"
    ]


def test_schemas_of_references_are_compared_too() -> None:
    root = '{"properties":{"a":{"$ref":"other.json"}}}'
    before = parse(SchemaKind.JSON, root, [ResolvedReference("other.json", '{"type":"integer"}')])
    after = parse(SchemaKind.JSON, root, [ResolvedReference("other.json", '{"type":"number"}')])
    assert before.canonical == after.canonical
    assert incompatibilities(reader=after, writer=before) == []
    [text] = incompatibilities(reader=before, writer=after)
    assert "TYPE_NARROWED at #/properties/a/type" in text


def test_faults_have_a_bound() -> None:
    names = [f"p{index}" for index in range(500)]
    before = json_schema(opened(**dict.fromkeys(names, S)))
    after = json_schema(opened(**dict.fromkeys(names, I)))
    found = incompatibilities(reader=after, writer=before)
    assert len(found) == 101
    assert found[-1] == "and 400 more"


def test_a_comparison_that_would_not_end_is_given_up() -> None:
    def branches(depth: int, leaf: object) -> object:
        for _ in range(depth):
            leaf = opened(a={"anyOf": [opened(x=leaf), opened(x=leaf, y=S), opened(x=leaf, z=S)]})
        return leaf

    found = incompatibilities(
        reader=json_schema(branches(5, {"enum": [1]})),
        writer=json_schema(branches(5, {"enum": [2]})),
    )
    assert found
