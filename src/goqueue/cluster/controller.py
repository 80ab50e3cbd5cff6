"""The active controller: the one node that decides what becomes fact. It lives where Raft leads.

It decides on its own copy of the state, to which it applies each decision at once. Decisions are
proposed in the order in which they were made, and are committed in that order or lost together
with this controller: so no two of them can contradict each other, and nobody waits for a commit
to decide the next. What a decision says may be acted upon only when it is committed. A controller
that is no longer Raft's leader is thrown away; the next begins with the committed facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from goqueue.cluster import consequences, partition_changes, reassigning, topic_changes
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

NODES_MAX = 1000  # registered at a time; forgotten ones are unregistered by an operator


class Controller:
    """Each method returns the changes to propose, none of them if there is nothing to do."""

    def __init__(
        self,
        metadata: Metadata,
        settings: ClusterSettings,
        *,
        index: int,
        now_ms: int,
        internal_topics: Sequence[InternalTopic] = (),
    ) -> None:
        """`metadata` has all of the log up to `index`, the first entry of this Raft term too."""
        self.metadata = metadata.copy()
        self._settings = settings
        self._internal_topics = internal_topics
        self._sessions = Sessions(settings.session_ms, now_ms)
        self._sessions.begin(self.metadata.nodes, index=index, now_ms=now_ms)
        self._is_strange = True  # It has not looked yet at what its predecessor left unfinished.
        self._rebalanced_ms = now_ms

    # What the driver tells

    def applied(self, index: int, decision: Decision) -> None:
        """A decision of this controller is committed, as this entry of the log."""
        for change in decision:
            # A word about an earlier life of the node says nothing about what this one has read.
            if isinstance(change, NodeFact) and self._is_current(change):
                self._sessions.written(change.id, index)

    def record(self, changes: Iterable[Change]) -> Decision:
        """Make facts of what others have decided and nobody else can contradict: jobs, groups."""
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
    ) -> Decision:
        """A node has started. It is fenced until it has read the log up to here."""
        before = self.metadata.nodes.get(node)
        if before is not None and before.incarnation == incarnation:
            self._check_cluster(cluster_id)
            self._sessions.heard(node, now_ms)
            return ()
        self.check_register(node, addresses, now_ms=now_ms, cluster_id=cluster_id)
        changes: list[Change] = []
        if before is not None:
            changes += consequences.left(self.metadata, [node], has_lost_disk=before.disk != disk)
        self._sessions.registered(node, now_ms)
        fact = NodeFact(node, incarnation, dict(addresses), rack=rack, disk=disk)
        if before is not None:
            # What operators want of a node outlives a restart.
            fact = msgspec.structs.replace(
                fact,
                is_draining=before.is_draining,
                feeding_bytes_per_second=before.feeding_bytes_per_second,
                catching_up_bytes_per_second=before.catching_up_bytes_per_second,
            )
        changes.append(fact)
        return self._decide(changes)

    def check_register(
        self, node: int, addresses: Mapping[str, str], *, now_ms: int, cluster_id: str = ""
    ) -> None:
        """Raise when a new incarnation of the node would be refused."""
        self._check_cluster(cluster_id)
        before = self.metadata.nodes.get(node)
        if before is None and len(self.metadata.nodes) >= NODES_MAX:
            raise InvalidRequest(f"A cluster has at most {NODES_MAX} nodes; unregister old ones.")
        if before is not None and self._is_elsewhere(before, addresses, now_ms):
            raise NodeConflict(node)
        if before is not None and not before.is_fenced and self._has_assumed(node):
            # Whoever starts anew leaves the in-sync sets that others are in. After an outage of all
            # nodes none but the last would be in them, if the others still count as alive.
            raise RequestTimedOut(
                f"It is not known yet which nodes are alive besides node {node}; retry."
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
    ) -> Decision:
        """A node lives, has read the log up to `applied_index`, and may want to stop.

        `integrity` are its in-sync copies that may lack what they had, as of that index.
        """
        fact = self._registered(node, incarnation)
        session = self._sessions.heard(node, now_ms)
        changes: list[Change] = []
        if wants_drain and not fact.is_stopping:
            fact = msgspec.structs.replace(fact, is_stopping=True)
            changes += consequences.drained(self.metadata, fact)
        has_read = session.index is not None and applied_index >= session.index
        # Who is about to stop will start again, with a new incarnation, and be trusted then.
        if fact.is_fenced and has_read and not fact.is_stopping:
            free = msgspec.structs.replace(fact, is_fenced=False)
            changes += consequences.trusted(self.metadata, free, integrity)
        return self._decide(changes)

    def leave(self, node: int, incarnation: bytes) -> Decision:
        """A node stops now: nobody has to wait until its session expires."""
        fact = self._registered(node, incarnation)
        gone = msgspec.structs.replace(fact, is_fenced=True, is_stopping=True)
        if gone == fact:
            return ()
        return self._decide([*consequences.left(self.metadata, [node]), gone])

    def drain(self, node: int, *, is_wanted: bool = True) -> Decision:
        """Move leaders away from a node and give it no others, until the wish is taken back."""
        fact = self.metadata.nodes.get(node)
        if fact is None:
            raise UnknownNode(node)
        if fact.is_draining == is_wanted:
            return ()
        after = msgspec.structs.replace(fact, is_draining=is_wanted)
        return self._decide(consequences.drained(self.metadata, after))

    def throttle_node(
        self,
        node: int,
        *,
        feeding_bytes_per_second: int | None,
        catching_up_bytes_per_second: int | None,
    ) -> Decision:
        """Limit what a node sends to copies not in sync, and what its own such copies take."""
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
        """Forget a node that has stopped for good and keeps nothing."""
        self.check_unregister(node)
        self._sessions.forget(node)
        return self._decide([Forget(node_key(node))])

    def check_unregister(self, node: int) -> None:
        """Raise when `unregister` would be refused."""
        fact = self.metadata.nodes.get(node)
        if fact is None:
            raise UnknownNode(node)
        if not fact.is_fenced:
            raise NodeInUse(f"Node {node} is running; stop it first.")
        count = self.metadata.partitions.replica_count(node)
        if count:
            raise NodeInUse(f"Node {node} keeps {count} replicas; reassign them first.")

    def lost(self, node: int) -> None:
        """A node was found to be gone: the next `tick` does not wait for its session to expire."""
        self._sessions.end(node)

    def tick(self, now_ms: int) -> Decision:
        """Fence who is silent or gone, and now and then put leaders where they belong."""
        silent = self._sessions.expired(self.metadata.nodes.values(), now_ms)
        changes: list[Change] = []
        if silent:
            changes += consequences.left(self.metadata, silent)
            nodes = self.metadata.nodes
            changes += [msgspec.structs.replace(nodes[node], is_fenced=True) for node in silent]
            for node in silent:
                self._sessions.decided(node)  # It must have read this before it is trusted again.
        decided = self._decide(changes)
        is_due = now_ms - self._rebalanced_ms >= self._settings.rebalance_ms
        if is_due or self._is_strange:
            decided += self._decide(consequences.tidied(self.metadata))
            self._is_strange = False
        if is_due:
            self._rebalanced_ms = now_ms
            decided += self._decide(
                consequences.rebalanced(
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
        """What the leader `node` asks for. `incarnations` are those in which it saw the members."""
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
        """What a node has of partitions about which those in sync are in doubt."""
        self._registered(node, incarnation)
        standing = Standing(self.metadata.nodes)
        return self._decide(partition_changes.weighed(self.metadata, node, copies, standing))

    def give_up_copy(
        self, node: int, incarnation: bytes, topic_id: bytes, number: int, *, version: int
    ) -> Decision:
        """A node cannot read a part of its copy; whoever can should lead, and let it heal."""
        self._registered(node, incarnation)
        fact = self._partition(topic_id, number)
        after = partition_changes.given_up(self.metadata, fact, node=node, version=version)
        return self._decide([after] if after is not fact else [])

    def elect(self, topic_id: bytes, number: int, *, is_unclean: bool = False) -> Decision:
        """The preferred leader, or any replica that is alive if nobody in sync is."""
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
        """Without a word about its throttle, a move keeps that which it has."""
        fact = self._partition(topic_id, number)
        after = partition_changes.moved(self.metadata, fact, replicas)
        if throttle_bytes_per_second is not None:
            after = reassigning.throttled(after, throttle_bytes_per_second, before=fact)
        return self._decide([after] if after is not fact else [])

    def throttle_move(self, topic_id: bytes, number: int, bytes_per_second: int) -> Decision:
        fact = self._partition(topic_id, number)
        if not fact.is_moving:
            raise NoReassignment(partition_changes.name_of(self.metadata, fact))
        after = reassigning.throttled(fact, bytes_per_second)
        return self._decide([after] if after is not fact else [])

    def cancel_reassign(self, topic_id: bytes, number: int) -> Decision:
        fact = self._partition(topic_id, number)
        return self._decide([partition_changes.move_cancelled(self.metadata, fact)])

    def end_routing(
        self, node: int, topic_id: bytes, told: Mapping[int, tuple[int, int]]
    ) -> Decision:
        """Where old routing ended: leader epoch and offset of each partition that `node` leads."""
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
        # Unclean elections may be allowed from now on.
        kept = self.metadata.partitions.of_topic(topic.id)
        return decided + self._decide(consequences.resolved(self.metadata, kept))

    def delete_topic(self, name: str) -> Decision:
        self._refuse_internal(name)
        return self._decide(topic_changes.deleted(self.metadata, name))

    def create_internal_topics(self, new_id: Callable[[], bytes]) -> Decision:
        """Those that are missing, on as many nodes as there are; they grow as nodes join."""
        return self._decide(
            topic_changes.internal_created(self.metadata, self._internal_topics, new_id)
        )

    def adopt(self, node: int) -> Decision:
        """Make the topics that a single node has brought along partitions of the cluster."""
        if node not in self.metadata.nodes:
            raise UnknownNode(node)
        decided = self._decide(topic_changes.adopted(self.metadata, node))
        kept = self.metadata.partitions.of_node(node)
        return decided + self._decide(consequences.resolved(self.metadata, kept))

    # Deciding

    def _decide(self, changes: Iterable[Change]) -> Decision:
        """Take the changes for true, since whatever is decided next will be committed after."""
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
        """Whether others count as alive of whom this controller has heard nothing yet."""
        nodes = self.metadata.nodes.values()
        others = (one.id for one in nodes if one.id != node and not one.is_fenced)
        return any(self._sessions.is_assumed(other) for other in others)

    def _is_current(self, change: NodeFact) -> bool:
        known = self.metadata.nodes.get(change.id)
        return known is not None and known.incarnation == change.incarnation

    def _is_elsewhere(self, before: NodeFact, addresses: Mapping[str, str], now_ms: int) -> bool:
        """Whether a node of this id is running that cannot be the one which asks.

        Two processes cannot listen at one address: at the same one, the former is gone.
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
