"""Definitions: what was set up in a cluster, as one document, and the steps that bring it about.

The document has no messages, no offsets and no secrets: users are created without a password. An
import only adds and changes; what the document does not mention stays as it is. So it can be
repeated, and has nothing to do the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from goqueue.cli.definition_schemas import Subject, export_subject, plan_schemas
from goqueue.client.http import Client, NewAcl
from goqueue.client.http.group_results import QueueGroup
from goqueue.model.errors import InvalidRequest

VERSION = 1
# Of tenants other than that of the caller: their administrators export these.
_FOREIGN = "~"

Document = dict[str, Any]


class _Topic(msgspec.Struct, forbid_unknown_fields=True):
    partitions: int
    replication: int | None = None
    settings: dict[str, str | int | float | bool] = {}


class _User(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    tenant: str = ""
    disabled: bool = False


class _Tenant(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    description: str = ""
    state: Any = "active"


class _Quota(msgspec.Struct, forbid_unknown_fields=True):
    entity: dict[str, str | None]
    limits: dict[str, float]


class Definitions(msgspec.Struct, forbid_unknown_fields=True):
    """The document. What is left out is not changed."""

    version: int
    tenants: dict[str, _Tenant] = {}
    users: dict[str, _User] = {}
    roles: dict[str, list[str]] = {}
    acls: list[NewAcl] = []
    quotas: list[_Quota] = []
    topics: dict[str, _Topic] = {}
    queue_groups: dict[str, dict[str, str | int | float | bool]] = {}
    schemas: dict[str, Subject] = {}


class Step(NamedTuple):
    """Something that an import does."""

    kind: str
    name: str
    change: str
    perform: Callable[[], object]


def read_definitions(tree: object) -> Definitions:
    """Check a document; raise `InvalidRequest` with the place of what is wrong."""
    try:
        found = msgspec.convert(tree, Definitions)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The definitions cannot be read: {error}.") from error
    if found.version != VERSION:
        raise InvalidRequest(
            f"The definitions have version {found.version}, and this GoQueue reads version "
            f"{VERSION}."
        )
    return found


def export(client: Client) -> Document:
    """Return the definitions of a cluster."""
    return {
        "version": VERSION,
        "tenants": {
            one.name: msgspec.to_builtins(_Tenant(one.description, one.state))
            for one in client.tenants.list_all()
        },
        "users": {
            one.name: msgspec.to_builtins(_User(one.tenant, one.disabled))
            for one in client.users.list_all()
        },
        "roles": {one.name: list(one.members) for one in client.roles.list_all()},
        "acls": [msgspec.to_builtins(one) for one in client.acls.list_all()],
        "quotas": [msgspec.to_builtins(one) for one in client.quotas.list_all()],
        "topics": {
            one.name: {
                "partitions": one.partitions,
                "replication": one.replication,
                "settings": dict(one.settings),
            }
            for one in client.topics.list_all()
            if not one.name.startswith(_FOREIGN)
        },
        "queue_groups": dict(_queue_groups(client)),
        "schemas": {
            name: msgspec.to_builtins(export_subject(client, name))
            for name in client.schemas.subjects()
        },
    }


def _queue_groups(client: Client) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in client.groups.list_all(kind="queue"):
        found = client.groups.describe(one.name)
        if isinstance(found, QueueGroup) and not one.name.startswith(_FOREIGN):
            yield one.name, msgspec.to_builtins(found.settings)


# Import


def plan(client: Client, wanted: Definitions) -> list[Step]:
    """Return the steps that are left, in an order in which each can be done."""
    present = export(client)
    return [
        *_plan_tenants(client, wanted, present["tenants"]),
        *_plan_users(client, wanted, present["users"]),
        *_plan_rights(client, wanted, present),
        *_plan_topics(client, wanted, present["topics"]),
        *_plan_groups(client, wanted, present["queue_groups"]),
        *_plan_schemas(client, wanted, present["schemas"]),
    ]


def _plan_tenants(
    client: Client, wanted: Definitions, present: Mapping[str, Any]
) -> Iterator[Step]:
    for name, one in wanted.tenants.items():
        known = present.get(name)
        if known is None:
            yield Step(
                "tenant",
                name,
                "create",
                partial(client.tenants.create, name, description=one.description),
            )
        if one.state != ("active" if known is None else known.get("state", "active")):
            yield Step(
                "tenant",
                name,
                f"state {one.state}",
                partial(client.tenants.set_state, name, one.state),
            )


def _plan_users(client: Client, wanted: Definitions, present: Mapping[str, Any]) -> Iterator[Step]:
    for name, one in wanted.users.items():
        if name not in present:
            yield Step(
                "user",
                name,
                "create without a password",
                partial(client.users.create, name, tenant=one.tenant or None),
            )
        if one.disabled != present.get(name, {}).get("disabled", False):
            change = client.users.disable if one.disabled else client.users.enable
            word = "disable" if one.disabled else "enable"
            yield Step("user", name, word, partial(change, name))


def _plan_rights(client: Client, wanted: Definitions, present: Mapping[str, Any]) -> Iterator[Step]:
    for name, members in wanted.roles.items():
        known = present["roles"].get(name)
        missing = [one for one in members if one not in (known or ())]
        if known is None or missing:
            yield Step(
                "role",
                name,
                "create" if known is None else f"grant to {', '.join(missing)}",
                partial(client.roles.create, name, members),
            )
    rules = [one for one in wanted.acls if msgspec.to_builtins(one) not in present["acls"]]
    for rule in rules:
        named = f"{rule.principal} {rule.action} {rule.kind} {rule.name}"
        yield Step("acl", named, "create", partial(client.acls.create, [rule]))
    known_limits = {_entity(one["entity"]): one["limits"] for one in present["quotas"]}
    for quota in wanted.quotas:
        limits = known_limits.get(_entity(quota.entity), {})
        changed = {name: value for name, value in quota.limits.items() if limits.get(name) != value}
        if changed:
            yield Step(
                "quota",
                " ".join(f"{kind}:{name}" for kind, name in quota.entity.items()),
                f"set {', '.join(changed)}",
                partial(client.quotas.set, quota.entity, changed),
            )


def _entity(names: Mapping[str, str | None]) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(names.items()))


def _plan_topics(client: Client, wanted: Definitions, present: Mapping[str, Any]) -> Iterator[Step]:
    for name, one in wanted.topics.items():
        known = present.get(name)
        if known is None:
            yield Step(
                "topic",
                name,
                f"create with {one.partitions} partitions",
                partial(
                    client.topics.create,
                    name,
                    partitions=one.partitions,
                    replication=one.replication,
                    settings=one.settings,
                ),
            )
            continue
        if known["partitions"] < one.partitions:
            yield Step(
                "topic",
                name,
                f"grow to {one.partitions} partitions",
                partial(client.topics.grow, name, partitions=one.partitions),
            )
        changed = {
            key: value for key, value in one.settings.items() if known["settings"].get(key) != value
        }
        if changed:
            yield Step(
                "topic",
                name,
                f"set {', '.join(changed)}",
                partial(client.topics.configure, name, changed),
            )


def _plan_groups(client: Client, wanted: Definitions, present: Mapping[str, Any]) -> Iterator[Step]:
    for name, settings in wanted.queue_groups.items():
        known = present.get(name)
        changed = {key: value for key, value in settings.items() if (known or {}).get(key) != value}
        if known is None:
            yield Step(
                "queue group",
                name,
                "create",
                partial(client.groups.put_queue, name, settings),
            )
        elif changed:
            yield Step(
                "queue group",
                name,
                f"set {', '.join(changed)}",
                partial(client.groups.configure_queue, name, changed),
            )


def _plan_schemas(
    client: Client, wanted: Definitions, present: Mapping[str, Any]
) -> Iterator[Step]:
    known = msgspec.convert(present, dict[str, Subject])
    return (Step("schema", *one) for one in plan_schemas(client, wanted.schemas, known))
