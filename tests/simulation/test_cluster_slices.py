"""Replicas that are opened slice by slice: what happens between two slices loses nothing."""

from __future__ import annotations

import pytest

from goqueue.broker.replication import replicas
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.test_cluster import Writer

PARTITIONS = 6
ROUNDS = 3
OPERATIONS_MAX = 60  # of a disk until it fails: some crashes are in the middle of the slices


@pytest.fixture(autouse=True)
def slices_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "OPENED_PER_TURN_MAX", 1)


def create(world: ClusterWorld, name: str) -> None:
    """Ask for a topic; whether it is made depends on what happens."""
    node = world.random.choice(world.up())
    settings = {"min_insync_replicas": "2"}
    node.broker.topics.create(name, partition_count=PARTITIONS, settings=settings).then(
        lambda *_: None
    )


def opened(node: ClusterNode, name: str) -> int:
    """How many replicas of a topic are open on a node."""
    topic = node.broker.topics.find(name) if node.is_up else None
    kept = node.broker.topics.keeps
    return 0 if topic is None else sum(kept(one) for one in topic.partitions)


def until_open(world: ClusterWorld, name: str) -> None:
    world.run_until(lambda: all(opened(node, name) == PARTITIONS for node in world.up()))


def create_some(world: ClusterWorld, node: ClusterNode) -> None:
    """Create a topic of which a node has opened some replicas, and not all."""
    world.heal()
    create(world, "orders")
    world.run_until(lambda: opened(node, "orders") > 1)
    assert opened(node, "orders") < PARTITIONS


def check(world: ClusterWorld, writer: Writer) -> None:
    """Every replica is open, and has what was acknowledged."""
    until_open(world, writer.topic)
    world.run_for(1_000)
    for node in world.up():
        for number, acked in enumerate(writer.acked):
            assert acked <= set(world.read(node, writer.topic, number))


def test_replicas_are_opened_in_slices_and_until_then_nobody_writes_to_them() -> None:
    world = ClusterWorld(1)
    world.heal()
    create(world, "orders")
    for node in world.up():
        world.run_until(lambda node=node: opened(node, "orders") > 0)  # type: ignore[misc]
    seen = {
        node.number: number
        for node in world.up()
        if 0 < (number := opened(node, "orders")) < PARTITIONS
    }
    assert seen, "all were opened in one turn"
    for number in seen:
        topics = world.nodes[number].broker.topics
        closed = [one for one in topics.get("orders").partitions if not topics.keeps(one)]
        assert all(one.is_following for one in closed)
    until_open(world, "orders")
    world.heal()
    writer = Writer(world, "orders", partitions=PARTITIONS)
    writer.send(30)
    world.run_until(lambda: writer.out == 0)
    assert writer.refused == 0
    check(world, writer)


def test_a_node_that_dies_between_two_slices_opens_the_rest_when_it_is_back() -> None:
    world = ClusterWorld(2)
    node = world.nodes[2]
    create_some(world, node)
    node.crash()
    writer = Writer(world, "orders", partitions=PARTITIONS)
    for _ in range(30):
        writer.send(1)
        world.run_for(100)
    world.heal()
    writer.send(10)
    world.run_until(lambda: writer.out == 0)
    assert any(writer.acked)
    check(world, writer)


def test_a_topic_that_is_deleted_between_two_slices_is_gone() -> None:
    world = ClusterWorld(3)
    node = world.nodes[1]
    create_some(world, node)
    world.wait(node.broker.topics.delete("orders"))
    world.run_for(1_000)
    assert all(one.broker.topics.find("orders") is None for one in world.up())
    world.create("orders", partitions=PARTITIONS)
    world.heal()
    check(world, Writer(world, "orders", partitions=PARTITIONS))


@pytest.mark.seeds(20)
def test_crashes_between_slices_lose_nothing(seed: int) -> None:
    world = ClusterWorld(seed)
    world.heal()
    chance, writers = world.random, []
    for number in range(ROUNDS):
        create(world, f"made-{number}")
        writers.append(Writer(world, f"made-{number}", partitions=PARTITIONS))
        victim = chance.choice(world.up())
        victim.crash_after(chance.randint(1, OPERATIONS_MAX))
        for _ in range(20):
            chance.choice(writers).send(2)
            world.run_for(chance.choice([chance.uniform(0, 5), chance.uniform(5, 300)]))
        victim.crash_after(None)
        if not victim.is_up:
            victim.start()
    world.heal()
    made = [one for one in writers if world.up()[0].broker.topics.find(one.topic) is not None]
    for writer in made:
        until_open(world, writer.topic)
        writer.send(5)
    world.run_for(5_000)  # what a crashed node was asked is never answered
    for writer in made:
        check(world, writer)
    assert not any(any(one.acked) for one in writers if one not in made)
