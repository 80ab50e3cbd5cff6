"""Quotas: limits of users, client ids, addresses and tenants."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.fields import Limit, ListCursor

_NAMES = (
    "Names by kind: `user`, `client-id`, both, `ip` or `tenant`; null is the default, for each "
    "that has no limit of its own."
)

EntityNames = Annotated[
    dict[str, str | None],
    Meta(max_length=2, description=_NAMES, examples=[{"user": "alice"}]),
]
Name = Annotated[str, Meta(max_length=255)]
Kinds = Annotated[str, Meta(max_length=100, examples=["user"])]


class ListQuotas(Body, kw_only=True):
    """Which quotas to list; by default all."""

    user: Annotated[Name, Meta(description="Only those of this user.")] = ""
    client_id: Annotated[Name, Meta(description="Only those of this client id.")] = ""
    ip: Annotated[Name, Meta(description="Only those of this address.")] = ""
    tenant: Annotated[Name, Meta(description="Only those of this tenant.")] = ""
    default: Annotated[
        Kinds, Meta(description="Kinds of which only the default is listed, separated by commas.")
    ] = ""
    any: Annotated[
        Kinds, Meta(description="Kinds of which any name is listed, separated by commas.")
    ] = ""
    strict: Annotated[
        bool, Meta(description="Whether to leave out entities with names of other kinds.")
    ] = False
    limit: Annotated[Limit | None, Meta(description="By default all.")] = None
    cursor: ListCursor = ""


class Quota(Answer, kw_only=True):
    """The limits of an entity."""

    entity: EntityNames
    limits: Annotated[dict[str, float], Meta(description="Values by the names of limits.")]


class Quotas(Answer, kw_only=True):
    """Quotas by entity."""

    quotas: list[Quota]
    cursor: Annotated[str, Meta(description="Of the next page; empty at the end.")] = ""
    total: Annotated[int, Meta(description="On all pages.")] = 0


class ChangeQuota(Body, kw_only=True):
    """Limits to change; others stay as they are."""

    entity: EntityNames
    limits: Annotated[
        dict[str, float | None],
        Meta(
            max_length=50,
            description="New values by the names of limits; null removes one.",
            examples=[{"producer_byte_rate": 10_000_000}],
        ),
    ]


class DeleteQuota(Body, kw_only=True):
    """The entity whose limits to remove."""

    user: Name = ""
    client_id: Name = ""
    ip: Name = ""
    tenant: Name = ""
    default: Annotated[
        Kinds, Meta(description="Kinds of which the default is meant, separated by commas.")
    ] = ""


class QuotaUse(Answer, kw_only=True):
    """How much of a limit an entity uses in the cluster."""

    entity: EntityNames
    limit: Annotated[str, Meta(description="The name of the limit.")]
    value: float
    used: Annotated[
        float, Meta(description="In the last second for rates, otherwise how many there are.")
    ]
    wait_ms: Annotated[int, Meta(description="For how long new requests have to wait.")]


class ShowQuotaUsage(Body, kw_only=True):
    limit: Annotated[Limit | None, Meta(description="By default all.")] = None
    cursor: ListCursor = ""


class QuotaUsage(Answer, kw_only=True):
    """Limits that are in use, those that let clients wait the longest first."""

    usage: list[QuotaUse]
    cursor: Annotated[str, Meta(description="Of the next page; empty at the end.")] = ""
    total: Annotated[int, Meta(description="On all pages.")] = 0
