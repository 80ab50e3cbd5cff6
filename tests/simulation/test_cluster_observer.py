"""What the observers of a cluster see together: every range once, by whoever leads or owns it."""

from __future__ import annotations

from collections import Counter

import pytest

from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.observer import Outcome
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.observing import CountingObserver

SESSION = Session("test", principal="User:alice")
COUNT = 12
DELAY_MS = 3_000


@pytest.fixture(params=range(3))
def world(request: pytest.FixtureRequest) -> ClusterWorld:
    observers = {number: CountingObserver() for number in range(1, 4)}
    world = ClusterWorld(request.param, observers=observers)
    world.run_until(world.is_whole)
    world.create("orders", partitions=3)
    return world


def observed(node: ClusterNode) -> CountingObserver:
    observer = node.world.observers[node.number]
    assert isinstance(observer, CountingObserver)
    return observer


def together(world: ClusterWorld, name: str) -> Counter[object]:
    """What all nodes have reported of one kind."""
    found: Counter[object] = Counter()
    for observer in world.observers.values():
        found += getattr(observer, name)
    return found


def settled(world: ClusterWorld, outcome: Outcome) -> Counter[object]:
    found: Counter[object] = Counter()
    for observer in world.observers.values():
        assert isinstance(observer, CountingObserver)
        found += observer.settled_as[outcome]  # type: ignore[arg-type]
    return found


def publish(world: ClusterWorld, node: ClusterNode) -> list[tuple[str, int, int]]:
    records = [Record(str(number).encode(), b"v") for number in range(COUNT)]
    results = world.wait(node.broker.publish("orders", records))
    return [("orders", one.partition, one.offset) for one in results if type(one) is Published]


def test_every_node_stores_once(world: ClusterWorld) -> None:
    stored = [place for node in world.nodes.values() for place in publish(world, node)]
    assert len(stored) == COUNT * len(world.nodes)
    assert together(world, "stored_at") == Counter(stored)
    assert together(world, "replicated_at") == Counter(stored)
    for node in world.nodes.values():
        for topic, number, _ in observed(node).stored_at:
            assert node.leads(topic, number)


def test_a_queue_delivers_and_settles_once(world: ClusterWorld) -> None:
    stored = publish(world, world.nodes[1])
    any_node = world.nodes[1].broker
    world.wait(any_node.queues.groups.create("shop"))
    world.run_until(lambda: any_node.queues.groups.owner_of("shop") in world.nodes)
    owner = world.nodes[any_node.queues.groups.owner_of("shop")]
    queues = owner.broker.queues
    received = []
    while len(received) < COUNT:
        call = queues.receive("shop", "orders", consumer="anna", messages_max=5, wait_ms=1000)
        received += list(world.wait(call.promise))
    receipts = [one.delivery.receipt for one in received]
    assert not any(world.wait(queues.nack("shop", receipts[:1], delay_ms=0)))
    assert not any(world.wait(queues.reject("shop", receipts[1:2], reason="no")))
    assert not any(world.wait(queues.ack("shop", receipts[2:])))
    places = Counter({("shop", *one): 1 for one in stored})
    assert together(world, "delivered_at") == places
    assert sum(settled(world, Outcome.ACKED).values()) == COUNT - 2
    assert sum(settled(world, Outcome.NACKED).values()) == 1
    assert sum(together(world, "dead_lettered_at").values()) == 1
    assert settled(world, Outcome.REJECTED) == together(world, "dead_lettered_at")
    acked = settled(world, Outcome.ACKED) + settled(world, Outcome.NACKED)
    assert acked + together(world, "dead_lettered_at") == places
    for node in world.nodes.values():
        assert node is owner or not observed(node).delivered_at


def test_delayed_messages_are_scheduled_and_released_once(world: ClusterWorld) -> None:
    delayed = Record(None, b"v", ((DELAY_HEADER, str(DELAY_MS).encode()),))
    ids = []
    for node in world.nodes.values():
        for result in world.wait(node.broker.publish("orders", [delayed] * COUNT)):
            assert type(result) is Scheduled
            ids.append(result.schedule_id)
    world.wait(world.nodes[1].broker.gate.schedules.cancel(SESSION, schedule_id=ids[0]))
    world.run_for(DELAY_MS + 7_000)  # The clocks of two nodes may be six seconds apart.
    scheduled = together(world, "scheduled_at")
    assert set(scheduled.values()) == {1}
    assert len(scheduled) == len(ids)
    assert sum(together(world, "cancelled_at").values()) == 1
    assert together(world, "released_at") + together(world, "cancelled_at") == scheduled
    stored = together(world, "stored_at")
    assert sum(stored.values()) == len(stored) == len(ids) - 1


def test_a_call_is_reported_by_the_node_that_was_asked(world: ClusterWorld) -> None:
    calls: list[CountingObserver] = [observed(node) for node in world.nodes.values()]
    world.wait(world.nodes[2].broker.gate.schedules.stats(SESSION))
    assert [one.calls for one in calls] == [[], [(SESSION.principal, "schedules.stats", "")], []]
