"""Who coordinates after a change of leader: somebody who knows all that was promised before."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from goqueue.broker import Broker
from goqueue.broker.queues.journal import DeliveryShard
from goqueue.broker.queues.records import ReceivedMessage
from goqueue.broker.replication.integrity import ReplicaIntegrity
from goqueue.broker.replication.leaders import Marker
from goqueue.broker.schedules import replay
from goqueue.broker.schedules.schedules import Delayed
from goqueue.cluster.commands import ClaimCopies, GiveUpCopy
from goqueue.cluster.facts import PartitionFact
from goqueue.delivery.schedules import number_key, producer_key
from goqueue.delivery.schedules.records import MOVE_SUFFIX
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.groups.records import encode_offset_key
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import (
    GoQueueError,
    NotCoordinator,
    NotLeader,
    TransactionCoordinatorFenced,
    UnsupportedVersion,
)
from goqueue.model.names import (
    DELIVERY_TOPIC,
    JOURNEYS_TOPIC,
    OFFSETS_TOPIC,
    SCHEDULED_TOPIC,
    SCHEMAS_TOPIC,
    TRANSACTION_TOPIC,
    TopicPartition,
)
from goqueue.transactions.records import encode_key
from tests.simulation.cluster_transactions import Copy
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

TOPIC = "orders"
NAME = "till"  # of a group, or of a producer with transactions
TIMEOUT_MS = 60_000
TAKEN_OVER_MS = 10_000


def founded(seed: int, *, node_count: int = 3) -> ClusterWorld:
    world = ClusterWorld(
        seed,
        node_count=node_count,
        groups__offsets_partitions="1",
        transactions__state_partitions="1",
        delivery__partitions="1",
        schedules__partitions="1",
        journeys__partitions="1",
    )
    world.heal()
    return world


@pytest.fixture(autouse=True)
def _slow_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node first says of a hole gets lost, so that it leads for some time in spite of it."""
    tell, told = ReplicaIntegrity._tell, set[ReplicaIntegrity]()

    def tell_again(self: ReplicaIntegrity, command: ClaimCopies | GiveUpCopy) -> None:
        if self in told:
            tell(self, command)
        told.add(self)

    monkeypatch.setattr(ReplicaIntegrity, "_tell", tell_again)


def fact_of(world: ClusterWorld, topic: str) -> PartitionFact:
    node = world.up()[0].broker
    assert node.cluster is not None
    fact = node.cluster.quorum.metadata.partitions.get(node.topics.get(topic).id, 0)
    assert fact is not None
    return fact


def members(world: ClusterWorld, topic: str) -> list[ClusterNode]:
    """The leader, who is to follow it, and the third."""
    fact = fact_of(world, topic)
    assert fact.leader == fact.replicas[0]
    return [world.nodes[number] for number in fact.replicas]


def make_hole(node: ClusterNode, topic: str) -> None:
    """A bit of the last batch of an internal topic flips on the disk of a node."""
    partition = node.partition(topic)
    assert partition is not None
    *_, (segment, last) = partition.log.located(partition.start_offset)
    node.is_rotten = True
    node.disk.flip_bit(segment.file.path, 8 * last.end - 1)


def lose_leader(world: ClusterWorld, topic: str) -> ClusterNode:
    """Who takes over has a hole in its copy; the third node has none."""
    world.run_for(1_000)
    leader, heir, _ = members(world, topic)
    make_hole(heir, topic)
    leader.crash()
    world.run_until(lambda: heir.leads(topic), ms_max=TAKEN_OVER_MS)
    return heir


class Client:
    """Whoever asks on and on until somebody answers."""

    def __init__(self, world: ClusterWorld, topic: str) -> None:
        self.world = world
        self.topic = topic  # whose leader it asks

    def node(self) -> ClusterNode:
        node = self.world.leader_of(self.topic)
        if node is None:
            raise NotLeader(TopicPartition(self.topic, 0), -1)
        return node

    def insist(self, call):  # type: ignore[no-untyped-def]
        deadline_ms = self.world.age_ms + TAKEN_OVER_MS
        while True:
            try:
                return self.world.wait(call(self.node().broker))
            except GoQueueError as error:
                if not error.retryable or self.world.age_ms >= deadline_ms:
                    raise
            self.world.run_for(10)


def received(client: Client, *, wait_ms: int) -> list[ReceivedMessage]:
    return list(
        client.insist(
            lambda broker: (
                broker.queues.receive(
                    NAME, TOPIC, consumer="a", messages_max=100, wait_ms=wait_ms
                ).promise
            )
        )
    )


def test_what_is_acked_does_not_come_back_through_a_hole() -> None:
    world = founded(1)
    world.create(TOPIC, min_insync_replicas="2")
    world.wait(world.up()[0].broker.queues.groups.create(NAME, {}))
    client = Client(world, DELIVERY_TOPIC)
    for value in ("a", "b", "c"):
        world.produce(TOPIC, [value], lambda _, error: None)
    world.run_for(500)
    got = received(client, wait_ms=500)
    receipts = [one.delivery.receipt for one in got]
    assert client.insist(lambda broker: broker.queues.ack(NAME, receipts)) == [None] * 3
    heir = lose_leader(world, DELIVERY_TOPIC)
    assert received(client, wait_ms=500) == []
    assert client.node() is not heir


def test_a_group_goes_on_where_it_was_in_spite_of_a_hole() -> None:
    world = founded(2)
    world.create(TOPIC, min_insync_replicas="2")
    client = Client(world, OFFSETS_TOPIC)
    for offset in (1, 2):
        call = CommitOffsets(
            group_id=NAME, offsets=[OffsetToCommit(topic=TOPIC, partition=0, offset=offset)]
        )
        assert not client.insist(lambda broker: broker.groups.commit_offsets(call)).errors  # noqa: B023
    heir = lose_leader(world, OFFSETS_TOPIC)
    client.insist(lambda broker: broker.groups.confirm(NAME))
    assert client.node() is not heir
    assert client.node().broker.groups.fetch_offsets(NAME)[TOPIC][0].offset == 2


def test_a_producer_stays_replaced_in_spite_of_a_hole() -> None:
    world = founded(3)
    client = Client(world, TRANSACTION_TOPIC)
    before = [
        client.insist(lambda broker: broker.transactions.initialise(NAME, timeout_ms=TIMEOUT_MS))
        for _ in range(2)
    ]
    heir = lose_leader(world, TRANSACTION_TOPIC)
    after = client.insist(
        lambda broker: broker.transactions.initialise(NAME, timeout_ms=TIMEOUT_MS)
    )
    assert [one.epoch for one in (*before, after)] == [0, 1, 2]
    assert after.producer_id == before[0].producer_id
    assert client.node() is not heir


@pytest.mark.parametrize("step_bytes", [1, 1 << 20])
def test_what_is_cancelled_is_not_released_through_a_hole(
    step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is found at once, or after others have had their turns."""
    monkeypatch.setattr(replay, "LOAD_STEP_BYTES", step_bytes)
    world = founded(4)
    world.create(TOPIC, min_insync_replicas="2")
    world.run_until(world.is_whole)
    client = Client(world, SCHEDULED_TOPIC)
    due_ms = world.clock.now_ms() + 5_000
    delayed = [Delayed(Record(None, value), due_ms) for value in (b"kept", b"cancelled")]
    _, second = client.insist(lambda broker: broker.schedules.schedule(TOPIC, delayed))
    client.insist(lambda broker: broker.schedules.cancel(second))
    heir = lose_leader(world, SCHEDULED_TOPIC)
    heir.clock.skew_ms += 10_000  # It is due at once.
    world.run_for(15_000)
    assert client.node() is not heir
    leader = world.leader_of(TOPIC)
    assert leader is not None
    assert world.read(leader, TOPIC) == ["kept"]


def test_nobody_coordinates_with_a_hole_while_others_have_to_come_back() -> None:
    """The last one in sync has rotted, but nothing counts until another is in sync with it."""
    world = founded(5, node_count=5)
    client = Client(world, TRANSACTION_TOPIC)
    before = [
        client.insist(lambda broker: broker.transactions.initialise(NAME, timeout_ms=TIMEOUT_MS))
        for _ in range(2)
    ]
    world.run_for(1_000)
    leader, last, third = members(world, TRANSACTION_TOPIC)
    world.network.cut([third.number], [last.number])
    third.kill()
    world.run_until(lambda: third.number not in fact_of(world, TRANSACTION_TOPIC).in_sync)
    make_hole(last, TRANSACTION_TOPIC)
    leader.crash()
    world.run_until(lambda: last.leads(TRANSACTION_TOPIC), ms_max=TAKEN_OVER_MS)
    third.start()
    world.run_for(3_000)
    assert client.node() is last
    with pytest.raises(NotCoordinator):
        world.wait(last.broker.transactions.initialise(NAME, timeout_ms=TIMEOUT_MS))
    world.network.heal()
    after = client.insist(
        lambda broker: broker.transactions.initialise(NAME, timeout_ms=TIMEOUT_MS)
    )
    assert [one.epoch for one in (*before, after)] == [0, 1, 2]


# Decisions


def test_a_coordinator_carries_out_no_decision_that_may_still_be_lost() -> None:
    """One node alone has read that a transaction is committed; it dies, and the next knows not."""
    # A seed with which the heir dies before it takes the other one out of the in-sync set.
    world = founded(2, node_count=5)
    old, heir, other = members(world, TRANSACTION_TOPIC)
    keepers = [node for node in world.up() if node not in (old, heir, other)]
    place = TopicPartition(TOPIC, 0)
    made = world.up()[0].broker.topics.create(
        TOPIC,
        partition_count=1,
        settings={"min_insync_replicas": "2"},
        assignment=(tuple(node.number for node in keepers),),
    )
    world.wait(made)
    world.run_until(lambda: world.leader_of(TOPIC) is not None)
    world.run_until(lambda: all(node.broker.topics.find(TOPIC) for node in world.up()))
    transactions = old.broker.transactions
    identity = world.wait(transactions.initialise(NAME, timeout_ms=TIMEOUT_MS))
    world.wait(transactions.add_partitions(NAME, identity, [place]))
    keeper = world.leader_of(TOPIC)
    assert keeper is not None
    partition = keeper.partition(TOPIC)
    assert partition is not None
    batch = encode_batch(
        [Record(None, b"sold")],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    partition.append(memoryview(batch), now_ms=world.clock.now_ms())
    world.run_for(500)
    # The decision reaches the heir, and the news of that nobody.
    world.network.cut_one_way([old.number], [node.number for node in (other, *keepers)])
    copy = heir.partition(TRANSACTION_TOPIC)
    assert copy is not None
    end = copy.end_offset
    transactions.end(NAME, identity, is_commit=True)
    world.run_until(lambda: copy.end_offset > end, ms_max=1_000)
    old.crash()
    world.network.heal()
    world.network.cut([heir.number], [other.number])
    world.run_until(lambda: heir.leads(TRANSACTION_TOPIC), ms_max=TAKEN_OVER_MS)
    world.run_for(500)
    assert copy.high_watermark < copy.end_offset
    assert partition.transactions.get(identity.producer_id) is not None
    heir.crash()
    world.run_until(lambda: other.leads(TRANSACTION_TOPIC), ms_max=TAKEN_OVER_MS)
    old.start()  # so that there are enough of them again
    client = Client(world, TRANSACTION_TOPIC)
    later = client.insist(
        lambda broker: broker.transactions.initialise(NAME, timeout_ms=TIMEOUT_MS)
    )
    assert later.epoch > identity.epoch
    world.run_for(1_000)
    for node in keepers:
        assert Copy(node).read(place) == [], "the commit of one coordinator, the abort of another"


def test_a_coordinator_that_was_replaced_does_not_say_that_a_transaction_is_unknown() -> None:
    """Its successor may have begun it; whoever believed the old one would abort it."""
    world = founded(8)
    old, *others = members(world, TRANSACTION_TOPIC)
    world.network.cut([old.number], [node.number for node in others])
    world.run_until(lambda: world.leader_of(TRANSACTION_TOPIC) is not old, ms_max=TAKEN_OVER_MS)
    client = Client(world, TRANSACTION_TOPIC)
    identity = client.insist(
        lambda broker: broker.transactions.initialise(NAME, timeout_ms=TIMEOUT_MS)
    )
    assert old.leads(TRANSACTION_TOPIC), "it has not heard of its successor"
    asked = old.broker.transactions._ask_of_producer(identity.producer_id)
    world.run_for(2_000)
    assert not asked.is_done
    world.network.heal()
    with pytest.raises(GoQueueError):
        world.wait(asked)
    view = world.wait(client.node().broker.transactions._ask_of_producer(identity.producer_id))
    assert view is not None
    assert view.transactional_id == NAME


def test_an_end_that_comes_late_does_not_end_the_next_transaction() -> None:
    """Be it of an earlier transaction, or meant for a leader of another time."""
    world = founded(9)
    world.create(TOPIC, min_insync_replicas="2")
    leader = world.leader_of(TOPIC)
    assert leader is not None
    topic, partition = leader.broker.topics.get(TOPIC), leader.partition(TOPIC)
    assert partition is not None

    def end(turn: int, *, leader_epoch: int = partition.leader_epoch) -> None:
        marker = Marker(topic.id, 0, 77, 0, True, 0, turn, leader_epoch)
        world.wait(leader.broker.leaders.mark(partition, marker))

    for number in range(3):
        batch = encode_batch(
            [Record(None, b"%d" % number)],
            producer_id=77,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        partition.append(memoryview(batch), now_ms=world.clock.now_ms())
        if number < 2:
            end(number + 1)
    with pytest.raises(TransactionCoordinatorFenced):
        end(1)
    end(2)  # It has come twice, and is answered as the first time.
    with pytest.raises(NotLeader):
        end(3, leader_epoch=partition.leader_epoch - 1)
    assert partition.transactions.get(77) is not None
    end(3)
    assert partition.transactions.get(77) is None


# Records of a later release

LATER = {
    "an offset": (OFFSETS_TOPIC, Record(encode_offset_key(NAME, TOPIC, 0), b"\x00\x09later")),
    "a transaction": (TRANSACTION_TOPIC, Record(encode_key(NAME), b"\x09later")),
    "deliveries": (DELIVERY_TOPIC, Record(b"\x09later", b"\x09later")),
    "a scheduled message": (SCHEDULED_TOPIC, Record(number_key(0), b"\x09later")),
    "a due time": (SCHEDULED_TOPIC, Record(number_key(0) + MOVE_SUFFIX, b"\x09later")),
    "a producer": (SCHEDULED_TOPIC, Record(producer_key((bytes(16), 0, 7)), b"\x09later")),
    "another kind of schedules": (SCHEDULED_TOPIC, Record(b"later", b"\x01later")),
    "a schema": (SCHEMAS_TOPIC, Record(b"version/1/orders", b"\x09later")),
    "another kind of schemas": (
        SCHEMAS_TOPIC,
        Record(b"later/orders", b"\x01" + msgspec.msgpack.encode({"type": "later"})),
    ),
    "cursors of journeys": (JOURNEYS_TOPIC, Record(b"\x09\x02", b"J\x09later")),
}


@pytest.mark.parametrize("kind", LATER)
def test_nobody_coordinates_with_a_record_of_a_later_release(kind: str) -> None:
    topic, record = LATER[kind]
    world = founded(9)
    world.run_until(lambda: world.leader_of(topic) is not None)
    leader = world.leader_of(topic)
    assert leader is not None
    partition = leader.partition(topic)
    assert partition is not None
    # Not written by the coordinator, whose state would otherwise have to follow.
    batch = memoryview(encode_batch([record]))
    appended = partition.append(batch, now_ms=leader.clock.wall_ms())
    world.run_until(lambda: partition.high_watermark > appended.last_offset)
    leader.crash()
    world.run_for(TAKEN_OVER_MS)
    for node in world.up():
        assert shards_of(node.broker, topic) == [], "a part of the log is not the state"
    heirs = [node for node in world.up() if node.leads(topic)]
    assert heirs
    assert all(node.broker.cluster.membership.is_ill() for node in heirs)  # type: ignore[union-attr]


def shards_of(broker: Broker, topic: str) -> list[object]:
    assert broker.journeys is not None
    owned: dict[str, Iterable[object]] = {
        OFFSETS_TOPIC: broker.groups.shards,
        TRANSACTION_TOPIC: broker.transactions.shards,
        DELIVERY_TOPIC: broker.queues.journal,
        SCHEDULED_TOPIC: broker.schedules.shards.owned,
        SCHEMAS_TOPIC: [broker.schemas] if broker.schemas._replica.is_leading else [],
        JOURNEYS_TOPIC: broker.journeys.owners.shards,
    }
    return list(owned[topic])


def test_a_node_of_an_older_release_hands_over_what_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = founded(10)
    world.create(TOPIC, min_insync_replicas="2")
    client = Client(world, DELIVERY_TOPIC)
    client.insist(lambda broker: broker.queues.groups.create(NAME, {"visibility_ms": 60_000}))
    world.produce(TOPIC, ["a", "b"], lambda _, error: None)
    assert received(client, wait_ms=1_000)
    leader, heir, _ = members(world, DELIVERY_TOPIC)
    replay_here = DeliveryShard.replay

    def replay_there(shard: DeliveryShard) -> None:
        if shard._topics is heir.broker.topics:
            raise UnsupportedVersion("A record has version 9; upgrade this node.")
        replay_here(shard)

    monkeypatch.setattr(DeliveryShard, "replay", replay_there)
    leader.crash()
    world.run_until(lambda: heir.leads(DELIVERY_TOPIC), ms_max=TAKEN_OVER_MS)
    assert received(client, wait_ms=100) == [], "the leases are still known"
    assert client.node() is not heir
