"""The schema registry: subjects, versions, ids, compatibility."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goqueue.model.errors import InvalidSchema, SchemaRefusal, SchemaRefused
from goqueue.schemas.catalog import Content, Version
from goqueue.schemas.drafts import Request
from goqueue.schemas.formats import Reference, SchemaKind
from goqueue.schemas.names import (
    ALL_CONTEXTS,
    CONTEXT_DEFAULT,
    Subject,
    matches_prefix,
    read_subject,
)
from goqueue.schemas.registry import LATEST, VERSION_NUMBER_MAX, Registry, unknown_subject
from goqueue.wire.carrier.calls import Raw
from goqueue.wire.http.fields import INT32_MAX
from goqueue.wire.http.registry_dialect import V1_JSON, NothingHere

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.bodies.registry import SchemaBody
    from goqueue.wire.http.front_end import FrontEnd
    from goqueue.wire.http.registry_dialect import Given

SUBJECTS_LISTED_MAX = 20_000
VERSIONS_LISTED_MAX = 20_000
SCHEMAS_LISTED_MAX = 1000

Tree = dict[str, Any]


# Subjects


async def list_subjects(front: FrontEnd, call: Call, given: Given) -> list[str]:
    prefix = _prefix(given, ALL_CONTEXTS)

    def ask(registry: Registry) -> list[str]:
        return [
            str(subject)
            for subject in registry.catalog.subjects()
            if matches_prefix(subject, prefix) and _is_shown(registry, subject, given)
        ]

    return given.page(await front.broker.schemas.look(ask), most=SUBJECTS_LISTED_MAX)


async def lookup(front: FrontEnd, call: Call, given: Given) -> Tree:
    found = await front.broker.schemas.lookup(
        await _subject(front, call, given),
        to_request(given.body),
        normalize=given.flag("normalize"),
        with_deleted=given.flag("deleted", "lookupDeletedSchema"),
    )
    return await _shown(front, found, given)


async def delete_subject(front: FrontEnd, call: Call, given: Given) -> list[int]:
    return await front.broker.schemas.delete_subject(
        await _subject(front, call, given), permanent=given.flag("permanent")
    )


async def latest_with_metadata(front: FrontEnd, call: Call, given: Given) -> Tree:
    subject, with_deleted = await _subject(front, call, given), given.flag("deleted")
    wanted = dict(zip(given.texts("key"), given.texts("value"), strict=False))

    def ask(registry: Registry) -> Version:
        for version in reversed(registry.catalog.versions(subject)):
            properties = (version.content.metadata or {}).get("properties")
            if (version.is_deleted and not with_deleted) or not isinstance(properties, dict):
                continue
            if wanted.items() <= properties.items():
                return version
        if not registry.has_subject(subject, with_deleted=with_deleted):
            raise unknown_subject(subject)
        raise SchemaRefused(SchemaRefusal.UNKNOWN_SCHEMA, "Schema not found")

    return await _shown(front, await front.broker.schemas.look(ask), given)


# Versions


async def list_versions(front: FrontEnd, call: Call, given: Given) -> list[int]:
    subject = await _subject(front, call, given)
    only_deleted, as_negative = given.flag("deletedOnly", "deleted_only"), False
    with_deleted = given.flag("deleted")
    as_negative = given.flag("deletedAsNegative")

    def ask(registry: Registry) -> list[int]:
        if not registry.has_subject(subject, with_deleted=with_deleted or only_deleted):
            raise unknown_subject(subject)
        versions = registry.catalog.versions(subject)
        if as_negative:
            return [-one.number if one.is_deleted else one.number for one in versions]
        if only_deleted:
            return [one.number for one in versions if one.is_deleted]
        return [one.number for one in versions if with_deleted or not one.is_deleted]

    return given.page(await front.broker.schemas.look(ask), most=VERSIONS_LISTED_MAX)


async def register(front: FrontEnd, call: Call, given: Given) -> Tree:
    version = await front.broker.schemas.register(
        await _subject(front, call, given),
        to_request(given.body),
        normalize=given.flag("normalize"),
        force=given.flag("force"),
    )
    if not given.takes_new_fields:
        return {"id": version.content.id}
    # Without the text: clients remember what they sent under the id, in the form they sent it.
    return {"version": version.number, **show_content(version.content, given)}


async def show_version(front: FrontEnd, call: Call, given: Given) -> Tree:
    return await _shown(front, await _version(front, call, given), given)


async def show_version_text(front: FrontEnd, call: Call, given: Given) -> Raw:
    version = await _version(front, call, given)
    return Raw((await _text(front, version.content, given)).encode(), V1_JSON)


async def referenced_by(front: FrontEnd, call: Call, given: Given) -> list[int]:
    subject, number = await _subject(front, call, given), read_version(call.text("version"))
    with_deleted = given.flag("deleted")

    def ask(registry: Registry) -> list[int]:
        version = registry.find(subject, number, with_deleted=True)
        found = registry.referrers(version, with_deleted=with_deleted)
        return sorted({one.content.id for one in found})

    return given.page(await front.broker.schemas.look(ask), most=SCHEMAS_LISTED_MAX)


async def delete_version(front: FrontEnd, call: Call, given: Given) -> int:
    return await front.broker.schemas.delete_version(
        await _subject(front, call, given),
        read_version(call.text("version")),
        permanent=given.flag("permanent"),
    )


# Schemas by id


async def list_schemas(front: FrontEnd, call: Call, given: Given) -> list[Tree]:
    prefix, with_deleted = _prefix(given, ""), given.flag("deleted")
    latest_only = given.flag("latestOnly")

    def ask(registry: Registry) -> list[Version]:
        found: list[Version] = []
        for subject in registry.catalog.subjects():
            if matches_prefix(subject, prefix):
                versions = registry.catalog.versions(subject)
                shown = [one for one in versions if with_deleted or not one.is_deleted]
                found += shown[-1:] if latest_only else shown
        return found

    page = given.page(await front.broker.schemas.look(ask), most=SCHEMAS_LISTED_MAX)
    return [show(one, given) for one in page]


async def show_schema(front: FrontEnd, call: Call, given: Given) -> Tree:
    asked = given.text("subject")
    content = await _content(front, call, given)
    tree = show_content(content, given)
    del tree["id"]
    tree["schema"] = await _text(front, content, given)
    if asked:
        subject = await _asked_subject(front, given)
        places = [one for one in content.versions.values() if one.subject == subject]
        for version in places[-1:]:
            tree |= {"subject": str(version.subject), "version": version.number}
    if given.flag("fetchMaxId"):
        context = content.context
        next_id = await front.broker.schemas.look(lambda one: one.catalog.next_id(context))
        tree["maxId"] = next_id - 1
    return tree


async def show_schema_text(front: FrontEnd, call: Call, given: Given) -> Raw:
    content = await _content(front, call, given)
    return Raw((await _text(front, content, given)).encode(), V1_JSON)


async def schema_subjects(front: FrontEnd, call: Call, given: Given) -> list[str]:
    versions = await _versions_of_id(front, call, given)
    names = list(dict.fromkeys(str(one.subject) for one in versions))
    return given.page(names, most=SUBJECTS_LISTED_MAX)


async def schema_versions(front: FrontEnd, call: Call, given: Given) -> list[Tree]:
    versions = await _versions_of_id(front, call, given)
    rows = [{"subject": str(one.subject), "version": one.number} for one in versions]
    return given.page(rows, most=VERSIONS_LISTED_MAX)


def list_kinds(front: FrontEnd, call: Call, given: Given) -> list[str]:
    return list(SchemaKind)


async def show_guid(front: FrontEnd, call: Call, given: Given) -> Tree:
    content = (await _contents_of_guid(front, call))[0]
    tree = show_content(content, given)
    del tree["id"]
    return {**tree, "schema": await _text(front, content, given)}


async def guid_ids(front: FrontEnd, call: Call, given: Given) -> list[Tree]:
    found = await _contents_of_guid(front, call)
    return [{"context": one.context, "id": one.id} for one in found]


# Compatibility


async def compare(front: FrontEnd, call: Call, given: Given) -> Tree:
    return await _compare(front, call, given, number=None)


async def compare_with_version(front: FrontEnd, call: Call, given: Given) -> Tree:
    return await _compare(front, call, given, number=read_version(call.text("version")))


async def _compare(front: FrontEnd, call: Call, given: Given, *, number: int | None) -> Tree:
    is_verbose = given.flag("verbose")
    try:
        messages = await front.broker.schemas.compare(
            await _subject(front, call, given),
            to_request(given.body),
            normalize=given.flag("normalize"),
            number=number,
        )
    except InvalidSchema as error:
        if not is_verbose:
            raise
        messages = [str(error)]
    tree: Tree = {"is_compatible": not messages}
    return {**tree, "messages": messages} if is_verbose else tree


# Helpers


def to_request(body: SchemaBody) -> Request:
    kind = (body.schemaType or SchemaKind.AVRO).upper()
    if kind not in SchemaKind.__members__:
        raise InvalidSchema(
            f"Invalid schema type {kind[:100]}; use one of {', '.join(SchemaKind)}."
        )
    references = tuple(
        Reference(one.name, one.subject, one.version) for one in body.references or ()
    )
    return Request(
        text=body.schema or "",
        kind=SchemaKind(kind),
        references=references,
        metadata=body.metadata,
        rule_set=body.ruleSet,
        # Clients that have nothing to say here send -1 or 0.
        id=None if body.id is None or body.id < 0 else body.id,
        version=None if body.version is None or body.version <= 0 else body.version,
    )


def read_version(text: str) -> int:
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdigit() and 1 <= int(text[:11]) <= VERSION_NUMBER_MAX:
        return int(text[:11])
    raise SchemaRefused(
        SchemaRefusal.INVALID_VERSION,
        f"The specified version '{text[:100]}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )


def show(version: Version, given: Given) -> Tree:
    content = version.content
    tree = {"subject": str(version.subject), "version": version.number}
    tree |= show_content(content, given)
    tree["schema"] = content.text
    return {**tree, "deleted": True} if version.is_deleted else tree


def show_content(content: Content, given: Given) -> Tree:
    """What a version says beside its place; Avro is what a missing type means."""
    tree: Tree = {"id": content.id}
    if given.takes_new_fields:
        tree["guid"] = content.guid
    if given.takes_new_fields or content.kind is not SchemaKind.AVRO:
        tree["schemaType"] = content.kind
    if content.references:
        tree["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in content.references
        ]
    if content.metadata is not None:
        tree["metadata"] = content.metadata
    if content.rule_set is not None:
        tree["ruleSet"] = content.rule_set
    return tree


async def _shown(front: FrontEnd, version: Version, given: Given) -> Tree:
    tree = show(version, given)
    tree["schema"] = await _text(front, version.content, given)
    return tree


async def _text(front: FrontEnd, content: Content, given: Given) -> str:
    form = given.text("format").strip()
    if not form:
        return content.text
    return await front.broker.schemas.formatted(content, form)


async def _version(front: FrontEnd, call: Call, given: Given) -> Version:
    subject, number = await _subject(front, call, given), read_version(call.text("version"))
    with_deleted = given.flag("deleted")
    return await front.broker.schemas.look(
        lambda registry: registry.find(subject, number, with_deleted=with_deleted)
    )


async def _content(front: FrontEnd, call: Call, given: Given) -> Content:
    text, subject = call.text("id"), await _asked_subject(front, given)
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INT32_MAX):
        raise NothingHere
    return await front.broker.schemas.look(lambda registry: registry.find_id(int(text), subject))


async def _contents_of_guid(front: FrontEnd, call: Call) -> list[Content]:
    guid = call.text("guid").lower()
    found = await front.broker.schemas.look(lambda registry: list(registry.find_guid(guid)))
    if not found:
        raise SchemaRefused(SchemaRefusal.UNKNOWN_SCHEMA, f"Schema {guid[:100]} not found")
    return found


async def _versions_of_id(front: FrontEnd, call: Call, given: Given) -> list[Version]:
    content = await _content(front, call, given)
    with_deleted = given.flag("deleted")
    found = [one for one in content.versions.values() if with_deleted or not one.is_deleted]
    return sorted(found, key=lambda one: one.place)


async def _subject(front: FrontEnd, call: Call, given: Given) -> Subject:
    """The subject of the path, or what it is an alias of."""
    subject = given.subject(call)
    return await front.broker.schemas.look(lambda registry: registry.scopes.resolve(subject))


async def _asked_subject(front: FrontEnd, given: Given) -> Subject | None:
    text = given.text("subject")
    if text:
        subject = read_subject(text, within=given.context)
        return await front.broker.schemas.look(lambda registry: registry.scopes.resolve(subject))
    return None if given.context == CONTEXT_DEFAULT else Subject(given.context, "")


def _prefix(given: Given, default: str) -> str:
    text = given.text("subjectPrefix")
    if given.context != CONTEXT_DEFAULT and not text.startswith(":"):
        return str(Subject(given.context, text))
    return text or default


def _is_shown(registry: Registry, subject: Subject, given: Given) -> bool:
    is_live = registry.has_subject(subject, with_deleted=False)
    if given.flag("deletedOnly", "deleted_only"):
        return not is_live
    return is_live or given.flag("deleted")
