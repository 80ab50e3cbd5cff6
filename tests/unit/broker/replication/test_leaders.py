"""A single node leads every partition itself."""

from __future__ import annotations

from goqueue.loop.peers import PeerKind
from goqueue.model.errors import NotLeader
from tests.simulation.world import World


def test_a_single_node_leads_what_it_has_and_sends_nobody_elsewhere() -> None:
    world = World(1)
    broker, topic = world.broker, world.create("orders")
    leaders = broker.leaders
    assert leaders.is_alone
    assert leaders.is_here(topic, 0)
    assert leaders.node_of(topic, 0) == broker.node_id
    assert leaders.epoch_of(topic, 0) == topic.partition(0).leader_epoch
    assert leaders.copies_of(topic) == 1
    assert not leaders.is_unfit(topic.id, 0)
    assert not leaders.is_curable(topic.id, 0)
    assert broker.nearest.racks("elsewhere") == {}
    assert broker.nearest.find(topic, 0, {}) is None


def test_a_single_node_calls_no_other() -> None:
    world = World(1)
    topic = world.create("orders")
    errors: list[Exception | None] = []
    called = world.broker.leaders.call(topic, 0, PeerKind.APPEND, b"")
    called.then(lambda _, error: errors.append(error))
    assert [type(error) for error in errors] == [NotLeader]
