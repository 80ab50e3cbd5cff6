"""Replicas of a partition among crashes, bad networks and changing leaders lose nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goqueue.model.batch import decode_batch
from goqueue.partition import Partition, PartitionSettings
from goqueue.partition import durability as durability_module
from goqueue.storage.log import LogSettings
from goqueue.storage.segment import Segment
from tests.simulation.clock import NeverHappened
from tests.simulation.disk import PowerLost
from tests.simulation.replication_cluster import Cluster, Faults, Node
from tests.simulation.replication_work import (
    Ledger,
    Producer,
    TransactionalProducer,
    batches_of,
    check_prefixes,
    check_unseen,
    is_current,
)
from tests.unit.partition.till import committed, known, truth

SMALL = PartitionSettings(log=LogSettings(segment_bytes=3000, index_interval_bytes=300))
LARGE = PartitionSettings(log=LogSettings(segment_bytes=200_000, index_interval_bytes=4096))
SHORT = PartitionSettings(
    log=LogSettings(segment_bytes=3000, index_interval_bytes=300, retention_bytes=12_000)
)
STEPS = 220
DEEP_EVERY = 20


class Story:
    """A cluster, those who use it, and what befalls it."""

    def __init__(self, cluster: Cluster, *, is_clean: bool = True) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.is_clean = is_clean
        self.ledger = Ledger()
        self.writers = [TransactionalProducer(cluster, 301)] if is_clean else []
        self.producers = [
            Producer(cluster, 101, acks_all=True),
            Producer(cluster, 102, acks_all=True),
            Producer(cluster, 201, acks_all=False),
            *self.writers,
        ]

    def run(self, steps: int) -> None:
        for step in range(steps):
            self._misfortune()
            for producer in self.producers:
                self._guarded(producer.step)
            self._upkeep()
            self.cluster.run_for(self.random.choice([1, 5, 20, 60]))
            # Whoever looks closely may have an index written again, and the power fails in that.
            self._guarded(lambda step=step: self.check(is_deep=step % DEEP_EVERY == 0))

    def heal(self) -> None:
        """Everything works again; wait until all replicas are the same."""
        cluster = self.cluster
        cluster.faults = Faults()
        for node in cluster.nodes:
            node.disk.crash_at(None)
            node.disk.sync_delay_ms = 0.0
            if not node.is_up:
                node.start()
        for _ in range(600):  # a slow disk may have much to do yet
            cluster.controller.elect_unclean()
            cluster.run_for(50)
            self.check(is_deep=False)
            for producer in self.producers:
                if not producer.is_idle:
                    producer.step()
                if isinstance(producer, TransactionalProducer):
                    producer.finish()
            if all(one.is_idle for one in self.producers) and self._is_settled():
                return
        raise NeverHappened(f"seed {cluster.seed}: {self._state()}")

    # Faults

    def _misfortune(self) -> None:
        chance, cluster = self.random.random(), self.cluster
        node = self.random.choice(cluster.nodes)
        if chance < 0.03:
            self._stop(node)
        elif chance < 0.05 and node.is_up and cluster.fsync == "every":
            node.disk.crash_at(self.random.randint(0, 30))
        elif chance < 0.09:
            cluster.controller.move_leader()
        elif chance < 0.13:
            self._cut()
        elif chance < 0.18:
            cluster.faults.cut.clear()
        elif chance < 0.22:
            node.disk.sync_delay_ms = self.random.choice([0.0, 0.0, 5.0, 60.0, 400.0])
        elif chance < 0.26:
            self._unsettle()
        elif chance < 0.27:
            self._replace_disk(node)
        elif chance < 0.29:
            cluster.controller.elect_unclean()
        down = [one for one in cluster.nodes if not one.is_up]
        if down and self.random.random() < 0.12:
            self._guarded(self.random.choice(down).start)

    def _stop(self, node: Node) -> None:
        if self.cluster.fsync == "every" and self.random.random() < 0.7:
            node.crash()
        else:
            node.kill()

    def _cut(self) -> None:
        """Cut off one node: from all, from some, or in one direction."""
        cluster, one = self.cluster, self.random.randrange(len(self.cluster.nodes))
        others = [-1, *(other.number for other in cluster.nodes if other.number != one)]
        kept = self.random.choice([0, 0, 1, 2])
        for other in self.random.sample(others, len(others) - kept):
            direction = self.random.random()
            if direction < 0.7:
                cluster.faults.cut.add((one, other))
            if direction > 0.3:
                cluster.faults.cut.add((other, one))

    def _unsettle(self) -> None:
        self.cluster.faults = replace(
            self.cluster.faults,
            loss=self.random.choice([0.0, 0.0, 0.05, 0.3]),
            duplication=self.random.choice([0.0, 0.1, 0.5]),
            delay_ms=self.random.choice([0.5, 2.0, 30.0]),
            late=self.random.choice([0.0, 0.02, 0.1]),
        )

    def _replace_disk(self, node: Node) -> None:
        """Nobody relies on this disk, nor will: its node is not in sync and counts as dead."""
        controller = self.cluster.controller
        if node.number not in controller.in_sync:
            node.lose_disk()
            controller.forget(node.number)

    def _guarded(self, action: object) -> None:
        try:
            assert callable(action)
            action()
        except PowerLost:
            next(one for one in self.cluster.nodes if one.disk.has_lost_power).crash()

    # Upkeep

    def _upkeep(self) -> None:
        leader = self.cluster.leader
        if leader is not None and leader.is_up and self.random.random() < 0.02:
            partition = leader.partition
            if is_current(self.cluster, leader):
                offset = self.random.randint(partition.start_offset, partition.high_watermark)
                self._guarded(lambda: partition.retention.delete_before(offset))
        for node in self.cluster.nodes:
            if node.is_up and self.random.random() < 0.05:
                self._guarded(lambda node=node: self._expire(node))

    def _expire(self, node: Node) -> None:
        expired = node.partition.retention.take_expired(now_ms=node.clock.now_ms())
        node.clock.run_blocking(lambda: _remove(expired), _removed)

    # What must be true

    def check(self, *, is_deep: bool) -> None:
        nodes = [one for one in self.cluster.nodes if one.is_up]
        for node in nodes:
            partition = node.partition
            assert partition.replica.damaged_from is None, (
                "a power cut damages nothing that was synced"
            )
            assert partition.start_offset <= partition.high_watermark <= partition.end_offset
            assert partition.failure is None
            if node.leading is not None:
                self.ledger.observe(node)
        if self.is_clean:
            self._check_in_sync(is_deep=is_deep)
        if is_deep:
            check_prefixes(nodes)
            for node in nodes:
                # Where the beginning is gone, the rest does not tell the whole truth.
                if not node.partition.start_offset:
                    assert known(node.partition) == truth(node.partition)
                check_unseen(node, self.writers)

    def _check_in_sync(self, *, is_deep: bool) -> None:
        """Whoever may lead next has all that is committed."""
        controller, end = self.cluster.controller, self.ledger.end
        for node in self.cluster.nodes:
            is_same = controller.incarnations.get(node.number) == node.incarnation
            if node.is_up and is_same and node.number in controller.in_sync:
                who = f"seed {self.cluster.seed}: node {node.number}, which is in sync,"
                assert node.partition.replica.durable_offset >= end, (
                    f"{who} lacks what is committed"
                )
                if is_deep:
                    self.ledger.check(node.partition, until=end, who=who)

    def _is_settled(self) -> bool:
        controller, nodes = self.cluster.controller, self.cluster.nodes
        ends = {one.partition.end_offset for one in nodes}
        marks = {one.partition.high_watermark for one in nodes}
        return controller.in_sync == controller.replicas and len(ends) == 1 and marks == ends

    def check_end(self) -> None:
        """All copies are one, and hold all that anyone was told is stored."""
        self.check(is_deep=True)
        start = max(one.partition.start_offset for one in self.cluster.nodes)
        first, *others = [one.partition for one in self.cluster.nodes]
        for other in others:
            assert _history(first, start) == _history(other, start)
        copies = [batches_of(one.partition, start, 1 << 62) for one in self.cluster.nodes]
        assert all(copy == copies[0] for copy in copies)
        if self.is_clean:
            self._check_acked(first, start)

    def _check_acked(self, partition: Partition, start: int) -> None:
        stored: dict[int, tuple[str, ...]] = {}
        for header, batch in batches_of(partition, start, partition.end_offset):
            if not header.is_control:
                records = decode_batch(batch)
                stored[header.base_offset] = tuple((one.value or b"").decode() for one in records)
        every = [value for values in stored.values() for value in values]
        assert len(every) == len(set(every)), "a record is stored twice"
        for producer in self.producers:
            if producer.acks_all:
                for offset, sent in producer.acked.items():
                    is_there = stored.get(offset) == sent.values
                    assert is_there or offset < start, f"{sent} is lost at {offset}"
        values = [one for one in committed(partition) if one in set(every)]
        for writer in self.writers:
            seen = [one for one in values if one.startswith(f"{writer.producer_id}:")]
            assert seen == [one for one in writer.seen if one in set(every)][-len(seen) :]
            assert not writer.unseen & set(values)

    def _state(self) -> str:
        controller = self.cluster.controller
        nodes = [
            (
                one.number,
                one.is_up,
                type(one.role).__name__,
                one.partition.leader_epoch,
                one.partition.start_offset,
                one.partition.high_watermark,
                one.partition.replica.durable_offset,
                one.partition.end_offset,
                str(one.partition.failure),
            )
            for one in self.cluster.nodes
        ]
        return f"{controller.view()} {nodes} {[(p.producer_id, p.sent) for p in self.producers]}"


def _history(partition: Partition, start: int) -> object:
    """What follows from a log, without the times at which nodes have seen it."""
    producers = {
        one.producer_id: (
            one.epoch,
            one.coordinator_epoch if one.marker_offset >= start else None,
            [batch for batch in one.batches if batch.base_offset >= start],
        )
        for one in partition.producers
        if one.batches and one.batches[-1].base_offset >= start
    }
    epochs = [(epoch, max(offset, start)) for epoch, offset in partition.epochs.entries]
    return producers, partition.transactions.state(), [one for one in epochs if one[1] > start]


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        segment.remove()


def _removed(_: object, error: BaseException | None) -> None:
    assert error is None


@pytest.fixture(autouse=True)
def _frequent_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs here are small, and what is saved beside them should matter."""
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 2500)


@pytest.mark.seeds(12)
@pytest.mark.parametrize("node_count", [3, 5])
def test_what_all_in_sync_have_outlives_every_leader(seed: int, node_count: int) -> None:
    settings = (SHORT, SMALL, LARGE)[seed % 3]
    cluster = Cluster(seed, node_count=node_count, in_sync_min=2, settings=settings)
    story = Story(cluster)
    story.run(STEPS)
    story.heal()
    story.check_end()


@pytest.mark.seeds(4)
def test_without_syncs_nothing_is_lost_as_long_as_no_machine_dies(seed: int) -> None:
    story = Story(Cluster(seed, node_count=3, in_sync_min=2, settings=SMALL, fsync="none"))
    story.run(STEPS)
    story.heal()
    story.check_end()


@pytest.mark.seeds(10)
def test_replicas_agree_again_after_elections_that_lose_records(seed: int) -> None:
    settings = SMALL if seed % 2 else SHORT
    cluster = Cluster(seed, node_count=3, in_sync_min=1, settings=settings, is_unclean=True)
    story = Story(cluster, is_clean=False)
    story.run(STEPS)
    story.heal()
    story.check_end()
