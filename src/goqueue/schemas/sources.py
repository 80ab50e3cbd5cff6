"""Registered schemas, parsed on demand.

Parsing a schema and comparing two of them takes milliseconds, sometimes many. So both are
self-contained values here: the holder may do the work in another thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats import (
    Reference,
    ResolvedReference,
    Schema,
    SchemaKind,
    incompatibilities,
    parse,
)
from goqueue.schemas.scopes import Level

MESSAGES_MAX = 200  # of one comparison; more would not help the caller

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(slots=True, eq=False)
class Source:
    """The text of a schema with everything that it refers to; parsed at most once."""

    kind: SchemaKind
    text: str
    references: tuple[ResolvedReference, ...] = ()
    _schema: Schema | None = field(default=None, repr=False)

    def read(self) -> Schema:
        """The parsed schema; raise `InvalidSchema` if the text is not one."""
        if self._schema is None:
            self._schema = parse(self.kind, self.text, self.references)
        return self._schema


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a new schema may follow earlier ones, oldest first."""

    level: Level
    source: Source
    earlier: Sequence[tuple[int, Source]]

    def run(self) -> list[str]:
        """Return the incompatibilities; empty if it may follow."""
        if self.level is Level.NONE:
            return []
        earlier = self.earlier if self.level.is_transitive else self.earlier[-1:]
        messages: list[str] = []
        for number, source in reversed(earlier):
            found = self._against(source)
            if found:
                messages += [*found, f"{{oldSchemaVersion: {number}}}"]
            if len(messages) >= MESSAGES_MAX:
                break
        return [*messages[:MESSAGES_MAX], f"{{compatibility: '{self.level}'}}"] if messages else []

    def _against(self, earlier: Source) -> list[str]:
        if earlier.kind is not self.source.kind:
            return [
                f"{{errorType: a {self.source.kind} schema cannot follow a {earlier.kind} one}}"
            ]
        new = self.source.read()
        try:
            old = earlier.read()
        except InvalidSchema as error:
            return [f"{{errorType: the earlier schema cannot be read any more: {error}}}"]
        messages = []
        if self.level.is_backward:
            messages += incompatibilities(reader=new, writer=old)
        if self.level.is_forward:
            messages += incompatibilities(reader=old, writer=new)
        return messages


def guid_of(
    kind: SchemaKind,
    meaning: str,
    references: Sequence[Reference],
    metadata: dict[str, Any] | None,
    rule_set: dict[str, Any] | None,
) -> str:
    """The identity of equivalent schemas; it is the same in every registry."""
    encoded = _encode([kind, meaning, references, metadata, rule_set])
    return str(UUID(bytes=hashlib.md5(encoded, usedforsecurity=False).digest()))
