"""Which name space a session has, and what the state of its tenant allows.

Without tenants nothing is translated. With some, their users see their own names, users of the
default tenant see the names that belong to no other, and operators see everything as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from goqueue.broker.transactions.ids import transactional_id_in
from goqueue.cluster.facts import Decision, Forget, WholeState
from goqueue.cluster.identity_facts import TENANT_PREFIX, TenantFact
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.model.errors import TenantSuspended
from goqueue.model.session import NODE_PRINCIPAL, Session
from goqueue.model.tenants import TenantState, prefix_of_tenant
from goqueue.tenancy.acls import is_internal
from goqueue.tenancy.namespaces import Namespace

if TYPE_CHECKING:
    from goqueue.broker.controller.metadata import FactLog

# What a tenant that may only read is refused.
_WRITES = frozenset(
    {
        Action.WRITE,
        Action.CREATE,
        Action.DELETE,
        Action.ALTER,
        Action.ALTER_CONFIGS,
        Action.IDEMPOTENT_WRITE,
    }
)


class Namespaces:
    """The name spaces of the sessions of a node."""

    def __init__(self, log: FactLog, super_users: frozenset[str]) -> None:
        self._log = log
        self._super_users = super_users
        self._known: dict[str, Namespace] = {}
        self._on_change: list[Callable[[], None]] = []
        self.is_used = False  # whether there are tenants besides the default one
        # Whether access control is on. Without it, everybody in the default tenant is an operator.
        self.has_policy: Callable[[], bool] = lambda: False
        # Called when a tenant's user is refused something for its tenant's sake.
        self.refused: Callable[[Session, Action], None] = lambda session, action: None
        log.on_applied(self._applied)
        self.refresh()

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever tenants are created, changed or deleted."""
        self._on_change.append(changed)

    def refresh(self) -> None:
        """Note which tenants there are, whenever they have changed and at the start."""
        self.is_used = bool(self._log.metadata.tenants)
        for changed in self._on_change:
            changed()

    def of(self, session: Session) -> Namespace | None:
        """Return the name space of a session; None if it has all names as they are."""
        tenant = session.tenant
        if not tenant and (not self.is_used or self.is_operator(session)):
            return None
        known = self._known.get(tenant)
        if known is None:
            known = self._known[tenant] = Namespace(tenant, transactional_id_in)
        return known

    def is_operator(self, session: Session) -> bool:
        """Whether a session may act on the whole cluster, as far as tenants are concerned."""
        if session.tenant:
            return False
        principal = session.principal
        is_super = principal in self._super_users or principal == NODE_PRINCIPAL
        return is_super or not self.has_policy()

    def state(self, tenant: str) -> TenantState:
        """Return the state of a tenant; users of one that is gone may do nothing."""
        known = self._log.metadata.tenants.get(tenant)
        return TenantState.SUSPENDED if known is None else known.state

    def check_state(self, session: Session, action: Action) -> None:
        """Raise if the state of the session's tenant does not allow an action."""
        if self.permits(session, action):
            return
        self.refused(session, action)
        if self.state(session.tenant) is not TenantState.READ_ONLY:
            raise TenantSuspended
        raise TenantSuspended(
            "Your tenant may only read; ask an operator to activate it before you write."
        )

    def permits(self, session: Session, action: Action) -> bool:
        """Whether the state of the session's tenant allows an action."""
        if not session.tenant:
            return True
        state = self.state(session.tenant)
        is_reading = state is TenantState.READ_ONLY and action not in _WRITES
        return state is TenantState.ACTIVE or is_reading

    def holds(self, session: Session, resource: Resource) -> bool:
        """Whether a session can reach a resource at all, whatever the policy says."""
        if resource.kind is ResourceKind.CLUSTER:
            return True  # Each tenant has its own.
        space = self.of(session)
        # Internal topics contain what belongs to all tenants.
        return space is None or (space.holds(resource) and not is_internal(resource))

    def _applied(self, decision: Decision) -> None:
        if isinstance(decision, WholeState) or any(map(_concerns_tenants, decision)):
            self.refresh()


def own_resource(session: Session, resource: Resource) -> Resource:
    """Return the resource that a policy is asked about: the cluster of a tenant is its own."""
    if session.tenant and resource == CLUSTER:
        return Resource(ResourceKind.CLUSTER, prefix_of_tenant(session.tenant) + CLUSTER.name)
    return resource


def inside(session: Session) -> Session:
    """Return the session for calls whose names have been translated."""
    return msgspec.structs.replace(session, is_inside=True)


def _concerns_tenants(change: object) -> bool:
    if isinstance(change, Forget):
        return change.key.startswith(TENANT_PREFIX)
    return isinstance(change, TenantFact)
