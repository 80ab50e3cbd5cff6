"""Requests in which one field at a time has a value that makes no sense, or nearly none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

TEXTS = ("", "\x00 ../~", "x" * 5000, "ünï", "__offsets")
DEPTH = 2
MANY = 1001  # more than any request may name
_VALUES: dict[int, Sequence[Any]] = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: (b"", b"\xff" * 5000),
    FieldDescriptor.TYPE_INT32: (-1, 0, 2**31 - 1),
    FieldDescriptor.TYPE_ENUM: (-1, 0, 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), -1, 0, 2**63 - 1),
    FieldDescriptor.TYPE_BOOL: (True,),
}


def hostile_requests(kind: type[Message], names: dict[str, str]) -> Iterator[Message]:
    """Requests of a call: with nothing else in them, and with names of things that exist."""
    for one in _variants(kind, DEPTH):
        yield one
        yield _named(one, names)


def _variants(kind: type[Message], depth: int) -> Iterator[Message]:
    yield kind()
    for field in kind.DESCRIPTOR.fields:
        for value in _values(field, depth):
            made = kind()
            part = getattr(made, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                part[value] = value
            elif field.is_repeated:
                part.extend([value] if value else [value] * MANY)
            elif field.message_type is not None:
                part.CopyFrom(value)
            else:
                setattr(made, field.name, value)
            yield made


def _values(field: FieldDescriptor, depth: int) -> Iterator[Any]:
    if field.message_type is None:
        yield from _VALUES[field.type]
    elif field.message_type.GetOptions().map_entry:
        yield from TEXTS
    elif depth:
        yield from _variants(GetMessageClass(field.message_type), depth - 1)


def _named(request: Message, names: dict[str, str]) -> Message:
    made = type(request)()
    made.CopyFrom(request)
    for name, value in names.items():
        field = made.DESCRIPTOR.fields_by_name.get(name)
        is_text = field is not None and field.type == FieldDescriptor.TYPE_STRING
        if is_text and not field.is_repeated and not getattr(made, name):
            setattr(made, name, value)
    return made
