"""The versions of all subjects, their contents, and the references between them.

The catalog only stores; what may be changed is decided in `registry`. A schema's text is stored
once per id, however many subjects have it. A deleted version stays, and its id with it, until it is
deleted permanently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from goqueue.model.tenants import tenant_of
from goqueue.schemas.facts import GoneVersion, VersionFact
from goqueue.schemas.formats import Reference, SchemaKind
from goqueue.schemas.names import CONTEXT_DEFAULT, Subject, read_subject

_VersionKey = tuple[str, int]  # a subject and one of its versions


@dataclass(slots=True, eq=False)
class Content:
    """The schema of an id in a context, and the versions that have it."""

    context: str
    id: int
    guid: str
    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    versions: dict[_VersionKey, Version] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Version:
    """One version of one subject."""

    subject: Subject
    number: int
    content: Content
    registered_at_ms: int
    is_deleted: bool = False

    @property
    def key(self) -> _VersionKey:
        return str(self.subject), self.number

    def to_fact(self, *, is_deleted: bool) -> VersionFact:
        content = self.content
        return VersionFact(
            subject=str(self.subject),
            version=self.number,
            id=content.id,
            kind=content.kind,
            text=content.text,
            guid=content.guid,
            registered_at_ms=self.registered_at_ms,
            references=content.references,
            metadata=content.metadata,
            rule_set=content.rule_set,
            is_deleted=is_deleted,
        )


@dataclass(slots=True)
class _Context:
    contents: dict[int, Content] = field(default_factory=dict)
    by_guid: dict[str, Content] = field(default_factory=dict)
    next_id: int = 1


class TenantCounts:
    """How much of the catalog a tenant uses; the default context of all is not counted."""

    __slots__ = ("contexts", "text_length", "versions")

    def __init__(self) -> None:
        self.versions = 0
        self.text_length = 0
        self.contexts = 0


class Catalog:
    """All versions, by subject, by id and by what they refer to."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        self._contexts: dict[str, _Context] = {CONTEXT_DEFAULT: _Context()}
        self._referrers: dict[_VersionKey, dict[_VersionKey, Version]] = {}
        self.version_count = 0
        self.text_length = 0  # of everything stored
        self._by_tenant: dict[str, TenantCounts] = {}

    # Look-up

    def counts_of(self, tenant: str) -> TenantCounts:
        """Return how much of the catalog a tenant uses."""
        return self._by_tenant.get(tenant) or TenantCounts()

    def has_context(self, context: str) -> bool:
        return context in self._contexts

    def contexts(self) -> list[str]:
        return [CONTEXT_DEFAULT, *sorted(self._contexts.keys() - {CONTEXT_DEFAULT})]

    @property
    def subject_count(self) -> int:
        return len(self._subjects)

    def subjects(self) -> Iterator[Subject]:
        """Every subject that has a version, deleted or not, in a fixed order."""
        for name in sorted(self._subjects):
            yield read_subject(name)

    def versions(self, subject: Subject) -> list[Version]:
        """The versions of a subject, deleted ones too, oldest first."""
        return list(self._subjects.get(str(subject), {}).values())

    def version(self, subject: Subject, number: int) -> Version | None:
        return self._subjects.get(str(subject), {}).get(number)

    def content(self, context: str, schema_id: int) -> Content | None:
        known = self._contexts.get(context)
        return None if known is None else known.contents.get(schema_id)

    def content_like(self, context: str, guid: str) -> Content | None:
        """The equivalent content in a context, whichever subject it is under."""
        known = self._contexts.get(context)
        return None if known is None else known.by_guid.get(guid)

    def next_id(self, context: str) -> int:
        known = self._contexts.get(context)
        return 1 if known is None else known.next_id

    def referrers(self, version: Version) -> list[Version]:
        """The versions, including deleted ones, that refer to this one."""
        return list(self._referrers.get(version.key, {}).values())

    # Changes

    def add(self, fact: VersionFact) -> None:
        """Add a version, replacing any that has its number."""
        self.remove(GoneVersion(fact.subject, fact.version))
        subject = read_subject(fact.subject)
        content = self._content_of(subject.context, fact)
        version = Version(subject, fact.version, content, fact.registered_at_ms, fact.is_deleted)
        content.versions[version.key] = version
        numbers = self._subjects.setdefault(fact.subject, {})
        numbers[fact.version] = version
        if next(reversed(numbers)) != max(numbers):  # an import may arrive in any order
            self._subjects[fact.subject] = dict(sorted(numbers.items()))
        for key in _referred(version):
            self._referrers.setdefault(key, {})[version.key] = version
        self.version_count += 1
        self._counts(subject.context).versions += 1

    def remove(self, gone: GoneVersion) -> None:
        """Delete a version permanently, and its content if no other version has it."""
        numbers = self._subjects.get(gone.subject, {})
        version = numbers.pop(gone.version, None)
        if version is None:
            return
        if not numbers:
            del self._subjects[gone.subject]
        for key in _referred(version):
            referrers = self._referrers[key]
            del referrers[version.key]
            if not referrers:
                del self._referrers[key]
        content = version.content
        del content.versions[version.key]
        if not content.versions:
            self._forget_content(content)
        self.version_count -= 1
        self._counts(version.subject.context).versions -= 1

    def raise_next_id(self, context: str, next_id: int) -> None:
        known = self._context(context)
        known.next_id = max(known.next_id, next_id)

    def skip_ids(self, count: int) -> None:
        """Skip ids in every context, because some may have been assigned and then lost."""
        for known in self._contexts.values():
            known.next_id += count

    def _context(self, context: str) -> _Context:
        known = self._contexts.get(context)
        if known is None:
            known = self._contexts[context] = _Context()
            self._counts(context).contexts += 1
        return known

    def _counts(self, context: str) -> TenantCounts:
        return self._by_tenant.setdefault(tenant_of(context[1:]), TenantCounts())

    def _content_of(self, context: str, fact: VersionFact) -> Content:
        known = self._context(context)
        content = known.contents.get(fact.id)
        if content is None or content.guid != fact.guid:
            content = Content(
                context,
                fact.id,
                fact.guid,
                fact.kind,
                fact.text,
                fact.references,
                fact.metadata,
                fact.rule_set,
            )
            known.contents[fact.id] = content
            self.text_length += len(content.text)
            self._counts(context).text_length += len(content.text)
            known.by_guid.setdefault(fact.guid, content)
        known.next_id = max(known.next_id, fact.id + 1)
        return content

    def _forget_content(self, content: Content) -> None:
        known = self._contexts[content.context]
        self.text_length -= len(content.text)
        self._counts(content.context).text_length -= len(content.text)
        if known.contents.get(content.id) is content:
            del known.contents[content.id]
        if known.by_guid.get(content.guid) is content:
            del known.by_guid[content.guid]
            # Imports may give one schema several ids.
            twin = next((one for one in known.contents.values() if one.guid == content.guid), None)
            if twin is not None:
                known.by_guid[twin.guid] = twin


def _referred(version: Version) -> set[_VersionKey]:
    """The versions it refers to; a subject without a context is in that of the version."""
    context = version.subject.context
    return {
        (str(read_subject(one.subject, within=context)), one.version)
        for one in version.content.references
    }
