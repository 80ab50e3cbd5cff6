"""Other message brokers, started from their own releases to be measured and compared with.

Nothing here is needed to run or test GoQueue. A peer that cannot be had on this machine raises
`PeerUnavailable` with the reason, so that a benchmark can leave its row out and say why.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bench.clients.build import Toolbox

# When the process that measures is killed, the kernel ends the peer as well.
END_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


class PeerUnavailable(Exception):
    """The peer cannot be installed or started here. The text says what is missing."""


class Peer(Protocol):
    """A running broker with queues and a client of its own.

    All clients take the same options; `bench.peers.load` calls them.
    """

    version: str
    settings: str  # where it differs from the release as delivered, and what an answer promises

    @property
    def address(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def client(self, tools: Toolbox, mode: str) -> list[str]: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def debian_version(package: str) -> str:
    """As the package manager knows it."""
    dpkg = shutil.which("dpkg-query")
    if dpkg is None:
        return "unknown"
    command = [dpkg, "--show", "--showformat=${Version}", package]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


__all__ = ["END_WITH_US", "Peer", "PeerUnavailable", "debian_version", "free_ports"]
