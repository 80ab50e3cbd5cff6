"""The quorum as it is driven: commands from any node, while nodes and the network fail."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from goqueue.broker.controller.calls import COMMAND_TIMEOUT_MS
from goqueue.cluster.commands import (
    CreateTopic,
    DeleteTopic,
    FinalizeLevel,
    ReserveProducerIds,
    Result,
    TakeOverProducer,
)
from goqueue.cluster.facts import NamedProducer
from goqueue.model.errors import GoQueueError, InvalidRequest, TopicExists, UnsupportedVersion
from goqueue.model.support import LEVEL_MAX, LEVEL_MIN, SUPPORT, Support
from tests.simulation.quorum_world import INTERNAL, QuorumNode, QuorumWorld


class Outcome:
    """What became of a command."""

    def __init__(self, node: QuorumNode, command: object) -> None:
        self.command = command
        self.node, self.life = node, node.life
        self.result: Result = None
        self.error: Exception | None = None
        self.is_done = False
        node.quorum.request(command).then(self._done)  # type: ignore[arg-type]

    def _done(self, result: Result, error: Exception | None) -> None:
        self.is_done, self.result, self.error = True, result, error


def test_a_cluster_forms_and_every_node_becomes_a_trusted_member() -> None:
    world = QuorumWorld(1)
    world.settle()
    ids = {node.quorum.metadata.cluster.cluster_id for node in world.up()}  # type: ignore[union-attr]
    assert len(ids) == 1
    assert set(world.controller().quorum.metadata.nodes) == {1, 2, 3}


def test_a_single_voter_needs_nobody() -> None:
    world = QuorumWorld(2, voters=1)
    world.settle()
    outcome = Outcome(world.nodes[1], CreateTopic(b"i" * 16, "orders", 3))
    world.run_for(1_000)
    assert outcome.is_done
    assert outcome.error is None


def test_a_node_that_no_list_names_joins_and_gets_the_log() -> None:
    world = QuorumWorld(3, voters=3, learners=2)
    world.settle()
    assert set(world.nodes[5].quorum.metadata.nodes) == {1, 2, 3, 4, 5}
    assert world.nodes[5].quorum.voters == (1, 2, 3)


def test_whoever_asks_sees_what_was_decided_when_the_answer_comes() -> None:
    world = QuorumWorld(4)
    world.settle()
    for number, node in world.nodes.items():
        outcome = Outcome(node, CreateTopic(bytes([number]) * 16, f"topic-{number}", 2))
        world.clock.run_until(lambda o=outcome: o.is_done)  # type: ignore[misc]
        assert outcome.error is None
        assert node.quorum.metadata.topic(f"topic-{number}") is not None


def test_two_who_want_the_same_name_do_not_both_get_it() -> None:
    world = QuorumWorld(5)
    world.settle()
    outcomes = [
        Outcome(node, CreateTopic(bytes([number]) * 16, "orders", 1))
        for number, node in world.nodes.items()
    ]
    world.run_for(3_000)
    assert all(one.is_done for one in outcomes)
    refused = [one for one in outcomes if one.error is not None]
    assert len(refused) == 2
    assert all(isinstance(one.error, TopicExists) for one in refused)


def test_a_controller_that_is_cut_off_stops_deciding_and_another_begins() -> None:
    world = QuorumWorld(6)
    world.settle()
    old = world.controller()
    others = [node.number for node in world.up() if node is not old]
    world.network.cut([old.number], others)
    outcome = Outcome(old, CreateTopic(b"x" * 16, "orders", 1))
    world.run_for(5_000)
    assert not old.quorum.is_controller
    assert not outcome.is_done
    assert world.controller().number in others
    world.settle()
    world.run_for(3_000)
    assert outcome.is_done, "it is tried again until somebody decides"
    assert outcome.error is None
    world.check()


def test_who_asks_again_is_not_told_that_a_decision_stands_which_was_lost() -> None:
    world = QuorumWorld(8)
    world.settle()
    old = world.controller()
    others = [node for node in world.up() if node is not old]
    world.network.cut([old.number], [node.number for node in others])
    command = CreateTopic(b"x" * 16, "orders", 1)
    Outcome(old, command)
    seen: list[bool] = []
    old.quorum.request(command).then(
        lambda _, error: seen.append(old.quorum.metadata.topic("orders") is not None)
    )
    # Another controller fills the places in the log that the lost decision had.
    world.clock.run_until(lambda: any(node.quorum.is_controller for node in others))
    for number in range(10):
        Outcome(others[0], CreateTopic(bytes([number]) * 16, f"topic-{number}", 1))
    world.run_for(3_000)
    world.network.heal()
    world.clock.run_until(lambda: bool(seen))
    assert seen == [True]


@pytest.mark.seeds(30)
def test_facts_survive_whatever_happens_to_nodes_and_network(seed: int) -> None:
    world = QuorumWorld(seed, voters=5 if seed % 5 == 0 else 3, learners=seed % 2)
    chance = world.random
    outcomes: list[Outcome] = []
    count = 0
    for _ in range(12):
        faults = world.network.faults
        faults.loss = chance.choice([0.0, 0.0, 0.1, 0.3])
        faults.duplication = chance.choice([0.0, 0.1])
        faults.delay_ms = chance.choice([1.0, 20.0, 100.0])
        faults.late = chance.choice([0.0, 0.05])
        for node in world.up():
            if chance.random() < 0.7:
                count += 1
                command = chance.choice(
                    [
                        CreateTopic(count.to_bytes(16, "big"), f"topic-{count}", 1),
                        ReserveProducerIds(10),
                        TakeOverProducer("releaser"),
                    ]
                )
                outcomes.append(Outcome(node, command))
        trouble = chance.random()
        victim = chance.choice(list(world.nodes.values()))
        if trouble < 0.2 and victim.is_up:
            victim.crash()
        elif trouble < 0.35 and victim.is_up:
            victim.kill()
        elif trouble < 0.5:
            others = [one for one in world.nodes if one != victim.number]
            world.network.cut([victim.number], others)
        elif trouble < 0.7:
            world.network.faults.cut.clear()
        if chance.random() < 0.5:
            for node in world.nodes.values():
                if not node.is_up:
                    node.start()
        world.run_for(chance.uniform(10, 2_000))
    world.settle()
    world.run_for(35_000)
    check_outcomes(world, outcomes)


def check_outcomes(world: QuorumWorld, outcomes: list[Outcome]) -> None:
    """What was answered holds, and nobody was given what another has."""
    metadata = world.controller().quorum.metadata
    ids: list[int] = []
    producers: list[NamedProducer] = []
    for one in outcomes:
        is_alive = one.life == one.node.life
        assert one.is_done or not is_alive, "every command that lives gets an answer"
        if not one.is_done or one.error is not None:
            continue
        if isinstance(one.command, CreateTopic):
            found = metadata.topic(one.command.name)
            assert found is not None
            assert found.id == one.command.id
        elif isinstance(one.result, NamedProducer):
            producers.append(one.result)
        else:
            assert isinstance(one.result, int)
            ids += range(one.result, one.result + 10)
    assert len(ids) == len(set(ids)), f"seed {world.seed}: an id was handed out twice"
    lives = [(one.producer_id, one.epoch) for one in producers]
    assert len(lives) == len(set(lives)), f"seed {world.seed}: two are the same producer"


def test_a_decision_of_a_later_version_stops_the_nodes_before_it() -> None:
    world = QuorumWorld(6)
    world.settle()
    leader = world.controller()
    before = leader.quorum.metadata.snapshot()
    outcome = Outcome(leader, CreateTopic(b"i" * 16, "orders", 1))
    unable: dict[int, GoQueueError] = {}
    for number, node in world.nodes.items():
        node.quorum.on_unable = partial(unable.__setitem__, number)
    leader.quorum._raft.propose(b"\x02" + b"later", leader.clock.now_ms())
    lost = Outcome(leader, CreateTopic(b"j" * 16, "after", 1))
    world.run_for(COMMAND_TIMEOUT_MS + 3_000)
    assert unable.keys() == {1, 2, 3}
    for number, node in world.nodes.items():
        assert "upgrade this node" in str(unable[number])
        assert node.quorum.failure is unable[number]
        assert node.quorum.metadata.topic("orders") is not None
        assert node.quorum.metadata.topic("after") is None, "it follows the one not understood"
        assert not node.quorum.is_controller
    assert before != leader.quorum.metadata.snapshot()
    assert outcome.error is None
    assert lost.error is not None
    index = leader.quorum.applied_index
    for node in world.nodes.values():
        node.crash()
        node.start()
    world.run_for(10_000)
    assert leader.quorum.applied_index == index, "a restart does not skip it either"
    assert leader.quorum.failure is not None


def test_a_topic_that_is_deleted_while_answers_get_lost_is_gone() -> None:
    world = QuorumWorld(8)
    world.settle()
    node = next(node for node in world.up() if not node.quorum.is_controller)
    Outcome(node, CreateTopic(b"t" * 16, "orders", 1))
    world.run_for(1_000)
    world.network.faults.cut.add((world.controller().number, node.number))
    outcome = Outcome(node, DeleteTopic(b"t" * 16, "orders"))
    world.run_for(400)
    world.network.heal()
    world.clock.run_until(lambda: outcome.is_done)
    assert outcome.error is None
    assert node.quorum.metadata.topic("orders") is None


# Levels

OLD = Support(2, 2, "0.1")
NEWER = Support(2, 4, "0.9")


def test_a_new_cluster_of_new_nodes_has_the_newest_level() -> None:
    world = QuorumWorld(7)
    world.settle()
    for node in world.up():
        assert node.quorum.metadata.level == LEVEL_MAX
        facts = node.quorum.metadata.nodes.values()
        assert {one.support for one in facts} == {SUPPORT}


def test_a_new_cluster_has_the_newest_level_however_late_a_voter_comes() -> None:
    world = QuorumWorld(13)
    late = world.nodes[3]
    late.crash()
    world.run_for(20_000)
    controller = world.controller().quorum
    assert controller.metadata.topic(INTERNAL[0].name) is not None
    assert controller.metadata.level == LEVEL_MIN, "the late one may be older"
    late.start()
    world.clock.run_until(lambda: late.membership.is_trusted, ms_max=20_000)
    assert late.quorum.metadata.level == LEVEL_MAX, "before it serves anybody"


def test_a_cluster_with_an_older_node_stays_at_its_level_until_somebody_raises_it() -> None:
    world = QuorumWorld(8, supports={2: OLD})
    world.settle()
    assert {node.quorum.metadata.level for node in world.up()} == {LEVEL_MIN}
    assert ask(world, CreateTopic(b"i" * 16, "orders", 1)).error is None
    refused = ask(world, FinalizeLevel(LEVEL_MAX))
    assert isinstance(refused.error, InvalidRequest)
    assert "node 2 (0.1, level 2)" in str(refused.error)
    old = world.nodes[2]
    old.crash()
    still = ask(world, FinalizeLevel(LEVEL_MAX))
    assert isinstance(still.error, InvalidRequest), "it could not come back"
    world.supports[2] = SUPPORT
    old.start()
    world.settle()
    assert {node.quorum.metadata.level for node in world.up()} == {LEVEL_MIN}
    assert ask(world, FinalizeLevel(LEVEL_MAX)).error is None
    world.settle()
    assert {node.quorum.metadata.level for node in world.up()} == {LEVEL_MAX}
    lower = ask(world, FinalizeLevel(LEVEL_MIN))
    assert isinstance(lower.error, InvalidRequest)
    assert "never lowered" in str(lower.error)


def test_an_older_release_does_not_start_after_the_level_was_raised() -> None:
    world = QuorumWorld(9)
    world.settle()
    world.nodes[3].crash()
    world.supports[3] = OLD
    with pytest.raises(UnsupportedVersion, match="upgrade this node"):
        world.nodes[3].start()


def test_an_older_node_cannot_join_a_cluster_of_a_later_level() -> None:
    world = QuorumWorld(10, learners=1, supports={4: OLD})
    world.clock.run_until(lambda: len(world.controller_nodes()) == 3, ms_max=20_000)
    world.run_for(5_000)
    assert 4 not in world.controller().quorum.metadata.nodes


def test_a_raised_level_stops_a_node_that_lacks_it_and_nothing_else() -> None:
    """The controller is wrong about a node: it has registered as more than it is."""
    world = QuorumWorld(13, supports={1: NEWER, 2: NEWER})
    world.settle()
    late = world.nodes[3]
    assert world.controller() is not late, "it knows what it supports itself"
    late.quorum.support = NEWER
    world.clock.run_until(lambda: late.quorum.metadata.nodes[3].support == NEWER)
    before = late.quorum.applied_index
    assert ask(world, FinalizeLevel(4), by=world.nodes[1]).error is None
    world.run_for(1_000)
    assert isinstance(late.quorum.failure, UnsupportedVersion)
    assert late.quorum.applied_index == before
    assert late.quorum.metadata.level == LEVEL_MAX
    assert ask(world, CreateTopic(b"i" * 16, "orders", 1), by=world.nodes[1]).error is None


def test_what_nodes_support_is_told_again_by_heartbeats() -> None:
    """An older controller does not record what a node has told it when it registered."""
    world = QuorumWorld(12)
    world.settle()
    controller = world.controller().quorum._active.controller
    assert controller is not None
    fact = controller.metadata.nodes[2]
    world.controller().quorum._active._decide_own(
        lambda controller: controller.record([msgspec.structs.replace(fact, support=None)])
    )
    node = world.nodes[2]
    world.clock.run_until(lambda: node.quorum.metadata.nodes[2].support is None)
    world.clock.run_until(lambda: node.quorum.metadata.nodes[2].support == SUPPORT)


def ask(world: QuorumWorld, command: object, *, by: QuorumNode | None = None) -> Outcome:
    outcome = Outcome(by or world.up()[0], command)
    world.clock.run_until(lambda: outcome.is_done, ms_max=40_000)
    return outcome
