"""Settings that change while a cluster runs reach every node, and outlive each of them."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.broker.broker import Broker
from goqueue.broker.dynamic_settings import SESSION_MS
from tests.simulation.cluster_world import ClusterWorld

TOPIC = "orders"


def whole(world: ClusterWorld) -> None:
    world.run_until(world.is_whole)


def on_all(world: ClusterWorld, is_so: Callable[[Broker], bool]) -> None:
    world.run_until(lambda: len(world.up()) == 3 and all(is_so(one.broker) for one in world.up()))


def largest(broker: Broker) -> int:
    return broker.topics.get(TOPIC).settings.message_bytes_max


def test_defaults_of_topics_reach_every_node_and_survive_restarts() -> None:
    world = ClusterWorld(1)
    whole(world)
    world.create(TOPIC)
    first, second, _ = world.up()
    world.wait(first.broker.dynamic_settings.change_nodes(None, {"max_message_bytes": "5000"}))
    on_all(world, lambda broker: largest(broker) == 5000)
    number = second.broker.node_id
    world.wait(first.broker.dynamic_settings.change_nodes(number, {"max_message_bytes": "6000"}))
    on_all(world, lambda broker: largest(broker) == (6000 if broker.node_id == number else 5000))
    for node in world.up():
        node.crash()
        node.start()
        whole(world)
    on_all(world, lambda broker: largest(broker) == (6000 if broker.node_id == number else 5000))
    world.wait(
        world.up()[2].broker.dynamic_settings.change_nodes(None, {"max_message_bytes": None})
    )
    on_all(world, lambda broker: largest(broker) == (6000 if broker.node_id == number else 1048588))


def test_times_of_groups_reach_every_node_and_two_changes_at_once_both_last() -> None:
    world = ClusterWorld(2)
    whole(world)
    one, other, _ = world.up()
    promises = [
        one.broker.dynamic_settings.change_group("g", {SESSION_MS: "50000"}),
        other.broker.dynamic_settings.change_group("g", {"consumer_heartbeat_interval_ms": "900"}),
    ]
    for promise in promises:
        world.wait(promise)
    on_all(world, lambda broker: broker.dynamic_settings.group_times.get("g") == (50000, 900))


def test_replicas_that_a_write_needs_follow_the_default() -> None:
    world = ClusterWorld(3)
    whole(world)
    world.create(TOPIC)
    node = world.up()[0]
    world.wait(node.broker.dynamic_settings.change_nodes(None, {"min_insync_replicas": "4"}))

    def is_short() -> bool:
        leader = world.leader_of(TOPIC)
        partition = None if leader is None else leader.partition(TOPIC)
        return partition is not None and partition.shortage is not None

    world.run_until(is_short)
    world.wait(node.broker.dynamic_settings.change_nodes(None, {"min_insync_replicas": None}))
    world.run_until(lambda: not is_short())


def test_every_node_says_how_far_the_voters_are() -> None:
    world = ClusterWorld(4)
    whole(world)
    world.create(TOPIC)
    for node in world.up():
        state = world.wait(node.broker.administration.quorum_state())
        assert state.leader in {one.broker.node_id for one in world.up()}
        assert len(state.members) == 3
        assert state.commit_offset > 0
        assert all(one.end_offset > 0 and one.heard_ms > 0 for one in state.members)
