"""Redis: one server on loopback that writes every change to its append-only file.

It runs from the Debian package `redis-server`, without the system's service and with no settings
of the system's. What an answer promises is a setting: `everysec` syncs the file once a second,
`always` before the answers of each turn of the server's loop.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Literal

from bench.clients.build import Toolbox
from bench.peers import END_WITH_US, PeerUnavailable, debian_version, free_ports
from bench.processes import end_process

START_SECONDS_MAX = 30
POLL_SECONDS = 0.005


class Redis:
    """One running server."""

    def __init__(self, home: Path, fsync: Literal["everysec", "always"]) -> None:
        self.version = debian_version("redis-server")
        self.settings = f"appendonly yes, appendfsync {fsync}, no snapshots; one stream"
        self._home = home
        self._fsync = fsync
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
        return [str(tools.redis_bench()), mode]

    def start(self) -> None:
        """Start the server and wait until it serves."""
        program = shutil.which("redis-server")
        if program is None:
            raise PeerUnavailable("Redis is not here: install redis-server (Debian)")
        self._home.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        command = [
            *(*END_WITH_US, program, "--bind", "127.0.0.1", "--port", str(self._port)),
            *("--dir", str(self._home), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", self._fsync),
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
                raise PeerUnavailable(f"Redis ended while starting: {text[-1000:]}")
            if _serves(self._port):
                return
            time.sleep(POLL_SECONDS)
        raise PeerUnavailable(f"Redis did not serve within {START_SECONDS_MAX} s")


def _serves(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
    except OSError:
        return False
