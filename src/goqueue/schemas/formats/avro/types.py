"""Parses Avro schemas into a graph of types, by the rules of the Avro specification 1.12.

fastavro accepts unions with duplicate types, records with duplicate fields and names with blanks;
avro refuses those, but accepts defaults that do not match their field's type. The types are also
needed in a form that can be compared and compiled within bounds, hence this parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats.budget import DEPTH_MAX

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
FIXED_SIZE_MAX = 16 * 1024 * 1024

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS = ("ascending", "descending", "ignore")
# Members defined for a schema object of each kind; all others are kept as they are.
_KNOWN = {
    "record": {"type", "name", "namespace", "doc", "aliases", "fields"},
    "error": {"type", "name", "namespace", "doc", "aliases", "fields"},
    "enum": {"type", "name", "namespace", "doc", "aliases", "symbols", "default"},
    "fixed": {"type", "name", "namespace", "doc", "aliases", "size"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD_KNOWN = {"name", "type", "doc", "default", "order", "aliases"}


class _NoDefault:
    """An absent default, distinct from null."""


NO_DEFAULT = _NoDefault()


@dataclass(slots=True, eq=False)
class AvroField:
    name: str
    type: AvroType
    default: object = NO_DEFAULT
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    order: str = "ascending"
    properties: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class AvroType:
    """One type; `name` is the full name of a record, enum or fixed. It may contain itself."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()  # full names
    doc: str | None = None
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    symbol_default: str | None = None
    size: int = 0
    branches: list[AvroType] = field(
        default_factory=list
    )  # of a union; the item of an array or map
    properties: dict[str, object] = field(default_factory=dict)
    is_error: bool = False

    @property
    def item(self) -> AvroType:
        return self.branches[0]

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def title(self) -> str:
        """The display name."""
        return self.name or self.kind


class AvroReader:
    """Parses schemas that may use each other's names."""

    def __init__(self) -> None:
        self.names: dict[str, AvroType] = {}

    def read(self, document: object) -> AvroType:
        """The type described by a schema document."""
        made = self._type(document, "", "$")
        _check_depth(made)
        return made

    def _type(self, node: object, namespace: str, path: str) -> AvroType:
        if isinstance(node, str):
            return self._named_or_primitive(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path)
        if isinstance(node, dict):
            return self._object(node, namespace, path)
        raise _invalid(path, "a type is a name, an object or an array of types")

    def _named_or_primitive(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in (_full_name(name, namespace), name):
            if full in self.names:
                return self.names[full]
        raise _invalid(path, f"no type called {name[:200]!r} is known; define it or refer to it")

    def _union(self, nodes: list[object], namespace: str, path: str) -> AvroType:
        branches = [
            self._type(node, namespace, f"{path}[{index}]") for index, node in enumerate(nodes)
        ]
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise _invalid(path, "a union may not directly contain a union")
            if branch.title in seen:
                raise _invalid(path, f"a union may not have {branch.title!r} twice")
            seen.add(branch.title)
        return AvroType("union", branches=branches)

    def _object(self, node: dict[str, object], namespace: str, path: str) -> AvroType:
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self._type(kind, namespace, f"{path}.type")
        if not isinstance(kind, str):
            raise _invalid(path, "a schema object needs the member 'type'")
        rest = {key: value for key, value in node.items() if key not in _KNOWN.get(kind, {"type"})}
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(kind, node, rest, namespace, path)
        if kind in ("array", "map"):
            member = "items" if kind == "array" else "values"
            if member not in node:
                raise _invalid(
                    path, f"an {kind} needs the member {member!r}".replace("an m", "a m")
                )
            item = self._type(node[member], namespace, f"{path}.{member}")
            return AvroType(kind, branches=[item], properties=rest)
        if kind in PRIMITIVES:
            return AvroType(kind, properties=rest)
        return self._named_or_primitive(kind, namespace, path)

    def _named(
        self,
        kind: str,
        node: dict[str, object],
        rest: dict[str, object],
        namespace: str,
        path: str,
    ) -> AvroType:
        name, inner = _names_of(node, namespace, path)
        if name in PRIMITIVES or name in self.names:
            raise _invalid(path, f"the name {name!r} is taken already")
        made = AvroType(
            "record" if kind == "error" else kind,
            name,
            aliases=tuple(_full_name(alias, inner) for alias in _texts(node, "aliases", path)),
            doc=_text(node, "doc", path),
            properties=rest,
            is_error=kind == "error",
        )
        self.names[name] = made  # before its members, which may refer to it
        if kind == "enum":
            _fill_enum(made, node, path)
        elif kind == "fixed":
            _fill_fixed(made, node, path)
        else:
            self._fill_record(made, node, inner, path)
        return made

    def _fill_record(
        self, record: AvroType, node: dict[str, object], namespace: str, path: str
    ) -> None:
        nodes = node.get("fields")
        if not isinstance(nodes, list):
            raise _invalid(path, "a record needs the member 'fields', an array")
        seen: set[str] = set()
        for index, each in enumerate(nodes):
            made = self._field(each, namespace, f"{path}.fields[{index}]")
            if made.name in seen:
                raise _invalid(path, f"the record has two fields called {made.name!r}")
            seen.add(made.name)
            record.fields.append(made)
        # Only now are all names defined that a default may need.
        for made in record.fields:
            if made.default is not NO_DEFAULT:
                reason = _default_fault(made.type, made.default)
                if reason:
                    raise _invalid(f"{path}.{made.name}.default", reason)

    def _field(self, node: object, namespace: str, path: str) -> AvroField:
        if not isinstance(node, dict) or "type" not in node:
            raise _invalid(path, "a field is an object with the members 'name' and 'type'")
        name = node.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _invalid(path, f"{_shown(name)} is no name for a field: letters, digits and _")
        order = node.get("order", "ascending")
        if order not in _ORDERS:
            raise _invalid(path, f"'order' is one of {', '.join(_ORDERS)}")
        return AvroField(
            name,
            self._type(node["type"], namespace, f"{path}.type"),
            default=node.get("default", NO_DEFAULT),
            aliases=tuple(_texts(node, "aliases", path)),
            doc=_text(node, "doc", path),
            order=str(order),
            properties={key: value for key, value in node.items() if key not in _FIELD_KNOWN},
        )


def children(parent: AvroType) -> Iterator[AvroType]:
    """The types directly inside a type."""
    yield from parent.branches
    for each in parent.fields:
        yield each.type


def _check_depth(root: AvroType) -> None:
    """Refuse chains of types that would exhaust a stack; names make them deeper than the text."""
    stack = [(root, children(root))]
    seen = {id(root)}
    while stack:
        child = next(stack[-1][1], None)
        if child is None:
            stack.pop()
        elif id(child) not in seen:
            seen.add(id(child))
            stack.append((child, children(child)))
            if len(stack) > DEPTH_MAX:
                raise InvalidSchema(f"The types are nested more than {DEPTH_MAX} levels deep.")


def _fill_enum(enum: AvroType, node: Mapping[str, object], path: str) -> None:
    symbols = _texts(node, "symbols", path)
    if "symbols" not in node:
        raise _invalid(path, "an enum needs the member 'symbols', an array")
    for symbol in symbols:
        if not _NAME.fullmatch(symbol):
            raise _invalid(path, f"{_shown(symbol)} is no symbol: letters, digits and _")
    if len(set(symbols)) < len(symbols):
        raise _invalid(path, "the symbols of an enum differ from each other")
    default = node.get("default")
    if default is not None and default not in symbols:
        raise _invalid(path, f"the default {_shown(default)} is none of the symbols")
    enum.symbols = tuple(symbols)
    enum.symbol_default = default if isinstance(default, str) else None


def _fill_fixed(fixed: AvroType, node: Mapping[str, object], path: str) -> None:
    size = node.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= FIXED_SIZE_MAX:
        raise _invalid(path, f"a fixed needs a 'size' from 0 to {FIXED_SIZE_MAX}")
    fixed.size = size


def _default_fault(expected: AvroType, value: object) -> str:
    """Why `value` is not a valid default of that type; empty if it is."""
    kind = expected.kind
    if kind == "union":
        if any(not _default_fault(branch, value) for branch in expected.branches):
            return ""
        return f"{_shown(value)} is of no type of the union"
    if kind == "record":
        return _record_default_fault(expected, value)
    if kind in ("array", "map"):
        if not isinstance(value, list if kind == "array" else dict):
            return f"{_shown(value)} is no {kind}"
        items = value if isinstance(value, list) else value.values()
        return next((fault for item in items if (fault := _default_fault(expected.item, item))), "")
    return "" if _is_plain_default(expected, value) else f"{_shown(value)} is no {expected.title}"


def _record_default_fault(expected: AvroType, value: object) -> str:
    if not isinstance(value, dict):
        return f"{_shown(value)} is no {expected.title}"
    for each in expected.fields:
        if each.name not in value:
            if each.default is NO_DEFAULT:
                return f"it lacks the field {each.name!r}, which has no default"
        elif fault := _default_fault(each.type, value[each.name]):
            return fault
    return ""


def _is_plain_default(expected: AvroType, value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match expected.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            low, high = (INT_MIN, INT_MAX) if expected.kind == "int" else (LONG_MIN, LONG_MAX)
            return is_number and isinstance(value, int) and low <= value <= high
        case "float" | "double":
            return is_number
        case "enum":
            return value in expected.symbols
        case "string":
            return isinstance(value, str)
        case _:  # Bytes and fixed are written as characters of the same code.
            return isinstance(value, str) and all(ord(letter) < 256 for letter in value)


def _names_of(node: Mapping[str, object], namespace: str, path: str) -> tuple[str, str]:
    """The full name of a definition, and the namespace inside it."""
    name, own = node.get("name"), node.get("namespace")
    if own is not None and not isinstance(own, str):
        raise _invalid(path, "a namespace is a string")
    if not isinstance(name, str) or not name:
        raise _invalid(path, "a record, an enum and a fixed need a 'name'")
    full = _full_name(name, namespace if own is None else own)
    if not all(_NAME.fullmatch(part) for part in full.split(".")):
        raise _invalid(path, f"{_shown(full)} is no name: letters, digits, _ and dots")
    return full, full.rpartition(".")[0]


def _full_name(name: str, namespace: str) -> str:
    if "." in name:
        return name.removeprefix(".")
    return f"{namespace}.{name}" if namespace else name


def _texts(node: Mapping[str, object], member: str, path: str) -> list[str]:
    values = node.get(member, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _invalid(path, f"{member!r} is an array of strings")
    return values


def _text(node: Mapping[str, object], member: str, path: str) -> str | None:
    value = node.get(member)
    if value is not None and not isinstance(value, str):
        raise _invalid(path, f"{member!r} is a string")
    return value


def _shown(value: object) -> str:
    return repr(value)[:100]


def _invalid(path: str, reason: str) -> InvalidSchema:
    return InvalidSchema(f"Invalid Avro schema at {path}: {reason}.")
