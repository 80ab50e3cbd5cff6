"""Operations of the schema registry.

Every node answers reads from its replica of the registry. The leader of the registry's topic
takes changes, and answers reads that must see all earlier changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from goqueue.broker.gate.operation import Area, Arguments, named_by_owner, operation, subject
from goqueue.loop.promise import Promise, promised
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.model.errors import SchemaRefusal, SchemaRefused
from goqueue.model.session import Session
from goqueue.model.tenants import (
    ContextName,
    ContextPrefix,
    Sentence,
    SubjectName,
    SubjectPrefix,
    Text,
    prefix_of_tenant,
)
from goqueue.schemas import listing
from goqueue.schemas.catalog import Content, Version
from goqueue.schemas.drafts import Request
from goqueue.schemas.formats import Reference, SchemaKind
from goqueue.schemas.names import (
    ALL_CONTEXTS,
    CONTEXT_DEFAULT,
    Subject,
    is_same_tenant,
    read_subject,
)
from goqueue.schemas.registry import LATEST, VERSION_NUMBER_MAX, Registry
from goqueue.schemas.scopes import Config, ConfigChange, Mode, read_level, read_mode
from goqueue.schemas.views import SchemaView, VersionView, view_of_schema, view_of_version

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = [
    "ALL_CONTEXTS",
    "CONTEXT_DEFAULT",
    "LATEST",
    "VERSION_NUMBER_MAX",
    "Config",
    "ConfigChange",
    "Mode",
    "Reference",
    "Request",
    "SchemaKind",
    "SchemaView",
    "SchemasArea",
    "ShownSchema",
    "Subject",
    "SubjectOverview",
    "SubjectPage",
    "VersionView",
    "read_level",
    "read_mode",
    "read_subject",
]

T = TypeVar("T")


class ShownSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The schema of an id."""

    schema: SchemaView
    number: int | None  # the newest version of the named subject that has it
    subject: Subject | None
    newest_id: int  # the last id assigned in its context


class SubjectOverview(NamedTuple):
    """A subject and its newest version that is not deleted, or the newest if all are."""

    subject: SubjectName
    number: int
    schema_id: int
    kind: SchemaKind
    versions: int  # that are not deleted


class SubjectPage(NamedTuple):
    """Some subjects by name."""

    subjects: list[SubjectOverview]
    is_last: bool


def _subject_or_cluster(arguments: Arguments) -> Iterable[Resource]:
    """Return a subject or a context; settings of the whole registry belong to the cluster."""
    return (_scope(arguments["subject"]),)


def _scope(subject: Subject) -> Resource:
    if subject.is_default_context:
        return CLUSTER
    return Resource(ResourceKind.SUBJECT, str(subject))


def default_context(session: Session) -> str:
    """Return the default context of a session's tenant."""
    return f".{prefix_of_tenant(session.tenant)}"


def _leader(broker: Broker, _: Arguments) -> int:
    return broker.schemas.owner()


class SchemasArea(Area):
    """Subjects, their versions, ids, settings and modes."""

    # Subjects and versions

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def list_subjects(
        self,
        session: Session,
        *,
        prefix: SubjectPrefix,
        with_deleted: bool,
        only_deleted: bool,
        offset: int,
        limit: int,
    ) -> Sequence[SubjectName]:
        """Return subjects whose qualified names begin with a prefix; `:*:` is every context."""

        def ask(registry: Registry) -> Sequence[str]:
            found = listing.subjects(
                registry, prefix, with_deleted=with_deleted, only_deleted=only_deleted
            )
            shown = (str(one) for one in found if self._may(session, Action.DESCRIBE, _scope(one)))
            return list(islice(shown, offset, offset + limit))

        return await self._broker.schemas.look(ask)

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def subjects(
        self,
        session: Session,
        *,
        prefix: SubjectPrefix,
        match: Text,
        only_deleted: bool,
        after: SubjectName,
        limit: int,
    ) -> SubjectPage:
        """Return subjects whose names contain a text, with their newest version."""

        def ask(registry: Registry) -> SubjectPage:
            found = listing.subjects(
                registry, prefix, with_deleted=only_deleted, only_deleted=only_deleted
            )
            shown = (
                listing.overview(registry, one)
                for one in found
                if match in one.name.lower()
                and str(one) > after
                and self._may(session, Action.DESCRIBE, _scope(one))
            )
            page = [SubjectOverview(*one) for one in islice(shown, limit + 1)]
            return SubjectPage(page[:limit], len(page) <= limit)

        return await self._broker.schemas.look(ask)

    @operation(Action.DESCRIBE, subject(), is_reading=True)
    async def list_versions(
        self,
        session: Session,
        *,
        subject: Subject,
        with_deleted: bool,
        only_deleted: bool,
        deleted_as_negative: bool,
        offset: int,
        limit: int,
    ) -> Sequence[int]:
        """Return the numbers of a subject's versions, oldest first."""

        def ask(registry: Registry) -> Sequence[int]:
            found = listing.version_numbers(
                registry,
                self._resolve(session, Action.DESCRIBE, registry, subject),
                with_deleted=with_deleted,
                only_deleted=only_deleted,
                deleted_as_negative=deleted_as_negative,
            )
            return found[offset : offset + limit]

        return await self._broker.schemas.look(ask)

    @operation(Action.READ, subject(), is_reading=True)
    async def show_version(
        self, session: Session, *, subject: Subject, number: int, with_deleted: bool, form: Text
    ) -> VersionView:
        """Return a version of a subject, or its newest; with its text in a given format."""

        def ask(registry: Registry) -> Version:
            resolved = self._resolve(session, Action.READ, registry, subject)
            return registry.find(resolved, number, with_deleted=with_deleted)

        return await self._shown(await self._broker.schemas.look(ask), form)

    @operation(Action.READ, subject(), is_reading=True)
    async def find_by_properties(
        self,
        session: Session,
        *,
        subject: Subject,
        properties: Mapping[Text, Text],
        with_deleted: bool,
        form: Text,
    ) -> VersionView:
        """Return the newest version of a subject whose metadata has these properties."""

        def ask(registry: Registry) -> Version:
            resolved = self._resolve(session, Action.READ, registry, subject)
            return listing.newest_with_properties(
                registry, resolved, properties, with_deleted=with_deleted
            )

        return await self._shown(await self._broker.schemas.look(ask), form)

    @operation(Action.READ, subject(), is_reading=True)
    async def list_referrers(
        self,
        session: Session,
        *,
        subject: Subject,
        number: int,
        with_deleted: bool,
        offset: int,
        limit: int,
    ) -> Sequence[int]:
        """Return the ids of schemas that refer to a version."""

        def ask(registry: Registry) -> Sequence[int]:
            resolved = self._resolve(session, Action.READ, registry, subject)
            version = registry.find(resolved, number, with_deleted=True)
            found = registry.referrers(version, with_deleted=with_deleted)
            return sorted({one.content.id for one in found})[offset : offset + limit]

        return await self._broker.schemas.look(ask)

    @operation(Action.READ, subject(), owner=_leader, is_reading=True)
    async def lookup(
        self,
        session: Session,
        *,
        subject: Subject,
        request: Request,
        normalize: bool,
        with_deleted: bool,
        form: Text,
    ) -> VersionView:
        """Return the version of a subject that is equivalent to a schema."""
        self._check_references(session, subject, request)
        found = await self._broker.schemas.lookup(
            await self._resolved(session, Action.READ, subject),
            request,
            normalize=normalize,
            with_deleted=with_deleted,
        )
        return await self._shown(found, form)

    @operation(Action.READ, subject(), owner=_leader, is_reading=True)
    async def compare(
        self,
        session: Session,
        *,
        subject: Subject,
        request: Request,
        normalize: bool,
        number: int | None,
    ) -> Sequence[Sentence]:
        """Return why a schema is incompatible with a version, or by the subject's level."""
        self._check_references(session, subject, request)
        resolved = await self._resolved(session, Action.READ, subject)
        return await self._broker.schemas.compare(
            resolved, request, normalize=normalize, number=number
        )

    @operation(Action.WRITE, subject(), owner=_leader, is_change=True)
    async def register(
        self,
        session: Session,
        *,
        subject: Subject,
        request: Request,
        normalize: bool,
        force: bool,
    ) -> VersionView:
        """Register a schema as a version of a subject, unless it already is one."""
        self._check_references(session, subject, request)
        resolved = await self._resolved(session, Action.WRITE, subject)
        self._mutate(session)
        version = await self._broker.schemas.register(
            resolved, request, normalize=normalize, force=force
        )
        return view_of_version(version)

    @operation(Action.DELETE, subject(), owner=_leader)
    async def delete_version(
        self, session: Session, *, subject: Subject, number: int, permanent: bool
    ) -> int:
        """Mark a version as deleted, or remove it permanently; return its number."""
        resolved = await self._resolved(session, Action.DELETE, subject)
        self._mutate(session)
        return await self._broker.schemas.delete_version(resolved, number, permanent=permanent)

    @operation(Action.DELETE, subject(), owner=_leader)
    async def delete_subject(
        self, session: Session, *, subject: Subject, permanent: bool
    ) -> Sequence[int]:
        """Delete all versions of a subject in the same way; return their numbers."""
        resolved = await self._resolved(session, Action.DELETE, subject)
        self._mutate(session)
        return await self._broker.schemas.delete_subject(resolved, permanent=permanent)

    # Schemas by id

    @operation(Action.READ, named_by_owner, is_reading=True)
    async def list_schemas(
        self,
        session: Session,
        *,
        prefix: SubjectPrefix,
        with_deleted: bool,
        latest_only: bool,
        offset: int,
        limit: int,
    ) -> Sequence[VersionView]:
        """Return all versions, or the newest, of each subject whose name begins with a prefix."""

        def ask(registry: Registry) -> Sequence[Version]:
            found = listing.versions(
                registry, prefix, with_deleted=with_deleted, latest_only=latest_only
            )
            readable = (
                one for one in found if self._may(session, Action.READ, _scope(one.subject))
            )
            return list(islice(readable, offset, offset + limit))

        return [view_of_version(one) for one in await self._broker.schemas.look(ask)]

    @operation(Action.READ, named_by_owner, is_reading=True)
    async def show_schema(
        self, session: Session, *, schema_id: int, subject: Subject | None, form: Text
    ) -> ShownSchema:
        """Return the schema of an id, in the context of a subject if one is named."""

        def ask(registry: Registry) -> tuple[Content, Version | None, int]:
            named = self._named(session, registry, subject)
            content = registry.find_id(schema_id, named)
            self._check_found(session, Action.READ, content, str(schema_id))
            versions = [
                one
                for one in content.versions.values()
                if one.subject == named and self._may(session, Action.READ, _scope(one.subject))
            ]
            newest_id = registry.catalog.next_id(content.context) - 1
            return content, versions[-1] if versions else None, newest_id

        content, version, newest_id = await self._broker.schemas.look(ask)
        return ShownSchema(
            schema=view_of_schema(content, await self._text(content, form)),
            number=None if version is None else version.number,
            subject=None if version is None else version.subject,
            newest_id=newest_id,
        )

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def list_places(
        self, session: Session, *, schema_id: int, subject: Subject | None, with_deleted: bool
    ) -> Sequence[tuple[SubjectName, int]]:
        """Return the subjects and versions that have the schema of an id."""

        def ask(registry: Registry) -> Sequence[tuple[str, int]]:
            named = self._named(session, registry, subject)
            content = registry.find_id(schema_id, named)
            self._check_found(session, Action.DESCRIBE, content, str(schema_id))
            return [
                one.key
                for one in listing.versions_of(content, with_deleted=with_deleted)
                if self._may(session, Action.DESCRIBE, _scope(one.subject))
            ]

        return await self._broker.schemas.look(ask)

    @operation(Action.READ, named_by_owner, is_reading=True)
    async def show_guid(self, session: Session, *, guid: Text, form: Text) -> SchemaView:
        """Return the schema of a guid."""

        def ask(registry: Registry) -> Content:
            return self._with_guid(session, Action.READ, registry, guid)[0]

        content = await self._broker.schemas.look(ask)
        return view_of_schema(content, await self._text(content, form))

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def list_ids(self, session: Session, *, guid: Text) -> Sequence[tuple[ContextName, int]]:
        """Return the contexts that have a guid, with its id in each."""

        def ask(registry: Registry) -> Sequence[tuple[str, int]]:
            found = self._with_guid(session, Action.DESCRIBE, registry, guid)
            return [(one.context, one.id) for one in found]

        return await self._broker.schemas.look(ask)

    # Settings, modes and contexts

    @operation(Action.DESCRIBE_CONFIGS, _subject_or_cluster, is_reading=True)
    async def show_config(
        self, session: Session, *, subject: Subject, with_inherited: bool
    ) -> Config:
        """Return the settings of a subject or context, or those in effect for it."""

        def ask(registry: Registry) -> Config | None:
            scopes = registry.scopes
            return scopes.config(subject) if with_inherited else scopes.own_config(subject)

        found = await self._broker.schemas.look(ask)
        if found is None:
            raise SchemaRefused(
                SchemaRefusal.NO_CONFIG,
                f"Subject '{subject}' does not have subject-level compatibility configured",
            )
        return found

    @operation(Action.ALTER_CONFIGS, _subject_or_cluster, owner=_leader)
    def set_config(
        self, session: Session, *, subject: Subject, change: ConfigChange
    ) -> Promise[Config]:
        """Change settings; return the new ones."""
        self._mutate(session)
        return promised(self._broker.schemas.set_config(subject, change.apply))

    @operation(Action.ALTER_CONFIGS, _subject_or_cluster, owner=_leader)
    def delete_config(self, session: Session, *, subject: Subject) -> Promise[Config]:
        """Remove settings; return the former ones."""
        self._mutate(session)
        return promised(self._broker.schemas.delete_config(subject))

    @operation(Action.DESCRIBE_CONFIGS, _subject_or_cluster, is_reading=True)
    async def show_mode(self, session: Session, *, subject: Subject, with_inherited: bool) -> Mode:
        """Return the mode of a subject or context, or the one in effect for it."""

        def ask(registry: Registry) -> Mode | None:
            scopes = registry.scopes
            return scopes.mode(subject) if with_inherited else scopes.own_mode(subject)

        found = await self._broker.schemas.look(ask)
        if found is None:
            raise SchemaRefused(
                SchemaRefusal.NO_MODE,
                f"Subject '{subject}' does not have subject-level mode configured",
            )
        return found

    @operation(Action.ALTER_CONFIGS, _subject_or_cluster, owner=_leader)
    def set_mode(
        self, session: Session, *, subject: Subject, mode: Mode, force: bool
    ) -> Promise[Mode]:
        """Change a mode; return the new one."""
        self._mutate(session)
        return promised(self._broker.schemas.set_mode(subject, mode, force=force))

    @operation(Action.ALTER_CONFIGS, _subject_or_cluster, owner=_leader)
    def delete_mode(
        self, session: Session, *, subject: Subject, recursive: bool
    ) -> Promise[Mode | None]:
        """Remove a mode; return the former one."""
        self._mutate(session)
        return promised(self._broker.schemas.delete_mode(subject, recursive=recursive))

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def list_contexts(
        self, session: Session, *, prefix: ContextPrefix, offset: int, limit: int
    ) -> Sequence[ContextName]:
        """Return contexts whose names begin with a prefix, the default one first."""
        found = await self._broker.schemas.look(lambda registry: registry.catalog.contexts())
        default = default_context(session)
        shown = [
            one
            for one in (default, *(one for one in found if one != default))
            if one.startswith(prefix)
            and self._is_shown(session, one)
            and self._may(session, Action.DESCRIBE, _scope(Subject(one, "")))
        ]
        return shown[offset : offset + limit]

    # Helpers

    def _is_shown(self, session: Session, context: str) -> bool:
        """Whether a context is one of the session's tenant, or the session is an operator's."""
        space = self._authoriser.namespaces.of(session)
        return space is None or is_same_tenant(context, default_context(session))

    def _named(self, session: Session, registry: Registry, subject: Subject | None) -> Subject:
        """Return the subject in whose context an id is looked up: by default, the default one."""
        if subject is None:
            return Subject(default_context(session), "")
        return registry.scopes.resolve(subject)

    def _with_guid(
        self, session: Session, action: Action, registry: Registry, guid: str
    ) -> Sequence[Content]:
        """Return the schemas with a guid, one for each context, that the session may access."""
        found = listing.with_guid(registry, guid)
        seen = [
            one
            for one in found
            if self._is_shown(session, one.context) and self._is_open(session, action, one)
        ]
        if not seen:
            raise SchemaRefused(SchemaRefusal.UNKNOWN_SCHEMA, f"Schema {guid[:100]} not found")
        return seen

    def _resolve(
        self, session: Session, action: Action, registry: Registry, subject: Subject
    ) -> Subject:
        """Return the subject, or the target of an alias, for which access is checked too."""
        resolved = registry.scopes.resolve(subject)
        if resolved != subject and not self._may(session, action, _scope(resolved)):
            # The name of the target must not become known.
            raise self._denial(session, action, _scope(subject))
        return resolved

    async def _resolved(self, session: Session, action: Action, subject: Subject) -> Subject:
        return await self._broker.schemas.look(
            lambda registry: self._resolve(session, action, registry, subject)
        )

    def _is_open(self, session: Session, action: Action, content: Content) -> bool:
        """Whether the session may access a subject that has a schema."""
        versions = content.versions.values()
        return any(self._may(session, action, _scope(one.subject)) for one in versions)

    def _check_found(
        self, session: Session, action: Action, content: Content, schema_id: str
    ) -> None:
        """Raise as for an unknown id, which reveals no subject, unless access is allowed."""
        if not self._is_open(session, action, content):
            for one in content.versions.values():
                self._denial(session, action, _scope(one.subject))  # for the observer
            raise SchemaRefused(SchemaRefusal.UNKNOWN_SCHEMA, f"Schema {schema_id} not found")

    def _check_references(self, session: Session, subject: Subject, request: Request) -> None:
        """Raise unless the session may read the subjects that a schema refers to."""
        if not self._authoriser.is_open(session):
            for one in request.references:
                named = read_subject(one.subject, within=subject.context)
                self._check(session, Action.READ, _scope(named))

    async def _shown(self, version: Version, form: str) -> VersionView:
        return view_of_version(version, await self._text(version.content, form))

    async def _text(self, content: Content, form: str) -> str | None:
        return await self._broker.schemas.formatted(content, form) if form else None
