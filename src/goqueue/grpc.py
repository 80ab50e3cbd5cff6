"""The clients of the gRPC API.

    from goqueue.grpc import Client

They need the extra `goqueue[grpc]`, and are loaded when they are first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from goqueue.client.grpc import (
        AsyncClient,
        AsyncStreamConsumer,
        Client,
        ClusterInfo,
        GrpcSettings,
        NodeInfo,
        NotInGrpc,
        QueueCounts,
        SessionInfo,
        StreamConsumer,
    )

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module("goqueue.client.grpc"), name)
    except ModuleNotFoundError as error:
        # grpcio, or the runtime of its messages.
        if error.name is None or error.name.partition(".")[0] not in ("grpc", "google"):
            raise
        raise InvalidRequest(
            "The gRPC client needs the package grpcio; install goqueue[grpc]."
        ) from error
