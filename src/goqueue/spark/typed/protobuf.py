"""Protobuf: the reader's message decodes any version of it, by field numbers.

Fields with presence (messages, members of a oneof, `optional` ones) are null when not set. Others
have their zero values, which the wire format does not distinguish from absence.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, json_format, message_factory, text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from goqueue.model.errors import InvalidRequest
from goqueue.spark.typed.framing import HEAD_BYTES
from goqueue.spark.typed.registry import SchemaText
from goqueue.spark.typed.shapes import (
    DEPTH_MAX,
    TIMESTAMP,
    Array,
    Converted,
    Map,
    Member,
    Plain,
    Shape,
    refuse_recursion,
    struct_of,
)

INDEXES_MAX = 100  # nested messages
_VARINT_BYTES_MAX = 5

_F = FieldDescriptor
_PLAIN: dict[int, pa.DataType] = {
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.int64(),  # Spark has no unsigned numbers
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_UINT64: pa.decimal128(20, 0),
    _F.TYPE_FIXED64: pa.decimal128(20, 0),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in (
        *("Double", "Float", "Int64", "UInt64", "Int32", "UInt32"),
        *("Bool", "String", "Bytes"),
    )
}
# Any JSON value; their definitions are recursive.
_FREE = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_KNOWN_NAME = re.compile(r"google/(?:protobuf|type)/[a-z_]+\.proto")
# Files that Confluent's clients compile in and never send. The first has only options, which do
# not affect decoding.
_CONFLUENT = {
    "confluent/meta.proto": "",
    "confluent/type/decimal.proto": """
        package: "confluent.type" message_type { name: "Decimal"
          field { name: "value" number: 1 label: LABEL_OPTIONAL type: TYPE_BYTES }
          field { name: "precision" number: 2 label: LABEL_OPTIONAL type: TYPE_UINT32 }
          field { name: "scale" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 } }""",
    "confluent/types/decimal.proto": (
        'dependency: "confluent/type/decimal.proto" public_dependency: 0'
    ),
}


class ProtobufReader:
    """The message that all values of a column are converted to."""

    def __init__(self, schema: SchemaText, message: str | None = None) -> None:
        self._file = _file(schema)
        self._message = _named_message(self._file, message, schema)
        self.shape = _message_shape(self._message, "$", ())

    def decoder(self, writer: SchemaText) -> Callable[[bytes], Any]:
        """Return a function from framed bytes of the writer's schema to a message of this one."""
        file = _file(writer)
        read = message_factory.GetMessageClass(self._message).FromString
        wanted = self._message.full_name
        fitting: set[tuple[int, ...]] = set()

        def decode(data: bytes) -> Any:
            indexes, start = read_indexes(data, HEAD_BYTES)
            if indexes not in fitting:
                found = _message_at(file, indexes)
                if found is None or found.full_name != wanted:
                    name = "no message" if found is None else found.full_name
                    raise ValueError(f"it holds {name}, and {wanted} is read")
                fitting.add(indexes)
            try:
                return read(data[start:])
            except DecodeError as error:
                raise ValueError(f"the bytes are no {wanted}: {error}") from error

        return decode

    def column_decoder(self, writer: SchemaText) -> None:
        """Return None: there is no fast path for many values."""


def read_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the index path of a message, outermost first, and where its bytes begin."""
    if data[at : at + 1] == b"\0":  # An empty path stands for the first message.
        return (0,), at + 1
    count, at = _varint(data, at)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueError(f"its message index has {count} levels")
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    return tuple(indexes) or (0,), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint, as the serializers write indexes."""
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        if at >= len(data):
            raise ValueError("the bytes end before the message begins")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("its message index is not a number")


# Shapes


def _message_shape(message: Descriptor, path: str, above: tuple[str, ...]) -> Shape:
    name = message.full_name
    if name == "google.protobuf.Timestamp":
        return Converted(_microseconds, Plain(TIMESTAMP, (pa.int64(),)))
    if name in _WRAPPERS:
        value = message.fields_by_name["value"]
        return Converted(lambda held: held.value, _single_shape(value, path, above))
    if name in _FREE:
        return Converted(_json, Plain(pa.string()))
    if name in above or len(above) >= DEPTH_MAX:
        raise refuse_recursion(path, name)
    members = [
        Member(one.name, _field_shape(one, f"{path}.{one.name}", (*above, name)), _getter(one))
        for one in message.fields
    ]
    return struct_of(members, path)


def _field_shape(field: FieldDescriptor, path: str, above: tuple[str, ...]) -> Shape:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        key = _single_shape(entry["key"], path, above)
        return Map(key, _single_shape(entry["value"], f"{path}{{}}", above))
    if field.is_repeated:
        return Array(_single_shape(field, f"{path}[]", above))
    return _single_shape(field, path, above)


def _single_shape(field: FieldDescriptor, path: str, above: tuple[str, ...]) -> Shape:
    if field.message_type is not None:
        return _message_shape(field.message_type, path, above)
    if field.enum_type is not None:
        names = {one.number: one.name for one in reversed(field.enum_type.values)}
        # Newer writers send numbers without a name in the reader's schema.
        return Converted(lambda number: names.get(number) or str(number), Plain(pa.string()))
    return Plain(_PLAIN[field.type])


def _getter(field: FieldDescriptor) -> Callable[[Any], Any]:
    name = field.name
    if field.has_presence and not field.is_repeated:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return lambda message: getattr(message, name)


def _microseconds(moment: Any) -> int:
    return int(moment.seconds * 1_000_000 + moment.nanos // 1000)


def _json(message: Any) -> str:
    return json_format.MessageToJson(message, indent=None)


# Descriptors


def _file(schema: SchemaText) -> FileDescriptor:
    """Return the file of a schema, in a separate pool: versions define the same names."""
    pool = DescriptorPool()
    try:
        root = _descriptor(schema.text, "default")
        texts = {one.name: one.text for one in schema.references}
        for file in _in_order(root, texts):
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(root.name)
    except (TypeError, ValueError, DecodeError, KeyError) as error:
        raise InvalidRequest(f"{schema} is no Protobuf schema that can be read: {error}") from error


def _descriptor(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    found.name = name
    return found


def _in_order(
    root: descriptor_pb2.FileDescriptorProto, texts: Mapping[str, str]
) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """Return the files, each after its imports."""
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
            if any(name == one.name for one, _ in stack):
                raise ValueError(f"its imports go in a circle at {name}")
            found = _descriptor(texts[name], name) if name in texts else _known(name)
            stack.append((found, iter(found.dependency)))


def _known(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file that clients do not send as a reference."""
    found = descriptor_pb2.FileDescriptorProto()
    if name in _CONFLUENT:
        text_format.Parse(_CONFLUENT[name], found)
        found.name, found.syntax = name, "proto3"
        return found
    # Only names of this form may become module names.
    if not _KNOWN_NAME.fullmatch(name):
        raise ValueError(f"it imports {name}, which is not among its references")
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ModuleNotFoundError:
        raise ValueError(f"it imports {name}, which is not known here") from None
    module.DESCRIPTOR.CopyToProto(found)
    return found


def _named_message(file: FileDescriptor, name: str | None, schema: SchemaText) -> Descriptor:
    """Return the message of that name, or the first of the file."""
    found = list(file.message_types_by_name.values())
    if name is None and found:
        return found[0]
    known = []
    while found:
        one = found.pop(0)
        if name in (one.full_name, one.name):
            return one
        known.append(one.full_name)
        found += [inner for inner in one.nested_types if not inner.GetOptions().map_entry]
    raise InvalidRequest(
        f"{schema} has no message {name or 'at all'}; it has {', '.join(known) or 'none'}."
    )


def _message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor | None:
    found: Descriptor | None = None
    inner = list(file.message_types_by_name.values())
    for index in indexes:
        if not 0 <= index < len(inner):
            return None
        found = inner[index]
        inner = list(found.nested_types)
    return found
