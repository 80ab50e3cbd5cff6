"""Sums of metrics over nodes are what clients counted, on one node and while leaders move."""

from __future__ import annotations

from collections import Counter

import pytest

from goqueue.broker import Broker
from goqueue.broker.gate.areas.records import Span
from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.broker.reading.positions import At, Position
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import Cancellation
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.observing import CountingObserver
from tests.simulation.scraping import SESSION, scrape, together
from tests.simulation.world import World

TOPIC, GROUP, QUEUE = "orders", "readers", "shop"
DEAD_LETTERS = "orders.dlq"
STATES = ("ready", "in_flight", "waiting")
PARTITIONS = 3
ROUNDS = 6


class Alone(World):
    """One node that is no cluster."""

    def up(self) -> list[Alone]:
        return [self]


class Clients:
    """Clients of every node, and what they count."""

    def __init__(self, world: ClusterWorld | Alone) -> None:
        self.world = world
        self.produced = 0
        self.consumed = 0
        self.scheduled = 0
        self.received = 0
        self.acked = 0
        self.nacked = 0
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.committed = dict.fromkeys(range(PARTITIONS), 0)

    def node(self) -> ClusterNode | Alone:
        return self.world.random.choice(self.world.up())

    def publish(self) -> None:
        count = self.world.random.randint(1, 20)
        records = [Record(str(number).encode(), b"v") for number in range(count)]
        gate = self.node().broker.gate
        results = self.world.wait(gate.records.publish(SESSION, topic=TOPIC, records=records))
        assert all(type(one) is Published for one in results)
        self.produced += count

    def schedule(self) -> None:
        record = Record(None, b"v", ((DELAY_HEADER, b"500"),))
        gate = self.node().broker.gate
        results = self.world.wait(gate.records.publish(SESSION, topic=TOPIC, records=[record] * 3))
        assert all(type(one) is Scheduled for one in results)
        self.scheduled += len(results)

    def consume(self) -> None:
        """Read on, and commit some of it."""
        spans = [
            Span(number, Position(At.OFFSET, offset)) for number, offset in self.offsets.items()
        ]
        page = self.world.wait(
            self.node().broker.gate.records.read(
                SESSION,
                topic=TOPIC,
                spans=spans,
                records_max=15,
                bytes_max=1 << 20,
                cancellation=Cancellation(),
            )
        )
        self.consumed += len(page.records)
        for partition, record in page.records:
            self.offsets[partition.name.partition] = record.offset + 1
        self.commit()

    def commit(self) -> None:
        offsets = [
            OffsetToCommit(topic=TOPIC, partition=number, offset=offset)
            for number, offset in self.offsets.items()
        ]
        call = CommitOffsets(group_id=GROUP, offsets=offsets)
        result = self.world.wait(self.node().broker.gate.group_offsets.commit(SESSION, call=call))
        if not any(result.errors.values()):
            self.committed = dict(self.offsets)

    def receive(self) -> None:
        """Receive some messages; acknowledge most of them."""
        gate = self.node().broker.gate
        received = self.world.wait(
            gate.queues.receive(
                SESSION,
                group=QUEUE,
                topic=TOPIC,
                consumer="anna",
                messages_max=5,
                wait_ms=0,
                visibility_ms=None,
                cancellation=Cancellation(),
            )
        )
        receipts = [one.delivery.receipt for one in received]
        self.received += len(receipts)
        back, done = receipts[:1], receipts[1:]
        if back:
            self._settled(gate.queues.nack(SESSION, group=QUEUE, receipts=back, delay_ms=0))
            self.nacked += len(back)
        if done:
            self._settled(gate.queues.ack(SESSION, group=QUEUE, receipts=done))
            self.acked += len(done)

    def _settled(self, outcomes: object) -> None:
        assert not any(self.world.wait(outcomes))  # type: ignore[arg-type]


@pytest.fixture(params=range(4))
def world(request: pytest.FixtureRequest) -> ClusterWorld:
    observers = {number: CountingObserver() for number in range(1, 4)}
    world = ClusterWorld(request.param, observers=observers)
    world.run_until(world.is_whole)
    world.create(TOPIC, partitions=PARTITIONS)
    return world


def stored_again(world: ClusterWorld | Alone, topic: str) -> int:
    """Messages that a leader stored, and its successor stored again at the same offsets.

    They were not committed when the leader moved, so no client had counted them.
    """
    if isinstance(world, Alone):
        return 0
    reported: Counter[tuple[str, int, int]] = Counter()
    for observer in world.observers.values():
        assert isinstance(observer, CountingObserver)
        reported += observer.stored_at
    return sum(count - 1 for place, count in reported.items() if place[0] == topic)


def work(clients: Clients) -> None:
    world = clients.world
    put = clients.node().broker.gate.groups.put_queue(SESSION, group=QUEUE, settings=None)
    world.wait(put)
    world.run_for(1_000)
    for number in range(ROUNDS):
        deeds = [clients.publish, clients.schedule, clients.consume, clients.receive] * 3
        world.random.shuffle(deeds)
        for deed in deeds:
            deed()
        if isinstance(world, ClusterWorld):
            move_leaders(world, number % 3 + 1)


def move_leaders(world: ClusterWorld, away_from: int) -> None:
    """Let a node lead nothing, and then be like the others again."""
    other = next(one for one in world.up() if one.number != away_from).broker.administration
    world.wait(other.drain(away_from))
    world.run_until(
        lambda: not any(world.nodes[away_from].leads(TOPIC, one) for one in range(PARTITIONS))
    )
    world.wait(other.drain(away_from, is_wanted=False))
    world.run_for(2_000)


def test_sums_of_counters_are_what_clients_counted(world: ClusterWorld) -> None:
    clients = Clients(world)
    work(clients)
    world.run_for(5_000)
    check_counters(clients, [node.broker for node in world.nodes.values()])


@pytest.mark.parametrize("seed", range(4))
def test_one_node_counts_what_its_clients_count(seed: int) -> None:
    world = Alone(seed)
    world.create(TOPIC, PARTITIONS)
    clients = Clients(world)
    work(clients)
    world.run_for(5_000)
    check_counters(clients, [world.broker])


def check_counters(clients: Clients, brokers: list[Broker]) -> None:
    sums = together(brokers, clients.world.wait)
    stored = sums["producer_messages_total"]
    again = stored_again(clients.world, TOPIC)
    assert stored[TOPIC,] - again == clients.produced + clients.scheduled
    assert sums["consumer_messages_total"] == {(TOPIC,): clients.consumed}
    assert sums["schedule_scheduled_total"] == {(): clients.scheduled}
    is_alone = isinstance(clients.world, Alone)
    for found, expected in (
        (sums["schedule_released_total"][()], clients.scheduled),
        (sums["queue_delivered_total"][QUEUE, TOPIC], clients.received),
        (sums["queue_settled_total"][QUEUE, TOPIC, "acked"], clients.acked),
    ):
        # A replaced owner leaves out what it has not reported yet; nobody reports twice.
        assert found == expected if is_alone else 0.8 * expected <= found <= expected
    # A message that is returned for the last time becomes a dead letter.
    dead = sum(sums["queue_dead_lettered_total"].values())
    assert 0 < dead <= clients.nacked
    assert stored[DEAD_LETTERS,] - stored_again(clients.world, DEAD_LETTERS) == dead


def test_counters_never_decrease_when_leaders_move(world: ClusterWorld) -> None:
    clients = Clients(world)
    before: dict[int, dict[str, dict[tuple[str, ...], float]]] = {}
    for number in range(3):
        clients.publish()
        clients.consume()
        move_leaders(world, number + 1)
        for node in world.nodes.values():
            found = scrape(node.broker, world.wait)
            for name, values in before.get(node.number, {}).items():
                if name.endswith("_total"):
                    assert all(found[name][labels] >= value for labels, value in values.items())
            before[node.number] = found


def test_gauges_are_exported_by_one_node_each(world: ClusterWorld) -> None:
    clients = Clients(world)
    work(clients)
    world.run_for(5_000)
    brokers = [node.broker for node in world.nodes.values()]
    sums = together(brokers, world.wait)
    ends: Counter[tuple[str, ...]] = Counter()
    for number in range(PARTITIONS):
        leader = world.leader_of(TOPIC, number)
        assert leader is not None
        partition = leader.partition(TOPIC, number)
        assert partition is not None
        ends[str(number),] = partition.high_watermark
    stored = sum(ends.values())
    assert stored == clients.produced + clients.scheduled
    lag = stored - sum(clients.committed.values())
    assert sums["group_lag_messages"] == {(GROUP, TOPIC): lag}
    dead = sum(sums["queue_dead_lettered_total"].values())
    kept = [sums[f"queue_{state}_messages"][QUEUE, TOPIC] for state in STATES]
    assert sum(kept) == stored - clients.acked - dead
    assert sums["cluster_active_controller"] == {(): 1}
    assert sums["cluster_nodes"]["live",] == 3
    assert sums["cluster_led_partitions"] == sums["storage_partitions"]
    details = together(brokers, world.wait, "partitions", "groups")
    assert {
        labels[1]: end
        for labels, end in details["partition_high_watermark"].items()
        if labels[0] == TOPIC
    } == {labels[0]: end for labels, end in ends.items()}
    assert sum(details["group_partition_lag_messages"].values()) == lag


def test_a_scrape_survives_a_leader_that_does_not_answer(world: ClusterWorld) -> None:
    clients = Clients(world)
    clients.publish()
    clients.consume()
    world.run_for(2_000)
    found = together([node.broker for node in world.nodes.values()], world.wait)
    dead = world.leader_of(TOPIC)
    assert dead is not None
    dead.kill()
    others = [node.broker for node in world.up()]
    world.run_for(1_100)
    after = together(others, world.wait)
    assert set(after["group_lag_messages"]) <= set(found["group_lag_messages"])
    assert after["storage_partitions"][()] > 0
    with pytest.raises(GoQueueError):
        world.wait(
            others[0].gate.metrics.scrape(
                SESSION, text_format="prometheus", families=["nothing"], cancellation=Cancellation()
            )
        )
