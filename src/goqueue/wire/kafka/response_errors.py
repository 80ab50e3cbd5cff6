"""Finds the error codes in responses, wherever their definitions have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import msgspec

from goqueue.wire.kafka.errors import ErrorCode

_CODE = "error_code"  # what the names of these fields are or end with

# The fields with a code, and those with structs or lists of structs that have some.
_Plan = tuple[tuple[str, ...], tuple[tuple[str, "_Plan"], ...]]


def errors_in(response_type: type[Any]) -> Callable[[Any], set[int]]:
    """Return what finds the error codes in a response; 0 may be among them."""
    plan = _plan_of(response_type)

    def find(response: Any) -> set[int]:
        found: set[int] = set()
        _find(response, plan, found)
        return found

    return find


def name_of(code: int) -> str:
    """The name of an error code, as the documentation of clients has it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _find(value: Any, plan: _Plan, found: set[int]) -> None:
    codes, nested = plan
    for name in codes:
        found.add(getattr(value, name))
    for name, inner in nested:
        content = getattr(value, name)
        if content.__class__ is list:
            for one in content:
                _find(one, inner, found)
        elif content is not None:
            _find(content, inner, found)


def _plan_of(struct: type[Any]) -> _Plan:
    codes, nested = [], []
    for name, hint in get_type_hints(struct).items():
        if name.endswith(_CODE):
            codes.append(name)
        inner = _struct_in(hint)
        if inner is not None:
            plan = _plan_of(inner)
            if any(plan):
                nested.append((name, plan))
    return tuple(codes), tuple(nested)


def _struct_in(hint: Any) -> type[Any] | None:
    """The struct that a field has, alone, in a list, or optionally."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((one for one in map(_struct_in, get_args(hint)) if one is not None), None)
