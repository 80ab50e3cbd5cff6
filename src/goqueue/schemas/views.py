"""Schemas and versions of the registry as immutable values."""

from __future__ import annotations

from typing import Any

import msgspec

from goqueue.model.tenants import ContextName, Text
from goqueue.schemas.catalog import Content, Version
from goqueue.schemas.formats import Reference, SchemaKind
from goqueue.schemas.names import Subject


class SchemaView(msgspec.Struct, frozen=True, kw_only=True):
    """The schema of an id in a context."""

    context: ContextName
    id: int
    guid: Text
    kind: SchemaKind
    text: Text
    references: tuple[Reference, ...]
    metadata: dict[Text, Any] | None
    rule_set: dict[Text, Any] | None


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one subject."""

    subject: Subject
    number: int
    schema: SchemaView
    is_deleted: bool


def view_of_schema(content: Content, text: str | None = None) -> SchemaView:
    """The schema, with its text in another form if one is given."""
    return SchemaView(
        context=content.context,
        id=content.id,
        guid=content.guid,
        kind=content.kind,
        text=content.text if text is None else text,
        references=content.references,
        metadata=content.metadata,
        rule_set=content.rule_set,
    )


def view_of_version(version: Version, text: str | None = None) -> VersionView:
    return VersionView(
        subject=version.subject,
        number=version.number,
        schema=view_of_schema(version.content, text),
        is_deleted=version.is_deleted,
    )
