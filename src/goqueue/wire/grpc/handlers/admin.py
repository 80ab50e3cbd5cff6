"""AdminService: the cluster, and who the caller is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.support import release
from goqueue.wire.grpc.messages import admin_service_pb2 as bodies

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd


async def get_cluster(
    front: FrontEnd, call: Call, _: bodies.GetClusterRequest
) -> bodies.GetClusterResponse:
    node_id, cluster_id = front.gate.node.identity(call.session)
    return bodies.GetClusterResponse(
        cluster_id=cluster_id,
        node=node_id,
        controller=front.gate.cluster.controller(call.session),
        nodes=[
            bodies.Node(
                id=one.id, addresses=one.addresses, rack=one.rack, available=not one.is_fenced
            )
            for one in front.gate.cluster.nodes(call.session)
        ],
        version=release(),
    )


async def get_session(
    front: FrontEnd, call: Call, _: bodies.GetSessionRequest
) -> bodies.GetSessionResponse:
    session = call.session
    return bodies.GetSessionResponse(
        principal=session.principal,
        tenant=session.tenant,
        mechanism=session.mechanism,
        client_host=session.client_host,
    )
