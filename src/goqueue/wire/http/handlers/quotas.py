"""Quotas: list, change, delete, and how much of them is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.quotas import EntityFilter, Names
from goqueue.wire.http.bodies import quotas as bodies
from goqueue.wire.http.overviews.slices import slice_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


def list_all(front: FrontEnd, call: Call, query: bodies.ListQuotas) -> bodies.Quotas:
    filters = [EntityFilter(kind, "exact", name) for kind, name in _names(query).items() if name]
    filters += [EntityFilter(kind, "default") for kind in _kinds(query.default)]
    filters += [EntityFilter(kind, "any") for kind in _kinds(query.any)]
    found = front.gate.quotas.describe(call.session, filters=filters, is_strict=query.strict)
    page, place = slice_of(found, query.limit, query.cursor)
    return bodies.Quotas(
        quotas=[bodies.Quota(entity=_shown(one.entity), limits=dict(one.limits)) for one in page],
        cursor=place.cursor,
        total=place.total,
    )


async def change(front: FrontEnd, call: Call, body: bodies.ChangeQuota) -> None:
    names = {kind: name or "" for kind, name in body.entity.items()}
    await front.gate.quotas.alter(call.session, names=names, limits=body.limits)


async def delete(front: FrontEnd, call: Call, query: bodies.DeleteQuota) -> None:
    names = {kind: name for kind, name in _names(query).items() if name}
    names |= dict.fromkeys(_kinds(query.default), "")
    await front.gate.quotas.remove(call.session, names=names)


async def usage(front: FrontEnd, call: Call, query: bodies.ShowQuotaUsage) -> bodies.QuotaUsage:
    found = await front.gate.quotas.usage(call.session)
    by_wait = sorted(found, key=lambda one: -one.wait_ms)
    page, place = slice_of(by_wait, query.limit, query.cursor)
    return bodies.QuotaUsage(
        usage=[
            bodies.QuotaUse(
                entity=_shown(one.entity),
                limit=one.limit_name,
                value=one.limit,
                used=round(one.used, 3),
                wait_ms=one.wait_ms,
            )
            for one in page
        ],
        cursor=place.cursor,
        total=place.total,
    )


def _names(query: bodies.ListQuotas | bodies.DeleteQuota) -> dict[str, str]:
    return {
        "user": query.user,
        "client-id": query.client_id,
        "ip": query.ip,
        "tenant": query.tenant,
    }


def _kinds(text: str) -> list[str]:
    return [kind.strip() for kind in text.split(",") if kind.strip()]


def _shown(entity: Names) -> dict[str, str | None]:
    return {kind: name or None for kind, name in entity}
