"""Three nodes that form a cluster in the place of one node, so that the same tests describe both.

What a test does to its node is done to all three, as a power cut of the whole room would. Kafka
clients are given all addresses. Over HTTP each test begins at another node: any must do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from .cluster import Cluster, ClusterBroker


class Trio:
    """Looks like `process.Broker`."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        self.directory = directory
        self.settings = dict(settings)
        self.cluster = Cluster(directory, settings=settings)
        self._turn = 1

    @property
    def nodes(self) -> list[ClusterBroker]:
        return list(self.cluster.nodes.values())

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def http(self) -> str:
        return self.cluster.nodes[self._turn].http

    @property
    def registry(self) -> str:
        return self.cluster.nodes[self._turn].registry

    @property
    def sqs(self) -> str:
        return self.cluster.nodes[self._turn].sqs

    @property
    def clock_ahead_seconds(self) -> int:
        return self.nodes[0].clock_ahead_seconds

    @clock_ahead_seconds.setter
    def clock_ahead_seconds(self, seconds: int) -> None:
        for node in self.nodes:
            node.clock_ahead_seconds = seconds

    @property
    def rss_bytes(self) -> int:
        return sum(node.rss_bytes for node in self.nodes)

    @property
    def log_text(self) -> str:
        return "\n".join(node.log_text for node in self.nodes)

    @property
    def pid(self) -> NoReturn:
        pytest.skip("looks at one process")

    @property
    def data_dir(self) -> NoReturn:
        pytest.skip("looks at the files of one node")

    def next_turn(self) -> None:
        """Let another node be the one that is asked over HTTP."""
        self._turn = self._turn % len(self.nodes) + 1

    def start(self) -> None:
        self.cluster.start()

    def stop(self) -> None:
        for node in self.nodes:
            node.ask_to_stop()
        for node in self.nodes:
            node.until_stopped()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.cluster.close()
