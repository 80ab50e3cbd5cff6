"""Expands `$ref` and `allOf`, so that rules about keywords see the keywords."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.schemas.formats.json_schema.references import Node, SchemaIndex

_FOLLOW_MAX = 100  # references to references
# Members that do not constrain values.
ANNOTATIONS = {
    "$id", "id", "$schema", "$anchor", "$dynamicAnchor", "$comment", "$defs", "definitions",
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
}  # fmt: skip


def flattened(node: Node, schema_index: SchemaIndex) -> Node:
    """The same schema with less indirection; what cannot be merged stays in `allOf`."""
    return _flattened(node, schema_index, 0)


def _flattened(node: Node, schema_index: SchemaIndex, depth: int) -> Node:
    if not isinstance(node, dict) or not ("$ref" in node or "allOf" in node) or depth > _FOLLOW_MAX:
        return node
    parts: list[Node] = []
    target = node.get("$ref")
    if isinstance(target, str):
        found = _target(target, node, schema_index)
        if not node.keys() - ANNOTATIONS - {"$ref"}:
            # The same object each time, so that a recursive schema is recognised.
            return _flattened(found, schema_index, depth + 1)
        parts.append(found)
    branches = node.get("allOf")
    parts += branches if isinstance(branches, list) else []
    merged: dict[str, object] = {
        key: value for key, value in node.items() if key not in ("$ref", "allOf")
    }
    left = []
    for part in parts:
        inner = _flattened(part, schema_index, depth + 1)
        if inner is False:
            return False
        if isinstance(inner, dict) and not _merge(merged, inner):
            left.append(inner)
    return merged | ({"allOf": left} if left else {})


def _target(target: str, node: dict[str, object], schema_index: SchemaIndex) -> Node:
    if target.startswith(("http://json-schema.org/", "https://json-schema.org/")):
        return {"$ref-to-meta-schema": target}
    return schema_index.resolve(target, node)


def _merge(into: dict[str, object], given: Mapping[str, object]) -> bool:
    """Merge the keywords of `given` if none conflicts; return whether that was possible."""
    words = {key: value for key, value in given.items() if key not in ANNOTATIONS}
    for key, value in words.items():
        if key not in into or key == "required" or into[key] == value:
            continue
        ours = into[key]
        if key not in ("properties", "patternProperties"):
            return False
        assert isinstance(ours, dict)
        assert isinstance(value, dict)
        if any(ours[name] != value[name] for name in ours.keys() & value.keys()):
            return False
    for key, value in words.items():
        ours = into.get(key)
        if isinstance(ours, dict) and isinstance(value, dict):
            into[key] = {**ours, **value}
        elif isinstance(ours, list) and isinstance(value, list) and key == "required":
            into[key] = [*ours, *(each for each in value if each not in ours)]
        else:
            into[key] = value
    return True
