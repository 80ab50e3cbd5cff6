"""Translates the arguments and results of operations for the clients of a tenant.

The annotations of an operation say which texts are names, and of what (`TopicName`). From them, a
translator is compiled at the first use of the operation by a tenant: it goes to the names in an
argument or a result, however deep, and leaves everything else as it is. What a result has of other
tenants is left out of lists and mappings; anywhere else it is an error.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from goqueue.broker.gate.plain_views import PlainPage, PlainStream, PlainTopic
from goqueue.broker.gate.portable import awaited
from goqueue.broker.gate.views import PageView, RecordStream, TopicView
from goqueue.loop.promise import Cancellation
from goqueue.model.access import Acl, Resource
from goqueue.model.errors import GoQueueError
from goqueue.model.tenants import NameKind
from goqueue.tenancy.namespaces import INWARD, OUTWARD, ForeignName, Namespace

Translate = Callable[[Namespace, Any], Any]

# Live objects that front ends read in place. They get a thin adapter.
_VIEWS: dict[Any, Translate] = {
    TopicView: PlainTopic,
    PageView: PlainPage,
    RecordStream: PlainStream,
}


class OperationNames:
    """Translates the arguments and the result of one operation."""

    def __init__(self, method: Callable[..., Any]) -> None:
        hints = get_type_hints(method, include_extras=True)
        inward, outward = _Compiler(is_inward=True), _Compiler(is_inward=False)
        found = {
            one.name: inward.translator(hints[one.name], one.name)
            for one in inspect.signature(method).parameters.values()
            if one.kind is inspect.Parameter.KEYWORD_ONLY
        }
        self._arguments = {name: one for name, one in found.items() if one is not None}
        self._result = outward.translator(awaited(hints["return"]), "result")
        self.undeclared = [*inward.undeclared, *outward.undeclared]

    def inward(self, space: Namespace, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a client as the broker has them."""
        changed = dict(arguments)
        for name, translate in self._arguments.items():
            if name in changed:
                changed[name] = translate(space, changed[name])
        return changed

    def outward(self, space: Namespace, result: Any) -> Any:
        """Return a result as clients see it."""
        return result if self._result is None else self._result(space, result)


class _Compiler:
    """Compiles translators of one direction.

    `undeclared` collects the texts that are not said to be a name or none.
    """

    def __init__(self, *, is_inward: bool) -> None:
        self._is_inward = is_inward
        self._by_kind = INWARD if is_inward else OUTWARD
        self._known: dict[Any, Translate | None] = {}
        self.undeclared: list[str] = []

    def translator(self, kind: Any, path: str) -> Translate | None:
        """Return the translator of values of a type; None if they contain no names."""
        origin = get_origin(kind)
        if origin is Annotated:
            return self._annotated(kind, path)
        if isinstance(kind, NewType):
            return self.translator(kind.__supertype__, path)
        if kind is str:
            self.undeclared.append(path)
            return None
        if origin in (Literal, ClassVar) or kind in (None, NoneType, Any, Cancellation):
            return None
        if origin in (Union, UnionType):
            return self._union(get_args(kind), path)
        if origin is not None:
            return self._container(origin, get_args(kind), path)
        return self._class(kind) if isinstance(kind, type) else None

    def _annotated(self, kind: Any, path: str) -> Translate | None:
        plain, *notes = get_args(kind)
        name = next((one for one in notes if isinstance(one, NameKind)), None)
        if name is None:
            return self.translator(plain, path)
        return None if name is NameKind.NONE else self._by_kind[name]

    # Several values

    def _union(self, kinds: Sequence[Any], path: str) -> Translate | None:
        cases: list[tuple[Any, Translate]] = []
        fallback: Translate | None = None
        for one in kinds:
            translate = self.translator(one, path)
            if translate is None:
                continue
            if one in _VIEWS:
                fallback = translate
            else:
                cases.append((_runtime_type(one), translate))
        if not cases and fallback is None:
            return None

        def union(space: Namespace, value: Any) -> Any:
            for case, translate in cases:
                if isinstance(value, case):
                    return translate(space, value)
            return value if fallback is None or value is None else fallback(space, value)

        return union

    def _container(self, origin: Any, kinds: Sequence[Any], path: str) -> Translate | None:
        if issubclass(origin, Mapping):
            return self._mapping(kinds, path)
        if origin is tuple and kinds[-1] is not Ellipsis:
            return self._tuple(kinds, path)
        if not issubclass(origin, Sequence | Set):
            return None
        item = self.translator(kinds[0], f"{path}[]")
        if item is None:
            return None
        made: Callable[[Any], Any] = list
        if issubclass(origin, Set):
            made = frozenset
        elif origin is tuple:
            made = tuple
        return lambda space, values: made(_translated(space, item, values))

    def _tuple(self, kinds: Sequence[Any], path: str) -> Translate | None:
        items = [self.translator(one, f"{path}[]") for one in kinds]
        if not any(items):
            return None
        return lambda space, values: tuple(
            value if one is None else one(space, value)
            for one, value in zip(items, values, strict=True)
        )

    def _mapping(self, kinds: Sequence[Any], path: str) -> Translate | None:
        key, value = (self.translator(one, f"{path}{{}}") for one in kinds)
        if key is None and value is None:
            return None

        def pair(space: Namespace, item: tuple[Any, Any]) -> tuple[Any, Any]:
            first, second = item
            return (
                first if key is None else key(space, first),
                second if value is None else value(space, second),
            )

        return lambda space, values: dict(_translated(space, pair, values.items()))

    # Objects

    def _class(self, kind: type) -> Translate | None:
        if kind not in self._known:
            # For types that contain themselves: looked up when it is known.
            self._known[kind] = lambda space, value: self._translate(kind, space, value)
            self._known[kind] = self._compile(kind)
        return self._known[kind]

    def _translate(self, kind: type, space: Namespace, value: Any) -> Any:
        known = self._known[kind]
        return value if known is None else known(space, value)

    def _compile(self, kind: type) -> Translate | None:
        if kind in _VIEWS:
            return _VIEWS[kind]
        if kind is Resource:
            return Namespace.resource if self._is_inward else Namespace.plain_resource
        if kind is Acl:
            return Namespace.rule if self._is_inward else Namespace.plain_rule
        if issubclass(kind, GoQueueError):
            return None if self._is_inward else Namespace.error
        if issubclass(kind, Enum):
            return None
        if hasattr(kind, "renamed"):
            return self._renamed
        packed = getattr(kind, "PACKED", None)
        if packed is not None:
            return self._packed(kind, packed)
        replace = _replace_of(kind)
        if replace is None:
            return None
        return self._fields(kind, replace)

    def _renamed(self, space: Namespace, value: Any) -> Any:
        """Translate an object that can copy itself with other names."""
        return value.renamed(space.inward if self._is_inward else space.outward)

    def _packed(self, kind: Any, packed: Any) -> Translate | None:
        """Translate what is sent between nodes, of a type that is not plain data."""
        inner = self.translator(packed, kind.__name__)
        if inner is None:
            return None
        return lambda space, value: kind.unpack(inner(space, value.pack()))

    def _fields(self, kind: type, replace: Callable[..., Any]) -> Translate | None:
        hints = get_type_hints(kind, include_extras=True)
        found = {
            name: self.translator(one, f"{kind.__name__}.{name}") for name, one in hints.items()
        }
        fields = [(name, one) for name, one in found.items() if one is not None]
        if not fields:
            return None

        def translate(space: Namespace, value: Any) -> Any:
            changed = {name: one(space, getattr(value, name)) for name, one in fields}
            return replace(value, **changed)

        return translate


def _translated(space: Namespace, translate: Translate, values: Any) -> Any:
    """Yield translated values; those of other tenants are left out."""
    for value in values:
        try:
            shown = translate(space, value)
        except ForeignName:
            continue
        yield shown


def _replace_of(kind: type) -> Callable[..., Any] | None:
    """Return the function that copies an object with other fields."""
    if issubclass(kind, msgspec.Struct):
        return msgspec.structs.replace
    if dataclasses.is_dataclass(kind):
        return dataclasses.replace
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return lambda value, **changed: value._replace(**changed)
    return None


def _runtime_type(kind: Any) -> Any:
    """Return what `isinstance` accepts for a type."""
    if get_origin(kind) is Annotated:
        return _runtime_type(get_args(kind)[0])
    if isinstance(kind, NewType):
        return _runtime_type(kind.__supertype__)
    return get_origin(kind) or kind
