"""The types that the three schema languages share, and the bounds on what a client may send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from goqueue.model.tenants import SubjectReference, Text

# A schema comes from a client, so everything about it has a bound.
SCHEMA_BYTES_MAX = 1024 * 1024  # of a text, and of all texts together that it refers to
SCHEMA_DEPTH_MAX = 100  # nesting of objects and arrays; a record in a record takes three levels
SCHEMA_REFERENCES_MAX = 1000  # schemas that one schema refers to, directly or through others
MESSAGES_MAX = 100  # incompatibilities listed; more would not help the caller


class SchemaKind(StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema to another: `name` is used in its text, the rest identifies it."""

    name: Text
    subject: SubjectReference
    version: int


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """A reference with the text it stands for, and that text's own references."""

    name: str
    text: str
    references: tuple[ResolvedReference, ...] = ()


class Schema(Protocol):
    """A parsed and valid schema."""

    @property
    def kind(self) -> SchemaKind: ...

    @property
    def text(self) -> str:
        """The text as registered."""
        ...

    @property
    def canonical(self) -> str:
        """The text without what has no meaning: equal for equivalent schemas."""
        ...

    @property
    def normalized(self) -> str:
        """Like `canonical`, with everything sorted whose order has no meaning."""
        ...


Validate = Callable[[bytes | memoryview], None]
# A payload without framing from JSON, and JSON from such a payload. Both raise `SchemaViolation`.
Encode = Callable[[bytes], bytes]
Decode = Callable[[bytes | memoryview], bytes]


class SchemaViolation(Exception):
    """A payload that does not conform to its schema: where, as a path, and why."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)
