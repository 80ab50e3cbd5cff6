"""The routes of the cluster and its nodes; part of the table in `operations`."""

from __future__ import annotations

from functools import partial

from goqueue.model import errors
from goqueue.wire.carrier.routing import ROUTED, Operation
from goqueue.wire.http.bodies import cluster as bodies
from goqueue.wire.http.handlers import cluster, moving

_operation = partial(Operation, area="cluster")

# Any decision of the cluster may fail for lack of an active controller, or time out.
_DECIDED = (errors.NotController, errors.RequestTimedOut)
_PARTITION = (errors.UnknownTopic, errors.UnknownPartition)

_INFORMATION = (
    _operation(
        "showCluster",
        "GET",
        "/v1/admin/cluster",
        cluster.show,
        "Show an overview of the cluster.",
        answer=bodies.Cluster,
    ),
    _operation(
        "showClusterHealth",
        "GET",
        "/v1/admin/cluster/health",
        cluster.health,
        "Report problems of the cluster.",
        is_early=True,
        answer=bodies.ClusterHealth,
    ),
    _operation(
        "showClusterLevel",
        "GET",
        "/v1/admin/cluster/level",
        cluster.show_level,
        "Show the feature level of the cluster, and what each node supports.",
        answer=bodies.ClusterLevel,
    ),
    _operation(
        "finalizeClusterLevel",
        "POST",
        "/v1/admin/cluster/level",
        cluster.finalize_level,
        "Finalize an upgrade: raise the feature level. Earlier releases cannot run any more.",
        request=bodies.FinalizeLevel,
        answer=bodies.ClusterLevel,
        errors=(errors.InvalidRequest, *_DECIDED),
        example={},
    ),
)

_NODES = (
    _operation(
        "listNodes",
        "GET",
        "/v1/admin/nodes",
        cluster.list_nodes,
        "List the nodes: addresses, state, and number of leaders and replicas.",
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
        "Remove a node that was stopped permanently and has no replicas.",
        status=204,
        errors=(errors.UnknownNode, errors.NodeInUse, *_DECIDED),
    ),
    _operation(
        "showDrain",
        "GET",
        "/v1/admin/nodes/{node}/drain",
        cluster.show_drain,
        "Show the progress of draining a node.",
        answer=bodies.Drain,
        errors=(errors.UnknownNode,),
    ),
    _operation(
        "drainNode",
        "POST",
        "/v1/admin/nodes/{node}/drain",
        cluster.drain,
        "Drain a node: move its leaders to other nodes, and elect it for no more partitions.",
        answer=bodies.Drain,
        errors=(errors.UnknownNode, errors.NodeInUse, *_DECIDED),
    ),
    _operation(
        "undrainNode",
        "POST",
        "/v1/admin/nodes/{node}/undrain",
        cluster.undrain,
        "Allow a drained node to lead partitions again.",
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
        "List the voters of the metadata quorum, and the observers that only follow it.",
        answer=bodies.Voters,
    ),
    _operation(
        "addVoter",
        "PUT",
        "/v1/admin/voters/{node}",
        cluster.add_voter,
        "Make a node a voter.",
        answer=bodies.Voters,
        errors=(errors.UnknownNode, errors.QuorumAtRisk, errors.InvalidRequest, *_DECIDED),
    ),
    _operation(
        "removeVoter",
        "DELETE",
        "/v1/admin/voters/{node}",
        cluster.remove_voter,
        "Remove a voter; the node remains an observer.",
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
        "List partitions with their leaders, replicas and in-sync replicas.",
        request=bodies.ListPartitions,
        answer=bodies.PlacedPartitions,
        errors=(errors.UnknownTopic,),
    ),
    _operation(
        "electLeaders",
        "POST",
        "/v1/admin/partitions/elect",
        moving.elect,
        "Elect preferred leaders, or any replica where no in-sync replica is left.",
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
        "Move replicas of partitions to other nodes.",
        request=bodies.StartMoves,
        answer=bodies.StartedMoves,
        errors=(
            *_PARTITION,
            errors.UnknownNode,
            errors.InvalidReplicaAssignment,
            errors.InvalidRequest,
            *_DECIDED,
        ),
        example={"moves": [{"topic": "orders", "partition": 0, "replicas": [1]}]},
    ),
    _operation(
        "planReassignments",
        "POST",
        "/v1/admin/reassignments/plan",
        moving.plan_moves,
        "Plan reassignments: nothing moves yet.",
        request=bodies.PlanMoves,
        answer=bodies.PlannedMoves,
        errors=(errors.UnknownTopic, errors.UnknownNode, errors.InvalidRequest),
        example={"topics": ["orders"], "nodes": [1]},
    ),
    _operation(
        "listReassignments",
        "GET",
        "/v1/admin/reassignments",
        moving.list_moves,
        "List the running reassignments and their progress.",
        request=bodies.ListMoves,
        answer=bodies.Moving,
        errors=ROUTED,
    ),
    _operation(
        "throttleReassignments",
        "PATCH",
        "/v1/admin/reassignments",
        moving.throttle_moves,
        "Change the throttle of running reassignments.",
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
        "Cancel reassignments; the partitions keep their previous replicas.",
        request=bodies.CancelMoves,
        answer=bodies.Changes,
        errors=(*_PARTITION, *_DECIDED),
    ),
)

CLUSTER = (*_INFORMATION, *_NODES, *_VOTERS, *_PARTITIONS)
