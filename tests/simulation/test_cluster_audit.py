"""The audit log of a cluster: denied events survive changes of leaders, and kills as stated."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from goqueue.broker.reading.records import Place, read_page
from goqueue.loop.promise import Cancellation
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import AccessDenied
from goqueue.model.names import AUDIT_TOPIC
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.unit.tenancy.audit.test_ocsf import check

MERGED_MS = 11_000
LAST_MOMENTS_MS = 1_000  # within which an event is stored on a healthy cluster


class Nothing:
    """A policy that denies everything."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return False


@pytest.fixture(params=range(4))
def world(request: pytest.FixtureRequest) -> ClusterWorld:
    world = ClusterWorld(request.param, security__audit="on")
    world.run_until(world.is_whole)
    for node in world.nodes.values():
        deny_all(node)
    world.run_for(1_000)
    return world


def deny_all(node: ClusterNode) -> None:
    node.broker.gate.policy = Nothing()


def knock(node: ClusterNode, topic: str) -> None:
    """Have a node deny a user something."""
    session = Session("kafka", f"User:user-{node.number}", client_host="10.0.0.1")
    with pytest.raises(AccessDenied):
        node.broker.gate.topics.get(session, topic=topic)


def leader_of(world: ClusterWorld) -> ClusterNode:
    world.run_until(lambda: any(node.leads(AUDIT_TOPIC) for node in world.up()))
    return next(node for node in world.up() if node.leads(AUDIT_TOPIC))


def events_in(world: ClusterWorld) -> list[dict[str, Any]]:
    partition = leader_of(world).partition(AUDIT_TOPIC)
    assert partition is not None
    page = read_page([Place(partition, 0)], records_max=100_000, bytes_max=1 << 30)
    events = [json.loads(record.value or b"") for _, record in page.records]
    for event in events:
        check(event)
    return events


def denied_in(world: ClusterWorld) -> Counter[str]:
    """How often each name was denied, as the log has it."""
    found: Counter[str] = Counter()
    for event in events_in(world):
        if event.get("status_code") == "access_denied":
            found[event["resources"][0]["name"]] += event.get("count", 1)
    return found


def test_every_node_writes_to_one_log(world: ClusterWorld) -> None:
    for node in world.nodes.values():
        for _ in range(5):
            knock(node, f"secret-{node.number}")
    world.run_for(MERGED_MS)
    assert denied_in(world) == {f"secret-{number}": 5 for number in (1, 2, 3)}
    topic = world.nodes[1].broker.topics.get(AUDIT_TOPIC)
    assert topic.is_internal
    for node in world.nodes.values():
        assert node.partition(AUDIT_TOPIC) is not None
        assert len(node.broker.placement(topic, 0).replicas) == 3
    starts = [one for one in events_in(world) if one["class_uid"] == 6002]
    assert Counter(one["app"]["uid"] for one in starts) == {"1": 1, "2": 1, "3": 1}


def test_no_denied_event_is_lost_when_the_leader_fails(world: ClusterWorld) -> None:
    leader = leader_of(world)
    others = [node for node in world.nodes.values() if node is not leader]
    expected: Counter[str] = Counter()

    def knock_all(number: int) -> None:
        for node in others:
            knock(node, f"secret-{number}")
            expected[f"secret-{number}"] += 1

    for number in range(20):
        knock_all(number)
        world.run_for(100)
    leader.crash()
    for number in range(20, 60):
        knock_all(number % 30)
        world.run_for(100)
    leader.start()
    deny_all(leader)
    world.heal()
    world.run_for(MERGED_MS)
    assert denied_in(world) == expected
    uids = [one["metadata"]["uid"] for one in events_in(world)]
    assert len(set(uids)) == len(uids)


def test_events_wait_while_there_is_no_quorum(world: ClusterWorld) -> None:
    one, two, three = world.nodes.values()
    two.kill()
    three.kill()
    for number in range(10):
        knock(one, f"secret-{number}")
        world.run_for(1_000)
    world.heal()
    for node in world.nodes.values():
        deny_all(node)
    world.run_for(MERGED_MS + 20_000)
    assert denied_in(world) == {f"secret-{number}": 1 for number in range(10)}


def test_a_killed_node_loses_its_last_moments_and_counts(world: ClusterWorld) -> None:
    node = world.nodes[1]
    for number in range(30):
        for _ in range(3):
            knock(node, f"secret-{number}")
        world.run_for(10)
    world.run_for(LAST_MOMENTS_MS)
    knock(node, "too-late")
    node.kill()
    world.heal()
    world.run_for(MERGED_MS)
    found = denied_in(world)
    # Every kind of event is there; only the number of its repetitions is not.
    assert found == {f"secret-{number}": 1 for number in range(30)}


def test_a_reader_on_any_node_sees_the_whole_log(world: ClusterWorld) -> None:
    for node in world.nodes.values():
        knock(node, "secret")
    world.run_for(1_000)
    for node in world.nodes.values():
        node.broker.gate.policy = None
        page = world.wait(
            node.broker.gate.audit.newest(Session("test"), limit=100, cancellation=Cancellation())
        )
        texts = [json.loads(one.text) for one in page.events]
        assert sum("resources" in one for one in texts) == 3
    assert ResourceKind.TOPIC.lower() == texts[-1]["resources"][0]["type"]
