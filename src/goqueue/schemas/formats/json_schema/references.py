"""Resolves `$ref`: an index of the schemas inside JSON Schema documents.

Every document has a base address, every `$id` changes it, and references are resolved against it.
Nothing is ever fetched: an address is in the index, or it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urldefrag, urljoin

from goqueue.model.errors import InvalidSchema

# The base of documents without an absolute `$id`. RFC 2606 reserves this domain.
BASE = "http://schema.invalid/"

Node = dict[str, object] | bool

# Members whose values are data or names, not schemas; a "$ref" in there has no meaning.
_NOT_SCHEMAS = {"const", "enum", "default", "examples", "required", "example"}


class SchemaIndex:
    """The documents of one schema and of those it refers to."""

    def __init__(self) -> None:
        self._by_address: dict[str, object] = {}
        self._base_of: dict[int, str] = {}
        self._named: dict[str, object] = {}
        self._documents: list[object] = []  # keeps them alive, since they are identified by `id()`

    def add(self, document: object, name: str = "") -> None:
        """Index a document that others refer to by `name`, or by its own `$id`."""
        base = joined(BASE, name)
        self._documents.append(document)
        self._by_address.setdefault(urldefrag(base).url, document)
        self._by_address.setdefault(name, document)
        self._named.setdefault(name, document)
        self._walk(document, base)

    def find(self, address: str) -> object | None:
        """The document or schema at an absolute address without a fragment.

        References are listed by name, and a name in a `$ref` is relative to the enclosing `$id`, so
        as a last resort the end of the address decides.
        """
        found = self._by_address.get(address)
        if found is not None:
            return found
        for name, document in self._named.items():
            if name and address.endswith(f"/{name}"):
                return document
        return None

    def resolve(self, reference: str, source: object) -> Node:
        """The schema that a `$ref` inside `source` points to."""
        full = joined(self._base_of.get(id(source), BASE), reference)
        if (whole := self._by_address.get(full)) is not None:  # also anchors
            return _schema(whole, reference)
        address, fragment = urldefrag(full)
        found = self.find(address)
        if found is None:
            raise InvalidSchema(
                f"The reference {reference[:200]!r} leads to no schema; register that schema and "
                "list it under 'references' by this name. Nothing is fetched from the network."
            )
        if fragment and not fragment.startswith("/"):
            raise InvalidSchema(
                f"The reference {reference[:200]!r} names an anchor that is not there."
            )
        return _schema(_pointed(found, unquote(fragment), reference), reference)

    def _walk(self, document: object, base: str) -> None:
        stack: list[tuple[object, str]] = [(document, base)]
        while stack:
            node, base = stack.pop()
            if isinstance(node, dict):
                base = self._enter(node, base)
                stack += [(value, base) for key, value in node.items() if key not in _NOT_SCHEMAS]
            elif isinstance(node, list):
                stack += [(value, base) for value in node]

    def _enter(self, node: dict[str, object], base: str) -> str:
        for member in ("$id", "id"):
            own = node.get(member)
            if isinstance(own, str) and (member == "$id" or own.startswith(("http", "#"))):
                if own.startswith("#"):
                    self._by_address.setdefault(joined(base, own), node)
                else:
                    base = joined(base, own)
                    self._by_address.setdefault(urldefrag(base).url, node)
        for member in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(member), str):
                self._by_address.setdefault(joined(base, f"#{anchor}"), node)
        self._base_of[id(node)] = base
        return base


def joined(base: str, reference: str) -> str:
    """An absolute address, or the reference itself if it is not an address."""
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def references_in(document: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Every `$ref` of a document and the schema that has it."""
    stack: list[object] = [document]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(reference := node.get("$ref"), str):
                yield reference, node
            stack += [value for key, value in node.items() if key not in _NOT_SCHEMAS]
        elif isinstance(node, list):
            stack += node


def _pointed(document: object, pointer: str, reference: str) -> object:
    node = document
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif (
            isinstance(node, list) and step.isdecimal() and len(step) < 8 and int(step) < len(node)
        ):
            node = node[int(step)]
        else:
            raise InvalidSchema(f"The reference {reference[:200]!r} leads to nothing.")
    return node


def _schema(node: object, reference: str) -> Node:
    if isinstance(node, dict | bool):
        return node
    raise InvalidSchema(f"The reference {reference[:200]!r} leads to something that is no schema.")
