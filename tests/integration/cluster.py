"""Several `goqueue serve` processes that form one cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from tests.credentials import SECRET

from .ports import quiet_port
from .process import Broker
from .waiting import eventually

CLI_SECONDS_MAX = 120

# Small, because every partition of them has a copy on every node.
CLUSTER_SETTINGS: dict[str, object] = {
    "cluster.secret": SECRET,
    "groups.offsets_partitions": 3,
    "transactions.state_partitions": 3,
    "delivery.partitions": 2,
    "schedules.partitions": 2,
    "groups.initial_rebalance_delay_ms": 0,
}


class ClusterBroker(Broker):
    """One node of a cluster."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        *,
        node_id: int,
        internal_port: int,
        peers: str,
    ) -> None:
        super().__init__(directory, settings)
        self.node_id = node_id
        self.internal_port = internal_port
        self._peers = peers

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        command += ["--node-id", str(self.node_id), "--peers", self._peers]
        command += ["--listen-internal", f"127.0.0.1:{self.internal_port}"]
        return command

    def lose_disk(self) -> None:
        """All data of the node, which must not be running, is gone."""
        shutil.rmtree(self.data_dir)


class Cluster:
    """Nodes 1, 2, 3, … on loopback."""

    kind: type[ClusterBroker] = ClusterBroker

    def __init__(
        self, directory: Path, *, count: int = 3, settings: Mapping[str, object] | None = None
    ) -> None:
        ports = {number: quiet_port() for number in range(1, count + 1)}
        peers = ",".join(f"{number}@127.0.0.1:{port}" for number, port in ports.items())
        self.nodes: dict[int, ClusterBroker] = {}
        for number, port in ports.items():
            home = directory / f"node-{number}"
            home.mkdir(parents=True)
            self.nodes[number] = self.kind(
                home,
                {**CLUSTER_SETTINGS, **(settings or {})},
                node_id=number,
                internal_port=port,
                peers=peers,
            )

    @property
    def bootstrap(self) -> str:
        """The addresses to give to a Kafka client."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        """Start all nodes, none of which serves before most of them run."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.until_ready()

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def leader_of(self, topic: str, partition: int = 0) -> int:
        found = self.admin.list_topics(topic, timeout=20).topics[topic].partitions[partition]
        return int(found.leader)

    def cli(self, *words: str, node: int = 1, code: int = 0) -> Any:
        """Run a `goqueue` command; return what it printed, or its error."""
        address = self.nodes[node].http.removeprefix("http://")
        command = [sys.executable, "-m", "goqueue", *words, "--http", address, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CLI_SECONDS_MAX)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    def until_in_sync(self, topic: str) -> None:
        """Wait until every copy of a topic is in sync."""
        admin = self.admin

        def is_whole() -> bool:
            partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
            return bool(partitions) and all(
                one.leader > 0 and len(one.isrs) == len(one.replicas) for one in partitions
            )

        eventually(is_whole, because=f"all copies of {topic} are in sync")
