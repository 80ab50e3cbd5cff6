"""New nodes that come together: one cluster, whoever is missing, slow, cut off or loses power."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress

import pytest

from goqueue.broker.controller.formation import PATIENCE_MS, Formation
from goqueue.broker.controller.node import Environment
from goqueue.cluster.bootstrap import Formed
from goqueue.cluster.raft.ready import RaftState
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.config import ClusterSettings, NodeSettings
from tests.simulation.clock import VirtualClock
from tests.simulation.disk import PowerLost, SimulatedDisk
from tests.simulation.network import Network

SOON_MS = 30_000  # by which nodes that hear each other have come together


class NewNode:
    """One life after the other of a node on its way into a cluster, and nothing else of it."""

    def __init__(self, world: FoundingWorld, number: int) -> None:
        self.world = world
        self.number = number
        self.disk = SimulatedDisk(world.random)
        self.is_up = False
        self.formation: Formation | None = None
        self.may_vote: bool | None = None  # None until it has begun
        self.state: RaftState | None = None

    def start(self, *, joins_only: bool = False, nodes: tuple[int, ...] | None = None) -> None:
        world = self.world
        self.clock = world.clock.node(skew_ms=world.random.randint(-3_000, 3_000))
        self.is_up = True
        self.may_vote = self.state = None
        peers = world.network.join(self.number, self.clock)
        formation = Formation(
            Environment(self.disk, self.clock, peers, world.random),
            RaftStorage(self.disk, "meta/quorum"),
            NodeSettings(id=self.number),
            ClusterSettings(join_only=joins_only),
            contacts=world.numbers if nodes is None else nodes,
            offered_id=f"offer-{self.number}-{next(world.lives)}",
            single_node=lambda: None,
        )
        self.formation = formation
        formation.start(self._begun)

    def _begun(self, state: RaftState, may_vote: bool) -> None:
        self.state, self.may_vote = state, may_vote

    def crash(self) -> None:
        self.world.check()
        self.is_up = False
        self.clock.die()
        self.world.network.leave(self.number)
        self.disk.crash()
        self.may_vote = self.state = None

    def lose_disk(self) -> None:
        if self.is_up:
            self.crash()
        self.disk = SimulatedDisk(self.world.random)
        self.formation = None

    @property
    def formed(self) -> Formed | None:
        return None if self.formation is None or not self.is_up else self.formation.formed


class FoundingWorld:
    def __init__(self, seed: int, count: int) -> None:
        self.random = random.Random(seed)
        self.clock = VirtualClock(self.random)
        self.clock.blocking_ms_max = 2.0
        self.network = Network(self.clock)
        self.numbers = tuple(range(1, count + 1))
        self.lives = itertools.count(1)
        self.nodes = {number: NewNode(self, number) for number in self.numbers}
        self.seen: set[Formed] = set()

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.nodes[number].start()

    def run_for(self, ms: float) -> None:
        """Let time go by. Nobody leaves a cluster while it runs, so a look at the end is enough."""
        self.clock.run_for(ms)
        self.check()

    def check(self) -> None:
        self.seen |= {one.formed for one in self.nodes.values() if one.formed is not None}
        assert len({one.cluster_id for one in self.seen}) <= 1, "two clusters of the same nodes"

    def heal(self) -> None:
        self.network.heal()
        self.start(*(one.number for one in self.nodes.values() if not one.is_up))

    def check_whole(self) -> None:
        """All are in the same cluster, and enough of them may vote at once for one to lead."""
        self.run_for(SOON_MS)
        assert len(self.seen) == 1
        formed = next(iter(self.seen))
        assert {one.formed for one in self.nodes.values()} == {formed}
        able = [one for one in self.nodes.values() if one.may_vote]
        assert 2 * len(able) > len(formed.voters)
        for one in able:
            assert one.state is not None
            assert one.state.snapshot.members.voters == formed.voters


@pytest.mark.seeds(40)
def test_any_majority_founds_a_cluster_and_the_others_join_it(seed: int) -> None:
    count = (3, 5, 4, 2, 1)[seed % 5]
    world = FoundingWorld(seed, count)
    missing = world.random.sample(world.numbers, (count - 1) // 2)
    world.network.faults.delay_ms = world.random.choice([1.0, 100.0, 300.0])
    world.network.faults.loss = world.random.choice([0.0, 0.2])
    present = [number for number in world.numbers if number not in missing]
    for number in present:
        world.start(number)
        world.run_for(world.random.uniform(0, 1_000))
    world.run_for(SOON_MS)
    assert {world.nodes[number].formed for number in present} == world.seen
    assert len(world.seen) == 1
    world.heal()
    world.check_whole()
    late = [world.nodes[number] for number in missing]
    for _ in range(2):
        assert not any(one.may_vote for one in late), "nobody knows what their disks promised"
        for one in late:
            one.crash()
            one.start()


def test_less_than_a_majority_founds_nothing() -> None:
    world = FoundingWorld(1, 5)
    world.start(4, 5)
    world.run_for(60_000)
    assert not world.seen
    node = world.nodes[4].formation
    assert node is not None
    assert node.waits_for == (
        "This node belongs to no cluster yet; nodes that have not answered: 1, 2, 3. "
        "A new cluster needs 3 of the nodes 1, 2, 3, 4, 5."
    )


def test_nodes_that_start_together_all_vote_from_the_beginning() -> None:
    world = FoundingWorld(2, 3)
    world.start(1, 2)
    world.run_for(PATIENCE_MS / 2)
    assert not world.seen, "the third may just be starting"
    world.start(3)
    world.run_for(1_000)
    (formed,) = world.seen
    assert [one.id for one in formed.initial_voters] == [1, 2, 3]
    assert all(one.may_vote for one in world.nodes.values())


@pytest.mark.seeds(10)
def test_the_lowest_does_not_keep_others_waiting_when_it_hears_too_few(seed: int) -> None:
    world = FoundingWorld(seed, 5)
    world.network.cut([1], [3, 4, 5])
    world.start(*world.numbers)
    world.run_for(SOON_MS)
    (formed,) = world.seen
    assert {one.id for one in formed.initial_voters} >= {2, 3, 4, 5}
    world.heal()
    world.check_whole()


@pytest.mark.seeds(60)
def test_a_cluster_is_founded_once_through_power_cuts_and_cut_networks(seed: int) -> None:
    world = FoundingWorld(seed, 3 + 2 * (seed % 2))
    chance = world.random
    for _ in range(25):
        faults = world.network.faults
        what = chance.random()
        one = world.nodes[chance.choice(world.numbers)]
        if what < 0.35:
            if one.is_up:
                one.crash()
            else:
                one.start()
        elif what < 0.5:
            side = chance.sample(world.numbers, chance.randint(1, len(world.numbers) - 1))
            other = [number for number in world.numbers if number not in side]
            chance.choice([world.network.cut, world.network.cut_one_way])(side, other)
        elif what < 0.6:
            world.network.heal()
        elif what < 0.7:
            faults.loss, faults.duplication, faults.late = chance.choice(
                [(0.0, 0.0, 0.0), (0.3, 0.2, 0.0), (0.1, 0.3, 0.5)]
            )
        world.run_for(chance.uniform(0, 2_500))
    world.heal()
    world.check_whole()


@pytest.mark.parametrize("victim", [1, 2])
@pytest.mark.parametrize("operation", range(1, 40))
def test_a_power_cut_at_any_moment_of_the_beginning(victim: int, operation: int) -> None:
    """The one that proposes, or one that accepts, stops before any of its disk operations.

    The others go on without it, and may not know what it has decided in its last moment.
    """
    world = FoundingWorld(operation * 2 + victim, 3)
    node = world.nodes[victim]
    node.disk.crash_at(operation)
    with suppress(PowerLost):
        world.start(1, 2, 3)
        world.run_for(2_000)
    node.crash()
    world.start(*(one.number for one in world.nodes.values() if not one.is_up and one != node))
    world.run_for(SOON_MS)
    assert all(one.formed for one in world.nodes.values() if one is not node)
    node.start()
    world.check_whole()


@pytest.mark.seeds(20)
def test_an_empty_disk_in_an_old_cluster_neither_votes_nor_founds(seed: int) -> None:
    world = FoundingWorld(seed, 3 + 2 * (seed % 2))
    missing = world.random.sample(world.numbers, seed % 2)
    world.start(*(one for one in world.numbers if one not in missing))
    world.run_for(SOON_MS)
    world.heal()
    world.check_whole()
    for _ in range(3):
        lost = world.random.sample(world.numbers, (len(world.numbers) - 1) // 2)
        for number in lost:
            world.nodes[number].lose_disk()
        # Those that know the cluster are not there yet when the empty ones come.
        others = [number for number in world.numbers if number not in lost]
        for number in others[1:]:
            world.nodes[number].crash()
        world.start(*lost)
        world.run_for(world.random.uniform(0, 2 * SOON_MS))
        world.heal()
        world.run_for(SOON_MS)
        assert all(one.formed in world.seen for one in world.nodes.values())
        assert len(world.seen) == 1
        assert not any(world.nodes[number].may_vote for number in lost)


@pytest.mark.seeds(20)
def test_an_empty_disk_that_is_told_to_join_is_safe_before_all_have_joined(seed: int) -> None:
    """One founder loses its disk before the third node has ever come: the worst that can be."""
    world = FoundingWorld(seed, 3)
    late, lost, kept = world.random.sample(world.numbers, 3)
    world.start(lost, kept)
    world.run_for(SOON_MS)
    assert len(world.seen) == 1
    world.nodes[kept].crash()
    world.nodes[lost].lose_disk()
    world.nodes[lost].start(joins_only=True)
    world.start(late)
    world.run_for(SOON_MS)
    assert world.nodes[lost].formed is None
    world.start(kept)
    world.run_for(SOON_MS)
    assert all(one.formed in world.seen for one in world.nodes.values())
    assert not world.nodes[lost].may_vote


def test_lists_that_differ_are_told_and_corrected_by_a_restart() -> None:
    world = FoundingWorld(5, 3)
    world.start(1, 3)
    world.nodes[2].start(nodes=(1, 2, 4))
    world.run_for(SOON_MS)
    assert not world.seen
    node = world.nodes[1].formation
    assert node is not None
    assert "node 2 has 1,2,4; configure the same list on all nodes" in node.waits_for
    world.nodes[2].crash()
    world.nodes[2].start()
    world.check_whole()


def test_a_node_of_another_cluster_is_not_taken_in() -> None:
    world = FoundingWorld(6, 3)
    world.start(1, 2, 3)
    world.run_for(SOON_MS)
    other = FoundingWorld(7, 3)
    other.nodes[3].disk = world.nodes[3].disk
    world.nodes[3].crash()
    other.start(1, 2)
    other.run_for(SOON_MS)
    stranger = other.nodes[3]
    stranger.start()
    other.clock.run_for(1_000)
    assert stranger.formation is not None
    assert stranger.formation.formed in world.seen, "a disk belongs to one cluster for ever"
