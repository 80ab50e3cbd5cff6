"""Avro schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats import avro_rules, avro_text, avro_values, json_text
from goqueue.schemas.formats.avro_types import AvroReader, AvroType
from goqueue.schemas.formats.interface import ResolvedReference, SchemaKind, Validate
from goqueue.schemas.formats.references import in_order


@dataclass(frozen=True, slots=True, eq=False)
class AvroSchema:
    text: str
    canonical: str
    normalized: str
    type: AvroType
    kind: SchemaKind = SchemaKind.AVRO

    def incompatibilities(self, writer: AvroSchema) -> list[str]:
        return avro_rules.incompatibilities(self.type, writer.type)

    def validator(self) -> Validate:
        return avro_values.validator(self.type)

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
        canonical=avro_text.write(root, known=known, is_normal=False),
        normalized=avro_text.write(root, known=known, is_normal=True),
        type=root,
    )


def _document(text: str) -> object:
    # Clients in several languages register a primitive type as an unquoted word.
    bare = text.strip()
    return bare if bare.isidentifier() and bare != "null" else json_text.read(text)
