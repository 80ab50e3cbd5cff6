"""The client of the gRPC API: the HTTP client's methods over one HTTP/2 connection.

Calls, deadlines and credentials are `transport`; the calls of each area are `requests`, which
override those of the HTTP API; members of stream groups are streams (`stream_consumer`).
Everything else, producers, readers, consumers with handlers and transactions, is shared with
`client/http`. Nothing here is loaded before the first name of it is used, because the gRPC library
takes about 30 MB.
"""

from __future__ import annotations

from goqueue.client.grpc.areas import ClusterInfo, NodeInfo, QueueCounts, SessionInfo
from goqueue.client.grpc.async_client import AsyncClient
from goqueue.client.grpc.client import Client
from goqueue.client.grpc.request import NotInGrpc
from goqueue.client.grpc.settings import GrpcSettings
from goqueue.client.grpc.stream_consumer import AsyncStreamConsumer, StreamConsumer

__all__ = [
    "AsyncClient",
    "AsyncStreamConsumer",
    "Client",
    "ClusterInfo",
    "GrpcSettings",
    "NodeInfo",
    "NotInGrpc",
    "QueueCounts",
    "SessionInfo",
    "StreamConsumer",
]
