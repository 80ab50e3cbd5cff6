"""Builds descriptors of a file and all its imports, in a separate pool.

Versions of one schema define the same names, so no two of them can share a pool. The pool resolves
the names of types and checks most rules; the rest is checked here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping

from google.protobuf import descriptor_pb2 as d
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats.json_text import check_size
from goqueue.schemas.formats.protobuf import parser, well_known
from goqueue.schemas.formats.protobuf.options import interpret

ROOT = "default"  # the name that clients give the registered file
_IMPORTS_MAX = 1000


def read(text: str) -> tuple[d.FileDescriptorProto, bool]:
    """The descriptor in a text, and whether the text was a serialized descriptor in base64."""
    check_size(text)
    serialized = _serialized(text)
    if serialized is not None:
        return serialized, True
    return parser.read(text), False


def build(
    root: d.FileDescriptorProto, imports: Mapping[str, d.FileDescriptorProto]
) -> tuple[FileDescriptor, DescriptorPool]:
    """The file with all names resolved, or `InvalidSchema`."""
    pool = DescriptorPool()
    for file in _in_order(root, imports):
        _check(file)
        _add(pool, file)
    # Custom options can be interpreted only now. They change no type, so the file can be built
    # again with them in a second pool, where everything else is the same.
    if _interpret(root, pool):
        again = DescriptorPool()
        for file in _in_order(root, imports):
            _add(again, file)
        pool = again
    return pool.FindFileByName(root.name), pool


def _serialized(text: str) -> d.FileDescriptorProto | None:
    try:
        data = base64.b64decode(text.strip().encode("ascii"), validate=True)
        found = d.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    # Many short words are valid base64; a real file declares at least some content.
    has_content = found.message_type or found.enum_type or found.syntax or found.dependency
    if not data or not has_content:
        return None
    found.ClearField("source_code_info")
    if found.syntax == "proto2":
        found.ClearField("syntax")
    return found


def _in_order(
    root: d.FileDescriptorProto, imports: Mapping[str, d.FileDescriptorProto]
) -> Iterator[d.FileDescriptorProto]:
    """The files, each after its imports; without recursion. Cycles are refused."""
    done: set[str] = set()
    stack = [(root, iter(root.dependency))]
    while stack:
        file, rest = stack[-1]
        name = next(rest, None)
        if name is None:
            stack.pop()
            done.add(file.name)
            yield file
        elif name not in done:
            if any(name == each.name for each, _ in stack):
                raise InvalidSchema(f"The import of {name[:200]!r} goes in a circle.")
            found = imports.get(name) or well_known.find(name)
            if found is None:
                raise InvalidSchema(
                    f"The import {name[:200]!r} leads to no schema; register that schema and list "
                    "it under 'references' by this name."
                )
            stack.append((found, iter(found.dependency)))
            if len(stack) > _IMPORTS_MAX:
                raise InvalidSchema("The imports are nested too deeply.")


def _add(pool: DescriptorPool, file: d.FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError, DecodeError) as error:
        reason = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
        where = "" if file.name == ROOT else f" in the import {file.name[:200]!r}"
        raise InvalidSchema(f"Invalid Protobuf schema{where}: {reason[:300]}.") from None


def _interpret(file: d.FileDescriptorProto, pool: DescriptorPool) -> bool:
    """Interpret custom options; return whether there were any."""
    before = file.SerializeToString(deterministic=True)
    scope = file.package
    interpret(file.options, scope, pool)
    for field in file.extension:
        interpret(field.options, scope, pool)
    for enum in file.enum_type:
        _interpret_enum(enum, scope, pool)
    for service in file.service:
        interpret(service.options, scope, pool)
        for method in service.method:
            interpret(method.options, f"{scope}.{service.name}", pool)
    for message, path in messages(file):
        inner = ".".join(part for part in (scope, path) if part)
        interpret(message.options, inner, pool)
        for field in (*message.field, *message.extension):
            interpret(field.options, inner, pool)
        for oneof in message.oneof_decl:
            interpret(oneof.options, inner, pool)
        for enum in message.enum_type:
            _interpret_enum(enum, inner, pool)
    return file.SerializeToString(deterministic=True) != before


def _interpret_enum(enum: d.EnumDescriptorProto, scope: str, pool: DescriptorPool) -> None:
    interpret(enum.options, scope, pool)
    for value in enum.value:
        interpret(value.options, scope, pool)


def messages(file: d.FileDescriptorProto) -> Iterator[tuple[d.DescriptorProto, str]]:
    """Every message of a file, with its name inside the file."""
    stack = [(message, message.name) for message in reversed(file.message_type)]
    while stack:
        message, path = stack.pop()
        yield message, path
        stack += [(inner, f"{path}.{inner.name}") for inner in reversed(message.nested_type)]


def _check(file: d.FileDescriptorProto) -> None:
    """Check what the pool accepts and protoc does not."""
    for message, path in messages(file):
        for field in message.field:
            if any(each.start <= field.number < each.end for each in message.reserved_range):
                _refuse(f"the field {field.name} of {path} has the reserved number {field.number}")
            if field.name in message.reserved_name:
                _refuse(f"{path} has a field with the reserved name {field.name}")
            if file.syntax == "proto3" and field.label == d.FieldDescriptorProto.LABEL_REQUIRED:
                _refuse(f"the field {field.name} of {path} is required; proto3 has no such fields")
    enums = [*file.enum_type]
    for message, _ in messages(file):
        enums += message.enum_type
    for enum in enums:
        _check_enum(enum, is_proto3=file.syntax == "proto3")


def _check_enum(enum: d.EnumDescriptorProto, *, is_proto3: bool) -> None:
    numbers = [value.number for value in enum.value]
    if is_proto3 and numbers and numbers[0] != 0:
        _refuse(f"the first value of the enum {enum.name} must be zero in proto3")
    if len(set(numbers)) < len(numbers) and not enum.options.allow_alias:
        _refuse(f"two values of the enum {enum.name} have one number, without allow_alias")
    for value in enum.value:
        is_reserved = any(each.start <= value.number <= each.end for each in enum.reserved_range)
        if is_reserved or value.name in enum.reserved_name:
            _refuse(f"the value {value.name} of the enum {enum.name} is reserved")


def _refuse(reason: str) -> None:
    raise InvalidSchema(f"Invalid Protobuf schema: {reason}.")
