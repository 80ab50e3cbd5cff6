"""Avro, JSON Schema and Protobuf: what a schema says, what may change in it, what obeys it.

Everything here is a pure function of texts and bytes. Subjects, versions and ids are the registry's
business. The libraries that know the languages are large, and most brokers never see a schema of
each kind, so a language's module is imported when its first schema arrives and not before: an idle
broker pays nothing for them. Nothing here reaches for the network; a reference is either handed in
or it is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from goqueue.schemas.formats.interface import (
    SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
    Reference,
    ResolvedReference,
    Schema,
    SchemaKind,
    SchemaViolation,
    Validate,
)

if TYPE_CHECKING:
    from goqueue.schemas.formats.protobuf import ProtobufSchema

__all__ = [
    "SCHEMA_BYTES_MAX",
    "SCHEMA_DEPTH_MAX",
    "Reference",
    "ResolvedReference",
    "Schema",
    "SchemaKind",
    "SchemaViolation",
    "Validate",
    "incompatibilities",
    "parse",
    "protobuf_serialized",
    "protobuf_validator",
    "record_name",
    "validator",
]


def parse(kind: SchemaKind, text: str, references: Sequence[ResolvedReference] = ()) -> Schema:
    """Read a schema, or raise `InvalidSchema` with a sentence that says what is wrong with it."""
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
    """Why data of `writer` may be unreadable for `reader`: one text per rule broken, with its path.

    An empty list says that every record written with `writer` can be read with `reader`.
    """
    if reader.kind is not writer.kind:
        return [f"KIND_CHANGED: {writer.kind} data cannot be read with a schema of {reader.kind}"]
    return cast(_Parsed, reader).incompatibilities(writer)


def validator(schema: Schema) -> Validate:
    """A function that raises `SchemaViolation` for a payload that does not obey the schema.

    The payload comes without framing. Making the function costs far more than calling it; keep it.
    For Protobuf it checks the first message of the file; see `protobuf_validator`.
    """
    return cast(_Parsed, schema).validator()


def protobuf_validator(schema: Schema, message_indexes: Sequence[int]) -> Validate:
    """Like `validator`, for the message that the indexes lead to, outermost first.

    Raises `SchemaViolation` itself when they lead to no message.
    """
    return cast("ProtobufSchema", schema).validator(message_indexes)


def record_name(schema: Schema, message_indexes: Sequence[int] = (0,)) -> str:
    """The full name that record strategies use as a subject.

    Avro: the full name of the type. JSON Schema: the title, or nothing. Protobuf: the full name of
    the message that the indexes lead to.
    """
    return cast(_Parsed, schema).record_name(message_indexes)


def protobuf_serialized(schema: Schema) -> bytes:
    """The schema as base64 of its serialized file descriptor, which some clients ask for."""
    return cast("ProtobufSchema", schema).serialized()


class _Parsed(Schema, Protocol):
    """What every language's schema can do besides; callers use the functions above."""

    def incompatibilities(self, writer: Any) -> list[str]: ...

    def validator(self) -> Validate: ...

    def record_name(self, message_indexes: Sequence[int]) -> str: ...
