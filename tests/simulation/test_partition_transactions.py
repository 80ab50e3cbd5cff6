"""Transactions of single partitions among crashes: what is seen of them is what the log says."""

from __future__ import annotations

from contextlib import suppress

import pytest

from goqueue.broker.topics.topics import Topic
from goqueue.model.batch import Record, add_sequence, encode_batch
from goqueue.model.errors import DuplicateSequence, GoQueueError, OutOfOrderSequence
from goqueue.partition import Partition
from tests.simulation.disk import PowerLost
from tests.simulation.world import World
from tests.unit.partition.till import committed, known, truth

TOPIC = "orders"
PARTITIONS = 2
PRODUCERS = 4
STEPS = 150
CRASHES = 6


class Writer:
    """Ends each of its transactions in one partition as it likes, in an epoch of its own."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.producer_id = 1000 + number
        self.epoch = 0
        self.count = 0
        self.sequence = 0  # of the next record
        self.written: list[str] = []  # in the transaction that is open
        self.seen: list[str] = []  # the commit of which was acknowledged
        self.unseen: set[str] = set()  # aborted, which was acknowledged or has no other outcome
        self.partition = number % PARTITIONS

    def target(self) -> Partition:
        return self.world.broker.topics.get(TOPIC).partition(self.partition)

    def step(self) -> None:
        if self.written and self.world.random.random() < 0.4:
            self._end(is_commit=self.world.random.random() < 0.6)
        elif self.world.random.random() < 0.1:
            self._give_up()
        else:
            self._write()

    def _write(self) -> None:
        partition, now_ms = self.target(), self.world.clock.now_ms()
        records = []
        for _ in range(self.world.random.randint(1, 3)):
            self.count += 1
            value = f"{self.producer_id}:{self.count}"
            records.append(Record(b"key", value.encode(), (), now_ms))
            self.written.append(value)
        batch = encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence = add_sequence(self.sequence, len(records))
        try:
            with suppress(DuplicateSequence):  # to clients it is stored
                partition.append(memoryview(batch), now_ms=now_ms)
        except OutOfOrderSequence:
            self.begin_epoch()

    def _give_up(self) -> None:
        """Write, do not hear of it, and abort; the next batch has the same sequence numbers."""
        sequence = self.sequence
        self._write()
        self._end(is_commit=False)
        self.sequence = sequence

    def _end(self, *, is_commit: bool) -> None:
        partition, values = self.target(), self.written
        life = self.world.disk.life
        marker = partition.append_marker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            is_commit=is_commit,
            coordinator_epoch=0,
            now_ms=self.world.clock.now_ms(),
        )
        self.written = []

        def ended(error: GoQueueError | None) -> None:
            assert life == self.world.disk.life, "a dead node has answered"
            if error is None and is_commit:
                self.seen += values
            elif error is None:
                self.unseen.update(values)

        partition.when_committed(marker.last_offset, ended)

    def begin_epoch(self) -> None:
        """Whoever comes back has a new epoch, which ends what was open in the old one."""
        self.epoch += 1
        self.sequence = 0
        self.written = []
        partition = self.target()
        partition.append_marker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            is_commit=False,
            coordinator_epoch=0,
            now_ms=self.world.clock.now_ms(),
        )


def check(topic: Topic, writers: list[Writer], *, is_settled: bool) -> None:
    """An open transaction may hide others that came later, and nothing else may."""
    for number, partition in enumerate(topic.partitions):
        assert known(partition) == truth(partition)
        values = committed(partition)
        for writer in (one for one in writers if one.partition == number):
            own = [one for one in values if one.startswith(f"{writer.producer_id}:")]
            expected = [one for one in own if one in set(writer.seen)]
            assert expected == writer.seen[: None if is_settled else len(expected)]
            assert not writer.unseen.intersection(own)
            assert not set(writer.written).intersection(own)


@pytest.mark.seeds(10)
@pytest.mark.parametrize("fsync", ["every", "none"])
def test_no_transaction_is_seen_in_part(seed: int, fsync: str) -> None:
    world = World(seed, storage__fsync=fsync, storage__segment_bytes="2KiB")
    world.create(TOPIC, PARTITIONS)
    writers = [Writer(world, number) for number in range(PRODUCERS)]
    for _ in range(CRASHES):
        if world.random.random() < 0.5:
            world.disk.crash_at(world.random.randint(1, 300))
        try:
            for _ in range(STEPS // CRASHES):
                world.random.choice(writers).step()
                if world.random.random() < 0.3:
                    world.run_for(world.random.choice([0, 1, 20]))
                world.check_invariants()
            check(world.broker.topics.get(TOPIC), writers, is_settled=False)
        except PowerLost:
            pass
        world.disk.crash_at(None)
        if fsync == "every":
            world.crash()
        else:
            world.kill()
        world.start()
        for writer in writers:
            writer.begin_epoch()
        world.run_for(100)
        world.check_invariants()
        check(world.broker.topics.get(TOPIC), writers, is_settled=True)
