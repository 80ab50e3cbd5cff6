"""A broker among crashes: what was acknowledged is there, in order, once, and nothing else is."""

from __future__ import annotations

import pytest

from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import start
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from tests.simulation.disk import PowerLost
from tests.simulation.world import World

TOPIC = "orders"
PARTITIONS = 3
PRODUCERS = 4
BATCHES = 25
SMALL_JOURNAL = "32KiB"  # so small that it is used again and again


class Producer:
    """An idempotent producer that sends numbered batches and repeats what was not acknowledged."""

    def __init__(self, world: World, name: str, producer_id: int, partition: int) -> None:
        self.world = world
        self.name = name
        self.producer_id = producer_id
        self.partition = partition
        self.acked = 0  # batches
        self._sequence = 0
        self._sizes = [world.random.randint(1, 5) for _ in range(BATCHES)]
        self._in_flight: int | None = None

    @property
    def is_done(self) -> bool:
        return self.acked == BATCHES

    @property
    def values(self) -> list[str]:
        return [value for batch in range(BATCHES) for value in self._batch(batch)]

    @property
    def acked_values(self) -> list[str]:
        return [value for batch in range(self.acked) for value in self._batch(batch)]

    def step(self) -> None:
        """Send the next batch, unless one is on its way."""
        if self.is_done or self._in_flight == self.world.disk.life:
            return
        life = self._in_flight = self.world.disk.life
        topic = self.world.broker.topics.get(TOPIC)
        now_ms = self.world.clock.now_ms()
        records = [
            Record(b"key", value.encode(), timestamp_ms=now_ms) for value in self._batch(self.acked)
        ]

        def acked(error: GoQueueError | None) -> None:
            assert life == self.world.disk.life, "a dead node has answered"
            self._in_flight = None
            if error is None:
                self._sequence += len(records)
                self.acked += 1

        self.world.append(
            topic.partition(self.partition),
            records,
            acked,
            producer=(self.producer_id, self._sequence),
        )

    def _batch(self, number: int) -> list[str]:
        return [f"{self.name}-{number}-{index}" for index in range(self._sizes[number])]


def _values(world: World, partition: int, prefix: str) -> list[str]:
    values = [
        (record.value or b"").decode() for record in world.consume(TOPIC, partition=partition)
    ]
    return [value for value in values if value.startswith(prefix + "-")]


def _check_acknowledged(world: World, producers: list[Producer]) -> None:
    for producer in producers:
        found = _values(world, producer.partition, producer.name)
        expected = producer.acked_values
        assert found[: len(expected)] == expected, f"seed {world.seed}: {producer.name} lost some"
        assert found == producer.values[: len(found)], f"seed {world.seed}: invented or twice"


@pytest.mark.seeds(80)
def test_acknowledged_records_survive_power_cuts_once_and_in_order(seed: int) -> None:
    world = World(
        seed,
        storage__segment_bytes="8KiB" if seed % 2 else "2KiB",
        storage__index_interval_bytes="64",
        storage__commit_journal_bytes=SMALL_JOURNAL,
    )
    world.create(TOPIC, PARTITIONS)
    producers = [
        Producer(
            world, f"p{number}", world.wait(world.broker.new_producer_id()), number % PARTITIONS
        )
        for number in range(PRODUCERS)
    ]
    crashes = 0
    while not all(producer.is_done for producer in producers):
        try:
            for producer in producers:
                if world.random.random() < 0.7:
                    producer.step()
            if world.random.random() < 0.05 and crashes < 12:
                # Fall in the middle of whatever the disk does next.
                world.disk.crash_at(world.random.randint(0, 12))
            world.run_for(world.random.uniform(0, 8))
            if world.random.random() < 0.03 and crashes < 12:
                raise PowerLost
        except PowerLost:
            crashes += 1
            _start_again(world)
            _check_acknowledged(world, producers)
    for producer in producers:
        assert _values(world, producer.partition, producer.name) == producer.values


def _start_again(world: World) -> None:
    """Start after a power cut; the power may fail again, several times, while the node starts."""
    while True:
        world.crash()
        if world.random.random() < 0.3:
            world.disk.crash_at(world.random.randint(0, 40))
        try:
            world.start()
        except PowerLost:
            continue
        world.disk.crash_at(None)
        return


@pytest.mark.parametrize("fsync", ["every", "interval", "none"])
@pytest.mark.seeds(8)
def test_a_killed_process_loses_nothing_that_was_acknowledged(seed: int, fsync: str) -> None:
    world = World(seed, storage__fsync=fsync, storage__segment_bytes="2KiB")
    world.create(TOPIC, PARTITIONS)
    producers = [
        Producer(
            world, f"p{number}", world.wait(world.broker.new_producer_id()), number % PARTITIONS
        )
        for number in range(PRODUCERS)
    ]
    kills = 0
    while not all(producer.is_done for producer in producers):
        for producer in producers:
            producer.step()
        world.run_for(world.random.uniform(0, 10))
        if world.random.random() < 0.1 and kills < 5:
            kills += 1
            world.kill()
            world.start()
            _check_acknowledged(world, producers)
    _check_acknowledged(world, producers)


@pytest.mark.seeds(20)
def test_a_clean_stop_loses_nothing_and_reads_no_log_at_the_next_start(seed: int) -> None:
    world = World(seed, storage__segment_bytes="2KiB")
    world.create(TOPIC, PARTITIONS)
    sent = [f"v{number}" for number in range(world.random.randint(1, 60))]
    world.produce(TOPIC, sent, partition=1)
    world.stop()
    world.disk.bytes_read.clear()
    world.start()
    assert not [path for path in world.disk.bytes_read if path.startswith("logs/")]
    assert [(record.value or b"").decode() for record in world.consume(TOPIC, partition=1)] == sent
    for partition in range(PARTITIONS):  # also where nothing had been written before
        world.produce(TOPIC, ["more"], partition=partition)
        assert world.consume(TOPIC, partition=partition)[-1].value == b"more"


@pytest.mark.seeds(20)
def test_answered_offset_commits_survive_power_cuts(seed: int) -> None:
    world = World(seed)
    world.create(TOPIC, PARTITIONS)
    outcome: list[object] = []
    start(world.broker.groups.ensure_topic(), lambda _, error: outcome.append(error))
    world.run_until(lambda: bool(outcome))
    committed: dict[str, int] = {}
    for round_number in range(10):
        for group in ("a", "b", "c"):
            offset = world.random.randint(0, 1000)
            promise = world.broker.groups.commit_offsets(
                CommitOffsets(
                    group_id=group,
                    offsets=[OffsetToCommit(topic=TOPIC, partition=0, offset=offset)],
                )
            )
            if world.random.random() < 0.8:
                assert not world.wait(promise).errors
                committed[group] = offset
            else:
                committed.pop(group, None)
        world.crash()
        world.start()
        for group, offset in committed.items():
            found = world.broker.groups.fetch_offsets(group, {TOPIC: [0]})
            assert found[TOPIC][0].offset == offset, f"seed {seed}, round {round_number}"


def test_a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself() -> None:
    world = World(storage__free_bytes_min="1000")
    world.create(TOPIC)
    world.produce(TOPIC, ["before"])
    world.disk.fill_after(500)
    world.run_for(2_000)
    with pytest.raises(GoQueueError) as refusal:
        world.produce(TOPIC, ["refused"])
    assert refusal.value.code == "storage_full"
    assert refusal.value.retryable
    assert [record.value for record in world.consume(TOPIC)] == [b"before"]
    world.disk.make_room()
    world.run_for(2_000)
    world.produce(TOPIC, ["after"])
    assert [record.value for record in world.consume(TOPIC)] == [b"before", b"after"]


def test_a_disk_that_fills_up_in_the_middle_of_a_write_leaves_no_torn_batch() -> None:
    world = World(storage__free_bytes_min="0")
    world.create(TOPIC)
    world.produce(TOPIC, ["before"])
    world.disk.fill_after(30)
    with pytest.raises(GoQueueError) as refusal:
        world.produce(TOPIC, ["refused"])
    assert refusal.value.code == "storage_full"
    world.disk.make_room()
    world.produce(TOPIC, ["after"])
    assert [record.value for record in world.consume(TOPIC)] == [b"before", b"after"]


def test_a_failed_sync_acknowledges_nobody_and_ends_writing() -> None:
    world = World()
    world.create(TOPIC)
    world.produce(TOPIC, ["before"])
    world.disk.fail_syncs(2)  # the commit journal, then the log itself
    with pytest.raises(GoQueueError) as refusal:
        world.produce(TOPIC, ["doubtful"])
    assert refusal.value.code == "storage_failed"
    with pytest.raises(GoQueueError):
        world.produce(TOPIC, ["after"])
    assert [record.value for record in world.consume(TOPIC)] == [b"before"]
    world.crash()
    world.start()
    world.produce(TOPIC, ["again"])
    assert world.consume(TOPIC)[-1].value == b"again"


def test_records_outlive_the_failure_of_the_commit_journal() -> None:
    world = World()
    world.create(TOPIC)
    world.produce(TOPIC, ["new", "journaled"])
    world.disk.fail_syncs(1)
    world.produce(TOPIC, ["with the failed one", "without it"])
    world.stop()
    world.start()
    assert len(world.consume(TOPIC)) == 4
    world.produce(TOPIC, ["journaled again"])
    world.crash()
    world.start()
    assert len(world.consume(TOPIC)) == 5


def test_a_topic_made_anew_gets_nothing_that_the_commit_journal_holds_of_the_old_one() -> None:
    world = World()
    world.create(TOPIC)
    world.produce(TOPIC, ["old 1", "old 2"])
    world.produce(TOPIC, ["old 3, in the journal"])
    world.wait(world.broker.topics.delete(TOPIC))
    world.create(TOPIC)
    world.produce(TOPIC, ["new"])
    world.crash()
    world.start()
    assert [record.value for record in world.consume(TOPIC)] == [b"new"]


@pytest.mark.seeds(15)
def test_compaction_in_the_background_keeps_the_last_value_of_each_key(seed: int) -> None:
    world = World(
        seed,
        storage__segment_bytes="1KiB",
        storage__commit_journal_bytes=SMALL_JOURNAL,
        compaction__check_ms="100",
        compaction__dirty_ratio_min="0.1",
    )
    world.create(TOPIC, cleanup_policy="compact")
    last: dict[bytes, bytes] = {}
    acked: list[GoQueueError | None] = []
    for number in range(300):
        key, value = b"k%d" % world.random.randint(0, 9), b"v%d" % number
        record = Record(key, value, timestamp_ms=world.clock.now_ms())
        partition = world.broker.topics.get(TOPIC).partition(0)
        world.append(partition, [record], acked.append)
        last[key] = value
        if world.random.random() < 0.2:
            world.run_for(world.random.uniform(50, 400))
            assert len(acked) == number + 1
            if world.random.random() < 0.05:
                world.crash()
                world.start()
    world.run_for(5_000)
    assert len(acked) == 300
    if seed % 2:
        _start_again(world)
    records = world.consume(TOPIC)
    assert {record.key: record.value for record in records} == last
    assert len(records) < 150, "nothing was compacted"
    assert [record.offset for record in records] == sorted({one.offset for one in records})
