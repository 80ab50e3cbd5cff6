"""Nodes with a gRPC listener, whose address stays the same over their lives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .ports import quiet_port
from .process import Broker


class GrpcBroker(Broker):
    """A node that also serves gRPC."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        self._grpc_port = quiet_port()
        super().__init__(directory, {"listeners.grpc": self.grpc, **settings})

    @property
    def grpc(self) -> str:
        """The address to give to a gRPC client."""
        return f"127.0.0.1:{self._grpc_port}"
