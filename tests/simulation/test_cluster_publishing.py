"""Publishing and reading at any node while leaders come and go: once, in order, and found again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from goqueue.broker.publishing.publisher import Published, PublishResult
from goqueue.broker.reading.records import Place
from goqueue.broker.reading.remote import Bounds
from goqueue.loop.promise import Promise, start
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, OffsetOutOfRange
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

TOPIC = "orders"
PARTITIONS = 3
STEPS = 8
READ_MS = 20_000


class Publisher:
    """Publishes numbered values at nodes chosen by the seed, and remembers what became of them."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.sent = 0
        self.out = 0
        self.acked: dict[str, Published] = {}
        self.refused: dict[str, GoQueueError] = {}

    def publish(self, count: int) -> None:
        for _ in range(count):
            node = self.world.random.choice(self.world.up())
            value, self.sent = str(self.sent), self.sent + 1
            self.out += 1
            record = Record(value.encode(), value.encode())
            life = node.broker

            def done(
                results: list[PublishResult] | None,
                error: Exception | None,
                value: str = value,
            ) -> None:
                self.out -= 1
                outcome = error if results is None else results[0]
                if isinstance(outcome, GoQueueError):
                    self.refused[value] = outcome
                else:
                    assert isinstance(outcome, Published)
                    self.acked[value] = outcome

            life.publish(TOPIC, [record]).then(done)


def read_all(world: ClusterWorld, node: ClusterNode) -> list[tuple[int, Record]]:
    """All that a node finds, page by page, whoever leads."""
    topic = node.broker.topics.get(TOPIC)
    found: list[tuple[int, Record]] = []
    places = [Place(one, 0) for one in topic.partitions]
    deadline_ms = world.age_ms + READ_MS
    while True:
        reading = node.broker.reads.read(places, records_max=7, bytes_max=1 << 20, wait_ms=0)
        try:
            page = world.wait(reading.promise)
        except GoQueueError as error:
            if not error.retryable or world.age_ms > deadline_ms:
                raise
            world.run_for(100)
            continue
        assert not page.damaged
        found += [(partition.name.partition, record) for partition, record in page.records]
        if not page.records:
            return found
        places = page.places


def founded(seed: int) -> ClusterWorld:
    world = ClusterWorld(seed)
    world.heal()
    world.create(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    return world


def test_every_node_publishes_to_and_reads_from_every_leader() -> None:
    world = founded(1)
    publisher = Publisher(world)
    publisher.publish(60)
    world.run_until(lambda: publisher.out == 0)
    assert not publisher.refused
    for node in world.up():
        found = {
            (record.value or b"").decode(): (number, record)
            for number, record in read_all(world, node)
        }
        assert set(found) == set(publisher.acked)
        for value, (number, record) in found.items():
            told = publisher.acked[value]
            assert (told.partition, told.offset) == (number, record.offset)


def test_a_read_waits_for_what_another_node_will_take() -> None:
    world = founded(2)
    for reader in world.up():
        topic = reader.broker.topics.get(TOPIC)
        numbers = range(PARTITIONS)
        looked: Promise[Sequence[Bounds]] = Promise()
        start(reader.broker.reads.look(topic, numbers), looked.settle)
        bounds = world.wait(looked)
        places = [
            Place(topic.partition(number), bounds[number].high_watermark) for number in numbers
        ]
        reading = reader.broker.reads.read(
            places, records_max=10, bytes_max=1 << 20, wait_ms=30_000
        )
        world.run_for(2_000)
        assert not reading.promise.is_done
        publisher = Publisher(world)
        publisher.publish(1)
        world.run_until(lambda reading=reading: reading.promise.is_done, ms_max=3_000)  # type: ignore[misc]
        page = world.wait(reading.promise)
        assert len(page.records) == 1


def test_an_offset_that_is_not_there_is_refused_by_its_leader() -> None:
    world = founded(3)
    for node in world.up():
        places = [Place(one, 99) for one in node.broker.topics.get(TOPIC).partitions]
        reading = node.broker.reads.read(places, records_max=10, bytes_max=1 << 20, wait_ms=1_000)
        with pytest.raises(OffsetOutOfRange):
            world.wait(reading.promise)


@pytest.mark.seeds(8)
def test_published_messages_are_stored_once_whatever_happens(seed: int) -> None:
    world = founded(seed)
    publisher = Publisher(world)
    chance = world.random
    for _ in range(STEPS):
        publisher.publish(chance.randint(1, 15))
        if chance.random() < 0.5:
            chance.choice(_deeds(world))()
        world.run_for(chance.randint(10, 1_500))
        if len(world.up()) < 2:
            world.heal()
    world.heal()
    # Nobody hears from a node that died; all others have an answer by now.
    world.run_for(20_000)
    publisher.publish(5)
    world.run_for(5_000)
    contents = [read_all(world, node) for node in world.up()]
    values = [record.value.decode() for _, record in contents[0] if record.value is not None]
    assert Counter(values).most_common(1)[0][1] == 1, "something was stored twice"
    assert set(publisher.acked) <= set(values), "something that was acknowledged is lost"
    places = {
        (record.value or b"").decode(): (number, record.offset) for number, record in contents[0]
    }
    for value, told in publisher.acked.items():
        assert places[value] == (told.partition, told.offset)
    assert all(sorted(one) == sorted(contents[0]) for one in contents)


def _deeds(world: ClusterWorld) -> list[Callable[[], None]]:
    def crash() -> None:
        world.random.choice(world.up()).crash()

    def kill() -> None:
        world.random.choice(world.up()).kill()

    def lose() -> None:
        world.network.faults.loss = 0.2

    def repeat() -> None:
        world.network.faults.duplication = 0.2

    def isolate() -> None:
        numbers = list(world.nodes)
        alone = world.random.choice(numbers)
        world.network.cut([alone], [one for one in numbers if one != alone])

    return [crash, kill, lose, repeat, isolate, world.network.heal, world.heal]


def test_what_has_rotted_at_the_leader_alone_is_read_from_the_next() -> None:
    world = founded(4)
    publisher = Publisher(world)
    publisher.publish(30)
    world.run_until(lambda: publisher.out == 0)
    world.run_until(world.is_whole)
    leader = world.leader_of(TOPIC)
    assert leader is not None
    partition = leader.partition(TOPIC)
    assert partition is not None
    segment, place = next(iter(partition.log.located(0)))
    leader.is_rotten = True
    leader.disk.flip_bit(segment.file.path, 8 * place.end - 1)
    found = read_all(world, leader)
    assert sorted((record.value or b"").decode() for _, record in found) == sorted(publisher.acked)
    assert world.leader_of(TOPIC) is not leader
