"""Operations asked of any node of a cluster: their owner answers, also while it changes."""

from __future__ import annotations

import pytest

from goqueue.broker.publishing.publisher import Scheduled
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.errors import UnknownSchedule
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

SESSION = Session("test", principal="User:alice")
LATER_MS = 1 << 42


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    world.create("orders")
    return world


def schedule(world: ClusterWorld, node: ClusterNode) -> str:
    delayed = Record(None, b"v", ((DELAY_HEADER, b"600000"),))
    [result] = world.wait(node.broker.publish("orders", [delayed]))
    assert isinstance(result, Scheduled)
    return result.schedule_id


def test_every_node_answers_for_the_owner(world: ClusterWorld) -> None:
    for number, entry in world.nodes.items():
        for node in world.nodes.values():
            schedule_id = schedule(world, node)
            gate = entry.broker.gate.schedules
            found = world.wait(gate.show(SESSION, schedule_id=schedule_id))
            assert (found.topic, found.value, found.partition) == ("orders", b"v", None), number
            world.wait(gate.move(SESSION, schedule_id=schedule_id, due_ms=LATER_MS))
            assert world.wait(gate.show(SESSION, schedule_id=schedule_id)).due_ms == LATER_MS
            world.wait(gate.cancel(SESSION, schedule_id=schedule_id))
            with pytest.raises(UnknownSchedule):
                world.wait(gate.show(SESSION, schedule_id=schedule_id))


def test_a_call_waits_while_its_owner_is_replaced(world: ClusterWorld) -> None:
    owner_of = world.nodes[1].broker.schedules.owner_of
    schedule_id = schedule(world, world.nodes[1])
    former = world.nodes[owner_of(schedule_id)]
    entry = next(one for one in world.nodes.values() if one is not former)
    former.kill()
    found = world.wait(entry.broker.gate.schedules.show(SESSION, schedule_id=schedule_id))
    assert found.value == b"v"
    assert entry.broker.schedules.owner_of(schedule_id) != former.number
