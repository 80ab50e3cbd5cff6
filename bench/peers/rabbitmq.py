"""RabbitMQ: one node on loopback, with ports, cookie and folders of its own.

It runs from the Debian package `rabbitmq-server`, without the system's service: epmd, through which
Erlang nodes find one another, is a child of ours too, on a port of its own, so a RabbitMQ that is
already running here is neither seen nor disturbed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from bench.clients.build import Toolbox
from bench.peers import END_WITH_US, PeerUnavailable, debian_version, free_ports

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 30
POLL_SECONDS = 0.1

# What a client says first in AMQP 0-9-1; a broker that serves answers with a frame of type 1.
_PROBE = b"AMQP\x00\x00\x09\x01"


class RabbitMq:
    """One running node, with quorum queues."""

    settings = "one node, durable quorum queue (synced before a confirm), persistent messages"

    def __init__(self, home: Path) -> None:
        # As the package manager knows it; the node itself would have to be asked over Erlang.
        self.version = debian_version("rabbitmq-server")
        self._home = home
        self._port = 0
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._children, "the node has not been started"
        return self._children[-1].pid

    def client(self, tools: Toolbox, mode: str) -> list[str]:
        """The load generator for this node."""
        return [str(tools.rabbitmq_bench()), mode, "--kind", "quorum"]

    def start(self) -> None:
        """Start the node and wait until it serves."""
        if not SERVER.exists():
            raise PeerUnavailable("RabbitMQ is not here: install rabbitmq-server (Debian)")
        self._home.mkdir(parents=True, exist_ok=True)
        self._port, distribution_port, epmd_port = free_ports(3)
        environment = self._environment(distribution_port, epmd_port)
        epmd = shutil.which("epmd")
        if epmd is None:
            raise PeerUnavailable("epmd is not here: install erlang-base (Debian)")
        self._spawn([epmd, "-port", str(epmd_port), "-address", "127.0.0.1"], environment)
        self._spawn([str(SERVER)], environment)
        self._wait_until_serving()

    def close(self) -> None:
        """End the node and remove its data."""
        for child in reversed(self._children):
            # The node has helpers of its own; all of them are in the group that we started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(STOP_SECONDS_MAX)
        self._children.clear()
        shutil.rmtree(self._home, ignore_errors=True)

    def _spawn(self, command: list[str], environment: dict[str, str]) -> None:
        with (self._home / "out").open("ab") as output:
            child = subprocess.Popen(
                [*END_WITH_US, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                env=environment,
                start_new_session=True,
            )
        self._children.append(child)

    def _environment(self, distribution_port: int, epmd_port: int) -> dict[str, str]:
        home = str(self._home)
        (self._home / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self._port}\n"
            # Messages wait on disk; what the page cache holds must not stop publishers.
            "vm_memory_high_watermark.relative = 0.6\n"
            "disk_free_limit.absolute = 50MB\n"
            "log.file.level = error\n"
        )
        (self._home / "no.env").write_text("")
        (self._home / "plugins").write_text("[].\n")
        return {
            "PATH": os.environ["PATH"],
            "HOME": home,  # holds the cookie
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": f"bench-{os.getpid()}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": f"{home}/no.env",
            "RABBITMQ_CONFIG_FILE": f"{home}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{home}/mnesia",
            "RABBITMQ_LOG_BASE": f"{home}/log",
            "RABBITMQ_PID_FILE": f"{home}/pid",
            # Then the start script becomes the node instead of watching over it.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._children[-1].poll() is not None:
                text = (self._home / "out").read_text(errors="replace")
                raise PeerUnavailable(f"RabbitMQ ended while starting: {text[-1000:]}")
            if _serves(self._port):
                return
            time.sleep(POLL_SECONDS)
        raise PeerUnavailable(f"RabbitMQ did not serve within {START_SECONDS_MAX} s")


def _serves(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(_PROBE)
            return connection.recv(1) == b"\x01"
    except OSError:
        return False


class RabbitMqStream:
    """The same node, with a stream in place of the queue."""

    settings = (
        "one node, stream (confirmed from the page cache), over AMQP 0-9-1: the stream protocol "
        "has no client in C"
    )

    def __init__(self, node: RabbitMq) -> None:
        self.version = node.version
        self._node = node

    @property
    def address(self) -> str:
        return self._node.address

    @property
    def pid(self) -> int:
        return self._node.pid

    def client(self, tools: Toolbox, mode: str) -> list[str]:
        """The load generator for this node."""
        return [str(tools.rabbitmq_bench()), mode, "--kind", "stream"]

    def start(self) -> None:
        """The node runs already."""

    def close(self) -> None:
        """Who started the node ends it."""
