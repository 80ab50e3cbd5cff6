"""What members of share groups get when their rights end while they wait."""

from __future__ import annotations

import pytest

from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import AccessDenied
from goqueue.model.share_groups import AckType
from tests.simulation.world import World
from tests.unit.broker.gate.areas.policies import Only, topic
from tests.unit.broker.share_groups.member import Member, acks, values_of
from tests.unit.broker.share_groups.test_fetching import send, share_world

WAIT_MS = 20_000
GROUP = Resource(ResourceKind.GROUP, "workers")
GROUP_ONLY = Only((Action.READ, GROUP), (Action.DESCRIBE, topic("orders")))
BOTH = Only((Action.READ, GROUP), (Action.READ, topic("orders")), (Action.READ, topic("bills")))
BILLS = Only((Action.READ, GROUP), (Action.READ, topic("bills")))


@pytest.fixture
def world() -> World:
    world = share_world()
    world.broker.gate.policy = BOTH
    return world


def test_records_of_a_topic_do_not_reach_a_member_that_waits_and_lost_the_right_to_it(
    world: World,
) -> None:
    asked = Member(world, "one").ask(wait_ms=WAIT_MS)
    world.run_for(100)
    world.broker.gate.policy = GROUP_ONLY
    send(world, 3)
    [part] = world.wait(asked).parts
    assert isinstance(part.error, AccessDenied)
    assert (list(part.batches), list(part.acquired)) == ([], [])
    world.broker.gate.policy = BOTH
    assert Member(world, "two").take() == [(0, 2, 1)], "given back, and not counted"


def test_a_member_that_waits_still_gets_the_topics_that_it_may_read(world: World) -> None:
    world.create("bills", 1)
    asked = Member(world, "one").ask(wait_ms=WAIT_MS, topics=("orders", "bills"))
    world.run_for(100)
    world.broker.gate.policy = BILLS
    send(world, 1, topic="bills")
    fetched = world.wait(asked)
    assert [(one.topic, one.error) for one in fetched.parts] == [("bills", None)]
    assert values_of(fetched) == ["0"]


def test_a_wait_ends_with_the_right_to_the_group(world: World) -> None:
    asked: Promise[object] = Member(world, "one").ask(wait_ms=WAIT_MS)
    world.run_for(100)
    world.broker.gate.policy = Only((Action.READ, topic("orders")))
    with pytest.raises(AccessDenied):
        world.wait(asked)
    send(world, 1)
    world.broker.gate.policy = BOTH
    assert Member(world, "two").take() == [(0, 0, 1)]


def test_rules_that_change_and_still_allow_it_cost_a_member_nothing(world: World) -> None:
    member = Member(world, "one")
    asked = member.ask(wait_ms=WAIT_MS)
    world.run_for(100)
    world.broker.gate.policy = BOTH
    send(world, 1)
    assert values_of(world.wait(asked)) == ["0"]
    assert member.acknowledge(acks((0, 0, AckType.ACCEPT))) == [None]
