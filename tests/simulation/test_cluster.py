"""Clusters of whole brokers: what was acknowledged by all stays, whatever happens to nodes."""

from __future__ import annotations

import pytest

from goqueue.model.errors import GoQueueError
from tests.simulation.cluster_world import ClusterWorld


class Writer:
    """Sends numbered values and remembers which were acknowledged."""

    def __init__(self, world: ClusterWorld, topic: str, *, partitions: int = 1) -> None:
        self.world = world
        self.topic = topic
        self.partitions = partitions
        self.acked: list[set[str]] = [set() for _ in range(partitions)]
        self.refused = 0
        self.sent = 0
        self.out = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            number = self.world.random.randrange(self.partitions)
            values = [f"{self.sent + one}" for one in range(self.world.random.randint(1, 3))]
            self.sent += len(values)
            self.out += 1

            def done(values: list[str], error: GoQueueError | None, number: int = number) -> None:
                self.out -= 1
                if error is None:
                    self.acked[number].update(values)
                else:
                    self.refused += 1

            self.world.produce(self.topic, values, done, number=number)


def test_a_cluster_forms_and_replicates() -> None:
    world = ClusterWorld(1)
    world.heal()
    world.create("orders", partitions=3, min_insync_replicas="2")
    writer = Writer(world, "orders", partitions=3)
    writer.send(30)
    world.run_until(lambda: writer.out == 0)
    assert writer.refused == 0
    world.run_for(500)
    for number in range(3):
        contents = [world.read(node, "orders", number) for node in world.up()]
        assert contents[0] == contents[1] == contents[2]
        assert set(contents[0]) == writer.acked[number]


def test_another_node_leads_when_the_leader_dies() -> None:
    world = ClusterWorld(2)
    world.heal()
    world.create("orders", min_insync_replicas="2")
    writer = Writer(world, "orders")
    writer.send(10)
    world.run_until(lambda: writer.out == 0)
    old = world.leader_of("orders")
    assert old is not None
    old.crash()
    world.run_until(lambda: world.leader_of("orders") is not None, ms_max=5_000)
    new = world.leader_of("orders")
    assert new is not None
    assert new is not old
    writer.send(10)
    world.run_until(lambda: writer.out == 0)
    world.run_for(500)
    assert writer.acked[0] <= set(world.read(new, "orders"))
    world.heal()
    world.run_for(6_000)
    assert world.read(old, "orders") == world.read(new, "orders")


@pytest.mark.seeds(12)
def test_nothing_that_all_have_acknowledged_is_lost(seed: int) -> None:
    world = ClusterWorld(seed, node_count=5 if seed % 4 == 0 else 3)
    world.heal()
    world.create("orders", partitions=2, min_insync_replicas="2")
    writer = Writer(world, "orders", partitions=2)
    writer.send(6)
    world.run_until(lambda: writer.out == 0)
    assert writer.refused == 0
    chance = world.random
    for _ in range(10):
        faults = world.network.faults
        faults.loss = chance.choice([0.0, 0.0, 0.05, 0.2])
        faults.duplication = chance.choice([0.0, 0.1])
        faults.delay_ms = chance.choice([1.0, 5.0, 50.0])
        faults.late = chance.choice([0.0, 0.02])
        victim = chance.choice(list(world.nodes.values()))
        trouble = chance.random()
        if trouble < 0.25 and victim.is_up:
            victim.crash()
        elif trouble < 0.4 and victim.is_up:
            victim.kill()
        elif trouble < 0.55:
            world.network.cut([victim.number], [one for one in world.nodes if one != victim.number])
        elif trouble < 0.75:
            world.network.faults.cut.clear()
        if chance.random() < 0.6:
            for node in world.nodes.values():
                if not node.is_up:
                    node.start()
        for _ in range(chance.randint(1, 4)):
            writer.send(chance.randint(0, 4))
            world.run_for(chance.choice([chance.uniform(5, 300), chance.uniform(300, 2_000)]))
    world.heal()
    world.run_for(7_000)
    for number in range(2):
        contents = [world.read(node, "orders", number) for node in world.up()]
        kept = [
            one
            for node, one in zip(world.up(), contents, strict=True)
            if node.broker.topics.get("orders").partition(number).end_offset
        ]
        for one in kept:
            assert one == kept[0], f"seed {seed}: copies of {number} differ"
        lost = writer.acked[number] - set(kept[0] if kept else [])
        assert not lost, f"seed {seed}: {len(lost)} acknowledged values are lost"
