"""Tenants."""

from __future__ import annotations

from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.wire.http.bodies import tenants as bodies
from goqueue.wire.http.bodies.tenants import State, Tenant, Tenants, Usage

_read_tenants = reading(Tenants)
_read_tenant = reading(Tenant)
_read_usage = reading(Usage)


class TenantRequests:
    def list_page(self, *, limit: int = 100, cursor: str = "") -> Request[Tenants]:
        """Return tenants by name; the cursor of the last page is empty."""
        query = query_of(bodies.ListTenants(limit=limit, cursor=cursor))
        return Request("GET", path_of("tenants"), _read_tenants, query)

    def get(self, name: str) -> Request[Tenant]:
        """Return a tenant."""
        return Request("GET", path_of("tenants", name), _read_tenant)

    def create(
        self, name: str, *, description: str = "", admin: str | None = None
    ) -> Request[Tenant]:
        """Create a tenant, in which the user `admin` may do everything."""
        body = body_of(bodies.CreateTenant(name=name, description=description, admin=admin))
        return Request("POST", path_of("tenants"), _read_tenant, body=body, repeat=Repeat.AMBIGUOUS)

    def set_state(self, name: str, state: State) -> Request[Tenant]:
        """Set what the users of a tenant may do: everything, only read, or nothing."""
        body = body_of(bodies.ChangeTenant(state=state))
        return Request("PATCH", path_of("tenants", name), _read_tenant, body=body)

    def delete(self, name: str, *, purge: bool = False) -> Request[None]:
        """Delete a tenant that has nothing or, with `purge`, with all it has."""
        query = query_of(bodies.DeleteTenant(purge=purge))
        path = path_of("tenants", name)
        return Request("DELETE", path, nothing, query, repeat=Repeat.AMBIGUOUS)

    def usage(self, name: str) -> Request[Usage]:
        """Return what a tenant has."""
        return Request("GET", path_of("tenants", name, "usage"), _read_usage)

    def own_usage(self) -> Request[Usage]:
        """Return what the tenant of this client has."""
        return Request("GET", path_of("usage"), _read_usage)
