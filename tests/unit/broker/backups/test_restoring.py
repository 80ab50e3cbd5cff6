"""The data folder that a restore writes: what is recovered from it, and what is moved ahead."""

from __future__ import annotations

import random
from itertools import count

from goqueue.broker.backups.fencing import fencing_records
from goqueue.broker.backups.restoring import (
    EPOCHS_AHEAD,
    PRODUCER_IDS_AHEAD,
    Log,
    Object,
    Topic,
    write_node,
)
from goqueue.cluster.facts import (
    NextProducerId,
    NodeFact,
    PartitionFact,
    TopicFact,
    encode_decision,
)
from goqueue.model.batch import Record, encode_batch
from goqueue.model.names import ProducerIdentity
from goqueue.transactions.records import Standing, decode_standing, encode_key, encode_standing
from goqueue.transactions.views import TransactionState
from tests.simulation.disk import SimulatedDisk
from tests.simulation.world import World

ID = bytes(range(16))
NOW_MS = 1_700_000_000_000


def batch(offset: int, *values: bytes, epoch: int = 3) -> bytes:
    records = [Record(None, one, timestamp_ms=NOW_MS) for one in values]
    return bytes(encode_batch(records, base_offset=offset, leader_epoch=epoch))


def world_of(log: Log, *, epoch: int = 3) -> World:
    """A node with one topic, restored to a disk whose power has failed since."""
    metadata = encode_decision(
        [
            NextProducerId(7),
            NodeFact(1, bytes(16)),
            TopicFact(ID, "orders", 1),
            PartitionFact(ID, 0, (1, 2), (1, 2), leader=1, leader_epoch=epoch),
        ]
    )
    world = World(1)
    world.crash()
    world.disk = SimulatedDisk(random.Random(1))
    write_node(world.disk, metadata, [Topic("orders", epoch, [log])], now_ms=NOW_MS)
    world.disk.crash()
    world.start()
    return world


def values(world: World) -> list[bytes | None]:
    return [one.value for one in world.consume("orders")]


def test_offsets_and_ids_stay_and_epochs_and_producer_ids_are_ahead() -> None:
    objects = [Object(0, 2, 2, [batch(0, b"a", b"b")]), Object(2, 3, 3, [batch(2, b"c")])]
    world = world_of(Log(0, 0, 3, objects))
    assert values(world) == [b"a", b"b", b"c"]
    topic = world.broker.topics.get("orders")
    assert topic.id == ID
    assert topic.fact.leader_epoch == 3 + EPOCHS_AHEAD
    metadata = world.broker.topics.facts.log.metadata
    assert metadata.next_producer_id == 7 + PRODUCER_IDS_AHEAD
    assert not metadata.nodes
    world.produce("orders", ["d"])
    assert [one.offset for one in world.consume("orders")] == [0, 1, 2, 3]


def test_gaps_of_compaction_between_objects_lose_nothing() -> None:
    objects = [Object(0, 10, 4, [batch(2, b"a", b"b")]), Object(10, 12, 12, [batch(11, b"c")])]
    world = world_of(Log(0, 0, 12, objects))
    assert [(one.offset, one.value) for one in world.consume("orders")] == [
        (2, b"a"),
        (3, b"b"),
        (11, b"c"),
    ]


def test_offsets_of_removed_records_at_the_end_are_not_assigned_again() -> None:
    world = world_of(Log(0, 0, 9, [Object(0, 9, 2, [batch(0, b"a", b"b")])]))
    assert values(world) == [b"a", b"b"]
    world.produce("orders", ["c"])
    assert [one.offset for one in world.consume("orders")] == [0, 1, 9]


def test_a_log_whose_records_are_all_deleted_goes_on_at_its_end() -> None:
    world = world_of(Log(0, 5, 5, []))
    world.produce("orders", ["a"])
    assert [one.offset for one in world.consume("orders")] == [5]


def test_records_before_the_start_stay_deleted() -> None:
    world = world_of(Log(0, 1, 2, [Object(0, 2, 2, [batch(0, b"deleted", b"b")])]))
    assert world.broker.topics.get("orders").partition(0).start_offset == 1


def standing(state: TransactionState, **more: int) -> Standing:
    return Standing(state=state, producer_id=1, epoch=4, timeout_ms=1, updated_ms=1, **more)


def fenced(before: Standing) -> Standing:
    record = Record(encode_key("till"), encode_standing(before), timestamp_ms=1)
    [written] = fencing_records([bytes(encode_batch([record]))], count(1_000), now_ms=NOW_MS)
    after = decode_standing(written.value or b"")
    assert after is not None
    return after


def test_an_open_transaction_is_aborted_and_its_producer_replaced() -> None:
    after = fenced(standing(TransactionState.ONGOING, started_ms=1))
    assert after.state is TransactionState.PREPARE_ABORT
    assert after.identity == ProducerIdentity(1, 5)
    assert after.next_identity == ProducerIdentity(1_000, 0)


def test_an_idle_transactional_id_gets_another_producer_id() -> None:
    after = fenced(standing(TransactionState.COMPLETE_COMMIT))
    assert after.state is TransactionState.EMPTY
    assert after.identity == ProducerIdentity(1_000, 0)


def test_a_decided_commit_is_carried_out() -> None:
    after = fenced(standing(TransactionState.PREPARE_COMMIT))
    assert after.state is TransactionState.PREPARE_COMMIT
    assert after.identity == ProducerIdentity(1, 4)
    assert after.next_identity == ProducerIdentity(1_000, 0)


def test_what_fills_gaps_has_the_epochs_around_it() -> None:
    objects = [
        Object(0, 6, 6, [batch(0, b"a", epoch=1), batch(5, b"b", epoch=2)]),
        Object(6, 9, 8, [batch(7, b"c", epoch=3)]),
    ]
    partition = world_of(Log(0, 0, 9, objects)).broker.topics.get("orders").partition(0)
    assert [one.leader_epoch for one in partition.log.headers(0)] == [1, 2, 2, 3, 3, 3]
