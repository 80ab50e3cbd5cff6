"""Clients that delay messages in a cluster, and what must be true of what comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from goqueue.broker.schedules.schedules import Delayed
from goqueue.model.batch import Record, decode_batch
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    ScheduleReleased,
    UnknownSchedule,
)
from tests.simulation.cluster_work import Batch, IdempotentWriter
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

TOPIC = "orders"
PARTITIONS = 2
RELEASE_STEPS_MAX = 300
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

    def __init__(self, world: ClusterWorld, topic: str = TOPIC) -> None:
        self.world = world
        self.topic = topic
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

        node.broker.schedules.schedule(self.topic, delayed).then(done)

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
            if isinstance(error, ScheduleReleased):
                assert not fact.is_cancelled, f"{fact} was cancelled and then released"
                fact.is_released = True
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
            leader = self.world.leader_of(self.topic, number)
            assert leader is not None
            partition = leader.partition(self.topic, number)
            assert partition is not None
            for _, batch in partition.log.batches(0, until_offset=partition.high_watermark):
                for record in decode_batch(batch):
                    value = (record.value or b"").decode()
                    if value.startswith("m"):  # Others may write to the topic as well.
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

        for _ in range(RELEASE_STEPS_MAX):
            world.run_for(200)
            if is_empty():
                break
        assert is_empty(), f"seed {world.seed}: not all that was due has come"
        world.run_for(2_000)
        assert sum(node.broker.schedules.stats().dropped for node in world.up()) == 0


def begin(seed: int) -> ClusterWorld:
    """Three nodes that know the topic."""
    world = ClusterWorld(seed, schedules__checkpoint_ms="400", storage__segment_bytes="8KiB")
    world.heal()
    world.create(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    world.run_until(world.is_whole)  # Now every node knows the topic.
    return world


def schedule_through_trouble(world: ClusterWorld) -> Client:
    """Schedule, cancel and move messages while nodes fail, until all are released."""
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
        elif trouble < 0.85 and victim.is_up and not victim.is_paused:
            victim.pause()
            world.clock.call_later(chance.uniform(100, 6_000), victim.clock.resume)
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
    return client


class DelayingWriter(IdempotentWriter):
    """An idempotent producer that delays some of its records, with several batches in flight."""

    def __init__(
        self, world: ClusterWorld, topic: str, number: int, *, producer_id: int, in_flight: int
    ) -> None:
        super().__init__(world, topic, number, producer_id=producer_id, in_flight=in_flight)
        self.delays_ms: dict[str, int] = {}
        self.dues_ms: dict[str, int] = {}  # the earliest that any node may have understood

    def records(self, node: ClusterNode, batch: Batch) -> list[Record]:
        return [self._record(node, value) for value in batch.values]

    def _record(self, node: ClusterNode, value: str) -> Record:
        delay_ms = self.delays_ms.get(value)
        if delay_ms is None:
            chance = self.random
            delay_ms = chance.choice([0, 0, chance.randint(1, chance.choice(SPANS_MS))])
            self.delays_ms[value] = delay_ms
        if not delay_ms:
            return Record(b"", value.encode())
        due_ms = node.clock.wall_ms() + delay_ms
        self.dues_ms[value] = min(due_ms, self.dues_ms.get(value, due_ms))
        return Record(b"", value.encode(), (("goqueue-delay-ms", b"%d" % delay_ms),))

    def check_complete(self) -> None:
        """What was acknowledged is there once, in order or not before its time."""
        found = self._found()
        where = f"seed {self.world.seed}, producer {self.producer_id}"
        counts = Counter(value for value, _ in found)
        lost = [value for value in self.acked if value not in counts]
        delays = {value: self.delays_ms.get(value) for value in lost}
        assert not lost, f"{where}: lost (with delays) {delays}"
        twice = [value for value, count in counts.items() if count > 1]
        assert not twice, f"{where}: {twice} appeared twice"
        plain = [value for value, _ in found if not self.delays_ms[value]]
        in_order = sorted(plain, key=lambda value: int(value.split("-")[1]))
        assert plain == in_order, f"{where}: not in order: {plain}"
        for value, at_ms in found:
            due_ms = self.dues_ms.get(value, 0)
            assert at_ms >= due_ms or not self.delays_ms[value], f"{where}: {value} was early"

    def _found(self) -> Sequence[tuple[str, int]]:
        leader = self.world.leader_of(self.topic, self.number)
        assert leader is not None
        partition = leader.partition(self.topic, self.number)
        assert partition is not None
        return [
            ((record.value or b"").decode(), record.timestamp_ms)
            for _, batch in partition.log.batches(0, until_offset=partition.high_watermark)
            for record in decode_batch(batch)
            if (record.value or b"").startswith(b"%d-" % self.producer_id)
        ]
