"""A move between queues of a cluster: when its node is gone, another one goes on."""

from __future__ import annotations

import pytest

from goqueue.broker.named_queues.moves import Move
from goqueue.broker.named_queues.named_queues import NamedQueueSpec, Posting
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from tests.simulation.cluster_queues import owner_of, records_of
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

MESSAGES = 40
END_MS_MAX = 120_000
SETTINGS = {"backoff_ms": 0, "backoff_jitter": 0.0, "deliveries_max": 0}


def _make(world: ClusterWorld, name: str) -> None:
    maker = world.nodes[world.up()[0].broker.groups.coordinator_of(name)]
    spec = NamedQueueSpec(name, queue_settings=SETTINGS)
    world.wait(maker.broker.named_queues.create(spec))
    world.run_until(lambda: owner_of(world, name) is not None)
    world.run_until(lambda: all(one.broker.named_queues.find(name) for one in world.up()))


def _owner(world: ClusterWorld) -> ClusterNode:
    world.run_until(lambda: owner_of(world, "dead") is not None)
    owner = owner_of(world, "dead")
    assert owner is not None
    return owner


def _job(world: ClusterWorld) -> Move | None:
    """The move as its owner knows it; None while nobody does."""
    owner = owner_of(world, "dead")
    if owner is None:
        return None
    broker = owner.broker
    try:
        return broker.named_queue_moves.jobs(broker.named_queues.get("dead"))[0]
    except GoQueueError:
        return None  # It is still reading what it has taken over.


def _has_ended(world: ClusterWorld) -> bool:
    job = _job(world)
    return job is not None and job.is_ended


@pytest.mark.seeds(4)
def test_another_node_goes_on_with_a_move(seed: int) -> None:
    world = ClusterWorld(seed, topics__partitions="2")
    world.heal()
    _make(world, "dead")
    _make(world, "live")
    values = [b"m%02d" % number for number in range(MESSAGES)]
    sender = world.random.choice(world.up()).broker.named_queues
    for value in values:
        posting = Posting(Record(None, value), value.decode())
        [sent] = world.wait(sender.send(sender.get("dead"), [posting]))
        assert not isinstance(sent, GoQueueError)
    first = _owner(world)
    queue = first.broker.named_queues.get("dead")
    moves = first.broker.named_queue_moves
    world.wait(moves.start(queue, target="live", rate_per_s=10))
    world.run_for(world.random.uniform(50, 3_000))
    world.random.choice([first.crash, first.kill])()
    world.run_until(lambda: owner_of(world, "dead") not in (first, None), ms_max=END_MS_MAX)
    if world.random.random() < 0.5:
        first.start()
    world.run_until(lambda: _has_ended(world), ms_max=END_MS_MAX)
    job = _job(world)
    assert job is not None
    assert job.state == "done"
    if not first.is_up:
        first.start()
    world.heal()
    assert {record.value for _, record in records_of(world, "live")} == set(values)
    owner = _owner(world)
    counts = world.wait(owner.broker.queue_counting.count(owner.broker.named_queues.get("dead")))
    assert (counts.ready, counts.out) == (0, 0)
