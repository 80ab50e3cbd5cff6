"""The node itself, and the cluster as the metadata quorum and the active controller see it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from typing import NamedTuple

from goqueue.broker.replication.clustering import Clustering
from goqueue.loop.peers import Contact
from goqueue.metrics import Samples
from goqueue.metrics import catalogue as c
from goqueue.model.support import release


class Who(NamedTuple):
    """What a node is called, and since when it runs."""

    node_id: int
    cluster_id: Callable[[], str]
    rack: str
    started_ms: int


class NodeCollector:
    """Identity, start and readiness."""

    def __init__(self, who: Who, cluster: Clustering | None) -> None:
        self._who = who
        self._cluster = cluster
        self._version = release(), platform.python_version()

    def collect(self, samples: Samples) -> Iterator[None]:
        if samples.wants(c.NODE_INFO):
            who = self._who
            samples.set(c.BUILD_INFO, 1, *self._version)
            samples.set(c.NODE_INFO, 1, str(who.node_id), who.cluster_id(), who.rack)
            samples.set(c.NODE_START_TIME, who.started_ms / 1000)
            is_ready = self._cluster is None or not self._cluster.waits_for
            samples.set(c.NODE_READY, int(is_ready))
        yield


class ClusterCollector:
    """Nodes and leaderless partitions, from the active controller; the quorum, from each node."""

    def __init__(self, cluster: Clustering) -> None:
        self._cluster = cluster

    def collect(self, samples: Samples) -> Iterator[None]:
        if not samples.wants(c.CLUSTER_RAFT_TERM):
            return
        quorum = self._cluster.quorum
        samples.set(c.CLUSTER_ACTIVE_CONTROLLER, int(quorum.is_controller))
        samples.set(c.CLUSTER_RAFT_TERM, quorum.term)
        samples.set(c.CLUSTER_RAFT_COMMITTED, quorum.committed_index)
        samples.set(c.CLUSTER_ELECTIONS, quorum.elections)
        led = self._cluster.replicas.led
        samples.set(c.CLUSTER_IN_SYNC_CHANGES, led.shrunk, "shrunk")
        samples.set(c.CLUSTER_IN_SYNC_CHANGES, led.expanded, "expanded")
        self._add_connections(samples)
        if quorum.is_controller:
            leaderless = quorum.metadata.partitions.leaderless()
            samples.set(c.CLUSTER_LEADERLESS, len(leaderless))
            for state in ("live", "fenced", "draining", "stopping"):
                samples.set(c.CLUSTER_NODES, 0, state)
            for node in list(quorum.metadata.nodes.values()):
                state = "live"
                if node.is_stopping or node.is_draining:
                    state = "stopping" if node.is_stopping else "draining"
                samples.add(c.CLUSTER_NODES, 1, "fenced" if node.is_fenced else state)
        yield

    def _add_connections(self, samples: Samples) -> None:
        others = [one.id for one in self._cluster.nodes() if one.id != self._cluster.node_id]
        contacts = [self._cluster.peers.contact(one) for one in others]
        samples.set(c.CLUSTER_PEER_CONNECTIONS, sum(one is Contact.OPEN for one in contacts))
