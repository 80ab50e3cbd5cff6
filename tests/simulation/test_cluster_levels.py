"""Clusters with nodes of two releases: what they may write, and what changes when it is over."""

from __future__ import annotations

from contextlib import suppress

import pytest

from goqueue.cluster.commands import FinalizeLevel
from goqueue.cluster.facts import QueueGroupFact
from goqueue.model.errors import GoQueueError, UnsupportedVersion, UpgradeInProgress
from goqueue.model.names import JOURNEYS_TOPIC
from goqueue.model.support import LEVEL_MAX, LEVEL_MIN, SUPPORT, UNKNOWN
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

GROUP = "workers"
ROUNDS = 8


def level_of(node: ClusterNode) -> int:
    return node.broker.administration.level().level


def mixed(seed: int) -> ClusterWorld:
    """The second node is of the release before."""
    world = ClusterWorld(seed, supports={2: UNKNOWN})
    world.heal()
    assert {level_of(node) for node in world.up()} == {LEVEL_MIN}
    return world


def upgrade(world: ClusterWorld) -> None:
    """Replace the binary of the second node."""
    node = world.nodes[2]
    node.kill()
    del world.supports[2]
    node.start()
    world.heal()


def finalize(world: ClusterWorld) -> None:
    cluster = world.up()[0].broker.cluster
    assert cluster is not None
    world.wait(cluster.quorum.request(FinalizeLevel(LEVEL_MAX)))
    world.heal()
    assert {level_of(node) for node in world.up()} == {LEVEL_MAX}


def stored(world: ClusterWorld, group: str) -> QueueGroupFact:
    return world.nodes[1].broker.topics.facts.queue_groups()[group]


def test_what_an_older_node_could_not_read_is_written_when_the_upgrade_is_over() -> None:
    world = mixed(1)
    create = world.nodes[1].broker.queues.groups.create
    for later in ({"start": "by_duration:PT1H"}, {"error_headers": True}):
        with pytest.raises(UpgradeInProgress, match="upgrade of the cluster is finalized"):
            create(GROUP, later)
    world.wait(create(GROUP, {"visibility_ms": 5_000}))
    assert not stored(world, GROUP).settings.keys() & {"error_headers", "member_session_ms"}
    assert stored(world, GROUP).settings["deliveries_max"] == 3, "as when it was created"
    assert all(node.broker.topics.find(JOURNEYS_TOPIC) is None for node in world.up())
    with pytest.raises(GoQueueError, match="node 2"):
        finalize(world)
    upgrade(world)
    assert {level_of(node) for node in world.up()} == {LEVEL_MIN}, "nobody has said so"
    finalize(world)
    world.run_until(lambda: world.leader_of(JOURNEYS_TOPIC) is not None)
    world.wait(create(GROUP, {"error_headers": True}))
    assert stored(world, GROUP).settings["error_headers"] is True


def test_raising_the_level_changes_nothing_else() -> None:
    world = mixed(2)
    node = world.nodes[1].broker
    world.wait(
        node.dynamic_settings.change_group("readers", {"consumer_session_timeout_ms": "45000"})
    )
    world.wait(node.queues.groups.create(GROUP, {}))
    upgrade(world)
    finalize(world)
    for one in world.up():
        assert one.broker.dynamic_settings.group_times["readers"].session_ms == 45_000
        assert one.broker.queues.groups.is_known(GROUP)


def test_settings_of_groups_survive_a_snapshot_and_deleted_ones_do_not() -> None:
    """A node that was away gets the whole state at once, which has a type of its own."""
    world = mixed(3)
    away, node = world.nodes[3], world.nodes[1].broker
    change = node.dynamic_settings.change_group
    world.wait(change("gone", {"consumer_session_timeout_ms": "46000"}))
    world.wait(node.queues.groups.create("deleted", {}))
    world.network.cut([3], [1, 2])
    world.wait(change("gone", {"consumer_session_timeout_ms": None}))
    world.wait(change("readers", {"consumer_session_timeout_ms": "45000"}))
    world.wait(node.queues.groups.delete("deleted"))
    for other in (world.nodes[1], world.nodes[2]):
        quorum = other.broker.cluster.quorum  # type: ignore[union-attr]
        quorum._raft.log.compact(quorum.applied_index, quorum.metadata.snapshot(), entries_kept=0)
    world.heal()
    assert set(away.broker.dynamic_settings.group_times) == {"readers"}
    assert not away.broker.queues.groups.is_known("deleted")


def swap(world: ClusterWorld, node: ClusterNode, *, is_older: bool) -> None:
    """Start a node as the release before or as this one, whatever it was until now."""
    if node.is_up:
        world.random.choice((node.kill, node.crash))()
    world.supports.pop(node.number, None)
    if is_older:
        world.supports[node.number] = UNKNOWN
    try:
        node.start()
    except UnsupportedVersion:
        assert is_older, "this release supports every level there is"
        node.kill()


def check_levels(world: ClusterWorld, seen: dict[tuple[int, int], int]) -> None:
    """No node uses a level that it does not support, and in one life of it none goes back."""
    for node in world.up():
        level, life = level_of(node), (node.number, node.life)
        assert world.supports.get(node.number, SUPPORT).has_level(level)
        assert level >= seen.get(life, LEVEL_MIN)
        seen[life] = level


@pytest.mark.seeds(20)
def test_nodes_of_both_releases_come_and_go_while_others_finalize(seed: int) -> None:
    world = ClusterWorld(seed, supports={1: UNKNOWN, 2: UNKNOWN, 3: UNKNOWN})
    world.heal()
    chance, seen = world.random, dict[tuple[int, int], int]()
    groups: list[str] = []

    def create(node: ClusterNode, name: str) -> None:
        """Create a queue group, unless the node refuses it at once; note whether it was."""
        with suppress(GoQueueError):
            created = node.broker.queues.groups.create(name, {})
            created.then(lambda _, error: groups.append(name) if error is None else None)

    for number in range(ROUNDS):
        node = chance.choice(list(world.nodes.values()))
        swap(world, node, is_older=chance.random() < 0.3)
        for asked in chance.sample(world.up(), min(len(world.up()), 2)):
            cluster = asked.broker.cluster
            assert cluster is not None
            cluster.quorum.request(FinalizeLevel(LEVEL_MAX)).then(lambda _, error: None)
            create(asked, f"group-{number}-{asked.number}")
        for _ in range(chance.randint(1, 20)):
            world.run_for(chance.uniform(1, 400))
            check_levels(world, seen)
    for node in list(world.nodes.values()):
        swap(world, node, is_older=False)
    world.heal()
    check_levels(world, seen)
    finalize(world)
    for node in world.up():
        assert all(node.broker.queues.groups.is_known(one) for one in groups)
