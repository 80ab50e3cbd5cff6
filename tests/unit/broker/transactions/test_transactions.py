"""Transactions on a node: batches, markers, offsets, and what happens when a partition refuses."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.broker.transactions.joining import Joining
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    FencedProducer,
    GoQueueError,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    StorageFull,
    UnknownPartition,
    UnknownTransaction,
)
from goqueue.model.names import OFFSETS_TOPIC, TRANSACTION_TOPIC, ProducerIdentity, TopicPartition
from goqueue.partition import Appended, Partition
from goqueue.storage.aborted import find_aborted
from goqueue.transactions import TransactionState
from tests.simulation.world import World

NAME = "shop"
GROUP = "readers"
ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 0)


class Shop(World):
    """A node with two topics and one transactional producer."""

    def __init__(self, **settings: str) -> None:
        super().__init__(
            0, transactions__state_partitions="2", groups__offsets_partitions="2", **settings
        )
        self.create("orders")
        self.create("bills")
        self.sequences: dict[tuple[ProducerIdentity, TopicPartition], int] = {}

    def initialise(self, name: str = NAME) -> ProducerIdentity:
        return self.wait(self.broker.transactions.initialise(name, timeout_ms=60_000))

    def begin(self, *partitions: TopicPartition) -> ProducerIdentity:
        identity = self.initialise()
        self.wait(self.broker.transactions.add_partitions(NAME, identity, partitions))
        return identity

    def store(
        self,
        identity: ProducerIdentity,
        name: TopicPartition,
        *,
        transactional_id: str | None = NAME,
        joins: bool = False,
    ) -> Appended | Joining:
        sequence = self.sequences.get((identity, name), 0)
        record = Record(None, b"x", timestamp_ms=self.clock.now_ms())
        batch = encode_batch(
            [record],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        topic = self.broker.topics.get(name.topic)
        stored = self.broker.producing.produce(
            topic,
            topic.partition(name.partition),
            memoryview(batch),
            transactional_id=transactional_id,
            joins_transaction=joins,
        )
        self.sequences[identity, name] = sequence + 1
        assert isinstance(stored, Appended | Joining)
        return stored

    def end(self, identity: ProducerIdentity, *, is_commit: bool = True) -> ProducerIdentity:
        return self.wait(self.broker.transactions.finish(NAME, identity, is_commit=is_commit))

    def stable(self, name: TopicPartition) -> int:
        return self.broker.topics.get(name.topic).partition(name.partition).last_stable_offset

    def outcome(self, joining: Joining) -> GoQueueError | None:
        outcomes: list[GoQueueError | None] = []
        joining.when_committed(outcomes.append)
        self.run_until(lambda: bool(outcomes))
        return outcomes[0]


def test_a_transaction_holds_up_readers_until_its_end() -> None:
    shop = Shop()
    identity = shop.begin(ORDERS, BILLS)
    shop.store(identity, ORDERS)
    shop.store(identity, BILLS)
    shop.run_for(100)
    assert (shop.stable(ORDERS), shop.stable(BILLS)) == (0, 0)
    shop.end(identity)
    assert (shop.stable(ORDERS), shop.stable(BILLS)) == (2, 2)


def test_a_batch_is_taken_only_from_the_producer_and_into_a_participant() -> None:
    shop = Shop()
    identity = shop.begin(ORDERS)
    with pytest.raises(InvalidRequest):
        shop.store(identity, ORDERS, transactional_id=None)
    with pytest.raises(InvalidTransactionState):
        shop.store(identity, BILLS)
    with pytest.raises(InvalidProducerIdMapping):
        shop.store(identity, ORDERS, transactional_id="another")
    with pytest.raises(FencedProducer):
        shop.store(identity._replace(epoch=5), ORDERS, joins=True)
    shop.end(identity)
    with pytest.raises(InvalidTransactionState):
        shop.store(identity, ORDERS)


def test_a_batch_can_make_its_partition_join_first() -> None:
    shop = Shop()
    identity = shop.initialise()
    first, second = (
        shop.store(identity, ORDERS, joins=True),
        shop.store(identity, ORDERS, joins=True),
    )
    assert isinstance(first, Joining)
    assert isinstance(second, Joining)
    assert first.base_offset == -1
    assert shop.outcome(second) is None
    assert shop.outcome(first) is None
    assert (first.base_offset, second.base_offset, second.last_offset) == (0, 1, 1)
    assert shop.broker.transactions.describe(NAME).partitions == (ORDERS,)
    assert isinstance(shop.store(identity, ORDERS, joins=True), Appended)


def test_a_batch_that_may_not_join_is_refused_when_that_is_known() -> None:
    shop = Shop()
    identity = shop.initialise()
    joining = shop.store(identity, ORDERS, joins=True)
    assert isinstance(joining, Joining)
    # Fenced between the request to join and its answer.
    again = shop.broker.transactions.initialise(NAME, timeout_ms=60_000)
    assert isinstance(shop.outcome(joining), GoQueueError)
    assert shop.wait(again).epoch > identity.epoch
    assert shop.broker.topics.get("orders").partition(0).transactions.get(0) is None


def test_offsets_take_part_and_count_with_the_transaction() -> None:
    shop = Shop()
    identity = shop.initialise()
    transactions, groups = shop.broker.transactions, shop.broker.groups
    call = CommitOffsets(
        group_id=GROUP, offsets=[OffsetToCommit(topic="orders", partition=0, offset=7)]
    )
    with pytest.raises(InvalidTransactionState):
        shop.wait(transactions.commit_offsets(NAME, identity, call))
    shop.wait(transactions.add_group(NAME, identity, GROUP))
    shop.wait(transactions.commit_offsets(NAME, identity, call))
    (participant,) = transactions.describe(NAME).partitions
    assert participant == TopicPartition(OFFSETS_TOPIC, groups.partition_of(GROUP))
    assert groups.fetch_offsets(GROUP) == {}
    assert groups.unstable_offsets(GROUP) == {("orders", 0)}
    shop.end(identity)
    assert groups.fetch_offsets(GROUP, require_stable=True)["orders"][0].offset == 7


def test_a_partition_that_refuses_its_marker_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop()
    identity = shop.begin(ORDERS, BILLS)
    shop.store(identity, ORDERS)
    shop.store(identity, BILLS)
    shop.run_for(50)
    append_marker, refusals = Partition.append_marker, []

    def refuse(self: Partition, **fields: Any) -> Appended:
        if self.name == BILLS and len(refusals) < 3:
            refusals.append(StorageFull("No room."))
            raise refusals[-1]
        return append_marker(self, **fields)

    monkeypatch.setattr(Partition, "append_marker", refuse)
    ending = shop.broker.transactions.finish(NAME, identity, is_commit=True)
    shop.run_for(1500)
    assert not ending.is_done
    assert (shop.stable(ORDERS), shop.stable(BILLS)) == (2, 0)
    assert shop.broker.transactions.describe(NAME).state is TransactionState.PREPARE_COMMIT
    assert shop.wait(ending) == identity
    assert len(refusals) == 3
    assert shop.stable(BILLS) == 2


def test_a_topic_that_was_deleted_is_no_longer_waited_for() -> None:
    shop = Shop()
    identity = shop.begin(ORDERS, BILLS)
    shop.store(identity, ORDERS)
    shop.store(identity, BILLS)
    shop.wait(shop.broker.topics.delete("bills"))
    shop.end(identity)
    assert shop.stable(ORDERS) == 2
    assert shop.broker.transactions.describe(NAME).state is TransactionState.COMPLETE_COMMIT


def test_what_no_coordinator_knows_is_aborted_at_the_start() -> None:
    shop = Shop()
    shop.begin(ORDERS)
    stray = encode_batch(
        [Record(None, b"x")],
        producer_id=900,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    shop.broker.topics.get("bills").partition(0).append(
        memoryview(stray), now_ms=shop.clock.now_ms()
    )
    shop.run_for(50)
    assert shop.stable(BILLS) == 0
    shop.crash()
    shop.start()
    shop.run_for(50)
    assert shop.stable(BILLS) == 2
    (aborted,) = find_aborted(shop.broker.topics.get("bills").partition(0).log, 0, 2)
    assert aborted.producer_id == 900
    assert shop.broker.transactions.describe(NAME).state is TransactionState.ONGOING


def test_markers_from_elsewhere_end_only_what_is_not_known_here() -> None:
    shop = Shop()
    identity = shop.begin(ORDERS)
    shop.store(identity, ORDERS)
    unknown = TopicPartition("nowhere", 0)
    results = shop.wait(
        shop.broker.transactions.write_markers(
            identity, [ORDERS, BILLS, unknown], is_commit=True, coordinator_epoch=0
        )
    )
    assert isinstance(results[ORDERS], InvalidTransactionState)
    assert results[BILLS] is None
    assert isinstance(results[unknown], UnknownPartition)
    assert shop.stable(ORDERS) == 0
    empty = shop.broker.transactions.write_markers(
        identity, [], is_commit=True, coordinator_epoch=0
    )
    assert shop.wait(empty) == {}


def test_an_operator_aborts_and_looks() -> None:
    shop = Shop()
    identity = shop.begin(ORDERS)
    shop.store(identity, ORDERS)
    shop.run_for(50)
    transactions = shop.broker.transactions
    assert [one.transactional_id for one in transactions.all(pattern="sh.*")] == [NAME]
    assert transactions.all(pattern="x.*") == []
    assert transactions.all(older_than_ms=1000) == []
    shop.run_for(2000)
    assert len(transactions.all(older_than_ms=1000, states=[TransactionState.ONGOING])) == 1
    shop.wait(transactions.abort(NAME))
    assert shop.stable(ORDERS) == 2
    with pytest.raises(FencedProducer):
        shop.end(identity)
    with pytest.raises(UnknownTransaction):
        transactions.describe("nobody")


def test_the_internal_topic_is_made_when_it_is_needed_and_belongs_to_the_broker() -> None:
    shop = Shop()
    transactions = shop.broker.transactions
    assert shop.broker.topics.find(TRANSACTION_TOPIC) is None
    assert transactions.all() == []
    refusal = transactions.verify(NAME, ProducerIdentity(1, 0), ORDERS)
    assert isinstance(refusal, InvalidProducerIdMapping)
    first = transactions.initialise("one", timeout_ms=1000)
    second = transactions.initialise("two", timeout_ms=1000)
    assert shop.wait(first).producer_id != shop.wait(second).producer_id
    topic = shop.broker.topics.get(TRANSACTION_TOPIC)
    assert topic.is_internal
    assert len(topic.partitions) == 2
    assert {transactions.partition_of(name) for name in "abcdefgh"} == {0, 1}


def test_only_so_many_transactional_ids_are_remembered() -> None:
    shop = Shop(transactions__ids_max="1")
    shop.initialise()
    shop.initialise()
    with pytest.raises(CoordinatorNotAvailable, match="ids_max"):
        shop.initialise("another")


def test_a_clean_stop_and_start_lets_an_open_transaction_go_on() -> None:
    shop = Shop()
    identity = shop.begin(ORDERS)
    shop.store(identity, ORDERS)
    shop.stop()
    shop.start()
    shop.store(identity, ORDERS)
    shop.end(identity)
    assert shop.stable(ORDERS) == 3
