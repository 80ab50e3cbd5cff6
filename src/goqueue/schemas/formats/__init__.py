"""Avro, JSON Schema and Protobuf: parsing, compatibility and validation.

Everything here is a pure function of texts and bytes. Subjects, versions and ids belong to the
registry. The libraries for the languages are large, and most brokers never get a schema of each
kind, so a language's module is imported only with its first schema: an idle broker pays nothing for
them. Nothing here accesses the network; a reference is either passed in or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from goqueue.schemas.formats.interface import (
    SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
    Decode,
    Encode,
    Reference,
    ResolvedReference,
    Schema,
    SchemaKind,
    SchemaViolation,
    Validate,
)

if TYPE_CHECKING:
    from goqueue.schemas.formats.protobuf.schema import ProtobufSchema

__all__ = [
    "SCHEMA_BYTES_MAX",
    "SCHEMA_DEPTH_MAX",
    "Decode",
    "Encode",
    "Reference",
    "ResolvedReference",
    "Schema",
    "SchemaKind",
    "SchemaViolation",
    "Validate",
    "decoder",
    "encoder",
    "incompatibilities",
    "parse",
    "protobuf_message_indexes",
    "protobuf_serialized",
    "protobuf_validator",
    "record_name",
    "validator",
]


def parse(kind: SchemaKind, text: str, references: Sequence[ResolvedReference] = ()) -> Schema:
    """Parse a schema, or raise `InvalidSchema` with the reason."""
    match kind:
        case SchemaKind.AVRO:
            from goqueue.schemas.formats import avro

            return avro.parse(text, references)
        case SchemaKind.JSON:
            from goqueue.schemas.formats import json_schema

            return json_schema.parse(text, references)
        case SchemaKind.PROTOBUF:
            from goqueue.schemas.formats import protobuf

            return protobuf.parse(text, references)


def incompatibilities(*, reader: Schema, writer: Schema) -> list[str]:
    """Why data of `writer` may be unreadable for `reader`: one text per broken rule, with its path.

    An empty list means that every record written with `writer` can be read with `reader`.
    """
    if reader.kind is not writer.kind:
        return [f"KIND_CHANGED: {writer.kind} data cannot be read with a schema of {reader.kind}"]
    return cast(_Parsed, reader).incompatibilities(writer)


def validator(schema: Schema) -> Validate:
    """A function that raises `SchemaViolation` for a payload that does not conform to the schema.

    The payload has no framing. Creating the function costs far more than calling it; cache it.
    For Protobuf it checks the first message of the file; see `protobuf_validator`.
    """
    return cast(_Parsed, schema).validator()


def protobuf_validator(schema: Schema, message_indexes: Sequence[int]) -> Validate:
    """Like `validator`, for the message that the indexes select, outermost first.

    Raise `SchemaViolation` if they select none.
    """
    return cast("ProtobufSchema", schema).validator(message_indexes)


def encoder(schema: Schema, message_indexes: Sequence[int] = (0,)) -> Encode:
    """A function that makes payloads, without framing, of JSON; `SchemaViolation` if it does not
    conform.

    For Protobuf, the indexes select the message.
    """
    return cast(_Parsed, schema).encoder(message_indexes)


def decoder(schema: Schema, message_indexes: Sequence[int] = (0,)) -> Decode:
    """A function that shows payloads, without framing, as JSON on one line."""
    return cast(_Parsed, schema).decoder(message_indexes)


def protobuf_message_indexes(schema: Schema, name: str) -> tuple[int, ...]:
    """The indexes of a message of the file, by its name; `SchemaViolation` if there is none."""
    return cast("ProtobufSchema", schema).message_indexes(name)


def record_name(schema: Schema, message_indexes: Sequence[int] = (0,)) -> str:
    """The full name that record strategies use as a subject.

    Avro: the full name of the type. JSON Schema: the title, or nothing. Protobuf: the full name of
    the message that the indexes select.
    """
    return cast(_Parsed, schema).record_name(message_indexes)


def protobuf_serialized(schema: Schema) -> bytes:
    """The schema as base64 of its serialized file descriptor, which some clients request."""
    return cast("ProtobufSchema", schema).serialized()


class _Parsed(Schema, Protocol):
    """The further methods of every language's schema; callers use the functions above."""

    def incompatibilities(self, writer: Any) -> list[str]: ...

    def validator(self) -> Validate: ...

    def encoder(self, message_indexes: Sequence[int]) -> Encode: ...

    def decoder(self, message_indexes: Sequence[int]) -> Decode: ...

    def record_name(self, message_indexes: Sequence[int]) -> str: ...
