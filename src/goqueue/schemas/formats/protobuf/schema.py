"""Protobuf schemas."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf import descriptor_pb2 as d
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats.interface import (
    Decode,
    Encode,
    ResolvedReference,
    SchemaKind,
    SchemaViolation,
    Validate,
)
from goqueue.schemas.formats.protobuf import (
    compatibility,
    descriptors,
    json_encoding,
    printer,
    validation,
)
from goqueue.schemas.formats.references import in_order


@dataclass(frozen=True, slots=True, eq=False)
class ProtobufSchema:
    """A file. `text` is the .proto text, even if it was registered as a descriptor."""

    text: str
    canonical: str
    normalized: str
    file: FileDescriptor
    serialized_file: bytes
    pool: DescriptorPool
    kind: SchemaKind = SchemaKind.PROTOBUF

    def incompatibilities(self, writer: ProtobufSchema) -> list[str]:
        return compatibility.incompatibilities(self.file, writer.file)

    def validator(self, message_indexes: Sequence[int] = (0,)) -> Validate:
        return validation.validator(self._message(message_indexes))

    def encoder(self, message_indexes: Sequence[int]) -> Encode:
        return json_encoding.encoder(self._message(message_indexes), self.pool)

    def decoder(self, message_indexes: Sequence[int]) -> Decode:
        return json_encoding.decoder(self._message(message_indexes), self.pool)

    def message_indexes(self, name: str) -> tuple[int, ...]:
        """The indexes of a message by its name, with or without the package."""
        names = name.removeprefix(f"{self.file.package}.").split(".")
        inner = dict(self.file.message_types_by_name)
        indexes = []
        for one in names:
            if one not in inner:
                known = ", ".join(list(self.file.message_types_by_name)[:10]) or "none"
                raise SchemaViolation("", f"the schema has no message {name[:200]!r}, but: {known}")
            indexes.append(list(inner).index(one))
            inner = {each.name: each for each in inner[one].nested_types}
        return tuple(indexes)

    def record_name(self, message_indexes: Sequence[int]) -> str:
        return self._message(message_indexes).full_name

    def serialized(self) -> bytes:
        return base64.b64encode(self.serialized_file)

    def _message(self, indexes: Sequence[int]) -> Descriptor:
        found: Descriptor | None = None
        inner = list(self.file.message_types_by_name.values())
        for index in indexes or (0,):
            if not 0 <= index < len(inner):
                raise SchemaViolation(
                    "$",
                    f"the message indexes {list(indexes)[:10]} lead to no message of the schema",
                )
            found = inner[index]
            inner = list(found.nested_types)
        assert found is not None
        return found


def parse(text: str, references: Sequence[ResolvedReference]) -> ProtobufSchema:
    """Parse a .proto text, or a serialized file descriptor in base64, as some clients send it."""
    root, is_serialized = descriptors.read(text)
    root.name = descriptors.ROOT
    imports: dict[str, d.FileDescriptorProto] = {}
    for reference in in_order(references):
        try:
            file, _ = descriptors.read(reference.text)
        except InvalidSchema as error:
            raise InvalidSchema(f"In the reference {reference.name!r}: {error}") from None
        file.name = reference.name
        imports.setdefault(reference.name, file)
    if not (
        root.message_type or root.enum_type or root.extension or root.service or root.dependency
    ):
        raise InvalidSchema("Invalid Protobuf schema: it declares nothing.")
    descriptor, pool = descriptors.build(root, imports)
    resolved = d.FileDescriptorProto()
    descriptor.CopyToProto(resolved)
    canonical = printer.write(resolved, pool, is_normal=False)
    return ProtobufSchema(
        text=canonical if is_serialized else text,
        canonical=canonical,
        normalized=printer.write(resolved, pool, is_normal=True),
        file=descriptor,
        serialized_file=resolved.SerializeToString(deterministic=True),
        pool=pool,
    )
