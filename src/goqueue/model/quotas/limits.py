"""Limits: what can be limited, and which values are possible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from goqueue.model.errors import InvalidQuota
from goqueue.model.quotas.entities import (
    CLIENTS_AND_TENANTS,
    IP,
    TENANT,
    TENANTS,
    USER,
    Entity,
    Form,
    form_of,
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
        _rate(MUTATIONS, "Partitions created or deleted per second.", is_whole=False),
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
    )
}


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
