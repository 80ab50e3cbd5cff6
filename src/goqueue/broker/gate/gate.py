"""The gate of a node: its areas, and the grants of its hot paths."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from goqueue.broker.gate.areas.access import AccessArea
from goqueue.broker.gate.areas.acls import AclsArea
from goqueue.broker.gate.areas.audit import AuditArea
from goqueue.broker.gate.areas.backups import BackupsArea
from goqueue.broker.gate.areas.cluster import ClusterArea
from goqueue.broker.gate.areas.configs import ConfigsArea
from goqueue.broker.gate.areas.dead_letters import DeadLettersArea
from goqueue.broker.gate.areas.group_offsets import GroupOffsetsArea
from goqueue.broker.gate.areas.groups import GroupsArea
from goqueue.broker.gate.areas.journeys import JourneysArea
from goqueue.broker.gate.areas.members import MembersArea
from goqueue.broker.gate.areas.named_queues import NamedQueuesArea
from goqueue.broker.gate.areas.node import MetricsArea, NodeArea
from goqueue.broker.gate.areas.overviews.figures import FiguresArea
from goqueue.broker.gate.areas.overviews.history import HistoryArea
from goqueue.broker.gate.areas.overviews.inspection import InspectionArea
from goqueue.broker.gate.areas.polling import PollingArea
from goqueue.broker.gate.areas.queries import QueriesArea
from goqueue.broker.gate.areas.queues import QueuesArea
from goqueue.broker.gate.areas.quotas import QuotasArea
from goqueue.broker.gate.areas.reassignments import ReassignmentsArea
from goqueue.broker.gate.areas.records import RecordsArea
from goqueue.broker.gate.areas.schedules import SchedulesArea
from goqueue.broker.gate.areas.schemas import SchemasArea
from goqueue.broker.gate.areas.share_groups import ShareGroupsArea
from goqueue.broker.gate.areas.tenants import TenantsArea
from goqueue.broker.gate.areas.topics import TopicsArea
from goqueue.broker.gate.areas.transactions import TransactionsArea
from goqueue.broker.gate.areas.users import UsersArea
from goqueue.broker.gate.authentication import Authentication
from goqueue.broker.gate.authoriser import Authoriser, Policy
from goqueue.broker.gate.forwarding import Forwarder
from goqueue.broker.gate.grants import Grants
from goqueue.broker.gate.operation import Dispatcher
from goqueue.broker.gate.request_metrics import RequestMetrics
from goqueue.broker.gate.tenant_calls import TenantCalls
from goqueue.broker.quotas.seats import Seat
from goqueue.model.session import Session

__all__ = ["Gate", "Seat"]

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.gate.client_telemetry import ClientTelemetry


_Identity = tuple[str, ...]


class Gate:
    """The operations of a node, by area."""

    def __init__(
        self,
        broker: Broker,
        authoriser: Authoriser,
        authentication: Authentication,
        *,
        routes_by: Gate | None = None,
    ) -> None:
        """The gates of a node share its authoriser and its authentication.

        For protocols whose clients find owners themselves, a gate performs every operation on this
        node, which refuses what another node owns. It passes those whose owner clients cannot
        find to the gate `routes_by`.
        """
        self._broker = broker
        self.clock = broker.clock
        self.random = broker.random
        self._authoriser = authoriser
        self._sessions: WeakValueDictionary[Session, Session] = WeakValueDictionary()
        self._grants: WeakValueDictionary[_Identity, Grants] = WeakValueDictionary()
        authoriser.on_change(self._clear_grants)
        broker.topics.on_change(self._clear_grants)
        # While it is not `is_active`, no client has limits.
        self.client_limits = broker.quotas
        broker.quotas.on_change(self._drop_grants)
        dispatcher = Dispatcher(broker, authoriser)
        dispatcher.tenants = TenantCalls(authoriser.namespaces)
        self.authentication = authentication
        self.requests = RequestMetrics(broker.metrics, broker.clock.wall_ms)
        self.has_client_telemetry = broker.settings.metrics.asks_clients
        self.access = AccessArea(dispatcher)
        self.acls = AclsArea(dispatcher)
        self.audit = AuditArea(dispatcher)
        self.backups = BackupsArea(dispatcher)
        self.cluster = ClusterArea(dispatcher)
        self.configs = ConfigsArea(dispatcher)
        self.figures = FiguresArea(dispatcher)
        self.group_offsets = GroupOffsetsArea(dispatcher)
        self.groups = GroupsArea(dispatcher)
        self.history = HistoryArea(dispatcher)
        self.inspection = InspectionArea(dispatcher)
        self.journeys = JourneysArea(dispatcher)
        self.members = MembersArea(dispatcher)
        self.metrics = MetricsArea(dispatcher)
        self.node = NodeArea(dispatcher)
        self.polling = PollingArea(dispatcher)
        self.queries = QueriesArea(dispatcher)
        self.quotas = QuotasArea(dispatcher)
        self.reassignments = ReassignmentsArea(dispatcher)
        self.records = RecordsArea(dispatcher)
        self.dead_letters = DeadLettersArea(dispatcher)
        self.named_queues = NamedQueuesArea(dispatcher)
        self.queues = QueuesArea(dispatcher)
        self.schedules = SchedulesArea(dispatcher)
        self.schemas = SchemasArea(dispatcher)
        self.share_groups = ShareGroupsArea(dispatcher)
        self.tenants = TenantsArea(dispatcher)
        self.topics = TopicsArea(dispatcher)
        self.transactions = TransactionsArea(dispatcher)
        self.users = UsersArea(dispatcher)
        self._dispatcher = dispatcher
        if routes_by is not None:
            dispatcher.last_resort = routes_by._dispatcher.forwarder
        elif broker.peers is not None:
            dispatcher.forwarder = Forwarder(broker, broker.peers, dispatcher.perform)
            dispatcher.last_resort = dispatcher.forwarder

    @property
    def client_telemetry(self) -> ClientTelemetry | None:
        """What clients report of themselves; None if they are not asked to."""
        return self._broker.measuring.client_telemetry

    @property
    def policy(self) -> Policy | None:
        """What decides who may do what; None if everything is allowed."""
        return self._authoriser.policy

    @policy.setter
    def policy(self, policy: Policy | None) -> None:
        self._authoriser.replace(policy)

    def shared(self, session: Session) -> Session:
        """Return the one object for all connections whose sessions are equal.

        What is written together is reported by sender, and one object is compared at no cost.
        """
        return self._sessions.setdefault(session, session)

    def grants(self, session: Session) -> Grants:
        """Return what a session may write and read; sessions of one identity share it.

        A connection keeps it, and requests it again when its client has re-authenticated.
        """
        identity: _Identity = (session.principal, session.tenant, session.client_host)
        if self.client_limits.table.uses_client_ids:
            identity = (*identity, session.client_id)
        known = self._grants.get(identity)
        if known is None:
            known = self._grants[identity] = Grants(
                self._broker, self._authoriser, session, self._dispatcher.traffic_observer
            )
        if self.client_limits.is_active:
            known.use_meter(self.client_limits.meter(session))
        return known

    def seat(self) -> Seat:
        """Return what counts a new connection among those of its user."""
        return Seat(self.client_limits)

    def _drop_grants(self) -> None:
        """Let connections request their grants again, because quotas have changed."""
        for grants in list(self._grants.values()):
            grants.use_meter(self.client_limits.stale)
        self._grants.clear()

    def _clear_grants(self) -> None:
        for grants in list(self._grants.values()):
            grants.clear()
