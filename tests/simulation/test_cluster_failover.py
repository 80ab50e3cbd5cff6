"""How soon others lead what a node led, and what wrong news of a death costs: nothing."""

from __future__ import annotations

import pytest

from goqueue.broker.controller.quorum import Quorum
from goqueue.model.errors import GoQueueError, NotEnoughReplicas
from tests.simulation.clock import NeverHappened
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

# Defaults, unlike in other simulations, since these tests are about time.
SETTINGS = {"cluster__session_ms": "2000", "cluster__heartbeat_ms": "500"}


SELDOM = {"cluster__session_ms": "4000", "cluster__heartbeat_ms": "2000"}


def formed(seed: int, settings: dict[str, str] = SETTINGS) -> ClusterWorld:
    world = ClusterWorld(seed, **settings)
    world.heal()
    world.create("orders", min_insync_replicas="2")
    world.heal()
    return world


def quorum_of(node: ClusterNode) -> Quorum:
    assert node.broker.cluster is not None
    return node.broker.cluster.quorum


def controller(world: ClusterWorld) -> ClusterNode | None:
    return next((one for one in world.up() if quorum_of(one).is_controller), None)


def lead(world: ClusterWorld, *, by_controller: bool) -> ClusterNode:
    """The leader of the topic, once it is the controller, or is not."""

    def is_so() -> bool:
        leader, decider = world.leader_of("orders"), controller(world)
        is_both = leader is not None and leader is decider
        return leader is not None and decider is not None and is_both == by_controller

    leader, decider = world.leader_of("orders"), controller(world)
    assert leader is not None
    assert decider is not None
    if not is_so():
        # Whoever decides hands that over, so that one node does both, or two do.
        others = [one for one in world.nodes if one not in (leader.number, decider.number)]
        successor = leader.number if by_controller else others[0]
        quorum_of(decider)._raft.transfer(successor, decider.clock.now_ms())
        quorum_of(decider)._pump()
    world.run_until(is_so)
    world.heal()
    leader = world.leader_of("orders")
    assert leader is not None
    return leader


def until_acknowledged(world: ClusterWorld) -> int:
    """How many milliseconds pass until something is acknowledged again."""
    begin_ms, outcomes = world.age_ms, list[GoQueueError | None]()

    def send() -> None:
        world.produce("orders", ["x"], lambda _, error: outcomes.append(error))

    def is_acknowledged() -> bool:
        if outcomes and outcomes[-1] is not None:
            outcomes.clear()
            world.clock.call_later(5, send)
        return None in outcomes

    send()
    world.run_until(is_acknowledged)
    return world.age_ms - begin_ms


@pytest.mark.parametrize("by_controller", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_process_that_ends_is_missed_at_once(seed: int, by_controller: bool) -> None:
    world = formed(seed)
    lead(world, by_controller=by_controller).kill()
    assert until_acknowledged(world) < 500


def test_a_follower_that_ends_holds_up_no_acknowledgement() -> None:
    world = formed(4)
    leader = world.leader_of("orders")
    follower = next(one for one in world.up() if one is not leader)
    follower.kill()
    assert until_acknowledged(world) < 500


def test_a_machine_that_ends_is_missed_when_its_session_expires() -> None:
    world = formed(5)
    lead(world, by_controller=False).crash()
    assert 1_000 < until_acknowledged(world) < 3_000


def test_clients_are_not_sent_where_nobody_is() -> None:
    world = formed(6)
    victim = lead(world, by_controller=False)
    others = [one.broker.cluster for one in world.up() if one is not victim]
    victim.kill()
    # From the moment on in which the connection ends, before it is known why.
    assert not any(one.is_there(victim.number) for one in others if one)
    world.run_for(500)
    assert not any(one.is_there(victim.number) for one in others if one)
    assert [one.is_there(one.quorum.node_id) for one in others if one] == [True, True]
    victim.start()
    world.run_until(lambda: all(one.is_there(victim.number) for one in others if one))


def test_a_node_that_is_there_in_spite_of_the_news_is_trusted_and_found_again() -> None:
    world = formed(7)
    node, decider = lead(world, by_controller=False), controller(world)
    assert decider is not None
    cluster = decider.broker.cluster
    assert cluster is not None

    def is_fenced() -> bool:
        return quorum_of(decider).metadata.nodes[node.number].is_fenced

    world.network.mistake(decider.number, node.number)
    world.run_until(is_fenced, ms_max=500)
    assert not cluster.is_there(node.number)
    world.run_until(lambda: not is_fenced(), ms_max=1_000)
    world.run_until(lambda: cluster.is_there(node.number), ms_max=3_000)
    # The news is believed once, though nobody has said that it was wrong.
    with pytest.raises(NeverHappened):
        world.run_until(is_fenced, ms_max=5_000)
    assert until_acknowledged(world) < 100


def test_a_node_that_is_told_to_stop_does_not_wait_for_its_next_heartbeat() -> None:
    world = formed(8, SELDOM)
    node = lead(world, by_controller=True)
    begin_ms, done = world.age_ms, list[bool]()
    cluster = node.broker.cluster
    assert cluster is not None
    cluster.retire(lambda: done.append(True))
    world.run_until(lambda: bool(done))
    assert world.age_ms - begin_ms < 500
    assert world.leader_of("orders") not in (None, node)
    assert controller(world) not in (None, node)


def test_a_node_that_starts_again_is_trusted_before_its_next_heartbeat() -> None:
    world = formed(9, SELDOM)
    node = lead(world, by_controller=False)
    node.kill()
    world.run_for(1_000)
    begin_ms = world.age_ms
    node.start()
    world.run_until(lambda: node.broker.cluster is not None and _is_trusted(node))
    assert world.age_ms - begin_ms < 1_000


def _is_trusted(node: ClusterNode) -> bool:
    assert node.broker.cluster is not None
    return node.broker.cluster.membership.is_trusted


def readiness(node: ClusterNode) -> str:
    assert node.broker.cluster is not None
    return node.broker.cluster.catching_up.waits_for


def is_in_sync(node: ClusterNode) -> bool:
    [topic] = [one for one in node.broker.topics if one.name == "orders"]
    metadata = quorum_of(node).metadata
    return node.number in metadata.partitions.at((topic.fact.id, 0)).in_sync


@pytest.mark.parametrize("seed", range(3))
def test_a_restarted_node_is_ready_once_it_was_in_sync_and_stays_so(seed: int) -> None:
    world = formed(seed)
    leader, decider = lead(world, by_controller=False), controller(world)
    follower = next(one for one in world.up() if one not in (leader, decider))
    assert readiness(follower) == ""
    follower.kill()
    until_acknowledged(world)
    world.network.cut([follower.number], [leader.number])
    follower.start()
    assert readiness(follower) == "This node has not caught up with its cluster yet."
    cluster = follower.broker.cluster
    assert cluster is not None
    world.run_until(lambda: not cluster.waits_for)
    world.run_for(1_000)
    assert "have not been in sync since its start" in readiness(follower)
    world.network.heal()
    world.run_until(lambda: not readiness(follower))
    assert is_in_sync(follower)
    world.network.cut([follower.number], [leader.number])
    world.run_until(lambda: not is_in_sync(follower))
    assert readiness(follower) == "", "later lag is no reason to take it out of service"


@pytest.mark.parametrize("seed", range(3))
def test_restarting_one_node_after_the_other_when_it_is_ready_refuses_no_write(seed: int) -> None:
    world = formed(seed)
    refused = list[GoQueueError]()

    def note(_: list[str], error: GoQueueError | None) -> None:
        if isinstance(error, NotEnoughReplicas):
            refused.append(error)

    def send() -> None:
        if world.leader_of("orders") is not None:
            world.produce("orders", ["x" * 10_000] * 20, note)
        world.clock.call_later(20, send)

    send()
    for node in list(world.nodes.values()):
        node.kill()
        world.run_for(3_000)
        node.start()
        world.run_until(lambda node=node: not readiness(node))  # type: ignore[misc]
        assert is_in_sync(node)
    assert refused == []
