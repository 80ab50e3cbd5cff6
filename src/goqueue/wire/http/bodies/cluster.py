"""The cluster: its nodes, where partitions are kept, and moving them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.fields import (
    INT64_MAX,
    NodeId,
    PartitionNumber,
    TopicName,
)

MOVES_MAX = 10_000  # in one request

NodeState = Literal["running", "draining", "stopping", "fenced"]
Replicas = Annotated[
    list[NodeId],
    Meta(min_length=1, max_length=100, description="Nodes; the first leads when it can."),
]
Throttle = Annotated[
    int,
    Meta(
        ge=1,
        le=INT64_MAX,
        description=(
            "Bytes per second that each node sends at most to new copies, of all partitions with "
            "this throttle together."
        ),
    ),
]
_ALL_PARTITIONS = "By default all partitions of the topic."


class Cluster(Answer, kw_only=True):
    """The cluster at a glance."""

    cluster_id: str
    controller: Annotated[int | None, Meta(description="The node that decides; null if none.")]
    voters: Annotated[list[int], Meta(description="The nodes that elect the controller.")]
    answered_by: int
    nodes: int
    nodes_running: int
    topics: int
    partitions: int
    leaderless: Annotated[int, Meta(description="Partitions that nobody can lead now.")]
    under_replicated: Annotated[int, Meta(description="Partitions with copies not in sync.")]
    moving: Annotated[int, Meta(description="Partitions whose replicas are being moved.")]


class ClusterHealth(Answer, kw_only=True):
    """`ok`; `degraded` when it works without reserve; `down` when something cannot be used."""

    status: Literal["ok", "degraded", "down"]
    problems: list[str]


class Node(Answer, kw_only=True):
    id: int
    state: NodeState
    addresses: Annotated[dict[str, str], Meta(description="By the name of the listener.")]
    rack: str
    voter: bool
    controller: bool
    leaders: Annotated[int, Meta(description="Partitions that it leads.")]
    replicas: Annotated[int, Meta(description="Partitions that it keeps a copy of.")]


class Nodes(Answer, kw_only=True):
    nodes: list[Node]


class Voter(Answer, kw_only=True):
    """A node that has a copy of the cluster's decisions; a voter's copy counts for the majority."""

    id: int
    voter: bool
    controller: bool
    running: bool


class Voters(Answer, kw_only=True):
    voters: Annotated[list[Voter], Meta(description="By id, with those that only follow.")]
    majority: Annotated[int, Meta(description="How many voters must run to decide anything.")]


class Drain(Answer, kw_only=True):
    """How far a node is from leading nothing; then it can be stopped and nobody notices."""

    node: int
    draining: bool
    leaders: int
    stuck: Annotated[list[str], Meta(description="The first of what it leads, as topic/partition.")]


class ListPartitions(Body, kw_only=True):
    topic: TopicName | None = None
    node: Annotated[NodeId | None, Meta(description="Only what it keeps.")] = None
    state: Annotated[
        Literal["leaderless", "under_replicated", "moving"] | None,
        Meta(description="Only partitions in this state."),
    ] = None


class PlacedPartition(Answer, kw_only=True):
    """Where a partition is kept; while it moves, `target` is where it will be."""

    topic: str
    partition: int
    leader: Annotated[int | None, Meta(description="Null while nobody can lead.")]
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    target: list[int] = []


class PlacedPartitions(Answer, kw_only=True):
    partitions: list[PlacedPartition]


class Elect(Body, kw_only=True):
    """Have the first replica of each partition lead again."""

    topic: Annotated[TopicName | None, Meta(description="By default all topics.")] = None
    partitions: Annotated[list[PartitionNumber] | None, Meta(description=_ALL_PARTITIONS)] = None
    unclean: Annotated[
        bool,
        Meta(
            description=(
                "Where nobody in sync is alive, let any copy lead. What was acknowledged and is "
                "not in that copy is lost."
            )
        ),
    ] = False


class Change(Answer, kw_only=True, omit_defaults=True):
    """The outcome for one partition; without a problem it is decided."""

    topic: str
    partition: int
    problem: Problem | UnsetType = UNSET


class Changes(Answer, kw_only=True):
    """Partitions for which nothing was to do are left out."""

    results: list[Change]
    failed: Annotated[int, Meta(description="How many were refused.")]


class Move(Body, kw_only=True):
    topic: TopicName
    partition: PartitionNumber
    replicas: Replicas


class StartMoves(Body, kw_only=True):
    """Move partitions: those named, or whatever a node keeps to other nodes."""

    moves: Annotated[list[Move], Meta(min_length=1, max_length=MOVES_MAX)] | None = None
    away_from: Annotated[NodeId | None, Meta(description="A node that is to keep nothing.")] = None
    topic: Annotated[TopicName | None, Meta(description="With `away_from`: only this topic.")] = (
        None
    )
    dry_run: Annotated[bool, Meta(description="Only tell what would be moved.")] = False
    throttle_bytes_per_second: Throttle | None = None


class MoveResult(Answer, kw_only=True, omit_defaults=True):
    """The outcome for one partition; without a problem it is on its way, or there already."""

    topic: str
    partition: int
    replicas: list[int]
    problem: Problem | UnsetType = UNSET


class StartedMoves(Answer, kw_only=True):
    results: list[MoveResult]
    failed: Annotated[int, Meta(description="How many were refused.")]


class ListMoves(Body, kw_only=True):
    topic: TopicName | None = None


class ThrottleMoves(Body, kw_only=True):
    """Let moves that are under way go on at another pace; all of them if none is named."""

    topic: TopicName | None = None
    partition: Annotated[PartitionNumber | None, Meta(description=_ALL_PARTITIONS)] = None
    throttle_bytes_per_second: Annotated[Throttle | None, Meta(description="Null is no limit.")]


class CancelMoves(Body, kw_only=True):
    """Which moves are to be given up; all of them if nothing is said."""

    topic: TopicName | None = None
    partition: Annotated[PartitionNumber | None, Meta(description=_ALL_PARTITIONS)] = None


class Copy(Answer, kw_only=True):
    node: int
    start_offset: int
    end_offset: int
    bytes: int = 0
    bytes_per_second: Annotated[
        int, Meta(description="How fast a copy that is not in sync has grown lately.")
    ] = 0


class MovingPartition(Answer, kw_only=True):
    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    target: list[int]
    adding: list[int]
    removing: list[int]
    in_sync: list[int]
    copies: Annotated[list[Copy], Meta(description="How far each node's copy has come.")]
    progress: Annotated[float, Meta(description="Of the new copies, from 0 to 1.")]
    throttle_bytes_per_second: Annotated[int | None, Meta(description="Null is no limit.")] = None
    bytes_left: Annotated[int, Meta(description="To be copied yet, about.")] = 0
    bytes_per_second: Annotated[int, Meta(description="Copied lately.")] = 0
    remaining_ms: Annotated[
        int | None, Meta(description="At this pace; null while that cannot be told.")
    ] = None


class Moving(Answer, kw_only=True):
    reassignments: list[MovingPartition]
