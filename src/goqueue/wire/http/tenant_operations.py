"""The routes of tenants; part of the table in `operations`."""

from __future__ import annotations

from functools import partial

from goqueue.model import errors
from goqueue.wire.carrier.routing import STORING, Operation
from goqueue.wire.http.bodies import tenants as bodies
from goqueue.wire.http.handlers import tenants

_operation = partial(Operation, area="tenants")

_DECIDED = (errors.NotController, errors.RequestTimedOut, errors.LimitReached, *STORING)
_COUNTED = (errors.NoOwner, errors.RequestTimedOut)

TENANTS = (
    _operation(
        "listTenants",
        "GET",
        "/v1/tenants",
        tenants.list_all,
        "List tenants, by name.",
        request=bodies.ListTenants,
        answer=bodies.Tenants,
    ),
    _operation(
        "createTenant",
        "POST",
        "/v1/tenants",
        tenants.create,
        "Create a tenant.",
        request=bodies.CreateTenant,
        answer=bodies.Tenant,
        status=201,
        errors=(
            errors.TenantExists,
            errors.TenantInUse,
            errors.InvalidTenantName,
            errors.NoOwner,
            *_DECIDED,
        ),
        example={"name": "acme", "description": "The shop", "admin": "acme-admin"},
    ),
    _operation(
        "showTenant",
        "GET",
        "/v1/tenants/{tenant}",
        tenants.show,
        "Show a tenant.",
        answer=bodies.Tenant,
        errors=(errors.UnknownTenant,),
    ),
    _operation(
        "changeTenant",
        "PATCH",
        "/v1/tenants/{tenant}",
        tenants.change,
        "Activate a tenant, let it only read, or suspend it.",
        request=bodies.ChangeTenant,
        answer=bodies.Tenant,
        errors=(
            errors.UnknownTenant,
            errors.TenantInUse,
            errors.StalePartitionVersion,
            *_DECIDED,
        ),
        example={"state": "suspended"},
    ),
    _operation(
        "deleteTenant",
        "DELETE",
        "/v1/tenants/{tenant}",
        tenants.delete,
        "Delete a tenant.",
        request=bodies.DeleteTenant,
        status=204,
        errors=(
            errors.UnknownTenant,
            errors.TenantInUse,
            errors.StalePartitionVersion,
            errors.NoOwner,
            *_DECIDED,
        ),
    ),
    _operation(
        "showTenantUsage",
        "GET",
        "/v1/tenants/{tenant}/usage",
        tenants.usage,
        "Show what a tenant has.",
        answer=bodies.Usage,
        errors=(errors.UnknownTenant, *_COUNTED),
    ),
    _operation(
        "showUsage",
        "GET",
        "/v1/usage",
        tenants.own_usage,
        "Show what the caller's tenant has.",
        answer=bodies.Usage,
        errors=_COUNTED,
    ),
)
