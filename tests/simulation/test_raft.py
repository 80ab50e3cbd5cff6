"""The metadata quorum in trouble: one leader for each term, one history for all, nothing lost."""

from __future__ import annotations

import pytest

from goqueue.cluster.raft import DamagedQuorumFile, RaftStorage
from tests.simulation.raft_trouble import Trouble
from tests.simulation.raft_world import FOLDER, World

TROUBLE_MS = 6_000


def _live(seed: int, *, voters: int, changes_members: bool) -> World:
    world = World(seed, voters=voters, spares=2 if changes_members else 0)
    _suffer(world, Trouble(world, changes_members=changes_members))
    return world


def _elect(seed: int, *, voters: int) -> World:
    world = World(seed, voters=voters)
    _suffer(world, Trouble.of_elections(world))
    return world


def _change(seed: int, *, voters: int) -> World:
    world = World(seed, voters=voters, spares=2)
    _suffer(world, Trouble.of_members(world))
    return world


def _suffer(world: World, trouble: Trouble) -> None:
    world.clock.run_for(400)
    trouble.run(TROUBLE_MS)
    trouble.end()
    world.history.check(world.checks.values)


@pytest.mark.seeds(25)
@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_quorum_keeps_its_promises_through_any_trouble(voters: int, seed: int) -> None:
    _live(seed, voters=voters, changes_members=False)


@pytest.mark.seeds(25)
@pytest.mark.parametrize("voters", [1, 3])
def test_a_quorum_keeps_its_promises_while_its_members_change(voters: int, seed: int) -> None:
    _live(seed, voters=voters, changes_members=True)


@pytest.mark.seeds(20)
@pytest.mark.parametrize("voters", [3, 4])
def test_a_quorum_keeps_its_promises_while_changes_are_left_unfinished(
    voters: int, seed: int
) -> None:
    _change(seed, voters=voters)


@pytest.mark.seeds(20)
@pytest.mark.parametrize("voters", [3, 5])
def test_a_quorum_keeps_its_promises_through_many_elections(voters: int, seed: int) -> None:
    _elect(seed, voters=voters)


@pytest.mark.seeds(10)
def test_a_leader_that_was_replaced_and_has_not_noticed_answers_no_read(seed: int) -> None:
    world = World(seed, voters=3)
    world.clock.run_until(lambda: world.leader() is not None, ms_max=3_000)
    old = world.leader()
    assert old is not None
    old.set_rate(0.01)
    world.cut = {(a, b) for a in range(3) for b in range(3) if old.id in (a, b)}
    world.clock.run_until(lambda: world.leader() is not old, ms_max=3_000)
    before = len(world.checks.values)
    world.clock.run_until(lambda: len(world.checks.values) > before, ms_max=3_000)
    assert old.raft.is_leader
    answers: list[object] = []
    assert old.read(answers.append) is None
    world.clock.run_for(1_000)
    assert answers == []
    world.cut.clear()
    world.clock.run_for(1_000)
    assert answers == [None]
    world.history.check(world.checks.values)


@pytest.mark.seeds(10)
def test_a_rotten_file_stops_its_node_and_nobody_else(seed: int) -> None:
    world = World(seed, voters=3)
    world.clock.run_for(1_000)
    node = world.voters[world.random.randrange(3)]
    node.crash()
    data = {name: node.disk.read_whole(f"{FOLDER}/{name}") for name in node.disk.list(FOLDER)}
    name = world.random.choice(sorted(data))
    node.disk.flip_bit(f"{FOLDER}/{name}", world.random.randrange(8 * len(data[name])))
    try:
        RaftStorage(node.disk, FOLDER).load()
    except DamagedQuorumFile:
        pass
    else:
        node.start()  # The bit was in the mark at the end, where nothing is kept.
    before = len(world.checks.values)
    world.clock.run_for(2_000)
    assert len(world.checks.values) > before
    world.history.check(world.checks.values)


def test_a_seed_replays_exactly() -> None:
    lives = [_live(3, voters=5, changes_members=True) for _ in range(2)]
    assert lives[0].checks.committed == lives[1].checks.committed
    assert lives[0].history.operations == lives[1].history.operations
    assert lives[0].sent == lives[1].sent > 0
