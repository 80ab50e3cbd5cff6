"""Prepares Avro schemas for fastavro: full names, default values, and refused schemas."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from goqueue.model.errors import InvalidRequest
from goqueue.spark.typed.registry import SchemaText
from goqueue.spark.typed.shapes import DECIMAL_DIGITS_MAX, DEPTH_MAX, refuse_recursion

Node = Any  # JSON: a name, a list of types, or an object
Named = dict[str, Any]


def parsed(schema: SchemaText) -> tuple[Node, Named]:
    """Return the schema with full names, and the types that they refer to."""
    named: Named = {}
    try:
        for reference in schema.references:
            if reference.name not in named:
                parse_schema(_document(reference.text), named)
        document = parse_schema(_document(schema.text), named, _write_hint=False)
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f"{schema} is no Avro schema that can be read: {error}") from error
    return document, named


def _document(text: str) -> Node:
    bare = text.strip()
    return bare if bare.isidentifier() else json.loads(bare)


def self_contained(document: Node, named: Named) -> Node:
    """Return a schema that defines every name at its first use, without most logical types."""
    defined: set[str] = set()

    def copied(node: Node) -> Node:
        if isinstance(node, list):
            return [copied(one) for one in node]
        if isinstance(node, str):
            return copied(named[node]) if node in named and node not in defined else node
        name = node.get("name")
        if name in defined:
            return name
        if name is not None:
            defined.add(name)
        kept = {key: value for key, value in node.items() if not key.startswith("__")}
        if not is_decimal(node):
            kept.pop("logicalType", None)
        if "fields" in kept:
            kept["fields"] = [{**one, "type": copied(one["type"])} for one in kept["fields"]]
        for part in ("items", "values"):
            if part in kept:
                kept[part] = copied(kept[part])
        return kept

    return copied(document)


def fill_defaults(node: Node, named: Named) -> None:
    """Convert defaults to values: fastavro returns them as they are in the JSON."""
    if isinstance(node, list):
        for one in node:
            fill_defaults(one, named)
    elif isinstance(node, dict):
        if "name" in node:
            named[node["name"]] = node
        for part in ("items", "values"):
            if part in node:
                fill_defaults(node[part], named)
        for one in node.get("fields", ()):
            fill_defaults(one["type"], named)
            if "default" in one:
                one["default"] = default_value(one["type"], one["default"], named)


def default_value(node: Node, value: Any, named: Named) -> Any:
    node = named.get(node, node) if isinstance(node, str) else node
    if isinstance(node, list):
        # Since Avro 1.12 a default may be of any branch; before, it had to be of the first.
        branches = [named.get(one, one) if isinstance(one, str) else one for one in node]
        return default_value(
            next((one for one in branches if _fits(one, value)), node[0]), value, named
        )
    kind = kind_of(node)
    if value is None or kind == "null":
        return None
    if kind in ("bytes", "fixed"):
        data = value.encode("latin-1") if isinstance(value, str) else value
        if not is_decimal(node) or not isinstance(data, bytes):
            return data
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-node.get("scale", 0))
    if kind == "array":
        return [default_value(node["items"], one, named) for one in value]
    if kind == "map":
        return {key: default_value(node["values"], one, named) for key, one in value.items()}
    if kind == "record":
        return {
            one["name"]: default_value(
                one["type"], value.get(one["name"], one.get("default")), named
            )
            for one in node["fields"]
        }
    return float(value) if kind in ("float", "double") else value


def _fits(node: Node, value: Any) -> bool:
    kind = kind_of(node)
    if kind == "null" or value is None:
        return kind == "null" and value is None
    if isinstance(value, bool):
        return kind == "boolean"
    texts = ("string", "enum", "bytes", "fixed")
    numbers = ("int", "long", "float", "double")
    return (
        (isinstance(value, str) and kind in texts)
        or (isinstance(value, int) and kind in numbers)
        or (isinstance(value, float) and kind in ("float", "double"))
        or (isinstance(value, list) and kind == "array")
        or (isinstance(value, dict) and kind in ("record", "map"))
    )


def check_decodable(node: Node, named: Named, path: str, above: tuple[str, ...]) -> None:
    """Refuse schemas with which few bytes cause unbounded work: recursion, lists of empty items."""
    node = named.get(node, node) if isinstance(node, str) else node
    if isinstance(node, list):
        for one in node:
            check_decodable(one, named, path, above)
    elif isinstance(node, dict):
        name = node.get("name")
        if name in above or len(above) >= DEPTH_MAX:
            raise refuse_recursion(path, str(name))
        inner = (*above, name) if name else above
        for one in node.get("fields", ()):
            check_decodable(one["type"], named, f"{path}.{one['name']}", inner)
        if "items" in node:
            check_decodable(node["items"], named, f"{path}[]", inner)
            if _is_empty(node["items"], named):
                raise InvalidRequest(f"At {path} the schema has a list of items without bytes.")
        if "values" in node:
            check_decodable(node["values"], named, f"{path}{{}}", inner)


def _is_empty(node: Node, named: Named) -> bool:
    """Return whether values of the type take no bytes; called after recursion is refused."""
    node = named.get(node, node) if isinstance(node, str) else node
    kind = kind_of(node)
    if kind == "record":
        return all(_is_empty(one["type"], named) for one in node["fields"])
    return kind == "null" or (kind == "fixed" and node["size"] == 0)


def is_decimal(node: Node) -> bool:
    """Return whether Spark can hold the decimal; otherwise it stays bytes, as Avro prescribes."""
    if not isinstance(node, dict) or node.get("logicalType") != "decimal":
        return False
    precision, scale = node.get("precision"), node.get("scale", 0)
    return (
        kind_of(node) in ("bytes", "fixed")
        and isinstance(precision, int)
        and isinstance(scale, int)
        and 0 <= scale <= precision
        and 0 < precision <= DECIMAL_DIGITS_MAX
    )


def kind_of(node: Node) -> str:
    if isinstance(node, list):
        return "union"
    found = node["type"] if isinstance(node, dict) else node
    return "record" if found == "error" else str(found)
