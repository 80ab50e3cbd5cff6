"""Nodes that were killed with no free byte on their disks start again, from what was held back."""

from __future__ import annotations

import pytest

from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import StorageFull
from tests.simulation.test_cluster_disks import TOPIC, cluster_with_records, leader_of
from tests.unit.broker.node import Node

RESERVE_BYTES = 16 << 20
AGAIN_MS = 60_000


@pytest.mark.seeds(6)
def test_a_node_of_a_cluster_starts_with_no_free_byte(seed: int) -> None:
    world, writer = cluster_with_records(seed)
    world.run_for(2_000)
    full = leader_of(world)
    for _ in range(3):
        full.crash()
        assert full.disk.reserve_bytes() > 0, "something is held back for the next start"
        full.disk.fill_after(0)
        full.start()
        world.run_for(5_000)
        assert full.broker.upkeep.is_full
    full.disk.make_room()
    world.run_until(world.is_whole, ms_max=AGAIN_MS)
    world.run_for(2_000)
    assert not full.broker.upkeep.is_full
    assert full.disk.reserve_bytes() == RESERVE_BYTES
    writer.send(3)
    world.run_until(lambda: writer.out == 0, ms_max=AGAIN_MS)
    assert writer.acked[0] <= set(world.read(leader_of(world), TOPIC))


def test_a_node_that_is_alone_starts_serves_reads_and_refuses_writes() -> None:
    node = Node()
    node.create("orders")
    node.produce("orders", ["kept"])
    node.run_for(2_000)
    node.disk.fill_after(0)
    node.restart_after_crash()
    node.run_for(2_000)
    assert node.values("orders") == [b"kept"]
    topic = node.broker.topics.get("orders")
    batch = memoryview(encode_batch([Record(None, b"refused")]))
    with pytest.raises(StorageFull, match="disk is full"):
        node.broker.producing.produce(topic, topic.partition(0), batch)
    assert 0 < node.disk.reserve_bytes() < RESERVE_BYTES, "half of what is left is held back again"
    node.disk.make_room()
    node.run_for(3_000)
    assert node.disk.reserve_bytes() == RESERVE_BYTES
    node.produce("orders", ["taken"])
    assert node.values("orders") == [b"kept", b"taken"]
