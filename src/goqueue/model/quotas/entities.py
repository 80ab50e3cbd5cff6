"""Entities: whose use is limited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from goqueue.model.errors import InvalidQuota

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TENANT: Final = "tenant"
ENTITY_KINDS: Final = (USER, CLIENT_ID, IP, TENANT)
DEFAULT_NAME: Final = ""
NAME_LENGTH_MAX: Final = 255

# The names of an entity by their kinds, sorted by kind.
Entity = tuple[tuple[str, str], ...]
Form = tuple[str, ...]  # the kinds of an entity, sorted

CLIENTS: Final = frozenset({(USER,), (CLIENT_ID,), (CLIENT_ID, USER)})
TENANTS: Final = frozenset({(TENANT,)})
CLIENTS_AND_TENANTS: Final = CLIENTS | TENANTS
_FORMS: Final = frozenset({*CLIENTS_AND_TENANTS, (IP,)})


def checked_entity(names: Mapping[str, str]) -> Entity:
    """Return the entity of these names by their kinds; raise if there is no such entity."""
    unknown = [kind for kind in names if kind not in ENTITY_KINDS]
    if unknown:
        raise InvalidQuota(
            f"{unknown[0][:100]!r} is not a kind of entity; use {', '.join(ENTITY_KINDS)}."
        )
    entity = tuple(sorted(names.items()))
    if form_of(entity) not in _FORMS:
        raise InvalidQuota(
            "Quotas can be set for a user, a client id, both together, an ip or a tenant, and not "
            f"for {' and '.join(sorted(names)) or 'nothing'}."
        )
    for kind, name in entity:
        if len(name) > NAME_LENGTH_MAX:
            raise InvalidQuota(f"The name of a {kind} has at most {NAME_LENGTH_MAX} characters.")
    return entity


def form_of(entity: Entity) -> Form:
    return tuple(kind for kind, _ in entity)


def entity_text(entity: Entity) -> str:
    """An entity as a person reads it."""
    return ", ".join(f"{kind} {name!r}" if name else f"default {kind}" for kind, name in entity)


def tenant_entity(tenant: str) -> Entity:
    return ((TENANT, tenant),)
