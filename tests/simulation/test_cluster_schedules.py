"""Schedules of a cluster in trouble: each message appears once or is cancelled, never early."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from goqueue.broker.schedules.schedules import Delayed
from goqueue.model.batch import Record
from goqueue.model.errors import UnknownSchedule
from tests.simulation.cluster_schedules import (
    PARTITIONS,
    TOPIC,
    Client,
    DelayingWriter,
    begin,
    schedule_through_trouble,
)
from tests.simulation.cluster_trouble import Trouble

SCHEDULED = "__scheduled"


def test_any_node_takes_delayed_messages_and_their_owners_release_them() -> None:
    world = begin(1)
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
    world = begin(2)
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
    world = begin(3)
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
    world = begin(4)
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
    (log,) = [one.log for one in schedules.shards if one.log.agenda.count()]
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
    world = begin(seed)
    schedule_through_trouble(world).check_complete()


class Delays:
    """Idempotent producers of delayed records, and faults where their records wait."""

    STEPS = 12
    ANSWER_MS = 60_000

    def __init__(self, seed: int) -> None:
        self.world = world = begin(seed)
        chance = world.random
        self.writers = [
            DelayingWriter(
                world,
                TOPIC,
                number % PARTITIONS,
                producer_id=100 + number,
                in_flight=chance.choice([1, 3, 5, 5]),
            )
            for number in range(3)
        ]
        places = [(TOPIC, 0), (TOPIC, 1), (SCHEDULED, 0), (SCHEDULED, 1)]
        self.trouble = trouble = Trouble(world, places)
        # Bits that flip and clocks that are set have their tests elsewhere.
        kept = [one for one in trouble.deeds if one not in (trouble.rot, trouble.set_clock)]
        trouble.deeds = [
            *kept,
            *3 * [partial(self._part, is_one_way=False)],
            partial(self._part, is_one_way=True),
            *2 * [trouble.pause_the_leader],
        ]
        trouble.rot = lambda: None  # type: ignore[method-assign]
        self.is_working = True
        self._work()

    def _work(self) -> None:
        if self.is_working:
            chance = self.world.random
            self.world.clock.call_later(chance.uniform(5, 150), self._work)
            chance.choice(self.writers).write()

    def _part(self, *, is_one_way: bool) -> None:
        """Cut a leader off from the owner of the schedules alone."""
        number = self.world.random.randrange(PARTITIONS)
        leader = self.world.leader_of(TOPIC, number)
        owner = self.world.leader_of(SCHEDULED, self.world.random.randrange(2))
        if leader is not None and owner is not None and leader is not owner:
            network = self.world.network
            cut: Callable[[list[int], list[int]], None] = network.cut
            if is_one_way:
                cut = network.cut_one_way
            cut([leader.number], [owner.number])

    def run(self) -> None:
        chance = self.world.random
        for _ in range(self.STEPS):
            self.trouble.strike()
            self.world.run_for(chance.choice([chance.uniform(5, 300), chance.uniform(300, 6_000)]))
        self.trouble.end()
        self.world.run_for(500)
        self.is_working = False
        self.world.run_until(lambda: all(one.is_done for one in self.writers), ms_max=60_000)
        Client(self.world).until_released()
        # A new owner that still loads shows nothing as pending, so let all delays pass.
        self.world.run_for(20_000)

    def check(self) -> None:
        for writer in self.writers:
            writer.check_complete()
        self.world.watch.check_whole()


@pytest.mark.seeds(12)
def test_acknowledged_batches_with_delayed_records_are_stored_whole_and_once(seed: int) -> None:
    delays = Delays(seed)
    delays.run()
    delays.check()


def test_a_refused_batch_is_waited_for_when_those_before_it_were_stored_meanwhile() -> None:
    """The seed has several batches refused for a full disk, of which the first waited already."""
    delays = Delays(352)
    delays.run()
    delays.check()
