"""A tenant is purged while the active controller changes, and made again under the same name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.broker.gate import Gate
from goqueue.broker.gate.areas.named_queues import NamedQueueSpec
from goqueue.broker.gate.areas.queues import QueueSettings
from goqueue.broker.gate.areas.records import Outgoing
from goqueue.broker.gate.areas.schemas import Request, SchemaKind, Subject
from goqueue.model.attributes import Attributes
from goqueue.model.batch import Record
from goqueue.model.errors import RequestTimedOut
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.unit.schemas.desk import record

OPERATOR = Session("http", principal="User:root")
ACME = Session("http", principal="User:u", tenant="acme")
OTHER = Session("http", principal="User:v", tenant="other")
TOPICS = tuple(f"orders-{number}" for number in range(6))
DELAY_MS = 3_600_000
ATTEMPTS = 10


def kill(world: ClusterWorld, node: ClusterNode) -> None:
    node.kill()


def pause(world: ClusterWorld, node: ClusterNode) -> None:
    node.pause()


def cut_off(world: ClusterWorld, node: ClusterNode) -> None:
    world.network.cut([node.number], [one for one in world.nodes if one != node.number])


def hand_over(world: ClusterWorld, node: ClusterNode) -> None:
    assert node.broker.cluster is not None
    assert node.broker.cluster.quorum.hand_over()


def furnish(world: ClusterWorld, gate: Gate, session: Session) -> None:
    """Give a tenant some of everything."""
    wait = world.wait
    for name in TOPICS:
        wait(gate.topics.create(session, name=name, partition_count=1))
    wait(gate.users.create(OPERATOR, user=session.user, password=None, tenant=session.tenant))
    wait(gate.groups.put_queue(session, group="workers", settings=QueueSettings()))
    wait(gate.named_queues.create(session, spec=NamedQueueSpec("jobs")))
    request = Request(record(name="User", a="string"), SchemaKind.AVRO)
    for context in (".", ".sales"):
        wait(
            gate.schemas.register(
                session,
                subject=Subject(context, "s"),
                request=request,
                normalize=False,
                force=False,
            )
        )
    later = Outgoing(Record(None, b"later"), Attributes(delay_ms=DELAY_MS))
    for name in TOPICS[:2]:
        records = [Outgoing(Record(None, b"now")), later]
        wait(gate.records.publish(session, topic=name, records=records))


def possessions(world: ClusterWorld, gate: Gate, session: Session) -> tuple[int, ...]:
    """Counts of everything that a tenant has, and of the users in it."""
    usage = world.wait(gate.tenants.usage(OPERATOR, tenant=session.tenant))
    named = (usage.users, usage.topics, usage.queues, usage.groups, usage.subjects)
    return (*named, usage.scheduled)


EVERYTHING = (1, len(TOPICS) + 1, 1, 2, 2, 2)  # a named queue has a topic and a group


def recreate(world: ClusterWorld, gate: Gate) -> None:
    for _ in range(ATTEMPTS):
        try:
            world.wait(gate.tenants.create(OPERATOR, tenant=ACME.tenant))
        except RequestTimedOut:
            continue
        return
    raise AssertionError("the tenant cannot be made again")


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    return world


@pytest.mark.parametrize("after_ms", [0, 15, 40, 120])
@pytest.mark.parametrize("trouble", [kill, pause, cut_off, hand_over])
def test_a_purge_outlives_its_controller_and_spares_the_tenant_of_the_same_name(
    world: ClusterWorld, trouble: Callable[[ClusterWorld, ClusterNode], None], after_ms: int
) -> None:
    first = world.nodes[world.nodes[1].broker.controller_id]
    other = next(one for one in world.nodes.values() if one is not first)
    gate = other.broker.gate
    for session in (ACME, OTHER):
        world.wait(gate.tenants.create(OPERATOR, tenant=session.tenant))
        furnish(world, gate, session)
    assert possessions(world, gate, ACME) == EVERYTHING
    world.wait(gate.tenants.delete(OPERATOR, tenant="acme", purge=True))
    world.run_for(after_ms)
    trouble(world, first)
    world.run_until(lambda: "acme" not in other.broker.tenants.all, ms_max=120_000)

    # A node that does not answer may have groups of this name; so no tenant is made without it.
    world.network.heal()
    first.resume()
    recreate(world, gate)
    furnish(world, gate, ACME)
    world.heal()
    world.run_for(30_000)
    assert possessions(world, gate, ACME) == EVERYTHING
    assert possessions(world, gate, OTHER) == EVERYTHING
