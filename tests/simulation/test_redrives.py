"""Redrives among crashes: every letter comes back once, whatever the power does meanwhile."""

from __future__ import annotations

import pytest

from goqueue.delivery.redrive import LetterFilter, RedriveOrder
from goqueue.loop.promise import promised
from tests.simulation.disk import PowerLost
from tests.simulation.world import World

TOPIC = "orders"
PARTITIONS = 2
MESSAGES = 60


def _kill_messages(world: World) -> list[str]:
    """Publish messages and have a consumer reject them all."""
    values = [f"m{number}" for number in range(MESSAGES)]
    for number, value in enumerate(values):
        world.produce(TOPIC, [value], partition=number % PARTITIONS)
    queues = world.broker.queues
    rejected = 0
    while rejected < MESSAGES:
        messages = world.wait(
            queues.receive("shop", TOPIC, consumer="anna", messages_max=MESSAGES).promise
        )
        receipts = [one.delivery.receipt for one in messages]
        world.wait(queues.reject("shop", receipts, reason="poison"))
        rejected += len(messages)
    world.run_until(
        lambda: world.wait(promised(world.broker.dead_letters.count(TOPIC))) == MESSAGES
    )
    return values


def _start_again(world: World) -> None:
    while True:
        world.crash()
        if world.random.random() < 0.3:
            world.disk.crash_at(world.random.randint(0, 60))
        try:
            world.start()
            world.disk.crash_at(None)
            return
        except PowerLost:
            continue


def _letters(world: World) -> list[str]:
    page = world.wait(
        promised(world.broker.dead_letters.page(TOPIC, filter=LetterFilter(), count_max=10_000))
    )
    return [(letter.record.value or b"").decode() for letter in page.letters]


def _live(world: World) -> list[str]:
    return [
        (record.value or b"").decode()
        for partition in range(PARTITIONS)
        for record in world.consume(TOPIC, partition=partition)
    ]


@pytest.mark.parametrize("keep_copy", [False, True])
@pytest.mark.seeds(25)
def test_letters_come_back_once_though_the_power_fails_again_and_again(
    seed: int, keep_copy: bool
) -> None:
    world = World(seed, storage__commit_journal_bytes="32KiB")
    world.create(TOPIC, PARTITIONS)
    values = _kill_messages(world)
    order = RedriveOrder(rate_per_s=world.random.choice([40, 400, None]), keep_copy=keep_copy)
    job_id = world.wait(world.broker.redrives.start(TOPIC, order)).id
    crashes = 0
    while not world.broker.redrives.get(TOPIC, job_id).is_ended:
        try:
            if crashes < 8 and world.random.random() < 0.4:
                world.disk.crash_at(world.random.randint(0, 15))
            world.run_for(world.random.uniform(0, 60))
            if crashes < 8 and world.random.random() < 0.2:
                raise PowerLost
        except PowerLost:
            crashes += 1
            _start_again(world)
    world.disk.crash_at(None)
    job = world.broker.redrives.get(TOPIC, job_id)
    assert (job.state, job.moved, job.failed) == ("done", MESSAGES, 0), f"seed {seed}"
    assert sorted(_live(world)) == sorted(values + values), f"seed {seed}"
    assert sorted(_letters(world)) == (sorted(values) if keep_copy else []), f"seed {seed}"
    _start_again(world)
    assert sorted(_live(world)) == sorted(values + values), f"seed {seed}"
    assert sorted(_letters(world)) == (sorted(values) if keep_copy else []), f"seed {seed}"
