"""Reads from the nearest replica: which follower serves a consumer, and whether this one may.

A consumer names its rack. The leader redirects it to an in-sync follower in that rack. Such a
follower has everything that is committed, so no offset that the leader returns is out of its range.
"""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.topics.topics import Topic
from goqueue.cluster.facts import PartitionFact


class NearestReplicas:
    """Chooses followers for consumers; a single node has none."""

    def __init__(self, node_id: int, cluster: Clustering | None, rack: str) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._rack = rack

    def racks(self, rack: str) -> Mapping[int, str]:
        """Return the racks of nodes to redirect a consumer to; none if it is in this rack."""
        if self._cluster is None or not rack or rack == self._rack:
            return {}
        return {
            node.id: node.rack
            for node in self._cluster.nodes()
            if node.rack == rack and self._cluster.is_there(node.id)
        }

    def find(self, topic: Topic, number: int, racks: Mapping[int, str]) -> int | None:
        """Return the follower that a consumer should read from instead of this leader, or None."""
        fact = self._fact(topic, number)
        if fact is None or fact.leader != self._node_id:
            return None
        near = [node for node in fact.in_sync if node in racks]
        return near[number % len(near)] if near else None

    def may_serve(self, topic: Topic, number: int) -> bool:
        """Return whether this node, a follower, may serve consumers.

        It must be in sync, have a controller, and have nothing damaged. A node that is cut off or
        behind would keep its consumers waiting while the leader has more.
        """
        fact = self._fact(topic, number)
        return (
            fact is not None
            and self._cluster is not None
            and self._cluster.quorum.leader >= 0
            and self._node_id in fact.in_sync
            and topic.partitions[number].replica.first_damage is None
        )

    def _fact(self, topic: Topic, number: int) -> PartitionFact | None:
        if self._cluster is None:
            return None
        return self._cluster.quorum.metadata.partitions.get(topic.id, number)
