"""Which session may do what: by its tenant, by the policy, and by who owns a transaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from goqueue.broker.gate.namespaces import Namespaces, own_resource
from goqueue.broker.transactions.names import common_name, owner_in, owner_of
from goqueue.model.access import CLUSTER, Access, Action, Resource, ResourceKind
from goqueue.model.errors import AccessDenied
from goqueue.model.observer import Observer, interested
from goqueue.model.session import NODE_PRINCIPAL, Session

if TYPE_CHECKING:
    from goqueue.broker.gate.operation import Arguments, Operation

AUTHORISED_MAX = 10_000  # calls that are known to be allowed
AUTHORISED_RESOURCES_MAX = 4  # of one such call

# Who calls what: principal, address, tenant, operation, resources.
_Call = tuple[str, str, str, str, tuple[Resource | Access, ...]]


class Policy(Protocol):
    """Decides which session may do what."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool: ...

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        """Whether the session may perform the action on some resource of a kind."""


class Authoriser:
    """Checks what sessions may access, by the policy that all gates of a node share."""

    def __init__(self, observer: Observer | None, namespaces: Namespaces) -> None:
        self.policy: Policy | None = None  # None: everything is allowed
        self.epoch = 0  # moves whenever access may have changed
        self._authorised: set[_Call] = set()  # since then
        self.namespaces = namespaces
        namespaces.has_policy = lambda: self.policy is not None
        namespaces.on_change(self.changed)
        namespaces.refused = partial(self.report_denied, operation="tenants")
        self._observer = interested(observer, ("denied",))
        self._on_change: list[Callable[[], None]] = []

    def replace(self, policy: Policy | None) -> None:
        """Replace the policy, and drop all access that was granted under the old one."""
        self.policy = policy
        self.changed()

    def changed(self) -> None:
        """Drop all access that was granted, because the rules of the policy have changed."""
        self.epoch += 1
        self._authorised.clear()
        for changed in self._on_change:
            changed()

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the policy, its rules or tenants change."""
        self._on_change.append(changed)

    def authorise(self, session: Session, operation: Operation, arguments: Arguments) -> None:
        """Raise unless the session may access every resource of the operation."""
        touched = tuple(operation.resources(arguments))
        call = (session.principal, session.client_host, session.tenant, operation.name, touched)
        if call in self._authorised and not session.is_inside:
            return
        for one in touched:
            action, resource = one if isinstance(one, Access) else (operation.action, one)
            self.check(session, action, resource, operation=operation.name)
        if len(touched) <= AUTHORISED_RESOURCES_MAX and not session.is_inside:
            if len(self._authorised) >= AUTHORISED_MAX:
                self._authorised.clear()
            self._authorised.add(call)

    def check(
        self, session: Session, action: Action, resource: Resource, *, operation: str = ""
    ) -> None:
        """Raise unless the session may perform the action on the resource."""
        self.namespaces.check_state(session, action)
        if not self.allows(session, action, resource):
            self.report_denied(session, action, resource, operation=operation)
            raise self.denial(session, action, resource)

    def denial(self, session: Session, action: Action, resource: Resource) -> AccessDenied:
        """Return the error for an action that a session may not perform."""
        is_hidden = not self.allows(session, Action.DESCRIBE, resource)
        if not self.namespaces.holds(session, resource):
            resource = Resource(resource.kind, "")  # The name of another tenant's is secret.
        return AccessDenied(session.principal, action, resource, is_hidden=is_hidden)

    def report_denied(
        self, session: Session, action: Action, resource: Resource = CLUSTER, *, operation: str
    ) -> None:
        """Report to the observer that a session was denied an action."""
        if self._observer is not None:
            self._observer.denied(session, action, resource, operation=operation)

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        if session.tenant or self.namespaces.is_used:
            if not self.namespaces.holds(session, resource):
                return False
            resource = own_resource(session, resource)
        if self.policy is None or session.principal == NODE_PRINCIPAL:
            return True
        owner = owner_in(resource.name) if resource.kind is ResourceKind.TRANSACTIONAL_ID else ""
        if owner and owner != owner_of(session.principal):
            action, resource = Action.ALTER, own_resource(session, CLUSTER)
        elif owner:
            resource = Resource(resource.kind, common_name(resource.name))
        return self.policy.allows(session, action, resource)

    def is_open(self, session: Session) -> bool:
        """Whether a session may do everything, to all there is."""
        return self.policy is None and not session.tenant and not self.namespaces.is_used

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        return self.policy is None or self.policy.allows_any(session, action, kind)
