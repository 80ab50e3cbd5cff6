"""Schedules of a cluster in trouble: each message appears once or is cancelled, never early."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from goqueue.broker.schedules import Delayed
from goqueue.model.batch import Record, decode_batch
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    ScheduleReleased,
    UnknownSchedule,
)
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

TOPIC = "orders"
PARTITIONS = 2
SPANS_MS = [1, 20, 200, 2_000, 5_000, 20_000]


@dataclass
class Fact:
    """What a client knows of one message that it has scheduled."""

    value: str
    dues_ms: set[int]  # the times at which it may be due
    schedule_id: str = ""
    is_cancelled: bool = False
    may_be_cancelled: bool = False
    is_released: bool = False  # as a refused cancel said
    open_moves: set[int] = field(default_factory=set)


class Client:
    """Schedules, cancels and moves messages at any node, and remembers what it was told."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.facts: dict[str, Fact] = {}
        self.acked: list[Fact] = []
        self.refused = 0

    def some_node(self) -> ClusterNode | None:
        up = self.world.up()
        return self.world.random.choice(up) if up else None

    def some_due_ms(self, node: ClusterNode) -> int:
        chance = self.world.random
        return node.clock.wall_ms() + chance.randint(0, chance.choice(SPANS_MS))

    def schedule(self, node: ClusterNode | None = None, *, count: int = 0) -> None:
        chance = self.world.random
        node = node or self.some_node()
        if node is None:
            return
        some: list[Fact] = []
        delayed = []
        for _ in range(count or chance.choice([1, 1, 3, 10, 40])):
            due_ms = self.some_due_ms(node)
            fact = Fact(f"m{len(self.facts)}", {due_ms})
            self.facts[fact.value] = fact
            some.append(fact)
            key = b"k%d" % chance.randint(0, 3) if chance.random() < 0.5 else None
            delayed.append(
                Delayed(Record(key, fact.value.encode()), due_ms, chance.choice([-1, 0, 1]))
            )

        def done(ids: list[str] | None, error: Exception | None) -> None:
            if ids is None:
                assert isinstance(error, GoQueueError), error
                self.refused += 1
                return
            for fact, schedule_id in zip(some, ids, strict=True):
                fact.schedule_id = schedule_id
            self.acked += some

        node.broker.schedules.schedule(TOPIC, delayed).then(done)

    def cancel(self) -> None:
        node, fact = self.some_node(), self._some()
        if node is None or fact is None:
            return
        was_cancelled = fact.is_cancelled
        fact.may_be_cancelled = True

        def done(_: None, error: Exception | None) -> None:
            if error is None:
                assert not was_cancelled, f"{fact} was cancelled twice"
                assert not fact.is_released, f"{fact} was released and then cancelled"
                fact.is_cancelled = True
            elif isinstance(error, ScheduleReleased):
                assert not fact.is_cancelled, f"{fact} was cancelled and then released"
                fact.is_released = True
            else:
                assert isinstance(error, GoQueueError)

        node.broker.schedules.cancel(fact.schedule_id).then(done)

    def move(self) -> None:
        node, fact = self.some_node(), self._some()
        if node is None or fact is None:
            return
        try:
            owner = node.broker.schedules.owner_of(fact.schedule_id)
        except CoordinatorNotAvailable:
            return  # It has just started, and knows nothing yet.
        if owner not in self.world.nodes or not self.world.nodes[owner].is_up:
            return
        node = self.world.nodes[owner]
        due_ms = self.some_due_ms(node)
        fact.dues_ms.add(due_ms)
        fact.open_moves.add(due_ms)

        def done(_: None, error: Exception | None) -> None:
            fact.open_moves.discard(due_ms)
            if isinstance(error, (ScheduleReleased, UnknownSchedule)):
                fact.dues_ms.discard(due_ms)
            elif error is None and not fact.open_moves:
                fact.dues_ms = {due_ms}

        node.broker.schedules.reschedule(fact.schedule_id, due_ms).then(done)

    def _some(self) -> Fact | None:
        return self.world.random.choice(self.acked) if self.acked else None

    # What must be true

    def seen(self) -> dict[str, list[int]]:
        """The times of all records in the copies of the leaders, by value."""
        seen: dict[str, list[int]] = {}
        for number in range(PARTITIONS):
            leader = self.world.leader_of(TOPIC, number)
            assert leader is not None
            partition = leader.partition(TOPIC, number)
            assert partition is not None
            for _, batch in partition.log.batches(0, until_offset=partition.high_watermark):
                for record in decode_batch(batch):
                    value = (record.value or b"").decode()
                    seen.setdefault(value, []).append(record.timestamp_ms)
        return seen

    def check_complete(self) -> None:
        """Nothing appeared twice, early or after its cancel, and all that was promised is there."""
        seen = self.seen()
        for value, times_ms in seen.items():
            fact = self.facts[value]
            where = f"seed {self.world.seed}: {fact}"
            assert len(times_ms) == 1, f"{where} appeared {len(times_ms)} times"
            assert times_ms[0] >= min(fact.dues_ms), f"{where} was early, at {times_ms[0]}"
            assert not fact.is_cancelled, f"{where} was cancelled and appeared"
        for fact in self.acked:
            if fact.is_released or not fact.may_be_cancelled:
                assert fact.value in seen, f"seed {self.world.seed}: {fact} was lost"

    def until_released(self) -> None:
        """Let all times pass, and what is due appear."""
        world = self.world

        def is_empty() -> bool:
            stats = [node.broker.schedules.stats() for node in world.up()]
            return sum(one.pending for one in stats) == 0

        world.run_for(1_000)
        world.run_until(is_empty, ms_max=60_000)
        world.run_for(2_000)
        assert sum(node.broker.schedules.stats().dropped for node in world.up()) == 0


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
