"""Backups of a cluster that works while nodes fail, restored on one node.

What was acknowledged before the cut is there; what was acknowledged or cancelled before it does not
come back; no transaction is there in part; nothing refers to messages that are not there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.backups.creating import Overtaken
from goqueue.broker.gate.areas.backups import BackupsArea
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, decode_batch
from goqueue.model.dead_letters import read_origin
from goqueue.model.errors import GoQueueError
from goqueue.model.names import DELIVERY_TOPIC, SCHEDULED_TOPIC, TRANSACTION_TOPIC
from goqueue.model.session import NOBODY
from tests.simulation import cluster_queues, cluster_schedules
from tests.simulation.backups import Copy, copy_of
from tests.simulation.cluster_transactions import ClusterStage
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.disk import SimulatedDisk
from tests.simulation.transactions_model import INPUT, OUTPUTS, Application, Stage
from tests.simulation.world import World

POSITIONS = 8
# The holds of commits matter in 14, 24 and 28.
SEEDS = [2, 14, 24, 28]
LATER = "later"
RECEIVES = 200  # until all leases have ended


def area_of(world: ClusterWorld) -> Callable[[], BackupsArea]:
    return lambda: world.up()[0].broker.gate.backups


def back_up(world: ClusterWorld, meanwhile: Callable[[], None]) -> Copy:
    """Take a backup, during whose first cut something happens; who asks tries again."""
    for attempt in range(20):
        asked = area_of(world)().cut(NOBODY)
        if not attempt:
            meanwhile()
        try:
            cut = world.wait(asked)
            world.run_for(world.random.uniform(0, 300))  # Logs are read while the cluster works.
            return copy_of(cut, area_of(world), lambda ask: patient(world, ask))
        except GoQueueError as error:
            if not error.retryable:
                raise
            world.run_for(500)
        except Overtaken:
            continue
    raise AssertionError("no backup could be taken")


def patient(world: ClusterWorld, ask: Callable[[], Promise[object]]) -> object:
    """The answer to a question, which is asked until a leader gives it."""
    for _ in range(50):
        try:
            return world.wait(ask())
        except GoQueueError as error:
            if not error.retryable:
                raise
        world.run_for(200)
    raise AssertionError("no leader answers")


def restored(world: ClusterWorld, copy: Copy) -> World:
    """A node that starts with the backup, when the cluster is lost."""
    node = World(world.seed, groups__initial_rebalance_delay_ms="0")
    node.clock.run_for(world.age_ms)
    node.crash()
    disk: SimulatedDisk = copy.write(node.random, now_ms=node.clock.wall_ms())
    node.disk = disk
    node.start()
    return node


def disturb(world: ClusterWorld, victim: ClusterNode | None) -> None:
    """Perhaps a node fails just now, but not the one that takes the cut."""
    chance = world.random.random()
    if victim is None or victim is world.up()[0] or chance < 0.5:
        return
    world.clock.call_later(
        world.random.uniform(0, 20), victim.crash if chance < 0.75 else victim.kill
    )


# Transactions


@pytest.mark.parametrize("seed", SEEDS)
def test_no_transaction_is_restored_in_part(seed: int) -> None:
    world = ClusterWorld(seed)
    world.heal()
    world.create(INPUT, min_insync_replicas="2")
    for topic in dict.fromkeys(name.topic for name in OUTPUTS):
        world.create(topic, partitions=2, min_insync_replicas="2")
    world.run_until(world.is_whole)
    world.network.faults.delay_ms = world.random.choice([1.0, 5.0, 20.0])
    stage = ClusterStage(world)
    applications = [
        Application(stage, name, bumps_epoch=name in "bd", positions=10_000) for name in "abcd"
    ]
    for one in applications:
        one.start_instance()
    world.run_for(world.random.uniform(200, 1_500))
    committed = set(stage.committed)
    victim = world.leader_of(TRANSACTION_TOPIC, world.random.randrange(2))
    copy = back_up(world, lambda: disturb(world, victim))

    node = restored(world, copy)
    after = Stage(node)
    after.sent, after.committed = stage.sent, committed
    after.committable = stage.committable | stage.impossible
    after.check()
    done = [
        Application(after, one.name, bumps_epoch=one.bumps_epoch, positions=0)
        for one in applications
    ]
    after.is_quiet = True
    for one in done:
        # Numbers of attempts go on, so that no name is used twice.
        one.attempts = 1_000_000
        one.positions = one.committed_offset() + POSITIONS
        one.start_instance()
    for _ in range(100):
        node.run_for(300)
        if all(one.is_done for one in done):
            break
    node.run_for(5_000)
    after.check_settled(done)


# Queues and schedules


def records_in(node: World, topic: str, number: int) -> list[Record]:
    partition = node.broker.topics.get(topic).partition(number)
    batches = partition.log.batches(0, until_offset=partition.high_watermark)
    return [record for _, batch in batches for record in decode_batch(batch)]


def values_in(node: World, topic: str) -> list[str]:
    return [
        (record.value or b"").decode()
        for number in range(len(node.broker.topics.get(topic).partitions))
        for record in records_in(node, topic, number)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_messages_and_schedules_are_restored(seed: int) -> None:
    world = cluster_queues.begin(seed)
    world.create(LATER, partitions=cluster_schedules.PARTITIONS, min_insync_replicas="2")
    world.run_until(world.is_whole)
    history, writer = cluster_queues.History(world), cluster_queues.Writer(world)
    consumers = cluster_queues.consumers_of(world, history)
    client = cluster_schedules.Client(world, LATER)

    def work(turns: int) -> None:
        for _ in range(turns):
            writer.step()
            for consumer in consumers:
                consumer.step(is_kind=False)
            for deed in (client.schedule, client.cancel):
                if world.random.random() < 0.5:
                    deed()
            world.run_for(world.random.uniform(5, 150))

    work(world.random.randint(5, 25))
    acked = {group: set(places) for group, places in history.acked.items()}
    scheduled = [one for one in client.acked if not one.may_be_cancelled]
    cancelled = [one.value for one in client.acked if one.is_cancelled]
    topic = world.random.choice([DELIVERY_TOPIC, SCHEDULED_TOPIC])
    victim = world.leader_of(topic, world.random.randrange(2))
    ends = {
        number: leader.broker.topics.get(cluster_queues.TOPIC).partition(number).high_watermark
        for number in range(cluster_queues.PARTITIONS)
        if (leader := world.leader_of(cluster_queues.TOPIC, number)) is not None
    }

    def meanwhile() -> None:
        disturb(world, victim)
        work(3)

    copy = back_up(world, meanwhile)
    node = restored(world, copy)

    for number, end in ends.items():
        partition = node.broker.topics.get(cluster_queues.TOPIC).partition(number)
        assert partition.high_watermark >= end, "what was committed before the cut is there"
    for group in cluster_queues.GROUPS:
        check_group(node, group, acked[group], history.acked[group])
    node.run_for(max(cluster_schedules.SPANS_MS) + 10_000)
    seen = values_in(node, LATER)
    lost = {one.value for one in scheduled if not one.may_be_cancelled} - set(seen)
    assert not lost, f"seed {seed}: schedules were lost"
    assert not set(cancelled) & set(seen), f"seed {seed}: what was cancelled came"


def check_group(
    node: World, group: str, acked: set[tuple[int, int]], settled: set[tuple[int, int]]
) -> None:
    """Everything is delivered that was not settled, and nothing that was acknowledged."""
    queues, places = node.broker.queues, set()
    for _ in range(RECEIVES):
        receiver = queues.receive(group, cluster_queues.TOPIC, consumer="c", messages_max=100)
        found = [one.delivery for one in node.wait(receiver.promise) or ()]
        places |= {(one.partition, one.offset) for one in found}
        if found:
            node.wait(queues.ack(group, [one.receipt for one in found]))
        node.run_for(500)
    told = f"seed {node.seed}: {group}"
    assert not places & acked, f"{told} got what was acknowledged"
    stored = {
        (number, record.offset)
        for number in range(cluster_queues.PARTITIONS)
        for record in records_in(node, cluster_queues.TOPIC, number)
    }
    dead = set()
    grave = node.broker.topics.find(cluster_queues.GRAVE)
    for number in range(0 if grave is None else len(grave.partitions)):
        for record in records_in(node, cluster_queues.GRAVE, number):
            origin = read_origin(record.headers)
            if origin is not None and origin.group == group:
                dead.add((origin.partition, origin.offset))
    lost = stored - places - settled - dead
    assert not lost, f"{told} was not given {sorted(lost)}"
    assert places <= stored, f"{told} knows what is not stored"
