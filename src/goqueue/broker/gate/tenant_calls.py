"""Calls of sessions with a name space: in with the broker's names, out with the client's."""

from __future__ import annotations

from typing import Any

from goqueue.broker.gate.namespaces import Namespaces, inside
from goqueue.broker.gate.operation import Arguments, Operation
from goqueue.broker.gate.translation import OperationNames
from goqueue.model.access import CLUSTER
from goqueue.model.errors import AccessDenied, GoQueueError, InvalidRequest
from goqueue.model.session import Session
from goqueue.tenancy.namespaces import ForeignName, Namespace


class TenantCall:
    """One call: the session and the arguments for the broker, and its result for the client."""

    __slots__ = ("_names", "_space", "arguments", "session")

    def __init__(
        self, space: Namespace, names: OperationNames, session: Session, arguments: Arguments
    ) -> None:
        self._space = space
        self._names = names
        self.session = inside(session)
        self.arguments = names.inward(space, arguments)

    def result(self, value: Any) -> Any:
        """Return a result as the client sees it."""
        try:
            return self._names.outward(self._space, value)
        except ForeignName:
            raise InvalidRequest("What you requested does not exist.") from None

    def error(self, error: Exception) -> Exception:
        """Return an error as the client sees it."""
        return self._space.error(error) if isinstance(error, GoQueueError) else error


class TenantCalls:
    """Begins calls of sessions whose names are translated."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._names: dict[str, OperationNames] = {}

    def begin(
        self, session: Session, operation: Operation, arguments: Arguments
    ) -> TenantCall | None:
        """Return the translated call; None if the session has all names as they are."""
        space = self._namespaces.of(session)
        if space is None:
            return None
        if session.tenant:
            self._namespaces.check_state(session, operation.action)
        if operation.shows_all_tenants or (session.tenant and operation.is_for_operators):
            self._namespaces.refused(session, operation.action)
            raise AccessDenied(session.principal, operation.action, CLUSTER)
        return TenantCall(space, self.names_of(operation), session, arguments)

    def names_of(self, operation: Operation) -> OperationNames:
        known = self._names.get(operation.name)
        if known is None:
            known = self._names[operation.name] = OperationNames(operation.perform)
        return known
