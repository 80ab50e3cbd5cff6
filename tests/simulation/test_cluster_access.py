"""Every request of every front end × who sends it, on three nodes: no cell leaks or acts.

Requests go to each node, which owns some of what they are about and passes the others on.
"""

from __future__ import annotations

import pytest

from goqueue.loop.promise import promised
from goqueue.model.access import Acl, Action, PatternKind, Permission, Resource, ResourceKind
from goqueue.model.session import Session
from tests.simulation.access.matrix import (
    COLUMNS,
    check_exact_rules,
    check_other_tenant,
    check_refusals,
    send_allowed,
)
from tests.simulation.access.requests import FRONT_ENDS
from tests.simulation.access.scene import Scene
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.disk import SimulatedDisk

DENIED_CODES = {29, 30, 31, 53}  # of Kafka
ALICE = Session("test", principal="User:alice")
ORDERS = Resource(ResourceKind.TOPIC, "orders")
RULE = Acl(
    ResourceKind.TOPIC,
    PatternKind.PREFIXED,
    "ord",
    "User:alice",
    "*",
    Action.READ,
    Permission.ALLOW,
)


@pytest.fixture(autouse=True)
def size_of_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedDisk, "total_bytes", lambda self: 1 << 41, raising=False)


def scene_of_three_nodes(seed: int) -> tuple[ClusterWorld, Scene]:
    world = ClusterWorld(seed, groups__initial_rebalance_delay_ms="0", security__audit="off")
    world.run_until(lambda: not any(one.broker.cluster.waits_for for one in world.up()))  # type: ignore[union-attr]
    scene = Scene(world, [one.broker for one in world.nodes.values()])
    world.run_until(world.is_whole)
    return world, scene


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("column", COLUMNS)
def test_who_is_not_allowed_learns_nothing_and_does_nothing(column: str, number: int) -> None:
    world, scene = scene_of_three_nodes(number)
    assert check_refusals(scene, COLUMNS[column], world.nodes[number].broker) == []


def test_another_tenant_learns_nothing_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, scene = scene_of_three_nodes(2)
    # It creates topics of the same name again, which the watch takes for one topic.
    monkeypatch.setattr(world.watch, "check", lambda: None)
    assert check_other_tenant(scene, world.nodes[2].broker) == []


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_rules_for_what_is_checked_are_enough(front_end: str) -> None:
    world, scene = scene_of_three_nodes(1)
    allowed = send_allowed(scene, front_end, world.nodes[2].broker)
    for case, cell in allowed.items():
        if isinstance(cell.outcome, frozenset):
            assert not cell.outcome & DENIED_CODES, str(case)
        else:
            assert cell.outcome not in (401, 403), str(case)
    world, scene = scene_of_three_nodes(1)
    assert check_exact_rules(scene, allowed, world.nodes[2].broker) == []


def test_every_node_decides_by_the_metadata_it_has() -> None:
    world = ClusterWorld(5, security__access_control="on")
    world.run_until(lambda: not any(one.broker.cluster.waits_for for one in world.up()))  # type: ignore[union-attr]
    brokers = [one.broker for one in world.nodes.values()]

    def allowing() -> list[bool]:
        return [one.access.allows(ALICE, Action.READ, ORDERS) for one in brokers]

    assert allowing() == [False, False, False]
    world.wait(promised(brokers[2].access.add([RULE])))
    world.run_until(lambda: all(allowing()))
    world.network.cut([1], [2, 3])
    world.run_until(
        lambda: any(one.cluster.quorum.is_controller for one in brokers[1:])  # type: ignore[union-attr]
    )
    world.wait(promised(brokers[1].access.remove([RULE])))
    world.run_until(lambda: allowing() == [True, False, False])
    world.run_for(10_000)  # Without a controller, the last known rules hold.
    assert allowing() == [True, False, False]
    world.network.heal()
    world.run_until(lambda: not any(allowing()))
