"""Backups of a node at any moment: what is restored holds no half transaction."""

from __future__ import annotations

import pytest

from goqueue.model.names import ProducerIdentity
from tests.simulation.backups import take
from tests.simulation.transactions_model import INPUT, OUTPUTS, Application, Stage
from tests.simulation.world import World

POSITIONS = 15


def _stage(seed: int) -> tuple[Stage, list[Application]]:
    world = World(seed, transactions__state_partitions="2", groups__offsets_partitions="2")
    world.create(INPUT)
    for topic in dict.fromkeys(name.topic for name in OUTPUTS):
        world.create(topic, 2)
    stage = Stage(world)
    applications = [
        Application(stage, name, bumps_epoch=name == "b", positions=POSITIONS) for name in "abc"
    ]
    for one in applications:
        one.start_instance()
    return stage, applications


@pytest.mark.parametrize("seed", [21, 38, 47, 79, 100, 101])
def test_a_restored_node_has_whole_transactions_only(seed: int) -> None:
    stage, applications = _stage(seed)
    world = stage.world
    world.run_for(stage.random.uniform(0, 400))
    committed = set(stage.committed)
    copy = take(lambda: world.broker.local_gate.backups, world.wait)
    world.run_for(stage.random.uniform(0, 10) ** 2)  # what is lost with the node
    world.crash()
    stage.lose_connections()
    world.disk = copy.write(world.random, now_ms=world.clock.wall_ms())
    # Nothing after the cut counts: neither what was seen nor what was answered.
    stage.seen.clear()
    stage.stable.clear()
    stage.committed = set(committed)
    stage.aborted.clear()
    for one in applications:
        one.identity = ProducerIdentity(-1, -1)
    world.start()
    world.run_for(0.1)  # Answers that the lost node had sent arrive.
    stage.committed = set(committed)
    stage.check()
    stage.is_quiet = True
    for one in applications:
        one.start_instance()
    for _ in (21, 38, 47, 79, 100, 101):
        world.run_for(500)
        if all(one.is_done for one in applications):
            break
    world.run_for(10_000)
    stage.check_settled(applications)
