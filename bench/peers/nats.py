"""NATS: one server on loopback with JetStream and its file store.

The server is built once from its Go module, into `.cache/nats/<version>`. JetStream's settings are
its defaults: what is acknowledged has been written, and is synced every two minutes. It can be told
to sync before each acknowledgement.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from bench.clients.build import Toolbox
from bench.peers import END_WITH_US, PeerUnavailable, free_ports
from bench.processes import end_process

NATS_VERSION = "2.15.2"
MODULE = "github.com/nats-io/nats-server/v2"
CACHE = Path(__file__).parents[2] / ".cache" / "nats"
BUILD_SECONDS_MAX = 600
START_SECONDS_MAX = 30
POLL_SECONDS = 0.005


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


class Nats:
    """One running server."""

    def __init__(self, home: Path, version: str = NATS_VERSION, *, is_synced: bool = False) -> None:
        self.version = version
        when = "before every acknowledgement" if is_synced else "every two minutes, as delivered"
        self.settings = f"JetStream file store, synced {when}"
        self._is_synced = is_synced
        self._home = home
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    def client(self, tools: Toolbox, mode: str) -> list[str]:
        """The load generator for this server."""
        if mode == "publish":
            return [str(tools.nats_publish()), mode]
        return [*END_WITH_US, str(tools.nats_bench()), mode]

    def start(self) -> None:
        """Start the server and wait until it serves."""
        program = install(self.version)
        self._home.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        config = self._home / "nats.conf"
        sync = "sync_interval: always\n" if self._is_synced else ""
        config.write_text(f'jetstream {{\nstore_dir: "{self._home / "data"}"\n{sync}}}\n')
        command = [
            *(*END_WITH_US, str(program), "--addr", "127.0.0.1", "--port", str(self._port)),
            *("--config", str(config)),
        ]
        with (self._home / "out").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                start_new_session=True,
            )
        self._wait_until_serving(self._process)

    def close(self) -> None:
        """End the server and remove its data."""
        if self._process is not None:
            end_process(self._process, signal.SIGKILL)
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)

    def _wait_until_serving(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if process.poll() is not None:
                text = (self._home / "out").read_text(errors="replace")
                raise PeerUnavailable(f"NATS ended while starting: {text[-1000:]}")
            if _serves(self._port):
                return
            time.sleep(POLL_SECONDS)
        raise PeerUnavailable(f"NATS did not serve within {START_SECONDS_MAX} s")


def _serves(port: int) -> bool:
    """Whether a server greets with its INFO line, and has JetStream by then."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return b'"jetstream":true' in connection.recv(65536)
    except OSError:
        return False
