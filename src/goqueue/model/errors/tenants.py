"""Tenants."""

from __future__ import annotations

from goqueue.model.errors.base import GoQueueError


class InvalidTenantName(GoQueueError):
    code = "invalid_tenant_name"

    def __init__(self, name: str, length_max: int) -> None:
        super().__init__(
            f"{name[:60]!r} cannot be the name of a tenant: use 1 to {length_max} lower-case "
            "letters, digits and '-', which is not at an end."
        )


class UnknownTenant(GoQueueError):
    code = "unknown_tenant"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no tenant {name[:60]!r}.")


class TenantExists(GoQueueError):
    code = "tenant_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is already a tenant {name!r}.")


class TenantInUse(GoQueueError):
    code = "tenant_in_use"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Tenant {name!r} cannot be deleted: {reason}.")


class TenantSuspended(GoQueueError):
    """Refused because of the state of the client's tenant."""

    code = "tenant_suspended"

    def __init__(self, text: str = "") -> None:
        super().__init__(text or "Your tenant is suspended; ask an operator to activate it.")
