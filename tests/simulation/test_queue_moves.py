"""Moves between queues among crashes: nothing is lost, and the job ends."""

from __future__ import annotations

import pytest

from goqueue.broker.named_queue_moves import Move
from goqueue.broker.named_queues import NamedQueueSpec, Posting
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, RedriveActive, UnknownRedrive
from tests.simulation.disk import PowerLost
from tests.simulation.world import World

MESSAGES = 40
SETTINGS = {"backoff_ms": 0, "backoff_jitter": 0.0, "visibility_ms": 5_000, "deliveries_max": 0}


def _make(world: World, name: str) -> None:
    world.wait(world.broker.named_queues.create(NamedQueueSpec(name, queue_settings=SETTINGS)))


def _send(world: World, name: str, values: list[str]) -> None:
    queue = world.broker.named_queues.get(name)
    postings = [Posting(Record(None, one.encode()), one) for one in values]
    for result in world.wait(world.broker.named_queues.send(queue, postings)):
        assert not isinstance(result, GoQueueError)


def _drain(world: World, name: str) -> list[str]:
    """Everything that can be received of a queue."""
    queue = world.broker.named_queues.get(name)
    found = []
    world.run_for(70_000)  # longer than any lease lasts that a crash has left behind
    while True:
        receiver = world.broker.queues.receive(
            queue.group, queue.topic, consumer="anna", messages_max=100
        )
        received = list(world.wait(receiver.promise))
        if not received:
            return found
        found += [(one.record.value or b"").decode() for one in received]
        world.wait(world.broker.queues.ack(queue.group, [one.delivery.receipt for one in received]))


def _job(world: World) -> Move:
    queue = world.broker.named_queues.get("dead")
    return world.broker.named_queue_moves.jobs(queue)[0]


@pytest.mark.seeds(20)
def test_a_move_loses_nothing_whenever_the_power_goes(seed: int) -> None:
    world = World(seed)
    _make(world, "dead")
    _make(world, "live")
    values = [f"m{number:02}" for number in range(MESSAGES)]
    _send(world, "dead", values)
    rate = world.random.choice([None, 5, 20, 100])
    moves, queue = world.broker.named_queue_moves, world.broker.named_queues.get("dead")
    world.wait(moves.start(queue, target="live", rate_per_s=rate))
    for _ in range(world.random.randrange(4)):
        world.disk.crash_at(world.random.randint(1, 80))
        try:
            world.run_for(world.random.randint(1, 8_000))
        except PowerLost:
            pass
        world.disk.crash_at(None)
        world.crash()
        world.start()
    world.run_until(lambda: _job(world).is_ended)
    assert _job(world).state == "done"
    moved, left = _drain(world, "live"), _drain(world, "dead")
    assert set(moved) | set(left) == set(values)
    # What the last step before a crash had stored and not acknowledged may be there twice.
    assert len(set(moved)) >= _job(world).moved - len(left)


def test_one_move_at_a_time_and_only_of_this_queue() -> None:
    world = World()
    _make(world, "dead")
    _make(world, "live")
    _send(world, "dead", ["a", "b"])
    moves, names = world.broker.named_queue_moves, world.broker.named_queues
    job = world.wait(moves.start(names.get("dead"), target="live", rate_per_s=1))
    with pytest.raises(RedriveActive):
        world.wait(moves.start(names.get("dead")))
    with pytest.raises(UnknownRedrive):
        world.wait(moves.cancel(names.get("live"), job.id))
    world.wait(moves.cancel(names.get("dead"), job.id))
    world.run_until(lambda: _job(world).is_ended)
    assert _job(world).state == "cancelled"
    world.wait(moves.start(names.get("dead"), target="live"))
    world.run_until(lambda: _job(world).is_ended)
    assert sorted(_drain(world, "live")) == ["a", "b"]


def test_only_the_last_moves_are_kept() -> None:
    world = World()
    _make(world, "dead")
    _make(world, "live")
    moves, queue = world.broker.named_queue_moves, world.broker.named_queues.get("dead")
    for _ in range(13):
        world.wait(moves.start(queue, target="live"))
        world.run_until(lambda: _job(world).is_ended)
    assert len(moves.jobs(queue)) == 10


def test_a_move_into_a_queue_that_goes_fails_and_keeps_the_messages() -> None:
    world = World()
    _make(world, "dead")
    _make(world, "live")
    _send(world, "dead", ["a", "b", "c"])
    moves, names = world.broker.named_queue_moves, world.broker.named_queues
    world.wait(moves.start(names.get("dead"), target="live", rate_per_s=1))
    world.wait(names.delete("live"))
    world.run_until(lambda: _job(world).is_ended)
    assert _job(world).state == "failed"
    assert len(_drain(world, "dead")) + _job(world).moved == 3
