"""The cluster: nodes, quorum voters, placement and reassignment of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.model.names import TopicPartition
from goqueue.wire.http.bodies import cluster as bodies
from goqueue.wire.http.bodies.cluster import (
    Change,
    Cluster,
    ClusterHealth,
    ClusterLevel,
    Drain,
    MoveResult,
    MovingPartition,
    Node,
    PlacedPartition,
    Voters,
)

PartitionState = Literal["leaderless", "under_replicated", "moving"]

_read_cluster = reading(Cluster)
_read_level = reading(ClusterLevel)
_read_health = reading(ClusterHealth)
_read_node = reading(Node)
_read_nodes = reading(bodies.Nodes)
_read_drain = reading(Drain)
_read_voters = reading(Voters)
_read_partitions = reading(bodies.PlacedPartitions)
_read_changes = reading(bodies.Changes)
_read_started = reading(bodies.StartedMoves)
_read_moving = reading(bodies.Moving)


class ClusterRequests:
    def info(self) -> Request[Cluster]:
        """Return an overview of the cluster."""
        return Request("GET", path_of("admin", "cluster"), _read_cluster)

    def health(self) -> Request[ClusterHealth]:
        """Return the problems of the cluster, if any."""
        return Request("GET", path_of("admin", "cluster", "health"), _read_health)

    def level(self) -> Request[ClusterLevel]:
        """Return the feature level of the cluster, and what each node supports."""
        return Request("GET", path_of("admin", "cluster", "level"), _read_level)

    def finalize_level(self, level: int | None = None) -> Request[ClusterLevel]:
        """Raise the feature level for good; by default to the newest that all nodes support."""
        body = msgspec.json.encode({} if level is None else {"level": level})
        return Request("POST", path_of("admin", "cluster", "level"), _read_level, body=body)

    def nodes(self) -> Request[list[Node]]:
        """Return the nodes of the cluster, by id."""
        return Request("GET", path_of("admin", "nodes"), lambda data: _read_nodes(data).nodes)

    def node(self, node: int) -> Request[Node]:
        """Return one node."""
        return Request("GET", path_of("admin", "nodes", str(node)), _read_node)

    def unregister(self, node: int) -> Request[None]:
        """Remove a node that has stopped permanently and has no replicas."""
        path = path_of("admin", "nodes", str(node))
        return Request("DELETE", path, nothing, repeat=Repeat.AMBIGUOUS)

    def drain(self, node: int) -> Request[Drain]:
        """Move the leadership of a node's partitions to others; see `drain_progress`."""
        return Request(
            "POST", path_of("admin", "nodes", str(node), "drain"), _read_drain, body=b"{}"
        )

    def undrain(self, node: int) -> Request[Drain]:
        """Allow a node to lead again."""
        path = path_of("admin", "nodes", str(node), "undrain")
        return Request("POST", path, _read_drain, body=b"{}")

    def drain_progress(self, node: int) -> Request[Drain]:
        """Return how many partitions a draining node still leads."""
        return Request("GET", path_of("admin", "nodes", str(node), "drain"), _read_drain)

    def voters(self) -> Request[Voters]:
        """Return the voters and observers of the metadata quorum."""
        return Request("GET", path_of("admin", "voters"), _read_voters)

    def add_voter(self, node: int) -> Request[Voters]:
        """Make a running node that has caught up a voter."""
        path = path_of("admin", "voters", str(node))
        return Request("PUT", path, _read_voters, body=b"{}")

    def remove_voter(self, node: int) -> Request[Voters]:
        """Make a voter an observer; refused if too few running voters would remain."""
        return Request("DELETE", path_of("admin", "voters", str(node)), _read_voters)

    def partitions(
        self,
        *,
        topic: str | None = None,
        node: int | None = None,
        state: PartitionState | None = None,
    ) -> Request[list[PlacedPartition]]:
        """Return the replicas, in-sync replicas and leader of each partition."""
        query = query_of(bodies.ListPartitions(topic=topic, node=node, state=state))
        return Request("GET", path_of("admin", "partitions"), _partitions, query)

    def elect(
        self,
        *,
        topic: str | None = None,
        partitions: Sequence[int] | None = None,
        unclean: bool = False,
    ) -> Request[list[Change]]:
        """Elect the preferred leader of each partition; return what changed or was refused."""
        body = bodies.Elect(
            topic=topic,
            partitions=None if partitions is None else list(partitions),
            unclean=unclean,
        )
        path = path_of("admin", "partitions", "elect")
        return Request("POST", path, lambda data: _read_changes(data).results, body=body_of(body))

    def reassign(
        self,
        moves: Mapping[TopicPartition, Sequence[int]],
        *,
        throttle_bytes_per_second: int | None = None,
        dry_run: bool = False,
    ) -> Request[list[MoveResult]]:
        """Move partitions to these nodes; the first is the preferred leader."""
        wanted = [
            bodies.Move(topic=name.topic, partition=name.partition, replicas=list(replicas))
            for name, replicas in moves.items()
        ]
        return _start(
            bodies.StartMoves(
                moves=wanted,
                dry_run=dry_run,
                throttle_bytes_per_second=throttle_bytes_per_second,
            )
        )

    def move_away(
        self,
        node: int,
        *,
        topic: str | None = None,
        throttle_bytes_per_second: int | None = None,
        dry_run: bool = False,
    ) -> Request[list[MoveResult]]:
        """Move all replicas of a node, or those of one topic, to other nodes."""
        return _start(
            bodies.StartMoves(
                away_from=node,
                topic=topic,
                dry_run=dry_run,
                throttle_bytes_per_second=throttle_bytes_per_second,
            )
        )

    def reassignments(self, *, topic: str | None = None) -> Request[list[MovingPartition]]:
        """Return the reassignments in progress."""
        query = query_of(bodies.ListMoves(topic=topic))
        return Request("GET", path_of("admin", "reassignments"), _moving, query)

    def throttle_reassignments(
        self,
        throttle_bytes_per_second: int | None,
        *,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Request[list[Change]]:
        """Set the rate of reassignments in progress, or remove the limit."""
        body = bodies.ThrottleMoves(
            topic=topic, partition=partition, throttle_bytes_per_second=throttle_bytes_per_second
        )
        path = path_of("admin", "reassignments")
        return Request("PATCH", path, lambda data: _read_changes(data).results, body=body_of(body))

    def cancel_reassignments(
        self, *, topic: str | None = None, partition: int | None = None
    ) -> Request[list[Change]]:
        """Cancel reassignments; the partitions stay where they were."""
        query = query_of(bodies.CancelMoves(topic=topic, partition=partition))
        path = path_of("admin", "reassignments")
        return Request("DELETE", path, lambda data: _read_changes(data).results, query)


def _start(body: bodies.StartMoves) -> Request[list[MoveResult]]:
    path = path_of("admin", "reassignments")
    return Request("POST", path, lambda data: _read_started(data).results, body=body_of(body))


def _partitions(data: bytes) -> list[PlacedPartition]:
    return _read_partitions(data).partitions


def _moving(data: bytes) -> list[MovingPartition]:
    return _read_moving(data).reassignments
