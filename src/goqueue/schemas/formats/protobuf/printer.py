"""Writes a file descriptor as a .proto text in one canonical way: no comments, full names."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf import descriptor_pb2 as d
from google.protobuf import text_encoding
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from goqueue.schemas.formats.protobuf.options import written
from goqueue.schemas.formats.protobuf.parser import ENUM_NUMBER_MAX, NUMBER_MAX, SCALARS

_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_LABEL_NAMES = {
    d.FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    d.FieldDescriptorProto.LABEL_REQUIRED: "required ",
    d.FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_GROUP = d.FieldDescriptorProto.TYPE_GROUP


def write(file: d.FileDescriptorProto, pool: DescriptorPool, *, is_normal: bool) -> str:
    """The text of a resolved file; the normal form also sorts what has no order."""
    return _Writer(file, pool, is_normal=is_normal).text()


class _Writer:
    def __init__(
        self, file: d.FileDescriptorProto, pool: DescriptorPool, *, is_normal: bool
    ) -> None:
        self._file = file
        self._pool = pool
        self._is_normal = is_normal
        self._lines: list[str] = []

    def text(self) -> str:
        file = self._file
        if file.syntax == "editions":
            self._line(0, 'edition = "2023";')
        else:
            self._line(0, f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._line(0, f"package {file.package};")
        self._imports()
        self._options(file.options, 0)
        for message in file.message_type:
            self._message(message, 0)
        for enum in file.enum_type:
            self._enum(enum, 0)
        self._extensions(file.extension, (), 0)
        for service in file.service:
            self._service(service)
        return "\n".join(self._lines) + "\n"

    def _line(self, depth: int, text: str) -> None:
        self._lines.append("  " * depth + text)

    def _imports(self) -> None:
        file = self._file
        lines = []
        for index, name in enumerate(file.dependency):
            kind = "public " if index in file.public_dependency else ""
            kind = "weak " if index in file.weak_dependency else kind
            lines.append(f"import {kind}{_quoted(name)};")
        for line in sorted(lines) if self._is_normal else lines:
            self._line(0, line)

    def _options(self, options: Message, depth: int) -> None:
        for option in written(options, self._pool, is_sorted=self._is_normal):
            self._line(depth, f"option {option};")

    def _brackets(self, options: Message, more: Iterable[str] = ()) -> str:
        found = [*more, *written(options, self._pool, is_sorted=self._is_normal)]
        return f" [{', '.join(found)}]" if found else ""

    def _message(self, message: d.DescriptorProto, depth: int) -> None:
        self._line(depth, f"message {message.name} {{")
        self._body(message, depth + 1)
        self._line(depth, "}")

    def _body(self, message: d.DescriptorProto, depth: int) -> None:
        self._options(message.options, depth)
        self._ranges(message, depth)
        nested = {each.name: each for each in message.nested_type}
        hidden = _hidden_types(message)
        fields = list(message.field)
        if self._is_normal and (not hidden or len(hidden) == len(nested)):
            fields.sort(key=lambda field: field.number)
        # Some clients find a message by its index among all nested types, including the implicit
        # ones of maps and groups, so each must be written at its index.
        waiting = list(message.nested_type)
        members = _members(fields)
        seen: set[int] = set()
        for field in fields:
            self._types_before(field, hidden, waiting, depth)
            if not field.HasField("oneof_index") or field.proto3_optional:
                self._field(field, nested, depth)
            elif field.oneof_index not in seen:
                seen.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                self._oneof(oneof, members[field.oneof_index], nested, depth)
        for inner in waiting:
            if inner.name not in hidden:
                self._message(inner, depth)
        for enum in message.enum_type:
            self._enum(enum, depth)
        self._extensions(message.extension, message.nested_type, depth)

    def _types_before(
        self,
        field: d.FieldDescriptorProto,
        hidden: set[str],
        waiting: list[d.DescriptorProto],
        depth: int,
    ) -> None:
        """Write the nested types that precede the implicit one of this field."""
        name = field.type_name.rpartition(".")[2]
        if name in hidden and any(each.name == name for each in waiting):
            while (first := waiting.pop(0)).name != name:
                if first.name not in hidden:
                    self._message(first, depth)

    def _oneof(
        self,
        oneof: d.OneofDescriptorProto,
        members: list[d.FieldDescriptorProto],
        nested: dict[str, d.DescriptorProto],
        depth: int,
    ) -> None:
        self._line(depth, f"oneof {oneof.name} {{")
        self._options(oneof.options, depth + 1)
        for field in members:
            self._field(field, nested, depth + 1, is_member=True)
        self._line(depth, "}")

    def _field(
        self,
        field: d.FieldDescriptorProto,
        nested: dict[str, d.DescriptorProto],
        depth: int,
        *,
        is_member: bool = False,
    ) -> None:
        more = []
        if field.HasField("default_value"):
            more.append(f"default = {_default(field)}")
        if field.json_name and field.json_name != json_name(field.name):
            more.append(f"json_name = {_quoted(field.json_name)}")
        end = f"= {field.number}{self._brackets(field.options, more)}"
        entry = nested.get(field.type_name.rpartition(".")[2])
        if entry is not None and entry.options.map_entry and not field.extendee:
            key, value = (_type_name(each) for each in entry.field)
            self._line(depth, f"map<{key}, {value}> {field.name} {end};")
            return
        label = "" if is_member else self._label(field)
        if field.type == _GROUP and entry is not None:
            self._line(depth, f"{label}group {entry.name} {end} {{")
            self._body(entry, depth + 1)
            self._line(depth, "}")
            return
        self._line(depth, f"{label}{_type_name(field)} {field.name} {end};")

    def _label(self, field: d.FieldDescriptorProto) -> str:
        is_optional = field.label == d.FieldDescriptorProto.LABEL_OPTIONAL
        is_proto2 = self._file.syntax in ("", "proto2")
        if is_optional and not is_proto2 and not field.proto3_optional:
            return ""
        return _LABEL_NAMES[field.label]

    def _ranges(self, message: d.DescriptorProto, depth: int) -> None:
        for each in message.extension_range:
            shown = _range(each.start, each.end - 1, NUMBER_MAX)
            self._line(depth, f"extensions {shown}{self._brackets(each.options)};")
        self._reserved(
            [_range(each.start, each.end - 1, NUMBER_MAX) for each in message.reserved_range],
            list(message.reserved_name),
            depth,
        )

    def _reserved(self, ranges: list[str], names: list[str], depth: int) -> None:
        if self._is_normal:
            ranges = sorted(ranges, key=lambda text: int(text.split()[0]))
            names = sorted(names)
        if ranges:
            self._line(depth, f"reserved {', '.join(ranges)};")
        if names:
            is_edition = self._file.syntax == "editions"
            shown = names if is_edition else [_quoted(name) for name in names]
            self._line(depth, f"reserved {', '.join(shown)};")

    def _enum(self, enum: d.EnumDescriptorProto, depth: int) -> None:
        self._line(depth, f"enum {enum.name} {{")
        self._options(enum.options, depth + 1)
        self._reserved(
            [_range(each.start, each.end, ENUM_NUMBER_MAX) for each in enum.reserved_range],
            list(enum.reserved_name),
            depth + 1,
        )
        for value in enum.value:
            options = self._brackets(value.options)
            self._line(depth + 1, f"{value.name} = {value.number}{options};")
        self._line(depth, "}")

    def _extensions(
        self,
        fields: Iterable[d.FieldDescriptorProto],
        nested: Iterable[d.DescriptorProto],
        depth: int,
    ) -> None:
        by_name = {each.name: each for each in nested}
        for field in fields:
            self._line(depth, f"extend {field.extendee} {{")
            self._field(field, by_name, depth + 1)
            self._line(depth, "}")

    def _service(self, service: d.ServiceDescriptorProto) -> None:
        self._line(0, f"service {service.name} {{")
        self._options(service.options, 1)
        for method in service.method:
            taken = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            self._line(1, f"rpc {method.name} ({taken}) returns ({given}) {{")
            self._options(method.options, 2)
            self._line(1, "}")
        self._line(0, "}")


def _hidden_types(message: d.DescriptorProto) -> set[str]:
    """Nested types that no text declares: map entries and groups."""
    groups = {
        each.type_name.rpartition(".")[2]
        for each in (*message.field, *message.extension)
        if each.type == _GROUP
    }
    return groups | {each.name for each in message.nested_type if each.options.map_entry}


def json_name(name: str) -> str:
    """The default JSON name of a field."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _members(fields: list[d.FieldDescriptorProto]) -> dict[int, list[d.FieldDescriptorProto]]:
    """The fields of each oneof."""
    found: dict[int, list[d.FieldDescriptorProto]] = {}
    for field in fields:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(field.oneof_index, []).append(field)
    return found


def _type_name(field: d.FieldDescriptorProto) -> str:
    return _SCALAR_NAMES.get(field.type) or field.type_name


def _default(field: d.FieldDescriptorProto) -> str:
    if field.type == SCALARS["bytes"]:
        return f'"{field.default_value}"'
    if field.type == SCALARS["string"]:
        return _quoted(field.default_value)
    return field.default_value


def _range(start: int, end: int, highest: int) -> str:
    if end == start:
        return str(start)
    return f"{start} to {'max' if end >= highest else end}"


def _quoted(text: str) -> str:
    return f'"{text_encoding.CEscape(text.encode(), as_utf8=False)}"'
