"""Prints the types that nodes of two releases exchange or read from each other's logs, as JSON.

    PYTHONPATH=/sources/of/a/release/src python -m tools.wire_schema > level.json

These are the types of all decoders of the core and of the peer protocol, and the arguments and
answers of operations that another node may have to perform. `tests/unit/upgrade` compares those of
the release before, of which it has the file, with those of the sources as they are.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import json
import pkgutil
import sys
from collections.abc import Callable
from enum import Enum
from functools import partial
from types import UnionType
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec

PACKAGES = (
    "goqueue.model",
    "goqueue.cluster",
    "goqueue.groups",
    "goqueue.delivery",
    "goqueue.transactions",
    "goqueue.tracing",
    "goqueue.schemas",
    "goqueue.broker",
    "goqueue.wire.peers",
)
_CONSTRAINTS = ("gt", "ge", "lt", "le", "min_length", "max_length", "pattern")

Schema = dict[str, Any]


def main() -> None:
    print(written(schema()))


def written(found: Schema) -> str:
    """Return a schema as JSON with one type on each line, for diffs."""
    parts = []
    for part, entries in found.items():
        lines = [
            f"{json.dumps(name)}: {json.dumps(entries[name], sort_keys=True)}"
            for name in sorted(entries)
        ]
        parts.append(f"{json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(parts) + "}"


def schema() -> Schema:
    """Return all types; this imports the core, and has to run before anything else does."""
    assert not any(name.startswith("goqueue.cluster") for name in sys.modules)
    decoders = _recorded(_import_all)
    from goqueue.broker.gate.operation import OPERATIONS

    types: Schema = {}
    describe = partial(_describe, types)
    return {
        "decoders": {f"{module}: {_title(kind)}": describe(kind) for module, kind in decoders},
        "operations": {
            one.name: _operation(types, one.perform) for one in OPERATIONS.values() if one.is_routed
        },
        "types": types,
    }


def _recorded(run: Callable[[], None]) -> list[tuple[str, Any]]:
    """Return the modules that make decoders while `run` imports them, with their types."""
    made: list[tuple[str, Any]] = []
    real = msgspec.msgpack.Decoder

    def record(kind: Any = Any, **options: Any) -> Any:
        module = sys._getframe(1).f_globals["__name__"]
        if module.startswith(PACKAGES):
            made.append((module, kind))
        return real(kind, **options)

    msgspec.msgpack.Decoder = record  # type: ignore[misc,assignment]
    try:
        run()
    finally:
        msgspec.msgpack.Decoder = real  # type: ignore[misc]
    return made


def _import_all() -> None:
    importlib.import_module("goqueue.broker")
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            continue  # An earlier release did not have it.
        found = importlib.import_module(package)
        for one in pkgutil.walk_packages(found.__path__, package + "."):
            if not one.name.rpartition(".")[2].startswith("_"):
                importlib.import_module(one.name)


def _title(kind: Any) -> str:
    """Name what a decoder decodes; a union may grow, so its first kind stands for it."""
    if get_origin(kind) in (Union, UnionType):
        return f"{_title(get_args(kind)[0])} and others"
    if get_origin(kind) is not None:
        return f"{_name(get_origin(kind))} of {', '.join(map(_title, get_args(kind)))}"
    return _name(kind)


def _operation(types: Schema, method: Callable[..., Any]) -> Schema:
    hints = get_type_hints(method, include_extras=True)
    arguments = [
        {
            "name": one.name,
            "required": one.default is inspect.Parameter.empty,
            "type": _describe(types, hints[one.name]),
        }
        for one in inspect.signature(method).parameters.values()
        if one.kind is inspect.Parameter.KEYWORD_ONLY and _name(hints[one.name]) != "Cancellation"
    ]
    return {"arguments": arguments, "answer": _describe(types, _awaited(hints["return"]))}


def _awaited(kind: Any) -> Any:
    """Return the type of an answer, whether a method returns it or a promise of it."""
    if _name(get_origin(kind)) in ("Promise", "Awaitable", "Coroutine"):
        return get_args(kind)[-1]
    return kind


def _describe(types: Schema, kind: Any) -> Any:
    """Describe a type; those with fields are added to `types`, and named here."""
    if isinstance(kind, NewType):
        return _describe(types, kind.__supertype__)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _constrained(types, arguments)
    if origin in (Union, UnionType):
        kinds = [_describe(types, one) for one in arguments]
        return {"any": sorted(kinds, key=lambda one: json.dumps(one, sort_keys=True))}
    if origin is Literal:
        return {"values": sorted(map(str, arguments))}
    if origin is not None:
        # All kinds of lists look the same to another node, and so do all kinds of maps.
        return {"of": [_describe(types, one) for one in arguments if one is not Ellipsis]}
    return _described_class(types, kind)


def _constrained(types: Schema, arguments: tuple[Any, ...]) -> Any:
    limits = {
        name: getattr(one, name)
        for one in arguments[1:]
        if isinstance(one, msgspec.Meta)
        for name in _CONSTRAINTS
        if getattr(one, name) is not None
    }
    described = _describe(types, arguments[0])
    return {"type": described, "limits": limits} if limits else described


def _described_class(types: Schema, kind: Any) -> Any:
    if hasattr(kind, "PACKED"):
        return {"packed": _describe(types, kind.PACKED)}
    if not isinstance(kind, type):
        return _name(kind)
    if issubclass(kind, Enum):
        return {"values": sorted(str(one.value) for one in kind)}
    form = _form(kind)
    if form is None:
        return kind.__name__
    # Without the folder of its module, to which it may move.
    name = f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
    if name not in types:
        types[name] = {}  # It may contain itself.
        fields, config = form
        hints = get_type_hints(kind, include_extras=True)
        types[name] |= config | {
            "levelled": hasattr(kind, "at_level"),
            "fields": [
                {"name": one, "required": required, "type": _describe(types, hints[one])}
                for one, required in fields
            ],
        }
    return {"object": name}


def _form(kind: type) -> tuple[list[tuple[str, bool]], Schema] | None:
    """Return the fields of a type, and whether each is required; None if it has no fields."""
    if issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        known = {"array": config.array_like, "strict": config.forbid_unknown_fields}
        fields = [(one.name, one.required) for one in msgspec.structs.fields(kind)]
        return fields, {**known, "tag": config.tag}
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        fields = [
            (one.name, one.default is missing and one.default_factory is missing)
            for one in dataclasses.fields(kind)
        ]
        return fields, {"array": False, "strict": False, "tag": None}
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        fields = [(one, one not in kind._field_defaults) for one in kind._fields]
        # A named tuple accepts no more values than it has fields.
        return fields, {"array": True, "strict": True, "tag": None}
    return None


def _name(kind: Any) -> str:
    name = getattr(kind, "__name__", str(kind)) if get_origin(kind) is None else str(kind)
    return name.replace("typing.", "")


if __name__ == "__main__":
    main()
