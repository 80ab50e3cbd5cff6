"""Three real nodes, of which one has a disk that rots while all of them are down."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster import Cluster
from .test_cluster import Writer, check, create

pytestmark = pytest.mark.timeout(240)


def flip_a_bit(path: Path, *, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_copy_that_has_rotted_costs_nothing_though_its_node_comes_back_first(
    cluster: Cluster,
) -> None:
    create(cluster, "orders", partitions=1)
    writer = Writer(cluster, "orders")
    writer.until_acked(300)
    writer.finish()
    rotten = cluster.nodes[cluster.leader_of("orders")]
    for node in cluster.nodes.values():
        node.kill()
    (log,) = (rotten.data_dir / "logs/orders/0").glob("*.log")
    flip_a_bit(log, at=log.stat().st_size // 3)
    others = [node for node in cluster.nodes.values() if node is not rotten]
    for node in (rotten, *others):
        node.launch()
    for node in cluster.nodes.values():
        node.until_ready()
    cluster.until_in_sync("orders")
    check(cluster, "orders", writer)
