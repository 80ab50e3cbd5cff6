"""Tenants: created, suspended and deleted through the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from goqueue.broker.controller.metadata import FactLog, done
from goqueue.cluster.identity_facts import TenantFact
from goqueue.cluster.tenant_commands import (
    DeleteTenant,
    PutTenant,
    accounts,
    in_use,
    new_account,
)
from goqueue.loop.clock import Clock
from goqueue.model.errors import StalePartitionVersion, TenantExists, TenantInUse, UnknownTenant
from goqueue.model.tenants import TenantState, check_tenant_name

_ATTEMPTS = 5  # to change a tenant while others change it too


class Tenants:
    """The tenants of a cluster, besides the default one, which always exists."""

    def __init__(self, clock: Clock, log: FactLog) -> None:
        self._clock = clock
        self._log = log

    @property
    def all(self) -> Mapping[str, TenantFact]:
        return self._log.metadata.tenants

    def get(self, name: str) -> TenantFact:
        known = self.all.get(name)
        if known is None:
            raise UnknownTenant(name)
        return known

    async def create(self, name: str, description: str) -> TenantFact:
        check_tenant_name(name)
        if name in self.all:
            raise TenantExists(name)
        account = new_account(name, accounts(self._log.metadata))
        fact = TenantFact(name, self._clock.wall_ms(), account, description=description, version=1)
        await done(self._log.request(PutTenant(fact)))
        return fact

    async def change(self, name: str, **changes: Any) -> TenantFact:
        """Change a tenant, again if another request has changed it in the meantime."""
        for attempt in range(_ATTEMPTS):
            known = self.get(name)
            if known.state is TenantState.DELETING:
                raise TenantInUse(name, "it is being deleted, and cannot be changed")
            fact = msgspec.structs.replace(known, version=known.version + 1, **changes)
            try:
                await done(self._log.request(PutTenant(fact)))
            except StalePartitionVersion:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return fact  # A purge may have deleted the tenant by now.
        raise AssertionError("the last attempt returns or raises")

    def check_unused(self, name: str) -> None:
        """Raise if a tenant has users or, in the metadata, resources."""
        self.get(name)
        reason = in_use(self._log.metadata, name)
        if reason:
            raise TenantInUse(name, f"{reason}; delete them first, or purge the tenant")

    async def delete(self, name: str) -> None:
        await done(self._log.request(DeleteTenant(name)))
