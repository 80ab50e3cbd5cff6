"""Quotas of a cluster of three nodes: one limit for all of them, also without a controller."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from goqueue.model.errors import GoQueueError, QuotaReached
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

ALICE = Session("test", principal="User:alice")
LIMIT = 1_000_000
BATCH = 20_000


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    return world


def limit(world: ClusterWorld, names: dict[str, str], **limits: float) -> None:
    gate = world.nodes[1].broker.gate
    world.wait(gate.quotas.alter(ALICE, names=names, limits=limits))
    world.run_until(lambda: all(one.broker.quotas.is_active for one in world.up()))


class Load:
    """Clients of some nodes that write as fast as they may, as if through a Kafka connection."""

    def __init__(self, world: ClusterWorld, nodes: Sequence[ClusterNode]) -> None:
        self.world = world
        self._nodes = nodes
        self._blocked_until_ms = dict.fromkeys(nodes, 0)

    def run(self, seconds: int) -> float:
        """Run for some time; return the bytes per second."""
        clock, passed = self.world.clock, 0
        began_ms = clock.now_ms()
        while clock.now_ms() - began_ms < seconds * 1_000:
            for node in self._nodes:
                if node.broker is not None and clock.now_ms() >= self._blocked_until_ms[node]:
                    meter = node.broker.quotas.meter(ALICE)
                    assert meter is not None
                    meter.produced(BATCH, 1)
                    passed += BATCH
                    self._blocked_until_ms[node] = clock.now_ms() + meter.take_wait()
            self.world.run_for(5)
        return passed * 1_000 / (clock.now_ms() - began_ms)


@pytest.mark.parametrize("numbers", [(1,), (2, 3), (1, 2, 3)])
def test_a_quota_is_held_on_any_number_of_nodes(
    world: ClusterWorld, numbers: tuple[int, ...]
) -> None:
    limit(world, {"user": "alice"}, producer_byte_rate=LIMIT)
    load = Load(world, [world.nodes[number] for number in numbers])
    load.run(4)
    assert 0.95 * LIMIT <= load.run(10) <= 1.05 * LIMIT


def test_a_load_that_moves_to_another_node_gets_the_quota_there(world: ClusterWorld) -> None:
    limit(world, {"user": "alice"}, producer_byte_rate=LIMIT)
    Load(world, [world.nodes[1]]).run(5)
    other = Load(world, [world.nodes[2]])
    other.run(7)
    assert 0.9 * LIMIT <= other.run(5) <= 1.05 * LIMIT


def test_the_quota_is_held_when_the_controller_is_replaced(world: ClusterWorld) -> None:
    limit(world, {"user": "alice"}, producer_byte_rate=LIMIT)
    controller = world.nodes[world.nodes[1].broker.controller_id]
    others = [one for one in world.nodes.values() if one is not controller]
    load = Load(world, others)
    load.run(4)
    controller.kill()
    assert load.run(10) <= 1.4 * LIMIT
    assert 0.95 * LIMIT <= load.run(10) <= 1.05 * LIMIT


def test_without_a_controller_the_last_shares_stay(world: ClusterWorld) -> None:
    limit(world, {"user": "alice"}, producer_byte_rate=LIMIT)
    keeper = world.nodes[1]
    load = Load(world, [keeper, world.nodes[2]])
    load.run(5)
    alone = Load(world, [keeper])
    world.nodes[2].kill()
    world.nodes[3].kill()
    alone.run(3)
    assert alone.run(10) <= 1.05 * LIMIT


def test_counts_of_all_nodes_are_added(world: ClusterWorld) -> None:
    limit(world, {"user": "alice"}, connections=3)
    first, second = (world.nodes[number].broker.gate for number in (1, 2))
    for _ in range(2):
        first.seat().take(ALICE)
    world.run_for(2_500)
    second.seat().take(ALICE)
    world.run_for(2_500)
    with pytest.raises(QuotaReached):
        second.seat().take(ALICE)
    with pytest.raises(QuotaReached):
        first.seat().take(ALICE)


def test_topics_are_counted_where_they_are_decided(world: ClusterWorld) -> None:
    """Nodes that create topics at once cannot both get the last one."""
    limit(world, {"tenant": ""}, topics=4)
    calls = [
        node.broker.gate.topics.create(ALICE, name=f"t{number}", partition_count=1)
        for number in range(4)
        for node in [world.nodes[number % 3 + 1]]
    ] + [
        world.nodes[number].broker.gate.topics.create(ALICE, name=f"u{number}", partition_count=1)
        for number in (1, 2, 3)
    ]
    outcomes: list[Exception | None] = []
    for call in calls:
        call.then(lambda _, error: outcomes.append(error))
    world.run_until(lambda: len(outcomes) == len(calls))
    assert sum(one is None for one in outcomes) == 4
    assert all(isinstance(one, QuotaReached) for one in outcomes if isinstance(one, GoQueueError))
