"""Writes a graph of Avro types as text, in one canonical way."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from goqueue.schemas.formats import json_text
from goqueue.schemas.formats.avro.types import NO_DEFAULT, AvroField, AvroType

# Members of named and nested types, which have no meaning on a primitive type.
_RESERVED = {"aliases", "doc", "fields", "items", "name", "namespace", "size", "symbols", "values"}


def write(root: AvroType, *, known: Collection[str], is_normal: bool) -> str:
    """The schema without whitespace and redundancy; names in `known` are defined elsewhere.

    Meaningful parts stay: documentation, aliases, defaults, further properties. The normal form
    has full names throughout, and further properties sorted by name.
    """
    return json_text.write(_Writer(set(known), is_normal=is_normal).type(root, ""))


class _Writer:
    def __init__(self, defined: set[str], *, is_normal: bool) -> None:
        self._defined = defined
        self._is_normal = is_normal

    def type(self, given: AvroType, namespace: str) -> object:
        if given.kind == "union":
            return [self.type(branch, namespace) for branch in given.branches]
        if given.name:
            return self._named(given, namespace)
        if given.kind in ("array", "map"):
            member = "items" if given.kind == "array" else "values"
            plain = {"type": given.kind, member: self.type(given.item, namespace)}
            return plain | self._properties(given.properties)
        properties = {key: one for key, one in given.properties.items() if key not in _RESERVED}
        if properties:
            return {"type": given.kind} | self._properties(properties)
        return given.kind

    def _named(self, given: AvroType, namespace: str) -> object:
        inner = given.name.rpartition(".")[0]
        is_local = inner == namespace and not self._is_normal
        if given.name in self._defined:
            return given.short_name if is_local or not inner else given.name
        self._defined.add(given.name)
        written: dict[str, object] = {"type": "error" if given.is_error else given.kind}
        written["name"] = given.name if self._is_normal else given.short_name
        if not is_local and not self._is_normal:
            written["namespace"] = inner
        if given.doc is not None:
            written["doc"] = given.doc
        if given.aliases:
            written["aliases"] = list(given.aliases)
        if given.kind == "record":
            written["fields"] = [self._field(each, inner) for each in given.fields]
        elif given.kind == "enum":
            written["symbols"] = list(given.symbols)
            if given.symbol_default is not None:
                written["default"] = given.symbol_default
        else:
            written["size"] = given.size
        return written | self._properties(given.properties)

    def _field(self, given: AvroField, namespace: str) -> dict[str, object]:
        written: dict[str, object] = {
            "name": given.name,
            "type": self.type(given.type, namespace),
        }
        if given.doc is not None:
            written["doc"] = given.doc
        if given.default is not NO_DEFAULT:
            written["default"] = given.default
        if given.order != "ascending":
            written["order"] = given.order
        if given.aliases:
            written["aliases"] = list(given.aliases)
        return written | self._properties(given.properties)

    def _properties(self, given: Mapping[str, object]) -> dict[str, object]:
        return dict(sorted(given.items())) if self._is_normal else dict(given)
