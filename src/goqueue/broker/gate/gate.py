"""The steps that every call passes: authorise, find the owner, perform, observe."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from goqueue.broker.gate.areas.access import AccessArea
from goqueue.broker.gate.areas.cluster import ClusterArea
from goqueue.broker.gate.areas.configs import ConfigsArea
from goqueue.broker.gate.areas.dead_letters import DeadLettersArea
from goqueue.broker.gate.areas.group_offsets import GroupOffsetsArea
from goqueue.broker.gate.areas.groups import GroupsArea
from goqueue.broker.gate.areas.members import MembersArea
from goqueue.broker.gate.areas.named_queues import NamedQueuesArea
from goqueue.broker.gate.areas.node import NodeArea
from goqueue.broker.gate.areas.polling import PollingArea
from goqueue.broker.gate.areas.queries import QueriesArea
from goqueue.broker.gate.areas.queues import QueuesArea
from goqueue.broker.gate.areas.reassignments import ReassignmentsArea
from goqueue.broker.gate.areas.records import RecordsArea
from goqueue.broker.gate.areas.schedules import SchedulesArea
from goqueue.broker.gate.areas.schemas import SchemasArea
from goqueue.broker.gate.areas.topics import TopicsArea
from goqueue.broker.gate.areas.transactions import TransactionsArea
from goqueue.broker.gate.fetching import FetchDone, Waiting
from goqueue.broker.gate.forwarding import Forwarder
from goqueue.broker.gate.grants import Grants, Wanted
from goqueue.broker.gate.operation import Area, Operation
from goqueue.loop.promise import Promise, promised
from goqueue.model.access import Access, Action, Resource
from goqueue.model.errors import AccessDenied, GoQueueError
from goqueue.model.observer import Observer
from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker


_Identity = tuple[str, str, str]


class Policy(Protocol):
    """Decides which session may do what."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool: ...


class Gate:
    """The operations of a node, by area."""

    def __init__(
        self, broker: Broker, *, policy: Policy | None = None, routes: bool = True
    ) -> None:
        """Without a policy, everything is allowed.

        A gate that does not route performs every operation on this node, which refuses what
        another node owns: for protocols whose clients find the owner themselves.
        """
        self.broker = broker
        self.clock = broker.clock
        self.random = broker.random
        self._observer = broker.topics.observer
        self._policy = policy
        self._grants: WeakValueDictionary[_Identity, Grants] = WeakValueDictionary()
        broker.topics.on_change(self._clear_grants)
        self.access = AccessArea(self, broker)
        self.cluster = ClusterArea(self, broker)
        self.configs = ConfigsArea(self, broker)
        self.group_offsets = GroupOffsetsArea(self, broker)
        self.groups = GroupsArea(self, broker)
        self.members = MembersArea(self, broker)
        self.node = NodeArea(self, broker)
        self.polling = PollingArea(self, broker)
        self.queries = QueriesArea(self, broker)
        self.reassignments = ReassignmentsArea(self, broker)
        self.records = RecordsArea(self, broker)
        self.dead_letters = DeadLettersArea(self, broker)
        self.named_queues = NamedQueuesArea(self, broker)
        self.queues = QueuesArea(self, broker)
        self.schedules = SchedulesArea(self, broker)
        self.schemas = SchemasArea(self, broker)
        self.topics = TopicsArea(self, broker)
        self.transactions = TransactionsArea(self, broker)
        peers = broker.peers if routes else None
        self._forwarder = None if peers is None else Forwarder(broker, peers, self.perform_for)

    @property
    def policy(self) -> Policy | None:
        return self._policy

    @policy.setter
    def policy(self, policy: Policy | None) -> None:
        """Replace the policy, and drop all access that was granted under the old one."""
        self._policy = policy
        self._clear_grants()

    def grants(self, session: Session) -> Grants:
        """Return what a session may write and read; sessions of one identity share it.

        A connection keeps it, and requests it again when its client has re-authenticated.
        """
        identity = (session.principal, session.tenant, session.client_host)
        known = self._grants.get(identity)
        if known is None:
            known = self._grants[identity] = Grants(self, session)
        return known

    def fetch(
        self,
        wanted: Sequence[Wanted],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        done: FetchDone,
    ) -> Waiting:
        """Read from places that readers returned, now or when there is enough data."""
        return self.broker.fetch(
            wanted, bytes_min=bytes_min, bytes_max=bytes_max, wait_ms=wait_ms, done=done
        )

    def racks(self, rack: str) -> Mapping[int, str]:
        """Return the nodes of a rack that its consumers may be sent to; none if this is one."""
        return self.broker.nearest.racks(rack)

    def _clear_grants(self) -> None:
        for grants in list(self._grants.values()):
            grants.clear()

    def call(
        self, session: Session, operation: Operation, area: Area, arguments: Mapping[str, Any]
    ) -> Promise[Any]:
        """Answer an operation, here or on the node that owns its subject."""
        try:
            self.authorise(session, operation, arguments)
        except GoQueueError as error:
            refused: Promise[Any] = Promise()
            refused.reject(error)
            return refused
        answer = self.answer(session, operation, area, arguments)
        if self._observer is not None:
            self._observe(self._observer, session, operation, answer)
        return answer

    def answer(
        self, session: Session, operation: Operation, area: Area, arguments: Mapping[str, Any]
    ) -> Promise[Any]:
        """Answer a part of an authorised operation, here or on its owner."""
        if self._forwarder is None or not operation.is_routed:
            return perform(operation, area, session, arguments)
        return self._forwarder.route(
            session, operation, arguments, lambda: perform(operation, area, session, arguments)
        )

    def _observe(
        self, observer: Observer, session: Session, operation: Operation, answer: Promise[Any]
    ) -> None:
        now_ms = self.broker.clock.now_ms
        began_ms = now_ms()
        answer.then(
            lambda _, error: observer.called(session, operation.name, error, now_ms() - began_ms)
        )

    def authorise(
        self, session: Session, operation: Operation, arguments: Mapping[str, Any]
    ) -> None:
        """Raise unless the session may access every resource of the operation."""
        if self._policy is not None:
            for touched in operation.resources(arguments):
                if isinstance(touched, Access):
                    self.check(session, *touched)
                else:
                    self.check(session, operation.action, touched)

    def check(self, session: Session, action: Action, resource: Resource) -> None:
        """Raise unless the session may perform the action on the resource."""
        if self._policy is not None and not self._policy.allows(session, action, resource):
            if self._observer is not None:
                self._observer.denied(session, action, resource)
            raise AccessDenied(session.principal, action, resource)

    def perform_for(
        self, session: Session, operation: Operation, arguments: Mapping[str, Any]
    ) -> Promise[Any]:
        """Perform an operation that another node has authorised and forwarded."""
        area: Area = getattr(self, operation.name.partition(".")[0])
        return perform(operation, area, session, arguments)


def perform(
    operation: Operation, area: Area, session: Session, arguments: Mapping[str, Any]
) -> Promise[Any]:
    """Run an operation on this node; exceptions reject the promise."""
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
