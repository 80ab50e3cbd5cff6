"""Generates docs/reference/grpc-api.md: services, messages and enums of `proto/` with comments."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from tools.grpc_codegen import PROTO

PACKAGE = ".goqueue.v1."
# Where a file has what, for the paths of comments: numbers of fields in descriptor.proto.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED, _NESTED_ENUMS, _METHODS, _VALUES = 2, 3, 4, 2, 2

Place = tuple[int, ...]


class _File(NamedTuple):
    """A file, and its comments by what they are about."""

    descriptor: FileDescriptorProto
    comments: dict[Place, str]


class _Message(NamedTuple):
    name: str  # of a message in another one: Outer.Inner
    descriptor: DescriptorProto
    place: Place
    file: _File


class _Enum(NamedTuple):
    name: str
    descriptor: EnumDescriptorProto
    place: Place
    file: _File


def page(generated: str) -> str:
    """The page, with this note that it is generated."""
    sources = _read()
    lines = [
        "# gRPC API\n",
        generated,
        "Every service, message and enum of the package `goqueue.v1`, from the files in `proto/`. "
        "[grpc.md](../grpc.md) says how to connect, and how streams and credit work; "
        "[errors](errors.md) have their status there.\n",
        "| service | methods |",
        "|---|---|",
    ]
    services = [
        (one, service, (_SERVICES, number))
        for one in sources
        for number, service in enumerate(one.descriptor.service)
    ]
    for _, service, _ in services:
        methods = ", ".join(f"`{one.name}`" for one in service.method)
        lines.append(f"| [{service.name}](#{service.name.lower()}) | {methods} |")
    lines.append("\n## Services")
    for file, service, place in services:
        lines.append(f"\n### {service.name}\n")
        lines += _comment(file, place)
        lines += ["| method | request | response | meaning |", "|---|---|---|---|"]
        for number, method in enumerate(service.method):
            about = file.comments.get((*place, _METHODS, number), "")
            lines.append(f"| `{method.name}` | {_ends(method)} | {_cell(about)} |")
    lines.append("\n## Messages")
    for message in _messages(sources):
        lines += _of_message(message)
    lines.append("\n## Enums")
    for enum in _enums(sources):
        lines += _of_enum(enum)
    return "\n".join(lines) + "\n"


def _ends(method: MethodDescriptorProto) -> str:
    request = _link(method.input_type) + (", a stream" if method.client_streaming else "")
    response = _link(method.output_type) + (", a stream" if method.server_streaming else "")
    return f"{request} | {response}"


def _of_message(message: _Message) -> Iterator[str]:
    yield f"\n### {message.name}\n"
    yield from _comment(message.file, message.place)
    if not message.descriptor.field:
        yield "It has no fields."
        return
    yield "| field | number | type | meaning |"
    yield "|---|---|---|---|"
    for number, field in enumerate(message.descriptor.field):
        about = message.file.comments.get((*message.place, _FIELDS, number), "")
        is_choice = field.HasField("oneof_index") and not field.proto3_optional
        if is_choice:
            choice = message.descriptor.oneof_decl[field.oneof_index].name
            about = f"One of `{choice}`. {about}".strip()
        kind = _type(field, message.descriptor)
        yield f"| `{field.name}` | {field.number} | {kind} | {_cell(about)} |"


def _of_enum(enum: _Enum) -> Iterator[str]:
    yield f"\n### {enum.name}\n"
    yield from _comment(enum.file, enum.place)
    yield "| value | number | meaning |"
    yield "|---|---|---|"
    for number, value in enumerate(enum.descriptor.value):
        about = enum.file.comments.get((*enum.place, _VALUES, number), "")
        yield f"| `{value.name}` | {value.number} | {_cell(about)} |"


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    entry = next(
        (
            one
            for one in message.nested_type
            if one.options.map_entry and field.type_name.endswith(f".{one.name}")
        ),
        None,
    )
    if entry is not None:
        return f"map of {_plain(entry.field[0])} to {_plain(entry.field[1])}"
    kind = _plain(field)
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {kind}"
    return f"{kind}, optional" if field.proto3_optional else kind


def _plain(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return _link(field.type_name)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _link(type_name: str) -> str:
    if not type_name.startswith(PACKAGE):
        return f"`{type_name.removeprefix('.')}`"
    name = type_name.removeprefix(PACKAGE)
    return f"[{name}](#{name.lower().replace('.', '')})"


def _comment(file: _File, place: Place) -> Iterator[str]:
    text = file.comments.get(place, "")
    if text:
        yield text + "\n"


def _messages(sources: Sequence[_File]) -> list[_Message]:
    found: list[_Message] = []

    def add(file: _File, descriptor: DescriptorProto, place: Place, outer: str) -> None:
        if descriptor.options.map_entry:
            return
        name = f"{outer}{descriptor.name}"
        found.append(_Message(name, descriptor, place, file))
        for number, nested in enumerate(descriptor.nested_type):
            add(file, nested, (*place, _NESTED, number), f"{name}.")

    for file in sources:
        for number, descriptor in enumerate(file.descriptor.message_type):
            add(file, descriptor, (_MESSAGES, number), "")
    return sorted(found, key=lambda one: one.name)


def _enums(sources: Sequence[_File]) -> list[_Enum]:
    found = [
        _Enum(enum.name, enum, (_ENUMS, number), file)
        for file in sources
        for number, enum in enumerate(file.descriptor.enum_type)
    ]
    found += [
        _Enum(f"{message.name}.{enum.name}", enum, place, message.file)
        for message in _messages(sources)
        for number, enum in enumerate(message.descriptor.enum_type)
        for place in [(*message.place, _NESTED_ENUMS, number)]
    ]
    return sorted(found, key=lambda one: one.name)


def _read() -> list[_File]:
    """The files of the API, with their comments."""
    from grpc_tools import protoc

    names = sorted(PROTO.glob("goqueue/v1/*.proto"))
    with TemporaryDirectory() as folder:
        target = Path(folder, "described")
        arguments = [
            *("protoc", f"-I{PROTO}", f"-I{files('grpc_tools').joinpath('_proto')}"),
            *("--include_source_info", f"--descriptor_set_out={target}", *map(str, names)),
        ]
        if protoc.main(arguments) != 0:
            sys.exit("protoc failed")
        described = FileDescriptorSet.FromString(target.read_bytes())
    return [_File(one, _comments(one)) for one in described.file]


def _comments(file: FileDescriptorProto) -> dict[Place, str]:
    return {
        tuple(one.path): " ".join(f"{one.leading_comments} {one.trailing_comments}".split())
        for one in file.source_code_info.location
        if one.leading_comments or one.trailing_comments
    }


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
