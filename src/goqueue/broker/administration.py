"""Administration of a cluster: inspect and drain nodes, move partitions, elect leaders.

A single node answers the same calls, as a cluster of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from goqueue.broker.controller.calls import QuorumMember, QuorumState
from goqueue.broker.controller.metadata import done
from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.replication.deletions import DELETION_TIMEOUT_MS
from goqueue.broker.topics.compactor import Compactor
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.commands import (
    ChangeVoter,
    ClusterCommand,
    DrainNode,
    ElectLeader,
    FinalizeLevel,
    Reassign,
    ThrottleMove,
    ThrottleNode,
    UnregisterNode,
)
from goqueue.cluster.facts import NO_LEADER, NodeFact, PartitionFact
from goqueue.cluster.nodes import DrainReport, drain_report
from goqueue.cluster.placement import check_assignment
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    ElectionNotNeeded,
    InternalTopic,
    InvalidReplicaAssignment,
    InvalidRequest,
    NodeInUse,
    NoReassignment,
    NotCompacted,
    QuorumAtRisk,
    RecordsKept,
    UnknownNode,
)
from goqueue.model.names import TopicPartition
from goqueue.model.support import SUPPORT, UNKNOWN, Support, common_level, release
from goqueue.model.tenants import Text, TopicName


class NodeView(NamedTuple):
    """A node as registered in the cluster."""

    id: int
    addresses: Mapping[Text, Text]  # by listener name
    rack: Text
    is_fenced: bool  # it sends no heartbeats, or has not applied the log yet
    is_draining: bool
    is_stopping: bool
    is_voter: bool
    is_controller: bool
    leader_count: int
    replica_count: int
    feeding_bytes_per_second: int = 0  # to replicas not in sync; 0 means its settings
    catching_up_bytes_per_second: int = 0  # of its own such replicas
    support: Support = UNKNOWN  # what its release supports


class ClusterLevel(NamedTuple):
    """The feature level of the cluster, and the newest one that all registered nodes support."""

    level: int
    supported: int


class VoterView(NamedTuple):
    """A member of the quorum, voter or learner."""

    id: int
    is_voter: bool
    is_controller: bool
    is_running: bool


class PartitionView(NamedTuple):
    """The replicas of a partition; while it moves, `target` is the new list."""

    topic: TopicName
    number: int
    leader: int  # -1 if no node can lead
    leader_epoch: int
    replicas: tuple[int, ...]  # the first is the preferred leader
    in_sync: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    is_lost: bool = False  # all in-sync replicas have lost their disks
    throttle_bytes_per_second: int = 0  # per node, to new replicas; 0 is unlimited

    @property
    def is_moving(self) -> bool:
        return bool(self.target)

    @property
    def is_leaderless(self) -> bool:
        return self.leader == NO_LEADER

    @property
    def is_under_replicated(self) -> bool:
        return any(node not in self.in_sync for node in self.replicas)


class Administration:
    """Operations of operators, available on every node."""

    def __init__(
        self,
        node_id: int,
        topics: Topics,
        cluster: Clustering | None,
        compactor: Compactor,
        addresses: Callable[[], Mapping[str, str]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._topics = topics
        self._cluster = cluster
        self._compactor = compactor
        self._addresses = addresses
        self._wall_ms = wall_ms

    # Records

    def delete_records(
        self,
        topic: str,
        number: int,
        *,
        before_offset: int,
        timeout_ms: int = DELETION_TIMEOUT_MS,
    ) -> Promise[int]:
        """Delete the records before an offset, or with -1 all committed ones.

        Resolves when no in-sync replica has them any more, with the lowest start offset of these.
        """
        found = self._topics.get(topic)
        if found.is_internal:
            raise InternalTopic(topic)
        policy = found.settings.log
        if policy.is_compacting and not policy.is_deleting:
            raise RecordsKept(topic)
        start = found.partition(number).retention.delete_before(before_offset)
        if self._cluster is not None:
            wanted = start if before_offset < 0 else min(start, before_offset)
            return self._cluster.replicas.when_deleted(
                (found.id, number), wanted, timeout_ms=timeout_ms
            )
        deleted: Promise[int] = Promise()
        deleted.resolve(start)
        return deleted

    def compact(self, topic: str) -> int:
        """Request compaction of a topic; return the number of its partitions."""
        found = self._topics.get(topic)
        if found.is_internal:
            raise InternalTopic(topic)
        if not found.settings.log.is_compacting:
            raise NotCompacted(topic)
        self._compactor.request(found.partitions)
        return len(found.partitions)

    # Queries

    @property
    def voters(self) -> tuple[int, ...]:
        return (self._node_id,) if self._cluster is None else self._cluster.quorum.voters

    def quorum(self) -> list[VoterView]:
        """Return the members of the quorum by id, including voters that never registered."""
        if self._cluster is None:
            return [VoterView(self._node_id, True, True, True)]
        quorum = self._cluster.quorum
        return [
            VoterView(
                node,
                node in quorum.voters,
                node == quorum.leader,
                quorum.metadata.is_alive(node),
            )
            for node in quorum.members.all
        ]

    def quorum_state(self) -> Promise[QuorumState]:
        """Return the log position of each member of the quorum; of a single node, its own."""
        if self._cluster is not None:
            return self._cluster.quorum.states.find()
        log = self._topics.facts.log.partitions[0]
        here = QuorumMember(self._node_id, log.end_offset, self._wall_ms(), True)
        known: Promise[QuorumState] = Promise()
        known.resolve(QuorumState(self._node_id, 0, log.high_watermark, [here]))
        return known

    def nodes(self) -> list[NodeView]:
        """Return all registered nodes, by id."""
        if self._cluster is None:
            count = sum(len(topic.partitions) for topic in self._topics)
            here = dict(self._addresses())
            view = NodeView(self._node_id, here, "", False, False, False, True, True, count, count)
            return [view._replace(support=_own_support())]
        known = self._cluster.quorum.metadata.nodes
        return [self._node(known[number]) for number in sorted(known)]

    def node(self, number: int) -> NodeView:
        found = self.find_node(number)
        if found is None:
            raise UnknownNode(number)
        return found

    def find_node(self, number: int) -> NodeView | None:
        return next((one for one in self.nodes() if one.id == number), None)

    def _node(self, fact: NodeFact) -> NodeView:
        assert self._cluster is not None
        quorum = self._cluster.quorum
        partitions = quorum.metadata.partitions
        return NodeView(
            fact.id,
            fact.addresses,
            fact.rack,
            fact.is_fenced,
            fact.is_draining,
            fact.is_stopping,
            fact.id in quorum.voters,
            fact.id == quorum.leader,
            partitions.leader_count(fact.id),
            partitions.replica_count(fact.id),
            fact.feeding_bytes_per_second,
            fact.catching_up_bytes_per_second,
            fact.support or UNKNOWN,
        )

    def level(self) -> ClusterLevel:
        """Return the feature level, and how far it can be raised."""
        metadata = self._topics.facts.log.metadata
        return ClusterLevel(metadata.level, common_level(one.support for one in self.nodes()))

    def partitions(self, topic: Topic | None = None) -> Iterator[PartitionView]:
        """Yield the partitions of a topic, or of all topics, by name and number."""
        topics = sorted(self._topics, key=lambda one: one.name) if topic is None else [topic]
        for one in topics:
            for number in range(len(one.partitions)):
                yield self.partition(one, number)

    def partition(self, topic: Topic, number: int) -> PartitionView:
        fact = self._fact(topic, number)
        if fact is None:
            here = (self._node_id,)
            epoch = topic.partition(number).leader_epoch
            return PartitionView(topic.name, number, self._node_id, epoch, here, here)
        return PartitionView(
            topic.name,
            number,
            fact.leader,
            fact.leader_epoch,
            fact.replicas,
            fact.in_sync,
            fact.adding,
            fact.removing,
            fact.target,
            fact.is_lost,
            fact.throttle_bytes_per_second,
        )

    def _fact(self, topic: Topic, number: int) -> PartitionFact | None:
        topic.partition(number)
        if self._cluster is None:
            return None
        return self._cluster.quorum.metadata.partitions.get(topic.id, number)

    def moving(self) -> list[PartitionView]:
        """Return the partitions whose replicas are being moved."""
        return [one for one in self.partitions() if one.is_moving] if self._cluster else []

    def copy_bytes_per_second(self, topic: Topic, number: int) -> int:
        """Return the recent fetch rate of this node's replica of a partition."""
        if self._cluster is None:
            return 0
        return self._cluster.replicas.followed.bytes_per_second((topic.id, number))

    def drain_report(self, node: int) -> DrainReport:
        """Return how many partitions a node still leads."""
        self.node(node)
        if self._cluster is None:
            return DrainReport(node, sum(len(one.partitions) for one in self._topics), ())
        return drain_report(self._cluster.quorum.metadata, node)

    # Changes

    def drain(self, node: int, *, is_wanted: bool = True) -> Promise[None]:
        """Move leadership away from a node, until the drain is ended."""
        self.node(node)
        if self._cluster is None and is_wanted:
            raise NodeInUse(f"Node {node} is a single node; no other could lead in its place.")
        return self._decide(DrainNode(node, is_wanted))

    def throttle_node(
        self,
        node: int,
        *,
        feeding_bytes_per_second: int | None = None,
        catching_up_bytes_per_second: int | None = None,
    ) -> Promise[None]:
        """Limit what a node sends to replicas not in sync, and what its own such replicas fetch.

        0 means the settings of the node.
        """
        self.node(node)
        if self._cluster is None and (feeding_bytes_per_second or catching_up_bytes_per_second):
            raise InvalidRequest(f"Node {node} is a single node; it has no replicas to throttle.")
        return self._decide(
            ThrottleNode(node, feeding_bytes_per_second, catching_up_bytes_per_second)
        )

    def unregister(self, node: int) -> Promise[None]:
        """Remove a node that has stopped for good and has no replicas."""
        self.node(node)
        if self._cluster is None:
            raise NodeInUse(f"Node {node} is the only node and cannot be unregistered.")
        return self._decide(UnregisterNode(node))

    def finalize(self, level: int) -> Promise[None]:
        """Raise the feature level, for good; a single node always has that of its release."""
        if self._cluster is None:
            if level != self.level().level:
                raise InvalidRequest(
                    f"A single node always uses the level of its release, {self.level().level}."
                )
            done: Promise[None] = Promise()
            done.resolve(None)
            return done
        return self._decide(FinalizeLevel(level))

    def change_voter(self, node: int, *, is_wanted: bool) -> Promise[None]:
        """Make a node a voter of the quorum, or a learner."""
        if self._cluster is None:
            self.node(node)
            if not is_wanted:
                raise QuorumAtRisk(f"Node {node} is a single node; no other could vote instead.")
        return self._decide(ChangeVoter(node, is_wanted))

    def reassign(
        self,
        topic: Topic,
        number: int,
        replicas: Sequence[int],
        *,
        throttle_bytes_per_second: int | None = None,
    ) -> Promise[None]:
        """Move a partition to these nodes, the first of which is the preferred leader.

        The throttle limits what each node sends to new replicas of all partitions with the same
        throttle; 0 is unlimited, and None keeps that of a move in progress.
        """
        self._fact(topic, number)
        if not replicas:
            raise InvalidReplicaAssignment("Name at least one node as a replica of the partition.")
        if self._cluster is None and list(replicas) != [self._node_id]:
            raise InvalidReplicaAssignment(f"Node {self._node_id} is the only node; name no other.")
        return self._decide(Reassign(topic.id, number, tuple(replicas), throttle_bytes_per_second))

    def check_replicas(self, assignments: Iterable[Sequence[int]]) -> None:
        """Raise if a list of replicas names a node twice, or one that this node does not know."""
        registered = [one.id for one in self.nodes()]
        for replicas in assignments:
            check_assignment(replicas, registered)

    def throttle_reassignment(
        self, topic: Topic, number: int, bytes_per_second: int
    ) -> Promise[None]:
        """Set the rate limit of a move in progress; 0 is unlimited."""
        self._fact(topic, number)
        if self._cluster is None:
            raise NoReassignment(TopicPartition(topic.name, number))
        return self._decide(ThrottleMove(topic.id, number, bytes_per_second))

    def cancel_reassignment(self, topic: Topic, number: int) -> Promise[None]:
        """Cancel the move of a partition."""
        self._fact(topic, number)
        if self._cluster is None:
            raise NoReassignment(TopicPartition(topic.name, number))
        return self._decide(Reassign(topic.id, number))

    def elect(self, topic: Topic, number: int, *, is_unclean: bool = False) -> Promise[None]:
        """Elect the preferred replica; if unclean, any live replica when none in sync is alive."""
        self._fact(topic, number)
        if self._cluster is None:
            raise ElectionNotNeeded(TopicPartition(topic.name, number), self._node_id)
        return self._decide(ElectLeader(topic.id, number, is_unclean))

    def _decide(self, command: ClusterCommand) -> Promise[None]:
        if self._cluster is None:
            decided: Promise[None] = Promise()
            decided.resolve(None)
            return decided
        return done(self._cluster.quorum.request(command))


def plan_away(
    views: Sequence[PartitionView], *, leaving: int, nodes: Sequence[NodeView]
) -> list[PartitionView]:
    """Plan to replace `leaving` by the nodes with the fewest replicas.

    A replica keeps its position in the list, so that leaders stay spread as they are.
    """
    counts = {
        one.id: one.replica_count
        for one in nodes
        if one.id != leaving and not one.is_fenced and not one.is_draining
    }
    planned = []
    for view in views:
        replicas = view.target or view.replicas
        if leaving not in replicas:
            continue
        free = [node for node in counts if node not in replicas]
        if not free:
            raise InvalidRequest(
                f"No other running node can take {view.topic}/{view.number}; add a node, or "
                "name fewer replicas for it."
            )
        chosen = min(free, key=lambda node: (counts[node], node))
        counts[chosen] += 1
        target = tuple(chosen if node == leaving else node for node in replicas)
        planned.append(view._replace(target=target))
    return planned


def plan_spread(
    views: Sequence[PartitionView], *, nodes: Sequence[NodeView]
) -> list[PartitionView]:
    """Plan to move partitions to these nodes, each with as many replicas as it has.

    A replica on one of the nodes stays where it is. The others go to the nodes with the fewest
    replicas. Partitions that are there already are not returned.
    """
    counts = {one.id: one.replica_count for one in nodes}
    planned = []
    for view in views:
        replicas = view.target or view.replicas
        if len(replicas) > len(counts):
            raise InvalidRequest(
                f"{view.topic}/{view.number} has {len(replicas)} replicas; name at least as many "
                "nodes."
            )
        target = list(replicas)
        for place, node in enumerate(replicas):
            if node not in counts:
                free = [one for one in counts if one not in target]
                target[place] = min(free, key=lambda one: (counts[one], one))
                counts[target[place]] += 1
        if tuple(target) != tuple(replicas):
            planned.append(view._replace(target=tuple(target)))
    return planned


def _own_support() -> Support:
    return msgspec.structs.replace(SUPPORT, release=release())
