"""Three nodes that form one cluster, of GoQueue and of Apache Kafka, on one machine."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bench.peers import PeerUnavailable, free_ports
from bench.peers.kafka import KAFKA_VERSION, Kafka
from bench.processes import REPOSITORY, end_process
from bench.systems import POLL_SECONDS, START_SECONDS_MAX, Unavailable

NODES = (1, 2, 3)
CLUSTER_SECRET = secrets.token_urlsafe(32)  # what the nodes know each other by


class ClusterNode(Protocol):
    """One of the nodes, which can be ended and started again."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def launch(self) -> None: ...

    def wait_until_serving(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class Cluster:
    """Nodes by their numbers, to be used where one system is."""

    is_storing = True

    def __init__(self, name: str, nodes: dict[int, ClusterNode], data_dir: Path) -> None:
        self.name = name
        self.nodes = nodes
        self.data_dir = data_dir

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def pid(self) -> int:
        """Of the first node alone."""
        return self.nodes[NODES[0]].pid

    def start(self) -> None:
        try:
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.wait_until_serving()
        except PeerUnavailable as error:
            raise Unavailable(str(error)) from error

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


class GoQueueNode:
    """A GoQueue node of a cluster, which is found at the same addresses in all its lives."""

    def __init__(
        self,
        number: int,
        home: Path,
        *,
        ports: tuple[int, int],
        peers: str,
        sasl_port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """With `sasl_port`, there is a second Kafka listener, for users with passwords."""
        self._home = home
        self._sasl_port = sasl_port
        self._port, internal_port = ports
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            *(sys.executable, "-m", "goqueue", "serve", "--data-dir", str(home / "data")),
            *("--node-id", str(number), "--peers", peers),
            *("--set", f"cluster.secret={CLUSTER_SECRET}"),
            *("--listen-kafka", self._kafka_listeners, "--listen-http", "127.0.0.1:0"),
            *("--listen-registry", "127.0.0.1:0", "--listen-sqs", "127.0.0.1:0"),
            *("--listen-internal", f"127.0.0.1:{internal_port}"),
            *("--ready-file", str(home / "ready")),
        ]
        for name, value in (settings or {}).items():
            self._command += ["--set", f"{name}={value}"]

    @property
    def _kafka_listeners(self) -> str:
        sasl = f",sasl_plaintext://{self.sasl}" if self._sasl_port else ""
        return self.bootstrap + sasl

    @property
    def sasl(self) -> str:
        """The address of the Kafka listener for users with passwords."""
        return f"127.0.0.1:{self._sasl_port}"

    @property
    def http(self) -> str:
        """The address of the HTTP listener."""
        return str(json.loads((self._home / "ready").read_text())["http"])

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node has not been started"
        return self._process.pid

    def launch(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        (self._home / "ready").unlink(missing_ok=True)
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                start_new_session=True,
            )

    def wait_until_serving(self) -> None:
        assert self._process is not None
        ready, deadline = self._home / "ready", time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if ready.exists() and json.loads(ready.read_text() or "{}"):
                return
            if self._process.poll() is not None:
                text = (self._home / "log").read_text(errors="replace").strip()
                raise Unavailable(f"a node ended while starting: {text[-200:]}")
            time.sleep(POLL_SECONDS)
        raise Unavailable(f"a node did not serve within {START_SECONDS_MAX} s")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        self.kill()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            end_process(self._process, how)
            self._process = None


def goqueue_cluster(
    home: Path, *, has_users: bool = False, settings: Mapping[str, str] | None = None
) -> Cluster:
    """Three GoQueue nodes with the settings they come with, and given ones; not yet started.

    With `has_users`, each has a second Kafka listener, for users with passwords.
    """
    found = free_ports(3 * len(NODES))
    ports, sasl_ports = _pairs(found[: 2 * len(NODES)]), found[2 * len(NODES) :]
    peers = ",".join(
        f"{number}@127.0.0.1:{pair[1]}" for number, pair in zip(NODES, ports, strict=True)
    )
    nodes: dict[int, ClusterNode] = {
        number: GoQueueNode(
            number,
            home / f"node-{number}",
            ports=pair,
            peers=peers,
            sasl_port=sasl_port if has_users else 0,
            settings=settings,
        )
        for number, pair, sasl_port in zip(NODES, ports, sasl_ports, strict=True)
    }
    return Cluster("three GoQueue nodes", nodes, home)


def kafka_cluster(home: Path) -> Cluster:
    """Three Apache Kafka nodes, each broker and controller, not yet started."""
    home.mkdir(parents=True, exist_ok=True)
    ports = _pairs(free_ports(2 * len(NODES)))
    voters = ",".join(
        f"{number}@127.0.0.1:{pair[1]}" for number, pair in zip(NODES, ports, strict=True)
    )
    replication = {
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
    }
    cluster_id = str(uuid.uuid4())
    nodes: dict[int, ClusterNode] = {
        number: Kafka(
            properties={
                "node.id": str(number),
                "controller.quorum.voters": voters,
                **replication,
            },
            directory=home,
            ports=pair,
            cluster_id=cluster_id,
        )
        for number, pair in zip(NODES, ports, strict=True)
    }
    return Cluster(f"three Apache Kafka {KAFKA_VERSION} brokers", nodes, home)


def _pairs(ports: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(ports[::2], ports[1::2], strict=True))
