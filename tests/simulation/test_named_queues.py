"""An ordered named queue among crashes: no duplicate is stored, and every key stays in order."""

from __future__ import annotations

import pytest

from tests.simulation.disk import PowerLost
from tests.simulation.named_queue_work import (
    KEYS,
    NAME,
    SPEC,
    Seen,
    Sender,
    Taker,
    Where,
    check_stored,
)
from tests.simulation.world import World

MESSAGES = 30  # of each key
PARTITIONS = "2"


def _world(seed: int, **settings: str) -> World:
    world = World(
        seed,
        storage__segment_bytes="4KiB",
        storage__index_interval_bytes="64",
        delivery__snapshot_bytes="4KiB",
        delivery__partitions="2",
        topics__partitions=PARTITIONS,
        **settings,
    )
    world.wait(world.broker.named_queues.create(SPEC))
    return world


def _where(world: World) -> Where:
    return Where(world.broker, (world.disk.life,), world.clock.now_ms())


def _check_end(world: World, senders: list[Sender], takers: list[Taker], seen: Seen) -> None:
    told = f"seed {world.seed}"
    quiet = 0
    while quiet < 20:
        before = seen.deliveries
        for one in takers:
            one.step(is_kind=True)
        world.run_for(100)
        quiet = quiet + 1 if seen.deliveries == before else 0
    records = [
        record
        for number in range(int(PARTITIONS))
        for record in world.consume(NAME, partition=number)
    ]
    check_stored(records, senders, told)
    for number in range(int(PARTITIONS)):
        peeked = world.wait(
            world.broker.queues.inspection.peek(NAME, NAME, number, offset=0, count=1000)
        )
        left = [one.state for one in peeked if one.state.state != "done"]
        assert not left, f"{told}: {left}"
    assert seen.largest_run > 1, f"{told}: no receive had two of one key"


@pytest.mark.seeds(15)
def test_whatever_crashes_each_id_is_stored_once_and_each_key_stays_in_order(seed: int) -> None:
    world = _world(seed)
    seen = Seen(f"seed {seed}")
    senders = [Sender(world.random, lambda: _where(world), key) for key in range(KEYS)]
    takers = [Taker(world.random, lambda: _where(world), f"t{one}", seen) for one in range(3)]
    crashes = 0
    while any(one.acked < MESSAGES for one in senders):
        try:
            for sender in senders:
                if sender.acked < MESSAGES:
                    sender.step()
            for taker in takers:
                if world.random.random() < 0.6:
                    taker.step(is_kind=False)
            if world.random.random() < 0.05 and crashes < 8:
                world.disk.crash_at(world.random.randint(0, 14))
            world.run_for(world.random.uniform(0, 40))
            if world.random.random() < 0.04 and crashes < 8:
                raise PowerLost
        except PowerLost:
            crashes += 1
            world.crash()
            world.start()
    world.disk.crash_at(None)
    _check_end(world, senders, takers, seen)


@pytest.mark.parametrize("fsync", ["every", "interval", "none"])
@pytest.mark.seeds(3)
def test_a_killed_process_stores_no_duplicate(seed: int, fsync: str) -> None:
    world = _world(seed, storage__fsync=fsync)
    seen = Seen(f"seed {seed}")
    senders = [Sender(world.random, lambda: _where(world), key) for key in range(KEYS)]
    takers = [Taker(world.random, lambda: _where(world), f"t{one}", seen) for one in range(2)]
    while any(one.acked < MESSAGES for one in senders):
        for sender in senders:
            if sender.acked < MESSAGES:
                sender.step()
        for taker in takers:
            taker.step(is_kind=False)
        world.run_for(world.random.uniform(0, 40))
        if world.random.random() < 0.05:
            if world.random.random() < 0.3:
                world.stop()
            else:
                world.kill()
            world.start()
    _check_end(world, senders, takers, seen)
    assert sum(one.duplicates for one in senders)
