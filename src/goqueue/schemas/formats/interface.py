"""The nouns that the three schema languages share, and the bounds on what a client may send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

# A schema comes from a client, so everything about it has a bound.
SCHEMA_BYTES_MAX = 1024 * 1024  # of a text, and of all texts together that it refers to
SCHEMA_DEPTH_MAX = 100  # nesting of objects and arrays; a record in a record takes three levels
SCHEMA_REFERENCES_MAX = 1000  # schemas that one schema refers to, directly or through others
MESSAGES_MAX = 100  # incompatibilities listed; whoever breaks more knows enough by then


class SchemaKind(StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Reference:
    """How a schema names another one: `name` is used in its text, the rest says which it is."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """A reference together with the text it stands for, and what that text refers to itself."""

    name: str
    text: str
    references: tuple[ResolvedReference, ...] = ()


class Schema(Protocol):
    """A schema that was read and found valid."""

    @property
    def kind(self) -> SchemaKind: ...

    @property
    def text(self) -> str:
        """As it was registered."""
        ...

    @property
    def canonical(self) -> str:
        """Two schemas are the same if these are: the text without what means nothing."""
        ...

    @property
    def normalized(self) -> str:
        """Like `canonical`, and without the order of what has none."""
        ...


Validate = Callable[[bytes | memoryview], None]


class SchemaViolation(Exception):
    """A payload that does not obey its schema: where, as a path, and why."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)
