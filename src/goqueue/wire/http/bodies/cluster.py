"""The cluster: its nodes, the placement of partitions, and reassignments."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from goqueue.wire.carrier.bodies import Answer, BatchAnswer, Body
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.fields import (
    INT64_MAX,
    Limit,
    ListCursor,
    NodeId,
    PartitionNumber,
    TopicName,
)

MOVES_MAX = 10_000  # in one request

NodeState = Literal["running", "draining", "stopping", "fenced"]
Replicas = Annotated[
    list[NodeId],
    Meta(
        min_length=1, max_length=100, description="Ids of nodes; the first is the preferred leader."
    ),
]
Throttle = Annotated[
    int,
    Meta(
        ge=1,
        le=INT64_MAX,
        description=(
            "Most bytes per second that each node sends to new replicas, of all partitions with "
            "this throttle together."
        ),
    ),
]
_ALL_PARTITIONS = "By default all partitions of the topic."


class Cluster(Answer, kw_only=True):
    """An overview of the cluster."""

    cluster_id: str
    controller: Annotated[
        int | None, Meta(description="The active controller; null if there is none.")
    ]
    voters: Annotated[list[int], Meta(description="The nodes that elect the active controller.")]
    answered_by: int
    nodes: int
    nodes_running: int
    topics: int
    partitions: int
    leaderless: Annotated[int, Meta(description="Partitions without a leader.")]
    under_replicated: Annotated[
        int, Meta(description="Partitions with replicas that are not in sync.")
    ]
    moving: Annotated[int, Meta(description="Partitions that are being reassigned.")]


ProblemKind = Literal["waiting", "no_controller", "leaderless", "fenced", "under_replicated"]


class ClusterHealth(Answer, kw_only=True):
    """`ok`; `degraded` if redundancy is missing; `down` if something is unavailable."""

    status: Literal["ok", "degraded", "down"]
    problems: list[str]
    kinds: Annotated[list[ProblemKind], Meta(description="What each of the problems is.")]


class Node(Answer, kw_only=True):
    id: int
    state: NodeState
    addresses: Annotated[dict[str, str], Meta(description="Addresses by name of the listener.")]
    rack: str
    voter: bool
    controller: bool
    leaders: Annotated[int, Meta(description="Number of partitions that it leads.")]
    replicas: Annotated[int, Meta(description="Number of replicas on it.")]
    release: Annotated[
        str, Meta(description="Version of GoQueue; empty if it is older than such reports.")
    ] = ""
    level_min: Annotated[int, Meta(description="Oldest feature level that it supports.")] = 2
    level_max: Annotated[int, Meta(description="Newest feature level that it supports.")] = 2


class ClusterLevel(Answer, kw_only=True):
    """The feature level of the cluster: what its nodes may write that earlier releases cannot read.

    If `supported` is higher, the upgrade of all nodes can be finalized.
    """

    level: int
    supported: Annotated[
        int, Meta(description="Newest feature level that all registered nodes support.")
    ]
    nodes: list[Node]


class FinalizeLevel(Body, kw_only=True):
    """Raise the feature level; earlier releases cannot use the data any more."""

    level: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None,
        Meta(description="By default the newest that all nodes support."),
    ] = None


class Nodes(Answer, kw_only=True):
    nodes: list[Node]


class Voter(Answer, kw_only=True):
    """A node that replicates the metadata log; only replicas of voters count for the majority."""

    id: int
    voter: bool
    controller: bool
    running: bool


class Voters(Answer, kw_only=True):
    voters: Annotated[list[Voter], Meta(description="Voters and observers, by id.")]
    majority: Annotated[int, Meta(description="Number of voters needed for a decision.")]


class Drain(Answer, kw_only=True):
    """The progress of draining a node; without leaders it can be stopped without interruption."""

    node: int
    draining: bool
    leaders: int
    stuck: Annotated[
        list[str], Meta(description="The first partitions that it still leads, as topic/partition.")
    ]


class ListPartitions(Body, kw_only=True):
    topic: TopicName | None = None
    node: Annotated[
        NodeId | None, Meta(description="Only partitions with a replica on this node.")
    ] = None
    state: Annotated[
        Literal["leaderless", "under_replicated", "moving"] | None,
        Meta(description="Only partitions in this state."),
    ] = None
    internal: Annotated[bool, Meta(description="Include those of internal topics.")] = True
    limit: Annotated[Limit | None, Meta(description="By default all partitions.")] = None
    cursor: ListCursor = ""


class PlacedPartition(Answer, kw_only=True):
    """The placement of a partition; during a reassignment `target` holds the new replicas."""

    topic: str
    partition: int
    leader: Annotated[int | None, Meta(description="Null while there is no leader.")]
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    target: list[int] = []


class PlacedPartitions(Answer, kw_only=True, omit_defaults=True):
    """All partitions by topic and number, or a page of them if the request has a limit.

    Then `cursor` is the start of the next page, and empty at the end.
    """

    partitions: list[PlacedPartition]
    cursor: str | UnsetType = UNSET
    total: Annotated[int | UnsetType, Meta(description="Number of partitions on all pages.")] = (
        UNSET
    )


class Elect(Body, kw_only=True):
    """Elect the preferred leader (the first replica) of each partition."""

    topic: Annotated[TopicName | None, Meta(description="By default all topics.")] = None
    partitions: Annotated[list[PartitionNumber] | None, Meta(description=_ALL_PARTITIONS)] = None
    unclean: Annotated[
        bool,
        Meta(
            description=(
                "Where no in-sync replica is alive, elect any replica. Acknowledged records that "
                "it does not have are lost."
            )
        ),
    ] = False


class Change(Answer, kw_only=True, omit_defaults=True):
    """The result for one partition; without a problem it was accepted."""

    topic: str
    partition: int
    problem: Problem | UnsetType = UNSET


class Changes(BatchAnswer, kw_only=True):
    """The results; partitions that needed no change are left out."""

    results: list[Change]
    failed: Annotated[int, Meta(description="Number of refused partitions.")]


class Move(Body, kw_only=True):
    topic: TopicName
    partition: PartitionNumber
    replicas: Replicas


class StartMoves(Body, kw_only=True):
    """Move the given partitions, or all replicas of a node to other nodes."""

    moves: Annotated[list[Move], Meta(min_length=1, max_length=MOVES_MAX)] | None = None
    away_from: Annotated[
        NodeId | None, Meta(description="Move all replicas away from this node.")
    ] = None
    topic: Annotated[TopicName | None, Meta(description="With `away_from`: only this topic.")] = (
        None
    )
    dry_run: Annotated[
        bool,
        Meta(description="Only return what would be moved; refused if a node is not registered."),
    ] = False
    throttle_bytes_per_second: Throttle | None = None


class PlanMoves(Body, kw_only=True):
    """Plan to move all replicas of a node to others, or topics to some nodes."""

    away_from: Annotated[
        NodeId | None, Meta(description="Move all replicas away from this node.")
    ] = None
    topics: Annotated[
        Annotated[list[TopicName], Meta(min_length=1, max_length=MOVES_MAX)] | None,
        Meta(description="Move these topics. With `away_from`: only replicas of these."),
    ] = None
    nodes: Annotated[
        Replicas | None, Meta(description="With `topics`: the nodes that shall have replicas.")
    ] = None


class PlannedMove(Answer, kw_only=True):
    topic: str
    partition: int
    replicas_before: list[int]
    replicas: Annotated[list[int], Meta(description="The first is the preferred leader.")]


class PlannedMoves(Answer, kw_only=True):
    """The partitions that would move; `moves` for a request that starts reassignments."""

    moves: list[PlannedMove]


class MoveResult(Answer, kw_only=True, omit_defaults=True):
    """The result for one partition; without a problem its move is started or already done."""

    topic: str
    partition: int
    replicas: list[int]
    problem: Problem | UnsetType = UNSET


class StartedMoves(BatchAnswer, kw_only=True):
    results: list[MoveResult]
    failed: Annotated[int, Meta(description="Number of refused partitions.")]


class ListMoves(Body, kw_only=True):
    topic: TopicName | None = None
    limit: Annotated[Limit | None, Meta(description="By default all.")] = None
    cursor: ListCursor = ""


class ThrottleMoves(Body, kw_only=True):
    """Change the throttle of running reassignments; of all of them if none is given."""

    topic: TopicName | None = None
    partition: Annotated[PartitionNumber | None, Meta(description=_ALL_PARTITIONS)] = None
    throttle_bytes_per_second: Annotated[Throttle | None, Meta(description="Null means no limit.")]


class CancelMoves(Body, kw_only=True):
    """The reassignments to cancel; by default all."""

    topic: TopicName | None = None
    partition: Annotated[PartitionNumber | None, Meta(description=_ALL_PARTITIONS)] = None


class Copy(Answer, kw_only=True):
    node: int
    start_offset: int
    end_offset: int
    bytes: int = 0
    bytes_per_second: Annotated[
        int, Meta(description="Recent growth of a replica that is not in sync.")
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
    copies: Annotated[list[Copy], Meta(description="Progress of the replica on each node.")]
    progress: Annotated[float, Meta(description="Progress of the new replicas, from 0 to 1.")]
    throttle_bytes_per_second: Annotated[int | None, Meta(description="Null means no limit.")] = (
        None
    )
    bytes_left: Annotated[int, Meta(description="Estimate of the bytes still to copy.")] = 0
    bytes_per_second: Annotated[int, Meta(description="Recent rate of copying.")] = 0
    remaining_ms: Annotated[
        int | None, Meta(description="Estimate at the recent rate; null while unknown.")
    ] = None


class Moving(Answer, kw_only=True):
    reassignments: list[MovingPartition]
    cursor: Annotated[str, Meta(description="Of the next page; empty at the end.")] = ""
    total: Annotated[int, Meta(description="On all pages.")] = 0
