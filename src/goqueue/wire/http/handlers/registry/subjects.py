"""The schema registry: subjects, versions, ids, compatibility."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from goqueue.broker.gate.areas.schemas import (
    ALL_CONTEXTS,
    CONTEXT_DEFAULT,
    LATEST,
    VERSION_NUMBER_MAX,
    Reference,
    Request,
    SchemaKind,
    SchemaView,
    Subject,
    VersionView,
    read_subject,
)
from goqueue.model.errors import InvalidSchema, SchemaRefusal, SchemaRefused
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
    offset, limit = given.stretch(most=SUBJECTS_LISTED_MAX)
    found = await front.gate.schemas.list_subjects(
        call.session,
        prefix=_prefix(given, ALL_CONTEXTS),
        with_deleted=given.flag("deleted"),
        only_deleted=given.flag("deletedOnly", "deleted_only"),
        offset=offset,
        limit=limit,
    )
    return list(found)


async def lookup(front: FrontEnd, call: Call, given: Given) -> Tree:
    found = await front.gate.schemas.lookup(
        call.session,
        subject=given.subject(call),
        request=to_request(given.body),
        normalize=given.flag("normalize"),
        with_deleted=given.flag("deleted", "lookupDeletedSchema"),
        form=given.form,
    )
    return show(found, given)


async def delete_subject(front: FrontEnd, call: Call, given: Given) -> list[int]:
    deleted = await front.gate.schemas.delete_subject(
        call.session, subject=given.subject(call), permanent=given.flag("permanent")
    )
    return list(deleted)


async def latest_with_metadata(front: FrontEnd, call: Call, given: Given) -> Tree:
    found = await front.gate.schemas.find_by_properties(
        call.session,
        subject=given.subject(call),
        properties=dict(zip(given.texts("key"), given.texts("value"), strict=False)),
        with_deleted=given.flag("deleted"),
        form=given.form,
    )
    return show(found, given)


# Versions


async def list_versions(front: FrontEnd, call: Call, given: Given) -> list[int]:
    offset, limit = given.stretch(most=VERSIONS_LISTED_MAX)
    found = await front.gate.schemas.list_versions(
        call.session,
        subject=given.subject(call),
        with_deleted=given.flag("deleted"),
        only_deleted=given.flag("deletedOnly", "deleted_only"),
        deleted_as_negative=given.flag("deletedAsNegative"),
        offset=offset,
        limit=limit,
    )
    return list(found)


async def register(front: FrontEnd, call: Call, given: Given) -> Tree:
    version = await front.gate.schemas.register(
        call.session,
        subject=given.subject(call),
        request=to_request(given.body),
        normalize=given.flag("normalize"),
        force=given.flag("force"),
    )
    if not given.takes_new_fields:
        return {"id": version.schema.id}
    # Without the text: clients cache the text they sent under the id.
    return {"version": version.number, **show_schema_fields(version.schema, given)}


async def show_version(front: FrontEnd, call: Call, given: Given) -> Tree:
    return show(await _version(front, call, given), given)


async def show_version_text(front: FrontEnd, call: Call, given: Given) -> Raw:
    version = await _version(front, call, given)
    return Raw(version.schema.text.encode(), V1_JSON)


async def referenced_by(front: FrontEnd, call: Call, given: Given) -> list[int]:
    offset, limit = given.stretch(most=SCHEMAS_LISTED_MAX)
    found = await front.gate.schemas.list_referrers(
        call.session,
        subject=given.subject(call),
        number=read_version(call.text("version")),
        with_deleted=given.flag("deleted"),
        offset=offset,
        limit=limit,
    )
    return list(found)


async def delete_version(front: FrontEnd, call: Call, given: Given) -> int:
    return await front.gate.schemas.delete_version(
        call.session,
        subject=given.subject(call),
        number=read_version(call.text("version")),
        permanent=given.flag("permanent"),
    )


# Schemas by id


async def list_schemas(front: FrontEnd, call: Call, given: Given) -> list[Tree]:
    offset, limit = given.stretch(most=SCHEMAS_LISTED_MAX)
    found = await front.gate.schemas.list_schemas(
        call.session,
        prefix=_prefix(given, ""),
        with_deleted=given.flag("deleted"),
        latest_only=given.flag("latestOnly"),
        offset=offset,
        limit=limit,
    )
    return [show(one, given) for one in found]


async def show_schema(front: FrontEnd, call: Call, given: Given) -> Tree:
    found = await front.gate.schemas.show_schema(
        call.session, schema_id=_schema_id(call), subject=_asked_subject(given), form=given.form
    )
    tree = show_schema_fields(found.schema, given)
    del tree["id"]
    tree["schema"] = found.schema.text
    if given.text("subject") and found.subject is not None:
        tree |= {"subject": str(found.subject), "version": found.number}
    if given.flag("fetchMaxId"):
        tree["maxId"] = found.newest_id
    return tree


async def show_schema_text(front: FrontEnd, call: Call, given: Given) -> Raw:
    found = await front.gate.schemas.show_schema(
        call.session, schema_id=_schema_id(call), subject=_asked_subject(given), form=given.form
    )
    return Raw(found.schema.text.encode(), V1_JSON)


async def schema_subjects(front: FrontEnd, call: Call, given: Given) -> list[str]:
    names = list(dict.fromkeys(subject for subject, _ in await _places(front, call, given)))
    return given.page(names, most=SUBJECTS_LISTED_MAX)


async def schema_versions(front: FrontEnd, call: Call, given: Given) -> list[Tree]:
    places = await _places(front, call, given)
    rows = [{"subject": subject, "version": number} for subject, number in places]
    return given.page(rows, most=VERSIONS_LISTED_MAX)


def list_kinds(front: FrontEnd, call: Call, given: Given) -> list[str]:
    return list(SchemaKind)


async def show_guid(front: FrontEnd, call: Call, given: Given) -> Tree:
    found = await front.gate.schemas.show_guid(call.session, guid=_guid(call), form=given.form)
    tree = show_schema_fields(found, given)
    del tree["id"]
    return {**tree, "schema": found.text}


async def guid_ids(front: FrontEnd, call: Call, given: Given) -> list[Tree]:
    found = await front.gate.schemas.list_ids(call.session, guid=_guid(call))
    return [{"context": context, "id": number} for context, number in found]


# Compatibility


async def compare(front: FrontEnd, call: Call, given: Given) -> Tree:
    return await _compare(front, call, given, number=None)


async def compare_with_version(front: FrontEnd, call: Call, given: Given) -> Tree:
    return await _compare(front, call, given, number=read_version(call.text("version")))


async def _compare(front: FrontEnd, call: Call, given: Given, *, number: int | None) -> Tree:
    is_verbose = given.flag("verbose")
    try:
        messages = await front.gate.schemas.compare(
            call.session,
            subject=given.subject(call),
            request=to_request(given.body),
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
        # Clients send -1 or 0 for no value.
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


def show(version: VersionView, given: Given) -> Tree:
    tree = {"subject": str(version.subject), "version": version.number}
    tree |= show_schema_fields(version.schema, given)
    tree["schema"] = version.schema.text
    return {**tree, "deleted": True} if version.is_deleted else tree


def show_schema_fields(schema: SchemaView, given: Given) -> Tree:
    """The fields of a version besides subject and number; a missing type means Avro."""
    tree: Tree = {"id": schema.id}
    if given.takes_new_fields:
        tree["guid"] = schema.guid
    if given.takes_new_fields or schema.kind is not SchemaKind.AVRO:
        tree["schemaType"] = schema.kind
    if schema.references:
        tree["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ]
    if schema.metadata is not None:
        tree["metadata"] = schema.metadata
    if schema.rule_set is not None:
        tree["ruleSet"] = schema.rule_set
    return tree


async def _version(front: FrontEnd, call: Call, given: Given) -> VersionView:
    return await front.gate.schemas.show_version(
        call.session,
        subject=given.subject(call),
        number=read_version(call.text("version")),
        with_deleted=given.flag("deleted"),
        form=given.form,
    )


async def _places(front: FrontEnd, call: Call, given: Given) -> Sequence[tuple[str, int]]:
    return await front.gate.schemas.list_places(
        call.session,
        schema_id=_schema_id(call),
        subject=_asked_subject(given),
        with_deleted=given.flag("deleted"),
    )


def _schema_id(call: Call) -> int:
    text = call.text("id")
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INT32_MAX):
        raise NothingHere
    return int(text)


def _guid(call: Call) -> str:
    return call.text("guid").lower()


def _asked_subject(given: Given) -> Subject | None:
    """The subject, or at least the context, of an id; None means the default context."""
    text = given.text("subject")
    if text:
        return read_subject(text, within=given.context)
    return None if given.context == CONTEXT_DEFAULT else Subject(given.context, "")


def _prefix(given: Given, default: str) -> str:
    text = given.text("subjectPrefix")
    if given.context != CONTEXT_DEFAULT and not text.startswith(":"):
        return str(Subject(given.context, text))
    return text or default
