"""A node whose certificate is revoked while its cluster runs is no longer one of its nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue.client.http import Client
from tests.certificates import Authority, Files
from tests.integration.cluster import Cluster, ClusterBroker
from tests.integration.test_cluster import Writer, check, create
from tests.integration.waiting import eventually

pytestmark = pytest.mark.timeout(240)

HOST = "127.0.0.1"


class RevocableCluster(Cluster):
    """Three nodes with certificates; the third does not learn who is revoked, like a thief's."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, settings={"cluster.secret": ""})
        self.authority = Authority(directory / "certificates")
        self.files = {number: self.certificate(number) for number in self.nodes}
        known = self.authority.revoke()
        old = known.with_name("old.crl")
        shutil.copy(known, old)
        for number, node in self.nodes.items():
            node.settings.update(self.files[number].settings)
            node.settings["cluster.tls_revocation_lists"] = old if number == 3 else known

    def certificate(self, number: int) -> Files:
        return self.authority.sign(f"node-{number}", HOST)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RevocableCluster]:
    cluster = RevocableCluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def in_sync(node: ClusterBroker, topic: str) -> set[int]:
    """The nodes that this one counts as in sync in every partition of a topic.

    Kafka clients may ask any node, also one that is shut out and still sees itself in sync.
    """
    with Client(node.http) as client:
        return set.intersection(*(set(one.in_sync) for one in client.topics.partitions(topic)))


def refusals(node: ClusterBroker) -> int:
    return node.log_text.count("certificate revoked")


def test_a_node_with_a_revoked_certificate_is_shut_out_and_the_others_go_on(
    cluster: RevocableCluster,
) -> None:
    create(cluster, "orders")
    cluster.until_in_sync("orders")
    writer = Writer(cluster, "orders")
    writer.until_acked(200)
    first, second, third = cluster.nodes.values()

    cluster.authority.revoke(cluster.files[3])
    eventually(
        lambda: in_sync(first, "orders") == {1, 2},
        because="its open connections are closed, so it replicates nothing",
    )
    for node in (first, second):
        node.until_logged("turned away: its certificate is refused: certificate revoked")
    writer.until_acked(200)

    # A restart does not help it.
    third.kill()
    before = refusals(third)
    third.launch()
    eventually(lambda: refusals(third) > before, because="it is told why")
    writer.until_acked(200)
    assert not (third.directory / "ready.json").exists()
    assert in_sync(first, "orders") == {1, 2}
    third.kill()

    # With a certificate that is not revoked it is a node again.
    cluster.certificate(3)
    third.start()
    cluster.until_in_sync("orders")
    writer.finish()
    assert writer.errors == []
    check(cluster, "orders", writer)
