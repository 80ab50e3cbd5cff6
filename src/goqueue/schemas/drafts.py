"""A schema being registered: as sent, as completed for parsing, and as parsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from goqueue.model.tenants import Text
from goqueue.schemas.formats import Reference, Schema, SchemaKind
from goqueue.schemas.names import Subject
from goqueue.schemas.sources import Source, guid_of


@dataclass(frozen=True, slots=True)
class Request:
    """A schema as a client sends it."""

    text: Text
    kind: SchemaKind = SchemaKind.AVRO
    references: tuple[Reference, ...] = ()
    metadata: dict[Text, Any] | None = None
    rule_set: dict[Text, Any] | None = None
    id: int | None = None  # the original id, in an import
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A request completed by the registry, to be parsed and then registered."""

    subject: Subject
    request: Request
    source: Source
    is_normalized: bool

    def parse(self) -> ParsedDraft:
        """Parse it; raise `InvalidSchema`."""
        schema = self.source.read()
        if self.is_normalized:
            text = meaning = schema.normalized
        else:
            text, meaning = schema.text, schema.canonical
        return ParsedDraft(self, schema, text, meaning)


@dataclass(frozen=True, slots=True)
class ParsedDraft:
    """A parsed draft: the schema, the text to store, and its identity."""

    draft: Draft
    schema: Schema
    text: str
    meaning: str

    def guid(self, request: Request | None = None) -> str:
        given = request or self.draft.request
        return guid_of(given.kind, self.meaning, given.references, given.metadata, given.rule_set)
