"""Messages are there for receivers on any node as soon as they are committed."""

from __future__ import annotations

import pytest

from goqueue.model.errors import GoQueueError
from tests.simulation.cluster_queues import TOPIC, begin, owner_of
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

SOON_MS = 40  # a few messages between nodes, each of at most a millisecond, and writes of two


def a_follower(world: ClusterWorld) -> tuple[ClusterNode, int]:
    """The owner of a group that keeps a copy of a partition which another node leads."""
    owner = owner_of(world, "one")
    assert owner is not None
    numbers = [one for one in (0, 1) if world.leader_of(TOPIC, one) is not owner]
    return owner, numbers[0]


def commit(world: ClusterWorld, number: int, value: str) -> None:
    outcomes: list[GoQueueError | None] = []
    world.produce(TOPIC, [value], lambda _, error: outcomes.append(error), number=number)
    world.run_until(lambda: bool(outcomes))
    assert outcomes == [None]


def test_a_receiver_is_woken_at_once_by_what_another_node_commits() -> None:
    world = begin(3)
    owner, number = a_follower(world)
    for round_number in range(5):
        receiver = owner.broker.queues.receive("one", TOPIC, consumer="a", wait_ms=20_000)
        world.run_for(7_000)
        commit(world, number, str(round_number))
        began_ms = world.age_ms
        got = list(world.wait(receiver.promise))
        assert [one.record.value for one in got] == [str(round_number).encode()]
        if round_number:  # The first question of the follower is of before anybody waited.
            assert world.age_ms - began_ms < SOON_MS


@pytest.mark.seeds(2)
def test_all_followers_that_somebody_reads_know_what_is_committed(seed: int) -> None:
    world = begin(seed)
    nodes = world.up()
    for node in nodes:
        node.broker.queues._hosts.sources.of(node.broker.topics.get(TOPIC), 0)
    commit(world, 0, "first")
    world.run_for(1_000)
    commit(world, 0, "second")
    world.run_for(SOON_MS)
    assert {node.broker.topics.get(TOPIC).partition(0).high_watermark for node in nodes} == {2}


def test_followers_that_nobody_reads_are_not_told_each_time() -> None:
    world = begin(5)
    leader = world.leader_of(TOPIC, 0)
    assert leader is not None
    commit(world, 0, "first")
    world.run_for(1_000)
    commit(world, 0, "second")
    marks = [
        node.broker.topics.get(TOPIC).partition(0).high_watermark
        for node in world.up()
        if node is not leader
    ]
    world.run_for(SOON_MS)
    assert not leader.broker.topics.get(TOPIC).partition(0).watchers
    assert 1 in marks
    world.run_for(1_000)
    assert {n.broker.topics.get(TOPIC).partition(0).high_watermark for n in world.up()} == {2}
