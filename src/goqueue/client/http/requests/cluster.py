"""The cluster: its nodes, where partitions are kept, and moving them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

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
    Drain,
    MoveResult,
    MovingPartition,
    Node,
    PlacedPartition,
    Voters,
)

PartitionState = Literal["leaderless", "under_replicated", "moving"]

_read_cluster = reading(Cluster)
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
        """The cluster at a glance."""
        return Request("GET", path_of("admin", "cluster"), _read_cluster)

    def health(self) -> Request[ClusterHealth]:
        """What is wrong with the cluster, if anything."""
        return Request("GET", path_of("admin", "cluster", "health"), _read_health)

    def nodes(self) -> Request[list[Node]]:
        """The nodes that belong to the cluster, by id."""
        return Request("GET", path_of("admin", "nodes"), lambda data: _read_nodes(data).nodes)

    def node(self, node: int) -> Request[Node]:
        """One node."""
        return Request("GET", path_of("admin", "nodes", str(node)), _read_node)

    def unregister(self, node: int) -> Request[None]:
        """Forget a node that has stopped for good and keeps nothing."""
        path = path_of("admin", "nodes", str(node))
        return Request("DELETE", path, nothing, repeat=Repeat.CONFUSES)

    def drain(self, node: int) -> Request[Drain]:
        """Have other nodes lead what this one leads; `drain_progress` tells how far that is."""
        return Request(
            "POST", path_of("admin", "nodes", str(node), "drain"), _read_drain, body=b"{}"
        )

    def undrain(self, node: int) -> Request[Drain]:
        """Let a node lead again."""
        path = path_of("admin", "nodes", str(node), "undrain")
        return Request("POST", path, _read_drain, body=b"{}")

    def drain_progress(self, node: int) -> Request[Drain]:
        """How far a node is from leading nothing."""
        return Request("GET", path_of("admin", "nodes", str(node), "drain"), _read_drain)

    def voters(self) -> Request[Voters]:
        """Who votes on what the cluster decides, and who only follows."""
        return Request("GET", path_of("admin", "voters"), _read_voters)

    def add_voter(self, node: int) -> Request[Voters]:
        """Let a node vote that runs and has caught up."""
        path = path_of("admin", "voters", str(node))
        return Request("PUT", path, _read_voters, body=b"{}")

    def remove_voter(self, node: int) -> Request[Voters]:
        """Let a node vote no more; refused where too few voters that run would be left."""
        return Request("DELETE", path_of("admin", "voters", str(node)), _read_voters)

    def partitions(
        self,
        *,
        topic: str | None = None,
        node: int | None = None,
        state: PartitionState | None = None,
    ) -> Request[list[PlacedPartition]]:
        """Where partitions are kept, who of them is in sync, and who leads."""
        query = query_of(bodies.ListPartitions(topic=topic, node=node, state=state))
        return Request("GET", path_of("admin", "partitions"), _partitions, query)

    def elect(
        self,
        *,
        topic: str | None = None,
        partitions: Sequence[int] | None = None,
        unclean: bool = False,
    ) -> Request[list[Change]]:
        """Have the first replica of each partition lead; what changed, or was refused."""
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
        """Move partitions to these nodes, of which the first is to lead."""
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
        """Move all that a node keeps, perhaps only of one topic, to other nodes."""
        return _start(
            bodies.StartMoves(
                away_from=node,
                topic=topic,
                dry_run=dry_run,
                throttle_bytes_per_second=throttle_bytes_per_second,
            )
        )

    def reassignments(self, *, topic: str | None = None) -> Request[list[MovingPartition]]:
        """The partitions that are moving, and how far they have come."""
        query = query_of(bodies.ListMoves(topic=topic))
        return Request("GET", path_of("admin", "reassignments"), _moving, query)

    def throttle_reassignments(
        self,
        throttle_bytes_per_second: int | None,
        *,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Request[list[Change]]:
        """Let moves that are under way go on this fast, or without a limit."""
        body = bodies.ThrottleMoves(
            topic=topic, partition=partition, throttle_bytes_per_second=throttle_bytes_per_second
        )
        path = path_of("admin", "reassignments")
        return Request("PATCH", path, lambda data: _read_changes(data).results, body=body_of(body))

    def cancel_reassignments(
        self, *, topic: str | None = None, partition: int | None = None
    ) -> Request[list[Change]]:
        """Leave partitions where they were before their moves."""
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
