"""Clusters of whole brokers: what was acknowledged by all stays, whatever happens to nodes."""

from __future__ import annotations

import pytest

from goqueue.model.errors import GoQueueError
from tests.simulation.cluster_streams import Streams
from tests.simulation.cluster_trouble import Trouble
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


TOPIC = "orders"
PARTITIONS = 2
STEPS = 12


class Run:
    """One cluster of three or five nodes, its clients and its troubles."""

    def __init__(self, seed: int) -> None:
        self.world = world = ClusterWorld(seed, node_count=5 if seed % 4 == 0 else 3)
        world.heal()
        world.create(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        self.streams = Streams(world, TOPIC, partitions=PARTITIONS)
        self.trouble = Trouble(world, [(TOPIC, number) for number in range(PARTITIONS)])
        self.is_working = True
        self._work()

    def _work(self) -> None:
        """Clients take turns, on and on."""
        if self.is_working:
            self.world.clock.call_later(self.world.random.uniform(5, 120), self._work)
            self.streams.work()

    def go_through_trouble(self) -> None:
        chance = self.world.random
        for _ in range(STEPS):
            self.trouble.strike()
            self.world.run_for(chance.choice([chance.uniform(5, 300), chance.uniform(300, 2_000)]))

    def recover(self) -> None:
        self.trouble.end()
        self.is_working = False
        self.streams.settle()
        self.world.watch.check_whole()


@pytest.mark.seeds(100)
def test_nothing_that_all_have_acknowledged_is_lost(seed: int) -> None:
    run = Run(seed)
    run.go_through_trouble()
    run.recover()
    run.streams.check_histories()
