"""The invariants that every simulated cluster is held to: what breaks them, and what does not."""

from __future__ import annotations

import pytest

from goqueue.model.errors import GoQueueError
from tests.simulation.cluster_watch import Watch
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

TOPIC = "orders"


def cluster_with_a_topic() -> tuple[ClusterWorld, ClusterNode]:
    world = ClusterWorld(1)
    world.heal()
    world.create(TOPIC, min_insync_replicas="2")
    leader = world.leader_of(TOPIC)
    assert leader is not None
    return world, leader


def commit(world: ClusterWorld) -> None:
    acked: list[GoQueueError | None] = []
    world.produce(TOPIC, ["a"], lambda _, error: acked.append(error))
    world.run_until(lambda: bool(acked))
    assert acked == [None]
    world.run_for(300)  # Followers know of it too.


def test_a_paused_leader_may_lack_what_a_leader_that_nobody_looked_at_has_committed() -> None:
    """The newer leader led, committed and died between two ticks."""
    world, old = cluster_with_a_topic()
    watch = world.watch
    world.watch = Watch(world)
    old.pause()
    world.run_until(lambda: world.leader_of(TOPIC) is not None)
    commit(world)
    new = world.leader_of(TOPIC)
    assert new is not None
    new.kill()
    world.watch = watch
    world.check()
    assert watch.ledger(TOPIC).values() == ["a"]


def test_the_newest_leader_must_have_all_that_is_committed() -> None:
    world, leader = cluster_with_a_topic()
    commit(world)
    partition = leader.partition(TOPIC)
    assert partition is not None
    world.watch.ledger(TOPIC).end = partition.end_offset + 1
    with pytest.raises(AssertionError, match="up to 1, but 2 was committed"):
        world.check()
