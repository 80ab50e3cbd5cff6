"""Avro schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats import json_text
from goqueue.schemas.formats.avro import compatibility, json_encoding, printer, validation
from goqueue.schemas.formats.avro.types import AvroReader, AvroType
from goqueue.schemas.formats.interface import (
    Decode,
    Encode,
    ResolvedReference,
    SchemaKind,
    Validate,
)
from goqueue.schemas.formats.references import in_order


@dataclass(frozen=True, slots=True, eq=False)
class AvroSchema:
    text: str
    canonical: str
    normalized: str
    type: AvroType
    kind: SchemaKind = SchemaKind.AVRO

    def incompatibilities(self, writer: AvroSchema) -> list[str]:
        return compatibility.incompatibilities(self.type, writer.type)

    def validator(self) -> Validate:
        return validation.validator(self.type)

    def encoder(self, message_indexes: Sequence[int]) -> Encode:
        return json_encoding.encoder(self.type)

    def decoder(self, message_indexes: Sequence[int]) -> Decode:
        return json_encoding.decoder(self.type)

    def record_name(self, message_indexes: Sequence[int]) -> str:
        return self.type.name


def parse(text: str, references: Sequence[ResolvedReference]) -> AvroSchema:
    """Parse a schema; it may use the names defined in the texts of `references`."""
    reader = AvroReader()
    for reference in in_order(references):
        if reference.name not in reader.names:  # it may be defined inside an earlier one
            try:
                reader.read(_document(reference.text))
            except InvalidSchema as error:
                raise InvalidSchema(f"In the reference {reference.name!r}: {error}") from None
    known = set(reader.names)
    root = reader.read(_document(text))
    return AvroSchema(
        text,
        canonical=printer.write(root, known=known, is_normal=False),
        normalized=printer.write(root, known=known, is_normal=True),
        type=root,
    )


def _document(text: str) -> object:
    # Clients in several languages register a primitive type as an unquoted word.
    bare = text.strip()
    return bare if bare.isidentifier() and bare != "null" else json_text.read(text)
