"""The routes of the cluster and its nodes; a part of the one table in `operations`."""

from __future__ import annotations

from functools import partial

from goqueue.model import errors
from goqueue.wire.carrier.routing import ROUTED, Operation
from goqueue.wire.http.bodies import cluster as bodies
from goqueue.wire.http.handlers import cluster, moving

_operation = partial(Operation, area="cluster")

# Whatever the cluster has to decide may find nobody who does so, or take too long.
_DECIDED = (errors.NotController, errors.RequestTimedOut)
_PARTITION = (errors.UnknownTopic, errors.UnknownPartition)

_INFORMATION = (
    _operation(
        "showCluster",
        "GET",
        "/v1/admin/cluster",
        cluster.show,
        "Show the cluster at a glance.",
        answer=bodies.Cluster,
    ),
    _operation(
        "showClusterHealth",
        "GET",
        "/v1/admin/cluster/health",
        cluster.health,
        "Tell what is wrong with the cluster, if anything.",
        is_early=True,
        answer=bodies.ClusterHealth,
    ),
)

_NODES = (
    _operation(
        "listNodes",
        "GET",
        "/v1/admin/nodes",
        cluster.list_nodes,
        "List the nodes: their addresses, and what they lead and keep.",
        answer=bodies.Nodes,
    ),
    _operation(
        "showNode",
        "GET",
        "/v1/admin/nodes/{node}",
        cluster.show_node,
        "Show a node.",
        answer=bodies.Node,
        errors=(errors.UnknownNode,),
    ),
    _operation(
        "unregisterNode",
        "DELETE",
        "/v1/admin/nodes/{node}",
        cluster.unregister,
        "Forget a node that has stopped for good and keeps nothing.",
        status=204,
        errors=(errors.UnknownNode, errors.NodeInUse, *_DECIDED),
    ),
    _operation(
        "showDrain",
        "GET",
        "/v1/admin/nodes/{node}/drain",
        cluster.show_drain,
        "Show how far a node is from leading nothing.",
        answer=bodies.Drain,
        errors=(errors.UnknownNode,),
    ),
    _operation(
        "drainNode",
        "POST",
        "/v1/admin/nodes/{node}/drain",
        cluster.drain,
        "Have other nodes lead what this one leads, and give it no more.",
        answer=bodies.Drain,
        errors=(errors.UnknownNode, errors.NodeInUse, *_DECIDED),
    ),
    _operation(
        "undrainNode",
        "POST",
        "/v1/admin/nodes/{node}/undrain",
        cluster.undrain,
        "Let a node lead again.",
        answer=bodies.Drain,
        errors=(errors.UnknownNode, *_DECIDED),
    ),
)

_VOTERS = (
    _operation(
        "listVoters",
        "GET",
        "/v1/admin/voters",
        cluster.list_voters,
        "List the nodes that vote on what the cluster decides, and those that only follow.",
        answer=bodies.Voters,
    ),
    _operation(
        "addVoter",
        "PUT",
        "/v1/admin/voters/{node}",
        cluster.add_voter,
        "Let a node vote.",
        answer=bodies.Voters,
        errors=(errors.UnknownNode, errors.QuorumAtRisk, errors.InvalidRequest, *_DECIDED),
    ),
    _operation(
        "removeVoter",
        "DELETE",
        "/v1/admin/voters/{node}",
        cluster.remove_voter,
        "Let a node follow the other voters and vote no more.",
        answer=bodies.Voters,
        errors=(errors.UnknownNode, errors.QuorumAtRisk, errors.InvalidRequest, *_DECIDED),
    ),
)

_PARTITIONS = (
    _operation(
        "listPlacements",
        "GET",
        "/v1/admin/partitions",
        cluster.list_partitions,
        "List partitions: who leads them, who keeps them, who is in sync.",
        request=bodies.ListPartitions,
        answer=bodies.PlacedPartitions,
        errors=(errors.UnknownTopic,),
    ),
    _operation(
        "electLeaders",
        "POST",
        "/v1/admin/partitions/elect",
        moving.elect,
        "Have preferred leaders lead again, or any copy where nobody in sync is left.",
        request=bodies.Elect,
        answer=bodies.Changes,
        errors=(*_PARTITION, *_DECIDED),
        example={"topic": "orders"},
    ),
    _operation(
        "startReassignments",
        "POST",
        "/v1/admin/reassignments",
        moving.start_moves,
        "Move the copies of partitions to other nodes.",
        request=bodies.StartMoves,
        answer=bodies.StartedMoves,
        errors=(*_PARTITION, errors.UnknownNode, errors.InvalidRequest, *_DECIDED),
        example={"moves": [{"topic": "orders", "partition": 0, "replicas": [1]}]},
    ),
    _operation(
        "listReassignments",
        "GET",
        "/v1/admin/reassignments",
        moving.list_moves,
        "List the partitions that are moving, and how far they have come.",
        request=bodies.ListMoves,
        answer=bodies.Moving,
        errors=ROUTED,
    ),
    _operation(
        "throttleReassignments",
        "PATCH",
        "/v1/admin/reassignments",
        moving.throttle_moves,
        "Let moves that are under way go on faster or slower.",
        request=bodies.ThrottleMoves,
        answer=bodies.Changes,
        errors=(*_PARTITION, *_DECIDED),
        example={"throttle_bytes_per_second": 50_000_000},
    ),
    _operation(
        "cancelReassignments",
        "DELETE",
        "/v1/admin/reassignments",
        moving.cancel_moves,
        "Leave partitions where they were before their moves.",
        request=bodies.CancelMoves,
        answer=bodies.Changes,
        errors=(*_PARTITION, *_DECIDED),
    ),
)

CLUSTER = (*_INFORMATION, *_NODES, *_VOTERS, *_PARTITIONS)
