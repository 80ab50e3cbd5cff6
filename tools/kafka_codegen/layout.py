"""What a field looks like in Python, and what a struct looks like on the wire in one version."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass

from tools.kafka_codegen.definitions import (
    FIXED_BYTES,
    Field,
    Message,
    StructDefinition,
)

INTEGER_TYPES = {"bool", "int8", "int16", "uint16", "int32", "int64"}
# Names that a generated function needs for itself.
_RESERVED = {"data", "pos", "write", "message", "tag", "tag_count", "tagged", "end"}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to read or write: a run of fixed-size fields, or a single other field."""

    fields: list[Field]

    @property
    def is_run(self) -> bool:
        return self.fields[0].is_fixed

    @property
    def field(self) -> Field:
        return self.fields[0]


def fields_used(message: Message, struct: StructDefinition) -> list[Field]:
    """Leave out the fields that no version of ours has."""
    return [
        field
        for field in struct.fields
        if any(version in field.versions for version in message.versions)
    ]


def steps(
    message: Message,
    struct: StructDefinition,
    version: int,
    in_run: Callable[[Field], bool] = lambda field: field.is_fixed,
) -> list[Step]:
    """The untagged fields of a version, neighbours of fixed size joined if `in_run` agrees."""
    found: list[Step] = []
    for field in fields_used(message, struct):
        if version not in field.versions or version in field.tagged:
            continue
        if found and in_run(field) and in_run(found[-1].field):
            found[-1].fields.append(field)
        else:
            found.append(Step([field]))
    return found


def tagged_fields(message: Message, struct: StructDefinition, version: int) -> list[Field]:
    found = [field for field in fields_used(message, struct) if version in field.tagged]
    return sorted(found, key=lambda field: field.tag or 0)


def absent_fields(message: Message, struct: StructDefinition, version: int) -> list[Field]:
    return [field for field in fields_used(message, struct) if version not in field.versions]


def is_flexible(message: Message, field: Field, version: int) -> bool:
    return version in (message.flexible if field.flexible is None else field.flexible)


def bytes_min(message: Message, struct: StructDefinition, version: int) -> int:
    """The size of the smallest struct of this kind, for checking an announced array length."""
    total = 1 if version in message.flexible else 0
    for step in steps(message, struct, version):
        total += sum(_field_bytes_min(message, field, version) for field in step.fields)
    if total == 0:
        raise ValueError(f"{struct.name} has no bytes in version {version} of {message.name}.")
    return total


def item_bytes_min(message: Message, field: Field, version: int) -> int:
    """The size of the smallest item of an array."""
    if field.is_struct:
        return bytes_min(message, message.structs[field.type], version)
    if field.type in FIXED_BYTES:
        return FIXED_BYTES[field.type]
    return 1 if is_flexible(message, field, version) else _prefix_bytes(field)


def _field_bytes_min(message: Message, field: Field, version: int) -> int:
    if field.is_fixed:
        return FIXED_BYTES[field.type]
    if field.is_struct and not field.is_array:
        if version in field.nullable:
            return 1
        return bytes_min(message, message.structs[field.type], version)
    if is_flexible(message, field, version):
        return 1
    return 4 if field.is_array else _prefix_bytes(field)


def _prefix_bytes(field: Field) -> int:
    return 2 if field.type == "string" else 4


def is_optional(message: Message, field: Field) -> bool:
    """Whether the Python value may be None."""
    if field.default == "null":
        return True
    return any(version in field.nullable for version in message.versions)


def default_literal(message: Message, field: Field, class_name: str) -> str:
    """The default of a field as a Python expression; `class_name` is that of a struct."""
    if field.default == "null":
        return "None"
    if field.is_array:
        return "[]"
    if field.is_struct:
        return f"{class_name}()"
    return _primitive_default(message, field)


def _primitive_default(message: Message, field: Field) -> str:
    given = field.default
    if field.type == "string":
        return repr(given or "").replace("'", '"')
    if field.type == "bytes":
        return 'b""'
    if field.type == "records":
        return "None" if is_optional(message, field) else 'b""'
    if field.type == "uuid":
        return "UUID_ZERO"
    if field.type == "bool":
        return "True" if given == "true" else "False"
    if field.type == "float64":
        return repr(float(given or 0))
    return str(int(given or "0", 0))


def local_name(field: Field) -> str:
    """The name of a field as a local variable."""
    name = field.python_name
    return f"{name}_" if name in _RESERVED or keyword.iskeyword(name) else name


def attribute_name(field: Field) -> str:
    name = field.python_name
    return f"{name}_" if keyword.iskeyword(name) else name
