"""Moves between queues among crashes: nothing is lost, and the job ends."""

from __future__ import annotations

import pytest

from goqueue.broker.named_queues.moves import JOB_KIND, Move
from goqueue.broker.named_queues.named_queues import NamedQueueSpec, Posting
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, RedriveActive, UnknownRedrive
from tests.simulation.disk import PowerLost
from tests.simulation.world import World

MESSAGES = 40
SETTINGS = {"backoff_ms": 0, "backoff_jitter": 0.0, "visibility_ms": 5_000, "deliveries_max": 0}


def _make(world: World, name: str, **topic_settings: str) -> None:
    spec = NamedQueueSpec(name, queue_settings=SETTINGS, topic_settings=topic_settings)
    world.wait(world.broker.named_queues.create(spec))


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


@pytest.mark.seeds(12)
def test_a_move_loses_nothing_whenever_the_power_goes(seed: int) -> None:
    world = World(seed)
    _make(world, "dead")
    _make(world, "live")
    values = [f"m{number:02}" for number in range(MESSAGES)]
    _send(world, "dead", values)
    rate = world.random.choice([None, 5, 20, 100])
    moves, queue = world.broker.named_queue_moves, world.broker.named_queues.get("dead")
    world.wait(moves.start(queue, target="live", rate_per_s=rate))
    crashes = world.random.randrange(4)
    for _ in range(crashes):
        world.disk.crash_at(world.random.randint(1, 80))
        try:
            world.run_for(world.random.randint(1, 8_000))
        except PowerLost:
            pass
        world.disk.crash_at(None)
        world.crash()
        world.start()
    world.run_until(lambda: _job(world).is_ended)
    assert (_job(world).state, _job(world).moved) == ("done", MESSAGES)
    assert _drain(world, "dead") == []
    moved = sorted(_drain(world, "live"))
    # What the last step before a crash had stored and not acknowledged is there twice.
    assert (moved if not crashes else sorted(set(moved))) == values


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


def test_moves_of_queues_that_are_gone_are_forgotten() -> None:
    world = World()
    for name in ("dead", "live", "other"):
        _make(world, name)
    moves, names = world.broker.named_queue_moves, world.broker.named_queues
    world.wait(moves.start(names.get("dead"), target="live"))
    world.run_until(lambda: _job(world).is_ended)
    world.wait(names.delete("dead"))
    world.wait(moves.start(names.get("other"), target="live"))
    world.run_for(1)
    assert len(world.broker.topics.facts.jobs(JOB_KIND)) == 1


def test_a_move_waits_until_there_is_room_again() -> None:
    world = World()
    _make(world, "dead")
    _make(world, "live")
    _send(world, "dead", ["a", "b", "c"])
    moves, names = world.broker.named_queue_moves, world.broker.named_queues
    world.broker.upkeep.is_full = True  # which it finds out not to be so at its next look
    world.wait(moves.start(names.get("dead"), target="live"))
    world.run_for(300)
    assert (_job(world).state, _job(world).moved) == ("running", 0)
    world.run_until(lambda: _job(world).is_ended)
    assert _job(world).state == "done"
    assert sorted(_drain(world, "live")) == ["a", "b", "c"]


def test_a_message_that_its_target_does_not_take_stays_where_it_is() -> None:
    world = World()
    _make(world, "dead")
    _make(world, "live", max_message_bytes="300")
    large = "x" * 500
    _send(world, "dead", ["a", large])
    names = world.broker.named_queues
    world.wait(world.broker.named_queue_moves.start(names.get("dead"), target="live"))
    world.run_until(lambda: _job(world).is_ended)
    assert (_job(world).state, _job(world).moved) == ("failed", 1)
    assert _job(world).problem
    assert _drain(world, "live") == ["a"]
    assert _drain(world, "dead") == [large]


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
