"""Explains what is invalid in a body or a query."""

from __future__ import annotations

import re
from typing import Any

from msgspec import inspect

from goqueue.wire.carrier.bodies import Body
from goqueue.wire.carrier.problems import InvalidField

_NOT_A_CHOICE = "Invalid enum value"
_AT = re.compile(r"(.*) - at `(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[[0-9.]*\]")


def explain(problem: str, kind: type[Body]) -> InvalidField:
    """Name the invalid field, and for an unknown field the known ones."""
    match = _AT.fullmatch(problem)
    text, path = match.groups() if match else (problem, "$")
    if unknown := _UNKNOWN.fullmatch(text):
        name = unknown[1][:100]
        known = ", ".join(_known_fields(kind, path)) or "none"
        return InvalidField(
            f"There is no field {name!r} {_place(path)}; known fields: {known}.",
            field=f"{path}.{name}".removeprefix("$."),
        )
    choices = ", ".join(_choices(kind, path)) if text.startswith(_NOT_A_CHOICE) else ""
    remedy = f"; send one of {choices}" if choices else ""
    field = path.removeprefix("$").removeprefix(".")
    return InvalidField(f"{text} {_place(path)}{remedy}.", field=field)


def _place(path: str) -> str:
    return "here" if path == "$" else f"at {path.removeprefix('$').removeprefix('.')[:200]}"


def _choices(kind: Any, path: str) -> list[str]:
    """The allowed values of the field at a path, if it is an enumeration."""
    waiting, found = [_at(kind, path)], []
    while waiting:
        here = waiting.pop()
        if isinstance(here, inspect.Metadata):
            waiting.append(here.type)
        elif isinstance(here, inspect.UnionType):
            waiting += here.types
        elif isinstance(here, inspect.LiteralType):
            found += [str(one) for one in here.values]
    return found


def _at(kind: Any, path: str) -> inspect.Type:
    here = inspect.type_info(kind)
    for step in _STEP.finditer(path):
        here = _enter(here, step[1])
    return here


def _known_fields(kind: Any, path: str) -> list[str]:
    """The fields of the struct at a path such as `$.messages[3].headers[0]`."""
    here = _at(kind, path)
    here = _enter(here, None) if not isinstance(here, inspect.StructType) else here
    if isinstance(here, inspect.StructType):
        return [one.encode_name for one in here.fields]
    return []


def _enter(here: inspect.Type, name: str | None) -> inspect.Type:
    """The type of a field, or of the items if no name is given; else the type itself."""
    while isinstance(here, inspect.UnionType | inspect.Metadata):
        if isinstance(here, inspect.Metadata):
            here = here.type
        else:
            kinds = (inspect.StructType, inspect.ListType, inspect.Metadata)
            here = next((one for one in here.types if isinstance(one, kinds)), inspect.AnyType())
    if name is None:
        return here.item_type if isinstance(here, inspect.ListType) else here
    if isinstance(here, inspect.StructType):
        for one in here.fields:
            if one.encode_name == name:
                return one.type
    return inspect.AnyType()
