"""The rules for single keywords of JSON Schema: types, values, limits, arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import re2

from goqueue.schemas.formats import json_text
from goqueue.schemas.formats.json_schema.references import Node

_ALL_TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})

# The keywords that constrain each type: they imply the type if a schema does not give it.
_UPPER = {
    "maxLength": "MAX_LENGTH",
    "maximum": "MAXIMUM",
    "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "maxProperties": "MAX_PROPERTIES",
    "maxItems": "MAX_ITEMS",
    "maxContains": "MAX_CONTAINS",
}
_LOWER = {
    "minLength": "MIN_LENGTH",
    "minimum": "MINIMUM",
    "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "minProperties": "MIN_PROPERTIES",
    "minItems": "MIN_ITEMS",
    "minContains": "MIN_CONTAINS",
}
_NOTHING_SAID = {"minLength", "minProperties", "minItems"}  # no constraint if zero


class Comparing(Protocol):
    """What these rules need to compare inner schemas."""

    def schemas(self, reader: Node, writer: Node, path: str, depth: int) -> list[str]: ...

    def is_readable(self, reader: Node, writer: Node, depth: int) -> bool: ...


def type_faults(reader: Mapping[str, object], writer: Mapping[str, object], path: str) -> list[str]:
    """Every type that could be written can still be read; an integer is a number."""
    now, before = _types(reader), _types(writer)
    if before <= now:
        return []
    was, is_now = _type_names(before), _type_names(now)
    rule = "TYPE_NARROWED" if now & before else "TYPE_CHANGED"
    return [f"{rule} at {path}/type: {was} became {is_now}"]


def value_faults(
    reader: Mapping[str, object], writer: Mapping[str, object], path: str
) -> list[str]:
    """`enum`, `const`, `pattern`, `format` and `multipleOf`."""
    found = _enum_faults(reader, writer, path)
    if "pattern" in reader and reader["pattern"] != writer.get("pattern"):
        rule = "PATTERN_CHANGED" if "pattern" in writer else "PATTERN_ADDED"
        found.append(f"{rule} at {path}/pattern: what was written before may not match")
    return found + _multiple_faults(reader, writer, path)


def limit_faults(
    reader: Mapping[str, object], writer: Mapping[str, object], path: str
) -> list[str]:
    """Limits may be widened or dropped, not added or narrowed."""
    found = []
    for keyword, name in (*_UPPER.items(), *_LOWER.items()):
        now, before = _number(reader.get(keyword)), _number(writer.get(keyword))
        if now is None or (now == 0 and keyword in _NOTHING_SAID):
            # In draft 4 the exclusive limits are true or false beside the limit itself.
            if reader.get(keyword) is True and writer.get(keyword) is not True:
                found.append(f"{name}_ADDED at {path}/{keyword}: the limit itself is refused now")
            continue
        is_upper = keyword in _UPPER
        if before is None:
            found.append(f"{name}_ADDED at {path}/{keyword}: there was no limit before")
        elif is_upper and now < before:
            found.append(f"{name}_DECREASED at {path}/{keyword}: from {before} to {now}")
        elif not is_upper and now > before:
            found.append(f"{name}_INCREASED at {path}/{keyword}: from {before} to {now}")
    return found


def array_faults(
    comparing: Comparing,
    reader: Mapping[str, object],
    writer: Mapping[str, object],
    path: str,
    depth: int,
) -> list[str]:
    """Items by position, all other items, uniqueness and `contains`."""
    found = []
    if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
        found.append(f"UNIQUE_ITEMS_ADDED at {path}/uniqueItems: items may be equal in older data")
    contained, contained_before = reader.get("contains"), writer.get("contains")
    if isinstance(contained, dict | bool):
        if not isinstance(contained_before, dict | bool):
            found.append(f"CONTAINS_ADDED at {path}/contains: older data may not obey it")
        else:
            found += comparing.schemas(contained, contained_before, f"{path}/contains", depth)
    (firsts, rest), (firsts_before, rest_before) = _items(reader), _items(writer)
    if not {"items", "prefixItems"} & {*reader, *writer}:
        # It constrains nothing then, but Confluent's registry compares it, and clients expect that.
        rest, rest_before = _node(reader, "additionalItems"), _node(writer, "additionalItems")
    for index in range(max(len(firsts), len(firsts_before))):
        now = firsts[index] if index < len(firsts) else rest
        before = firsts_before[index] if index < len(firsts_before) else rest_before
        inner = f"{path}/items/{index}"
        if index >= len(firsts_before) and before is True and now not in (True, {}):
            found.append(
                f"ITEM_ADDED_TO_OPEN_CONTENT_MODEL at {inner}: it could be anything before"
            )
        elif index >= len(firsts) and now is False and before is not False:
            found.append(f"ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL at {inner}: it is refused now")
        else:
            found += comparing.schemas(now, before, inner, depth)
    return found + _rest_faults(comparing, rest, rest_before, f"{path}/items", depth)


def _rest_faults(comparing: Comparing, now: Node, before: Node, path: str, depth: int) -> list[str]:
    if now is True or before is False:
        return []
    if now is False:
        return [f"ADDITIONAL_ITEMS_REMOVED at {path}: further items are refused now"]
    if before is True and now != {}:
        return [f"ADDITIONAL_ITEMS_NARROWED at {path}: further items were anything"]
    return comparing.schemas(now, before, path, depth)


def property_schema(schema: Mapping[str, object], name: str) -> Node:
    """The schema of a property that is not listed: true is open, false is closed."""
    patterns = schema.get("patternProperties")
    for pattern, inner in patterns.items() if isinstance(patterns, dict) else ():
        if isinstance(inner, dict | bool) and _is_match(pattern, name):
            return inner
    rest = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
    return rest if isinstance(rest, dict | bool) else True


def _is_match(pattern: str, name: str) -> bool:
    # Linear time for any pattern; one that needs a backtracking engine covers nothing.
    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return False


def _types(schema: Mapping[str, object]) -> frozenset[str]:
    named = schema.get("type")
    if isinstance(named, str):
        names = {named}
    elif isinstance(named, list):
        names = {str(each) for each in named}
    elif "const" in schema or isinstance(schema.get("enum"), list):
        options = schema.get("enum", [schema.get("const")])
        names = {_type_of(each) for each in options} if isinstance(options, list) else set()
    else:
        return _ALL_TYPES
    return frozenset(names | ({"integer"} if "number" in names else set()))


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _type_names(types: frozenset[str]) -> str:
    if types == _ALL_TYPES:
        return "anything"
    return " or ".join(sorted(types - ({"integer"} if "number" in types else set()))) or "nothing"


def _enum_faults(
    reader: Mapping[str, object], writer: Mapping[str, object], path: str
) -> list[str]:
    now, before = _options(reader), _options(writer)
    if now is None:
        return []
    if before is None:
        return [f"ENUM_ARRAY_ADDED at {path}/enum: other values were written before"]
    missing = before - now
    if not missing:
        return []
    rule = "ENUM_ARRAY_NARROWED" if now < before else "ENUM_ARRAY_CHANGED"
    return [f"{rule} at {path}/enum: {', '.join(sorted(missing)[:10])[:300]} is refused now"]


def _options(schema: Mapping[str, object]) -> set[str] | None:
    """The values that `enum` or `const` allow, as text."""
    if "const" in schema:
        return {json_text.write(schema["const"], is_sorted=True)}
    options = schema.get("enum")
    if not isinstance(options, list):
        return None
    return {json_text.write(each, is_sorted=True) for each in options}


def _multiple_faults(
    reader: Mapping[str, object], writer: Mapping[str, object], path: str
) -> list[str]:
    now, before = _number(reader.get("multipleOf")), _number(writer.get("multipleOf"))
    if now is None or now == before or not now:
        return []
    if before is None:
        return [f"MULTIPLE_OF_ADDED at {path}/multipleOf: any number was written before"]
    if before % now == 0:
        return []
    rule = "MULTIPLE_OF_EXPANDED" if now % before == 0 else "MULTIPLE_OF_CHANGED"
    return [f"{rule} at {path}/multipleOf: from {before} to {now}"]


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _items(schema: Mapping[str, object]) -> tuple[list[Node], Node]:
    """Schemas of the first items by position, and of all that follow, in any draft's syntax."""
    firsts, rest = schema.get("prefixItems"), schema.get("items", True)
    if isinstance(rest, list):
        firsts, rest = rest, schema.get("additionalItems", True)
    if rest is True and "unevaluatedItems" in schema:
        rest = schema["unevaluatedItems"]
    listed = (
        [each for each in firsts if isinstance(each, dict | bool)]
        if isinstance(firsts, list)
        else []
    )
    return listed, rest if isinstance(rest, dict | bool) else True


def _node(schema: Mapping[str, object], keyword: str) -> Node:
    """The schema under a keyword; without one, anything."""
    found = schema.get(keyword, True)
    return found if isinstance(found, dict | bool) else True
