"""Redis: one server on loopback that writes every change to its append-only file.

It runs from the Debian package `redis-server`, without the system's service and with no settings
of the system's. What an answer promises is a setting: `everysec` syncs the file once a second,
`always` before the answers of each turn of the server's loop.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Literal

from bench.clients.build import Toolbox
from bench.peers import PeerUnavailable, debian_version
from bench.peers.child import ChildPeer


class Redis(ChildPeer):
    """One running server."""

    def __init__(self, home: Path, fsync: Literal["everysec", "always"]) -> None:
        super().__init__("Redis", home)
        self.version = debian_version("redis-server")
        self.settings = f"appendonly yes, appendfsync {fsync}, no snapshots; one stream"
        self._fsync = fsync

    def client(self, tools: Toolbox, mode: str) -> list[str]:
        """The load generator for this server."""
        return [str(tools.redis_bench()), mode]

    def start(self) -> None:
        """Start the server and wait until it serves."""
        program = shutil.which("redis-server")
        if program is None:
            raise PeerUnavailable("Redis is not here: install redis-server (Debian)")
        self._make_home()
        command = [
            *(program, "--bind", "127.0.0.1", "--port", str(self._port)),
            *("--dir", str(self._home), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", self._fsync),
        ]
        self._launch(command, lambda: _serves(self._port))


def _serves(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
    except OSError:
        return False
