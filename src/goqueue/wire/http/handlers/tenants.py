"""Tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.tenants import TenantState, TenantUsage, TenantView
from goqueue.wire.http.bodies import tenants as bodies

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


def list_all(front: FrontEnd, call: Call, query: bodies.ListTenants) -> bodies.Tenants:
    page = front.gate.tenants.list(call.session, after=query.cursor, limit=query.limit)
    return bodies.Tenants(tenants=[_tenant(one) for one in page.tenants], cursor=page.next_cursor)


def show(front: FrontEnd, call: Call, _: object) -> bodies.Tenant:
    return _tenant(front.gate.tenants.show(call.session, tenant=call.text("tenant")))


async def create(front: FrontEnd, call: Call, body: bodies.CreateTenant) -> bodies.Tenant:
    made = await front.gate.tenants.create(
        call.session, tenant=body.name, description=body.description, admin=body.admin
    )
    return _tenant(made)


async def change(front: FrontEnd, call: Call, body: bodies.ChangeTenant) -> bodies.Tenant:
    changed = await front.gate.tenants.set_state(
        call.session, tenant=call.text("tenant"), state=TenantState(body.state)
    )
    return _tenant(changed)


async def delete(front: FrontEnd, call: Call, query: bodies.DeleteTenant) -> None:
    await front.gate.tenants.delete(call.session, tenant=call.text("tenant"), purge=query.purge)


async def usage(front: FrontEnd, call: Call, _: object) -> bodies.Usage:
    found = await front.gate.tenants.usage(call.session, tenant=call.text("tenant"))
    return _usage(found)


async def own_usage(front: FrontEnd, call: Call, _: object) -> bodies.Usage:
    return _usage(await front.gate.tenants.own_usage(call.session))


def _tenant(view: TenantView) -> bodies.Tenant:
    return bodies.Tenant(
        name=view.name,
        account=view.account,
        state=view.state.value,
        description=view.description,
        created_at=view.created_ms,
        users=view.user_count,
        topics=view.topic_count,
    )


def _usage(found: TenantUsage) -> bodies.Usage:
    return bodies.Usage(
        users=found.users,
        topics=found.topics,
        partitions=found.partitions,
        queues=found.queues,
        groups=found.groups,
        subjects=found.subjects,
        scheduled=found.scheduled,
        stored_bytes=found.stored_bytes,
    )
