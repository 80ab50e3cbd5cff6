"""The active controller: the one node that decides changes of the metadata, on the Raft leader.

It decides on its own copy of the state, to which it applies each decision at once. Decisions are
proposed in the order in which they are made; they are committed in that order, or lost together
with this controller. So no two of them contradict each other, and none waits for the commit of the
one before. A decision may be acted upon only when it is committed. A controller that is no longer
the Raft leader is discarded; the next one starts from the committed metadata only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from goqueue.cluster import levels, partition_changes, topic_changes
from goqueue.cluster.commands import CopyClaim
from goqueue.cluster.elections import Standing
from goqueue.cluster.facts import (
    Change,
    Decision,
    Forget,
    NodeFact,
    PartitionFact,
    TopicFact,
    node_key,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.nodes import Sessions
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import ClusterSettings
from goqueue.model import errors
from goqueue.model.errors import (
    ForeignCluster,
    InvalidRequest,
    NodeConflict,
    NodeInUse,
    NoReassignment,
    RequestTimedOut,
    StaleIncarnation,
    UnknownNode,
)
from goqueue.model.support import SUPPORT, Support

NODES_MAX = 1000  # registered at a time; an operator unregisters those that are gone for good


class Controller:
    """Decides changes of the metadata.

    Each method returns the changes to propose, an empty decision if there is nothing to do.
    """

    def __init__(
        self,
        metadata: Metadata,
        settings: ClusterSettings,
        *,
        index: int,
        now_ms: int,
        internal_topics: Sequence[InternalTopic] = (),
        support: Support = SUPPORT,
    ) -> None:
        """`metadata` has the log applied up to `index`, with the first entry of this Raft term.

        `support` is that of the release of this node.
        """
        self.metadata = metadata.copy()
        self._settings = settings
        self._internal_topics = internal_topics
        self._support = support
        self._sessions = Sessions(settings.session_ms, now_ms)
        self._sessions.begin(self.metadata.nodes, index=index, now_ms=now_ms)
        self._is_strange = True  # True until it has completed what its predecessor left unfinished
        self._rebalanced_ms = now_ms

    # Calls of the driver

    def applied(self, index: int, decision: Decision) -> None:
        """Note that a decision of this controller is committed, as this entry of the log."""
        for change in decision:
            # An entry about an earlier incarnation does not show what the current one has read.
            if isinstance(change, NodeFact) and self._is_current(change):
                self._sessions.written(change.id, index)

    def record(self, changes: Iterable[Change]) -> Decision:
        """Accept changes that were decided elsewhere and cannot conflict: jobs, groups."""
        return self._decide(changes)

    # Nodes

    def register(
        self,
        node: int,
        incarnation: bytes,
        addresses: Mapping[str, str],
        *,
        now_ms: int,
        rack: str = "",
        disk: bytes = b"",
        cluster_id: str = "",
        support: Support | None = None,
    ) -> Decision:
        """Register a node that has started; it is fenced until it has applied the log to here."""
        before = self.metadata.nodes.get(node)
        if before is not None and before.incarnation == incarnation:
            self._check_cluster(cluster_id)
            self._sessions.heard(node, now_ms)
            return ()
        self.check_register(node, addresses, now_ms=now_ms, cluster_id=cluster_id, support=support)
        changes: list[Change] = []
        if before is not None:
            changes += partition_changes.nodes_left(
                self.metadata, [node], has_lost_disk=before.disk != disk
            )
        self._sessions.registered(node, now_ms)
        fact = NodeFact(node, incarnation, dict(addresses), rack=rack, disk=disk, support=support)
        if before is not None:
            # What operators have set for a node survives a restart.
            fact = msgspec.structs.replace(
                fact,
                is_draining=before.is_draining,
                feeding_bytes_per_second=before.feeding_bytes_per_second,
                catching_up_bytes_per_second=before.catching_up_bytes_per_second,
            )
        changes.append(fact)
        return self._decide(changes)

    def check_register(
        self,
        node: int,
        addresses: Mapping[str, str],
        *,
        now_ms: int,
        cluster_id: str = "",
        support: Support | None = None,
    ) -> None:
        """Raise if a new incarnation of the node would be refused."""
        self._check_cluster(cluster_id)
        levels.check_node(self.metadata, node, support)
        before = self.metadata.nodes.get(node)
        if before is None and len(self.metadata.nodes) >= NODES_MAX:
            raise InvalidRequest(f"A cluster has at most {NODES_MAX} nodes; unregister old ones.")
        if before is not None and self._is_elsewhere(before, addresses, now_ms):
            raise NodeConflict(node)
        if before is not None and not before.is_fenced and self._has_assumed(node):
            # A node that registers again leaves the in-sync sets that have other members. If the
            # others were only assumed to be alive after an outage of all nodes, the last node to
            # start would be the only member left in them.
            raise RequestTimedOut(
                f"The controller does not know yet which nodes other than {node} are alive; retry."
            )

    def heartbeat(
        self,
        node: int,
        incarnation: bytes,
        *,
        applied_index: int,
        wants_drain: bool,
        now_ms: int,
        integrity: Sequence[CopyClaim] = (),
        support: Support | None = None,
    ) -> Decision:
        """Renew a node's session, and drain it or unfence it if that is due.

        The node has applied the log up to `applied_index`. `integrity` lists its in-sync replicas
        that may lack records, as of that index.
        """
        fact = self._registered(node, incarnation)
        session = self._sessions.heard(node, now_ms)
        changes: list[Change] = []
        if support is not None and support != fact.support:
            fact = msgspec.structs.replace(fact, support=support)
            changes.append(fact)
        if wants_drain and not fact.is_stopping:
            fact = msgspec.structs.replace(fact, is_stopping=True)
            changes += partition_changes.node_drained(self.metadata, fact)
        has_read = session.index is not None and applied_index >= session.index
        # A stopping node is unfenced only after its restart, as a new incarnation.
        if fact.is_fenced and has_read and not fact.is_stopping:
            free = msgspec.structs.replace(fact, is_fenced=False)
            changes += partition_changes.node_trusted(self.metadata, free, integrity)
        return self._decide(changes)

    def leave(self, node: int, incarnation: bytes) -> Decision:
        """Fence a node that is stopping, without waiting for its session to expire."""
        fact = self._registered(node, incarnation)
        gone = msgspec.structs.replace(fact, is_fenced=True, is_stopping=True)
        if gone == fact:
            return ()
        return self._decide([*partition_changes.nodes_left(self.metadata, [node]), gone])

    def finalize(self, level: int) -> Decision:
        """Raise the feature level of the cluster."""
        return self._decide(levels.finalized(self.metadata, level, self._support))

    def drain(self, node: int, *, is_wanted: bool = True) -> Decision:
        """Move leaders away from a node and elect it for none, until the drain is ended."""
        fact = self.metadata.nodes.get(node)
        if fact is None:
            raise UnknownNode(node)
        if fact.is_draining == is_wanted:
            return ()
        after = msgspec.structs.replace(fact, is_draining=is_wanted)
        return self._decide(partition_changes.node_drained(self.metadata, after))

    def throttle_node(
        self,
        node: int,
        *,
        feeding_bytes_per_second: int | None,
        catching_up_bytes_per_second: int | None,
    ) -> Decision:
        """Limit what a node sends to replicas not in sync, and what its own such replicas fetch."""
        fact = self.metadata.nodes.get(node)
        if fact is None:
            raise UnknownNode(node)
        after = fact
        if feeding_bytes_per_second is not None:
            after = msgspec.structs.replace(
                after, feeding_bytes_per_second=feeding_bytes_per_second
            )
        if catching_up_bytes_per_second is not None:
            after = msgspec.structs.replace(
                after, catching_up_bytes_per_second=catching_up_bytes_per_second
            )
        return self._decide([after] if after != fact else [])

    def unregister(self, node: int) -> Decision:
        """Remove a node that has stopped for good and has no replicas."""
        self.check_unregister(node)
        self._sessions.forget(node)
        return self._decide([Forget(node_key(node))])

    def check_unregister(self, node: int) -> None:
        """Raise if `unregister` would be refused."""
        fact = self.metadata.nodes.get(node)
        if fact is None:
            raise UnknownNode(node)
        if not fact.is_fenced:
            raise NodeInUse(f"Node {node} is running; stop it first.")
        count = self.metadata.partitions.replica_count(node)
        if count:
            raise NodeInUse(f"Node {node} has {count} replicas; reassign them first.")

    def lost(self, node: int) -> None:
        """End a node's session at once because the node was found to be gone."""
        self._sessions.end(node)

    def tick(self, now_ms: int) -> Decision:
        """Fence nodes whose session has ended, and periodically rebalance leaders."""
        silent = self._sessions.expired(self.metadata.nodes.values(), now_ms)
        changes: list[Change] = []
        if silent:
            changes += partition_changes.nodes_left(self.metadata, silent)
            nodes = self.metadata.nodes
            changes += [msgspec.structs.replace(nodes[node], is_fenced=True) for node in silent]
            for node in silent:
                self._sessions.decided(node)  # It must have applied this before it is unfenced.
        decided = self._decide(changes)
        is_due = now_ms - self._rebalanced_ms >= self._settings.rebalance_ms
        if is_due or self._is_strange:
            decided += self._decide(partition_changes.tidied(self.metadata))
            self._is_strange = False
        if is_due:
            self._rebalanced_ms = now_ms
            decided += self._decide(
                partition_changes.rebalanced(
                    self.metadata,
                    [topic.name for topic in self._internal_topics],
                    moves_max=self._settings.leader_moves_max,
                )
            )
        return decided

    # Partitions

    def change_in_sync(
        self,
        node: int,
        topic_id: bytes,
        number: int,
        in_sync: Collection[int],
        *,
        leader_epoch: int,
        version: int,
        incarnations: Mapping[int, bytes] | None = None,
    ) -> Decision:
        """Change the in-sync set as proposed by the leader `node`.

        `incarnations` are those in which the leader saw the members.
        """
        fact = self._partition(topic_id, number)
        after = partition_changes.in_sync_changed(
            self.metadata,
            fact,
            node=node,
            in_sync=in_sync,
            leader_epoch=leader_epoch,
            version=version,
            incarnations=incarnations or {},
        )
        return self._decide([after] if after is not fact else [])

    def claim_copies(self, node: int, incarnation: bytes, copies: Sequence[CopyClaim]) -> Decision:
        """Record what a node has of partitions without a replica that is known to be complete."""
        self._registered(node, incarnation)
        standing = Standing(self.metadata.nodes)
        return self._decide(partition_changes.weighed(self.metadata, node, copies, standing))

    def give_up_copy(
        self, node: int, incarnation: bytes, topic_id: bytes, number: int, *, version: int
    ) -> Decision:
        """Move leadership away from a damaged replica, so that it can recover."""
        self._registered(node, incarnation)
        fact = self._partition(topic_id, number)
        after = partition_changes.given_up(self.metadata, fact, node=node, version=version)
        return self._decide([after] if after is not fact else [])

    def elect(self, topic_id: bytes, number: int, *, is_unclean: bool = False) -> Decision:
        """Elect the preferred leader; if unclean, any live replica when none in sync is alive."""
        fact = self._partition(topic_id, number)
        return self._decide([partition_changes.elected(self.metadata, fact, is_unclean=is_unclean)])

    def reassign(
        self,
        topic_id: bytes,
        number: int,
        replicas: Sequence[int],
        *,
        throttle_bytes_per_second: int | None = None,
    ) -> Decision:
        """Move a partition to other replicas; without a throttle, a move keeps the one it has."""
        fact = self._partition(topic_id, number)
        after = partition_changes.moved(self.metadata, fact, replicas)
        if throttle_bytes_per_second is not None:
            after = partition_changes.move_throttled(after, throttle_bytes_per_second, before=fact)
        return self._decide([after] if after is not fact else [])

    def throttle_move(self, topic_id: bytes, number: int, bytes_per_second: int) -> Decision:
        fact = self._partition(topic_id, number)
        if not fact.is_moving:
            raise NoReassignment(partition_changes.name_of(self.metadata, fact))
        after = partition_changes.move_throttled(fact, bytes_per_second)
        return self._decide([after] if after is not fact else [])

    def cancel_reassign(self, topic_id: bytes, number: int) -> Decision:
        fact = self._partition(topic_id, number)
        return self._decide([partition_changes.move_cancelled(self.metadata, fact)])

    def end_routing(
        self, node: int, topic_id: bytes, told: Mapping[int, tuple[int, int]]
    ) -> Decision:
        """Record where old routing ended: epoch and offset of partitions that `node` leads."""
        return self._decide(
            partition_changes.routing_ended(self.metadata, topic_id, node=node, told=told)
        )

    # Topics

    def create_topic(
        self,
        fact: TopicFact,
        *,
        replication_factor: int,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Decision:
        return self._decide(
            topic_changes.created(
                self.metadata,
                fact,
                replication_factor=replication_factor,
                assignments=assignments,
            )
        )

    def add_partitions(
        self,
        name: str,
        partition_count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Decision:
        self._refuse_internal(name)
        return self._decide(
            topic_changes.grown(
                self.metadata, name, partition_count=partition_count, assignments=assignments
            )
        )

    def configure_topic(self, name: str, settings: Mapping[str, str]) -> Decision:
        decided = self._decide(topic_changes.configured(self.metadata, name, settings))
        topic = topic_changes.known(self.metadata, name)
        # The new settings may allow unclean elections.
        kept = self.metadata.partitions.of_topic(topic.id)
        return decided + self._decide(partition_changes.all_resolved(self.metadata, kept))

    def delete_topic(self, name: str) -> Decision:
        self._refuse_internal(name)
        return self._decide(topic_changes.deleted(self.metadata, name))

    def create_internal_topics(self, new_id: Callable[[], bytes]) -> Decision:
        """Create missing internal topics on as many nodes as there are; they spread later."""
        return self._decide(
            topic_changes.internal_created(self.metadata, self._internal_topics, new_id)
        )

    def adopt(self, node: int) -> Decision:
        """Turn the topics of a former single node into partitions of the cluster."""
        if node not in self.metadata.nodes:
            raise UnknownNode(node)
        decided = self._decide(topic_changes.adopted(self.metadata, node))
        kept = self.metadata.partitions.of_node(node)
        return decided + self._decide(partition_changes.all_resolved(self.metadata, kept))

    # Deciding

    def _decide(self, changes: Iterable[Change]) -> Decision:
        """Apply the changes at once, since every later decision is committed after this one."""
        decision = tuple(changes)
        self.metadata.apply_all(decision)
        return decision

    # Checking

    def _partition(self, topic_id: bytes, number: int) -> PartitionFact:
        return partition_changes.known(self.metadata, topic_id, number)

    def _registered(self, node: int, incarnation: bytes) -> NodeFact:
        fact = self.metadata.nodes.get(node)
        if fact is None:
            raise UnknownNode(node)
        if fact.incarnation != incarnation:
            raise StaleIncarnation(node)
        return fact

    def _has_assumed(self, node: int) -> bool:
        """Return whether other unfenced nodes have not sent a heartbeat to this controller yet."""
        nodes = self.metadata.nodes.values()
        others = (one.id for one in nodes if one.id != node and not one.is_fenced)
        return any(self._sessions.is_assumed(other) for other in others)

    def _is_current(self, change: NodeFact) -> bool:
        known = self.metadata.nodes.get(change.id)
        return known is not None and known.incarnation == change.incarnation

    def _is_elsewhere(self, before: NodeFact, addresses: Mapping[str, str], now_ms: int) -> bool:
        """Return whether another live process has this node id.

        Two processes cannot listen at one address: with the same address, the former process is
        gone.
        """
        is_running = not before.is_fenced and self._sessions.is_heard(before.id, now_ms)
        return is_running and before.addresses != dict(addresses)

    def _check_cluster(self, cluster_id: str) -> None:
        cluster = self.metadata.cluster
        if cluster_id and cluster is not None and cluster.cluster_id != cluster_id:
            raise ForeignCluster(cluster_id, cluster.cluster_id)

    def _refuse_internal(self, name: str) -> None:
        if any(name == topic.name for topic in self._internal_topics):
            raise errors.InternalTopic(name)
