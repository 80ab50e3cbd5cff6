"""Operations on the cluster: its nodes, the controller and the metadata quorum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.broker.administration import (
    ClusterLevel,
    NodeView,
    PartitionView,
    VoterView,
)
from goqueue.broker.controller.calls import QuorumMember, QuorumState
from goqueue.broker.gate.operation import Area, cluster, everybody, operation, query
from goqueue.loop.promise import Promise
from goqueue.model.access import Action
from goqueue.model.session import Session
from goqueue.model.tenants import Text, TopicName

__all__ = [
    "ClusterArea",
    "ClusterLevel",
    "ClusterProblems",
    "ClusterSummary",
    "DrainState",
    "Endpoint",
    "NodeView",
    "PartitionView",
    "QuorumMember",
    "QuorumState",
    "VoterView",
]


class ClusterSummary(NamedTuple):
    """The cluster at a glance."""

    cluster_id: Text
    controller: int  # -1 if there is none
    voters: Sequence[int]
    node_count: int
    running_count: int
    topic_count: int
    partition_count: int
    leaderless_count: int
    under_replicated_count: int
    moving_count: int


class ClusterProblems(NamedTuple):
    """Problems that need an operator's attention."""

    has_controller: bool
    leaderless: Sequence[PartitionView]
    under_replicated: Sequence[PartitionView]  # besides those without a leader
    fenced: Sequence[int]  # nodes


class DrainState(NamedTuple):
    """How many partitions a node still leads; `stuck` lists the first of them."""

    is_draining: bool
    leader_count: int
    stuck: Sequence[tuple[TopicName, int]]


class Endpoint(NamedTuple):
    """The address of a node for clients."""

    address: Text
    rack: Text


class ClusterArea(Area):
    """Nodes and voters. A single node answers as a cluster of one."""

    # Inspection

    @query(Action.DESCRIBE, cluster)
    def summary(self, session: Session) -> ClusterSummary:
        """Summarise the cluster."""
        broker = self._broker
        nodes = broker.administration.nodes()
        partitions = list(broker.administration.partitions())
        return ClusterSummary(
            broker.cluster_id,
            broker.controller_id,
            broker.administration.voters,
            len(nodes),
            sum(not one.is_fenced for one in nodes),
            len(broker.topics),
            len(partitions),
            sum(one.is_leaderless for one in partitions),
            sum(one.is_under_replicated for one in partitions),
            sum(one.is_moving for one in partitions),
        )

    @query(Action.DESCRIBE, cluster)
    def problems(self, session: Session) -> ClusterProblems:
        """Return the problems that need an operator's attention."""
        broker = self._broker
        partitions = list(broker.administration.partitions())
        return ClusterProblems(
            broker.controller_id >= 0,
            [one for one in partitions if one.is_leaderless],
            [one for one in partitions if one.is_under_replicated and not one.is_leaderless],
            [one.id for one in broker.administration.nodes() if one.is_fenced],
        )

    @query(Action.DESCRIBE, cluster)
    def nodes(self, session: Session) -> Sequence[NodeView]:
        """Return all registered nodes, by id."""
        return self._broker.administration.nodes()

    @query(Action.DESCRIBE, cluster)
    def node(self, session: Session, *, node: int) -> NodeView:
        """Return a registered node."""
        return self._broker.administration.node(node)

    @query(Action.DESCRIBE, cluster)
    def drain_state(self, session: Session, *, node: int) -> DrainState:
        """Return how many partitions a node that is being drained still leads."""
        view = self._broker.administration.node(node)
        report = self._broker.administration.drain_report(node)
        return DrainState(view.is_draining, report.leader_count, report.stuck)

    @query(Action.DESCRIBE, cluster)
    def level(self, session: Session) -> ClusterLevel:
        """Return the feature level of the cluster, and how far it can be raised."""
        return self._broker.administration.level()

    @query(Action.DESCRIBE, cluster)
    def voters(self, session: Session) -> Sequence[VoterView]:
        """Return the members of the metadata quorum by id, voters and observers."""
        return self._broker.administration.quorum()

    @operation(Action.DESCRIBE, cluster, is_reading=True)
    def quorum_state(self, session: Session) -> Promise[QuorumState]:
        """Return how far each member of the quorum has replicated its log."""
        return self._broker.administration.quorum_state()

    # For clients that route requests themselves: every client may find the nodes.

    @query(Action.DESCRIBE, everybody)
    def endpoints(self, session: Session, *, listener: Text) -> dict[int, Endpoint] | None:
        """Return the address of each available node for clients; None on a single node.

        Nodes without a listener of that name are left out.
        """
        known = self._broker.cluster
        if known is None:
            return None
        return {
            one.id: Endpoint(one.addresses[listener].rpartition("://")[2], one.rack)
            for one in known.nodes()
            if listener in one.addresses and known.is_there(one.id)
        }

    @query(Action.DESCRIBE, everybody)
    def controller(self, session: Session) -> int:
        """Return the active controller; -1 if there is none."""
        return self._broker.controller_id

    # Changing

    @query(Action.ALTER, cluster)
    def check_alterable(self, session: Session) -> None:
        """Raise unless the session may change the cluster, for changes not supported here."""

    @operation(Action.ALTER, cluster)
    def drain(self, session: Session, *, node: int, is_wanted: bool = True) -> Promise[None]:
        """Move leadership away from a node, and keep it away until this is revoked."""
        return self._broker.administration.drain(node, is_wanted=is_wanted)

    @operation(Action.ALTER, cluster)
    def finalize(self, session: Session, *, level: int) -> Promise[None]:
        """Raise the feature level of the cluster, which ends an upgrade and cannot be undone."""
        return self._broker.administration.finalize(level)

    @operation(Action.ALTER, cluster)
    def unregister(self, session: Session, *, node: int) -> Promise[None]:
        """Remove a node that has stopped permanently and has no replicas."""
        return self._broker.administration.unregister(node)

    @operation(Action.ALTER, cluster)
    def change_voter(self, session: Session, *, node: int, is_wanted: bool) -> Promise[None]:
        """Make a node a voter of the metadata quorum, or an observer."""
        return self._broker.administration.change_voter(node, is_wanted=is_wanted)
