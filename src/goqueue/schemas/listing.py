"""The subjects and versions that a listing of the registry shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from goqueue.model.errors import SchemaRefusal, SchemaRefused
from goqueue.schemas.catalog import Content, Version
from goqueue.schemas.formats import SchemaKind
from goqueue.schemas.names import Subject, matches_prefix
from goqueue.schemas.registry import Registry, unknown_subject


def subjects(
    registry: Registry, prefix: str, *, with_deleted: bool, only_deleted: bool
) -> Iterator[Subject]:
    """Subjects with a prefix; a subject is deleted if all its versions are."""
    for subject in registry.catalog.subjects():
        if matches_prefix(subject, prefix):
            is_live = registry.has_subject(subject, with_deleted=False)
            if not is_live if only_deleted else is_live or with_deleted:
                yield subject


def overview(registry: Registry, subject: Subject) -> tuple[str, int, int, SchemaKind, int]:
    """A subject's name, its newest version with id and kind, and how many versions it has."""
    found = registry.catalog.versions(subject)
    live = [one for one in found if not one.is_deleted]
    newest = (live or found)[-1]
    return str(subject), newest.number, newest.content.id, newest.content.kind, len(live)


def version_numbers(
    registry: Registry,
    subject: Subject,
    *,
    with_deleted: bool,
    only_deleted: bool,
    deleted_as_negative: bool,
) -> list[int]:
    """The versions of a subject, oldest first."""
    if not registry.has_subject(subject, with_deleted=with_deleted or only_deleted):
        raise unknown_subject(subject)
    versions = registry.catalog.versions(subject)
    if deleted_as_negative:
        return [-one.number if one.is_deleted else one.number for one in versions]
    if only_deleted:
        return [one.number for one in versions if one.is_deleted]
    return [one.number for one in versions if with_deleted or not one.is_deleted]


def versions(
    registry: Registry, prefix: str, *, with_deleted: bool, latest_only: bool
) -> Iterator[Version]:
    """The versions, or the newest one, of each subject with a prefix."""
    for subject in registry.catalog.subjects():
        if matches_prefix(subject, prefix):
            found = registry.catalog.versions(subject)
            shown = [one for one in found if with_deleted or not one.is_deleted]
            yield from shown[-1:] if latest_only else shown


def newest_with_properties(
    registry: Registry, subject: Subject, wanted: Mapping[str, str], *, with_deleted: bool
) -> Version:
    """The newest version of a subject whose metadata has these properties."""
    for version in reversed(registry.catalog.versions(subject)):
        properties = (version.content.metadata or {}).get("properties")
        if (version.is_deleted and not with_deleted) or not isinstance(properties, dict):
            continue
        if wanted.items() <= properties.items():
            return version
    if not registry.has_subject(subject, with_deleted=with_deleted):
        raise unknown_subject(subject)
    raise SchemaRefused(SchemaRefusal.UNKNOWN_SCHEMA, "Schema not found")


def versions_of(content: Content, *, with_deleted: bool) -> list[Version]:
    """The versions that have a schema, by subject and number."""
    found = [one for one in content.versions.values() if with_deleted or not one.is_deleted]
    return sorted(found, key=lambda one: one.key)


def with_guid(registry: Registry, guid: str) -> list[Content]:
    """The schemas with a guid, one for each context that has it."""
    found = list(registry.find_guid(guid))
    if not found:
        raise SchemaRefused(SchemaRefusal.UNKNOWN_SCHEMA, f"Schema {guid[:100]} not found")
    return found
