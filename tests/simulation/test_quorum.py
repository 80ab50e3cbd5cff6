"""The quorum as it is driven: commands from any node, while nodes and the network fail."""

from __future__ import annotations

import pytest

from goqueue.cluster.commands import (
    CreateTopic,
    DeleteTopic,
    ReserveProducerIds,
    Result,
    TakeOverProducer,
)
from goqueue.cluster.facts import NamedProducer
from goqueue.model.errors import TopicExists
from tests.simulation.quorum_world import QuorumNode, QuorumWorld


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
