"""Three nodes whose clients come by TLS: each is sent to addresses of its own listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.certificates import Authority
from tests.integration.cluster import CLUSTER_SETTINGS, Cluster
from tests.integration.ports import quiet_port
from tests.integration.waiting import eventually

from .tls_nodes import TlsClusterBroker, Trust, read, server_settings, write

pytestmark = [pytest.mark.timeout(120), pytest.mark.single_node("it has nodes of its own")]


class TlsCluster(Cluster):
    """Nodes 1, 2 and 3; the third has no listener with TLS at first."""

    nodes: dict[int, TlsClusterBroker]  # type: ignore[assignment]

    def __init__(self, directory: Path, settings: dict[str, object]) -> None:
        ports = {number: quiet_port() for number in (1, 2, 3)}
        peers = ",".join(f"{number}@127.0.0.1:{port}" for number, port in ports.items())
        self.nodes = {}
        for number, port in ports.items():
            home = directory / f"node-{number}"
            home.mkdir(parents=True)
            node = TlsClusterBroker(
                home,
                {**CLUSTER_SETTINGS, **settings},
                node_id=number,
                internal_port=port,
                peers=peers,
            )
            node.tls_port = quiet_port() if number < 3 else None
            self.nodes[number] = node

    def outside(self) -> dict[int, str]:
        return {
            number: f"127.0.0.1:{node.tls_port}"
            for number, node in self.nodes.items()
            if node.tls_port is not None
        }


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    files = authority.sign("server", "127.0.0.1")
    cluster = TlsCluster(tmp_path_factory.mktemp("cluster"), server_settings(files))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def seen_by(address: str, settings: dict[str, object]) -> dict[int, str]:
    """The nodes and their addresses, as a client at this address learns them."""
    found = AdminClient({"bootstrap.servers": address, **settings}).list_topics(timeout=20)
    return {one.id: f"{one.host}:{one.port}" for one in found.brokers.values()}


def test_clients_stay_on_the_listener_that_they_came_by(
    cluster: TlsCluster, authority: Authority
) -> None:
    trust = Trust(authority.sign("any", "any").authorities)
    outside = cluster.outside()
    plain = {number: node.bootstrap for number, node in cluster.nodes.items()}
    eventually(lambda: seen_by(cluster.bootstrap, {}) == plain, because="all nodes are known")
    assert seen_by(outside[1], trust.librdkafka) == outside, "the third has none"

    topic = NewTopic("orders", num_partitions=6, replication_factor=3)
    for future in cluster.admin.create_topics([topic]).values():
        future.result(20)
    # The third node cannot be reached yet by TLS; partitions that it leads wait for it.
    cluster.nodes[3].stop()
    cluster.nodes[3].tls_port = quiet_port()
    cluster.nodes[3].start()
    outside = cluster.outside()
    eventually(
        lambda: seen_by(outside[1], trust.librdkafka) == outside,
        because="the third node has registered its listener",
    )
    values = [b"%d" % one for one in range(600)]
    write(outside[2], trust, "orders", values)
    assert sorted(read(outside[3], trust, "orders", 600)) == sorted(values)
