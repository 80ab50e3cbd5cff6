"""NATS: one server on loopback with JetStream and its file store.

The server is built once from its Go module, into `.cache/nats/<version>`. JetStream's settings are
its defaults: what is acknowledged has been written, and is synced every two minutes. It can be told
to sync before each acknowledgement.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from bench.clients.build import Toolbox
from bench.peers import END_WITH_US, PeerUnavailable
from bench.peers.child import ChildPeer

NATS_VERSION = "2.15.2"
MODULE = "github.com/nats-io/nats-server/v2"
CACHE = Path(__file__).parents[2] / ".cache" / "nats"
BUILD_SECONDS_MAX = 600


def install(version: str = NATS_VERSION) -> Path:
    """Return the server's program, building it the first time."""
    program = CACHE / version / "nats-server"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise PeerUnavailable("Go is needed to build NATS: `go` is not on the path.")
    partial = CACHE / f"{version}.{os.getpid()}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        [go, "install", f"{MODULE}@v{version}"],
        check=False,
        env=os.environ | {"GOBIN": str(partial)},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
    )
    if result.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise PeerUnavailable(f"Go could not build NATS {version}: {result.stderr[-1000:]}")
    program.parent.mkdir(parents=True, exist_ok=True)
    (partial / "nats-server").replace(program)
    partial.rmdir()
    return program


class Nats(ChildPeer):
    """One running server."""

    def __init__(self, home: Path, version: str = NATS_VERSION, *, is_synced: bool = False) -> None:
        super().__init__("NATS", home)
        self.version = version
        when = "before every acknowledgement" if is_synced else "every two minutes, as delivered"
        self.settings = f"JetStream file store, synced {when}"
        self._is_synced = is_synced

    def client(self, tools: Toolbox, mode: str) -> list[str]:
        """The load generator for this server."""
        if mode == "publish":
            return [str(tools.nats_publish()), mode]
        return [*END_WITH_US, str(tools.nats_bench()), mode]

    def start(self) -> None:
        """Start the server and wait until it serves."""
        program = install(self.version)
        self._make_home()
        config = self._home / "nats.conf"
        sync = "sync_interval: always\n" if self._is_synced else ""
        config.write_text(f'jetstream {{\nstore_dir: "{self._home / "data"}"\n{sync}}}\n')
        command = [
            *(str(program), "--addr", "127.0.0.1", "--port", str(self._port)),
            *("--config", str(config)),
        ]
        self._launch(command, lambda: _serves(self._port))


def _serves(port: int) -> bool:
    """Whether a server greets with its INFO line, and has JetStream by then."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return b'"jetstream":true' in connection.recv(65536)
    except OSError:
        return False
