"""JSON Schema: msgspec decodes directly into structs that are generated from the schema.

Fields are matched by name, so the fields of the reader's schema are read whichever version a value
was written with. Values without a single Spark type (a free-form object, a choice between text and
number) stay JSON text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from goqueue.model.errors import InvalidRequest
from goqueue.spark.typed.framing import HEAD_BYTES
from goqueue.spark.typed.registry import SchemaText
from goqueue.spark.typed.shapes import (
    DEPTH_MAX,
    Array,
    Converted,
    Map,
    Member,
    Plain,
    Shape,
    Whole,
    refuse_recursion,
    struct_of,
)

Node = Any
_UNNAMEABLE = re.compile(r'["\\\x00-\x1f]')
_LONG = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
# The struct types are generated from every schema; their contents depend only on the schema.
_Made = tuple[Any, Shape]
_PLAIN: dict[str, _Made] = {
    "string": (str | None, Plain(pa.string())),
    "integer": (_LONG | float | None, Whole(pa.int64())),
    "number": (float | None, Plain(pa.float64())),
    "boolean": (bool | None, Plain(pa.bool_())),
    "null": (None, Plain(pa.null())),
}


class JsonReader:
    """The schema that all values of a column are converted to."""

    def __init__(self, schema: SchemaText) -> None:
        types = _Types(_Documents.of(schema))
        made, self.shape = types.of(types.documents.root, "$", ())
        self._decode = msgspec.json.Decoder(made).decode

    def decoder(self, writer: SchemaText) -> Callable[[bytes], Any]:
        """Return a function from framed bytes to a value; the writer's schema is not used."""
        read = self._decode
        return lambda data: read(memoryview(data)[HEAD_BYTES:])

    def column_decoder(self, writer: SchemaText) -> None:
        """Return None: there is no fast path for many values."""


@dataclass(slots=True)
class _Documents:
    """The schema, and those it references by name or by `$id`."""

    root: Node
    named: dict[str, Node] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: SchemaText) -> _Documents:
        try:
            made = cls(json.loads(schema.text))
            for one in schema.references:
                made._add(one.name, json.loads(one.text))
        except ValueError as error:
            raise InvalidRequest(f"{schema} is no JSON Schema that can be read: {error}") from error
        made._add("", made.root)
        return made

    def _add(self, name: str, document: Node) -> None:
        self.named[name] = document
        own = document.get("$id") if isinstance(document, dict) else None
        if isinstance(own, str):
            self.named.setdefault(own.rstrip("#"), document)

    def resolve(self, reference: str, home: Node) -> tuple[Node, Node]:
        """Return the target of a `$ref`, and the document that contains it."""
        address, _, pointer = reference.partition("#")
        document = home if not address else self._document(address)
        node = document
        if pointer and not pointer.startswith("/"):
            node = _anchored(document, pointer)
            pointer = ""
        for step in unquote(pointer).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                node = None
        if not isinstance(node, dict | bool):
            raise InvalidRequest(f"The reference {reference!r} of the schema leads to no schema.")
        return node, document

    def _document(self, address: str) -> Node:
        if address in self.named:
            return self.named[address]
        # A name is relative to the enclosing `$id`, so its end is what matches.
        for name, document in self.named.items():
            if name and (address.endswith(f"/{name}") or name.endswith(f"/{address}")):
                return document
        raise InvalidRequest(
            f"The schema refers to {address!r}, which is not among its references; register that "
            "schema, and name it there."
        )


def _anchored(document: Node, anchor: str) -> Node:
    left = [document]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if anchor in (node.get("$anchor"), str(node.get("$id")).removeprefix("#")):
                return node
            left += node.values()
        elif isinstance(node, list):
            left += node
    return None


class _Types:
    """Generates Python and Arrow types from schemas."""

    def __init__(self, documents: _Documents) -> None:
        self.documents = documents

    def of(self, node: Node, path: str, above: tuple[str, ...], home: Node = None) -> _Made:
        home = self.documents.root if home is None else home
        if not isinstance(node, dict):
            return _text()
        if isinstance(reference := node.get("$ref"), str):
            mark = f"{id(home)} {reference}"
            if mark in above or len(above) >= DEPTH_MAX:
                raise refuse_recursion(path, reference)
            target, there = self.documents.resolve(reference, home)
            return self.of(target, path, (*above, mark), there)
        for choice in ("oneOf", "anyOf"):
            if choice in node and "properties" not in node:
                return self._choice(node[choice], path, above, home)
        if "allOf" in node:
            node, home = self._joined(node, path, above, home)
        return self._typed(node, path, above, home)

    def _choice(self, nodes: list[Node], path: str, above: tuple[str, ...], home: Node) -> _Made:
        left = [node for node in nodes if not _is_null(node)]
        return self.of(left[0], path, above, home) if len(left) == 1 else _text()

    def _joined(
        self, node: Mapping[str, Any], path: str, above: tuple[str, ...], home: Node
    ) -> tuple[Node, Node]:
        """Merge the parts of an `allOf` into one schema, if each only lists properties."""
        parts = [{key: value for key, value in node.items() if key != "allOf"}]
        homes: list[Node] = []
        for part in node["allOf"]:
            there = home
            seen = above
            while isinstance(part, dict) and isinstance(reference := part.get("$ref"), str):
                mark = f"{id(there)} {reference}"
                if mark in seen:
                    raise refuse_recursion(path, reference)
                seen = (*seen, mark)
                part, there = self.documents.resolve(reference, there)
            if not isinstance(part, dict) or (homes and there is not homes[0]):
                return True, home
            homes.append(there)
            parts.append(part)
        if parts[0].get("properties") and homes[0] is not home:
            return True, home
        joined: dict[str, Any] = {}
        for part in parts:
            joined |= {key: value for key, value in part.items() if key != "properties"}
        properties: dict[str, Any] = {}
        for part in parts:
            properties |= part.get("properties", {})
        return {**joined, **({"properties": properties} if properties else {})}, homes[0]

    def _typed(self, node: Node, path: str, above: tuple[str, ...], home: Node) -> _Made:
        kind = _kind_of(node)
        if kind == "object":
            return self._object(node, path, above, home)
        if kind == "array":
            items = node.get("items")
            if not isinstance(items, dict):
                return _text()
            made, shape = self.of(items, f"{path}[]", above, home)
            return _or_null(list, made), Array(shape)
        return _PLAIN[kind] if kind in _PLAIN else _text()

    def _object(self, node: Node, path: str, above: tuple[str, ...], home: Node) -> _Made:
        properties = node.get("properties")
        if not properties:
            others = node.get("additionalProperties")
            if not isinstance(others, dict):
                return _text()
            made, shape = self.of(others, f"{path}{{}}", above, home)
            return _or_null(dict, str, made), Map(Plain(pa.string()), shape)
        fields, members = [], []
        for number, (name, inner) in enumerate(properties.items()):
            if _UNNAMEABLE.search(name):
                raise InvalidRequest(
                    f"At {path} the schema has a field called {name!r}; quotes, backslashes and "
                    "control characters cannot be in the name of a column."
                )
            made, shape = self.of(inner, f"{path}.{name}", above, home)
            default = msgspec.Raw(b"null") if made is msgspec.Raw else None
            fields.append((f"f{number}", made, msgspec.field(name=name, default=default)))
            members.append(Member(name, shape, attrgetter(f"f{number}")))
        made = msgspec.defstruct("Value", fields, gc=False)
        return made | None, struct_of(members, path)


def _or_null(container: Any, *inside: Any) -> Any:
    return container[inside] | None


def _text() -> _Made:
    """Any JSON value, as its text."""
    return msgspec.Raw, Converted(_raw_text, Plain(pa.string()))


def _raw_text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw).decode()
    return None if text == "null" else text


def _kind_of(node: Mapping[str, Any]) -> str:
    """Return the only type of values of the schema, besides null; None if there are several."""
    kind = node.get("type")
    if isinstance(kind, list):
        left = [one for one in kind if one != "null"]
        return "null" if not left else left[0] if len(left) == 1 else ""
    if isinstance(kind, str):
        return kind
    if "properties" in node:
        return "object"
    values = node["enum"] if "enum" in node else [node["const"]] if "const" in node else []
    kinds = {_kind_of_value(value) for value in values if value is not None}
    return kinds.pop() if len(kinds) == 1 else ""


def _kind_of_value(value: Any) -> str:
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(value, kind):
            return name
    return ""


def _is_null(node: Node) -> bool:
    return isinstance(node, dict) and node.get("type") == "null"
