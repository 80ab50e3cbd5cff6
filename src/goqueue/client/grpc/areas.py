"""Areas whose responses are not those of the HTTP API."""

from __future__ import annotations

import msgspec

from goqueue.client.grpc.request import call
from goqueue.client.grpc.requests.dead_letters import DeadLetterRequests
from goqueue.client.grpc.requests.groups import GroupRequests
from goqueue.client.grpc.requests.messages import MessageRequests
from goqueue.client.grpc.requests.queues import QueueRequests
from goqueue.client.grpc.requests.schedules import ScheduleRequests
from goqueue.client.grpc.requests.topics import TopicRequests
from goqueue.client.grpc.requests.transactions import TransactionRequests
from goqueue.client.http import areas as http
from goqueue.client.http.api import Api
from goqueue.client.http.request import AsyncSender, Request, Sender
from goqueue.client.http.requests import queues as http_queues
from goqueue.client.http.requests.cluster import ClusterRequests
from goqueue.wire.grpc.messages import admin_service_pb2 as admin
from goqueue.wire.grpc.messages import group_service_pb2 as groups

GRPC = Api(
    MessageRequests(),
    TopicRequests(),
    GroupRequests(),
    ScheduleRequests(),
    TransactionRequests(),
    QueueRequests,
    DeadLetterRequests,
)


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of a queue group are in which state."""

    ready: int
    in_flight: int
    retrying: int
    parked: int
    dead_lettering: int


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    addresses: dict[str, str]
    rack: str
    is_available: bool


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, as the node that answered sees it; no controller means that there is none."""

    cluster_id: str
    node: int
    controller: int | None
    version: str
    nodes: tuple[NodeInfo, ...]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who the client is to the broker."""

    principal: str
    tenant: str
    mechanism: str
    client_host: str


def counts(requests: http_queues.QueueRequests) -> Request[QueueCounts]:
    request = groups.GetQueueStatsRequest(group=requests.group, topic=requests.topic)

    def read(response: groups.GetQueueStatsResponse) -> QueueCounts:
        return QueueCounts(
            ready=response.ready,
            in_flight=response.in_flight,
            retrying=response.retrying,
            parked=response.parked,
            dead_lettering=response.dead_lettering,
        )

    return call("GroupService/GetQueueStats", request, groups.GetQueueStatsResponse, read)


def cluster_info() -> Request[ClusterInfo]:
    return call(
        "AdminService/GetCluster", admin.GetClusterRequest(), admin.GetClusterResponse, _cluster
    )


def session_info() -> Request[SessionInfo]:
    def read(response: admin.GetSessionResponse) -> SessionInfo:
        return SessionInfo(
            principal=response.principal,
            tenant=response.tenant,
            mechanism=response.mechanism,
            client_host=response.client_host,
        )

    return call(
        "AdminService/GetSession", admin.GetSessionRequest(), admin.GetSessionResponse, read
    )


def _cluster(response: admin.GetClusterResponse) -> ClusterInfo:
    return ClusterInfo(
        cluster_id=response.cluster_id,
        node=response.node,
        controller=None if response.controller < 0 else response.controller,
        version=response.version,
        nodes=tuple(
            NodeInfo(
                id=one.id,
                addresses=dict(one.addresses),
                rack=one.rack,
                is_available=one.available,
            )
            for one in response.nodes
        ),
    )


class Queue(http.Queue):
    """The messages of a topic, as delivered to one queue group."""

    def stats(self) -> QueueCounts:  # type: ignore[override]  # fewer fields than over HTTP
        """Return how many messages are ready, in flight and waiting for a retry."""
        return self._transport.send(counts(self._requests))


class AsyncQueue(http.AsyncQueue):
    """The messages of a topic, as delivered to one queue group."""

    async def stats(self) -> QueueCounts:  # type: ignore[override]  # fewer fields than over HTTP
        """Return how many messages are ready, in flight and waiting for a retry."""
        return await self._transport.send(counts(self._requests))


class Cluster(http.Cluster):
    """The nodes of the cluster; its administration is in the HTTP API."""

    def __init__(self, transport: Sender) -> None:
        super().__init__(ClusterRequests(), transport)

    def info(self) -> ClusterInfo:  # type: ignore[override]
        """Return the cluster and its nodes."""
        return self._transport.send(cluster_info())

    def session(self) -> SessionInfo:
        """Return who this client is to the broker."""
        return self._transport.send(session_info())


class AsyncCluster(http.AsyncCluster):
    """The nodes of the cluster; its administration is in the HTTP API."""

    def __init__(self, transport: AsyncSender) -> None:
        super().__init__(ClusterRequests(), transport)

    async def info(self) -> ClusterInfo:  # type: ignore[override]
        """Return the cluster and its nodes."""
        return await self._transport.send(cluster_info())

    async def session(self) -> SessionInfo:
        """Return who this client is to the broker."""
        return await self._transport.send(session_info())
