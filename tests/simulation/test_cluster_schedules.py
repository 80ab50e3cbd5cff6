"""Schedules of a cluster in trouble: each message appears once or is cancelled, never early."""

from __future__ import annotations

import pytest

from goqueue.broker.schedules import Delayed
from goqueue.model.batch import Record
from goqueue.model.errors import UnknownSchedule
from tests.simulation.cluster_schedules import PARTITIONS, TOPIC, Client
from tests.simulation.cluster_world import ClusterWorld


def _world(seed: int) -> ClusterWorld:
    world = ClusterWorld(seed, schedules__checkpoint_ms="400", storage__segment_bytes="8KiB")
    world.heal()
    world.create(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    world.run_until(world.is_whole)  # Now every node knows the topic.
    return world


def test_any_node_takes_delayed_messages_and_their_owners_release_them() -> None:
    world = _world(1)
    client = Client(world)
    for node in world.up():
        for _ in range(5):
            client.schedule(node)
    world.run_for(500)
    assert client.refused == 0
    client.until_released()
    client.check_complete()
    assert len(client.seen()) == len(client.acked) > 0


def test_lists_and_counts_are_those_of_all_owners() -> None:
    world = _world(2)
    ids: list[str] = []
    for node in world.up():
        due_ms = node.clock.wall_ms() + 3_600_000
        delayed = [Delayed(Record(None, b"x"), due_ms + one * 1_000) for one in range(7)]
        some = world.wait(node.broker.schedules.schedule(TOPIC, delayed))
        ids += some
    for node in world.up():
        schedules = node.broker.schedules
        assert world.wait(schedules.count()) == 21
        assert world.wait(schedules.stats_of_all()).pending == 21
        found: list[str] = []
        cursor = ""
        while True:
            page = world.wait(schedules.list(limit=4, after=cursor))
            found += [entry.id for entry in page.entries]
            cursor = page.next_cursor
            if not cursor:
                break
        assert sorted(found) == sorted(ids)
    # Anybody cancels what others own.
    outcomes = world.wait(world.nodes[1].broker.schedules.cancel_many(ids))
    assert outcomes == [None] * 21
    assert world.wait(world.nodes[2].broker.schedules.count()) == 0
    again = world.wait(world.nodes[3].broker.schedules.cancel_many(ids[:3]))
    assert all(isinstance(one, UnknownSchedule) for one in again)


def test_what_waits_is_released_by_whoever_takes_over() -> None:
    world = _world(3)
    client = Client(world)
    for node in world.up():
        client.schedule(node, count=30)
    world.run_for(300)
    victim = world.leader_of("__scheduled", 0)
    assert victim is not None
    victim.crash()
    world.run_for(30_000)
    world.heal()
    client.until_released()
    client.check_complete()


def test_nobody_is_told_of_a_release_that_may_be_lost_with_its_node() -> None:
    world = _world(4)
    owner = world.leader_of("__scheduled", 0)
    assert owner is not None
    schedules = owner.broker.schedules
    due_ms = owner.clock.wall_ms() + 3_600_000
    (schedule_id,) = world.wait(schedules.schedule(TOPIC, [Delayed(Record(None, b"m"), due_ms)]))
    others = [number for number in world.nodes if number != owner.number]
    world.network.cut([owner.number], others)
    told: list[Exception | None] = []
    schedules.reschedule(schedule_id, owner.clock.wall_ms()).then(lambda _, error: None)
    world.run_for(100)  # It begins to release the message, and nobody else hears of that.
    (log,) = [one for one in schedules._logs_here() if one.agenda.count()]
    assert log.agenda.is_in_flight(0)
    schedules.cancel(schedule_id).then(lambda _, error: told.append(error))
    world.run_for(100)
    owner.crash()
    assert told == []
    world.heal()
    # His successor knows nothing of the move, so the message waits.
    world.wait(world.nodes[others[0]].broker.schedules.cancel(schedule_id))
    world.run_for(5_000)
    assert Client(world).seen() == {}


@pytest.mark.seeds(12)
def test_each_message_appears_once_whatever_happens_to_nodes(seed: int) -> None:
    world = _world(seed)
    client = Client(world)
    chance = world.random
    for _ in range(14):
        faults = world.network.faults
        faults.loss = chance.choice([0.0, 0.0, 0.05, 0.2])
        faults.duplication = chance.choice([0.0, 0.1])
        faults.delay_ms = chance.choice([1.0, 5.0, 50.0])
        faults.late = chance.choice([0.0, 0.02])
        victim = chance.choice(list(world.nodes.values()))
        trouble = chance.random()
        if trouble < 0.25 and victim.is_up:
            victim.crash()
        elif trouble < 0.4 and victim.is_up:
            victim.kill()
        elif trouble < 0.55:
            world.network.cut([victim.number], [one for one in world.nodes if one != victim.number])
        elif trouble < 0.75:
            world.network.faults.cut.clear()
        if chance.random() < 0.6:
            for node in world.nodes.values():
                if not node.is_up:
                    node.start()
        for _ in range(chance.randint(1, 4)):
            for deed in (client.schedule, client.schedule, client.cancel, client.move):
                if chance.random() < 0.4:
                    deed()
            world.run_for(chance.choice([chance.uniform(5, 300), chance.uniform(300, 3_000)]))
    world.heal()
    world.run_for(7_000)
    client.until_released()
    client.check_complete()
