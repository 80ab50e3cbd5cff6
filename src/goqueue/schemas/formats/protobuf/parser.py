"""Parses a .proto text of proto2, proto3 or edition 2023 into a file descriptor.

The one Python library for this is eight times slower, prints syntax errors to the terminal and
continues, and loses escapes, hexadecimal numbers and options of groups. Hence this parser; the
tests compare its descriptors with those of protoc. Names of types stay as written: the descriptor
pool of the Protobuf library resolves and checks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2 as d
from google.protobuf import text_encoding

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats.protobuf.options import read_list, read_statement
from goqueue.schemas.formats.protobuf.tokens import Tokens, integer_of

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    _Fields = RepeatedCompositeFieldContainer[d.FieldDescriptorProto]
    _Messages = RepeatedCompositeFieldContainer[d.DescriptorProto]

NESTING_MAX = 30  # messages inside messages; protoc stops at 32
NUMBER_MAX = 2**29 - 1
ENUM_NUMBER_MAX = 2**31 - 1

_LABELS = {
    "optional": d.FieldDescriptorProto.LABEL_OPTIONAL,
    "required": d.FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": d.FieldDescriptorProto.LABEL_REPEATED,
}
SCALARS = {
    name: d.FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string",
        "bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
_KEY_SCALARS = SCALARS.keys() - {"double", "float", "bytes"}


def read(text: str) -> d.FileDescriptorProto:
    """The descriptor of a text, with type names as written, or `InvalidSchema`."""
    return _Reader(text).file()


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._file = d.FileDescriptorProto()
        self._is_proto3 = False

    def file(self) -> d.FileDescriptorProto:
        self._syntax()
        while not self._tokens.is_done:
            self._statement()
        return self._file

    def _syntax(self) -> None:
        tokens = self._tokens
        if tokens.peek() in ("syntax", "edition") and tokens.peek(1) == "=":
            kind = tokens.take().text
            tokens.expect("=")
            value = tokens.name_string()
            tokens.expect(";")
            if kind == "syntax" and value in ("proto2", "proto3"):
                self._is_proto3 = value == "proto3"
                if self._is_proto3:  # descriptors of proto2 leave it empty
                    self._file.syntax = value
            elif kind == "edition" and value == "2023":
                self._file.syntax = "editions"
                self._file.edition = d.EDITION_2023
            else:
                raise InvalidSchema(
                    f"Invalid Protobuf schema: {kind} {value[:40]!r} is not known here; proto2, "
                    "proto3 and edition 2023 are."
                )

    def _statement(self) -> None:
        tokens, file = self._tokens, self._file
        match tokens.peek():
            case "import":
                self._import()
            case "package":
                tokens.take()
                if file.package:
                    tokens.refuse("a file has one package")
                file.package = tokens.full_word()
                tokens.expect(";")
            case "option":
                read_statement(tokens, file.options)
            case "message":
                self._message(file.message_type.add(), 0)
            case "enum":
                self._enum(file.enum_type.add())
            case "extend":
                self._extend(file.extension, file.message_type, 0)
            case "service":
                self._service(file.service.add())
            case ";":
                tokens.take()
            case _:
                tokens.fail("expected message, enum, import, package, option, extend or service")

    def _import(self) -> None:
        tokens, file = self._tokens, self._file
        tokens.take()
        kind = tokens.take().text if tokens.peek() in ("public", "weak") else ""
        name = tokens.name_string()
        tokens.expect(";")
        if name in file.dependency:
            raise InvalidSchema(f"Invalid Protobuf schema: {name[:200]!r} is imported twice.")
        if kind == "public":
            file.public_dependency.append(len(file.dependency))
        elif kind == "weak":
            file.weak_dependency.append(len(file.dependency))
        file.dependency.append(name)

    def _message(self, message: d.DescriptorProto, depth: int) -> None:
        self._tokens.take()
        message.name = self._tokens.word()
        self._message_body(message, depth)

    def _message_body(self, message: d.DescriptorProto, depth: int) -> None:
        tokens = self._tokens
        if depth > NESTING_MAX:
            tokens.refuse(f"messages are nested more than {NESTING_MAX} levels deep")
        tokens.expect("{")
        while not tokens.accept("}"):
            self._message_statement(message, depth)
        # Fields with `optional` in proto3 are in a oneof of their own, after all others.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _message_statement(self, message: d.DescriptorProto, depth: int) -> None:
        tokens = self._tokens
        word, after = tokens.peek(), tokens.peek(2)
        if word == ";":
            tokens.take()
        elif word == "message" and after == "{":
            self._message(message.nested_type.add(), depth + 1)
        elif word == "enum" and after == "{":
            self._enum(message.enum_type.add())
        elif word == "oneof" and after == "{":
            self._oneof(message, depth)
        elif word == "option":
            read_statement(tokens, message.options)
        elif word == "extend":
            self._extend(message.extension, message.nested_type, depth)
        elif word == "reserved" and after != "=":
            self._reserved(message)
        elif word == "extensions" and after != "=":
            self._extensions(message)
        else:
            self._field(message.field, message.nested_type, depth)

    def _field(
        self,
        fields: _Fields,
        nested: _Messages,
        depth: int,
        *,
        oneof: int | None = None,
        extendee: str = "",
    ) -> None:
        tokens = self._tokens
        field = fields.add()
        if extendee:
            field.extendee = extendee
        if oneof is not None:
            field.oneof_index = oneof
        label = tokens.peek() if oneof is None and tokens.peek() in _LABELS else ""
        if label:
            tokens.take()
            if label == "required" and self._is_proto3:
                tokens.refuse("proto3 has no required fields")
        elif oneof is None and not self._file.syntax and tokens.peek(1) != "<":
            tokens.fail("expected optional, required or repeated, which proto2 needs")
        field.label = _LABELS.get(label, _LABELS["optional"])
        if tokens.peek() == "map" and tokens.peek(1) == "<":
            if label or oneof is not None or extendee:
                tokens.refuse("a map may not have a label, nor be in a oneof or extend")
            self._map(field, nested)
            return
        if tokens.peek() == "group" and tokens.peek(2) == "=":
            self._group(field, nested, depth)
            return
        self._type(field)
        if label == "optional" and self._is_proto3 and not extendee:
            field.proto3_optional = True
        field.name = tokens.word("a field's name")
        self._number_and_options(field)
        tokens.expect(";")

    def _type(self, field: d.FieldDescriptorProto) -> None:
        name = self._tokens.full_word()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _number_and_options(self, field: d.FieldDescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("=")
        number = tokens.integer()
        if not 1 <= number <= NUMBER_MAX or 19000 <= number <= 19999:
            tokens.refuse(f"{number} is no field number: 1 to {NUMBER_MAX}, without 19000 to 19999")
        field.number = number
        for name, value in read_list(tokens, field.options, special=("default", "json_name")):
            if name == "json_name" and isinstance(value, bytes):
                field.json_name = value.decode("utf-8", "replace")
            elif name == "default" and not self._is_proto3:
                field.default_value = _default(field, value)
            else:
                tokens.refuse(f"this value for the option {name} is not possible")

    def _map(self, field: d.FieldDescriptorProto, nested: _Messages) -> None:
        tokens = self._tokens
        tokens.take()
        tokens.expect("<")
        entry = nested.add()
        key = entry.field.add(name="key", number=1, label=_LABELS["optional"])
        if tokens.peek() not in _KEY_SCALARS:
            tokens.fail("expected a type for keys: a whole number, bool or string")
        self._type(key)
        tokens.expect(",")
        self._type(entry.field.add(name="value", number=2, label=_LABELS["optional"]))
        tokens.expect(">")
        field.name = tokens.word("a field's name")
        entry.name = map_entry_name(field.name)
        entry.options.map_entry = True
        field.label = _LABELS["repeated"]
        field.type_name = entry.name
        self._number_and_options(field)
        tokens.expect(";")

    def _group(self, field: d.FieldDescriptorProto, nested: _Messages, depth: int) -> None:
        tokens = self._tokens
        if self._file.syntax:
            tokens.refuse("only proto2 has groups")
        tokens.take()
        name = tokens.word("a group's name")
        if not name[0].isupper():
            tokens.refuse("a group's name begins with a capital letter")
        field.name, field.type_name = name.lower(), name
        field.type = d.FieldDescriptorProto.TYPE_GROUP
        self._number_and_options(field)
        group = nested.add(name=name)
        self._message_body(group, depth + 1)

    def _oneof(self, message: d.DescriptorProto, depth: int) -> None:
        tokens = self._tokens
        tokens.take()
        oneof = message.oneof_decl.add(name=tokens.word())
        index, before = len(message.oneof_decl) - 1, len(message.field)
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.peek() == "option":
                read_statement(tokens, oneof.options)
            elif not tokens.accept(";"):
                self._field(message.field, message.nested_type, depth, oneof=index)
        if len(message.field) == before:
            tokens.refuse(f"the oneof {oneof.name} has no fields")

    def _extend(self, fields: _Fields, nested: _Messages, depth: int) -> None:
        tokens = self._tokens
        tokens.take()
        extendee = tokens.full_word()
        tokens.expect("{")
        while not tokens.accept("}"):
            if not tokens.accept(";"):
                self._field(fields, nested, depth, extendee=extendee)

    def _reserved(self, message: d.DescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        while True:
            if tokens.kind() == "string":
                message.reserved_name.append(tokens.name_string())
            elif tokens.kind() == "word":
                message.reserved_name.append(tokens.word())  # as editions write it
            else:
                start, end = self._range(NUMBER_MAX)
                message.reserved_range.add(start=start, end=end + 1)
            if not tokens.accept(","):
                break
        tokens.expect(";")

    def _extensions(self, message: d.DescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        first = len(message.extension_range)
        while True:
            start, end = self._range(NUMBER_MAX)
            message.extension_range.add(start=start, end=end + 1)
            if not tokens.accept(","):
                break
        options = d.ExtensionRangeOptions()
        read_list(tokens, options)
        for each in message.extension_range[first:]:
            if options.ByteSize():
                each.options.CopyFrom(options)
        tokens.expect(";")

    def _range(self, highest: int, lowest: int = 1) -> tuple[int, int]:
        tokens = self._tokens
        start = end = tokens.integer()
        if tokens.accept("to"):
            end = highest if tokens.accept("max") else tokens.integer()
        if not lowest <= start <= end <= highest:
            tokens.refuse(f"the range {start} to {end} is not possible")
        return start, end

    def _enum(self, enum: d.EnumDescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        enum.name = tokens.word()
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.peek() == "option" and tokens.peek(1) != "=":
                read_statement(tokens, enum.options)
            elif tokens.peek() == "reserved" and tokens.peek(1) != "=":
                self._enum_reserved(enum)
            elif not tokens.accept(";"):
                self._enum_value(enum)
        if not enum.value:
            tokens.refuse(f"the enum {enum.name} has no values")

    def _enum_value(self, enum: d.EnumDescriptorProto) -> None:
        tokens = self._tokens
        value = enum.value.add(name=tokens.word("a name for a value"))
        tokens.expect("=")
        number = tokens.integer()
        if not -ENUM_NUMBER_MAX - 1 <= number <= ENUM_NUMBER_MAX:
            tokens.refuse(f"{number} does not fit into 32 bits")
        value.number = number
        read_list(tokens, value.options)
        tokens.expect(";")

    def _enum_reserved(self, enum: d.EnumDescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        while True:
            if tokens.kind() == "string":
                enum.reserved_name.append(tokens.name_string())
            elif tokens.kind() == "word":
                enum.reserved_name.append(tokens.word())
            else:
                start, end = self._range(ENUM_NUMBER_MAX, -ENUM_NUMBER_MAX - 1)
                enum.reserved_range.add(start=start, end=end)  # inclusive, unlike in messages
            if not tokens.accept(","):
                break
        tokens.expect(";")

    def _service(self, service: d.ServiceDescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        service.name = tokens.word()
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.peek() == "option":
                read_statement(tokens, service.options)
            elif not tokens.accept(";"):
                tokens.expect("rpc")
                self._method(service.method.add())

    def _method(self, method: d.MethodDescriptorProto) -> None:
        tokens = self._tokens
        method.name = tokens.word()
        method.input_type, is_client = self._method_type()
        tokens.expect("returns")
        method.output_type, is_server = self._method_type()
        if is_client:
            method.client_streaming = True
        if is_server:
            method.server_streaming = True
        if tokens.accept(";"):
            return
        tokens.expect("{")
        while not tokens.accept("}"):
            if not tokens.accept(";"):
                read_statement(tokens, method.options)
        tokens.accept(";")

    def _method_type(self) -> tuple[str, bool]:
        tokens = self._tokens
        tokens.expect("(")
        is_stream = tokens.peek() == "stream" and tokens.peek(1) != ")"
        if is_stream:
            tokens.take()
        name = tokens.full_word()
        tokens.expect(")")
        return name, is_stream


def map_entry_name(field_name: str) -> str:
    """The name that protoc gives the entry message of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


def _is_integer(text: str) -> bool:
    return text[:1].isdigit() and integer_of(text) is not None


def _default(field: d.FieldDescriptorProto, value: str | bytes) -> str:
    """A default in the form that descriptors use."""
    if isinstance(value, bytes):
        if field.type == SCALARS["bytes"]:
            return text_encoding.CEscape(value, as_utf8=False)
        return value.decode("utf-8", "replace")
    if field.type in (SCALARS["float"], SCALARS["double"]) or not _is_integer(value.lstrip("-")):
        return value
    number = integer_of(value.lstrip("-"))
    return f"-{number}" if value.startswith("-") else str(number)
