"""Schedules in trouble: each message appears once or is cancelled, never early, none lost."""

from __future__ import annotations

from collections import Counter

import pytest

from goqueue.broker.publishing.split_batches import Split
from goqueue.broker.schedules.schedules import Delayed
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import GoQueueError, ScheduleReleased, UnknownSchedule
from tests.simulation.cluster_schedules import Fact
from tests.simulation.disk import PowerLost
from tests.simulation.world import World

TOPIC = "orders"
PARTITIONS = 2
HOUR_MS = 3_600_000


class Client:
    """Schedules, cancels and moves messages, and remembers what it was told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.facts: dict[str, Fact] = {}
        self.acked: list[Fact] = []

    @property
    def now_ms(self) -> int:
        return self.world._node.wall_ms()

    def some_due_ms(self) -> int:
        chance = self.world.random
        spans_ms = [1, 20, 200, 2_000, 2_000, 20_000, 90_000, HOUR_MS, 30 * HOUR_MS]
        return self.now_ms + chance.randint(0, chance.choice(spans_ms))

    def schedule(self) -> None:
        chance, life = self.world.random, self.world.disk.life
        some: list[Fact] = []
        delayed = []
        due_ms = self.some_due_ms()
        for _ in range(chance.choice([1, 1, 3, 10, 150])):
            if chance.random() < 0.5:
                due_ms = self.some_due_ms()
            fact = Fact(f"m{len(self.facts)}", {due_ms})
            self.facts[fact.value] = fact
            some.append(fact)
            key = b"k%d" % chance.randint(0, 3) if chance.random() < 0.5 else None
            partition = chance.choice([-1, 0, 1])
            delayed.append(Delayed(Record(key, fact.value.encode()), due_ms, partition))

        def done(ids: list[str] | None, error: Exception | None) -> None:
            assert life == self.world.disk.life, "a dead node has answered"
            if ids is not None:
                for fact, schedule_id in zip(some, ids, strict=True):
                    fact.schedule_id = schedule_id
                self.acked += some

        self.world.broker.schedules.schedule(TOPIC, delayed).then(done)

    def cancel(self) -> None:
        fact = self._some()
        if fact is None:
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
                assert isinstance(error, (UnknownSchedule, GoQueueError))

        self.world.broker.schedules.cancel(fact.schedule_id).then(done)

    def move(self) -> None:
        fact = self._some()
        if fact is None:
            return
        due_ms = self.some_due_ms()
        before = set(fact.dues_ms)
        fact.dues_ms.add(due_ms)
        fact.open_moves.add(due_ms)

        def done(_: None, error: Exception | None) -> None:
            fact.open_moves.discard(due_ms)
            if isinstance(error, ScheduleReleased):
                assert not fact.is_cancelled, f"{fact} was cancelled and then released"
                fact.is_released = True
            if isinstance(error, (ScheduleReleased, UnknownSchedule)):
                fact.dues_ms.discard(due_ms)
                fact.dues_ms |= before & {due_ms}
            elif error is None and not fact.open_moves:
                fact.dues_ms = {due_ms}

        self.world.broker.schedules.reschedule(fact.schedule_id, due_ms).then(done)

    def _some(self) -> Fact | None:
        return self.world.random.choice(self.acked) if self.acked else None

    def check(self) -> None:
        """Nothing appeared twice, early, or after it was cancelled."""
        seen = self._seen()
        for value, times_ms in seen.items():
            fact = self.facts[value]
            where = f"seed {self.world.seed}: {fact}"
            assert len(times_ms) == 1, f"{where} appeared {len(times_ms)} times"
            assert times_ms[0] >= min(fact.dues_ms), f"{where} was early, at {times_ms[0]}"
            assert not fact.is_cancelled, f"{where} was cancelled and appeared"

    def check_complete(self) -> None:
        """Everything that was promised has appeared, and nothing waits."""
        self.check()
        seen = self._seen()
        for fact in self.acked:
            where = f"seed {self.world.seed}: {fact}"
            if fact.is_released or not fact.may_be_cancelled:
                assert fact.value in seen, f"{where} was lost"
        stats = self.world.broker.schedules.stats()
        assert stats.pending == 0, f"seed {self.world.seed}: {stats}"
        assert stats.dropped == 0

    def _seen(self) -> dict[str, list[int]]:
        seen: dict[str, list[int]] = {}
        for partition in range(PARTITIONS):
            for record in self.world.consume(TOPIC, partition=partition):
                value = (record.value or b"").decode()
                seen.setdefault(value, []).append(record.timestamp_ms)
        return seen


def _world(seed: int, **settings: str) -> World:
    world = World(
        seed,
        storage__segment_bytes="8KiB",
        storage__index_interval_bytes="64",
        schedules__partitions="2",
        schedules__checkpoint_ms="400",
        compaction__check_ms="500",
        compaction__dirty_ratio_min="0.1",
        **settings,
    )
    world.create(TOPIC, PARTITIONS)
    # In half of the worlds messages have left memory by the time they are due.
    world.disk.cold_chance = world.random.choice([0.0, 0.5])
    return world


def _act(client: Client) -> None:
    for deed in (client.schedule, client.schedule, client.cancel, client.move):
        if client.world.random.random() < 0.4:
            deed()


def _finish(client: Client) -> None:
    """Let all times pass, also those that are days away, and look at the whole."""
    world = client.world
    world.run_for(2_000)
    world.kill()
    world.clock.run_for(32 * HOUR_MS)
    world.start()
    world.run_for(20_000)
    client.check_complete()


@pytest.mark.seeds(40)
def test_schedules_survive_power_cuts_at_any_step(seed: int) -> None:
    world = _world(seed)
    client = Client(world)
    crashes = 0
    for _ in range(60):
        try:
            _act(client)
            if world.random.random() < 0.15 and crashes < 10:
                world.disk.crash_at(world.random.randint(0, 25))
            world.run_for(world.random.choice([1, 10, 100, 1_000]))
        except PowerLost:
            crashes += 1
            world.crash()
            if world.random.random() < 0.1:
                world.clock.run_for(world.random.choice([10_000, 2 * HOUR_MS]))
            world.start()
            client.check()
    world.disk.crash_at(None)
    _finish(client)


@pytest.mark.parametrize("fsync", ["every", "interval", "none"])
@pytest.mark.seeds(8)
def test_schedules_survive_kills_and_stops_in_every_mode(seed: int, fsync: str) -> None:
    world = _world(seed, storage__fsync=fsync)
    client = Client(world)
    for _ in range(60):
        _act(client)
        world.run_for(world.random.choice([0.5, 5, 50, 500, 3_000]))
        chance = world.random.random()
        if chance < 0.1:
            world.kill()
            world.start()
            client.check()
        elif chance < 0.2:
            world.stop()
            world.start()
            client.check()
    _finish(client)


@pytest.mark.seeds(10)
def test_nothing_is_early_when_the_wall_clock_jumps(seed: int) -> None:
    world = _world(seed)
    client = Client(world)
    for _ in range(60):
        _act(client)
        world.run_for(world.random.choice([5, 50, 500]))
        if world.random.random() < 0.3:
            world._node.skew_ms += world.random.choice([-60_000, -500, -20, 20, 500, 60_000])
    client.check()
    world._node.skew_ms = 0
    _finish(client)


@pytest.mark.parametrize("step_ms", [-60_000, 60_000])
def test_messages_are_due_by_the_wall_clock_after_it_was_set(step_ms: int) -> None:
    world = _world(1)
    due_ms = world._node.wall_ms() + 30_000
    world.wait(world.broker.schedules.schedule(TOPIC, [Delayed(Record(None, b"late"), due_ms, 0)]))
    world._node.skew_ms += step_ms
    world.run_for(max(0, due_ms - world._node.wall_ms() - 1_000))
    is_early = world._node.wall_ms() < due_ms
    assert len(world.consume(TOPIC)) == 0
    world.run_for(3_000)
    assert len(world.consume(TOPIC)) == 1
    assert is_early == (step_ms < 0)


@pytest.mark.seeds(6)
def test_a_disk_that_is_full_for_a_while_loses_no_schedule(seed: int) -> None:
    world = _world(seed, storage__free_bytes_min="0")
    client = Client(world)
    for _ in range(40):
        _act(client)
        if world.random.random() < 0.2:
            world.disk.fill_after(world.random.randint(0, 3_000))
        world.run_for(world.random.choice([5, 50, 500]))
        if world.random.random() < 0.3:
            world.disk.make_room()
    world.disk.make_room()
    _finish(client)


class Producer:
    """An idempotent producer whose batches have delayed records; it repeats what is not acked."""

    BATCHES = 20

    def __init__(self, world: World, name: str, partition: int) -> None:
        self.world = world
        self.name = name
        self.partition = partition
        self.producer_id = world.wait(world.broker.new_producer_id())
        self.acked = 0
        self._sequence = 0
        self._life = -1
        chance = world.random
        self._batches = [
            [chance.choice([0, 0, 1, 50, 3_000, HOUR_MS]) for _ in range(chance.randint(1, 5))]
            for _ in range(self.BATCHES)
        ]
        self._first_sent_ms: dict[int, int] = {}

    @property
    def is_done(self) -> bool:
        return self.acked == self.BATCHES

    def values(self, batch: int) -> list[str]:
        return [f"{self.name}-{batch}-{index}" for index in range(len(self._batches[batch]))]

    def due_ms(self, value: str) -> int:
        _, batch, index = value.split("-")
        delay_ms = self._batches[int(batch)][int(index)]
        return self._first_sent_ms[int(batch)] + delay_ms if delay_ms else 0

    def step(self) -> None:
        if self.is_done or self._life == self.world.disk.life:
            return
        life = self._life = self.world.disk.life
        now_ms = self.world._node.now_ms()
        self._first_sent_ms.setdefault(self.acked, now_ms)
        records = [
            Record(
                None,
                value.encode(),
                (("goqueue-delay-ms", b"%d" % delay_ms),) if delay_ms else (),
                now_ms,
            )
            for value, delay_ms in zip(
                self.values(self.acked), self._batches[self.acked], strict=True
            )
        ]
        batch = encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )

        def acked(error: GoQueueError | None) -> None:
            assert life == self.world.disk.life, "a dead node has answered"
            self._life = -1
            if error is None:
                self.acked += 1
                self._sequence += len(records)

        topic = self.world.broker.topics.get(TOPIC)
        target = topic.partition(self.partition)
        try:
            appended = self.world.broker.producing.produce(topic, target, memoryview(batch))
        except GoQueueError as error:
            acked(error)
            return
        if isinstance(appended, Split):
            assert appended.base_offset == -1
            appended.when_committed(acked)
        else:
            target.when_committed(appended.last_offset, acked)


@pytest.mark.seeds(40)
def test_split_batches_are_stored_once_through_power_cuts(seed: int) -> None:
    world = _world(seed)
    producers = [Producer(world, f"p{number}", number % PARTITIONS) for number in range(3)]
    crashes = 0
    while not all(producer.is_done for producer in producers):
        try:
            for producer in producers:
                if world.random.random() < 0.8:
                    producer.step()
            if world.random.random() < 0.15 and crashes < 12:
                world.disk.crash_at(world.random.randint(0, 20))
            world.run_for(world.random.choice([1, 8, 100]))
        except PowerLost:
            crashes += 1
            world.crash()
            world.start()
    world.disk.crash_at(None)
    world.kill()
    world.clock.run_for(2 * HOUR_MS)
    world.start()
    world.run_for(5_000)
    seen: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        for record in world.consume(TOPIC, partition=partition):
            value = (record.value or b"").decode()
            seen[value] += 1
            producer = producers[int(value[1])]
            assert producer.partition == partition
            if record.headers:
                assert record.timestamp_ms >= producer.due_ms(value), f"{value} was early"
    expected = {
        value: 1
        for producer in producers
        for batch in range(Producer.BATCHES)
        for value in producer.values(batch)
    }
    assert seen == expected, f"seed {seed}: lost or twice: {seen - Counter(expected)}"


def test_a_cancel_and_a_release_at_the_same_moment_have_one_winner() -> None:
    world = _world(0)
    schedules = world.broker.schedules
    outcomes: Counter[str] = Counter()
    for number in range(200):
        due_ms = world._node.now_ms() + 5
        delayed = Delayed(Record(None, b"v%d" % number), due_ms, 0)
        promise: Promise[list[str]] = schedules.schedule(TOPIC, [delayed])
        (schedule_id,) = world.wait(promise)
        world.run_for(max(0, due_ms - world._node.now_ms()) + world.random.uniform(-3, 5))
        cancel = schedules.cancel(schedule_id)
        try:
            world.wait(cancel)
            outcomes["cancelled"] += 1
        except ScheduleReleased:
            outcomes["released"] += 1
        world.run_for(20)
    values = [record.value for record in world.consume(TOPIC, partition=0)]
    assert len(values) == len(set(values)) == outcomes["released"]
    assert outcomes["cancelled"] + outcomes["released"] == 200
    assert min(outcomes.values()) > 10, outcomes
