"""Limits: what can be limited, and which values are possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from goqueue.model.errors import InvalidQuota
from goqueue.model.quotas.entities import (
    CLIENTS_AND_TENANTS,
    DEFAULT_NAME,
    IP,
    TENANT,
    TENANTS,
    USER,
    Entity,
    Form,
    form_of,
    tenant_entity,
)

VALUE_MAX: Final = float(1 << 53)  # numbers up to it are exact


class LimitKind(NamedTuple):
    """One thing that can be limited."""

    name: str
    forms: frozenset[Form]  # of the entities for which it can be set
    is_rate: bool  # per second; other limits are counts
    is_whole: bool
    text: str


PRODUCER_BYTES: Final = "producer_byte_rate"
CONSUMER_BYTES: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
NEW_CONNECTIONS: Final = "connection_creation_rate"
PRODUCER_MESSAGES: Final = "producer_message_rate"
CONSUMER_MESSAGES: Final = "consumer_message_rate"
REQUESTS: Final = "request_rate"
CONNECTIONS: Final = "connections"
STORAGE_BYTES: Final = "storage_bytes"
TOPICS: Final = "topics"
PARTITIONS: Final = "partitions"
GROUPS: Final = "groups"
SCHEDULED: Final = "scheduled_messages"
IN_FLIGHT: Final = "in_flight_messages"
USERS: Final = "users"
KEYS: Final = "keys"
RULES: Final = "rules"
ROLES: Final = "roles"
SCHEMA_VERSIONS: Final = "schema_versions"
SCHEMA_BYTES: Final = "schema_bytes"
CONTEXTS: Final = "contexts"
SCHEMA_SETTINGS: Final = "schema_settings"
TRANSACTIONAL_IDS: Final = "transactional_ids"

# What the whole cluster, or a node, has room for. A tenant other than the default one that has no
# limit of its own may use a tenth, so that none can use up what all share.
SHARED: Final[dict[str, int]] = {
    USERS: 10_000,
    KEYS: 10_000,
    RULES: 10_000,
    ROLES: 1_000,
    SCHEMA_VERSIONS: 20_000,
    SCHEMA_BYTES: 26_843_545,
    CONTEXTS: 1_000,
    SCHEMA_SETTINGS: 10_000,
    TRANSACTIONAL_IDS: 10_000,
}


def _rate(name: str, text: str, *, is_whole: bool = True) -> LimitKind:
    return LimitKind(name, CLIENTS_AND_TENANTS, True, is_whole, text)


def _count(name: str, text: str) -> LimitKind:
    return LimitKind(name, TENANTS, False, True, text)


LIMITS: Final[Mapping[str, LimitKind]] = {
    one.name: one
    for one in (
        _rate(PRODUCER_BYTES, "Bytes of batches or messages written per second."),
        _rate(CONSUMER_BYTES, "Bytes of batches or messages read per second."),
        _rate(PRODUCER_MESSAGES, "Messages written per second."),
        _rate(CONSUMER_MESSAGES, "Messages read per second."),
        _rate(REQUESTS, "Requests per second, of any kind.", is_whole=False),
        _rate(
            REQUEST_PERCENTAGE,
            "Share of the time of each node's event loop, in percent.",
            is_whole=False,
        ),
        _rate(
            MUTATIONS,
            "Partitions created or deleted, and changes of users, keys, rules, roles and schemas, "
            "per second.",
            is_whole=False,
        ),
        LimitKind(
            NEW_CONNECTIONS,
            frozenset({(IP,)}),
            True,
            False,
            "Connections opened per second from an address.",
        ),
        LimitKind(
            CONNECTIONS,
            frozenset({(USER,), (TENANT,), (IP,)}),
            False,
            True,
            "Open connections; those of users and tenants are counted on Kafka listeners.",
        ),
        _count(STORAGE_BYTES, "Bytes of stored batches, without copies on followers."),
        _count(TOPICS, "Topics."),
        _count(PARTITIONS, "Partitions of all topics."),
        _count(GROUPS, "Stream groups and queue groups."),
        _count(SCHEDULED, "Delayed messages that are not due yet."),
        _count(IN_FLIGHT, "Messages that are leased to consumers of queue groups."),
        _count(USERS, "Users."),
        _count(KEYS, "API keys and access keys of all users."),
        _count(RULES, "Rules of access control."),
        _count(ROLES, "Roles."),
        _count(SCHEMA_VERSIONS, "Versions of all subjects."),
        _count(SCHEMA_BYTES, "Characters of all schemas."),
        _count(CONTEXTS, "Contexts of subjects, which are never deleted."),
        _count(SCHEMA_SETTINGS, "Subjects and contexts with settings or a mode of their own."),
        _count(TRANSACTIONAL_IDS, "Transactional ids that have not expired."),
    )
}


def tenant_limit(
    of_entity: Callable[[Entity], Mapping[str, float] | None], tenant: str, limit: str
) -> float | None:
    """Return a limit of a tenant: its own, the default of tenants, or its share of what all have.

    None if there is none. `of_entity` returns the limits that are set for an entity.
    """
    for name in (tenant, DEFAULT_NAME):
        limits = of_entity(tenant_entity(name))
        if limits is not None and limit in limits:
            return limits[limit]
    return SHARED.get(limit) if tenant else None


def check_limits(entity: Entity, limits: Mapping[str, float | None]) -> None:
    """Raise unless every limit is known, can be set for the entity, and has a possible value."""
    if not limits:
        raise InvalidQuota("Give at least one limit to set or remove.")
    for name, value in limits.items():
        kind = LIMITS.get(name)
        if kind is None:
            raise InvalidQuota(f"{name[:100]!r} is not a limit; known ones: {', '.join(LIMITS)}.")
        if form_of(entity) not in kind.forms:
            allowed = ", ".join(" and ".join(form) for form in sorted(kind.forms))
            raise InvalidQuota(f"{name} cannot be set for this entity; it can for: {allowed}.")
        if value is not None:
            _check_value(kind, value)


def _check_value(kind: LimitKind, value: float) -> None:
    if not (math.isfinite(value) and 0 <= value <= VALUE_MAX):
        raise InvalidQuota(f"{kind.name} must be a number from 0 to 2^53, not {value}.")
    if kind.is_rate and not value:
        raise InvalidQuota(f"{kind.name} must be more than 0; remove access to allow nothing.")
    if kind.is_whole and value != int(value):
        raise InvalidQuota(f"{kind.name} must be a whole number, not {value}.")
