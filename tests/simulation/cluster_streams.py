"""Producers and stream consumers of one topic of a cluster, and what they must find in the end."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.partition import Partition
from tests.simulation.cluster_work import Committer, HastyWriter, IdempotentWriter, Reader
from tests.simulation.cluster_world import ClusterWorld

LATE_MS_MAX = 1_000  # nothing that was sent is on its way for longer
ANSWER_MS = 20_000  # within which everything works again when all trouble is over


class Streams:
    """Two kinds of writers, a reader and a group for each partition of a topic."""

    def __init__(self, world: ClusterWorld, topic: str, *, partitions: int) -> None:
        self.world = world
        self.topic = topic
        self.partitions = partitions
        numbers = range(partitions)
        chance = world.random
        self.writers = [
            IdempotentWriter(
                world, topic, number, producer_id=100 + number, in_flight=chance.choice([1, 3, 5])
            )
            for number in numbers
        ]
        self.hasty = [HastyWriter(world, topic, number) for number in numbers]
        self.readers = [Reader(world, topic, number) for number in numbers]
        self.committers = [
            Committer(world, f"group-{number}", self.readers[number], joins=number == 0)
            for number in numbers
        ]

    def work(self) -> None:
        """One of them does what it does."""
        deed = self.world.random.choice(
            [
                *(writer.write for writer in self.writers),
                *(writer.write for writer in self.hasty),
                *(reader.poll for reader in self.readers * 2),
                *(committer.commit for committer in self.committers),
                *(committer.check for committer in self.committers),
            ]
        )
        deed()

    def settle(self) -> None:
        """All trouble has ended: every client gets its answer, and all copies become one."""
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

    def check_histories(self) -> None:
        """What everyone remembers is what is there."""
        seed = self.world.seed
        for number, writer in enumerate(self.writers):
            values = self.world.watch.ledger(self.topic, number).values()
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
                assert self.world.read(one, self.topic, number) in (values, []), f"seed {seed}"

    def _until(self, is_reached: Callable[[], bool], deed: Callable[[], None]) -> None:
        deadline_ms = self.world.age_ms + ANSWER_MS
        while not is_reached():
            assert self.world.age_ms < deadline_ms, f"seed {self.world.seed}: nothing comes of it"
            deed()
            self.world.run_for(100)

    def _is_settled(self) -> bool:
        return self.world.is_whole() and all(
            len({(one.end_offset, one.high_watermark) for one in self._copies(number)}) == 1
            for number in range(self.partitions)
        )

    def _copies(self, number: int) -> list[Partition]:
        topic = self.world.up()[0].broker.topics.get(self.topic)
        fact = self.world.up()[0].broker.cluster.quorum.metadata.partitions.get(topic.id, number)
        found = [self.world.nodes[one].partition(self.topic, number) for one in fact.members]
        return [one for one in found if one is not None]


def _order(value: str) -> int:
    return int(value.rpartition("-")[2])
