"""The registry: rules of registration, look-up, deletion and configuration.

A state machine fed by entries (see `facts`). A caller that requests a change gets the entries that
make it, persists them and applies them; replaying the same entries gives the same registry. Parsing
and comparing schemas is left to the caller (see `sources`), which passes the result back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from goqueue.model.errors import InvalidSchema, SchemaRefusal, SchemaRefused
from goqueue.schemas.catalog import Catalog, Content, Version
from goqueue.schemas.drafts import Draft, ParsedDraft, Request
from goqueue.schemas.facts import (
    Change,
    ConfigFact,
    Fact,
    Gone,
    GoneVersion,
    IdsFact,
    ModeFact,
    VersionFact,
    state,
    version_key,
)
from goqueue.schemas.formats import (
    SCHEMA_BYTES_MAX,
    Reference,
    ResolvedReference,
)
from goqueue.schemas.names import (
    CONTEXT_DEFAULT,
    Subject,
    check_subject,
    is_same_tenant,
    plain_context,
    read_subject,
)
from goqueue.schemas.scopes import Mode, Scopes
from goqueue.schemas.sources import Check, Source

LATEST = -1
VERSIONS_MAX = 200_000  # of all subjects; they are in memory
TEXT_LENGTH_MAX = 256 << 20  # of all schemas together
CONTEXTS_MAX = 10_000  # they are never deleted, or their ids would be assigned again
METADATA_BYTES_MAX = 256 << 10  # of one version, and its rules
SOURCES_MAX = 256  # parsed schemas cached for the next comparison
REFERENCES_MAX = 1000  # of one schema, directly or through others
VERSION_NUMBER_MAX = (1 << 31) - 1

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Registry:
    """All registered schemas."""

    catalog: Catalog = field(default_factory=Catalog)
    scopes: Scopes = field(default_factory=Scopes)
    _sources: OrderedDict[Content, Source] = field(default_factory=OrderedDict)

    # Entries

    def apply(self, fact: Fact | Gone) -> None:
        """Apply an entry, or its deletion."""
        if isinstance(fact, VersionFact):
            self.catalog.add(fact)
        elif isinstance(fact, GoneVersion):
            self.catalog.remove(fact)
        elif isinstance(fact, IdsFact):
            self.catalog.raise_next_id(fact.context, fact.next_id)
        elif isinstance(fact, ConfigFact | ModeFact):
            self.scopes.apply(fact)
        else:
            self.scopes.forget(fact)

    # Look-up

    def has_subject(self, subject: Subject, *, with_deleted: bool) -> bool:
        return any(with_deleted or not one.is_deleted for one in self.catalog.versions(subject))

    def live_versions(self, subject: Subject) -> list[Version]:
        return [one for one in self.catalog.versions(subject) if not one.is_deleted]

    def find(self, subject: Subject, number: int, *, with_deleted: bool = False) -> Version:
        """A version of a subject, or its newest; an unqualified name may be of another context."""
        for candidate in self._candidates(subject):
            found = self._find_in(candidate, number, with_deleted=with_deleted)
            if found is not None:
                return found
        if not self.has_subject(subject, with_deleted=with_deleted):
            raise unknown_subject(subject)
        raise unknown_version(number)

    def latest(self, subject: Subject) -> Version | None:
        return self._find_in(subject, LATEST, with_deleted=False)

    def find_id(self, schema_id: int, subject: Subject | None = None) -> Content:
        """The schema of an id, in the context of a subject."""
        context = CONTEXT_DEFAULT if subject is None else subject.context
        found = self.catalog.content(context, schema_id)
        if found is None and subject is not None and subject.name:
            for candidate in self._candidates(subject):
                other = self.catalog.content(candidate.context, schema_id)
                if other is not None and any(str(candidate) == name for name, _ in other.versions):
                    return other
        if found is None:
            raise SchemaRefused(SchemaRefusal.UNKNOWN_SCHEMA, f"Schema {schema_id} not found")
        return found

    def find_guid(self, guid: str) -> Iterator[Content]:
        """The schemas with this guid, one for each context that has it."""
        for context in self.catalog.contexts():
            found = self.catalog.content_like(context, guid)
            if found is not None:
                yield found

    def find_like(self, parsed: ParsedDraft, *, with_deleted: bool = False) -> Version | None:
        """The version of the draft's subject that is equivalent."""
        draft = parsed.draft
        found = self._find_guid_in(draft.subject, parsed.guid(), with_deleted=with_deleted)
        if found is None:
            latest = self.latest(draft.subject)
            inherited = _inheriting(draft.request, latest)
            if inherited != draft.request:
                guid = parsed.guid(inherited)
                found = self._find_guid_in(draft.subject, guid, with_deleted=with_deleted)
        return found

    def referrers(self, version: Version, *, with_deleted: bool) -> list[Version]:
        found = self.catalog.referrers(version)
        return [one for one in found if with_deleted or not one.is_deleted]

    def source(self, content: Content) -> Source:
        """The schema of an id, ready to be parsed."""
        source = self._sources.get(content)
        if source is None:
            resolved = self._resolve(content.references, content.context)
            source = self._sources[content] = Source(content.kind, content.text, resolved)
            if len(self._sources) > SOURCES_MAX:
                self._sources.popitem(last=False)
        else:
            self._sources.move_to_end(content)
        return source

    # Registration

    def draft(self, subject: Subject, request: Request, *, normalize: bool) -> Draft:
        """Complete a request; raise if it refers to a schema that does not exist."""
        config = self.scopes.config(subject)
        if len(request.text.encode("utf-8", "surrogatepass")) > SCHEMA_BYTES_MAX:
            raise SchemaRefused(
                SchemaRefusal.TOO_LARGE, f"A schema may have {SCHEMA_BYTES_MAX} bytes here."
            )
        check_metadata_size(request.metadata, request.rule_set)
        if not request.text.strip():
            raise InvalidSchema("Empty schema")
        request = replace(request, references=self._pinned(request.references, subject.context))
        resolved = self._resolve(request.references, subject.context)
        source = Source(request.kind, request.text, resolved)
        return Draft(subject, request, source, normalize or bool(config.normalize))

    def draft_of_register(self, subject: Subject, request: Request, *, normalize: bool) -> Draft:
        """The same for a registration: it inherits from the newest version."""
        check_subject(subject)
        mode = self.scopes.mode(subject)
        self._check_may_register(subject, request, mode)
        if mode is not Mode.IMPORT:
            latest = self.latest(subject)
            if not request.text.strip() and latest is not None:
                content = latest.content
                request = replace(
                    request, text=content.text, kind=content.kind, references=content.references
                )
            request = _inheriting(request, latest)
            additions = self.scopes.config(subject).additions
            request = replace(
                request,
                metadata=additions.to_metadata(request.metadata),
                rule_set=additions.to_rule_set(request.rule_set),
            )
        return self.draft(subject, request, normalize=normalize)

    def find_registered(self, parsed: ParsedDraft) -> Version | None:
        """The existing version that makes a registration unnecessary."""
        request = parsed.draft.request
        if request.version is not None:
            return None
        found = self._find_guid_in(parsed.draft.subject, parsed.guid(), with_deleted=False)
        if found is None or request.id in (None, found.content.id):
            return found
        return None

    def check(self, parsed: ParsedDraft, *, against: Sequence[Version] | None = None) -> Check:
        """The comparison to run before the draft may become a version."""
        subject = parsed.draft.subject
        config = self.scopes.config(subject)
        earlier = self.live_versions(subject) if against is None else against
        if config.group is not None:
            wanted = _property(parsed.draft.request.metadata, config.group)
            earlier = [
                one for one in earlier if _property(one.content.metadata, config.group) == wanted
            ]
        sources = [(one.number, self.source(one.content)) for one in earlier]
        assert config.level is not None
        return Check(config.level, parsed.draft.source, sources)

    def needs_check(self, subject: Subject) -> bool:
        return self.scopes.mode(subject) is not Mode.IMPORT

    def register(self, parsed: ParsedDraft, *, now_ms: int) -> tuple[VersionFact, list[Change]]:
        """The entries that make the draft a version, after it passed the comparison."""
        draft, request = parsed.draft, parsed.draft.request
        subject, context = draft.subject, draft.subject.context
        self._check_room(context)
        guid = parsed.guid()
        version = self._next_version(subject, request, guid)
        schema_id = self._choose_id(context, request, guid)
        known = self.catalog.content(context, schema_id)
        fact = VersionFact(
            subject=str(subject),
            version=version,
            id=schema_id,
            kind=request.kind,
            text=parsed.text if known is None else known.text,
            guid=guid,
            registered_at_ms=now_ms,
            references=request.references,
            metadata=request.metadata,
            rule_set=request.rule_set,
        )
        changes = [state(fact)]
        if schema_id >= self.catalog.next_id(context) or not self.catalog.has_context(context):
            next_id = max(schema_id + 1, self.catalog.next_id(context))
            changes.insert(0, state(IdsFact(context=context, next_id=next_id)))
        changes += self._replaced(subject, schema_id, version)
        return fact, changes

    def _check_room(self, context: str) -> None:
        catalog = self.catalog
        if catalog.version_count >= VERSIONS_MAX or catalog.text_length >= TEXT_LENGTH_MAX:
            raise not_permitted(
                f"The registry is full: {VERSIONS_MAX} versions, or {TEXT_LENGTH_MAX} letters, are "
                "the most it holds; delete some for good."
            )
        if not catalog.has_context(context) and len(catalog.contexts()) >= CONTEXTS_MAX:
            raise not_permitted(f"There are {CONTEXTS_MAX} contexts already; use one of them.")

    def _check_may_register(self, subject: Subject, request: Request, mode: Mode) -> None:
        if mode.is_read_only:
            raise not_permitted(f"Subject {subject} is in read-only mode.")
        if request.id is not None and mode is not Mode.IMPORT:
            raise not_permitted(f"Subject {subject} is not in import mode; leave out the id.")
        if request.id is None and mode is not Mode.READWRITE:
            raise not_permitted(f"Subject {subject} is not in read-write mode.")

    def _next_version(self, subject: Subject, request: Request, guid: str) -> int:
        versions = self.catalog.versions(subject)
        following = versions[-1].number + 1 if versions else 1
        if request.version is None or request.version == following:
            return following
        if self.scopes.mode(subject) is not Mode.IMPORT:
            raise InvalidSchema(f"The next version of {subject} is {following}; send that or none.")
        known = self.catalog.version(subject, request.version)
        if known is not None and known.content.guid != guid:
            raise not_permitted(f"Version {request.version} of {subject} is another schema.")
        return request.version

    def _choose_id(self, context: str, request: Request, guid: str) -> int:
        if request.id is None:
            known = self.catalog.content_like(context, guid)
            return self.catalog.next_id(context) if known is None else known.id
        taken = self.catalog.content(context, request.id)
        if taken is not None and taken.guid != guid:
            raise not_permitted(f"The id {request.id} is that of another schema.")
        return request.id

    def _replaced(self, subject: Subject, schema_id: int, version: int) -> list[Change]:
        """Deletions of soft-deleted versions that come back under a new number."""
        return [
            Change(version_key(str(subject), one.number), None)
            for one in self.catalog.versions(subject)
            if one.is_deleted
            and one.content.id == schema_id
            and one.number < version
            and not self.catalog.referrers(one)
        ]

    # References

    def _pinned(self, references: tuple[Reference, ...], context: str) -> tuple[Reference, ...]:
        """Replace references to a newest version by references to its current number."""
        return tuple(
            Reference(one.name, one.subject, self._referred(one, context).number)
            if one.version == LATEST
            else one
            for one in references
        )

    def _resolve(
        self, references: tuple[Reference, ...], context: str
    ) -> tuple[ResolvedReference, ...]:
        resolved: dict[tuple[str, str, int], ResolvedReference] = {}

        def follow(one: Reference, within: str, path: tuple[Version, ...]) -> ResolvedReference:
            found = self._referred(one, within)
            key = (one.name, str(found.subject), found.number)
            if key not in resolved:
                if found in path or len(resolved) >= REFERENCES_MAX:
                    raise InvalidSchema(
                        f"The schema refers to itself or to more than {REFERENCES_MAX} others."
                    )
                content = found.content
                below = tuple(
                    follow(each, found.subject.context, (*path, found))
                    for each in content.references
                )
                resolved[key] = ResolvedReference(one.name, content.text, below)
            return resolved[key]

        return tuple(follow(one, context, ()) for one in references)

    def _referred(self, reference: Reference, context: str) -> Version:
        subject = read_subject(reference.subject, within=context)
        found = self._find_in(subject, reference.version, with_deleted=reference.version != LATEST)
        if found is None:
            raise InvalidSchema(
                f"The reference {reference.name!r} leads nowhere: subject {subject} has no version "
                f"{'at all' if reference.version == LATEST else reference.version}; register it "
                "first."
            )
        return found

    # Helpers

    def _candidates(self, subject: Subject) -> Iterator[Subject]:
        """The subject, and those of the same name in other contexts if it is unqualified."""
        yield subject
        if plain_context(subject.context) == CONTEXT_DEFAULT and subject.name:
            for context in self.catalog.contexts():
                if context != subject.context and is_same_tenant(context, subject.context):
                    yield Subject(context, subject.name)

    def _find_in(self, subject: Subject, number: int, *, with_deleted: bool) -> Version | None:
        if number == LATEST:
            versions = self.catalog.versions(subject)
            live = [one for one in versions if with_deleted or not one.is_deleted]
            return live[-1] if live else None
        found = self.catalog.version(subject, number)
        return found if found is not None and (with_deleted or not found.is_deleted) else None

    def _find_guid_in(self, subject: Subject, guid: str, *, with_deleted: bool) -> Version | None:
        found = [
            one
            for one in self.catalog.versions(subject)
            if one.content.guid == guid and (with_deleted or not one.is_deleted)
        ]
        return found[-1] if found else None


def unknown_subject(subject: Subject | str) -> SchemaRefused:
    return SchemaRefused(SchemaRefusal.UNKNOWN_SUBJECT, f"Subject '{subject}' not found.")


def unknown_version(number: int) -> SchemaRefused:
    return SchemaRefused(SchemaRefusal.UNKNOWN_VERSION, f"Version {number} not found.")


def check_metadata_size(*given: dict[str, Any] | None) -> None:
    if len(_encode(given)) > METADATA_BYTES_MAX:
        raise SchemaRefused(
            SchemaRefusal.TOO_LARGE,
            f"The metadata and rules of a schema may have {METADATA_BYTES_MAX} bytes here.",
        )


def not_permitted(detail: str) -> SchemaRefused:
    return SchemaRefused(SchemaRefusal.NOT_PERMITTED, detail)


def _inheriting(request: Request, latest: Version | None) -> Request:
    """A request without metadata or rules inherits those of the newest version."""
    if latest is None:
        return request
    content = latest.content
    return replace(
        request,
        metadata=content.metadata if request.metadata is None else request.metadata,
        rule_set=content.rule_set if request.rule_set is None else request.rule_set,
    )


def _property(metadata: dict[str, Any] | None, name: str) -> object:
    properties = (metadata or {}).get("properties")
    return properties.get(name) if isinstance(properties, dict) else None
