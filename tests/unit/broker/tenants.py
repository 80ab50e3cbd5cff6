"""Tenants for tests, without the area that manages them."""

from __future__ import annotations

from goqueue.broker.broker import Broker
from goqueue.cluster.identity_facts import TenantFact
from goqueue.cluster.tenant_commands import PutTenant, accounts, new_account
from goqueue.loop.promise import Promise
from goqueue.model.tenants import TenantState


def put_tenant(
    broker: Broker, name: str, state: TenantState = TenantState.ACTIVE
) -> Promise[object]:
    """Create a tenant, or change its state."""
    log = broker.topics.facts.log
    known = log.metadata.tenants.get(name)
    if known is None:
        account = new_account(name, accounts(log.metadata))
        known = TenantFact(name, broker.clock.wall_ms(), account)
    fact = TenantFact(name, known.created_ms, known.account, state, version=known.version + 1)
    return log.request(PutTenant(fact))  # type: ignore[return-value]
