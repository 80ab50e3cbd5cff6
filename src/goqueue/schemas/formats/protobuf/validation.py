"""Checks that bytes are a message of a type, and reports which field is invalid.

The Protobuf library parses the bytes in C. What it cannot assign it keeps as unknown fields: valid
if a newer schema wrote them, but invalid if a known number has the wrong wire type. So only
payloads with unknown fields, or malformed ones, are checked here.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from goqueue.schemas.formats.interface import SchemaViolation, Validate

VALUE_DEPTH_MAX = 100  # as in the library

_VARINT, _FIXED64, _BYTES, _START, _END, _FIXED32 = range(6)
_FORMS = {_VARINT: "a varint", _FIXED64: "8 bytes", _BYTES: "a length and bytes", _START: "a group",
          _END: "the end of a group", _FIXED32: "4 bytes"}  # fmt: skip
_FIXED32_TYPES = {
    FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32, FieldDescriptor.TYPE_FLOAT,
}  # fmt: skip
_FIXED64_TYPES = {
    FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64, FieldDescriptor.TYPE_DOUBLE,
}  # fmt: skip
_BYTES_TYPES = {
    FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE,
}  # fmt: skip


def validator(descriptor: Descriptor) -> Validate:
    """A function that raises `SchemaViolation` unless it is given a message of the type."""
    made: type[Message] = message_factory.GetMessageClass(descriptor)
    read = made.FromString
    has_required = any(
        field.is_required for message in _reachable(descriptor) for field in message.fields
    )

    def validate(payload: bytes | memoryview) -> None:
        data = bytes(payload)
        try:
            message = read(data)
        except DecodeError as error:
            _walk(data, descriptor, 0, len(data), "$", 0, -1)
            raise SchemaViolation("$", f"the payload is not a message: {error}") from None
        if has_required and not message.IsInitialized():
            missing = message.FindInitializationErrors()[0]  # type: ignore[attr-defined]
            raise SchemaViolation(f"$.{missing}", "a required field is missing")
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            _walk(data, descriptor, 0, len(data), "$", 0, -1)

    return validate


def _reachable(root: Descriptor) -> Iterator[Descriptor]:
    seen: set[str] = set()
    stack = [root]
    while stack:
        message = stack.pop()
        if message.full_name not in seen:
            seen.add(message.full_name)
            yield message
            stack += [field.message_type for field in message.fields if field.message_type]


def _walk(
    data: bytes, message: Descriptor | None, at: int, end: int, path: str, depth: int, group: int
) -> int:
    """Check the fields of a message; `message` is absent inside unknown groups."""
    if depth > VALUE_DEPTH_MAX:
        raise SchemaViolation(path, f"messages are nested more than {VALUE_DEPTH_MAX} levels deep")
    counts: dict[int, int] = {}
    while at < end:
        tag, at = _varint(data, at, end, path)
        number, form = tag >> 3, tag & 7
        if form == _END and number == group:
            return at
        field = message.fields_by_number.get(number) if message is not None else None
        field_path = path
        if field is not None:
            field_path = f"{path}.{field.name}"
            if field.is_repeated and not _is_packed(field, form):
                counts[number] = counts.get(number, -1) + 1
                field_path = f"{field_path}[{counts[number]}]"
        _check_form(field, number, form, field_path)
        at = _value(data, at, end, field, (number, form), field_path, depth)
    if group >= 0:
        raise SchemaViolation(path, "the bytes end inside this group")
    return at


def _value(
    data: bytes,
    at: int,
    end: int,
    field: FieldDescriptor | None,
    tag: tuple[int, int],
    path: str,
    depth: int,
) -> int:
    number, form = tag
    if form == _VARINT:
        return _varint(data, at, end, path)[1]
    if form == _START:
        inner = field.message_type if field is not None else None
        return _walk(data, inner, at, end, path, depth + 1, number)
    if form == _BYTES:
        size, at = _varint(data, at, end, path)
    else:
        size = 4 if form == _FIXED32 else 8
    stop = at + size
    if stop > end:
        raise SchemaViolation(path, "the bytes end inside this field")
    if field is None or form != _BYTES:
        return stop
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _walk(data, field.message_type, at, stop, path, depth + 1, -1)
    elif field.type == FieldDescriptor.TYPE_STRING:
        _check_text(data[at:stop], path)
    elif field.type != FieldDescriptor.TYPE_BYTES:
        _check_packed(data, at, stop, field, path)
    return stop


def _check_form(field: FieldDescriptor | None, number: int, form: int, path: str) -> None:
    if number == 0:
        raise SchemaViolation(path, "a field has the number 0")
    if form == _END or form not in _FORMS:
        raise SchemaViolation(path, f"field {number} comes in the unknown form {form}")
    if field is None:
        return
    expected = _form_of(field)
    if form != expected and not _is_packed(field, form):
        raise SchemaViolation(
            path, f"field {number} comes as {_FORMS[form]}, but its type is {_FORMS[expected]}"
        )


def _form_of(field: FieldDescriptor) -> int:
    if field.type in _BYTES_TYPES:
        return _BYTES
    if field.type == FieldDescriptor.TYPE_GROUP:
        return _START
    if field.type in _FIXED32_TYPES:
        return _FIXED32
    return _FIXED64 if field.type in _FIXED64_TYPES else _VARINT


def _is_packed(field: FieldDescriptor, form: int) -> bool:
    """Readers accept repeated numbers packed or not, whatever the schema says."""
    return field.is_repeated and form == _BYTES and _form_of(field) in (_VARINT, _FIXED32, _FIXED64)


def _check_packed(data: bytes, at: int, end: int, field: FieldDescriptor, path: str) -> None:
    form = _form_of(field)
    if form == _VARINT:
        while at < end:
            at = _varint(data, at, end, path)[1]
    elif (end - at) % (4 if form == _FIXED32 else 8):
        raise SchemaViolation(path, "packed numbers end in the middle of one")


def _check_text(text: bytes, path: str) -> None:
    try:
        text.decode()
    except UnicodeDecodeError:
        raise SchemaViolation(path, "a string that is not UTF-8") from None


def _varint(data: bytes, at: int, end: int, path: str) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise SchemaViolation(
        path, "a number has more than 64 bits" if shift >= 70 else "the bytes end inside a number"
    )
