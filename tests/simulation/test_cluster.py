"""Clusters of whole brokers: what was acknowledged by all stays, whatever happens to nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition
from tests.simulation.cluster_trouble import Trouble
from tests.simulation.cluster_work import Committer, HastyWriter, IdempotentWriter, Reader
from tests.simulation.cluster_world import ClusterWorld


class Writer:
    """Sends numbered values and remembers which were acknowledged."""

    def __init__(self, world: ClusterWorld, topic: str, *, partitions: int = 1) -> None:
        self.world = world
        self.topic = topic
        self.partitions = partitions
        self.acked: list[set[str]] = [set() for _ in range(partitions)]
        self.refused = 0
        self.sent = 0
        self.out = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            number = self.world.random.randrange(self.partitions)
            values = [f"{self.sent + one}" for one in range(self.world.random.randint(1, 3))]
            self.sent += len(values)
            self.out += 1

            def done(values: list[str], error: GoQueueError | None, number: int = number) -> None:
                self.out -= 1
                if error is None:
                    self.acked[number].update(values)
                else:
                    self.refused += 1

            self.world.produce(self.topic, values, done, number=number)


def test_a_cluster_forms_and_replicates() -> None:
    world = ClusterWorld(1)
    world.heal()
    world.create("orders", partitions=3, min_insync_replicas="2")
    writer = Writer(world, "orders", partitions=3)
    writer.send(30)
    world.run_until(lambda: writer.out == 0)
    assert writer.refused == 0
    world.run_for(500)
    for number in range(3):
        contents = [world.read(node, "orders", number) for node in world.up()]
        assert contents[0] == contents[1] == contents[2]
        assert set(contents[0]) == writer.acked[number]


def test_another_node_leads_when_the_leader_dies() -> None:
    world = ClusterWorld(2)
    world.heal()
    world.create("orders", min_insync_replicas="2")
    writer = Writer(world, "orders")
    writer.send(10)
    world.run_until(lambda: writer.out == 0)
    old = world.leader_of("orders")
    assert old is not None
    old.crash()
    world.run_until(lambda: world.leader_of("orders") is not None, ms_max=5_000)
    new = world.leader_of("orders")
    assert new is not None
    assert new is not old
    writer.send(10)
    world.run_until(lambda: writer.out == 0)
    world.run_for(500)
    assert writer.acked[0] <= set(world.read(new, "orders"))
    world.heal()
    world.run_for(6_000)
    assert world.read(old, "orders") == world.read(new, "orders")


TOPIC = "orders"
PARTITIONS = 2
STEPS = 12
LATE_MS_MAX = 1_000  # nothing that was sent is on its way for longer
ANSWER_MS = 20_000  # within which everything works again when all trouble is over


class Run:
    """One cluster of three or five nodes, its clients and its troubles."""

    def __init__(self, seed: int) -> None:
        self.world = world = ClusterWorld(seed, node_count=5 if seed % 4 == 0 else 3)
        world.heal()
        world.create(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        numbers = range(PARTITIONS)
        chance = world.random
        self.writers = [
            IdempotentWriter(
                world, TOPIC, number, producer_id=100 + number, in_flight=chance.choice([1, 3, 5])
            )
            for number in numbers
        ]
        self.hasty = [HastyWriter(world, TOPIC, number) for number in numbers]
        self.readers = [Reader(world, TOPIC, number) for number in numbers]
        self.committers = [
            Committer(world, f"group-{number}", self.readers[number], joins=number == 0)
            for number in numbers
        ]
        self.trouble = Trouble(world, TOPIC, partitions=PARTITIONS)
        self.is_working = True
        self._work()

    def _work(self) -> None:
        """Clients take turns, on and on."""
        if not self.is_working:
            return
        chance = self.world.random
        self.world.clock.call_later(chance.uniform(5, 120), self._work)
        deed = chance.choice(
            [
                *(writer.write for writer in self.writers),
                *(writer.write for writer in self.hasty),
                *(reader.poll for reader in self.readers * 2),
                *(committer.commit for committer in self.committers),
                *(committer.check for committer in self.committers),
            ]
        )
        deed()

    def go_through_trouble(self) -> None:
        chance = self.world.random
        for _ in range(STEPS):
            self.trouble.strike()
            self.world.run_for(chance.choice([chance.uniform(5, 300), chance.uniform(300, 2_000)]))

    def recover(self) -> None:
        """All trouble ends: every client gets its answer, and all copies become one."""
        self.trouble.end()
        self.is_working = False
        self.world.run_until(
            lambda: all(writer.is_done for writer in self.writers), ms_max=ANSWER_MS
        )
        for committer in self.committers:
            acks = committer.acks
            self._until(lambda: committer.acks > acks, committer.commit)  # noqa: B023
            tellings = committer.tellings
            self._until(lambda: committer.tellings > tellings, committer.check)  # noqa: B023
        self.world.run_for(LATE_MS_MAX)
        self.world.run_until(self._is_settled, ms_max=ANSWER_MS)
        self.world.watch.check_whole()

    def _until(self, is_reached: Callable[[], bool], deed: Callable[[], None]) -> None:
        deadline_ms = self.world.age_ms + ANSWER_MS
        while not is_reached():
            assert self.world.age_ms < deadline_ms, f"seed {self.world.seed}: nothing comes of it"
            deed()
            self.world.run_for(100)

    def _is_settled(self) -> bool:
        return self.world.is_whole() and all(
            len({(one.end_offset, one.high_watermark) for one in self._copies(number)}) == 1
            for number in range(PARTITIONS)
        )

    def _copies(self, number: int) -> list[Partition]:
        topic = self.world.up()[0].broker.topics.get(TOPIC)
        fact = self.world.up()[0].broker.cluster.quorum.metadata.partitions.get(topic.id, number)
        found = [self.world.nodes[one].partition(TOPIC, number) for one in fact.members]
        return [one for one in found if one is not None]

    def check_histories(self) -> None:
        """What everyone remembers is what is there."""
        seed = self.world.seed
        for number, writer in enumerate(self.writers):
            values = self.world.watch.ledger(TOPIC, number).values()
            own = [one for one in values if one.startswith(f"{writer.producer_id}-")]
            assert own == sorted(writer.acked, key=_order), (
                f"seed {seed}: lost, twice or disordered"
            )
            hasty = [one for one in values if one.startswith("hasty-")]
            assert len(hasty) == len(set(hasty)) <= self.hasty[number].sent, f"seed {seed}"
            reader = self.readers[number]
            self._until(lambda: len(reader.values) >= len(values), reader.poll)  # noqa: B023
            assert reader.values == values, f"seed {seed}: a reader saw something else"
            for one in self.world.up():
                assert self.world.read(one, TOPIC, number) in (values, []), f"seed {seed}"


def _order(value: str) -> int:
    return int(value.rpartition("-")[2])


@pytest.mark.seeds(150)
def test_nothing_that_all_have_acknowledged_is_lost(seed: int) -> None:
    run = Run(seed)
    run.go_through_trouble()
    run.recover()
    run.check_histories()
