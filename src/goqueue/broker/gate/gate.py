"""The steps that every call passes: authorise, find the owner, perform, observe."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from goqueue.broker.gate.forwarding import Forwarder
from goqueue.broker.gate.operation import Area, Operation
from goqueue.broker.gate.schedules import SchedulesArea
from goqueue.loop.promise import Promise, promised
from goqueue.model.access import Action, Resource
from goqueue.model.errors import AccessDenied, GoQueueError
from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker


class Policy(Protocol):
    """Who may do what."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool: ...


class Gate:
    """The operations of a node, by area."""

    def __init__(
        self, broker: Broker, *, policy: Policy | None = None, routes: bool = True
    ) -> None:
        """Without a policy everybody may do everything.

        A gate that does not route performs every operation on this node, which refuses what
        another node owns: for clients that find the owner themselves.
        """
        self.policy = policy
        self._broker = broker
        self.schedules = SchedulesArea(self, broker)
        peers = broker.peers if routes else None
        self._forwarder = None if peers is None else Forwarder(broker, peers, self.perform_for)

    def call(
        self, session: Session, operation: Operation, area: Area, arguments: Mapping[str, Any]
    ) -> Promise[Any]:
        """Answer an operation, here or on the node that owns what it is about."""
        try:
            self.authorise(session, operation, arguments)
        except GoQueueError as error:
            refused: Promise[Any] = Promise()
            refused.reject(error)
            return refused
        if self._forwarder is None or not operation.is_routed:
            return perform(operation, area, session, arguments)
        return self._forwarder.route(
            session, operation, arguments, lambda: perform(operation, area, session, arguments)
        )

    def authorise(
        self, session: Session, operation: Operation, arguments: Mapping[str, Any]
    ) -> None:
        """Raise unless the session may do this to everything that the operation touches."""
        if self.policy is None:
            return
        for resource in operation.resources(arguments):
            if not self.policy.allows(session, operation.action, resource):
                raise AccessDenied(session.principal, operation.action, resource)

    def perform_for(
        self, session: Session, operation: Operation, arguments: Mapping[str, Any]
    ) -> Promise[Any]:
        """Perform what another node has authorised and passed on to this one."""
        area: Area = getattr(self, operation.name.partition(".")[0])
        return perform(operation, area, session, arguments)


def perform(
    operation: Operation, area: Area, session: Session, arguments: Mapping[str, Any]
) -> Promise[Any]:
    """Run an operation on this node; what it raises is in the promise."""
    try:
        answer = operation.perform(area, session, **arguments)
    except Exception as error:
        refused: Promise[Any] = Promise()
        refused.reject(error)
        return refused
    if isinstance(answer, Promise):
        return answer
    assert isinstance(answer, Coroutine)
    return promised(answer)
