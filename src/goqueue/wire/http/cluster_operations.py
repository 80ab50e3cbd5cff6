"""The routes of the cluster and its nodes; a part of the one table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.http.bodies import cluster as bodies
from goqueue.wire.http.handlers import cluster
from goqueue.wire.http.routing import Operation

_DECIDED = (errors.NotController, errors.RequestTimedOut)

_INFORMATION = (
    Operation(
        "showCluster",
        "GET",
        "/v1/admin/cluster",
        cluster.show,
        "Show the cluster at a glance.",
        area="cluster",
        answer=bodies.Cluster,
    ),
    Operation(
        "showClusterHealth",
        "GET",
        "/v1/admin/cluster/health",
        cluster.health,
        "Tell what is wrong with the cluster, if anything.",
        area="cluster",
        answer=bodies.ClusterHealth,
    ),
)

_NODES = (
    Operation(
        "listNodes",
        "GET",
        "/v1/admin/nodes",
        cluster.list_nodes,
        "List the nodes: their addresses, and what they lead and keep.",
        area="cluster",
        answer=bodies.Nodes,
    ),
    Operation(
        "showNode",
        "GET",
        "/v1/admin/nodes/{node}",
        cluster.show_node,
        "Show a node.",
        area="cluster",
        answer=bodies.Node,
        errors=(errors.UnknownNode,),
    ),
    Operation(
        "unregisterNode",
        "DELETE",
        "/v1/admin/nodes/{node}",
        cluster.unregister,
        "Forget a node that has stopped for good and keeps nothing.",
        area="cluster",
        status=204,
        errors=(errors.UnknownNode, errors.NodeInUse, *_DECIDED),
    ),
    Operation(
        "showDrain",
        "GET",
        "/v1/admin/nodes/{node}/drain",
        cluster.show_drain,
        "Show how far a node is from leading nothing.",
        area="cluster",
        answer=bodies.Drain,
        errors=(errors.UnknownNode,),
    ),
    Operation(
        "drainNode",
        "POST",
        "/v1/admin/nodes/{node}/drain",
        cluster.drain,
        "Have other nodes lead what this one leads, and give it no more.",
        area="cluster",
        answer=bodies.Drain,
        errors=(errors.UnknownNode, errors.NodeInUse, *_DECIDED),
    ),
    Operation(
        "undrainNode",
        "POST",
        "/v1/admin/nodes/{node}/undrain",
        cluster.undrain,
        "Let a node lead again.",
        area="cluster",
        answer=bodies.Drain,
        errors=(errors.UnknownNode, *_DECIDED),
    ),
)

_PARTITIONS = (
    Operation(
        "listPlacements",
        "GET",
        "/v1/admin/partitions",
        cluster.list_partitions,
        "List partitions: who leads them, who keeps them, who is in sync.",
        area="cluster",
        request=bodies.ListPartitions,
        answer=bodies.PlacedPartitions,
        errors=(errors.UnknownTopic,),
    ),
    Operation(
        "electLeaders",
        "POST",
        "/v1/admin/partitions/elect",
        cluster.elect,
        "Have preferred leaders lead again, or any copy where nobody in sync is left.",
        area="cluster",
        request=bodies.Elect,
        answer=bodies.Changes,
        errors=(errors.UnknownTopic, errors.UnknownPartition, *_DECIDED),
        example={"topic": "orders"},
    ),
    Operation(
        "startReassignments",
        "POST",
        "/v1/admin/reassignments",
        cluster.start_moves,
        "Move the copies of partitions to other nodes.",
        area="cluster",
        request=bodies.StartMoves,
        answer=bodies.StartedMoves,
        errors=(
            errors.UnknownTopic,
            errors.UnknownPartition,
            errors.UnknownNode,
            errors.InvalidRequest,
            *_DECIDED,
        ),
        example={"moves": [{"topic": "orders", "partition": 0, "replicas": [1]}]},
    ),
    Operation(
        "listReassignments",
        "GET",
        "/v1/admin/reassignments",
        cluster.list_moves,
        "List the partitions that are moving, and how far they have come.",
        area="cluster",
        request=bodies.ListMoves,
        answer=bodies.Moving,
        merge=cluster.merge_moves,
    ),
    Operation(
        "cancelReassignments",
        "DELETE",
        "/v1/admin/reassignments",
        cluster.cancel_moves,
        "Leave partitions where they were before their moves.",
        area="cluster",
        request=bodies.CancelMoves,
        answer=bodies.Changes,
        errors=(errors.UnknownTopic, errors.UnknownPartition, *_DECIDED),
    ),
)

CLUSTER = (*_INFORMATION, *_NODES, *_PARTITIONS)
