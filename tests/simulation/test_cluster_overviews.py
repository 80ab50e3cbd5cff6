"""Overviews of a cluster: every node knows the same, and says which nodes are not in it."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.overviews.figures import GroupListPage, GroupSelection
from goqueue.broker.gate.areas.overviews.history import KEPT_MS, Period
from goqueue.broker.gate.areas.overviews.paging import Paging
from goqueue.model.session import Session
from goqueue.model.share_groups import ShareHeartbeat
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

SESSION = Session("http", principal="User:alice", client_host="10.0.0.1")
TOPIC = "orders"
POINTS = 1000


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    world.create(TOPIC, partitions=3)
    world.run_until(world.is_whole)
    return world


def period(world: ClusterWorld) -> Period:
    until_ms = world.nodes[1].clock.wall_ms()
    return Period(until_ms - KEPT_MS, until_ms, POINTS)


def list_groups(world: ClusterWorld, node: ClusterNode) -> GroupListPage:
    return world.wait(
        node.broker.gate.figures.groups(
            SESSION,
            selection=GroupSelection(),
            sort="name",
            paging=Paging(10, False, None),
            with_figures=True,
        )
    )


def test_every_node_knows_which_queue_groups_have_members(world: ClusterWorld) -> None:
    names = [f"sharers-{number}" for number in range(4)]
    gate = world.nodes[1].broker.gate
    for name in names:
        beat = ShareHeartbeat(name, "one", 0, subscribed_topics=(TOPIC,))
        world.wait(gate.share_groups.heartbeat(SESSION, call=beat))
    world.wait(gate.groups.put_queue(SESSION, group="workers", settings=None))
    coordinators = {world.nodes[1].broker.groups.coordinator_of(name) for name in names}
    assert len(coordinators) > 1
    for node in world.nodes.values():
        figures = node.broker.gate.figures
        found = world.wait(figures.share_groups(SESSION, names=["workers", *names, "nobody"]))
        assert found == dict.fromkeys(names, 1)


def test_a_node_that_does_not_answer_is_missing_until_others_serve_for_it(
    world: ClusterWorld,
) -> None:
    here = next(one for one in world.nodes.values() if one.leads(TOPIC))
    away = next(one for one in world.nodes.values() if one is not here)

    def missing() -> tuple[list[int], list[int], list[int]]:
        """Of a list, and of what nodes have: of the list first, while a paused one is trusted."""
        gate = here.broker.gate
        listed = list_groups(world, here).missing_nodes
        recorded = world.wait(gate.history.of_cluster(SESSION, period=period(world)))
        _, silent = world.wait(gate.figures.totals(SESSION))
        return listed, gate.history.missing(SESSION, answered=recorded.nodes), silent

    assert missing() == ([], [], [])
    away.pause()
    assert missing() == ([away.number],) * 3
    away.kill()
    # Its partitions have other leaders now, so that lists are whole; what it recorded is gone.
    world.run_until(lambda: not list_groups(world, here).missing_nodes)
    assert missing() == ([], [away.number], [away.number])
    away.start()
    world.run_until(lambda: missing() == ([], [], []))


def test_a_stopped_node_is_missing_while_nobody_leads_what_it_had(world: ClusterWorld) -> None:
    create = world.nodes[1].broker.gate.topics.create
    world.wait(create(SESSION, name="single", partition_count=3, replication_factor=1))
    away = world.nodes[3]
    here = world.nodes[1]
    away.kill()
    world.run_for(60_000)
    assert list_groups(world, here).missing_nodes == [3]


def test_nodes_whose_clocks_differ_have_values_for_the_same_times(world: ClusterWorld) -> None:
    """They are added up one by one."""
    world.nodes[2].clock.skew_ms = 25_000
    world.nodes[3].clock.skew_ms = -25_000
    wanted = period(world)
    asked = [one.broker.local_gate.history for one in world.nodes.values()]
    found = [world.wait(one.of_cluster(SESSION, period=wanted)) for one in asked]
    assert len({(one.from_ms, one.step_ms) for one in found}) == 1
    assert len({len(values) for one in found for values in one.series.values()}) == 1
