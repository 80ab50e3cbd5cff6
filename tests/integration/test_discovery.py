"""Nodes that find each other by a name, over real sockets."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from goqueue.model.session import ListenerRules
from goqueue.runtime.clock import LoopClock
from goqueue.runtime.discovery import Discovery
from goqueue.runtime.listening import ConnectionLimits, Listener
from goqueue.wire.peers.frames import Hello
from goqueue.wire.peers.serving import PeerServer
from tests.credentials import new_credentials

from .cluster import CLUSTER_SETTINGS
from .ports import quiet_port
from .process import END_WITH_US, Broker
from .waiting import eventually

# What a name server would say. The machine's own resolver cannot be told such things.
RESOLVING = """
from goqueue.runtime.discovery import Discovery
async def look_up(self, host, port):
    assert host == "nodes.example"
    return [(f"127.0.0.{last}", port) for last in (1, 2, 3)]
Discovery._look_up = look_up
from goqueue.cli.main import main
main()
"""


class Named(Broker):
    """A node that knows only the name of all."""

    def __init__(self, directory: Path, number: int, port: int) -> None:
        settings = {
            **CLUSTER_SETTINGS,
            "node.id": number,
            "cluster.discovery": f"nodes.example:{port}",
            "cluster.discovery_count": 3,
            "listeners.internal": f"127.0.0.{number}:{port}",
        }
        super().__init__(directory, settings)

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        at = command.index("-m")
        return [*END_WITH_US, sys.executable, "-c", RESOLVING, *command[at + 2 :]]


@pytest.fixture
def named(tmp_path: Path) -> Iterator[list[Named]]:
    port = quiet_port()
    nodes = []
    for number in (1, 2, 3):
        (tmp_path / f"node-{number}").mkdir()
        nodes.append(Named(tmp_path / f"node-{number}", number, port))
    try:
        yield nodes
    finally:
        for node in nodes:
            node.close()


@pytest.mark.timeout(120)
def test_nodes_form_a_cluster_when_as_many_as_expected_have_been_found(named: list[Named]) -> None:
    for node in named[:2]:
        node.launch()
    eventually(lambda: "GQDK" in _disk_of(named[0]), because="the first node has begun to look")
    assert not (named[0].directory / "ready.json").exists()
    named[2].launch()
    for node in named:
        node.until_ready()
    admin = AdminClient({"bootstrap.servers": named[0].bootstrap, "log_level": 2})
    eventually(
        lambda: set(admin.list_topics(timeout=20).brokers) == {1, 2, 3},
        because="all have come together",
    )


def _disk_of(node: Broker) -> str:
    path = node.data_dir / "meta" / "disk"
    return path.read_bytes()[:4].decode() if path.exists() else ""


def test_discovery_tells_who_is_at_each_address_and_passes_over_who_is_silent() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        addresses = []
        for number in (1, 2):
            server = PeerServer(
                LoopClock(loop),
                lambda number=number: Hello("c", number),  # type: ignore[misc]
                new_credentials(),
            )
            listener = Listener(
                loop,
                server.connect,
                ConnectionLimits(
                    connections_max=10,
                    connections_per_address_max=-1,
                    idle_timeout_ms=60_000,
                    receive_bytes_total_max=1 << 20,
                ),
                ListenerRules("internal"),
            )
            addresses.append(listener.listen("127.0.0.1", 0))
        silent = ("127.0.0.1", quiet_port())
        found: asyncio.Future[dict[int, str]] = loop.create_future()

        async def resolve(host: str, port: int) -> list[tuple[str, int]]:
            return [*addresses, silent]

        discovery = Discovery(
            loop,
            "nodes.example",
            7000,
            found=lambda nodes: None if found.done() else found.set_result(nodes),
            is_idle=lambda: False,
            resolve=resolve,
            credentials=new_credentials(),
        )
        discovery.start()
        nodes = await asyncio.wait_for(found, 20)
        discovery.stop()
        assert nodes == {
            number: f"{host}:{port}" for number, (host, port) in enumerate(addresses, 1)
        }

    asyncio.run(story())
